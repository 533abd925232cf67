//! Changes in percent relative to the wrong amount: "from 48,000 to 56,000, an increase of 14.3 %", which is 16.7 %.
//!
//! Principle: a change in percent is relative to the amount before the change: the smaller of two amounts for an
//! increase, the larger one for a decrease. A percentage is wrong if it equals the change relative to the other
//! amount, does not equal a change relative to the amount before, and no text has it. A percentage before "of" or in a
//! sentence with a word for a ratio is not compared, since it may be a share.
//!
//! In: the sentences of an answer. Out: a contradiction for the first wrong percentage.

use super::exchange::{Exchange, ExchangeFindings};
use super::totals::is_in_date;
use crate::measure::defects::Defect;
use crate::measure::excerpt::{clip, clip_end};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::answer::sentences;
use crate::measure::vocabulary::{self, WordMeaning};

/// Maximum amounts of one statement that are compared with each other.
const MAX_AMOUNTS: usize = 8;
/// Maximum bytes before a percentage that are searched for a word for a change.
const MAX_BEFORE: usize = 40;
/// Maximum bytes after a percentage that are searched for a word for a change.
const MAX_AFTER: usize = 16;
/// Maximum words between an amount and a percentage next to it.
const MAX_GAP_WORDS: usize = 3;
const PERCENT: f64 = 100.0;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &*exchange.grouped();
    if !prose.contains('%') {
        return;
    }
    let mut previous_amounts: Vec<Number> = Vec::new();
    for (start, end) in sentences(prose) {
        let Some(sentence) = prose.get(start..end) else { continue };
        let numbers = numbers::all(sentence);
        if !exchange.spends(1 + numbers.len() * MAX_AMOUNTS + sentence.len() / 8) {
            return;
        }
        let amounts = amounts(sentence, &numbers);
        if !sentence.trim_end().ends_with(['?', '？'])
            && !vocabulary::has(sentence, WordMeaning::Ratio)
            && let Some((stated, expected)) =
                wrong_percentage(sentence, &numbers, &amounts, &previous_amounts, findings)
        {
            // A text may state the percentage for another change.
            let is_seen = |text: &str| numbers::all(text).iter().any(|n| n.value == stated.value);
            if !exchange.spends_numbers() || exchange.sources.seen.iter().any(|text| is_seen(text)) {
                return;
            }
            let rationale = format!(
                "a change in percent of the amount before it was expected, {:.1} %; the answer gives {} %, which is one of the amount behind it",
                expected, stated.value
            );
            let quote = exchange.answer.get(start..end).unwrap_or(sentence).trim();
            findings.entries.push((Defect::ContradictsResult.finding(rationale, quote), None));
            return;
        }
        previous_amounts = amounts;
    }
}

/// Whether a percent sign follows a number.
fn is_percent(sentence: &str, n: &Number) -> bool {
    sentence
        .get(n.end..)
        .is_some_and(|after| after.trim_start_matches([' ', '\u{a0}', '\u{202f}']).starts_with('%'))
}

/// The numbers of a sentence that may be amounts before and after a change.
fn amounts(sentence: &str, numbers: &[Number]) -> Vec<Number> {
    let is_year = |n: &Number| n.end - n.start == 4 && !n.fractional && (1900.0..2100.0).contains(&n.value);
    let is_amount =
        |n: &Number| !n.in_identifier && !is_percent(sentence, n) && !is_in_date(sentence, n) && !is_year(n);
    let mut out: Vec<Number> = Vec::new();
    for n in numbers.iter().filter(|n| is_amount(n) && n.value > 0.0) {
        if !out.iter().any(|earlier| earlier.value == n.value) && out.len() < MAX_AMOUNTS {
            out.push(*n);
        }
    }
    out
}

