//! Rows in columns.
//!
//! In: heads and styled cells. Out: lines with aligned columns.

use super::style::{Paint, Style};
use super::words::{columns, cut};

/// A cell of a table.
pub(super) type Cell = (Paint, String);

/// A cell of ordinary text.
pub(super) fn plain(text: impl Into<String>) -> Cell {
    (Paint::Plain, text.into())
}

/// Rows below their heads; the last column is cut at the end of the line.
pub(super) fn table(heads: &[&str], rows: &[Vec<Cell>], style: &Style) -> String {
    let widths = widths(heads, rows.iter());
    head(heads, &widths, style) + &lines(rows, &widths, style)
}

/// The width of each column for its head and all these rows.
pub(super) fn widths<'a>(heads: &[&str], rows: impl Iterator<Item = &'a Vec<Cell>>) -> Vec<usize> {
    let mut widths: Vec<usize> = heads.iter().map(|head| columns(head)).collect();
    for row in rows {
        for (width, (_, cell)) in widths.iter_mut().zip(row) {
            *width = columns(cell).max(*width);
        }
    }
    widths
}

/// The line with the heads.
pub(super) fn head(heads: &[&str], widths: &[usize], style: &Style) -> String {
    let head: Vec<Cell> = heads.iter().map(|head| (Paint::Dim, (*head).to_owned())).collect();
    line(&head, widths, style)
}

/// The rows, one line each.
pub(super) fn lines(rows: &[Vec<Cell>], widths: &[usize], style: &Style) -> String {
    rows.iter().map(|row| line(row, widths, style)).collect()
}

fn line(row: &[Cell], widths: &[usize], style: &Style) -> String {
    let mut at = 0;
    let mut line = String::new();
    for (i, (paint, cell)) in row.iter().enumerate() {
        let last = i + 1 == row.len();
        let room = if last { style.width.saturating_sub(at).max(12) } else { widths[i] };
        let cell = cut(cell, room, style.unicode);
        line.push_str(&style.paint(*paint, &cell));
        if !last {
            line.push_str(&" ".repeat(widths[i] + 2 - columns(&cell)));
        }
        at += widths[i] + 2;
    }
    format!("{}\n", line.trim_end())
}
