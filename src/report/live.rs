//! The lines at the bottom of a terminal that are drawn anew: erased exactly, whatever its size has become meanwhile.
//!
//! Pure: gives escape sequences, writes nothing. A terminal that becomes narrower breaks the lines that are on it; what is
//! erased is therefore counted by the width of today, from the columns that each line took when it was drawn.

use std::fmt::Write as _;

/// A line and the columns it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The text with its escape sequences.
    pub text: String,
    /// Its columns without them.
    pub columns: usize,
}

/// What is drawn at the moment.
#[derive(Debug, Default)]
pub(super) struct Live {
    drawn: Vec<usize>,
}

impl Live {
    /// Takes what is drawn off a terminal that has `columns` now.
    pub fn erase(&mut self, columns: usize) -> String {
        let columns = columns.max(1);
        let rows: usize = self.drawn.iter().map(|&width| width.div_ceil(columns).max(1)).sum();
        self.drawn.clear();
        match rows {
            0 => String::new(),
            1 => "\r\x1b[J".to_owned(),
            n => format!("\r\x1b[{}A\x1b[J", n - 1),
        }
    }

    /// Replaces what is drawn by `kept`, which stays, and `lines` below it. One write, so that a terminal shows it at once.
    pub fn draw(&mut self, kept: &str, lines: &[Line], columns: usize) -> String {
        let mut text = "\x1b[?2026h".to_owned();
        text.push_str(&self.erase(columns));
        text.push_str(kept);
        for (index, line) in lines.iter().enumerate() {
            // Writing into a String cannot fail.
            let _ = write!(text, "{}{}", if index > 0 { "\n" } else { "" }, line.text);
            self.drawn.push(line.columns);
        }
        text.push_str("\x1b[?2026l");
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
        assert_eq!(live.erase(40), "\r\x1b[4A\x1b[J");
    }

    #[test]
    fn nothing_drawn_is_nothing_to_erase() {
        let mut live = Live::default();
        assert_eq!(live.erase(80), "");
        live.draw("", &[line(5)], 80);
        assert_eq!(live.erase(80), "\r\x1b[J");
        assert_eq!(live.erase(80), "");
    }
}
