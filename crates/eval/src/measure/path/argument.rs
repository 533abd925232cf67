//! Conditions on the arguments of a call.
//!
//! In: a JSON value and the captures of the prompt's pattern. Out: whether it matches; for two
//! patterns, whether no value can match both. Integers equal floats of the same value; no other values of different
//! types are equal.

use std::cmp::Ordering;
use std::fmt::Write as _;

use regex::Regex;
use serde_json::{Map, Number, Value};

use super::prompt_pattern::PromptCaptures;
use crate::measure::schema::compare_numbers;

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
    /// Equal, as text or as a number, to the text that the group of this name in the prompt's pattern captured; any
    /// value if the group took no part in the match.
    pub captured: Option<String>,
}

impl ValuePattern {
    /// Accepts this value alone.
    pub fn equal(value: Value) -> ValuePattern {
        ValuePattern { one_of: Some(vec![value]), ..ValuePattern::default() }
    }

    /// Whether the value meets every condition.
    pub fn fits(&self, value: &Value, captures: &PromptCaptures) -> bool {
        self.fits_without_captures(value)
            && self.captured.as_ref().is_none_or(|name| {
                captures.get(name).is_some_and(|captured| match (&captured.text, value) {
                    (None, _) => true,
                    (_, Value::String(text)) => captured.matches(text),
                    (Some(text), Value::Number(n)) => {
                        text.trim().parse::<Number>().is_ok_and(|t| same_number(&t, n))
                    }
                    _ => false,
                })
            })
    }

    /// Whether the value meets every condition, except for `captured`.
    fn fits_without_captures(&self, value: &Value) -> bool {
        let is_number = |is_in_range: &dyn Fn(f64) -> bool| value.as_f64().is_some_and(is_in_range);
        self.one_of.as_ref().is_none_or(|all| all.iter().any(|one| same_value(one, value)))
            && !self.not.iter().any(|one| same_value(one, value))
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
            one.one_of.as_ref().is_some_and(|all| !all.iter().any(|v| other.fits_without_captures(v)))
        };
        let is_above = |one: &ValuePattern, other: &ValuePattern| {
            one.min.zip(other.max).is_some_and(|(min, max)| min > max)
        };
        none_fits(self, other) || none_fits(other, self) || is_above(self, other) || is_above(other, self)
    }
}

/// Equality of JSON values, where `1` equals `1.0`.
pub(crate) fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (Value::Object(a), Value::Object(b)) => same_members(a, b),
        _ => a == b,
    }
}

/// As [`same_value`], for two objects.
pub(super) fn same_members(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same_value(a, b)))
}

/// A text that is equal for values that are the [`same_value`], and for no others.
pub(super) fn value_key(value: &Value) -> String {
    let mut key = String::new();
    write_key(value, &mut key);
    key
}

/// The key of the arguments of a call.
pub(super) fn members_key(members: &Map<String, Value>) -> String {
    let mut key = String::new();
    write_members_key(members, &mut key);
    key
}

/// Appends the key of a value: equal values have equal keys.
fn write_key(value: &Value, key: &mut String) {
    match value {
        Value::Null => key.push_str("null,"),
        Value::Bool(value) => key.push_str(if *value { "true," } else { "false," }),
        Value::Number(number) => write_number_key(number, key),
        Value::String(text) => {
            // The length makes the key unambiguous: a text may contain the separators.
            let _ = write!(key, "{}:{text},", text.len());
        }
        Value::Array(items) => {
            key.push('[');
            items.iter().for_each(|item| write_key(item, key));
            key.push_str("],");
        }
        Value::Object(members) => write_members_key(members, key),
    }
}

/// Appends the key of an object, which does not depend on the order of its members.
fn write_members_key(members: &Map<String, Value>, key: &mut String) {
    let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    key.push('{');
    for (name, value) in sorted {
        let _ = write!(key, "{}:{name}=", name.len());
        write_key(value, key);
    }
    key.push_str("},");
}

/// A float without a fraction is written as the integer of its value.
fn write_number_key(number: &Number, key: &mut String) {
    let whole = number.as_i128().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e30)?;
        Some(float as i128)
    });
    let _ = match whole {
        Some(whole) => write!(key, "{whole},"),
        None => write!(key, "{number},"),
    };
}

fn same_number(a: &Number, b: &Number) -> bool {
    compare_numbers(a, b) == Some(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::measure::path::prompt_pattern::CapturedText;

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

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|value| json!(value)),
            (-3i64..3).prop_map(|number| json!(number)),
            (-6i64..6).prop_map(|number| json!(number as f64 / 2.0)),
            Just(json!(u64::MAX)),
            Just(json!(1e300)),
            "[a1:,={}]{0,3}".prop_map(|text| json!(text)),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let members = prop::collection::vec(("[a=:]{0,2}", inner.clone()), 0..3);
            prop_oneof![
                prop::collection::vec(inner, 0..3).prop_map(Value::from),
                members.prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn keys_are_equal_for_the_same_values_only(a in values(), b in values()) {
            prop_assert_eq!(value_key(&a) == value_key(&b), same_value(&a, &b), "{} {}", a, b);
            prop_assert_eq!(value_key(&a), value_key(&a.clone()));
        }
    }

    #[test]
    fn keys_of_equal_numbers_are_equal() {
        for (a, b) in
            [(json!(1), json!(1.0)), (json!(0), json!(-0.0)), (json!(1u64 << 60), json!((1u64 << 60) as f64))]
        {
            assert!(same_value(&a, &b) && value_key(&a) == value_key(&b), "{a} {b}");
        }
        assert_eq!(value_key(&json!({"a": 1, "b": [2.0]})), value_key(&json!({"b": [2], "a": 1.0})));
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
        let group = |text: Option<&str>, ignores_case| {
            let captured = CapturedText { text: text.map(str::to_owned), ignores_case };
            PromptCaptures::from_iter([("plant".to_owned(), captured)])
        };
        let case_sensitive = |text: &str| group(Some(text), false);
        assert!(
            !pattern.fits(&json!("a"), &case_sensitive("A"))
                && pattern.fits(&json!("a"), &group(Some("A"), true))
        );
        assert!(pattern.fits(&json!([1]), &group(None, false)), "the prompt leaves the value open");
        assert!(
            pattern.fits(&json!("A"), &case_sensitive("A"))
                && !pattern.fits(&json!("B"), &case_sensitive("A"))
        );
        assert!(
            pattern.fits(&json!(4.5), &case_sensitive("4.50"))
                && pattern.fits(&json!(4), &case_sensitive("4.0"))
        );
        assert!(!pattern.fits(&json!("A"), &PromptCaptures::default()));
    }

    #[test]
    fn disjoint_patterns_exclude_each_other() {
        let excluding = |v| ValuePattern { not: vec![v], ..ValuePattern::default() };
        assert!(ValuePattern::equal(json!(1)).excludes(&excluding(json!(1.0))));
        assert!(excluding(json!("a")).excludes(&ValuePattern::equal(json!("a"))));
        assert!(!excluding(json!("a")).excludes(&excluding(json!("b"))));
        let low = ValuePattern { max: Some(1.0), ..ValuePattern::default() };
        let high = ValuePattern { min: Some(2.0), ..ValuePattern::default() };
        assert!(low.excludes(&high) && high.excludes(&low) && !low.excludes(&ValuePattern::default()));
        assert!(high.excludes(&ValuePattern::equal(json!(1))));
    }
}
