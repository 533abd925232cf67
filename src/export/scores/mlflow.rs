//! MLflow: `POST api/3.0/mlflow/traces/{trace}/assessments`.
//!
//! MLflow generates the id of an assessment, so the assessments of the trace are read first: an assessment with the
//! same name, span and source is updated (`PATCH`), unless it is equal. Scores of a trace that MLflow has not stored
//! yet are retried. The API is defined in `mlflow/protos/assessments.proto` and `server/handlers.py` (3.17).

use std::time::{Duration, UNIX_EPOCH};

use ::http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use verdict_otlp::trace::TraceId;

use super::http::Api;
use super::ids;
use super::pending_scores::{PendingScores, SendResult};
use super::read::{Score, ScoreOutcome, ScoreSubject};
use crate::export::api::Refusal;

/// The source of assessments, alone or followed by a slash and the evaluator.
const SOURCE_PREFIX: &str = "otel-verdict";

/// Locks by trace, in a fixed number of shards. They make reading the assessments of a trace and creating the missing
/// ones atomic: two concurrent requests would both create them.
#[derive(Debug, Default)]
pub(super) struct TraceLocks([Mutex<()>; 32]);

impl TraceLocks {
    fn for_trace(&self, trace: TraceId) -> &Mutex<()> {
        let [.., last_byte] = trace.0;
        &self.0[usize::from(last_byte) % self.0.len()]
    }
}

pub(super) async fn send(api: &Api, locks: &TraceLocks, scores: &PendingScores<'_>) -> SendResult {
    let mut missing_trace = None;
    // The scores of a trace are adjacent: they are in one parcel.
    for trace_scores in scores.unsent().chunk_by(|(_, a), (_, b)| a.trace == b.trace) {
        let Some((_, first)) = trace_scores.first() else { continue };
        let trace = ids::mlflow_trace_id(first.trace);
        let _guard = locks.for_trace(first.trace).lock().await;
        let info = match api.call(Method::GET, &format!("api/3.0/mlflow/traces/{trace}"), None).await {
            Ok(info) => info,
            // MLflow may never receive this trace. The scores of other traces do not wait for it.
            Err(refusal) if refusal.status == Some(StatusCode::NOT_FOUND) => {
                missing_trace.get_or_insert(refusal.into_retryable().response);
                continue;
            }
            Err(refusal) => return Err(refusal.response),
        };
        let existing = &info["trace"]["trace_info"]["assessments"];
        for (index, score) in trace_scores {
            let assessment = assessment(score, &trace);
            let previous = existing
                .as_array()
                .into_iter()
                .flatten()
                .find(|candidate| is_previous(candidate, &assessment));
            match create_or_update(api, &trace, assessment, previous).await {
                Ok(()) => scores.mark_delivered([*index]),
                Err(refusal) => scores.mark_refused(*index, refusal.content_refusal()?),
            }
        }
    }
    missing_trace.map_or(Ok(()), Err)
}

/// Creates an assessment, or updates `previous` unless it is equal.
async fn create_or_update(
    api: &Api,
    trace: &str,
    assessment: Value,
    previous: Option<&Value>,
) -> Result<(), Refusal> {
    let path = format!("api/3.0/mlflow/traces/{trace}/assessments");
    let Some(previous) = previous else {
        api.call(Method::POST, &path, Some(&json!({ "assessment": assessment }))).await?;
        return Ok(());
    };
    let value = |assessment: &Value| assessment["feedback"]["value"].as_f64();
    let is_equal = value(previous) == value(&assessment)
        && previous["feedback"]["error"] == assessment["feedback"]["error"]
        && previous["rationale"] == assessment["rationale"]
        && previous["metadata"] == assessment["metadata"];
    if is_equal {
        return Ok(());
    }
    let id = previous["assessment_id"].as_str().unwrap_or_default();
    let body = json!({ "assessment": assessment, "update_mask": "feedback,rationale,metadata" });
    api.call(Method::PATCH, &format!("{path}/{id}"), Some(&body)).await?;
    Ok(())
}

/// Whether `existing`, which MLflow returned, is an earlier version of `assessment`. The evaluator in its source is
/// not compared, since it may have changed.
fn is_previous(existing: &Value, assessment: &Value) -> bool {
    let source = existing["source"]["source_id"].as_str().unwrap_or_default();
    let is_own_source = source == SOURCE_PREFIX
        || source.strip_prefix(SOURCE_PREFIX).is_some_and(|suffix| suffix.starts_with('/'));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    is_own_source
        && existing["assessment_name"] == assessment["assessment_name"]
        && text(&existing["span_id"]) == text(&assessment["span_id"])
        && existing["assessment_id"].is_string()
}

fn assessment(score: &Score, trace: &str) -> Value {
    let source = match score.evaluator.as_str() {
        "" => SOURCE_PREFIX.to_owned(),
        evaluator => format!("{SOURCE_PREFIX}/{evaluator}"),
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
    // MLflow accepts only strings as values of metadata.
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
            "source_type": if score.is_llm_judged { "LLM_JUDGE" } else { "CODE" },
            "source_id": source,
        },
        "create_time": timestamp(score.evaluated_at_nanos),
        "feedback": feedback,
        "metadata": metadata,
    });
    if score.subject == ScoreSubject::Span {
        assessment["span_id"] = score.span.to_string().into();
    }
    if let Some(comment) = &score.comment {
        assessment["rationale"] = comment.as_str().into();
    }
    assessment
}

fn timestamp(nanos: u64) -> Value {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(nanos)).to_string().into()
}
