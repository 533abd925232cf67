//! What an argument of a call must be like.
//!
//! In: a JSON value and what the prompt's pattern captured. Out: whether it fits; for two
//! patterns, whether no value can fit both. Integers equal floats of the same value
//! (decisions.md); nothing else is converted.

use regex::Regex;
use serde_json::{Number, Value};

/// Texts that the named groups of a task's prompt pattern captured.
pub type Captured = foldhash::HashMap<String, String>;

/// Every part that is given must hold; without any, every value fits.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// It is one of these.
    pub one_of: Option<Vec<Value>>,
    /// It is none of these.
    pub not: Vec<Value>,
    /// A text in which this is found.
    pub regex: Option<Regex>,
    /// A number of at least this.
    pub min: Option<f64>,
    /// A number of at most this.
    pub max: Option<f64>,
    /// What the prompt's pattern captured under this name, as text or as a number.
    pub captured: Option<String>,
}

impl Pattern {
    /// This value and no other.
    pub fn equal(value: Value) -> Pattern {
        Pattern { one_of: Some(vec![value]), ..Pattern::default() }
    }

    /// Every value fits.
    pub fn is_free(&self) -> bool {
        self.one_of.is_none()
            && self.not.is_empty()
            && self.regex.is_none()
            && self.min.is_none()
            && self.max.is_none()
            && self.captured.is_none()
    }

    /// Whether `value` fits.
    pub fn fits(&self, value: &Value, captured: &Captured) -> bool {
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
        let within = |limit: Option<f64>, holds: fn(f64, f64) -> bool| {
            limit.is_none_or(|limit| value.as_f64().is_some_and(|n| holds(n, limit)))
        };
        self.one_of.as_ref().is_none_or(|all| all.iter().any(|one| same(one, value)))
            && !self.not.iter().any(|one| same(one, value))
            && within(self.min, |n, limit| n >= limit)
            && within(self.max, |n, limit| n <= limit)
            && self.regex.as_ref().is_none_or(|regex| match value {
                Value::String(text) => regex.is_match(text),
                Value::Number(n) => regex.is_match(&n.to_string()),
                _ => false,
            })
    }

    /// No value fits both. False where that is not plain.
    pub fn excludes(&self, other: &Pattern) -> bool {
        let none_fits = |one: &Pattern, other: &Pattern| {
            one.one_of.as_ref().is_some_and(|all| !all.iter().any(|v| other.fits_apart_from_captured(v)))
        };
        let apart =
            |one: &Pattern, other: &Pattern| one.min.zip(other.max).is_some_and(|(min, max)| min > max);
        none_fits(self, other) || none_fits(other, self) || apart(self, other) || apart(other, self)
    }
}

/// Equality of JSON values, where `1` and `1.0` are the same number.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn same_number(a: &Number, b: &Number) -> bool {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a == b;
    }
    if let (Some(a), Some(b)) = (a.as_u64(), b.as_u64()) {
        return a == b;
    }
    a.as_f64() == b.as_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fits(pattern: &Pattern, value: Value) -> bool {
        pattern.fits(&value, &Captured::default())
    }

    #[test]
    fn equality_knows_numbers_by_their_value() {
        let one = Pattern::equal(json!(1));
        assert!(fits(&one, json!(1)) && fits(&one, json!(1.0)));
        assert!(!fits(&one, json!("1")) && !fits(&one, json!(true)) && !fits(&one, json!(null)));
        assert!(fits(&Pattern::equal(json!({"a": [1, 2.0]})), json!({"a": [1.0, 2]})));
        assert!(!fits(&Pattern::equal(json!(9_007_199_254_740_993_u64)), json!(9_007_199_254_740_992_u64)));
        assert!(fits(&Pattern::equal(json!(u64::MAX)), json!(u64::MAX)));
    }

    #[test]
    fn every_part_must_hold() {
        let pattern = Pattern { min: Some(0.0), max: Some(4.5), not: vec![json!(2)], ..Pattern::default() };
        assert!(fits(&pattern, json!(0)) && fits(&pattern, json!(4.5)));
        for value in [json!(2.0), json!(-1), json!(4.6), json!("3"), json!(null)] {
            assert!(!fits(&pattern, value.clone()), "{value}");
        }
        let regex = Pattern { regex: Some(Regex::new("^plant_[A-C]$").unwrap()), ..Pattern::default() };
        assert!(fits(&regex, json!("plant_B")) && !fits(&regex, json!("plant_D")));
        assert!(!fits(&regex, json!(["plant_B"])));
        assert!(fits(&Pattern::default(), json!(null)) && Pattern::default().is_free());
    }

    #[test]
    fn what_the_prompt_said_is_compared_as_text_or_number() {
        let pattern = Pattern { captured: Some("plant".into()), ..Pattern::default() };
        let said = |text: &str| Captured::from_iter([("plant".to_owned(), text.to_owned())]);
        assert!(pattern.fits(&json!("A"), &said("A")) && !pattern.fits(&json!("B"), &said("A")));
        assert!(pattern.fits(&json!(4.5), &said("4.50")) && pattern.fits(&json!(4), &said("4.0")));
        assert!(!pattern.fits(&json!("A"), &Captured::default()));
    }

    #[test]
    fn patterns_that_no_value_fits_both_are_told() {
        let not = |v| Pattern { not: vec![v], ..Pattern::default() };
        assert!(Pattern::equal(json!(1)).excludes(&not(json!(1.0))));
        assert!(not(json!("a")).excludes(&Pattern::equal(json!("a"))));
        assert!(!not(json!("a")).excludes(&not(json!("b"))));
        let low = Pattern { max: Some(1.0), ..Pattern::default() };
        let high = Pattern { min: Some(2.0), ..Pattern::default() };
        assert!(low.excludes(&high) && high.excludes(&low) && !low.excludes(&Pattern::default()));
        assert!(high.excludes(&Pattern::equal(json!(1))));
    }
}
