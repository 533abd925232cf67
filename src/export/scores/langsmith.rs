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
use super::sent::{Refused, Sent};
use crate::export::api::Refusal;

/// Requests in flight at the same time.
const CONCURRENT: usize = 8;

pub(super) async fn send(api: &Api, scores: &[Score]) -> Sent {
    let mut refused = Refused::default();
    for some in scores.chunks(CONCURRENT) {
        let mut requests = Vec::with_capacity(some.len());
        for score in some {
            requests.push(write(api, score));
        }
        for refusal in join_all(requests).await.into_iter().filter_map(Result::err) {
            refused.add(1, refusal.of_content()?);
        }
    }
    Ok(refused)
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
