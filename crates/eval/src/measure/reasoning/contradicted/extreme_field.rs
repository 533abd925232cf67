//! Another statistic instead of the highest or lowest value: "the highest load was 81.3 %", which is `p95`, where
//! `max` is 97.9.
//!
//! Principle: if a result has one object with a field for the highest (or lowest) value besides others, an answer to a
//! request for the extreme gives its value. It is a contradiction if a statement with a word for the extreme has the
//! value of another field of the object, and the answer nowhere has the expected one.
//!
//! In: the request, the statements of an answer, and the objects of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::numbers::{self, Number};
use crate::measure::records::RecordField;
use crate::measure::vocabulary::{self, WordMeaning};

/// Maximum objects that are compared.
const MAX_RECORDS: usize = 400;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    // An answer in an unknown language has no clauses, and its words for the value are not known.
    if exchange.clauses.is_empty() {
        return;
    }
    let mut extremes = Vec::new();
    for (meaning, _) in vocabulary::find(exchange.task, &[WordMeaning::Highest, WordMeaning::Lowest]) {
        if !extremes.contains(&meaning) {
            extremes.push(meaning);
            check_one(exchange, meaning, findings);
        }
    }
}

/// Adds a finding if the answer gives another field of the object for one extreme.
fn check_one(exchange: &Exchange<'_>, extreme: WordMeaning, findings: &mut ExchangeFindings) {
    if !exchange.spends(1 + exchange.sources.field_count()) {
        return;
    }
    let is_extreme =
        |field: &&RecordField| matches!(&**field.name, [key] if vocabulary::has_meaning(key, extreme));
    let records = exchange.sources.records().take(MAX_RECORDS);
    let mut matching = records.filter(|(.., record)| record.fields.iter().any(|field| is_extreme(&field)));
    let (Some((source, _, record)), None) = (matching.next(), matching.next()) else { return };
    let (call, fields) = (source.call, record.fields.as_slice());
    let Some((field, expected)) =
        fields.iter().find(is_extreme).and_then(|field| Some((field, field.number()?)))
    else {
        return;
    };
    let gives = |n: &Number, value: f64| {
        n.possible_values().any(|reading| (reading - value).abs() <= n.tolerance * 1.01)
    };
    if numbers::all(&exchange.prose).iter().any(|n| gives(n, expected)) {
        findings.examined = true;
        return;
    }
    let other_fields = || {
        fields
            .iter()
            .filter(|other| other.name != field.name)
            .filter_map(|other| Some((other, other.number()?)))
    };
    let stated =
        exchange.clauses.iter().filter(|clause| !clause.negated && vocabulary::has(&clause.words, extreme));
    for clause in stated.filter(|_| exchange.spends(fields.len())) {
        findings.examined = true;
        let numbers = numbers::all(clause.sentence);
        let other_field = other_fields().find(|(_, value)| {
            numbers.iter().any(|n| n.fractional == (value.fract() != 0.0) && gives(n, *value))
        });
        if let Some((other, _)) = other_field {
            let shown = |entry: &RecordField| format!("{}: {}", entry.name.join(" "), entry.shown());
            findings.contradicts(
                &format!("{}, and {}", shown(field), shown(other)),
                call,
                clause.sentence.trim(),
            );
            return;
        }
    }
}
