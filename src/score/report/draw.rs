//! Pictures as inline SVG: the heat map of paper 001's figure 2, and precision-recall curves.
//!
//! In: figures from 0 to 1. Out: SVG. Every cell and point carries its number, so that a print
//! without colours says the same.

use super::html::Html;
use crate::score::counts::Confusion;

/// One evaluator: its name, and a figure for each column; `None` where a column does not apply.
pub struct Row {
    /// Who.
    pub name: String,
    /// From 0 to 1.
    pub cells: Vec<Option<f64>>,
}

/// Width of the names at the left, of a cell, its height, and height of the names above.
const LEFT: f64 = 150.0;
const CELL: f64 = 46.0;
const HIGH: f64 = 26.0;
const ABOVE: f64 = 150.0;

/// Rows over columns; the best of each column carries a star.
pub fn heat_map(columns: &[&str], rows: &[Row], out: &mut Html) {
    // Names of columns lean to the right, over the last cell.
    let (width, height) =
        (LEFT + CELL * columns.len() as f64 + 110.0, ABOVE + HIGH * rows.len() as f64 + 4.0);
    open(width, height, out);
    for (n, column) in columns.iter().enumerate() {
        let (x, y) = (LEFT + CELL * n as f64 + CELL / 2.0, ABOVE - 6.0);
        out.raw("<text transform=\"translate(").number(x, 1).raw(" ").number(y, 1);
        out.raw(") rotate(-50)\">").text(column).raw("</text>");
    }
    for (n, row) in rows.iter().enumerate() {
        let y = ABOVE + HIGH * n as f64;
        text(LEFT - 8.0, y + HIGH * 0.66, "end", &row.name, out);
        for (m, cell) in row.cells.iter().enumerate() {
            let Some(value) = *cell else { continue };
            let x = LEFT + CELL * m as f64;
            let best = rows.iter().filter_map(|r| r.cells.get(m).copied().flatten()).fold(0.0, f64::max);
            let star = rows.len() > 1 && value > 0.0 && value >= best;
            out.raw("<rect x=\"").number(x, 1).raw("\" y=\"").number(y, 1).raw("\" width=\"");
            out.number(CELL - 1.0, 1).raw("\" height=\"").number(HIGH - 1.0, 1).raw("\" fill=\"hsl(210 70% ");
            out.number(97.0 - 57.0 * value, 0).raw("%)\"/><text x=\"").number(x + CELL / 2.0, 1);
            out.raw("\" y=\"").number(y + HIGH * 0.66, 1).raw("\" text-anchor=\"middle\" fill=\"");
            out.raw(if value > 0.6 { "#fff" } else { "#111" }).raw("\">").number(value, 2);
            out.raw(if star { "*" } else { "" }).raw("</text>");
        }
    }
    out.raw("</svg>");
}

/// A curve of thresholds: what each gives, and the one in force.
pub struct Curve {
    /// What is cut.
    pub name: String,
    /// Threshold and counts, from the lowest.
    pub cuts: Vec<(f64, Confusion)>,
    /// What the threshold in force gives.
    pub now: Confusion,
}

/// Sides of a curve's square, and its margin.
const SIDE: f64 = 180.0;
const MARGIN: f64 = 34.0;

/// Precision over recall; each point with its threshold.
pub fn curve(of: &Curve, out: &mut Html) {
    let place = |c: &Confusion| {
        let t = c.tally();
        (MARGIN + SIDE * t.recall(), MARGIN + SIDE * (1.0 - t.precision()))
    };
    out.raw("<figure>");
    open(SIDE + 2.0 * MARGIN, SIDE + 2.0 * MARGIN, out);
    out.raw("<rect class=\"frame\" x=\"").number(MARGIN, 0).raw("\" y=\"").number(MARGIN, 0);
    out.raw("\" width=\"").number(SIDE, 0).raw("\" height=\"").number(SIDE, 0).raw("\"/>");
    // A threshold under which nothing fails has no precision.
    let shown: Vec<&(f64, Confusion)> = of.cuts.iter().filter(|(_, c)| c.tally().predicted > 0).collect();
    out.raw("<polyline class=\"curve\" points=\"");
    for (_, counts) in &shown {
        let (x, y) = place(counts);
        out.number(x, 1).raw(",").number(y, 1).raw(" ");
    }
    out.raw("\"/>");
    for (tau, counts) in &shown {
        let (x, y) = place(counts);
        out.raw("<circle r=\"3\" cx=\"").number(x, 1).raw("\" cy=\"").number(y, 1).raw("\"/>");
        text(x + 5.0, y - 4.0, "start", &format!("{tau:.1}"), out);
    }
    if of.now.tally().predicted > 0 {
        let (x, y) = place(&of.now);
        out.raw("<circle class=\"now\" r=\"6\" cx=\"").number(x, 1).raw("\" cy=\"").number(y, 1).raw("\"/>");
    }
    text(MARGIN + SIDE / 2.0, MARGIN + SIDE + 24.0, "middle", "recall 0 to 1", out);
    out.raw("<text text-anchor=\"middle\" transform=\"translate(").number(MARGIN - 14.0, 1).raw(" ");
    out.number(MARGIN + SIDE / 2.0, 1).raw(") rotate(-90)\">precision 0 to 1</text></svg><figcaption>");
    out.text(&of.name).raw("</figcaption></figure>");
}

fn open(width: f64, height: f64, out: &mut Html) {
    out.raw("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"").number(width, 0);
    out.raw("\" viewBox=\"0 0 ").number(width, 0).raw(" ").number(height, 0).raw("\">");
}

fn text(x: f64, y: f64, anchor: &'static str, text: &str, out: &mut Html) {
    out.raw("<text x=\"").number(x, 1).raw("\" y=\"").number(y, 1).raw("\" text-anchor=\"").raw(anchor);
    out.raw("\">").text(text).raw("</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_a_column_has_a_star_and_names_are_escaped() {
        let row = |name: &str, cells| Row { name: name.to_owned(), cells };
        let rows = [row("a<b", vec![Some(0.5), Some(0.0)]), row("c", vec![Some(0.25), None])];
        let mut out = Html::default();
        heat_map(&["one", "two"], &rows, &mut out);
        let svg = out.into_string();
        assert!(svg.contains("0.50*") && svg.contains("0.25<") && svg.contains("a&lt;b"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 3);
    }

    #[test]
    fn a_threshold_that_fails_nothing_is_no_point() {
        let some = Confusion { tp: 1, fp: 1, fn_: 1, tn: 1 };
        let cuts = vec![(1.0, Confusion::default()), (2.0, some)];
        let mut out = Html::default();
        curve(&Curve { name: "m".to_owned(), cuts, now: some }, &mut out);
        let svg = out.into_string();
        assert_eq!(svg.matches("r=\"3\"").count(), 1);
        assert!(svg.contains("class=\"now\""));
    }
}
