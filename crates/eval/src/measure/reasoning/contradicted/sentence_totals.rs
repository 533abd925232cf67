//! Wrong totals in sentences: "flights are 412.50 and the hotel 380.00, together 782.50".
//!
//! Principle: the amounts of a sentence add up to the total that it states for them. The parts are the amounts before
//! the word for a total, or the amounts after a colon if they are all values of one field of the results. (`totals`
//! compares lines.)
//!
//! In: the sentences of an answer, and all texts. Out: one contradiction.

use std::ops::Range;

use super::exchange::{Exchange, ExchangeFindings};
use super::totals::{
    CENT, MAX_COLUMNS, MAX_PARTS, MAX_TO_TOTAL, adds_up, is_in_date, is_money, is_multiple, sorted,
    wrong_total,
};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::answer::sentences;
use crate::measure::records::RecordField;
use crate::measure::vocabulary::{self, WordMeaning};

/// Adds a finding for a wrong total in a sentence: "flights are 412.50 and the hotel 380.00, together 792.50". Only
/// amounts with decimals are compared, since other numbers may count the parts.
pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    check_total_before_parts(exchange, findings);
    if findings.entries.is_empty() {
        check_total_after_parts(exchange, findings);
    }
}

/// Adds a finding for a wrong total after its parts in a sentence.
fn check_total_after_parts(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &*exchange.grouped();
    let words = |text: &str| -> Vec<Range<usize>> {
        vocabulary::find(text, &[WordMeaning::Total]).into_iter().map(|(_, at)| at).collect()
    };
    if !exchange.spends(1 + prose.len() / 32) || words(prose).is_empty() {
        return;
    }
    for (start, end) in sentences(prose) {
        let sentence = prose.get(start..end).unwrap_or_default();
        let words = words(sentence);
        if words.is_empty() {
            continue;
        }
        let mut numbers = numbers::all(sentence);
        numbers.retain(|n| !n.in_identifier && !is_in_date(sentence, n));
        for word in words {
            if !exchange.spends(1 + numbers.len()) {
                return;
            }
            let end = word.end;
            let Some((parts, total)) = parts_and_total(sentence, &numbers, word) else { continue };
            // In other languages, words before the number may mean a total with another amount.
            let between = sentence.get(end..total.start).unwrap_or_default();
            let is_plain =
                || parts.len() > 2 && vocabulary::has_only(between, &[WordMeaning::Of, WordMeaning::Copula]);
            if !exchange.is_english() && !is_plain() {
                continue;
            }
            findings.examined = true;
            if !adds_up(exchange, parts, total) {
                findings.entries.push((wrong_total(parts, total, sentence), None));
                return;
            }
        }
    }
}

/// Adds a finding for a wrong total before a colon and its parts: "the budget is 1,893.30: hall 1,240.00, cake 385.50,
/// flowers 97.80". The parts must be all values of one field of the results.
fn check_total_before_parts(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &*exchange.grouped();
    if !prose.contains(": ") || !exchange.spends(1 + prose.len() / 32) {
        return;
    }
    for (start, end) in sentences(prose) {
        let Some((before, list)) = prose.get(start..end).and_then(|sentence| sentence.split_once(": "))
        else {
            continue;
        };
        let amounts = |text: &str| -> Option<Vec<Number>> {
            let numbers: Vec<Number> = numbers::all(text).into_iter().filter(|n| !n.in_identifier).collect();
            numbers.iter().all(|n| is_money(text, n) && !is_in_date(text, n)).then_some(numbers)
        };
        let (Some(total), Some(parts)) = (amounts(before), amounts(list)) else { continue };
        let [total] = total.as_slice() else { continue };
        let is_near = before.get(total.end..).is_some_and(|text| text.len() <= MAX_TO_TOTAL);
        let has_larger_part = parts.iter().any(|part| part.value >= total.value);
        let are_parts =
            (3..=MAX_PARTS).contains(&parts.len()) && !has_larger_part && !is_multiple(&parts, total);
        if is_near && are_parts && are_of_one_field(exchange, &parts) {
            findings.examined = true;
            if !adds_up(exchange, &parts, total) {
                findings
                    .entries
                    .push((wrong_total(&parts, total, prose.get(start..end).unwrap_or_default()), None));
                return;
            }
        }
    }
}

/// Whether the parts are all values of one field of the results.
fn are_of_one_field(exchange: &Exchange<'_>, parts: &[Number]) -> bool {
    if !exchange.spends(exchange.sources.field_count() * 2) {
        return false;
    }
    let fields = || exchange.sources.records().flat_map(|(.., record)| &record.fields);
    let first_fields = fields().filter(|f| parts.first().is_some_and(|part| f.number() == Some(part.value)));
    first_fields.take(MAX_COLUMNS).any(|column| {
        let values: Vec<f64> = fields()
            .filter(|f| f.name == column.name)
            .filter_map(RecordField::number)
            .take(MAX_PARTS + 1)
            .collect();
        sorted(values) == sorted(parts.iter().map(|part| part.value).collect())
    })
}

/// The amounts before a word for a total, and the amount after it, if that may be their sum. `numbers` has no parts of
/// dates and identifiers.
fn parts_and_total<'n>(
    sentence: &str,
    numbers: &'n [Number],
    word: Range<usize>,
) -> Option<(&'n [Number], &'n Number)> {
    let is_amount = |n: &Number| n.fractional;
    let at = numbers.iter().position(|n| n.start >= word.end)?;
    let (parts, later) = numbers.split_at(at);
    let total = later.first().filter(|total| is_amount(total) && parts.len() > 1)?;
    let is_near = sentence.get(word.end..total.start).is_some_and(|text| text.len() <= MAX_TO_TOTAL);
    // Percentages, numbers with different units, and subtotals among the parts are not compared.
    let unit = |n: &Number| unit_after(sentence, n);
    let is_other =
        |part: &Number| !unit(part).is_empty() && !unit(total).is_empty() && unit(part) != unit(total);
    let is_mixed = parts.iter().chain([total]).any(|n| unit(n) == "%") || parts.iter().any(is_other);
    let mut sum = 0.0;
    let is_subtotal = parts.iter().enumerate().any(|(nth, part)| {
        let before = sum;
        sum += part.value;
        nth > 1 && (part.value - before).abs() < CENT
    });
    // A total that is smaller than one of the numbers is not their sum.
    let is_smaller = parts.iter().any(|part| part.value > total.value);
    let is_mixed = is_mixed || is_smaller;
    let is_sum =
        is_near && !is_mixed && !is_subtotal && parts.iter().all(is_amount) && !is_multiple(parts, total);
    is_sum.then_some((parts, total))
}

/// The unit directly after a number; empty if there is none.
fn unit_after<'s>(sentence: &'s str, n: &Number) -> &'s str {
    let after = sentence.get(n.end..).unwrap_or_default().trim_start();
    let end = after
        .find(|c: char| c.is_whitespace() || matches!(c, ',' | '.' | ';' | ')' | ':'))
        .unwrap_or(after.len());
    let unit = after.get(..end).unwrap_or_default();
    // A dash or an emphasis mark is not a unit.
    let is_sign = !unit.contains(|c: char| c.is_alphanumeric() || "€$£¥%°".contains(c));
    let is_no_unit =
        is_sign || unit.len() > 3 || matches!(unit, "and" | "the" | "for" | "in" | "on" | "is" | "to");
    if is_no_unit { "" } else { unit }
}
