//! Problems of an inventory and their text: place, quoted line, caret, what was expected, what to do.
//!
//! In: problems from the reader and from the checks. Out: [`Report`], with `Display` for people and problems that
//! serialize for `-o json`.

use super::at::Place;
use serde::Serialize;
use std::fmt;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The inventory is refused.
    Error,
    /// The inventory is accepted, but its author should read this.
    Warning,
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file, as the user named it.
    pub file: String,
    /// Where in the file.
    #[serde(flatten)]
    pub place: Place,
    /// What is wrong.
    pub what: String,
    /// What was expected; empty if `what` says so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// What to do.
    pub remedy: String,
    /// The line as written, shortened if it is very long.
    pub line_text: String,
    /// Position and number of carets, in characters of `line_text`.
    #[serde(skip)]
    pub caret: (usize, usize),
}

/// A line longer than this is quoted in part.
const WIDEST: usize = 120;

impl Problem {
    /// A problem of a line in another file, which is not quoted.
    pub fn elsewhere(
        severity: Severity,
        (file, line): (&str, usize),
        what: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let words = Words::new(what, expected, remedy);
        Self { caret: (0, 0), ..Self::new(severity, file, "", Place::new(line, 1), words) }
    }
    /// Builds a problem at a place, quoting the line from the text.
    pub fn new(severity: Severity, file: &str, text: &str, place: Place, words: Words) -> Self {
        let line = text.lines().nth(place.line.saturating_sub(1)).unwrap_or_default();
        let (line_text, caret) = quote(text, line, place);
        Self {
            severity,
            file: file.to_owned(),
            place,
            what: clean(&words.what),
            expected: clean(&words.expected),
            remedy: clean(&words.remedy),
            line_text,
            caret,
        }
    }
}

/// The three sentences of a problem.
#[derive(Debug, Clone, Default)]
pub struct Words {
    /// What is wrong.
    pub what: String,
    /// What was expected.
    pub expected: String,
    /// What to do.
    pub remedy: String,
}

impl Words {
    /// What is wrong, what was expected, what to do.
    pub fn new(what: impl Into<String>, expected: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), expected: expected.into(), remedy: remedy.into() }
    }
}

/// A value in a message, shortened to fit in a line.
pub fn shorten(text: &str) -> String {
    if text.chars().count() > 60 { text.chars().take(57).chain("...".chars()).collect() } else { text.to_owned() }
}

/// Control characters never reach a terminal: the text may come from anywhere.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c == '\t' { ' ' } else { c }).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The part of the line to show, and the position of the caret in it.
fn quote(text: &str, line: &str, place: Place) -> (String, (usize, usize)) {
    let chars: Vec<char> = line.chars().collect();
    let start = place.column.saturating_sub(1).min(chars.len());
    let written = text.get(place.offset..place.offset.saturating_add(place.bytes)).unwrap_or_default();
    let first_line = written.lines().next().unwrap_or_default();
    let mut width = first_line.trim_end().chars().count();
    if width == 0 {
        // A list or a mapping: its first word is sufficient.
        width = chars[start..].iter().take_while(|c| !c.is_whitespace() && !matches!(c, ':' | ',')).count();
    }
    let width = width.clamp(1, chars.len().saturating_sub(start).max(1));
    let from = if chars.len() > WIDEST { start.saturating_sub(20) } else { 0 };
    let shown: String = chars[from..].iter().take(WIDEST).collect();
    (clean(&shown), (start - from, width.min(WIDEST)))
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(f, "{}:{}:{}: {word}: {}", clean(&self.file), self.place.line, self.place.column, self.what)?;
        let number = self.place.line.to_string();
        let gutter = " ".repeat(number.len());
        let (start, width) = self.caret;
        // Without a quoted line there is no caret.
        if width > 0 {
            writeln!(f, " {gutter} |")?;
            writeln!(f, " {number} | {}", self.line_text)?;
            writeln!(f, " {gutter} | {}{}", " ".repeat(start), "^".repeat(width))?;
        }
        if !self.expected.is_empty() {
            writeln!(f, " {gutter} = expected: {}", self.expected)?;
        }
        writeln!(f, " {gutter} = do: {}", self.remedy)
    }
}

/// All problems of one inventory, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The errors.
    pub problems: Vec<Problem>,
    /// The warnings.
    pub warnings: Vec<Problem>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.problems.iter().chain(&self.warnings) {
            writeln!(f, "{problem}")?;
        }
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        write!(f, "{}", plural(self.problems.len(), "error"))?;
        if !self.warnings.is_empty() {
            write!(f, ", {}", plural(self.warnings.len(), "warning"))?;
        }
        Ok(())
    }
}
