//! Formats sizes, durations, counts, lists and errors, and sanitizes text from hosts.

use super::harmless::unseen;
pub use crate::model::plan::counted as count;
use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

/// Bytes for people: `512 B`, `4.2 MB`, `212 MB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let (mut scale, mut unit) = (1u64, 0);
    while unit + 1 < UNITS.len() && count / scale >= 1000 {
        scale *= 1000;
        unit += 1;
    }
    let tenths = (u128::from(count) * 10 + u128::from(scale) / 2) / u128::from(scale);
    if unit == 0 || tenths >= 100 {
        format!("{} {}", (tenths + 5) / 10, UNITS[unit])
    } else {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    }
}

/// A duration for people: `0.4 s`, `12 s`, `2 min 5 s`, `1 h 4 min`.
pub fn time(duration: Duration) -> String {
    let tenths = (duration.as_millis() + 50) / 100;
    let seconds = (tenths + 5) / 10;
    if tenths < 100 {
        format!("{}.{} s", tenths / 10, tenths % 10)
    } else if seconds < 100 {
        format!("{seconds} s")
    } else if seconds < 3600 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else {
        format!("{} h {} min", seconds / 3600, seconds % 3600 / 60)
    }
}

/// A duration in milliseconds for people.
pub fn millis(ms: u64) -> String {
    time(Duration::from_millis(ms))
}

/// An error and its sources, without inner messages that an outer one already repeats.
pub fn chain(error: Option<&dyn Error>) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    let mut next = error;
    while let Some(error) = next {
        let sentence = error.to_string();
        let said = sentences.iter().any(|outer| outer.contains(&sentence));
        if !said && !sentence.is_empty() {
            sentences.push(sentence);
        }
        next = error.source();
    }
    sentences
}

/// `a, b, c`, or `a, b and 7 more` when there are more than `most`.
pub fn list<T: Display>(items: &[T], most: usize) -> String {
    shortened(items, most, ", ", " and ")
}

/// Hosts in one cell: `cp1 cp2 cp3`, or the first few and how many more.
pub fn hosts<T: Display>(items: &[T], most: usize) -> String {
    shortened(items, most, " ", " +")
}

fn shortened<T: Display>(items: &[T], most: usize, between: &str, more: &str) -> String {
    let shown = if items.len() <= most { items.len() } else { most.saturating_sub(1).max(1) };
    let mut text = items.iter().take(shown).map(ToString::to_string).collect::<Vec<_>>().join(between);
    if items.len() > shown {
        text.push_str(&format!("{more}{} more", items.len() - shown));
    }
    text
}

/// Several texts, owned.
pub fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

/// A text as one word of a shell command: quoted, unless it has only letters, digits and characters of `plain`.
pub fn shell(word: &str, plain: &str) -> String {
    if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || plain.contains(c)) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The columns of a text.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

/// The text in at most `most` columns; a longer text is cut at its end.
pub fn cut(text: &str, most: usize, unicode: bool) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let (dots, taken) = if unicode { ("…", 1) } else { ("...", 3) };
    let mut short: String = text.chars().take(most.saturating_sub(taken)).collect();
    short.truncate(short.trim_end().len());
    short.push_str(dots);
    short
}

/// Text from a host without escape sequences and [`unseen`] characters. Line feeds stay. Output that skips this
/// function is still filtered by [`harmless`](super::harmless), but its columns are counted wrongly.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => skip_escape(&mut chars),
            '\n' => out.push('\n'),
            '\t' => out.push_str("    "),
            '\u{2028}' | '\u{2029}' => out.push(' '),
            c if unseen(c) => {}
            c => out.push(c),
        }
    }
    out
}

fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars>) {
    match chars.next() {
        // A control sequence ends with a letter or one of @[\]^_`{|}~.
        Some('[') => while chars.next_if(|c| !('\x40'..='\x7e').contains(c)).is_some() {},
        // An operating system command ends with a bell or an escape.
        Some(']') => while chars.next_if(|c| !matches!(c, '\x07' | '\x1b')).is_some() {},
        _ => return,
    }
    if chars.next() == Some('\x1b') {
        chars.next_if_eq(&'\\');
    }
}

/// [`clean`] text on one line.
pub fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_read_as_people_say_them() {
        let sizes = [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (4_234_567, "4.2 MB"), (9_960_000, "10 MB")];
        for (n, text) in sizes {
            assert_eq!(bytes(n), text);
        }
        assert_eq!(bytes(212_400_000), "212 MB");
        let times = [(0, "0.0 s"), (449, "0.4 s"), (9_960, "10 s"), (61_000, "61 s"), (125_000, "2 min 5 s")];
        for (ms, text) in times {
            assert_eq!(millis(ms), text);
        }
        assert_eq!(millis(3_840_000), "1 h 4 min");
    }

    #[test]
    fn a_long_list_says_how_much_it_leaves_out() {
        assert_eq!(list(&["a", "b", "c"], 3), "a, b, c");
        assert_eq!(list(&["a", "b", "c", "d"], 3), "a, b and 2 more");
        assert_eq!(hosts(&["cp1", "cp2", "cp3"], 8), "cp1 cp2 cp3");
    }

    #[test]
    fn text_from_a_host_cannot_move_the_cursor() {
        assert_eq!(clean("a\x1b[2Jb\x1b]0;title\x07c\rd\u{202e}e\tf"), "abcde    f");
        assert_eq!(one_line("x\x1b[31;1m red\x1b[0m\n  y"), "x red y");
        assert_eq!(clean("\x1b"), "");
    }

    #[test]
    fn a_text_too_long_is_cut_within_its_columns() {
        assert_eq!(cut("deliver kube-apiserver", 10, true), "deliver k…");
        assert_eq!(columns(&cut("deliver kube-apiserver", 10, false)), 10);
        assert_eq!(cut("short", 10, true), "short");
    }
}
