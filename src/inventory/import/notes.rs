//! Settings that an import could not convert, or converted with a change: each with its place and what to do.
//!
//! In: the importers' findings. Out: [`Note`]s in this order; one for several places is reported once.

use crate::inventory::problem::shorten;
use serde::Serialize;
use std::fmt;

/// One warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Its place: a file with a line, or a path such as `spec.hosts[2].hooks`.
    #[serde(rename = "where")]
    pub place: String,
    /// Number of other places with the same warning.
    #[serde(rename = "more", skip_serializing_if = "is_zero")]
    pub more: usize,
    /// The setting, and what happens to it.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = match self.more {
            0 => String::new(),
            1 => " (and 1 other place)".to_owned(),
            n => format!(" (and {n} other places)"),
        };
        write!(f, "{}{more}: warning: {}\n  do: {}", clean(&self.place), clean(&self.what), clean(&self.remedy))
    }
}

/// Control characters never reach a terminal: the text may come from anywhere.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A foreign value in a message, shortened to fit in a line.
pub fn short(text: &str) -> String {
    clean(&shorten(text))
}

/// `a`, `a and b`, `a, b and c`; beyond `most`, only the number of the others.
pub fn listed<T: AsRef<str>>(items: &[T], most: usize) -> String {
    let shown: Vec<String> = items.iter().take(most).map(|item| short(item.as_ref())).collect();
    let rest = items.len().saturating_sub(shown.len());
    match (shown.split_last(), rest) {
        (None, _) => String::new(),
        (Some((last, [])), 0) => last.clone(),
        (Some((last, before)), 0) => format!("{} and {last}", before.join(", ")),
        (Some(_), rest) => format!("{} and {rest} more", shown.join(", ")),
    }
}

/// The rows of a table: in one line a key, a colon and what happens to it, in the next line what to do.
pub fn table(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    debug_assert!(text.lines().step_by(2).all(|row| row.contains(": ")), "a row without its colon: {text}");
    let mut lines = text.lines().map(str::trim);
    std::iter::from_fn(move || {
        let (key, what) = lines.next()?.split_once(": ")?;
        Some((key, what, lines.next()?))
    })
}

/// Collects notes.
#[derive(Debug, Clone, Default)]
pub struct Notes {
    found: Vec<Note>,
    endpoint_given: bool,
}

impl Notes {
    /// None yet; `endpoint_given`: a flag sets the endpoint.
    pub fn new(endpoint_given: bool) -> Self {
        Self { endpoint_given, ..Self::default() }
    }
    /// Adds a note; a repetition in another place is counted.
    pub fn add(&mut self, place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) {
        let (place, what, remedy) = (place.into(), what.into(), remedy.into());
        match self.found.iter_mut().find(|note| note.what == what && note.remedy == remedy) {
            Some(note) if note.place == place => {}
            Some(note) => note.more += 1,
            None => self.found.push(Note { place, more: 0, what, remedy }),
        }
    }
    /// Adds a note about the endpoint that the file leads to, unless a flag replaces it.
    pub fn endpoint(&mut self, place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) {
        if !self.endpoint_given {
            self.add(place, what, remedy);
        }
    }
    /// All of them.
    pub fn into_list(self) -> Vec<Note> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_note_in_several_places_is_shown_once_with_their_number() {
        let mut notes = Notes::default();
        for line in [1, 2, 2, 5] {
            notes.add(format!("hosts:{line}"), "a", "b");
        }
        let list = notes.into_list();
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].to_string(), "hosts:1 (and 3 other places): warning: a\n  do: b");
    }

    #[test]
    fn long_lists_end_in_a_number_and_control_characters_do_not_pass() {
        assert_eq!(listed(&["a"], 3), "a");
        assert_eq!(listed(&["a", "b", "c"], 3), "a, b and c");
        assert_eq!(listed(&["a", "b", "c", "d"], 2), "a, b and 2 more");
        assert_eq!(short("a\u{1b}[31m"), "a\u{fffd}[31m");
    }
}
