//! How text may look where it is going: colour, characters, width. Asked once, then carried as a value.
//!
//! In: the environment and the stream. Out: a [`Style`] that every other file of `report/` writes by.

use std::fmt::Write as _;
use std::io::IsTerminal;

/// How text may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether escape sequences for colour are welcome.
    pub colour: bool,
    /// Whether characters beyond ASCII are shown rightly.
    pub unicode: bool,
    /// Columns to keep within.
    pub width: usize,
    /// How often `-v` was given.
    pub verbosity: u8,
}

/// What a piece of text is, from which its looks follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Ordinary text.
    Plain,
    /// A name or a heading.
    Bold,
    /// What may be skipped when reading.
    Dim,
    /// As it should be.
    Good,
    /// To be watched.
    Warn,
    /// Failed.
    Bad,
}

/// Columns of a text that nobody shows on a terminal: wide enough for a table, narrow enough for a mail.
pub const PLAIN_WIDTH: usize = 100;

impl Style {
    /// Plain text for a file: no colour, UTF-8.
    pub const fn plain() -> Self {
        Self { colour: false, unicode: true, width: PLAIN_WIDTH, verbosity: 0 }
    }

    /// The style for this process's standard output.
    pub fn stdout(verbosity: u8) -> Self {
        Self::of(std::io::stdout().is_terminal(), columns(std::io::stdout()), verbosity, |name| {
            std::env::var(name).ok()
        })
    }

    /// The style for this process's standard error.
    pub fn stderr(verbosity: u8) -> Self {
        Self::of(std::io::stderr().is_terminal(), columns(std::io::stderr()), verbosity, |name| {
            std::env::var(name).ok()
        })
    }

    /// The style for a stream, by the environment that `var` looks into.
    pub fn of(terminal: bool, columns: Option<usize>, verbosity: u8, var: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let dumb = var("TERM").is_some_and(|term| term == "dumb");
        let forced = set("CLICOLOR_FORCE").is_some_and(|value| value != "0");
        let colour = set("NO_COLOR").is_none() && (forced || terminal && !dumb);
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let unicode = locale.contains("utf-8") || locale.contains("utf8");
        let width = if terminal { columns.unwrap_or(80).clamp(40, 120) } else { PLAIN_WIDTH };
        Self { colour, unicode, width, verbosity }
    }

    /// The text as it should look.
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        let code = match paint {
            _ if !self.colour => None,
            Paint::Plain => None,
            Paint::Bold => Some("1"),
            Paint::Dim => Some("2"),
            Paint::Good => Some("32"),
            Paint::Warn => Some("33"),
            Paint::Bad => Some("1;31"),
        };
        let mut painted = String::with_capacity(text.len() + 8);
        match code {
            Some(code) if !text.is_empty() => {
                // Writing into a String cannot fail.
                let _ = write!(painted, "\x1b[{code}m{text}\x1b[0m");
            }
            _ => painted.push_str(text),
        }
        painted
    }

    /// The mark of something that is as it should be.
    pub fn good(&self) -> String {
        self.paint(Paint::Good, if self.unicode { "✓" } else { "ok" })
    }
    /// The mark of something to be watched.
    pub fn warn(&self) -> String {
        self.paint(Paint::Warn, "!")
    }
    /// The mark of something that failed.
    pub fn bad(&self) -> String {
        self.paint(Paint::Bad, if self.unicode { "✗" } else { "x" })
    }
    /// How many columns the widest mark takes.
    pub const fn mark_width(&self) -> usize {
        if self.unicode { 1 } else { 2 }
    }
    /// What stands between a deed and its reason.
    pub const fn dash(&self) -> &'static str {
        if self.unicode { "—" } else { "--" }
    }
}

/// The columns of the terminal behind a stream, when it is one that tells.
pub(super) fn columns(stream: impl std::os::fd::AsFd) -> Option<usize> {
    size(stream).map(|(columns, _)| columns)
}

/// Columns and rows of the terminal behind a stream, when it is one that tells.
pub(super) fn size(stream: impl std::os::fd::AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((usize::from(size.ws_col), usize::from(size.ws_row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(terminal: bool, set: &[(&str, &str)]) -> Style {
        let find = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Style::of(terminal, Some(80), 0, find)
    }

    #[test]
    fn colour_is_for_terminals_and_for_those_who_insist() {
        assert!(style(true, &[]).colour);
        assert!(!style(false, &[]).colour);
        assert!(!style(true, &[("TERM", "dumb")]).colour);
        assert!(style(false, &[("CLICOLOR_FORCE", "1")]).colour);
        assert!(!style(false, &[("CLICOLOR_FORCE", "0")]).colour);
    }

    #[test]
    fn no_color_wins_over_everything() {
        assert!(!style(true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]).colour);
        assert!(style(true, &[("NO_COLOR", "")]).colour);
    }

    #[test]
    fn a_locale_that_is_not_utf_8_gets_ascii() {
        assert!(style(true, &[("LANG", "en_US.UTF-8")]).unicode);
        assert!(!style(true, &[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")]).unicode);
        assert!(!style(true, &[]).unicode);
        assert_eq!(style(true, &[("LC_ALL", "C")]).good(), "\x1b[32mok\x1b[0m");
    }
}
