//! Tables of an answer with a calculated column that is wrong in one row: price, pieces, and price for one piece.
//!
//! Principle: a column that is the product, the quotient, the sum or the difference of two others in all rows but one
//! is calculated from them. The differing row is wrong, unless a text has its value, or another number of the row
//! or of a text explains the difference, as a discount or a fee. Rounding of the shown digits is allowed.
//!
//! In: the tables of an answer, as lines of cells between `|`. Out: one contradiction for the first wrong cell.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::currency;
use crate::measure::defects::Defect;
use crate::measure::excerpt::lowercase;
use crate::measure::numbers::{self, Number};
use crate::measure::vocabulary::{self, WordMeaning};

/// Minimum rows in which the calculation is correct.
const MIN_CORRECT: usize = 2;
/// Maximum rows of a table that are read.
const MAX_ROWS: usize = 60;
/// Maximum columns of a table that are read.
const MAX_COLUMNS: usize = 8;
/// Minimum ratio of a calculated value to its rounding, so that a match is not accidental.
const MIN_PRECISION: f64 = 20.0;
/// Maximum numbers that may explain a difference.
const MAX_KNOWN: usize = 400;
const PERCENT: f64 = 100.0;

/// The numbers of a row by column, and its line.
type NumberRow<'a> = (Vec<Option<Number>>, &'a str);

/// How a column follows from two others.
#[derive(Clone, Copy)]
enum Calculation {
    Product,
    Quotient,
    Sum,
    Difference,
}

const CALCULATIONS: [Calculation; 4] =
    [Calculation::Product, Calculation::Quotient, Calculation::Sum, Calculation::Difference];

impl Calculation {
    /// The value for the numbers of the two columns in one row.
    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Calculation::Product => a * b,
            Calculation::Quotient => a / b,
            Calculation::Sum => a + b,
            Calculation::Difference => a - b,
        }
    }

    /// Whether the order of the operands is irrelevant.
    fn is_commutative(self) -> bool {
        matches!(self, Calculation::Product | Calculation::Sum)
    }

    /// The maximum error of the result due to the rounding of the operands.
    fn rounding(self, a: &Number, b: &Number) -> f64 {
        let slack = |n: &Number| if n.fractional { n.tolerance } else { 0.0 };
        let (slack_a, slack_b) = (slack(a), slack(b));
        match self {
            Calculation::Sum | Calculation::Difference => slack_a + slack_b,
            Calculation::Product => slack_a * b.value + slack_b * a.value,
            Calculation::Quotient => (slack_a + slack_b * a.value / b.value) / b.value,
        }
    }
}

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let mut lines = exchange.prose.lines().peekable();
    while let Some(line) = lines.next() {
        let is_table = |line: &str| line.trim_start().starts_with('|');
        let is_header =
            is_table(line) && lines.peek().is_some_and(|next| is_table(next) && next.contains("--"));
        if !is_header {
            continue;
        }
        lines.next();
        let mut rows: Vec<NumberRow<'_>> = Vec::new();
        while let Some(line) = lines.next_if(|line| is_table(line)) {
            let mut cells = line.trim().trim_matches('|').split('|').take(MAX_COLUMNS);
            let is_total =
                cells.clone().next().is_some_and(|label| vocabulary::has(label, WordMeaning::Total));
            if !is_total && rows.len() < MAX_ROWS {
                rows.push((cells.by_ref().map(number).collect(), line));
            }
        }
        if rows.len() <= MIN_CORRECT || !exchange.spends(rows.len() * MAX_COLUMNS * MAX_COLUMNS) {
            continue;
        }
        if let Some((line, stated, computed)) = only_wrong_cell(exchange, &rows, findings) {
            let rationale = format!(
                "a column that is calculated from the others was expected; they give {}, and the answer has {stated}",
                (computed * 1e4).round() / 1e4
            );
            findings.entries.push((Defect::ContradictsResult.finding(rationale, line.trim()), None));
            return;
        }
    }
}

/// The number of a cell that has only a number and a unit.
fn number(cell: &str) -> Option<Number> {
    let cell_numbers = numbers::all(cell);
    let [n] = cell_numbers.as_slice() else { return None };
    let other_text = [cell.get(..n.start)?, cell.get(n.end..)?].concat();
    let is_unit = other_text.chars().filter(|c| c.is_alphanumeric()).count() <= 4
        || currency::code_for_word(&lowercase(other_text.trim())).is_some();
    let has_sign = other_text.contains(['-', '−', '–', '+', '/', ':', '<', '>', '~']);
    (!n.in_identifier && is_unit && !has_sign).then_some(*n)
}

