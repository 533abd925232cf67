//! Conditions on the arguments of a call.
//!
//! In: a JSON value and the captures of the prompt's pattern. Out: whether it matches; for two
//! patterns, whether no value can match both. Integers equal floats of the same value
//! (decisions.md); nothing else is converted.

use std::cmp::Ordering;

use regex::Regex;
use serde_json::{Map, Number, Value};

use crate::measure::schema::compare_numbers;

/// Texts that the named groups of a task's prompt pattern captured.
pub(crate) type PromptCaptures = foldhash::HashMap<String, String>;

/// A value matches if it meets every given condition.
#[derive(Clone, Debug, Default)]
pub struct ValuePattern {
    /// Equal to one of these.
    pub one_of: Option<Vec<Value>>,
    /// Equal to none of these.
    pub not: Vec<Value>,
    /// A text or number that contains a match of this pattern.
    pub regex: Option<Regex>,
    /// A number of at least this.
    pub min: Option<f64>,
    /// A number of at most this.
    pub max: Option<f64>,
    /// Equal, as text or as a number, to the group of this name in the prompt's pattern.
    pub captured: Option<String>,
}

impl ValuePattern {
    /// Accepts this value alone.
    pub fn equal(value: Value) -> ValuePattern {
        ValuePattern { one_of: Some(vec![value]), ..ValuePattern::default() }
    }

    pub fn fits(&self, value: &Value, captured: &PromptCaptures) -> bool {
        self.fits_apart_from_captured(value)
            && self.captured.as_ref().is_none_or(|name| {
                captured.get(name).is_some_and(|text| match value {
                    Value::String(s) => s == text,
                    Value::Number(n) => text.trim().parse::<Number>().is_ok_and(|t| same_number(&t, n)),
                    _ => false,
                })
            })
    }

    fn fits_apart_from_captured(&self, value: &Value) -> bool {
        let is_number = |is_in_range: &dyn Fn(f64) -> bool| value.as_f64().is_some_and(is_in_range);
        self.one_of.as_ref().is_none_or(|all| all.iter().any(|one| same(one, value)))
            && !self.not.iter().any(|one| same(one, value))
            && self.min.is_none_or(|min| is_number(&|n| n >= min))
            && self.max.is_none_or(|max| is_number(&|n| n <= max))
            && self.regex.as_ref().is_none_or(|regex| match value {
                Value::String(text) => regex.is_match(text),
                Value::Number(n) => regex.is_match(&n.to_string()),
                _ => false,
            })
    }

    /// Whether it is certain that no value matches both.
    pub fn excludes(&self, other: &ValuePattern) -> bool {
        let none_fits = |one: &ValuePattern, other: &ValuePattern| {
            one.one_of.as_ref().is_some_and(|all| !all.iter().any(|v| other.fits_apart_from_captured(v)))
        };
        let apart = |one: &ValuePattern, other: &ValuePattern| {
            one.min.zip(other.max).is_some_and(|(min, max)| min > max)
        };
        none_fits(self, other) || none_fits(other, self) || apart(self, other) || apart(other, self)
    }
}

/// Equality of JSON values, where `1` equals `1.0`.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => same_members(a, b),
        _ => a == b,
    }
}

pub(super) fn same_members(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
}

fn same_number(a: &Number, b: &Number) -> bool {
    compare_numbers(a, b) == Some(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fits(pattern: &ValuePattern, value: Value) -> bool {
        pattern.fits(&value, &PromptCaptures::default())
    }

    #[test]
    fn numbers_are_equal_by_value() {
        let one = ValuePattern::equal(json!(1));
        assert!(fits(&one, json!(1)) && fits(&one, json!(1.0)));
        assert!(!fits(&one, json!("1")) && !fits(&one, json!(true)) && !fits(&one, json!(null)));
        assert!(fits(&ValuePattern::equal(json!({"a": [1, 2.0]})), json!({"a": [1.0, 2]})));
        assert!(!fits(
            &ValuePattern::equal(json!(9_007_199_254_740_993_u64)),
            json!(9_007_199_254_740_992_u64)
        ));
        assert!(fits(&ValuePattern::equal(json!(u64::MAX)), json!(u64::MAX)));
    }

    #[test]
    fn pattern_matches_when_every_condition_matches() {
        let pattern =
            ValuePattern { min: Some(0.0), max: Some(4.5), not: vec![json!(2)], ..ValuePattern::default() };
        assert!(fits(&pattern, json!(0)) && fits(&pattern, json!(4.5)));
        for value in [json!(2.0), json!(-1), json!(4.6), json!("3"), json!(null)] {
            assert!(!fits(&pattern, value.clone()), "{value}");
        }
        let regex =
            ValuePattern { regex: Some(Regex::new("^plant_[A-C]$").unwrap()), ..ValuePattern::default() };
        assert!(fits(&regex, json!("plant_B")) && !fits(&regex, json!("plant_D")));
        assert!(!fits(&regex, json!(["plant_B"])));
        assert!(
            fits(&ValuePattern::default(), json!(null)) && fits(&ValuePattern::default(), json!({"a": 1}))
        );
    }

    #[test]
    fn captured_text_is_compared_as_text_or_number() {
        let pattern = ValuePattern { captured: Some("plant".into()), ..ValuePattern::default() };
        let said = |text: &str| PromptCaptures::from_iter([("plant".to_owned(), text.to_owned())]);
        assert!(pattern.fits(&json!("A"), &said("A")) && !pattern.fits(&json!("B"), &said("A")));
        assert!(pattern.fits(&json!(4.5), &said("4.50")) && pattern.fits(&json!(4), &said("4.0")));
        assert!(!pattern.fits(&json!("A"), &PromptCaptures::default()));
    }

    #[test]
    fn disjoint_patterns_exclude_each_other() {
        let not = |v| ValuePattern { not: vec![v], ..ValuePattern::default() };
        assert!(ValuePattern::equal(json!(1)).excludes(&not(json!(1.0))));
        assert!(not(json!("a")).excludes(&ValuePattern::equal(json!("a"))));
        assert!(!not(json!("a")).excludes(&not(json!("b"))));
        let low = ValuePattern { max: Some(1.0), ..ValuePattern::default() };
        let high = ValuePattern { min: Some(2.0), ..ValuePattern::default() };
        assert!(low.excludes(&high) && high.excludes(&low) && !low.excludes(&ValuePattern::default()));
        assert!(high.excludes(&ValuePattern::equal(json!(1))));
    }
}
