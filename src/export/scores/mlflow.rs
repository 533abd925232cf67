//! MLflow: `POST api/3.0/mlflow/traces/{trace}/assessments`.
//!
//! MLflow gives each assessment its id, so those of the trace are read first: one of the same name, span and
//! source is updated (`PATCH`), unless it is equal. A trace that MLflow does not have yet is retried. Read from
//! `mlflow/protos/assessments.proto` and `server/handlers.py` (3.17).

use std::time::{Duration, UNIX_EPOCH};

use ::http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use verdict_otlp::trace::TraceId;

use super::http::Api;
use super::ids;
use super::pending_scores::{Scores, Sent};
use super::read::{Score, ScoreOutcome, ScoreSubject};
use crate::export::api::Refusal;

/// Begins the source of our assessments.
const SOURCE: &str = "otel-verdict";

/// One request reads the assessments of a trace and writes those that are missing; two at the same time would
/// both write them. Traces share the locks.
#[derive(Debug, Default)]
pub(super) struct Locks([Mutex<()>; 32]);

impl Locks {
    fn for_trace(&self, trace: TraceId) -> &Mutex<()> {
        let [.., last] = trace.0;
        &self.0[usize::from(last) % self.0.len()]
    }
}

pub(super) async fn send(api: &Api, locks: &Locks, scores: &Scores<'_>) -> Sent {
    let mut missing = None;
    // The scores of a trace are in one parcel, hence together.
    for trace_scores in scores.left().chunk_by(|(_, a), (_, b)| a.trace == b.trace) {
        let Some((_, first)) = trace_scores.first() else { continue };
        let trace = ids::mlflow_trace(first.trace);
        let _only = locks.for_trace(first.trace).lock().await;
        let info = match api.call(Method::GET, &format!("api/3.0/mlflow/traces/{trace}"), None).await {
            Ok(info) => info,
            // MLflow may never receive this trace; the other traces do not wait for it.
            Err(refusal) if refusal.status == Some(StatusCode::NOT_FOUND) => {
                missing.get_or_insert(refusal.into_retryable().response);
                continue;
            }
            Err(refusal) => return Err(refusal.response),
        };
        let existing = &info["trace"]["trace_info"]["assessments"];
        for (at, score) in trace_scores {
            let wanted = assessment(score, &trace);
            let previous =
                existing.as_array().into_iter().flatten().find(|candidate| is_same(candidate, &wanted));
            match write(api, &trace, wanted, previous).await {
                Ok(()) => scores.mark_delivered([*at]),
                Err(refusal) => scores.refused(*at, refusal.content_refusal()?),
            }
        }
    }
    missing.map_or(Ok(()), Err)
}

/// Creates an assessment, or updates the one that exists.
async fn write(api: &Api, trace: &str, wanted: Value, exists: Option<&Value>) -> Result<(), Refusal> {
    let path = format!("api/3.0/mlflow/traces/{trace}/assessments");
    let Some(exists) = exists else {
        api.call(Method::POST, &path, Some(&json!({ "assessment": wanted }))).await?;
        return Ok(());
    };
    let value = |assessment: &Value| assessment["feedback"]["value"].as_f64();
    let equal = value(exists) == value(&wanted)
        && exists["feedback"]["error"] == wanted["feedback"]["error"]
        && exists["rationale"] == wanted["rationale"]
        && exists["metadata"] == wanted["metadata"];
    if equal {
        return Ok(());
    }
    let id = exists["assessment_id"].as_str().unwrap_or_default();
    let body = json!({ "assessment": wanted, "update_mask": "feedback,rationale,metadata" });
    api.call(Method::PATCH, &format!("{path}/{id}"), Some(&body)).await?;
    Ok(())
}

/// Whether an assessment of MLflow is a previous one of ours. Its source names the evaluator, which may have
/// changed.
fn is_same(existing: &Value, wanted: &Value) -> bool {
    let source = existing["source"]["source_id"].as_str().unwrap_or_default();
    let ours = source == SOURCE || source.strip_prefix(SOURCE).is_some_and(|rest| rest.starts_with('/'));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ours && existing["assessment_name"] == wanted["assessment_name"]
        && text(&existing["span_id"]) == text(&wanted["span_id"])
        && existing["assessment_id"].is_string()
}

fn assessment(score: &Score, trace: &str) -> Value {
    let source = match score.evaluator.as_str() {
        "" => SOURCE.to_owned(),
        evaluator => format!("{SOURCE}/{evaluator}"),
    };
    let mut feedback = json!({});
    match (score.outcome, score.value) {
        (ScoreOutcome::Unmeasured, _) | (_, None) => {
            let reason = score.metadata.get("reason").or(score.metadata.get("error_type"));
            feedback["error"] = json!({
                "error_code": "unmeasured",
                "error_message": reason.and_then(|r| r.as_str()).unwrap_or("the metric was not measured"),
            });
        }
        (_, Some(value)) => feedback["value"] = value.into(),
    }
    // Its values are strings.
    let metadata: Map<String, Value> = score
        .metadata
        .iter()
        .map(|(key, value)| match value {
            Value::String(text) => (key.clone(), text.as_str().into()),
            other => (key.clone(), other.to_string().into()),
        })
        .collect();
    let mut assessment = json!({
        "assessment_name": ids::mlflow_name(&score.name),
        "trace_id": trace,
        "source": {
            "source_type": if score.by_llm { "LLM_JUDGE" } else { "CODE" },
            "source_id": source,
        },
        "create_time": time(score.evaluated),
        "feedback": feedback,
        "metadata": metadata,
    });
    if score.target == ScoreSubject::Span {
        assessment["span_id"] = score.span.to_string().into();
    }
    if let Some(comment) = &score.comment {
        assessment["rationale"] = comment.as_str().into();
    }
    assessment
}

fn time(nanos: u64) -> Value {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(nanos)).to_string().into()
}
