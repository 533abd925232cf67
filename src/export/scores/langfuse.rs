//! Langfuse: `POST api/public/ingestion` with `score-create` events.
//!
//! A score is replaced by the next one with the same id. An event with an id that was seen before is ignored,
//! so the id of an event is made of its content and time. The response is 207 with a status per event. Scores may
//! arrive before their trace. Unmeasured verdicts have no number and are not sent.

use std::time::{Duration, UNIX_EPOCH};

use ::http::Method;
use serde_json::{Value, json};

use super::http::Api;
use super::ids;
use super::pending_scores::{Scores, Sent};
use super::read::{Score, ScoreSubject};
use crate::export::response::{ExportResponse, ExportResult, one_line};

/// Largest batch that Langfuse's documentation recommends.
const MAX_EVENTS: usize = 100;

pub(super) async fn send(api: &Api, scores: &Scores<'_>) -> Sent {
    let left = scores.left();
    let events: Vec<(usize, Value)> =
        left.iter().filter_map(|(at, score)| Some((*at, event(score)?))).collect();
    scores.mark_delivered(left.iter().filter(|(_, score)| score.value.is_none()).map(|(at, _)| *at));
    for chunk in events.chunks(MAX_EVENTS) {
        let body = json!({ "batch": chunk.iter().map(|(_, event)| event).collect::<Vec<_>>() });
        let sent = api.call(Method::POST, "api/public/ingestion", Some(&body)).await;
        let response = sent.map_err(|refusal| refusal.response)?;
        let (mut pending, mut failed) = (chunk.to_vec(), None);
        for error in response["errors"].as_array().into_iter().flatten() {
            // An error without a known id is about one of them.
            let at = pending.iter().position(|(_, event)| event["id"] == error["id"]).unwrap_or(0);
            if at >= pending.len() {
                break;
            }
            let (score, _) = pending.swap_remove(at);
            let status = error["status"].as_u64().unwrap_or(0);
            let message = error["message"].as_str().or(error["error"].as_str()).unwrap_or_default();
            let reason = format!("status {status} for a score: {}", one_line(message));
            match status {
                408 | 429 | 500.. => failed = Some(retry(reason)),
                _ => scores.refused(score, reason),
            }
        }
        scores.mark_delivered(pending.iter().map(|(score, _)| *score));
        if let Some(response) = failed {
            return Err(response);
        }
    }
    Ok(())
}

fn retry(reason: String) -> ExportResponse {
    ExportResult::Retry { after: None, reason }.into()
}

fn event(score: &Score) -> Option<Value> {
    let mut body = json!({
        "id": ids::score_uuid(score).to_string(),
        "traceId": score.trace.to_string(),
        "name": score.name,
        "value": score.value?,
        "dataType": "NUMERIC",
        "metadata": score.metadata,
    });
    if score.target == ScoreSubject::Span {
        body["observationId"] = score.span.to_string().into();
    }
    if let Some(comment) = &score.comment {
        body["comment"] = comment.as_str().into();
    }
    let evaluated = UNIX_EPOCH + Duration::from_nanos(score.evaluated);
    let timestamp = humantime::format_rfc3339_millis(evaluated).to_string();
    Some(json!({
        "id": ids::text_uuid(&format!("{timestamp} {body}")).to_string(),
        "type": "score-create",
        "timestamp": timestamp,
        "body": body,
    }))
}
