//! The capabilities of an output: colour, characters, width. Determined once, then passed on as a value.
//!
//! In: the environment and the stream. Out: a [`Style`] that all other files of `report/` use.

use std::io::IsTerminal;
use std::os::fd::AsFd;

/// The style of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether to use escape sequences for colour.
    pub colour: bool,
    /// Whether characters beyond ASCII are displayed correctly.
    pub unicode: bool,
    /// Maximum width in columns.
    pub width: usize,
    /// How often `-v` was given.
    pub verbosity: u8,
}

/// The role of a piece of text, which determines its style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Ordinary text.
    Plain,
    /// A name or a heading.
    Bold,
    /// Less important text.
    Dim,
    /// Success.
    Good,
    /// Warning.
    Warn,
    /// Failure.
    Bad,
}

/// Columns of text that does not go to a terminal: wide enough for a table, narrow enough for a mail.
pub const PLAIN_WIDTH: usize = 100;

impl Style {
    /// Plain text for a file: no colour, UTF-8.
    pub const fn plain() -> Self {
        Self { colour: false, unicode: true, width: PLAIN_WIDTH, verbosity: 0 }
    }

    /// The style for this process's standard output.
    pub fn stdout(verbosity: u8) -> Self {
        Self::here(std::io::stdout().is_terminal(), size(std::io::stdout()), verbosity)
    }

    /// The style for this process's standard error.
    pub fn stderr(verbosity: u8) -> Self {
        Self::here(std::io::stderr().is_terminal(), size(std::io::stderr()), verbosity)
    }

    fn here(terminal: bool, size: Option<(usize, usize)>, verbosity: u8) -> Self {
        Self::of(terminal, size.map(|(columns, _)| columns), verbosity, |name| std::env::var(name).ok())
    }

    /// The style for a stream; `var` reads the environment.
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

    /// The text with its escape sequences.
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        let code = match paint {
            _ if !self.colour || text.is_empty() => return text.to_owned(),
            Paint::Plain => return text.to_owned(),
            Paint::Bold => "1",
            Paint::Dim => "2",
            Paint::Good => "32",
            Paint::Warn => "33",
            Paint::Bad => "1;31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// The symbol of success.
    pub fn good(&self) -> String {
        self.paint(Paint::Good, if self.unicode { "✓" } else { "ok" })
    }
    /// The symbol of a warning.
    pub fn warn(&self) -> String {
        self.paint(Paint::Warn, "!")
    }
    /// The symbol of a failure.
    pub fn bad(&self) -> String {
        self.paint(Paint::Bad, if self.unicode { "✗" } else { "x" })
    }
    /// The columns of the widest symbol.
    pub const fn mark_width(&self) -> usize {
        if self.unicode { 1 } else { 2 }
    }
    /// The dash between an action and its reason.
    pub const fn dash(&self) -> &'static str {
        if self.unicode { "—" } else { "--" }
    }
}

/// Columns and rows of the terminal behind a stream, if it reports them.
pub(super) fn size(stream: impl AsFd) -> Option<(usize, usize)> {
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
    fn colour_is_used_on_terminals_or_when_forced() {
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
