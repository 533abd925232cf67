//! Numbers that were not requested: 16 pieces of one thing, after "24 of this and 6 of that"; 204 for 240; 0.6 for
//! 80 %.
//!
//! Principle: an action passes the numbers of the request. A number that no text has, and that is no sum, difference or
//! product of known numbers, takes the place of a number of the request that no call has, if it has the same digits in
//! another order or one other digit, if it is a fraction and the request has a share, or if both are quantities of
//! things. Quantities are compared if the answer has the requested one, or the request has no other number. An answer
//! with the passed number reports a change.
//!
//! In: the numbers of the last message of the user, of the calls and of the answer. Out: the first call with such a
//! number.

use super::{
    AmountCheck, INDEFINITE_QUANTITY, MAX_NUMBERS, MAX_QUANTITY, Mismatch, counted_things, is_near,
    may_be_converted,
};
use crate::measure::language::{Language, WordClass, classes};
use crate::measure::numbers::{self, Number};
use crate::measure::provenance::KnownTexts;
use crate::measure::reasoning::dates_and_times::numbers_outside_moments;
use crate::recognise::Call;

/// Minimum digits of a number that may be misread, and of one with another digit.
const MIN_DIGITS: usize = 2;
const MIN_LONG_DIGITS: usize = 3;
/// Maximum known numbers of which two may give the passed one.
const MAX_OPERANDS: usize = 64;
const PERCENT: f64 = 100.0;

/// A number of the request that no call has.
struct Unpassed {
    value: f64,
    is_share: bool,
    is_quantity: bool,
}

impl<'a> AmountCheck<'a> {
    /// An action with a number that no text has, in place of a number of the user that no call has.
    pub(super) fn unasked_quantity(&self) -> Option<Mismatch<'a>> {
        let unpassed = self.unpassed_numbers()?;
        let answer_numbers: Vec<f64> =
            numbers::all(self.answer).iter().flat_map(Number::possible_values).collect();
        let has = |all: &[f64], value: f64| all.iter().any(|other| is_near(*other, value));
        let quantities = || unpassed.iter().filter(|n| n.is_quantity);
        let is_only = unpassed.len() == 1;
        let replaced = |key: &[String], number: f64| {
            let is_quantity_key = matches!(key, [word] if matches!(word.as_str(), "qty" | "quantity"));
            let mut repeated = quantities().filter(|n| is_only || has(&answer_numbers, n.value));
            let quantity = match (repeated.next(), repeated.next()) {
                (Some(only), None)
                    if is_quantity_key && number <= MAX_QUANTITY && !may_be_converted(number, only.value) =>
                {
                    Some(only)
                }
                _ => None,
            };
            let is_fraction = number < 1.0 && unpassed.iter().filter(|n| n.is_share).count() == 1;
            let mut like =
                unpassed.iter().filter(|n| is_misread(n.value, number) || is_fraction && n.is_share);
            quantity.or_else(|| like.next())
        };
        self.actions.iter().find_map(|call| {
            self.passed(call).find_map(|(key, number)| {
                let expected = replaced(&key, number)?;
                let is_told =
                    has(&answer_numbers, number) || number < 1.0 && has(&answer_numbers, number * PERCENT);
                (!is_told && !self.has_source(call, number, expected))
                    .then(|| (*call, expected.value.to_string(), format!("{}: {number}", key.join("_"))))
            })
        })
    }

    /// The numbers of the last message of the user that no call has; `None` without one, or if the message changes or
    /// divides quantities.
    fn unpassed_numbers(&self) -> Option<Vec<Unpassed>> {
        let text = self.user_texts.last()?;
        let requested = numbers_outside_moments(text);
        if requested.is_empty() || !self.actions.iter().any(|call| self.passed(call).next().is_some()) {
            return None;
        }
        let calls = self.agent.calls.iter().take(super::MAX_CALLS).filter_map(|i| self.trace.calls.get(*i));
        let mut passed: Vec<f64> = self.actions.iter().flat_map(|call| self.numbers_of(call)).collect();
        for arguments in calls.filter_map(|call| call.arguments.as_deref()) {
            self.memo.budget.spend(1 + arguments.len() / 4).then_some(())?;
            numbers::scan(arguments, |n| passed.extend(n.possible_values()));
        }
        let is_passed = |value: f64| {
            [value, value / PERCENT, 1.0 - value / PERCENT, 1.0 + value / PERCENT]
                .iter()
                .any(|form| passed.iter().any(|other| is_near(*other, *form)))
        };
        let language = Language::detected(text, None, self.memo)?;
        let things: Vec<f64> = counted_things(text, self.memo)
            .filter(|(_, noun)| !language.classes(noun).has_any(classes!(Month TimeUnit Weekday)))
            .map(|(number, _)| number)
            .collect();
        let is_share = |n: &Number| {
            let after = text.get(n.end..).unwrap_or_default().trim_start();
            let word = after.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
            after.starts_with('%') || language.table().name(&word.to_lowercase()).0.has(WordClass::Share)
        };
        let unpassed = requested.iter().filter(|n| !n.possible_values().any(is_passed)).map(|n| Unpassed {
            value: n.value,
            is_share: is_share(n),
            is_quantity: things.contains(&n.value),
        });
        let unpassed: Vec<Unpassed> = unpassed.take(MAX_NUMBERS).collect();
        let is_definite = || !language.places(text, self.memo).all().has_any(INDEFINITE_QUANTITY);
        (!unpassed.is_empty() && is_definite()).then_some(unpassed)
    }

    /// Whether a text before a call has the number outside of dates, or two numbers of these texts give it. Also
    /// whether it is the expected number, rounded to a multiple of one of them. True beyond the work budget.
    fn has_source(&self, call: &Call, number: f64, expected: &Unpassed) -> bool {
        let known = KnownTexts::cached(self.trace, self.memo);
        let Some(texts) = known.before(self.trace, call) else { return true };
        let bytes: usize = texts.iter().map(|known| known.text.len()).sum();
        if !self.memo.budget.spend(1 + bytes / 4) {
            return true;
        }
        let texts = texts.iter().map(|known| &*known.text);
        let mut values: Vec<f64> = texts.flat_map(numbers_outside_moments).map(|n| n.value).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        if values.iter().any(|v| is_near(*v, number) || number < 1.0 && is_near(*v, number * PERCENT)) {
            return true;
        }
        let is_multiple = |pack: f64| {
            pack > 1.0
                && (number - expected.value).abs() < pack
                && is_near((number / pack).round() * pack, number)
        };
        let is_given = |a: f64, b: f64| [a + b, a - b, a * b].iter().any(|v| is_near(*v, number));
        values.len() > MAX_OPERANDS
            || values.iter().any(|a| is_multiple(*a) || values.iter().any(|b| is_given(*a, *b)))
    }
}

/// Whether a whole number is another one with the digits in another order, or with one other digit.
fn is_misread(expected: f64, number: f64) -> bool {
    if expected.fract() != 0.0 || number.fract() != 0.0 || is_near(expected, number) {
        return false;
    }
    let (a, b) = (expected.to_string().into_bytes(), number.to_string().into_bytes());
    let differing = a.iter().zip(&b).filter(|(a, b)| a != b).count();
    let sorted = |digits: &[u8]| {
        let mut digits = digits.to_vec();
        digits.sort_unstable();
        digits
    };
    a.len() == b.len()
        && a.len() >= MIN_DIGITS
        && (sorted(&a) == sorted(&b) || a.len() >= MIN_LONG_DIGITS && differing == 1)
}
