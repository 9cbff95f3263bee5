//! Redraws the lines at the bottom of a terminal and erases them exactly, even if its size has changed.
//!
//! Pure: returns escape sequences and writes nothing. A terminal that becomes narrower wraps the lines on it. The
//! number of rows to erase is therefore computed from the current width and the columns of each line when it was drawn.

use super::harmless;
use std::fmt::Write as _;

/// A line and the columns it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The text with its escape sequences.
    pub text: String,
    /// Its columns without them.
    pub columns: usize,
}

/// The lines that are currently drawn.
#[derive(Debug, Default)]
pub(super) struct Live {
    drawn: Vec<usize>,
}

impl Live {
    /// Replaces the drawn lines by `kept`, which stays, and `lines` below it, on a terminal that now has `columns`. The
    /// result is one write, so that a terminal shows it at once. It is empty if there is nothing to do.
    pub fn draw(&mut self, kept: &str, lines: &[Line], columns: usize) -> String {
        let columns = columns.max(1);
        let rows: usize = self.drawn.iter().map(|&width| width.div_ceil(columns).max(1)).sum();
        if rows == 0 && lines.is_empty() {
            return harmless::text(kept).into_owned();
        }
        let mut text = "\x1b[?2026h\r".to_owned();
        // Writing into a String cannot fail.
        if rows > 1 {
            let _ = write!(text, "\x1b[{}A", rows - 1);
        }
        // Overwrite each line and erase its rest, then erase everything below. Erasing first would flicker, and some
        // terminals keep a screen that is erased from its top in their history.
        text.push_str(&harmless::text(kept).replace('\n', "\x1b[K\n"));
        for (index, line) in lines.iter().enumerate() {
            let line = harmless::text(&line.text);
            let _ = write!(text, "{}{line}\x1b[K", if index > 0 { "\n" } else { "" });
        }
        if lines.is_empty() {
            text.push_str("\x1b[K");
        }
        let written = kept.lines().count() + lines.len();
        if rows > written || self.drawn.len() != rows {
            text.push_str("\x1b[J");
        }
        text.push_str("\x1b[?2026l");
        self.drawn = lines.iter().map(|line| line.columns).collect();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(columns: usize) -> Line {
        Line { text: "x".repeat(columns), columns }
    }

    #[test]
    fn lines_that_a_narrower_terminal_has_broken_are_erased_wholly() {
        let mut live = Live::default();
        live.draw("", &[line(79), line(79), line(20)], 80);
        let text = live.draw("", &[line(39)], 40);
        assert!(text.starts_with("\x1b[?2026h\r\x1b[4A") && text.contains("\x1b[K\x1b[J"), "{text:?}");
    }

    #[test]
    fn nothing_drawn_is_nothing_to_erase() {
        let mut live = Live::default();
        assert_eq!(live.draw("", &[], 80), "");
        assert_eq!(live.draw("kept\n", &[], 80), "kept\n");
        live.draw("", &[line(5)], 80);
        assert_eq!(live.draw("", &[], 80), "\x1b[?2026h\r\x1b[K\x1b[J\x1b[?2026l");
        assert_eq!(live.draw("", &[], 80), "");
    }

    #[test]
    fn a_redraw_of_the_same_size_erases_no_more_than_the_rests_of_lines() {
        let mut live = Live::default();
        live.draw("", &[line(5), line(5)], 80);
        assert_eq!(live.draw("", &[line(1), line(1)], 80), "\x1b[?2026h\r\x1b[1Ax\x1b[K\nx\x1b[K\x1b[?2026l");
    }
}
