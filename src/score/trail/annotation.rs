//! The benchmark's files: gold and predictions have one shape.
//!
//! In: a file's text, written by annotators and models: prose around the JSON, commas before closing brackets,
//! numbers as text. Out: [`Annotations`], and the same shape as JSON. The file is read as the reference script
//! does (`load`): from the first `{` to the last `}`, without stray commas.

use serde::Serialize;
use serde_json::{Map, Value};
use verdict_eval::metrics::Severity;

use super::CategoryLabel;

/// One error: category, span and reason.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Annotation {
    /// The category as the file spells it; [`Annotation::label`] reads it.
    pub category: String,
    /// The span's id, in hex.
    pub location: String,
    /// Quoted from the span.
    pub evidence: String,
    pub description: String,
    /// `LOW`, `MEDIUM` or `HIGH`.
    pub impact: String,
}

impl Annotation {
    pub fn label(&self) -> CategoryLabel {
        CategoryLabel::read(&self.category)
    }
}

/// The benchmark's name of a severity.
pub fn impact(severity: Severity) -> String {
    severity.as_str().to_uppercase()
}

/// The keys of the five scores of a trace: reliability is whether the run reached its goal, security whether
/// it did no harm (5 on every trace of the benchmark).
pub const RATINGS: [&str; 5] =
    ["reliability_score", "security_score", "instruction_adherence_score", "plan_opt_score", "overall"];

/// The five scores, each 1 to 5, in the order of [`RATINGS`]; `None` if the file does not contain the score.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Ratings(pub [Option<f64>; RATINGS.len()]);

impl Ratings {
    pub fn overall(&self) -> Option<f64> {
        self.0[4]
    }

    fn read(value: Option<&Value>) -> Ratings {
        // A list of one object in the benchmark, an object in some models' answers.
        let object = match value {
            Some(Value::Array(list)) => list.first(),
            other => other,
        };
        Ratings(RATINGS.map(|key| object.and_then(|o| o.get(key)).and_then(number)))
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|n: &f64| n.is_finite())
}

/// The content of one file: the errors and scores of a trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Annotations {
    /// The trace's id; `None` if only the file's name contains it.
    pub trace: Option<String>,
    /// The errors, in the file's order.
    pub errors: Vec<Annotation>,
    pub ratings: Ratings,
}

impl Annotations {
    /// Reads a file; `None` if it contains no JSON object.
    pub fn read(bytes: &[u8]) -> Option<Annotations> {
        let text = String::from_utf8_lossy(bytes);
        let body = text.get(text.find('{')?..=text.rfind('}')?)?;
        let object: Map<String, Value> = serde_json::from_str(body)
            .ok()
            .or_else(|| serde_json::from_str(&without_trailing_commas(body)).ok())?;
        let errors = object.get("errors").and_then(Value::as_array).into_iter().flatten();
        Some(Annotations {
            trace: object.get("trace_id").and_then(Value::as_str).map(|id| id.trim().to_owned()),
            errors: errors.filter_map(Value::as_object).map(read_error).collect(),
            ratings: Ratings::read(object.get("scores")),
        })
    }

    /// The benchmark's shape, with keys in its order.
    pub fn to_json(&self) -> Value {
        let mut scores = Map::new();
        for (key, rating) in RATINGS.into_iter().zip(self.ratings.0) {
            if let Some(rating) = rating {
                scores.insert(key.to_owned(), rating.into());
            }
        }
        let scores = if scores.is_empty() { Vec::new() } else { vec![Value::Object(scores)] };
        serde_json::json!({ "errors": self.errors, "scores": scores })
    }
}

/// `text` without commas before a closing bracket, which JSON does not allow but some annotators' files contain.
fn without_trailing_commas(text: &str) -> String {
    let mut parts = text.split(',');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if !part.trim_start().starts_with(['}', ']']) {
            out.push(',');
        }
        out.push_str(part);
    }
    out
}

fn read_error(object: &Map<String, Value>) -> Annotation {
    let text = |key: &str| match object.get(key) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    };
    Annotation {
        category: text("category"),
        location: text("location").trim().to_owned(),
        evidence: text("evidence"),
        description: text("description"),
        impact: text("impact").trim().to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrounding_prose_and_stray_commas_are_skipped() {
        let file = b"Here it is:\n{\"errors\": [{\"category\": \"Timeout\", \"location\": \" ab \",},],\n\
                     \"scores\": [{\"overall\": \"2.5\", \"security_score\": 5}]}\nDone.";
        let read = Annotations::read(file).unwrap();
        assert_eq!(read.errors.len(), 1);
        assert_eq!(read.errors[0].location, "ab");
        assert_eq!(read.errors[0].label().category(), Some(verdict_eval::metrics::Category::TimeoutIssues));
        assert_eq!(read.ratings, Ratings([None, Some(5.0), None, None, Some(2.5)]));
    }

    #[test]
    fn a_comma_in_the_evidence_of_valid_json_is_preserved() {
        let read = Annotations::read(br#"{"errors": [{"evidence": "[1, 2, ]"}]}"#).unwrap();
        assert_eq!(read.errors[0].evidence, "[1, 2, ]");
    }

    #[test]
    fn text_without_an_object_is_none_and_invalid_errors_are_skipped() {
        for nothing in ["", "[]", "} {", "{\"errors\":", "{\"errors\": nope}"] {
            assert_eq!(Annotations::read(nothing.as_bytes()), None, "{nothing}");
        }
        let odd = Annotations::read(br#"{"errors": [1, "x", {"location": 7}], "scores": []}"#).unwrap();
        assert_eq!(odd.errors.len(), 1);
        assert_eq!(odd.errors[0].location, "7");
    }

    #[test]
    fn written_annotations_are_read_unchanged() {
        let ratings = Ratings([None, Some(5.0), None, None, Some(3.5)]);
        let errors = vec![Annotation {
            category: "Goal Deviation".to_owned(),
            location: "00f067aa0ba902b7".to_owned(),
            evidence: "\"quoted\", }".to_owned(),
            impact: "HIGH".to_owned(),
            ..Annotation::default()
        }];
        let written = Annotations { trace: None, errors, ratings };
        let text = written.to_json().to_string();
        assert_eq!(Annotations::read(text.as_bytes()), Some(written));
    }
}