/// The line of the row that differs, with the stated and the computed value.
fn only_wrong_cell<'a>(
    exchange: &Exchange<'_>,
    rows: &[NumberRow<'a>],
    findings: &mut ExchangeFindings,
) -> Option<(&'a str, f64, f64)> {
    let width = rows.iter().map(|(cells, _)| cells.len()).min()?;
    let column =
        |at: usize| -> Option<Vec<Number>> { rows.iter().map(|(cells, _)| *cells.get(at)?).collect() };
    let columns: Vec<Vec<Number>> = (0..width).filter_map(column).collect();
    for (at_c, c) in columns.iter().enumerate() {
        for (at_a, a) in columns.iter().enumerate().filter(|(at, _)| *at != at_c) {
            for (at_b, b) in columns.iter().enumerate().filter(|(at, _)| *at != at_c && *at != at_a) {
                for calculation in CALCULATIONS
                    .into_iter()
                    .filter(|calculation| at_a < at_b || !calculation.is_commutative())
                {
                    exchange.spends(rows.len()).then_some(())?;
                    let Some(at) = only_wrong(calculation, a, b, c) else { continue };
                    findings.examined = true;
                    let (line, stated) = (rows.get(at)?.1, c.get(at)?);
                    let computed = calculation.apply(a.get(at)?.value, b.get(at)?.value);
                    // The last row may be the total of the others.
                    let sum: f64 = c.iter().map(|n| n.value).sum::<f64>() - stated.value;
                    let is_total =
                        at + 1 == rows.len() && (sum - stated.value).abs() <= stated.tolerance * 2.0;
                    if !is_total && !is_explained(exchange, line, stated, computed) {
                        return Some((line, stated.value, computed));
                    }
                }
            }
        }
    }
    None
}

/// The only row in which the calculation is wrong, if it is correct in at least [`MIN_CORRECT`] others.
fn only_wrong(calculation: Calculation, a: &[Number], b: &[Number], c: &[Number]) -> Option<usize> {
    let mut wrong = None;
    let mut correct: Vec<(f64, f64)> = Vec::new();
    for (at, ((a, b), c)) in a.iter().zip(b).zip(c).enumerate() {
        let computed = calculation.apply(a.value, b.value);
        let slack = c.tolerance * 1.01 + calculation.rounding(a, b);
        // Calculations with 0 and 1 may be correct by chance.
        let is_significant = !matches!(a.value, 0.0 | 1.0)
            && !matches!(b.value, 0.0 | 1.0)
            && c.value >= MIN_PRECISION * slack;
        if computed.is_finite() && (computed - c.value).abs() <= slack {
            if is_significant && !correct.contains(&(a.value, b.value)) {
                correct.push((a.value, b.value));
            }
        } else if wrong.is_some() || !computed.is_finite() || (computed - c.value).abs() <= 2.0 * slack {
            return None;
        } else {
            wrong = Some(at);
        }
    }
    wrong.filter(|_| correct.len() >= MIN_CORRECT)
}

/// Whether a text has the value, or a number of the row or of a text explains the difference. True beyond the work
/// budget.
fn is_explained(exchange: &Exchange<'_>, line: &str, stated: &Number, computed: f64) -> bool {
    if !exchange.spends_numbers() {
        return true;
    }
    let is_near = |value: f64| (value - stated.value).abs() <= stated.tolerance * 1.01;
    let mut known_values: Vec<f64> =
        numbers::all(line).iter().map(|n| n.value).filter(|v| *v != stated.value).collect();
    for text in &exchange.sources.seen {
        for n in numbers::all(text) {
            if n.possible_values().any(is_near) {
                return true;
            }
            if known_values.len() < MAX_KNOWN {
                known_values.push(n.value);
            }
        }
    }
    let explains = |operand: f64| {
        is_near(computed + operand)
            || is_near(computed - operand)
            || is_near(computed * (1.0 + operand / PERCENT))
            || is_near(computed * (1.0 - operand / PERCENT))
            || is_near(computed * operand / PERCENT)
            || is_near(computed * operand)
    };
    known_values.into_iter().any(explains)
}
