//! The JSON schema of answers.
//!
//! In: the row of a metric and the spans that were shown. Out: a strict JSON schema: rationale first, so that
//! the score is based on it, then score or label as an enumeration, then findings that name and
//! quote a shown span. It has no keywords for lengths or ranges: servers reject them.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use verdict_otlp::trace::SpanId;

use crate::measure::table::{MetricSpec, Scale};
use crate::measure::{AnswerForm, Category, ScoreField, Severity};

pub(crate) const RATIONALE: &str = "rationale";
pub(crate) const SCORE: &str = "score";
pub(crate) const LABEL: &str = "label";
pub(crate) const FINDINGS: &str = "findings";
/// The category of a finding that fits no category of the taxonomy.
pub(crate) const NO_CATEGORY: &str = "None";

/// The form that asks for a grade and for findings on `spans`, each with a category if `with_categories`.
pub(crate) fn with_findings(row: &MetricSpec, spans: &[SpanId], with_categories: bool) -> Arc<AnswerForm> {
    form(row, Some(finding(spans, with_categories)))
}

/// The field in which a judge answers whether the record states a plan at all.
pub(crate) const PLAN: &str = "plan";
/// The value of [`PLAN`] without a plan.
pub(crate) const NO_PLAN: &str = "none";

/// The form `form` with one more field before the grade: whether the record states a plan.
pub(crate) fn asking_for_plan(form: &AnswerForm) -> Arc<AnswerForm> {
    let mut fields = Map::new();
    let properties = form.schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (key, field) in properties {
        fields.insert(key.clone(), field.clone());
        if key == RATIONALE {
            fields.insert(PLAN.to_owned(), json!({ "type": "string", "enum": ["stated", NO_PLAN] }));
        }
    }
    Arc::new(AnswerForm { schema: object(Value::Object(fields)), ..form.clone() })
}

/// The form that asks for a grade alone.
pub(crate) fn grade_only(row: &MetricSpec) -> Arc<AnswerForm> {
    form(row, None)
}

/// The form of a grade on the metric's scale, with findings of the schema `finding` if there is one.
fn form(row: &MetricSpec, finding: Option<Value>) -> Arc<AnswerForm> {
    let mut fields = json!({ RATIONALE: { "type": "string" } });
    let score = match row.scale {
        Scale::Labels(labels) => {
            fields[LABEL] = json!({ "type": "string", "enum": labels });
            None
        }
        scale => {
            let values = scale.scores();
            fields[SCORE] = json!({ "type": "integer", "enum": values });
            Some(ScoreField { key: SCORE, values })
        }
    };
    if let Some(finding) = finding {
        fields[FINDINGS] = json!({ "type": "array", "items": finding });
    }
    Arc::new(AnswerForm { name: row.form(), schema: object(fields), score })
}

/// The schema of a finding on one of `spans`.
fn finding(spans: &[SpanId], with_categories: bool) -> Value {
    let ids: Vec<String> = spans.iter().map(SpanId::to_string).collect();
    let mut fields = Map::from_iter([
        ("problem".to_owned(), json!({ "type": "string" })),
        ("span_id".to_owned(), json!({ "type": "string", "enum": ids })),
        ("quote".to_owned(), json!({ "type": "string" })),
    ]);
    if with_categories {
        fields.insert("category".to_owned(), category());
    }
    fields.insert("severity".to_owned(), severity());
    object(Value::Object(fields))
}

/// The schema of a category of the taxonomy, or of none.
pub(super) fn category() -> Value {
    let names: Vec<&str> = Category::ALL.iter().map(|c| c.as_str()).chain([NO_CATEGORY]).collect();
    json!({ "type": "string", "enum": names })
}

/// The schema of a severity.
pub(crate) fn severity() -> Value {
    json!({ "type": "string", "enum": Severity::ALL.map(Severity::as_str) })
}

/// A strict schema of an object; all fields are required.
fn object(fields: Value) -> Value {
    let required: Vec<&String> = fields.as_object().into_iter().flat_map(Map::keys).collect();
    json!({ "type": "object", "required": required, "additionalProperties": false, "properties": fields })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::schema::{Schema, Validity};
    use crate::measure::table::{rows_with_rubric, spec};

    #[test]
    fn form_begins_with_the_rationale_and_has_no_keyword_that_servers_reject() {
        for row in rows_with_rubric() {
            let form = with_findings(row, &[SpanId([1; 8])], true);
            let keys: Vec<&String> = form.schema["properties"].as_object().unwrap().keys().collect();
            assert_eq!((keys[0].as_str(), keys[2].as_str()), (RATIONALE, FINDINGS));
            let text = form.schema.to_string();
            for rejected in
                ["minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "pattern"]
            {
                assert!(!text.contains(rejected));
            }
            assert!(text.contains("\"0101010101010101\""));
            assert!(!grade_only(row).schema.to_string().contains("span_id"));
            let without_categories = with_findings(row, &[SpanId([1; 8])], false).schema.to_string();
            assert!(
                !without_categories.contains("category") && without_categories.contains("severity"),
                "{without_categories}"
            );
        }
    }

    #[test]
    fn form_accepts_only_valid_answers() {
        let form = with_findings(spec("instruction_following").unwrap(), &[SpanId([1; 8])], true);
        let schema = Schema::compile(&form.schema);
        assert_eq!(schema.problem(), None);
        let fits = |value: &Value| schema.check(value).validity == Validity::Valid;
        let finding = json!({ "problem": "p", "span_id": "0101010101010101", "quote": "q",
            "category": "Goal Deviation", "severity": "low" });
        let answer = |score: Value, finding: &Value| json!({ "rationale": "r", "score": score, "findings": [finding] });
        assert!(fits(&answer(json!(3), &finding)));
        assert!(!fits(&answer(json!(0), &finding)) && !fits(&answer(json!("3"), &finding)));
        let mut other = finding.clone();
        other["span_id"] = json!("0202020202020202");
        assert!(!fits(&answer(json!(3), &other)));
    }
}
