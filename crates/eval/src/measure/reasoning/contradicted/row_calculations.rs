//! Calculated values of rows of a result, one of which is wrong: free seats as capacity less sold, and "C: 46 left" of
//! 80 and 44.
//!
//! Principle: the values that an answer gives for each row of a list are calculated from two columns of it if all but
//! one of them are. The exception is wrong, unless a text or a result has its value, or another number of its row or of
//! its line explains the difference. Rounding of the digits that are shown is allowed. (`table_columns` compares the
//! columns of tables in the answer.)
//!
//! In: consecutive lines of an answer, each with the name of another row, and the lists of results or the results of
//! one tool for several things. Out: one contradiction for the first wrong line.

use std::collections::BTreeMap;

use super::exchange::{Exchange, ExchangeFindings};
use super::sources::ResultSource;
use super::totals::is_in_date;
use crate::measure::numbers::{self, Number, has_digit};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::statements::{contains_words, words_of};
use crate::measure::records::{Record, RecordField};

/// Minimum rows of a block, and minimum rows in which the calculation is correct.
const MIN_ROWS: usize = 3;
const MIN_CORRECT: usize = 2;
/// Maximum rows of a table, and lines of a block.
const MAX_ROWS: usize = 40;
/// Maximum numbers of a line, and columns of a result.
const MAX_NUMBERS: usize = 8;
const MAX_COLUMNS: usize = 12;
/// Minimum ratio of a calculated value to its rounding, so that a match is not accidental.
const MIN_PRECISION: f64 = 20.0;
/// The smallest whole number whose match is not accidental.
const MIN_WHOLE_VALUE: f64 = 10.0;
/// Tolerance for rounding errors of floating-point numbers.
const MAX_ROUNDING_ERROR: f64 = 1e-6;
const PERCENT: f64 = 100.0;

/// How a value follows from those of two columns.
#[derive(Clone, Copy)]
enum Calculation {
    Difference,
    Sum,
    Product,
    Quotient,
    Share,
    Remainder,
}

const CALCULATIONS: [Calculation; 6] = [
    Calculation::Difference,
    Calculation::Sum,
    Calculation::Product,
    Calculation::Quotient,
    Calculation::Share,
    Calculation::Remainder,
];

impl Calculation {
    /// The value for the numbers of the two columns in one row.
    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Calculation::Difference => a - b,
            Calculation::Sum => a + b,
            Calculation::Product => a * b,
            Calculation::Quotient => a / b,
            Calculation::Share => a / b * PERCENT,
            Calculation::Remainder => (a - b) / a * PERCENT,
        }
    }

    /// Whether whole numbers give a whole number, which is not rounded.
    fn is_whole(self) -> bool {
        matches!(self, Calculation::Difference | Calculation::Sum | Calculation::Product)
    }

    /// Whether the order of the columns is irrelevant.
    fn is_commutative(self) -> bool {
        matches!(self, Calculation::Sum | Calculation::Product)
    }
}

/// A line of the answer with a label. `numbers` are by cell of a table, or in the order of a list item.
struct LabelledLine<'a> {
    label: String,
    numbers: Vec<Option<Number>>,
    line: &'a str,
}

/// A line with the row that its label names.
type RowLine<'e, 'a> = (&'e LabelledLine<'a>, &'e Record);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let blocks = blocks(exchange);
    if blocks.is_empty() {
        return;
    }
    let Some(tables) = tables(exchange) else { return };
    for (source, rows) in &tables {
        for block in &blocks {
            if !exchange.spends(block.len() * rows.len() * 2) {
                return;
            }
            let Some(lines) = lines_of_rows(block, rows) else { continue };
            // Several results of one tool may be about one thing, so that the valid one is not known.
            if rows.first().is_none_or(|row| row.list.is_none()) && lines.len() < rows.len() {
                continue;
            }
            if let Some((returned, line)) = wrong_value(exchange, &lines, findings) {
                findings.contradicts(&returned, source.call, line);
                return;
            }
        }
    }
}

