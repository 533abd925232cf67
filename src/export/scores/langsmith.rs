//! LangSmith: `POST api/v1/feedback`, one request per score.
//!
//! The id of a feedback is ours, so that a repeat is the same feedback: where it exists already (409), it is
//! updated (`PATCH api/v1/feedback/{id}`: score, value and comment). The verdict of a trace is feedback of its root
//! run. Of a trace without a root it is feedback of the topmost run, removed when the root's follows.
//!
//! Read from LangSmith's client for Python (0.15.1, `client.py`, `integrations/otel`): paths, bodies, run ids, the
//! places of a score, and that a run that is not stored yet is 404. `trace_id` is optional; that client sends
//! feedback together by it. That a known id is 409 is not written there: it is so for runs.
//!
//! `session_id` is the id of the run's project. A deployment on SmithDB alone answers 501 to feedback without it, and
//! LangSmith's guide to the migration has the dates from which no other one takes such feedback. Spans do not name
//! their project, hence it is configured; `GET api/v1/sessions` has the id of a name. A project is created by
//! its first run.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::http::{Method, StatusCode};
use futures_util::future::join_all;
use reqwest::Url;
use serde_json::{Value, json};
use uuid::Uuid;
use verdict_otlp::trace::{SpanId, TraceId};

use super::http::Api;
use super::ids;
use super::pending_scores::{Scores, Sent};
use super::read::{Score, ScoreSubject};
use crate::export::api::Refusal;
use crate::export::response::{ExportResponse, ExportResult};

/// The project of the runs.
#[derive(Debug)]
pub(super) struct Project {
    /// The name or the id of the project; empty if feedback is sent without it.
    configured: String,
    /// The id of the project, once known.
    id: Mutex<Option<Uuid>>,
}

impl Project {
    pub(super) fn new(configured: &str) -> Project {
        Project { configured: configured.to_owned(), id: Mutex::new(Uuid::try_parse(configured).ok()) }
    }

    fn lock_id(&self) -> MutexGuard<'_, Option<Uuid>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the project; asks for it if it is not known.
    async fn id(&self, api: &Api) -> Result<Option<Uuid>, ExportResponse> {
        let cached_id = *self.lock_id();
        if cached_id.is_some() || self.configured.is_empty() {
            return Ok(cached_id);
        }
        let query = [("name", &*self.configured), ("limit", "1"), ("include_stats", "false")];
        let url = Url::parse_with_params("http://langsmith", query);
        let path = format!("api/v1/sessions?{}", url.as_ref().ok().and_then(Url::query).unwrap_or_default());
        let found =
            api.call(Method::GET, &path, None).await.map_err(|refusal| refusal.into_retryable().response)?;
        let id = found[0]["id"].as_str().and_then(|id| Uuid::try_parse(id).ok());
        let absent = || format!("there is no project '{}' yet", self.configured);
        let id = id.ok_or_else(|| ExportResult::Retry { after: None, reason: absent() })?;
        *self.lock_id() = Some(id);
        Ok(Some(id))
    }

    /// One of that name may have taken the place of one that was deleted.
    fn forget(&self) {
        *self.lock_id() = Uuid::try_parse(&self.configured).ok();
    }
}

/// Requests in flight at the same time.
const CONCURRENT: usize = 8;
/// Traces without a root that are remembered. Of others the earlier feedback stays when their root comes.
const MAX_ROOTLESS: usize = 10_000;

/// The runs that have the verdict of a trace without a root.
#[derive(Debug, Default)]
pub(super) struct Rootless(Mutex<HashMap<TraceId, SpanId>>);

impl Rootless {
    fn lock(&self) -> MutexGuard<'_, HashMap<TraceId, SpanId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, trace: TraceId, span: Option<SpanId>) {
        let mut roots = self.lock();
        match span {
            Some(span) => {
                if roots.len() >= MAX_ROOTLESS {
                    roots.clear();
                }
                roots.insert(trace, span);
            }
            None => _ = roots.remove(&trace),
        }
    }
}

