//! Amounts above the bound of the request: "a hotel under 100 EUR", and a hotel at 129 EUR.
//!
//! Principle: an answer recommends rows of a list that keep the bound, or says that they do not. A
//! row that the answer names with its amount breaks it if other rows keep it and the answer names none of them. A bound
//! on people, or on another field of the rows, is none on their amount.

use super::exchange::{Exchange, ExchangeFindings};
use super::sources::names_of;
use crate::measure::language::{Language, WordClasses, classes};
use crate::measure::reasoning::statements::{contains_words, words_of};
use crate::measure::records::{Record, RecordField};
use crate::measure::{currency, numbers};

/// Fields that are an amount for one thing.
const AMOUNTS: [&str; 6] = ["price", "cost", "fare", "rate", "fee", "rent"];

regex!(
    BOUND,
    r"(?i)\b(?:under|below|less than|at most|up to|no more than|not more than|cheaper than|maximum of|max\.?) +(?P<n>[€$£]? ?\d[\d.,]*\d? ?(?:[€$£]|[a-z]+))"
);
/// Words by which an answer says that the bound is not kept, or is another one.
const ADMITS: WordClasses =
    classes!(Condition Contrast Exception Already Bound Increment Negation Neighbour Restriction);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let mut bounds = BOUND.captures_iter(exchange.task).filter_map(|found| {
        let text = found.name("n")?.as_str();
        let before = exchange.task.get(..found.get(0)?.start())?;
        Some((numbers::all(text).first()?.value, currency_of(text)?, words_of(before)))
    });
    let (Some((bound, currency, before)), None) = (bounds.next(), bounds.next()) else { return };
    // "Customers who spend less than 60 euros": the bound is on people.
    if contains_words(&before, "who") || contains_words(&before, "whose") {
        return;
    }
    if Language::English.places(&exchange.prose, exchange.memo).all().has_any(ADMITS) {
        return;
    }
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        if !exchange.spends(parsed.records.len() * (1 + exchange.clauses.len())) {
            return;
        }
        let rows: Vec<(&Record, &RecordField)> = parsed
            .records
            .iter()
            .filter(|record| record.list.is_some())
            .filter_map(|record| Some((record, amount(record)?)))
            .collect();
        // "A commute under 30 EUR": the bound is on another field.
        let bounded = before.split_whitespace().next_back().unwrap_or_default();
        let is_bounded = |field: &RecordField| field.name.iter().any(|word| word == bounded);
        if rows.iter().any(|(row, amount)| !is_bounded(amount) && row.fields.iter().any(is_bounded)) {
            continue;
        }
        let keeps = |field: &RecordField| field.number().is_some_and(|number| number <= bound);
        let is_named = |row: &Record| {
            let mut names = names_of(row);
            names.any(|name| {
                name.contains(char::is_alphabetic) && exchange.clauses.iter().any(|c| c.has(&name))
            })
        };
        // A row that the request names was not chosen by the answer.
        let is_asked = |row: &Record| names_of(row).any(|name| contains_words(exchange.task_words(), &name));
        let named: Vec<&(&Record, &RecordField)> =
            rows.iter().filter(|(row, _)| is_named(row) && !is_asked(row)).collect();
        let [(_, field)] = named.as_slice() else { continue };
        findings.examined = true;
        let value = field.number().unwrap_or_default();
        let gives = exchange.clauses.iter().find(|clause| {
            let stated = numbers::all(&clause.words);
            let is_amount = stated.iter().any(|n| n.value == value && !n.in_identifier);
            // A discount or a share of it may keep the bound.
            let keeps = stated.iter().any(|n| n.value <= bound && !n.in_identifier);
            let is_only = !keeps || stated.len() == 1;
            is_amount && is_only && currency_of(&clause.words) == Some(currency) && !clause.modal
        });
        let others_keep = rows.iter().any(|(_, other)| keeps(other));
        if let Some(clause) = gives.filter(|_| !keeps(field) && others_keep) {
            let returned = format!(
                "{} {value} for it, above the bound of the request, and others that keep it",
                field.name.join(" ")
            );
            findings.contradicts(&returned, source.call, clause.sentence);
            return;
        }
    }
}

/// The only amount of a row for one thing.
fn amount(record: &Record) -> Option<&RecordField> {
    let is_amount = |field: &&RecordField| {
        field.number().is_some() && field.name.iter().any(|word| AMOUNTS.contains(&word.as_str()))
    };
    let mut found = record.fields.iter().filter(is_amount);
    found.next().filter(|_| found.next().is_none())
}

/// The currency that a text names, by its place among the known ones.
fn currency_of(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphabetic() && !"€$£".contains(c));
    words
        .find_map(currency::code_for_word)
        .or_else(|| lower.chars().find_map(|c| currency::code_for_word(&c.to_string())))
}