/// The consecutive lines of each list and table of the answer.
fn blocks<'a>(exchange: &Exchange<'a>) -> Vec<Vec<LabelledLine<'a>>> {
    let mut blocks: Vec<Vec<LabelledLine<'a>>> = Vec::new();
    let mut is_open = false;
    for line in exchange.answer.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let read = if line.starts_with('|') { table_line(line) } else { list_line(line) };
        match (read, blocks.last_mut().filter(|_| is_open)) {
            (Some(line), Some(block)) => block.push(line),
            (Some(line), None) => blocks.push(vec![line]),
            _ => {}
        }
        is_open = may_be_part(line);
    }
    blocks.retain(|block| (MIN_ROWS..=MAX_ROWS).contains(&block.len()));
    blocks
}

/// Whether a line may be one of a list or a table.
fn may_be_part(line: &str) -> bool {
    line.starts_with(['|', '-', '*', '•']) || line.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a number may be a value: not part of an identifier or of a date.
fn is_value(text: &str, n: &Number) -> bool {
    !n.in_identifier && !is_in_date(text, n) && !dates::begins_with_month(text.get(n.end..))
}

/// A line of a table: all cells are the label, and the only number of each is its value.
fn table_line(line: &str) -> Option<LabelledLine<'_>> {
    let cells = line.trim_matches('|').split('|').take(MAX_NUMBERS);
    let number = |cell: &str| match numbers::all(cell).as_slice() {
        [n] if is_value(cell, n) => Some(*n),
        _ => None,
    };
    let numbers: Vec<Option<Number>> = cells.map(number).collect();
    numbers.iter().any(Option::is_some).then(|| LabelledLine {
        label: words_of(&line.replace('|', " ")),
        numbers,
        line,
    })
}

/// An item of a list: its label is before a colon, a dash or its first number.
fn list_line(line: &str) -> Option<LabelledLine<'_>> {
    if !may_be_part(line) {
        return None;
    }
    let marker = line.find(|c: char| c.is_whitespace()).filter(|at| *at <= 3)?;
    let text = line.get(marker..)?;
    let mut numbers = numbers::all(text);
    numbers.retain(|n| is_value(text, n));
    let first = numbers.first()?.start;
    let label_end = [": ", ":** ", " – ", " — ", " - "].iter().filter_map(|sign| text.find(sign)).min();
    let label = text.get(..label_end.unwrap_or(first))?;
    numbers.retain(|n| n.start >= label.len());
    let numbers = numbers.into_iter().take(MAX_NUMBERS).map(Some).collect();
    Some(LabelledLine { label: words_of(label), numbers, line })
}

/// The lists of results, and the results of one tool for several things; `None` beyond the work budget.
fn tables<'e>(exchange: &'e Exchange<'_>) -> Option<Vec<(&'e ResultSource<'e>, Vec<&'e Record>)>> {
    let mut tables: Vec<(&ResultSource<'_>, Vec<&Record>)> = Vec::new();
    let mut by_tool: BTreeMap<&str, Vec<(&ResultSource<'_>, &Record)>> = BTreeMap::new();
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        exchange.spends(1 + parsed.records.len() / 4).then_some(())?;
        tables.extend(parsed.rows_by_list().into_iter().map(|rows| (source, rows)));
        if let Some(first) = parsed.records.first().filter(|first| first.list.is_none()) {
            by_tool.entry(source.call.name.trim()).or_default().push((source, first));
        }
    }
    let results = by_tool.into_values().filter_map(|results| {
        let (source, _) = *results.last()?;
        Some((source, results.into_iter().map(|(_, record)| record).collect()))
    });
    tables.extend(results);
    tables.retain(|(_, rows)| (MIN_ROWS..=MAX_ROWS).contains(&rows.len()));
    Some(tables)
}

/// The field of a row in the column of `name`.
fn cell<'r>(row: &'r Record, name: &RecordField) -> Option<&'r RecordField> {
    row.fields.iter().find(|field| field.name == name.name)
}

