//! Tables for a terminal: the first column is left-aligned, the others are right-aligned.
//!
//! In: a head and rows of cells, or figures for cells. Out: text with a newline after each row.

use unicode_width::UnicodeWidthStr;

use crate::score::bootstrap::{Interval, ShareIntervals};
use crate::score::counts::PredictionTally;

/// Spaces between columns.
const COLUMN_GAP: usize = 2;

/// Rows under a head. Rows may have fewer cells than the head.
pub(in crate::cli) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(in crate::cli) fn new<const N: usize>(head: [&str; N]) -> TextTable {
        TextTable::with_head(head.map(str::to_owned).to_vec())
    }

    pub(in crate::cli) fn with_head(head: Vec<String>) -> TextTable {
        TextTable { rows: vec![head] }
    }

    /// Adds columns to the head.
    pub(in crate::cli) fn extend_head(&mut self, cells: impl IntoIterator<Item = String>) {
        if let Some(head) = self.rows.first_mut() {
            head.extend(cells);
        }
    }

    pub(in crate::cli) fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(in crate::cli) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|r| r.get(column)).map(|c| c.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width.saturating_sub(cell.width()));
                match column {
                    0 => line.extend([cell.as_str(), &padding]),
                    _ => line.extend([" ".repeat(COLUMN_GAP).as_str(), &padding, cell]),
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// A share or coefficient, with its interval if known.
pub(in crate::cli) fn figure(figure: f64, interval: Option<Interval>) -> String {
    match interval {
        Some(Interval { low, high }) => format!("{figure:.3} [{low:.3} {high:.3}]"),
        None => format!("{figure:.3}"),
    }
}

/// Precision, recall and F1.
pub(in crate::cli) fn shares(tally: &PredictionTally, intervals: ShareIntervals) -> [String; 3] {
    let ShareIntervals { precision, recall, f1 } = intervals;
    let [p, r, f] = tally.shares();
    [figure(p, precision), figure(r, recall), figure(f, f1)]
}

/// A figure that may be undefined.
pub(in crate::cli) fn optional_figure(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |f| format!("{f:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(["name", "n", "F1"]);
        table.add_row(["a long name".to_owned(), "7".to_owned(), optional_figure(Some(0.5))]);
        table.add_row(["é".to_owned(), "1000".to_owned(), optional_figure(None)]);
        table.add_row(["short".to_owned()]);
        let lines =
            ["name            n     F1", "a long name     7  0.500", "é            1000      -", "short", ""];
        assert_eq!(table.render(), lines.join("\n"));
    }
}
