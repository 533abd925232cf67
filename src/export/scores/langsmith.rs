//! LangSmith: `POST api/v1/feedback`, one request per score.
//!
//! The id of a feedback is ours, so that a repeat is the same feedback: where it exists already (409), it is
//! updated (`PATCH api/v1/feedback/{id}`). The verdict of a trace is feedback of its root run.

use ::http::{Method, StatusCode};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::http::Api;
use super::ids;
use super::read::Score;
use super::sent::{Scores, Sent};
use crate::export::api::Refusal;
use crate::export::response::{ExportResponse, ExportResult};

/// Requests in flight at the same time.
const CONCURRENT: usize = 8;

pub(super) async fn send(api: &Api, scores: &Scores<'_>) -> Sent {
    for some in scores.left().chunks(CONCURRENT) {
        let requests = some.iter().map(|(_, score)| write(api, score));
        let mut failed = None;
        for ((at, _), result) in some.iter().zip(join_all(requests).await) {
            match result.map_err(Refusal::of_content) {
                Ok(()) => scores.taken([*at]),
                Err(Ok(reason)) => scores.refused(*at, reason),
                // The longest wait that it asks for.
                Err(Err(response)) => failed = Some(longer(failed, response)),
            }
        }
        if let Some(response) = failed {
            return Err(response);
        }
    }
    Ok(())
}

fn longer(a: Option<ExportResponse>, b: ExportResponse) -> ExportResponse {
    let wait = |of: &ExportResponse| match &of.result {
        ExportResult::Retry { after, .. } => Some(after.unwrap_or_default()),
        _ => None,
    };
    // What is not retried ends the request.
    match a {
        Some(a) if wait(&a).is_none() || wait(&b).is_some_and(|b| Some(b) < wait(&a)) => a,
        _ => b,
    }
}

async fn write(api: &Api, score: &Score) -> Result<(), Refusal> {
    let id = ids::of_score(score).to_string();
    let body = feedback(score, &id);
    match api.call(Method::POST, "api/v1/feedback", Some(&body)).await {
        Err(refusal) if refusal.status == Some(StatusCode::CONFLICT) => {
            let keys = ["score", "value", "comment"];
            let changed: Value = keys.iter().map(|key| (*key, body[*key].clone())).collect();
            api.call(Method::PATCH, &format!("api/v1/feedback/{id}"), Some(&changed)).await?;
            Ok(())
        }
        other => other.map(|_| ()),
    }
}

fn feedback(score: &Score, id: &str) -> Value {
    json!({
        "id": id,
        "run_id": ids::langsmith_run(score.span).to_string(),
        "key": score.name,
        "score": score.value,
        "value": score.outcome.as_str(),
        "comment": score.comment,
        "feedback_source": { "type": "api", "metadata": score.metadata },
    })
}
