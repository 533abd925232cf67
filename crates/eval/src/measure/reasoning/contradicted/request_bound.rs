//! Amounts above the bound of the request: "a hotel under 100 EUR", and a hotel at 129 EUR.
//!
//! Principle: an answer recommends rows of a list within the bound of the request, or states that they are not. The
//! only row that the answer names, with its amount, is a contradiction if it exceeds the bound and another row does
//! not. A bound on people, or on another field of the rows, is not compared.
//!
//! In: the request, the clauses of an answer, and the lists of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::extremes::PRICE;
use super::sources::names_of;
use crate::measure::language::{Language, WordClasses, classes};
use crate::measure::reasoning::statements::{contains_words, words_of};
use crate::measure::records::{Record, RecordField};
use crate::measure::{currency, numbers};

// An upper bound with a currency.
regex!(
    BOUND,
    r"(?i)\b(?:under|below|less than|at most|up to|no more than|not more than|cheaper than|maximum of|max\.?) +(?P<n>[€$£]? ?\d[\d.,]*\d? ?(?:[€$£]|[a-z]+))"
);
/// Classes of words by which an answer may state that the bound is exceeded, or mention another bound.
const ADMISSION: WordClasses =
    classes!(Condition Contrast Exception Already Bound Increment Negation Neighbour Restriction);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let mut bounds = BOUND.captures_iter(exchange.task).filter_map(|captures| {
        let text = captures.name("n")?.as_str();
        let before = exchange.task.get(..captures.get(0)?.start())?;
        Some((numbers::all(text).first()?.value, currency_of(text)?, words_of(before)))
    });
    let (Some((bound, currency, before)), None) = (bounds.next(), bounds.next()) else { return };
    // The bound may be on people: "customers who spend less than 60 euros".
    if contains_words(&before, "who") || contains_words(&before, "whose") {
        return;
    }
    if Language::English.places(&exchange.prose, exchange.memo).all().has_any(ADMISSION) {
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
        // The bound may be on another field: "a commute under 30 EUR".
        let bounded_key = before.split_whitespace().next_back().unwrap_or_default();
        let is_bounded = |field: &RecordField| field.name.iter().any(|word| word == bounded_key);
        if rows.iter().any(|(row, amount)| !is_bounded(amount) && row.fields.iter().any(is_bounded)) {
            continue;
        }
        let is_within = |field: &RecordField| field.number().is_some_and(|number| number <= bound);
        let is_named = |row: &Record| {
            let mut names = names_of(row);
            names.any(|name| {
                name.contains(char::is_alphabetic) && exchange.clauses.iter().any(|c| c.has(&name))
            })
        };
        // A row that the request names is not compared, since the answer did not choose it.
        let is_in_request =
            |row: &Record| names_of(row).any(|name| contains_words(exchange.task_words(), &name));
        let named_rows: Vec<&(&Record, &RecordField)> =
            rows.iter().filter(|(row, _)| is_named(row) && !is_in_request(row)).collect();
        let [(_, field)] = named_rows.as_slice() else { continue };
        findings.examined = true;
        let value = field.number().unwrap_or_default();
        let stating_clause = exchange.clauses.iter().find(|clause| {
            let stated = numbers::all(&clause.words);
            let is_amount = stated.iter().any(|n| n.value == value && !n.in_identifier);
            // With a discount or a share, the amount may be within the bound.
            let has_smaller = stated.iter().any(|n| n.value <= bound && !n.in_identifier);
            let is_without_reduction = !has_smaller || stated.len() == 1;
            is_amount && is_without_reduction && currency_of(&clause.words) == Some(currency) && !clause.modal
        });
        let has_row_within = rows.iter().any(|(_, other)| is_within(other));
        if let Some(clause) = stating_clause.filter(|_| !is_within(field) && has_row_within) {
            let returned = format!(
                "{} {value} for it, above the bound of the request, and others that keep it",
                field.name.join(" ")
            );
            findings.contradicts(&returned, source.call, clause.sentence);
            return;
        }
    }
}

/// The only amount of a row; `None` if there are several.
fn amount(record: &Record) -> Option<&RecordField> {
    let is_amount = |field: &&RecordField| {
        field.number().is_some() && field.name.iter().any(|word| PRICE.contains(&word.as_str()))
    };
    let mut amounts = record.fields.iter().filter(is_amount);
    amounts.next().filter(|_| amounts.next().is_none())
}

/// The code of the first currency that a text names.
fn currency_of(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphabetic() && !"€$£".contains(c));
    words
        .find_map(currency::code_for_word)
        .or_else(|| lower.chars().find_map(|c| currency::code_for_word(&c.to_string())))
}
