//! Counts by the values of a column, one of which is wrong: "four were paid and four denied" of eight rows, three of
//! which are denied.
//!
//! Principle: clauses that give a number next to a value of a column count the rows with the value. If another clause
//! has the right count of another value, a count that differs from the rows with its value is a contradiction. The list
//! must be whole, and a column has few values, each of which no other column has.
//!
//! In: the clauses of an answer with one number, and the lists of results. Out: one contradiction, in any language.

use std::collections::BTreeMap;

use super::exchange::{Exchange, ExchangeFindings};
use super::row_scope::measures;
use super::universal_claims::has_exception;
use crate::measure::language::{Language, WordClass};
use crate::measure::numbers;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{Record, RecordField};

/// Minimum and maximum rows of a list, and maximum columns.
const MIN_ROWS: usize = 4;
const MAX_ROWS: usize = 200;
const MAX_COLUMNS: usize = 12;
/// Maximum values of a column.
const MAX_VALUES: usize = 6;
/// Minimum bytes of a value.
const MIN_VALUE: usize = 3;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let Some(language) = exchange.language.filter(|_| !exchange.sources.structured.is_empty()) else {
        return;
    };
    let is_count = |clause: &&Clause<'_>| {
        !clause.negated && !clause.modal && !measures(clause) && !has_exception(clause)
    };
    let counting = exchange.clauses.iter().filter(is_count);
    let counting: Vec<(&Clause<'_>, f64)> =
        counting.filter_map(|clause| Some((clause, only_count(clause, language)?))).collect();
    if counting.len() < 2 {
        return;
    }
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        for (list, rows) in
            parsed.lists.iter().enumerate().filter(|(_, list)| (MIN_ROWS..=MAX_ROWS).contains(&list.len))
        {
            if !exchange.spends(parsed.records.len() / 8 + rows.len * counting.len()) {
                return;
            }
            let rows: Vec<&Record> =
                parsed.records.iter().filter(|record| record.list == Some(list)).collect();
            let Some(first) = rows.first() else { continue };
            for column in first.fields.iter().filter(|field| field.is_text()).take(MAX_COLUMNS) {
                if let Some((value, count, clause)) = wrong_count(&counting, &rows, column, findings) {
                    let returned = format!("{count} rows with {value}");
                    findings.contradicts(&returned, source.call, clause.sentence);
                    return;
                }
            }
        }
    }
}

/// The only number of a clause, in digits or as a word.
fn only_count(clause: &Clause<'_>, language: Language) -> Option<f64> {
    let digits = numbers::all(&clause.words)
        .into_iter()
        .map(|n| (!n.in_identifier && !n.fractional).then_some(n.value));
    let spelled = clause
        .words
        .split(' ')
        .filter_map(|word| language.table().value(WordClass::Number, word))
        .map(|n| Some(f64::from(n)));
    let mut all = digits.chain(spelled);
    all.next().filter(|_| all.next().is_none()).flatten()
}

/// The value of a column whose rows a clause counts wrongly, with their number, if another clause counts those of
/// another value correctly.
fn wrong_count<'c, 'a>(
    counting: &[(&'c Clause<'a>, f64)],
    rows: &[&Record],
    column: &RecordField,
    findings: &mut ExchangeFindings,
) -> Option<(String, usize, &'c Clause<'a>)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        let field = row.fields.iter().find(|field| field.name == column.name)?;
        *counts.entry(words_of(&field.text()?.replace(['_', '-'], " ")).trim().to_owned()).or_default() += 1;
    }
    // A column of names has as many values as rows.
    if !(2..=MAX_VALUES).contains(&counts.len())
        || counts.len() * 2 > rows.len() + 1
        || counts.keys().any(|value| value.len() < MIN_VALUE)
    {
        return None;
    }
    let counted: Vec<(&String, usize, f64, &'c Clause<'a>)> = counting
        .iter()
        .filter_map(|(clause, number)| {
            let mut named = counts.iter().filter(|(value, _)| contains_words(&clause.words, value));
            let (value, count) = named.next().filter(|_| named.next().is_none())?;
            let is_named = |field: &RecordField| {
                field.text().is_some_and(|text| {
                    text != value.as_str()
                        && text.len() >= MIN_VALUE
                        && contains_words(&clause.words, words_of(text).trim())
                })
            };
            // A clause with the name of another column counts its values: "two readers have overdue loans".
            let names_column = |field: &RecordField| {
                let mut words = clause.words.split_whitespace();
                field.name != column.name
                    && words.any(|word| field.name.iter().any(|part| is_form_of(word, part)))
            };
            if rows.first().is_some_and(|row| row.fields.iter().skip(1).any(names_column)) {
                return None;
            }
            // A clause with another value counts the rows with both.
            (!rows.iter().any(|row| row.fields.iter().any(is_named)))
                .then_some((value, *count, *number, *clause))
        })
        .collect();
    let correct = counted.iter().find(|(_, count, number, _)| *number == *count as f64)?;
    findings.examined = true;
    let is_wrong = |(value, count, number, _): &&(&String, usize, f64, &Clause<'_>)| {
        let is_counted_right =
            counted.iter().any(|(other, count, number, _)| other == value && *number == *count as f64);
        *value != correct.0 && !is_counted_right && *number != *count as f64 && *number <= rows.len() as f64
    };
    let (value, count, _, clause) = counted.iter().find(is_wrong)?;
    Some(((*value).clone(), *count, clause))
}

/// Whether a word is another one in the singular or plural.
fn is_form_of(word: &str, part: &str) -> bool {
    part.len() > MIN_VALUE && word.starts_with(part) && word.len() <= part.len() + 2
}
