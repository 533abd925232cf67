//! Langfuse: `POST api/public/ingestion` with `score-create` events.
//!
//! A score replaces the previous one with the same id. Langfuse ignores an event whose id it has received before,
//! so the id of an event is derived from its content and time. The response is 207 with a status per event. Scores may
//! arrive before their trace. Unmeasured verdicts have no number and are not sent.

use std::time::{Duration, UNIX_EPOCH};

use ::http::Method;
use serde_json::{Value, json};

use super::http::Api;
use super::ids;
use super::pending_scores::{PendingScores, SendResult};
use super::read::{Score, ScoreSubject};
use crate::export::response::{ExportResponse, ExportResult, one_line};

/// The largest number of events in a batch that Langfuse's documentation recommends.
const MAX_EVENTS: usize = 100;

pub(super) async fn send(api: &Api, scores: &PendingScores<'_>) -> SendResult {
    let unsent = scores.unsent();
    let events: Vec<(usize, Value)> =
        unsent.iter().filter_map(|(index, score)| Some((*index, event(score)?))).collect();
    scores.mark_delivered(unsent.iter().filter(|(_, score)| score.value.is_none()).map(|(index, _)| *index));
    for chunk in events.chunks(MAX_EVENTS) {
        let body = json!({ "batch": chunk.iter().map(|(_, event)| event).collect::<Vec<_>>() });
        let result = api.call(Method::POST, "api/public/ingestion", Some(&body)).await;
        let response = result.map_err(|refusal| refusal.response)?;
        let (mut pending, mut retryable) = (chunk.to_vec(), None);
        for error in response["errors"].as_array().into_iter().flatten() {
            // An error with an unknown id is attributed to an arbitrary event, so that the counts are right.
            let position = pending.iter().position(|(_, event)| event["id"] == error["id"]).unwrap_or(0);
            if position >= pending.len() {
                break;
            }
            let (score, _) = pending.swap_remove(position);
            let status = error["status"].as_u64().unwrap_or(0);
            let message = error["message"].as_str().or(error["error"].as_str()).unwrap_or_default();
            let reason = format!("status {status} for a score: {}", one_line(message));
            match status {
                408 | 429 | 500.. => retryable = Some(retry(reason)),
                _ => scores.mark_refused(score, reason),
            }
        }
        scores.mark_delivered(pending.iter().map(|(score, _)| *score));
        if let Some(response) = retryable {
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
    if score.subject == ScoreSubject::Span {
        body["observationId"] = score.span.to_string().into();
    }
    if let Some(comment) = &score.comment {
        body["comment"] = comment.as_str().into();
    }
    let evaluated_at = UNIX_EPOCH + Duration::from_nanos(score.evaluated_at_nanos);
    let timestamp = humantime::format_rfc3339_millis(evaluated_at).to_string();
    Some(json!({
        "id": ids::text_uuid(&format!("{timestamp} {body}")).to_string(),
        "type": "score-create",
        "timestamp": timestamp,
        "body": body,
    }))
}
