//! Charts as inline SVG: the heat map of paper 001's figure 2, and precision-recall curves.
//!
//! In: figures from 0 to 1. Out: SVG. Every cell and point is labelled with its number, so that the charts
//! are readable in print without colours.

use super::html::Html;
use crate::score::counts::Confusion;

/// One evaluator: its name, and a figure for each column; `None` if the column does not apply.
pub struct EvaluatorRow {
    pub name: String,
    /// From 0 to 1.
    pub cells: Vec<Option<f64>>,
}

/// Width of the row names, in pixels as all lengths of this file.
const ROW_NAME_WIDTH: f64 = 150.0;
/// Width of a cell.
const CELL_WIDTH: f64 = 46.0;
/// Height of a row.
const CELL_HEIGHT: f64 = 26.0;
/// Height of the rotated column names.
const COLUMN_NAME_HEIGHT: f64 = 150.0;

/// A heat map of `rows` over `columns`; the best value of each column is marked with a star.
pub fn heat_map(columns: &[&str], rows: &[EvaluatorRow], out: &mut Html) {
    // Column names are rotated and extend to the right of the last cell.
    let (width, height) = (
        ROW_NAME_WIDTH + CELL_WIDTH * columns.len() as f64 + 110.0,
        COLUMN_NAME_HEIGHT + CELL_HEIGHT * rows.len() as f64 + 4.0,
    );
    open_svg(width, height, out);
    for (n, column) in columns.iter().enumerate() {
        let position = [ROW_NAME_WIDTH + CELL_WIDTH * n as f64 + CELL_WIDTH / 2.0, COLUMN_NAME_HEIGHT - 6.0];
        out.numbers("<text transform=\"translate({1} {1}) rotate(-50)\">", &position)
            .text(column)
            .raw("</text>");
    }
    for (n, row) in rows.iter().enumerate() {
        let y = COLUMN_NAME_HEIGHT + CELL_HEIGHT * n as f64;
        text(ROW_NAME_WIDTH - 8.0, y + CELL_HEIGHT * 0.66, "end", &row.name, out);
        for (m, cell) in row.cells.iter().enumerate() {
            let Some(value) = *cell else { continue };
            let x = ROW_NAME_WIDTH + CELL_WIDTH * m as f64;
            let best = rows.iter().filter_map(|r| r.cells.get(m).copied().flatten()).fold(0.0, f64::max);
            let is_best = rows.len() > 1 && value > 0.0 && value >= best;
            out.numbers(
                "<rect x=\"{1}\" y=\"{1}\" width=\"{1}\" height=\"{1}\" fill=\"hsl(210 70% {0}%)\"/>\
                 <text x=\"{1}\" y=\"{1}\" text-anchor=\"middle\" fill=\"",
                &[
                    x,
                    y,
                    CELL_WIDTH - 1.0,
                    CELL_HEIGHT - 1.0,
                    97.0 - 57.0 * value,
                    x + CELL_WIDTH / 2.0,
                    y + CELL_HEIGHT * 0.66,
                ],
            );
            out.raw(if value > 0.6 { "#fff" } else { "#111" }).numbers("\">{2}", &[value]);
            out.raw(if is_best { "*</text>" } else { "</text>" });
        }
    }
    out.raw("</svg>");
}

/// Precision and recall of a metric at each threshold.
pub struct Curve {
    pub name: String,
    /// Thresholds with their counts, from the lowest threshold.
    pub cuts: Vec<(f64, Confusion)>,
    /// Counts with the configured threshold.
    pub configured: Confusion,
}

/// Side length of the square of a curve.
const SIDE: f64 = 180.0;
/// Margin around the square, for the labels of the axes.
const MARGIN: f64 = 34.0;

/// Precision over recall; each point is labelled with its threshold.
pub fn curve(curve: &Curve, out: &mut Html) {
    let position = |counts: &Confusion| {
        let tally = counts.tally();
        [MARGIN + SIDE * tally.recall(), MARGIN + SIDE * (1.0 - tally.precision())]
    };
    out.raw("<figure>");
    open_svg(SIDE + 2.0 * MARGIN, SIDE + 2.0 * MARGIN, out);
    let frame = [MARGIN, MARGIN, SIDE, SIDE];
    out.numbers("<rect class=\"frame\" x=\"{0}\" y=\"{0}\" width=\"{0}\" height=\"{0}\"/>", &frame);
    // Precision is undefined for a threshold below which nothing fails.
    let cuts: Vec<&(f64, Confusion)> = curve.cuts.iter().filter(|(_, c)| c.tally().predicted > 0).collect();
    out.raw("<polyline class=\"curve\" points=\"");
    for (_, counts) in &cuts {
        out.numbers("{1},{1} ", &position(counts));
    }
    out.raw("\"/>");
    for (threshold, counts) in &cuts {
        let [x, y] = position(counts);
        out.numbers("<circle r=\"3\" cx=\"{1}\" cy=\"{1}\"/>", &[x, y]);
        text(x + 5.0, y - 4.0, "start", &format!("{threshold:.1}"), out);
    }
    if curve.configured.tally().predicted > 0 {
        out.numbers("<circle class=\"now\" r=\"6\" cx=\"{1}\" cy=\"{1}\"/>", &position(&curve.configured));
    }
    text(MARGIN + SIDE / 2.0, MARGIN + SIDE + 24.0, "middle", "recall 0 to 1", out);
    let label =
        "<text text-anchor=\"middle\" transform=\"translate({1} {1}) rotate(-90)\">precision 0 to 1</text>";
    out.numbers(label, &[MARGIN - 14.0, MARGIN + SIDE / 2.0]).raw("</svg><figcaption>");
    out.text(&curve.name).raw("</figcaption></figure>");
}

fn open_svg(width: f64, height: f64, out: &mut Html) {
    out.numbers(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{0}\" viewBox=\"0 0 {0} {0}\">",
        &[width, width, height],
    );
}

fn text(x: f64, y: f64, anchor: &'static str, text: &str, out: &mut Html) {
    out.numbers("<text x=\"{1}\" y=\"{1}\" text-anchor=\"", &[x, y]).raw(anchor);
    out.raw("\">").text(text).raw("</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_cell_of_a_column_is_starred_and_names_are_escaped() {
        let row = |name: &str, cells| EvaluatorRow { name: name.to_owned(), cells };
        let rows = [row("a<b", vec![Some(0.5), Some(0.0)]), row("c", vec![Some(0.25), None])];
        let mut out = Html::default();
        heat_map(&["one", "two"], &rows, &mut out);
        let svg = out.into_string();
        assert!(svg.contains("0.50*") && svg.contains("0.25<") && svg.contains("a&lt;b"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 3);
    }

    #[test]
    fn thresholds_without_failures_are_not_drawn() {
        let confusion = Confusion { tp: 1, fp: 1, fn_: 1, tn: 1 };
        let cuts = vec![(1.0, Confusion::default()), (2.0, confusion)];
        let mut out = Html::default();
        curve(&Curve { name: "m".to_owned(), cuts, configured: confusion }, &mut out);
        let svg = out.into_string();
        assert_eq!(svg.matches("r=\"3\"").count(), 1);
        assert!(svg.contains("class=\"now\""));
    }
}
