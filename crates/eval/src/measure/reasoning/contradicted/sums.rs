//! Wrong sums of the rows of a list: by group ("Meals: 47.30"), or of all rows ("18.4 km in 9 sessions").
//!
//! Principle: if some amounts next to the values of one column are the sums of another column by these values, all
//! these amounts must be such sums, unless the rows of a group are selected by a value that no row of the correct
//! groups has. An amount next to the number of all rows, with the unit or the name of a column, is the sum of the
//! column.
//!
//! In: the lines and clauses of an answer, and the lists of results. Out: one contradiction.

use std::collections::BTreeMap;

use super::exchange::{Exchange, ExchangeFindings};
use super::row_scope::measures;
use super::sources::ResultSource;
use super::universal_claims::has_exception;
use crate::measure::language::WordClass;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::arithmetic::tolerance_of;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{FieldValue, Record, RecordField};
use crate::measure::units::possible_unit;

/// Maximum lines with a label and an amount that are compared.
const MAX_LINES: usize = 60;
/// Maximum rows of a list that is compared.
const MAX_ROWS: usize = 400;
/// Maximum columns of each kind that are compared.
const MAX_COLUMNS: usize = 12;
/// Maximum bytes of an article. An article may also mean "per", and is not read as such.
const MAX_ARTICLE: usize = 2;
/// Maximum bytes of a label.
const MAX_LABEL: usize = 60;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let lines = labelled_amounts(exchange);
    let has_clauses = !exchange.clauses.is_empty();
    if lines.len() < 2 && !has_clauses {
        return;
    }
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        for (list, table) in
            parsed.lists.iter().enumerate().filter(|(_, table)| (3..=MAX_ROWS).contains(&table.len))
        {
            if !exchange.spends(parsed.records.len() / 8 + table.len) {
                return;
            }
            let rows: Vec<&Record> = parsed.records.iter().filter(|r| r.list == Some(list)).collect();
            if rows.len() != table.len {
                continue;
            }
            let wrong = wrong_group_sum(exchange, &lines, &rows, findings)
                .or_else(|| wrong_column_sum(exchange, source, &rows, findings));
            if let Some((returned, sentence)) = wrong {
                findings.contradicts(&returned, source.call, sentence);
                return;
            }
        }
    }
}

/// A label of a line or of the first cell of a row, and the amount next to it.
struct LabelledAmount<'a> {
    label: String,
    amount: Number,
    line: &'a str,
}

/// The lines of the answer with a label and an amount.
fn labelled_amounts<'a>(exchange: &Exchange<'a>) -> Vec<LabelledAmount<'a>> {
    let read = |line: &'a str| {
        let (label, after_label) = match line.trim_start().strip_prefix('|') {
            Some(cells) => cells.split_once('|')?,
            None => line.split_once([':', '–', '—'])?,
        };
        let label = words_of(label).trim().to_owned();
        let amount = numbers::all(after_label).into_iter().find(|n| !n.in_identifier)?;
        (!label.is_empty() && label.len() <= MAX_LABEL).then_some(LabelledAmount {
            label,
            amount,
            line: line.trim(),
        })
    };
    exchange.answer.lines().filter_map(read).take(MAX_LINES).collect()
}

/// Whether an amount equals the value, up to rounding.
fn is_rounded_value(amount: &Number, value: f64) -> bool {
    amount
        .possible_values()
        .any(|v| (v - value.abs()).abs() <= tolerance_of(amount, v, true).max(0.006) * 1.01)
}

/// The field of a row in the column of `column`.
fn cell<'r>(row: &'r Record, column: &RecordField) -> Option<&'r RecordField> {
    row.fields.iter().find(|field| field.name == column.name)
}

/// The sum of the numbers of the rows in a column.
fn sum_of<'r>(rows: impl Iterator<Item = &'r Record>, column: &RecordField) -> f64 {
    rows.filter_map(|row| cell(row, column)?.number()).sum()
}

