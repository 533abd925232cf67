//! Datadog LLM Observability: `POST api/intake/llm-obs/v2/eval-metric`.
//!
//! The API has neither ids nor a way to read evaluations, so that an update cannot be requested: a repeat
//! has the same span, label and time as before. The tag `source:otel` makes Datadog keep an evaluation until
//! the span of OTLP has arrived, some 3 minutes later. Unmeasured verdicts have no number and are not sent.

use ::http::Method;
use serde_json::{Value, json};

use super::http::Api;
use super::ids;
use super::pending_scores::{Scores, Sent};
use super::read::{Score, ScoreSubject};

/// Evaluations of one request: the body stays below a megabyte.
const MAX_METRICS: usize = 500;

/// Datadog files evaluations by application; this one is of spans without a service.
const NO_SERVICE: &str = "unknown_service";

pub(super) async fn send(api: &Api, scores: &Scores<'_>) -> Sent {
    for chunk in scores.left().chunks(MAX_METRICS) {
        let metrics: Vec<Value> = chunk.iter().filter_map(|(_, score)| metric(score)).collect();
        if metrics.is_empty() {
            scores.mark_delivered(chunk.iter().map(|(at, _)| *at));
            continue;
        }
        let body = json!({ "data": { "type": "evaluation_metric", "attributes": { "metrics": metrics } } });
        let sent = api.call(Method::POST, "api/intake/llm-obs/v2/eval-metric", Some(&body)).await;
        sent.map_err(|refusal| refusal.response)?;
        scores.mark_delivered(chunk.iter().map(|(at, _)| *at));
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
            "span_id": ids::datadog_span(score.span),
            "trace_id": ids::datadog_trace(score.trace),
        } },
        "ml_app": score.service.as_deref().unwrap_or(NO_SERVICE),
        "timestamp_ms": score.evaluated / 1_000_000,
        "metric_type": "score",
        "label": ids::datadog_label(&score.name),
        "score_value": score.value?,
        "assessment": score.outcome.as_str(),
        "eval_scope": if score.target == ScoreSubject::Trace { "trace" } else { "span" },
        "tags": tags,
    });
    if let Some(comment) = &score.comment {
        metric["reasoning"] = comment.as_str().into();
    }
    Some(metric)
}
