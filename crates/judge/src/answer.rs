//! A judge's text, held against the form that was asked for.
//!
//! In: text that a model wrote, and a [`Form`]. Out: the one object in it that fits, or the
//! [`Fault`]. Looking for the object (in a code fence, among prose, in a string) is the only repair:
//! it adds nothing to what was said. Where two different objects fit, neither is taken: one of them
//! may be quoted from the trace, which may want to be its own judge.

use serde_json::Value;

use verdict_eval::measure::Form;
use verdict_eval::measure::schema::{Outcome, Schema};

/// Answers are a few thousand bytes; a longer text is none.
const MAX_TEXT: usize = 256 << 10;
/// Places where an object may begin that are tried.
const MAX_STARTS: usize = 64;
/// Of a fault, in bytes: it goes into the next request.
const MAX_FAULT: usize = 300;

/// Why a text is no answer. Its words go to the judge that wrote it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// It was cut.
    #[error("it was cut off at the most tokens that an answer may have; be briefer")]
    Cut,
    /// It is far too long.
    #[error("it is far too long")]
    TooLong,
    /// There is no object in it.
    #[error("there is no JSON object in it")]
    NoObject,
    /// There are several that fit and differ.
    #[error("there are several JSON objects in it, and they differ")]
    Several,
    /// The object does not fit.
    #[error("it does not fit the schema: {0}")]
    Unfit(String),
}

/// A form, ready to hold answers against.
#[derive(Debug)]
pub struct Mould<'a> {
    form: &'a Form,
    schema: Schema,
}

impl<'a> Mould<'a> {
    /// # Errors
    /// The form's schema is none; says why. That is a bug of the metric that made it.
    pub fn new(form: &'a Form) -> Result<Mould<'a>, String> {
        let schema = Schema::compile(&form.schema);
        match schema.flaw() {
            Some(flaw) => Err(flaw),
            None => Ok(Mould { form, schema }),
        }
    }

    /// The answer in `text`.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn read(&self, text: &str) -> Result<Value, Fault> {
        if text.len() > MAX_TEXT {
            return Err(Fault::TooLong);
        }
        let text = after_thinking(text).trim();
        match serde_json::from_str(text) {
            Ok(whole @ Value::Object(_)) => return self.fit(whole),
            // Written twice over: an object in a string.
            Ok(Value::String(inner)) => {
                if let Ok(whole @ Value::Object(_)) = serde_json::from_str(&inner) {
                    return self.fit(whole);
                }
            }
            _ => {}
        }
        let mut fault = Fault::NoObject;
        let mut found: Option<Value> = None;
        for object in objects(text) {
            match (self.fit(object), &found) {
                (Ok(value), None) => found = Some(value),
                (Ok(value), Some(before)) if value != *before => return Err(Fault::Several),
                (Ok(_), Some(_)) => {}
                (Err(why), _) if fault == Fault::NoObject => fault = why,
                (Err(_), _) => {}
            }
        }
        found.ok_or(fault)
    }

    /// `value` if it fits.
    ///
    /// # Errors
    /// It does not.
    pub fn fit(&self, mut value: Value) -> Result<Value, Fault> {
        let checked = self.schema.check(&value);
        if checked.outcome != Outcome::Valid {
            let first = checked.problems.into_iter().next();
            let mut said =
                first.map_or_else(|| "there is too much of it".to_owned(), |problem| problem.fault);
            said.truncate(said.floor_char_boundary(MAX_FAULT));
            return Err(Fault::Unfit(said));
        }
        self.round(&mut value);
        Ok(value)
    }

    /// 4.0 is 4: an enum of the schema lets both pass.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn round(&self, value: &mut Value) {
        let Some(score) = self.form.score.as_ref().and_then(|field| value.get_mut(field.key)) else { return };
        if let Some(float) = score.as_f64().filter(|_| score.is_f64()) {
            *score = Value::from(float as u64);
        }
    }
}

/// What stands behind the thoughts that some models write before their answer.
fn after_thinking(text: &str) -> &str {
    let Some(thoughts) = text.trim_start().strip_prefix("<think>") else { return text };
    thoughts.split_once("</think>").map_or("", |(_, rest)| rest)
}

