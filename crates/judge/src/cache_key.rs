//! Keys by which answers to questions are cached and recorded.
//!
//! In: a question, and everything else that its answer depends on. Out: SHA-256 over all parts, each with
//! its length, so that different questions have different keys.

use serde_json::Value;
use sha2::{Digest, Sha256};
use verdict_eval::questions::{AnswerForm, Question};

pub(crate) type CacheKey = [u8; 32];

/// The key in the cache: the provider's location, the request (`body` contains model, prompt and schema),
/// and the number of the sample.
pub(crate) fn request_key(location: &str, body: &[u8], sample: u32) -> CacheKey {
    hash_of(&[b"cache/1", location.as_bytes(), &sample.to_le_bytes(), body])
}

/// The key in recordings: prompt, form and sample, so that recorded answers can be replayed under another
/// configuration.
pub(crate) fn recording_key(question: &Question, sample: u32) -> CacheKey {
    let Question { prompt, form, .. } = question;
    let schema = form.schema.to_string();
    hash_of(&[
        b"record/1",
        prompt.system.as_bytes(),
        prompt.user.as_bytes(),
        form.name.as_bytes(),
        schema.as_bytes(),
        &sample.to_le_bytes(),
    ])
}

/// The hash in `verdict.<metric>.judge`: eight hex digits for rubric and form. Enumerations of the schema
/// are excluded: they contain the span ids of one trace, and the rubric names the labels.
pub(crate) fn rubric_hash(question: &Question) -> String {
    let AnswerForm { name, schema, score } = &*question.form;
    let values = score.as_ref().map(|field| field.values.clone()).unwrap_or_default();
    let mut plain = schema.clone();
    without_enums(&mut plain, 0);
    let plain = plain.to_string();
    let hash = hash_of(&[question.prompt.system.as_bytes(), name.as_bytes(), plain.as_bytes(), &values]);
    hex(&hash[..4])
}

/// Largest depth of a schema; those of the built-in forms are less deep.
const MAX_DEPTH: usize = 32;

fn without_enums(schema: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match schema {
        Value::Object(entries) => {
            if entries.get("enum").is_some_and(Value::is_array) {
                entries.shift_remove("enum");
            }
            entries.values_mut().for_each(|value| without_enums(value, depth + 1));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| without_enums(item, depth + 1)),
        _ => {}
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses the output of [`hex`].
pub(crate) fn parse_key(text: &str) -> Option<CacheKey> {
    let mut key = CacheKey::default();
    if text.len() != 2 * key.len() || !text.is_ascii() {
        return None;
    }
    for (i, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(key)
}

fn hash_of(parts: &[&[u8]]) -> CacheKey {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::question;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn every_part_changes_the_key() {
        let one = request_key("http://h/a", b"body", 0);
        assert_eq!(one, request_key("http://h/a", b"body", 0));
        for other in [
            request_key("http://h/", b"abody", 0),
            request_key("http://h/a", b"body", 1),
            request_key("http://h/a", b"bodz", 0),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(parse_key(&hex(&one)), Some(one));
        assert_eq!(parse_key("0g"), None);
        assert_eq!(parse_key(&"é".repeat(32)), None);
    }

    #[test]
    fn the_key_of_a_recording_is_independent_of_the_judge() {
        let asked = question("q", "rate it", "content");
        let mut other = asked.clone();
        other.key = "another".into();
        assert_eq!(recording_key(&asked, 0), recording_key(&other, 0));
        assert_ne!(recording_key(&asked, 0), recording_key(&asked, 1));
        other.prompt.user = "other content".into();
        assert_ne!(recording_key(&asked, 0), recording_key(&other, 0));
    }

    #[test]
    fn the_rubrics_hash_is_the_same_for_all_spans_of_a_metric() {
        let spans = |ids: Value| {
            let mut question = question("q", "rate it", "content");
            let mut form = (*question.form).clone();
            form.schema["properties"]["span_id"] = json!({ "type": "string", "enum": ids });
            question.form = Arc::new(form);
            question
        };
        let one = rubric_hash(&spans(json!(["a"])));
        assert_eq!(one.len(), 8);
        assert_eq!(one, rubric_hash(&spans(json!(["b", "c"]))));
        assert_ne!(one, rubric_hash(&question("q", "rate it", "content")), "another form");
        let mut other = spans(json!(["a"]));
        other.prompt.system = "rate it well".into();
        assert_ne!(one, rubric_hash(&other), "another rubric");
    }
}