/// The description of a group whose amount is not the sum of its rows, although the amounts of other groups are, with
/// the line of the amount.
fn wrong_group_sum<'a>(
    exchange: &Exchange<'a>,
    lines: &[LabelledAmount<'a>],
    rows: &[&Record],
    findings: &mut ExchangeFindings,
) -> Option<(String, &'a str)> {
    let first = rows.first()?;
    let fields = || first.fields.iter().take(MAX_COLUMNS);
    for group_key in fields().filter(|field| field.is_text()) {
        let mut groups: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
        for row in rows {
            let Some(value) = cell(row, group_key).and_then(RecordField::text) else { continue };
            groups.entry(words_of(&value.replace('_', " ")).trim().to_owned()).or_default().push(row);
        }
        let grouped_lines: Vec<(&LabelledAmount<'a>, &Vec<&Record>)> =
            lines.iter().filter_map(|line| Some((line, groups.get(&line.label)?))).collect();
        let is_grouped = groups.len() < rows.len() && grouped_lines.len() >= 2;
        if !is_grouped || exchange.clauses.iter().any(has_exception) {
            continue;
        }
        exchange.spends(rows.len() * MAX_COLUMNS).then_some(())?;
        for column in fields().filter(|field| field.number().is_some()) {
            let sum = |group: &[&Record]| sum_of(group.iter().copied(), column);
            let (correct, wrong): (Vec<_>, Vec<_>) =
                grouped_lines.iter().partition(|(line, group)| is_rounded_value(&line.amount, sum(group)));
            // A group of one row does not show that the amounts are sums.
            let are_sums = correct.iter().any(|(_, group)| group.len() > 1);
            if !are_sums || wrong.is_empty() || wrong.len() > correct.len() {
                continue;
            }
            findings.examined = true;
            let correct_rows: Vec<&Record> =
                correct.iter().flat_map(|(_, group)| group.iter().copied()).collect();
            let is_other = |(line, group): &(&LabelledAmount<'a>, &Vec<&Record>)| {
                group.len() > 1 && !has_other_meaning(&line.amount, group, &correct_rows, column)
            };
            if let Some((line, group)) = wrong.into_iter().find(is_other) {
                let total = (sum(group) * 100.0).round() / 100.0;
                let returned = format!(
                    "{} rows of {} with a sum of {total} as {}",
                    group.len(),
                    line.label,
                    column.name.join(" ")
                );
                return Some((returned, line.line));
            }
        }
    }
    None
}

/// Whether the amount has another meaning for the rows of the group: it is their count, their mean, one of their
/// numbers, the sum of another column, or the sum of the rows with (or without) a value by which rows may be selected.
fn has_other_meaning(
    amount: &Number,
    group: &[&Record],
    correct_rows: &[&Record],
    column: &RecordField,
) -> bool {
    let numbers: Vec<f64> = group.iter().filter_map(|row| cell(row, column)?.number()).collect();
    let sum: f64 = numbers.iter().sum();
    let count = numbers.len() as f64;
    if is_rounded_value(amount, count)
        || is_rounded_value(amount, sum / count)
        || count > 2.0 && numbers.iter().any(|n| is_rounded_value(amount, *n))
    {
        return true;
    }
    let Some(first) = group.first() else { return true };
    let others = first.fields.iter().filter(|field| field.number().is_none());
    let is_other_column = first.fields.iter().any(|f| {
        f.number().is_some()
            && f.name != column.name
            && is_rounded_value(amount, sum_of(group.iter().copied(), f))
    });
    is_other_column
        || others.take(MAX_COLUMNS).any(|selector| {
            let has = |row: &Record, value: &FieldValue| {
                cell(row, selector).is_some_and(|field| field.value == *value)
            };
            let values = group.iter().filter_map(|row| Some(&cell(row, selector)?.value));
            let mut selecting = values.filter(|value| {
                let shared = group.iter().chain(correct_rows).filter(|row| has(row, value)).count() > 1;
                shared || matches!(value, FieldValue::Bool(_)) || is_state(selector)
            });
            selecting.any(|value| {
                let sum_where = |has_value: bool| {
                    sum_of(group.iter().copied().filter(|row| has(row, value) == has_value), column)
                };
                is_rounded_value(amount, sum_where(false)) && !correct_rows.iter().any(|row| has(row, value))
                    || is_rounded_value(amount, sum_where(true))
                        && correct_rows.iter().all(|row| has(row, value))
            })
        })
}

/// Whether the key of a field means a state.
fn is_state(field: &RecordField) -> bool {
    field.name.last().is_some_and(|word| super::predicates::is_state_key(word))
}

/// The description of a column and a clause with an amount next to the number of all rows, if the amount is not the
/// sum of the column with its name or unit.
fn wrong_column_sum<'a>(
    exchange: &Exchange<'a>,
    source: &ResultSource<'_>,
    rows: &[&Record],
    findings: &mut ExchangeFindings,
) -> Option<(String, &'a str)> {
    let parsed = source.parsed.0.as_ref()?;
    let len = rows.len() as f64;
    // Equal values in all rows are not added up.
    let varies = |field: &&RecordField| {
        rows.iter().any(|row| cell(row, field).is_some_and(|other| other.value != field.value))
    };
    for clause in exchange.clauses.iter().filter(|clause| !clause.modal && !clause.negated) {
        let stated = numbers::all(&clause.words);
        // "The four shipments" as "the 4 shipments".
        let mut spelled = clause.words.split(' ').filter_map(numbers::from_any_word);
        let mut is_spelled = || spelled.next() == Some(len) && spelled.next().is_none();
        let (amount, is_counted) = match (stated.as_slice(), rows.len()) {
            ([amount, count], 3..) => (amount, count.value == len && !count.in_identifier),
            ([amount], 3..) => (amount, is_spelled()),
            _ => continue,
        };
        let is_counted = is_counted && !amount.in_identifier && amount.value != len;
        if !is_counted || has_exception(clause) || measures(clause) || is_of_each(exchange, clause) {
            continue;
        }
        let fields = rows.first()?.fields.iter().filter(|field| field.number().is_some()).take(MAX_COLUMNS);
        let mut candidates =
            fields.filter(varies).filter_map(|field| Some((field, scale(clause, amount, field)?)));
        let (Some((column, scale)), None) = (candidates.next(), candidates.next()) else { continue };
        (exchange.spends_numbers() && exchange.spends(exchange.sources.field_count())).then_some(())?;
        findings.examined = true;
        let sum = sum_of(rows.iter().copied(), column) / scale;
        let is_near =
            |value: f64| (value - amount.value).abs() <= amount.tolerance * 1.01 + 0.005 * amount.value;
        // The amount may be a median or the range.
        let mut sorted: Vec<f64> = rows.iter().filter_map(|row| cell(row, column)?.number()).collect();
        sorted.sort_by(f64::total_cmp);
        let value_at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let (middle, last) = (sorted.len() / 2, sorted.len().saturating_sub(1));
        let medians_and_range = [
            value_at(middle),
            (value_at(middle) + value_at(middle.saturating_sub(1))) / 2.0,
            value_at(last) - value_at(0),
        ];
        let is_median_or_range = || medians_and_range.iter().any(|value| is_near(value / scale));
        let is_row = || rows.iter().filter_map(|row| cell(row, column)?.number()).any(|n| is_near(n / scale));
        let is_aggregate = || parsed.aggregates().iter().any(|value| is_near(*value / scale));
        let is_seen = |text: &str| {
            numbers::all(text).iter().any(|n| n.value == amount.value && n.fractional == amount.fractional)
        };
        // The amount may be a number of another result, or the sum increased or reduced by one, such as a reserve.
        let is_same_list = |other: &ResultSource<'_>, record: &Record| {
            std::ptr::eq(other, source) && rows.first().is_some_and(|row| row.list == record.list)
        };
        let records = || {
            let all = exchange.sources.records().filter(|(other, _, record)| !is_same_list(other, record));
            all.map(|(.., record)| record)
        };
        let fields = || records().flat_map(|record| &record.fields);
        let is_other = || {
            let request_numbers = numbers::all(exchange.task).into_iter().map(|n| n.value);
            let mut other_numbers = fields().filter_map(RecordField::number).chain(request_numbers);
            let is_amount = |value: f64| (value - amount.value).abs() <= amount.tolerance * 1.01;
            other_numbers
                .any(|n| [n / scale, (sum - n / scale).abs(), sum + n / scale].into_iter().any(is_amount))
        };
        if !is_near(sum)
            && !is_other()
            && !is_median_or_range()
            && !is_row()
            && !is_aggregate()
            && !super::misattributed_values::unstructured(&exchange.sources).any(is_seen)
        {
            let sum = (sum * 100.0).round() / 100.0;
            return Some((format!("rows with a sum of {sum} as {}", column.name.join(" ")), clause.sentence));
        }
    }
    None
}

/// Whether a clause gives a value of each row: "weigh 30 kg each".
fn is_of_each(exchange: &Exchange<'_>, clause: &Clause<'_>) -> bool {
    let table = exchange.language.map(|language| language.table());
    let is_word = |word: &&str| word.len() > MAX_ARTICLE;
    let mut words = clause.words.split(' ').filter(is_word);
    words.any(|word| table.is_some_and(|table| table.name(word).0.has(WordClass::Per)))
}

/// The divisor that converts the numbers of the column to the unit of the amount; `None` if the clause names neither a
/// unit nor the column.
fn scale(clause: &Clause<'_>, amount: &Number, column: &RecordField) -> Option<f64> {
    let after = clause.words.get(amount.end..).unwrap_or_default().trim_start();
    let unit = after.split(' ').next().unwrap_or_default();
    let column_unit = column.name.last()?;
    let units = possible_unit(unit).zip(possible_unit(column_unit));
    if let Some(scale) = units.and_then(|(unit, column_unit)| unit.in_units(&column_unit)) {
        return Some(scale);
    }
    let is_named = column.name.iter().all(|word| word.len() > 2 && contains_words(&clause.words, word));
    is_named.then_some(1.0)
}
