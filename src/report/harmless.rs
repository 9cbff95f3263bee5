//! All output passes through here, so that text of others is visible, stays in place and reads in order.
//!
//! In: text with arbitrary content, because hosts, shares, registries and pods contribute to it. Out: the same text
//! without terminal control sequences and invisible characters, except the styles of hactl itself
//! ([`Style`](super::Style)); in JSON, such characters are escaped. All output to standard output and standard error
//! goes through this file, so that no field can be forgotten; a test enforces it.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::OnceLock;

/// The styles that hactl uses; any other escape sequence is foreign.
pub(super) const LOOKS: [&str; 6] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[1;31m"];

/// Whether a character is invisible or has an effect: controls (C0, DEL, C1), bidirectional controls, zero-width
/// characters, line separators, and invisible fillers.
pub const fn unseen(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Text for people: line feeds and hactl's own styles stay, tabs become spaces, all other unseen characters are
/// removed.
pub fn text(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| unseen(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    let mut left = text;
    while let Some(c) = left.chars().next() {
        if let Some(look) = LOOKS.iter().find(|look| left.starts_with(**look)) {
            safe.push_str(look);
            left = &left[look.len()..];
            continue;
        }
        match c {
            '\t' => safe.push_str("    "),
            '\u{2028}' | '\u{2029}' => safe.push(' '),
            c if c == '\n' || !unseen(c) => safe.push(c),
            _ => {}
        }
        left = &left[c.len_utf8()..];
    }
    Cow::Owned(safe)
}

/// An object for programs, on one line. Unseen characters are escaped, because people read such lines on terminals,
/// too.
pub fn json(value: &Value) -> String {
    let plain = value.to_string();
    if !plain.chars().any(unseen) {
        return plain;
    }
    let mut safe = String::with_capacity(plain.len() + 16);
    for c in plain.chars() {
        if unseen(c) {
            // They occur in strings only. Writing into a String cannot fail.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

/// A writer that filters through [`text`].
#[derive(Debug)]
pub struct Harmless<W>(pub W);

impl<W: Write> Write for Harmless<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(text(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The first error of standard output that is not a closed pipe.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Standard output without a filter. Its errors are remembered for [`lost`].
#[derive(Debug)]
pub struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        noted(io::stdout().write(bytes), bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        noted(io::stdout().flush(), ())
    }
}

/// The result of writing to standard output; `all` is that of a complete write. A closed pipe took all, because its
/// reader has read enough. Any other error is remembered, because work on hosts goes on without its output.
pub fn noted<T>(written: io::Result<T>, all: T) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(all),
        Err(error) if error.kind() != io::ErrorKind::Interrupted => {
            let kind = error.kind();
            // Only the first one counts.
            LOST.set(error).ok();
            Err(kind.into())
        }
        written => written,
    }
}

/// Why standard output lacks something that was to be there; `None`: it lacks nothing.
pub fn lost() -> Option<&'static io::Error> {
    LOST.get()
}

/// Standard output.
pub fn stdout() -> Harmless<StandardOutput> {
    Harmless(StandardOutput)
}

/// Standard error.
pub fn stderr() -> Harmless<io::Stderr> {
    Harmless(io::stderr())
}

/// Prints text. An error is remembered for [`lost`].
pub fn print(words: &str) {
    print_unfiltered(text(words).as_bytes());
}

/// Prints a file that this program made, such as a script, without a filter. An error is remembered for [`lost`].
pub fn print_unfiltered(file: &[u8]) {
    StandardOutput.write_all(file).and_then(|()| StandardOutput.flush()).ok();
}

/// Prints an object for programs on its own line.
pub fn print_json(value: &Value) {
    print(&format!("{}\n", json(value)));
}

/// Prints text on standard error, where it does not mix with the result.
pub fn tell(words: &str) {
    let _ = stderr().write_all(words.as_bytes());
}

/// Clears the terminal.
pub fn clear() {
    let _ = io::stdout().write_all(b"\x1b[H\x1b[2J");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hactls_own_styles_stay_and_every_other_sequence_is_broken() {
        assert_eq!(text("\x1b[1;31mbad\x1b[0m\tx\n"), "\x1b[1;31mbad\x1b[0m    x\n");
        assert_eq!(text("\x1b[2J\x1b[8mhidden\x1b]0;title\x07\u{9b}2J"), "[2J[8mhidden]0;title2J");
        assert_eq!(text("a\u{202e}b\u{200b}c\u{2028}d\u{e0041}e\rf"), "abc def");
        assert!(matches!(text("plain ✓ — ü\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_object_says_the_same_after_its_unseen_characters_are_escaped() {
        let value = serde_json::json!({"why": "\x1b[2J \u{9b}31m \u{202e}x\u{2028}\u{200b}\u{e0041}\u{7f}", "n": 1});
        let line = json(&value);
        assert!(!line.chars().any(unseen), "{line:?}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    proptest! {
        #[test]
        fn no_invisible_characters_but_line_feeds_and_hactls_own_styles_come_out(
            words in proptest::collection::vec(prop_oneof![any::<String>(), Just("\x1b[1m".to_owned()), Just("\x1b[0m".to_owned()),
                Just("\x1b".to_owned()), Just("[2m".to_owned())], 0..8)
        ) {
            let mut out = text(&words.concat()).into_owned();
            for look in LOOKS {
                out = out.replace(look, "");
            }
            prop_assert!(!out.chars().any(|c| unseen(c) && c != '\n'), "{out:?}");
            let mut written = Vec::new();
            for word in &words {
                Harmless(&mut written).write_all(word.as_bytes()).unwrap();
            }
            let value = Value::from(words);
            prop_assert_eq!(serde_json::from_str::<Value>(&json(&value)).unwrap(), value);
        }
    }
}
