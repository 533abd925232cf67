//! Numbers of an answer that are not compared themselves, and from which other numbers of the answer may follow.
//!
//! In: the sentences of an answer. Out: small amounts; and the numbers of conditions, questions and offers, by which
//! further facts are excluded from the comparison.

use super::{COMMON_NUMBERS, FactChecker, MAX_FACTS, MAX_UNCHECKED_NUMBER, NumberFact};
use crate::measure::currency;
use crate::measure::language::WordClass;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::evidence::Support;
use crate::measure::reasoning::statements::asserts_nothing;

/// Numbers that may be years.
const YEARS: std::ops::Range<f64> = 1900.0..2100.0;

impl FactChecker<'_, '_> {
    /// The unchecked numbers up to [`MAX_UNCHECKED_NUMBER`] from which other numbers of the answer may follow: amounts
    /// of money ("42 € and 11 €, 53 € together"), and numbers with the same unit as another one ("13.5 days less 10
    /// days").
    pub(super) fn small_amounts(&mut self) -> Vec<f64> {
        let mut all: Vec<(Number, &str)> = Vec::new();
        numbers::scan(self.prose, |n| {
            let after = self.prose.get(n.end..).unwrap_or_default().trim_start();
            let word = after
                .find(|c: char| !c.is_alphabetic())
                .map_or(after, |end| after.get(..end).unwrap_or_default());
            if !n.in_identifier && all.len() < MAX_FACTS {
                all.push((n, word));
            }
        });
        let is_shared =
            |word: &str| word.len() > 2 && all.iter().filter(|(_, other)| *other == word).count() > 1;
        let small_numbers = all
            .iter()
            .filter(|(n, _)| n.value.fract() == 0.0 && n.value <= MAX_UNCHECKED_NUMBER && !n.fractional);
        let amounts = small_numbers
            .filter(|(n, word)| currency::is_beside(self.prose, n.start..n.end) || is_shared(word));
        let amounts: Vec<f64> = amounts.map(|(n, _)| n.value).collect();
        amounts.into_iter().filter(|value| self.evidence.has_number(*value)).collect()
    }

    /// The unchecked common numbers that follow from the evidence, from which other numbers of the answer may follow:
    /// "90 m³, which is 1,008 kWh".
    pub(super) fn derived_common_numbers(&mut self) -> Vec<f64> {
        let mut common: Vec<Number> = Vec::new();
        numbers::scan(self.prose, |n| {
            if !n.in_identifier && COMMON_NUMBERS.contains(&n.value) && common.len() < COMMON_NUMBERS.len() {
                common.push(n);
            }
        });
        common.retain(|n| self.evidence.supports(n, false, &[]) == Support::Derived);
        common.iter().map(|n| n.value).collect()
    }

    /// Finds support for numbers that are a known one divided or multiplied by a number in words of the sentence: "the
    /// deposit of 13,500 is three months' rent, so the rent is 4,500".
    pub(super) fn find_support_in_words(&mut self, facts: &mut [NumberFact]) {
        for fact in facts.iter_mut().filter(|fact| fact.support == Support::None) {
            let range = self.sentences.get(fact.sentence);
            let Some(sentence) = range.and_then(|&(start, end)| self.prose.get(start..end)) else {
                continue;
            };
            let places = self.language.places(sentence, self.memo);
            let numbers =
                places.iter().filter(|place| place.classes.has(WordClass::Number) && place.value > 1);
            let mut factors = numbers.map(|place| f64::from(place.value));
            if factors.any(|factor| self.evidence.gives_with_factor(&fact.number, factor)) {
                fact.support = Support::Derived;
            }
        }
    }

    /// Finds support for years of days that the model passed to calls, which select the results.
    pub(super) fn find_support_in_passed_days(&mut self, facts: &mut [NumberFact]) {
        for fact in facts.iter_mut().filter(|fact| fact.support == Support::None) {
            let year = fact.number.value;
            let day_number = |month, day| dates::day_number(year as i64, month, day);
            let is_in_year = |day: i64| (day_number(1, 1)..=day_number(12, 31)).contains(&day);
            if YEARS.contains(&year) && year.fract() == 0.0 && self.evidence.was_day_passed(is_in_year) {
                fact.support = Support::Derived;
            }
        }
    }

    /// Excludes numbers that follow from the numbers of conditions, questions and offers: "if the rate fell to 0.75, it
    /// would be 4,342.50. The share would then be 37 %."
    pub(super) fn except_hypothetical(&mut self, facts: &mut [NumberFact]) {
        if facts.iter().all(|fact| fact.support != Support::None) {
            return;
        }
        let mut operands: Vec<f64> = Vec::new();
        for sentence in self.sentences.iter().filter_map(|&(start, end)| self.prose.get(start..end)) {
            if operands.len() < MAX_FACTS && asserts_nothing(sentence, self.language) {
                numbers::scan(sentence, |number| operands.push(number.value));
            }
        }
        if operands.is_empty() {
            return;
        }
        let supported = facts.iter().filter(|fact| fact.support != Support::None);
        operands.extend(supported.map(|fact| fact.number.value));
        for fact in facts.iter_mut().filter(|fact| fact.support == Support::None) {
            if self.evidence.supports(&fact.number, fact.hedged, &operands) != Support::None {
                fact.support = Support::Unknown;
            }
        }
    }
}
