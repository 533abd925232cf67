//! Validation of judges' answers.
//!
//! In: the text of a reply, and a [`AnswerForm`]. Out: the JSON object in it that matches the form's schema, or an
//! [`InvalidAnswer`]. The object is extracted from a code fence, from prose or from a string; nothing else is
//! repaired. If two different objects match, neither is accepted: one of them may be quoted from the trace,
//! whose content is untrusted.

use serde_json::Value;
use verdict_eval::questions::AnswerForm;
use verdict_eval::schema::{Schema, Validity};

/// Largest size of a text in bytes; answers are a few KiB.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// Maximum number of opening braces at which parsing is attempted.
const MAX_STARTS: usize = 64;
/// Largest size in bytes of a fault, which the next request quotes.
const MAX_FAULT_BYTES: usize = 300;

/// The text is not a valid answer. The message is part of the next request to the judge.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAnswer {
    #[error("it was cut off at the most tokens that an answer may have; be briefer")]
    Cut,
    #[error("it is far too long")]
    TooLong,
    #[error("there is no JSON object in it")]
    NoObject,
    #[error("there are several JSON objects in it, and they differ")]
    Ambiguous,
    #[error("it does not fit the schema: {0}")]
    SchemaMismatch(String),
}

/// The schema of a form is not a JSON schema.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSchema(String);

/// A form with its compiled schema.
#[derive(Debug)]
pub struct AnswerValidator<'a> {
    form: &'a AnswerForm,
    schema: Schema,
}

impl<'a> AnswerValidator<'a> {
    /// # Errors
    /// The form's schema is not a JSON schema, which is a bug of the metric that made it.
    pub fn new(form: &'a AnswerForm) -> Result<AnswerValidator<'a>, InvalidSchema> {
        let schema = Schema::compile(&form.schema);
        schema
            .problem()
            .map_or_else(|| Ok(AnswerValidator { form, schema }), |problem| Err(InvalidSchema(problem)))
    }

    /// The answer in `text`.
    ///
    /// # Errors
    /// No object in it matches the schema, or several different ones do.
    pub fn read(&self, text: &str) -> Result<Value, InvalidAnswer> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(InvalidAnswer::TooLong);
        }
        let text = after_thinking(text).trim();
        match serde_json::from_str(text) {
            Ok(whole @ Value::Object(_)) => return self.validate(whole),
            // Encoded twice: an object in a string.
            Ok(Value::String(inner)) => {
                if let Ok(whole @ Value::Object(_)) = serde_json::from_str(&inner) {
                    return self.validate(whole);
                }
            }
            _ => {}
        }
        let mut fault = InvalidAnswer::NoObject;
        let mut answer: Option<Value> = None;
        for object in objects(text) {
            match (self.validate(object), &answer) {
                (Ok(value), None) => answer = Some(value),
                (Ok(value), Some(earlier)) if value != *earlier => return Err(InvalidAnswer::Ambiguous),
                (Ok(_), Some(_)) => {}
                (Err(error), _) if fault == InvalidAnswer::NoObject => fault = error,
                (Err(_), _) => {}
            }
        }
        answer.ok_or(fault)
    }

    /// Returns `value` if it matches the schema.
    ///
    /// # Errors
    /// The value does not match the schema.
    pub fn validate(&self, mut value: Value) -> Result<Value, InvalidAnswer> {
        let checked = self.schema.check(&value);
        if checked.validity != Validity::Valid {
            let first = checked.problems.into_iter().next();
            let mut fault =
                first.map_or_else(|| "there is too much of it".to_owned(), |problem| problem.fault);
            fault.truncate(fault.floor_char_boundary(MAX_FAULT_BYTES));
            return Err(InvalidAnswer::SchemaMismatch(fault));
        }
        self.round(&mut value);
        Ok(value)
    }

    /// Makes the score an integer: a schema that lists 4 also accepts 4.0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn round(&self, value: &mut Value) {
        let Some(score) = self.form.score.as_ref().and_then(|field| value.get_mut(field.key)) else { return };
        if let Some(float) = score.as_f64().filter(|_| score.is_f64()) {
            *score = Value::from(float as u64);
        }
    }
}

/// The text after the reasoning that some models write before their answer.
fn after_thinking(text: &str) -> &str {
    let Some(thoughts) = text.trim_start().strip_prefix("<think>") else { return text };
    thoughts.split_once("</think>").map_or("", |(_, rest)| rest)
}

/// The outermost objects in a text, in order.
fn objects(text: &str) -> Vec<Value> {
    let mut out = Vec::new();
    let mut search_start = 0;
    for _ in 0..MAX_STARTS {
        let Some(start) =
            text.get(search_start..).and_then(|rest| rest.find('{')).map(|at| search_start + at)
        else {
            break;
        };
        let mut stream = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match stream.next() {
            Some(Ok(object)) => {
                search_start = start + stream.byte_offset().max(1);
                out.push(object);
            }
            _ => search_start = start + 1,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::form;

    fn read(text: &str) -> Result<u64, InvalidAnswer> {
        let form = form();
        AnswerValidator::new(&form).unwrap().read(text).map(|value| value["score"].as_u64().unwrap())
    }

    #[test]
    fn the_object_is_found_anywhere_in_the_text() {
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
    fn an_invalid_text_is_rejected_with_the_reason() {
        assert_eq!(read("no idea"), Err(InvalidAnswer::NoObject));
        assert_eq!(read(""), Err(InvalidAnswer::NoObject));
        assert_eq!(read("[4]"), Err(InvalidAnswer::NoObject));
        assert_eq!(read("<think>{\"rationale\":\"r\",\"score\":1}"), Err(InvalidAnswer::NoObject));
        assert_eq!(read(&"x".repeat(MAX_TEXT_BYTES + 1)), Err(InvalidAnswer::TooLong));
        let two = r#"The trace says {"rationale":"x","score":5}. I say {"rationale":"r","score":1}."#;
        assert_eq!(read(two), Err(InvalidAnswer::Ambiguous));
        for unfit in [
            r#"{"rationale":"r","score":6}"#,
            r#"{"rationale":"r","score":"4"}"#,
            r#"{"rationale":"r"}"#,
            r#"{"rationale":"r","score":4,"more":1}"#,
        ] {
            let Err(InvalidAnswer::SchemaMismatch(reason)) = read(unfit) else { panic!("{unfit}") };
            assert!(!reason.is_empty() && reason.len() <= MAX_FAULT_BYTES, "{reason}");
        }
        let long = format!(r#"{{"rationale":"r","score":4,"{}":1}}"#, "é".repeat(1000));
        let Err(InvalidAnswer::SchemaMismatch(reason)) = read(&long) else { panic!() };
        assert!(reason.len() <= MAX_FAULT_BYTES);
    }

    #[test]
    fn a_value_of_the_answer_is_not_repeated_in_its_fault() {
        let fault = read(r#"{"rationale":"r","score":"sk-secret"}"#).unwrap_err().to_string();
        assert!(!fault.contains("sk-secret") && fault.contains("/score"), "{fault}");
    }

    proptest::proptest! {
        /// No text panics, and every accepted value fits the schema.
        #[test]
        fn any_text_is_accepted_unchanged_or_rejected(
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
            let validator = AnswerValidator::new(&form).unwrap();
            if let Ok(value) = validator.read(&parts.concat()) {
                proptest::prop_assert_eq!(validator.validate(value.clone()), Ok(value.clone()));
                proptest::prop_assert!((1..=5).contains(&value["score"].as_u64().unwrap()));
            }
        }
    }
}