/// The lines with the row that each names, if all name different rows: a column of texts distinguishes the rows, and
/// each label contains the text of one row.
fn lines_of_rows<'e, 'a>(block: &'e [LabelledLine<'a>], rows: &[&'e Record]) -> Option<Vec<RowLine<'e, 'a>>> {
    let columns = rows.first()?.fields.iter().take(MAX_COLUMNS).filter(|field| field.is_text());
    columns.into_iter().find_map(|column| {
        let names = rows.iter().map(|row| {
            let name = words_of(cell(row, column)?.text()?);
            (!name.trim().is_empty()).then(|| name.trim().to_owned())
        });
        let names: Vec<String> = names.collect::<Option<_>>()?;
        let row_of = |line: &'e LabelledLine<'a>| {
            let mut matching_names =
                names.iter().enumerate().filter(|(_, name)| contains_words(&line.label, name));
            let (at, _) = matching_names.next()?;
            let row = *rows.get(at)?;
            matching_names.next().is_none().then_some((at, (line, row)))
        };
        let mut lines: Vec<(usize, RowLine<'e, 'a>)> = block.iter().filter_map(row_of).collect();
        // At most two lines may have no row: the header and the total.
        if lines.len() < MIN_ROWS || lines.len() + 2 < block.len() {
            return None;
        }
        lines.sort_by_key(|(at, _)| *at);
        let is_distinct = lines.windows(2).all(|pair| pair.first().map(|l| l.0) != pair.last().map(|l| l.0));
        is_distinct.then(|| lines.into_iter().map(|(_, line)| line).collect())
    })
}

/// The expected calculation and the line of a value that does not follow from two columns from which the values of the
/// other lines follow.
fn wrong_value<'a>(
    exchange: &Exchange<'a>,
    lines: &[RowLine<'_, 'a>],
    findings: &mut ExchangeFindings,
) -> Option<(String, &'a str)> {
    let (_, first) = lines.first()?;
    let is_column = |field: &&RecordField| lines.iter().all(|(_, row)| number_of(row, field).is_some());
    let columns: Vec<&RecordField> = first.fields.iter().filter(is_column).take(MAX_COLUMNS).collect();
    let width = lines.iter().map(|(line, _)| line.numbers.len()).min()?;
    for index in 0..width {
        let stated: Option<Vec<Number>> =
            lines.iter().map(|(line, _)| line.numbers.get(index).copied().flatten()).collect();
        let Some(stated) = stated else { continue };
        // Values of a column of the rows are not calculated.
        let is_stated_column = |column: &&RecordField| {
            let rows = lines.iter().zip(&stated);
            let equal = rows.filter(|((_, row), n)| number_of(row, column) == Some(n.value));
            equal.count() >= MIN_CORRECT
        };
        if columns.iter().any(is_stated_column) {
            continue;
        }
        let pairs = columns.iter().enumerate().flat_map(|(at_a, a)| {
            let others = columns.iter().enumerate().filter(move |(at_b, _)| *at_b != at_a);
            others.flat_map(move |(at_b, b)| {
                let calculations =
                    CALCULATIONS.into_iter().filter(move |c| at_a < at_b || !c.is_commutative());
                calculations.map(move |calculation| (calculation, *a, *b))
            })
        });
        exchange.spends(lines.len() * columns.len() * columns.len() * CALCULATIONS.len()).then_some(())?;
        let calculated: Vec<_> = pairs
            .filter_map(|(calculation, a, b)| {
                Some((a, b, only_differing(calculation, lines, &stated, (a, b))?))
            })
            .collect();
        findings.examined |= !calculated.is_empty();
        // All values follow from two columns, so that no line is wrong.
        if calculated.iter().any(|(.., wrong)| wrong.is_none()) {
            continue;
        }
        for (a, b, (at, computed)) in calculated.into_iter().filter_map(|(a, b, wrong)| Some((a, b, wrong?)))
        {
            let (Some((line, row)), Some(n)) = (lines.get(at), stated.get(at)) else { continue };
            if has_other_result(exchange, lines, at) || is_explained(exchange, line.line, row, n, computed) {
                continue;
            }
            let shown = |column: &RecordField| {
                let value = cell(row, column).map(RecordField::shown).unwrap_or_default();
                format!("{}: {value}", column.name.join(" "))
            };
            let computed = (computed * 1e4).round() / 1e4;
            let (a, b) = (shown(a), shown(b));
            return Some((
                format!("{a} and {b}, which give {computed} as they do for the other rows"),
                line.line,
            ));
        }
    }
    None
}