/// The objects in a text that are not in another, first to last.
fn objects(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut from = 0;
    for _ in 0..MAX_STARTS {
        let Some(start) = text.get(from..).and_then(|rest| rest.find('{')).map(|at| from + at) else { break };
        let mut stream = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match stream.next() {
            Some(Ok(object)) => {
                from = start + stream.byte_offset().max(1);
                found.push(object);
            }
            _ => from = start + 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::form;

    fn read(text: &str) -> Result<u64, Fault> {
        let form = form();
        Mould::new(&form).unwrap().read(text).map(|value| value["score"].as_u64().unwrap())
    }

    #[test]
    fn the_object_is_found_wherever_it_stands() {
        for text in [
            r#"{"rationale":"r","score":4}"#,
            "  {\"rationale\":\"r\",\"score\":4.0}\n",
            "```json\n{\"rationale\":\"r {\",\"score\":4}\n```",
            "Here it is:\n{\"rationale\":\"r\",\"score\":4}\nI hope {that} helps.",
            "<think>{\"rationale\":\"r\",\"score\":1}</think>{\"rationale\":\"r\",\"score\":4}",
            r#""{\"rationale\":\"r\",\"score\":4}""#,
            r#"{"other":1} {"rationale":"r","score":4} {"rationale":"r","score":4}"#,
            r#"{{"rationale":"r","score":4}"#,
        ] {
            assert_eq!(read(text), Ok(4), "{text}");
        }
    }

    #[test]
    fn what_is_no_answer_says_why() {
        assert_eq!(read("no idea"), Err(Fault::NoObject));
        assert_eq!(read(""), Err(Fault::NoObject));
        assert_eq!(read("[4]"), Err(Fault::NoObject));
        assert_eq!(read("<think>{\"rationale\":\"r\",\"score\":1}"), Err(Fault::NoObject));
        assert_eq!(read(&"x".repeat(MAX_TEXT + 1)), Err(Fault::TooLong));
        let two = r#"The trace says {"rationale":"x","score":5}. I say {"rationale":"r","score":1}."#;
        assert_eq!(read(two), Err(Fault::Several));
        for unfit in [
            r#"{"rationale":"r","score":6}"#,
            r#"{"rationale":"r","score":"4"}"#,
            r#"{"rationale":"r"}"#,
            r#"{"rationale":"r","score":4,"more":1}"#,
        ] {
            let Err(Fault::Unfit(why)) = read(unfit) else { panic!("{unfit}") };
            assert!(!why.is_empty() && why.len() <= MAX_FAULT, "{why}");
        }
        let long = format!(r#"{{"rationale":"r","score":4,"{}":1}}"#, "é".repeat(1000));
        let Err(Fault::Unfit(why)) = read(&long) else { panic!() };
        assert!(why.len() <= MAX_FAULT);
    }

    #[test]
    fn a_value_of_the_answer_is_not_repeated_in_its_fault() {
        let fault = read(r#"{"rationale":"r","score":"sk-secret"}"#).unwrap_err().to_string();
        assert!(!fault.contains("sk-secret") && fault.contains("/score"), "{fault}");
    }

    proptest::proptest! {
        /// Whatever a model writes: no panic, and what is taken fits.
        #[test]
        fn any_text_is_taken_whole_or_refused(
            parts in proptest::collection::vec(
                proptest::prop_oneof![
                    proptest::string::string_regex("\\PC{0,20}").unwrap(),
                    proptest::string::string_regex("[{}\\[\\]\",:\\\\ntf0-9. -]{0,24}").unwrap(),
                    proptest::strategy::Just(r#"{"rationale":"r","score":4}"#.to_owned()),
                    proptest::strategy::Just(r#"{"rationale":"{\"score\":5}","score":2"#.to_owned()),
                    proptest::strategy::Just("```json\n".to_owned()),
                    proptest::strategy::Just("<think>".to_owned()),
                ],
                0..8,
            )
        ) {
            let form = form();
            let mould = Mould::new(&form).unwrap();
            if let Ok(value) = mould.read(&parts.concat()) {
                proptest::prop_assert_eq!(mould.fit(value.clone()), Ok(value.clone()));
                proptest::prop_assert!((1..=5).contains(&value["score"].as_u64().unwrap()));
            }
        }
    }
}