pub(super) async fn send(api: &Api, project: &Project, rootless: &Rootless, scores: &Scores<'_>) -> Sent {
    let mut missing = None;
    let left = scores.left();
    let session = if left.is_empty() { None } else { project.id(api).await? };
    for chunk in left.chunks(CONCURRENT) {
        let requests = chunk.iter().map(|(_, score)| write(api, session, rootless, score));
        let mut failed = None;
        for ((at, _), result) in chunk.iter().zip(join_all(requests).await) {
            match result {
                Ok(()) => scores.mark_delivered([*at]),
                // The run may come yet; other runs do not wait for it.
                Err(refusal) if refusal.status == Some(StatusCode::NOT_FOUND) => {
                    missing.get_or_insert(refusal.into_retryable().response);
                }
                Err(refusal) if refusal.status == Some(StatusCode::NOT_IMPLEMENTED) && session.is_none() => {
                    failed = Some(refusal.into_permanent("`project` is required here"));
                }
                Err(refusal) => match refusal.content_refusal() {
                    Ok(reason) => scores.refused(*at, reason),
                    Err(response) => failed = Some(longer(failed, response)),
                },
            }
        }
        if let Some(response) = failed {
            return Err(response);
        }
    }
    if missing.is_some() {
        project.forget();
    }
    missing.map_or(Ok(()), Err)
}

/// The response that asks for the longer wait, or that ends the request.
fn longer(a: Option<ExportResponse>, b: ExportResponse) -> ExportResponse {
    let wait = |response: &ExportResponse| match &response.result {
        ExportResult::Retry { after, .. } => Some(after.unwrap_or_default()),
        _ => None,
    };
    match a {
        Some(a) if wait(&a).is_none() || wait(&b).is_some_and(|b| Some(b) < wait(&a)) => a,
        _ => b,
    }
}

async fn write(api: &Api, session: Option<Uuid>, rootless: &Rootless, score: &Score) -> Result<(), Refusal> {
    if score.target == ScoreSubject::Span {
        return create(api, session, score, &ids::score_uuid(score).to_string()).await;
    }
    let mut id = ids::score_uuid(score);
    if score.rootless {
        // Late spans revise the verdict of the root, which was sent before them.
        match update(api, score, &id.to_string()).await {
            Err(refusal) if refusal.status == Some(StatusCode::NOT_FOUND) => {}
            updated => return updated,
        }
        id = ids::trace_score_uuid(score, score.span);
    }
    create(api, session, score, &id.to_string()).await?;
    let before = rootless.lock().get(&score.trace).copied();
    if let Some(before) = before.filter(|before| !score.rootless || *before != score.span) {
        let path = format!("api/v1/feedback/{}", ids::trace_score_uuid(score, before));
        match api.call(Method::DELETE, &path, None).await {
            Err(refusal) if refusal.status != Some(StatusCode::NOT_FOUND) => return Err(refusal),
            _ => {}
        }
    }
    rootless.set(score.trace, Some(score.span).filter(|_| score.rootless));
    Ok(())
}

/// Creates the feedback, or updates it if it exists.
async fn create(api: &Api, session: Option<Uuid>, score: &Score, id: &str) -> Result<(), Refusal> {
    let mut body = feedback(score, id);
    if let Some(session) = session {
        body["session_id"] = session.to_string().into();
    }
    match api.call(Method::POST, "api/v1/feedback", Some(&body)).await {
        Err(refusal) if refusal.status == Some(StatusCode::CONFLICT) => update(api, score, id).await,
        other => other.map(|_| ()),
    }
}

async fn update(api: &Api, score: &Score, id: &str) -> Result<(), Refusal> {
    let body = feedback(score, id);
    let keys = ["score", "value", "comment"];
    let changed: Value = keys.iter().map(|key| (*key, body[*key].clone())).collect();
    api.call(Method::PATCH, &format!("api/v1/feedback/{id}"), Some(&changed)).await.map(|_| ())
}

fn feedback(score: &Score, id: &str) -> Value {
    json!({
        "id": id,
        "run_id": ids::langsmith_run(score.span).to_string(),
        "key": score.name,
        // More than four places are refused.
        "score": score.value.map(|value| (value * 1e4).round() / 1e4),
        "value": score.outcome.as_str(),
        "comment": score.comment,
        "feedback_source": { "type": "api", "metadata": score.metadata },
    })
}