/// The number of a row in a column.
fn number_of(row: &Record, column: &RecordField) -> Option<f64> {
    cell(row, column)?.number()
}

/// The index of the only line whose value does not follow from two columns, with the computed value; `Some(None)` if
/// all values follow, and `None` if several do not, or if the match may be accidental.
fn only_differing(
    calculation: Calculation,
    lines: &[RowLine<'_, '_>],
    stated: &[Number],
    (a, b): (&RecordField, &RecordField),
) -> Option<Option<(usize, f64)>> {
    let mut wrong = None;
    let mut correct: Vec<f64> = Vec::new();
    let mut is_significant = false;
    for (at, ((_, row), n)) in lines.iter().zip(stated).enumerate() {
        let (a, b) = (number_of(row, a)?, number_of(row, b)?);
        let computed = calculation.apply(a, b);
        if !computed.is_finite() {
            return None;
        }
        let is_exact = calculation.is_whole() && a.fract() == 0.0 && b.fract() == 0.0 && !n.fractional;
        let slack = if is_exact { MAX_ROUNDING_ERROR } else { n.tolerance * 1.01 };
        let is_near = |value: f64| (value.abs() - computed.abs()).abs() <= slack;
        // A negative remainder may be stated as 0.
        if n.value == 0.0 && computed < 0.0 {
            continue;
        }
        if n.possible_values().any(is_near) {
            // The values 0 and 1 may match by chance.
            if computed.abs() > 1.0 && !correct.contains(&computed) {
                correct.push(computed);
                is_significant |=
                    computed.abs() >= if is_exact { MIN_WHOLE_VALUE } else { MIN_PRECISION * slack };
            }
        } else if wrong.is_some() {
            return None;
        } else {
            wrong = Some((at, computed));
        }
    }
    (correct.len() >= MIN_CORRECT && is_significant).then_some(wrong)
}

/// Whether another result may have the correct value for a line: it has a text of the row of the line that no other row
/// has.
fn has_other_result(exchange: &Exchange<'_>, lines: &[RowLine<'_, '_>], at: usize) -> bool {
    let Some((line, row)) = lines.get(at) else { return true };
    let has = |record: &Record, field: &RecordField| {
        !std::ptr::eq(record, *row) && record.fields.iter().any(|other| other.value == field.value)
    };
    let is_name = |field: &&RecordField| {
        field.text().is_some_and(|text| contains_words(&line.label, words_of(text).trim()))
            && !lines.iter().any(|(_, other)| has(other, field))
    };
    let naming_fields: Vec<&RecordField> = row.fields.iter().filter(is_name).collect();
    let mut records = exchange.sources.records().map(|(.., record)| record);
    !exchange.spends(naming_fields.len() * exchange.sources.field_count())
        || records.any(|record| naming_fields.iter().any(|field| has(record, field)))
}

/// Whether a text or a result has the value, or a number of the row, of the line or of the request explains the
/// difference. True beyond the work budget.
pub(super) fn is_explained(
    exchange: &Exchange<'_>,
    line: &str,
    row: &Record,
    n: &Number,
    computed: f64,
) -> bool {
    if !exchange.spends_numbers() {
        return true;
    }
    let is_near = |value: f64| (value.abs() - n.value).abs() <= n.tolerance * 1.01;
    let has =
        |text: &str| has_digit(text) && numbers::all(text).iter().any(|n| n.possible_values().any(is_near));
    if exchange.sources.seen.iter().any(|text| has(text)) {
        return true;
    }
    let written = numbers::all(line).into_iter().chain(numbers::all(exchange.task)).map(|n| n.value);
    let others = row.fields.iter().filter_map(RecordField::number).chain(written).filter(|v| *v != n.value);
    let explains = |v: f64| {
        is_near(computed + v)
            || is_near(computed - v)
            || is_near(computed * (1.0 + v / PERCENT))
            || is_near(computed * (1.0 - v / PERCENT))
    };
    others.into_iter().any(explains)
}
