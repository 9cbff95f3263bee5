//! Styled text, wrapped at words with a hanging indent.

use super::style::{Paint, Style};
use super::words::{clean, columns, one_line};
use crate::model::facts::Unreachable;

/// Words with their styles, not wrapped yet.
#[derive(Debug, Default, Clone)]
pub(super) struct Flow(Vec<(String, Paint)>);

impl Flow {
    /// One text in one style.
    pub fn of(text: &str, paint: Paint) -> Self {
        Self::default().and(text, paint)
    }
    /// Appends another text.
    pub fn and(mut self, text: &str, paint: Paint) -> Self {
        self.0.extend(clean(text).split_whitespace().map(|word| (word.to_owned(), paint)));
        self
    }
    /// Appends why a host does not answer, and what to do.
    pub fn unreachable(self, unreachable: &Unreachable, style: &Style) -> Self {
        let flow = self.and(&one_line(&unreachable.why), Paint::Plain);
        match &unreachable.hint {
            Some(hint) => flow.and(style.dash(), Paint::Dim).and(&one_line(hint), Paint::Dim),
            None => flow,
        }
    }
    /// The lines. The first starts after `lead`, which is written unchanged and takes `lead_columns`; the others are
    /// indented by `lead_columns`. A word longer than a line stays whole, so that paths and URLs can be copied.
    pub fn lines(&self, lead: &str, lead_columns: usize, style: &Style) -> String {
        let mut text = lead.to_owned();
        let mut at = lead_columns;
        let mut run: Option<(String, Paint)> = None;
        let mut first = true;
        for (word, paint) in &self.0 {
            let length = columns(word);
            let breaks = !first && at + 1 + length > style.width;
            if breaks {
                flush(&mut text, &mut run, style);
                text.push('\n');
                text.push_str(&" ".repeat(lead_columns));
                at = lead_columns;
            } else if !first {
                match &mut run {
                    Some((words, look)) if look == paint => words.push(' '),
                    _ => {
                        flush(&mut text, &mut run, style);
                        text.push(' ');
                    }
                }
                at += 1;
            }
            match &mut run {
                Some((words, look)) if look == paint => words.push_str(word),
                _ => {
                    flush(&mut text, &mut run, style);
                    run = Some((word.clone(), *paint));
                }
            }
            at += length;
            first = false;
        }
        flush(&mut text, &mut run, style);
        text.push('\n');
        text
    }
}

fn flush(text: &mut String, run: &mut Option<(String, Paint)>, style: &Style) {
    if let Some((words, paint)) = run.take() {
        text.push_str(&style.paint(paint, &words));
    }
}

/// Preformatted text, such as a line of an inventory with a marker below: line breaks are kept, and only a line that is
/// too long is wrapped. `lead` precedes the first line; the others are indented by two columns.
pub fn pictured(text: &str, lead: &str, style: &Style) -> String {
    let mut out = String::new();
    for (index, line) in text.lines().enumerate() {
        let lead = if index == 0 { lead } else { "  " };
        if columns(line) + 2 <= style.width {
            out.push_str(&format!("{lead}{line}\n"));
        } else {
            let kept = line.len() - line.trim_start().len();
            out.push_str(&Flow::of(line, Paint::Plain).lines(&format!("{lead}{}", " ".repeat(kept)), 2 + kept, style));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_has_a_hanging_indent_and_keeps_its_style() {
        let style = Style { colour: true, unicode: true, width: 20, verbosity: 0 };
        let flow = Flow::of("one two three four", Paint::Plain).and("five six", Paint::Dim);
        let text = flow.lines("ab  ", 4, &style);
        assert_eq!(text, "ab  one two three\n    four \u{1b}[2mfive six\u{1b}[0m\n");
    }

    #[test]
    fn a_word_longer_than_a_line_stays_whole() {
        let style = Style { width: 10, ..Style::plain() };
        assert_eq!(
            Flow::of("see https://10.0.0.1:2380 now", Paint::Plain).lines("", 0, &style),
            "see\nhttps://10.0.0.1:2380\nnow\n"
        );
    }
}
