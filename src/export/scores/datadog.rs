//! Datadog LLM Observability: `POST api/intake/llm-obs/v2/eval-metric`.
//!
//! The API has neither ids of evaluations nor a method that reads them, so that none can be updated: a repeated
//! evaluation has the same span, label and time as the first. The tag `source:otel` makes Datadog keep an evaluation
//! until the span that was sent over OTLP is stored, some 3 minutes later. Unmeasured verdicts have no number and are
//! not sent.

use ::http::Method;
use serde_json::{Value, json};

use super::http::Api;
use super::ids;
use super::pending_scores::{PendingScores, SendResult};
use super::read::{Score, ScoreSubject};

/// Limit on the evaluations in one request: the body stays below a megabyte.
const MAX_METRICS: usize = 500;

/// The application (`ml_app`, which is required) of evaluations whose spans have no service name.
const UNKNOWN_SERVICE: &str = "unknown_service";

pub(super) async fn send(api: &Api, scores: &PendingScores<'_>) -> SendResult {
    for chunk in scores.unsent().chunks(MAX_METRICS) {
        let metrics: Vec<Value> = chunk.iter().filter_map(|(_, score)| metric(score)).collect();
        if metrics.is_empty() {
            scores.mark_delivered(chunk.iter().map(|(index, _)| *index));
            continue;
        }
        let body = json!({ "data": { "type": "evaluation_metric", "attributes": { "metrics": metrics } } });
        let result = api.call(Method::POST, "api/intake/llm-obs/v2/eval-metric", Some(&body)).await;
        result.map_err(|refusal| refusal.response)?;
        scores.mark_delivered(chunk.iter().map(|(index, _)| *index));
    }
    Ok(())
}

fn metric(score: &Score) -> Option<Value> {
    let mut tags = vec!["source:otel".to_owned()];
    if !score.evaluator.is_empty() {
        tags.push(format!("evaluator:{}", score.evaluator));
    }
    let mut metric = json!({
        "join_on": { "span": {
            "span_id": ids::datadog_span_id(score.span),
            "trace_id": ids::datadog_trace_id(score.trace),
        } },
        "ml_app": score.service.as_deref().unwrap_or(UNKNOWN_SERVICE),
        "timestamp_ms": score.evaluated_at_nanos / 1_000_000,
        "metric_type": "score",
        "label": ids::datadog_label(&score.name),
        "score_value": score.value?,
        "assessment": score.outcome.as_str(),
        "eval_scope": if score.subject == ScoreSubject::Trace { "trace" } else { "span" },
        "tags": tags,
    });
    if let Some(comment) = &score.comment {
        metric["reasoning"] = comment.as_str().into();
    }
    Some(metric)
}
