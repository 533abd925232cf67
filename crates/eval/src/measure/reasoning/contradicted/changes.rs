//! Changes in percent of the wrong amount: "from 48,000 to 56,000, an increase of 14.3 %", which are 16.7 % of 48,000.
//!
//! Principle: a change in percent refers to the amount before the change: to the smaller of two amounts if it is an
//! increase, to the larger one if it is a decrease. A percentage refers to the wrong amount if it agrees with the
//! change in relation to the other amount, with no change of two amounts next to it, and no text has it. A percentage
//! before "of" is a share of something else, and any percentage next to a word for a share may be a share.
//!
//! In: the sentences of an answer. Out: a contradiction for the first percentage that refers to the wrong amount.

use super::exchange::{Exchange, ExchangeFindings};
use super::totals::is_in_date;
use crate::measure::defects::Defect;
use crate::measure::excerpt::{clip, clip_end};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::answer::sentences;
use crate::measure::vocabulary::{self, WordMeaning};

/// Most amounts of one statement that are compared with each other.
const MAX_AMOUNTS: usize = 8;
/// Most bytes from the word of a change to its percentage, and from the percentage to the word behind it.
const WITHIN: usize = 40;
const BEHIND: usize = 16;
/// Most words from an amount to a percentage next to it.
const NEXT: usize = 3;
const PERCENT: f64 = 100.0;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &*exchange.grouped();
    if !prose.contains('%') {
        return;
    }
    let mut before: Vec<Number> = Vec::new();
    for (start, end) in sentences(prose) {
        let Some(sentence) = prose.get(start..end) else { continue };
        let numbers = numbers::all(sentence);
        if !exchange.spends(1 + numbers.len() * MAX_AMOUNTS + sentence.len() / 8) {
            return;
        }
        let amounts = amounts(sentence, &numbers);
        if !sentence.trim_end().ends_with(['?', '？'])
            && !vocabulary::has(sentence, WordMeaning::Ratio)
            && let Some((stated, right)) = wrong(sentence, &numbers, &amounts, &before, findings)
        {
            // A result may state the percentage, of whatever it is.
            let is_seen = |text: &str| numbers::all(text).iter().any(|n| n.value == stated.value);
            if !exchange.spends_numbers() || exchange.sources.seen.iter().any(|text| is_seen(text)) {
                return;
            }
            let rationale = format!(
                "a change in percent of the amount before it was expected, {:.1} %; the answer gives {} %, which is one of the amount behind it",
                right, stated.value
            );
            let quote = exchange.answer.get(start..end).unwrap_or(sentence).trim();
            findings.entries.push((Defect::ContradictsResult.finding(rationale, quote), None));
            return;
        }
        before = amounts;
    }
}

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

/// A percentage that is one of the amount behind the change, and the right one.
fn wrong(
    sentence: &str,
    numbers: &[Number],
    amounts: &[Number],
    before: &[Number],
    findings: &mut ExchangeFindings,
) -> Option<(Number, f64)> {
    for stated in numbers.iter().filter(|n| !n.in_identifier && is_percent(sentence, n)) {
        let Some(rises) = direction(sentence, stated) else { continue };
        // "Sales were 40 and are 50 now. That is an increase of 25 %."
        let differs =
            |n: &&Number| !before.iter().any(|a| before.iter().any(|b| is_near(a.value - b.value, n)));
        let differing_count = amounts.iter().filter(differs).count();
        let all: Vec<Number> = match differing_count {
            0 if before.len() == 2 => before.iter().chain(amounts).copied().collect(),
            _ => amounts.to_vec(),
        };
        let pairs =
            all.iter().flat_map(|a| all.iter().map(move |b| (a, b))).filter(|(a, b)| a.value < b.value);
        // Of three amounts one is the difference of the others, or which of them changed is not known.
        let has_difference = |a: &Number, b: &Number| all.iter().any(|n| is_near(b.value - a.value, n));
        let mut found = None;
        for (a, b) in pairs {
            let difference = b.value - a.value;
            let (right, other) = if rises {
                (difference / a.value, difference / b.value)
            } else {
                (difference / b.value, difference / a.value)
            };
            let (right, other) = (right * PERCENT, other * PERCENT);
            findings.examined = true;
            let slack = stated.tolerance * 1.01 + 0.002 * stated.value;
            if (right - stated.value).abs() <= 2.0 * slack {
                return None;
            }
            if (other - stated.value).abs() <= slack && (all.len() == 2 || has_difference(a, b)) {
                found = Some((*stated, right));
            }
        }
        if found.is_some() {
            return found;
        }
    }
    None
}

fn is_near(value: f64, n: &Number) -> bool {
    (value - n.value).abs() <= n.tolerance * 1.01 && value > 0.0
}

/// Whether a percentage is an increase or a decrease, if words or a sign next to it state one of them.
fn direction(sentence: &str, stated: &Number) -> Option<bool> {
    let behind = sentence.get(stated.end..)?;
    let behind = behind.split_once('%').map_or("", |(_, behind)| behind);
    let next =
        behind.split_whitespace().next().unwrap_or_default().trim_matches(['*', '(', ')']).to_lowercase();
    // "13.8 % of the total": a share.
    if vocabulary::has(&next, WordMeaning::Of) {
        return None;
    }
    let before = clip_end(sentence.get(..stated.start)?, WITHIN);
    let signed = before.trim_end_matches(['*', '(', '~', ' ', '≈']);
    match signed.chars().next_back() {
        Some('+') => return Some(true),
        Some('−') => return Some(false),
        _ => {}
    }
    let part = |text: &str| -> Vec<WordMeaning> {
        vocabulary::find(text, &[WordMeaning::Rise, WordMeaning::Fall]).into_iter().map(|(m, _)| m).collect()
    };
    let end = behind.find([',', ';', '.', '\n', '，', '。']).unwrap_or(behind.len());
    let mut meanings = part(before);
    // "20 % more" belongs to the amounts only if it is next to them.
    let last = before.rfind(|c: char| c.is_ascii_digit()).and_then(|at| before.get(at + 1..));
    let is_next = last.is_some_and(|between| between.split_whitespace().count() <= NEXT);
    if !meanings.is_empty() || is_next {
        meanings.extend(part(clip(behind.get(..end).unwrap_or_default(), BEHIND)));
    }
    let first = *meanings.first()?;
    meanings.iter().all(|meaning| *meaning == first).then_some(first == WordMeaning::Rise)
}