/// A percentage that is relative to the amount after the change, with the correct percentage.
fn wrong_percentage(
    sentence: &str,
    numbers: &[Number],
    amounts: &[Number],
    previous_amounts: &[Number],
    findings: &mut ExchangeFindings,
) -> Option<(Number, f64)> {
    for stated in numbers.iter().filter(|n| !n.in_identifier && is_percent(sentence, n)) {
        let Some(is_rise) = is_increase(sentence, stated) else { continue };
        // The amounts may be in the sentence before: "Sales were 40 and are 50 now. That is an increase of 25 %."
        let is_no_known_difference = |n: &&Number| {
            !previous_amounts.iter().any(|a| previous_amounts.iter().any(|b| is_near(a.value - b.value, n)))
        };
        let differing_count = amounts.iter().filter(is_no_known_difference).count();
        let compared_amounts: Vec<Number> = match differing_count {
            0 if previous_amounts.len() == 2 => previous_amounts.iter().chain(amounts).copied().collect(),
            _ => amounts.to_vec(),
        };
        let pairs = compared_amounts
            .iter()
            .flat_map(|a| compared_amounts.iter().map(move |b| (a, b)))
            .filter(|(a, b)| a.value < b.value);
        // Among more than two amounts, one must be the difference of a pair; else it is not known which pair changed.
        let has_difference =
            |a: &Number, b: &Number| compared_amounts.iter().any(|n| is_near(b.value - a.value, n));
        let mut mismatch = None;
        for (a, b) in pairs {
            let difference = b.value - a.value;
            let (expected, other) = if is_rise {
                (difference / a.value, difference / b.value)
            } else {
                (difference / b.value, difference / a.value)
            };
            let (expected, other) = (expected * PERCENT, other * PERCENT);
            findings.examined = true;
            let slack = stated.tolerance * 1.01 + 0.002 * stated.value;
            if (expected - stated.value).abs() <= 2.0 * slack {
                return None;
            }
            if (other - stated.value).abs() <= slack && (compared_amounts.len() == 2 || has_difference(a, b))
            {
                mismatch = Some((*stated, expected));
            }
        }
        if mismatch.is_some() {
            return mismatch;
        }
    }
    None
}

/// Whether a positive value equals a number up to the rounding of its digits.
fn is_near(value: f64, n: &Number) -> bool {
    (value - n.value).abs() <= n.tolerance * 1.01 && value > 0.0
}

/// Whether a percentage is a share of something: "13.8 % of the total".
pub(super) fn is_share(sentence: &str, stated: &Number) -> bool {
    let after = sentence.get(stated.end..).unwrap_or_default();
    let after = after.split_once('%').map_or("", |(_, after)| after);
    let next_word = after.split_whitespace().next().unwrap_or_default();
    vocabulary::has(&next_word.trim_matches(['*', '(', ')']).to_lowercase(), WordMeaning::Of)
}

/// Whether a percentage is an increase (`true`) or a decrease, by words or a sign next to it; `None` if neither is
/// stated.
fn is_increase(sentence: &str, stated: &Number) -> Option<bool> {
    if is_share(sentence, stated) {
        return None;
    }
    let after = sentence.get(stated.end..)?;
    let after = after.split_once('%').map_or("", |(_, after)| after);
    let before = clip_end(sentence.get(..stated.start)?, MAX_BEFORE);
    let before_mark = before.trim_end_matches(['*', '(', '~', ' ', '≈']);
    match before_mark.chars().next_back() {
        Some('+') => return Some(true),
        Some('−') => return Some(false),
        _ => {}
    }
    let meanings_of = |text: &str| -> Vec<WordMeaning> {
        vocabulary::find(text, &[WordMeaning::Rise, WordMeaning::Fall]).into_iter().map(|(m, _)| m).collect()
    };
    let end = after.find([',', ';', '.', '\n', '，', '。']).unwrap_or(after.len());
    let mut meanings = meanings_of(before);
    // "20 % more" belongs to the amounts only if it is next to one.
    let after_last_number = before.rfind(|c: char| c.is_ascii_digit()).and_then(|at| before.get(at + 1..));
    let is_next =
        after_last_number.is_some_and(|between| between.split_whitespace().count() <= MAX_GAP_WORDS);
    if !meanings.is_empty() || is_next {
        meanings.extend(meanings_of(clip(after.get(..end).unwrap_or_default(), MAX_AFTER)));
    }
    let first = *meanings.first()?;
    meanings.iter().all(|meaning| *meaning == first).then_some(first == WordMeaning::Rise)
}
