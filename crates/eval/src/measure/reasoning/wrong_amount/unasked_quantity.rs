//! Quantities that were not requested: 16 pieces of one thing, after "24 of this and 6 of that".
//!
//! Principle: an action passes the quantities of the request. In: the numbers of a request, of the calls and of the
//! answer. Out: the first call with a quantity that no text has, if the answer has exactly one number of the request
//! that is in no call.

use super::{
    AmountCheck, INDEFINITE_QUANTITY, MAX_QUANTITY, Mismatch, counted_things, is_near, may_be_converted,
};
use crate::measure::language::{Language, classes};
use crate::measure::numbers;
use crate::measure::provenance::KnownTexts;
use crate::recognise::Call;

impl<'a> AmountCheck<'a> {
    /// An action with a quantity that no text has, if the answer has a quantity of the user that no call has.
    pub(super) fn unasked_quantity(&self) -> Option<Mismatch<'a>> {
        let is_quantity = |key: &[String]| {
            key.len() == 1 && key.iter().any(|word| matches!(word.as_str(), "qty" | "quantity"))
        };
        let quantities = |call: &'a Call| self.passed(call).filter(move |(key, _)| is_quantity(key));
        if !self.actions.iter().any(|call| quantities(call).next().is_some()) {
            return None;
        }
        let [task] = self.user_texts.as_slice() else { return None };
        let language = Language::detected(task, None, self.memo)?;
        if language.places(task, self.memo).all().has_any(INDEFINITE_QUANTITY) {
            return None;
        }
        // "21 May" is a date and not a quantity.
        let names_thing = |noun: &str| !language.classes(noun).has_any(classes!(Month TimeUnit Weekday));
        let things = counted_things(task, self.memo).filter(|(_, noun)| names_thing(noun));
        let mut requested: Vec<f64> = things.map(|(number, _)| number).collect();
        requested.sort_by(f64::total_cmp);
        requested.dedup();
        let action_numbers: Vec<f64> = self.actions.iter().flat_map(|call| self.numbers_of(call)).collect();
        let answer_numbers: Vec<f64> = numbers::all(self.answer).iter().map(|n| n.value).collect();
        let has = |all: &[f64], value: f64| all.iter().any(|other| is_near(*other, value));
        let mut unpassed =
            requested.iter().filter(|value| !has(&action_numbers, **value) && has(&answer_numbers, **value));
        let (Some(expected), None) = (unpassed.next(), unpassed.next()) else { return None };
        // A quantity may be a product of two: 3 boxes of 5.
        let products: Vec<f64> =
            requested.iter().flat_map(|a| requested.iter().map(move |b| a * b)).collect();
        let is_other = |number: f64| {
            number <= MAX_QUANTITY
                && !may_be_converted(number, *expected)
                && ![&answer_numbers, &requested, &products].iter().any(|all| has(all, number))
        };
        let known = KnownTexts::cached(self.trace, self.memo);
        self.actions.iter().find_map(|call| {
            let has_source = |number: f64| known.has_number(self.trace, self.memo, call, number);
            let (key, number) = quantities(call).find(|(_, n)| is_other(*n) && !has_source(*n))?;
            Some((*call, expected.to_string(), format!("{}: {number}", key.join("_"))))
        })
    }
}
