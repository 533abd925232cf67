//! Numbers of another row than the requested one: "does the tracker of van 8 need charging?", and the answer gives the
//! battery and the voltage of van 18.
//!
//! Principle: a request that names one row of a table asks about that row, and an answer that names no row is about
//! the same row. It is a contradiction if the answer has several numbers that only one other row has, and no number
//! that only the requested row has. A request for something next to, before or after the named row is not compared.
//!
//! In: the request, the numbers of an answer, and the tables of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::misattributed_values::unstructured;
use super::named_rows::{NamedRow, RowName, tables};
use super::row_scope::{compares, may_be_about_other};
use super::universal_claims::has_exception;
use crate::measure::language::{Language, WordClasses, classes, classes_in};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::dates;
use crate::measure::records::RecordField;

/// Minimum numbers that only the other row has.
const MIN_NUMBERS: usize = 2;
/// Whole numbers up to this one are not compared, since they are common.
const MAX_SMALL_NUMBER: f64 = 20.0;
/// Maximum numbers of an answer that are compared.
const MAX_NUMBERS: usize = 64;
/// Maximum bytes of a request: longer requests name things for other reasons.
const MAX_REQUEST: usize = 600;
/// Classes of words by which a request is not about the row that it names.
const OTHER_THING: WordClasses = classes!(Comparison Neighbour Exception);
/// Classes of words by which a request is not about the row whose name follows.
const OTHER_THING_BEFORE: WordClasses = classes!(Origin Sequence Target);
/// Maximum words before a name that are searched for [`OTHER_THING_BEFORE`].
const WORDS_BEFORE: usize = 3;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let request_words = exchange.task_words();
    if exchange.task.len() > MAX_REQUEST
        || exchange.clauses.is_empty()
        || classes_in(exchange.task, None, exchange.memo).is_none_or(|classes| classes.has_any(OTHER_THING))
        || exchange.clauses.iter().any(|clause| has_exception(clause) || compares(clause))
    {
        return;
    }
    let numbers = stated_numbers(exchange);
    if numbers.len() < MIN_NUMBERS {
        return;
    }
    let Some(tables) = tables(exchange, request_words) else { return };
    for table in &tables {
        let steps = table.len() * (exchange.clauses.len() + numbers.len());
        if !exchange.spends(steps + exchange.sources.field_count()) {
            return;
        }
        let is_named =
            |row: &&NamedRow<'_>| row.names.iter().any(|name| name.is_in(exchange.task, request_words));
        let mut named = table.iter().filter(is_named);
        let (Some(row), None) = (named.next(), named.next()) else { continue };
        if table.iter().any(|row| exchange.clauses.iter().any(|clause| row.is_named_in(clause))) {
            continue;
        }
        let is_related = |name: &RowName| {
            let at = request_words.find(&name.words).filter(|_| name.is_in(exchange.task, request_words));
            let before = at.and_then(|at| request_words.get(..at)).unwrap_or_default();
            let relates = |word: &str| {
                let (name, _) = Language::English.table().name(word);
                name.has_any(OTHER_THING_BEFORE)
                    || Language::English.classes(word).has_any(OTHER_THING_BEFORE)
            };
            before.split(' ').rev().take(WORDS_BEFORE + 1).any(relates)
        };
        if row.names.iter().any(is_related) {
            continue;
        }
        findings.examined = true;
        if let Some((field, sentence)) = other_row_number(exchange, table, row, &numbers) {
            let returned = format!("{}: {} for what the request names", field.name.join(" "), field.shown());
            findings.contradicts(&returned, row.source.call, sentence);
            return;
        }
    }
}

/// A number of the answer, with its sentence.
type StatedNumber<'a> = (Number, &'a str);

/// The distinct numbers of the answer that are not dates, times or small numbers, and that the request does not have.
fn stated_numbers<'a>(exchange: &Exchange<'a>) -> Vec<StatedNumber<'a>> {
    let request_numbers = numbers::all(exchange.task);
    let stated = exchange.clauses.iter().filter(|clause| !clause.modal && !clause.negated);
    let mut out: Vec<StatedNumber<'a>> = Vec::new();
    for clause in stated {
        numbers::scan(&clause.words, |n| {
            let before = clause.words.get(..n.start).unwrap_or_default();
            let after = clause.words.get(n.end..).unwrap_or_default();
            let is_time =
                before.ends_with(':') || after.starts_with(':') || dates::begins_with_month(Some(after));
            let is_small = n.value <= MAX_SMALL_NUMBER && !n.fractional;
            let is_known = request_numbers.iter().any(|number| number.value == n.value)
                || out.iter().any(|(number, _)| number.value == n.value);
            if !n.in_identifier && !is_time && !is_small && !is_known && out.len() < MAX_NUMBERS {
                out.push((n, clause.sentence));
            }
        });
    }
    out
}

/// Whether the value of a field is the number.
fn has_number(field: &RecordField, n: &Number) -> bool {
    field.number().is_some_and(|value| value.abs() == n.value)
}

/// A field of the requested row in the column of a number that only another row has, with the sentence of that number.
fn other_row_number<'t, 'a>(
    exchange: &Exchange<'a>,
    table: &[NamedRow<'t>],
    row: &NamedRow<'t>,
    numbers: &[StatedNumber<'a>],
) -> Option<(&'t RecordField, &'a str)> {
    // The only row with a number.
    let only_row_with = |(n, _): &StatedNumber<'_>| {
        let mut owners =
            table.iter().enumerate().filter(|(_, row)| row.cells.iter().any(|cell| has_number(cell, n)));
        owners.next().filter(|_| owners.next().is_none()).map(|(at, _)| at)
    };
    let owners: Vec<Option<usize>> = numbers.iter().map(only_row_with).collect();
    let first = owners.iter().flatten().next()?;
    let other = table.get(*first)?;
    if std::ptr::eq(other, row)
        || owners.iter().flatten().any(|at| at != first)
        || !row.source.is_current(row.at)
    {
        return None;
    }
    exchange.spends_numbers().then_some(())?;
    // Whether no other text has the number.
    let is_only_here = |n: &Number| {
        let fields = exchange.sources.records().flat_map(|(.., record)| &record.fields);
        let all = fields.filter(|field| has_number(field, n));
        let cell_count = other.cells.iter().filter(|cell| has_number(cell, n)).count();
        let is_told = |text: &str| {
            numbers::all(text).iter().any(|number| number.possible_values().any(|v| v == n.value))
        };
        all.count() == cell_count && !unstructured(&exchange.sources).any(is_told)
    };
    let requested_field = |n: &Number| {
        let cell = other.cells.iter().find(|cell| has_number(cell, n))?;
        row.column(cell).next().filter(|field| field.value != cell.value)
    };
    let mut numbers_of_other_row =
        numbers.iter().zip(&owners).filter(|(_, owner)| owner.is_some()).map(|(number, _)| number);
    let (n, sentence) = numbers_of_other_row.clone().next()?;
    let cell = other.cells.iter().find(|cell| has_number(cell, n))?;
    let is_another = numbers_of_other_row.clone().count() >= MIN_NUMBERS
        && numbers_of_other_row.all(|(n, _)| requested_field(n).is_some() && is_only_here(n));
    let is_told =
        exchange.clauses.iter().any(|clause| may_be_about_other(clause, &other.cells, &row.cells, cell));
    requested_field(n).filter(|_| is_another && !is_told).map(|field| (field, *sentence))
}
