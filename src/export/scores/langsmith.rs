//! LangSmith: `POST api/v1/feedback`, one request per score.
//!
//! The client chooses the id of a feedback, so that a repeated score has the same id. If the feedback exists already
//! (409), it is updated (`PATCH api/v1/feedback/{id}`: score, value and comment). The verdict on a trace becomes
//! feedback on its root run. Without a root it becomes feedback on the topmost run, which is deleted once the verdict
//! on the root run has been sent.
//!
//! LangSmith's client for Python (0.15.1, `client.py`, `integrations/otel`) is the source of the paths, bodies, run
//! ids, the number of decimal places of a score, and the status 404 for a run that is not stored yet. `trace_id` is
//! optional: that client uses it to batch feedback. It does not show the status 409 for a known id of a feedback;
//! that is assumed from the API of runs.
//!
//! `session_id` is the id of the run's project. A deployment that uses only SmithDB answers 501 to feedback without
//! it; LangSmith's migration guide has the dates from which other deployments refuse such feedback, too. Spans do not
//! contain the name of their project, hence it is configured, and `GET api/v1/sessions` returns its id. LangSmith
//! creates a project with its first run.

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
use super::pending_scores::{PendingScores, SendResult};
use super::read::{Score, ScoreSubject};
use crate::export::api::Refusal;
use crate::export::response::{ExportResponse, ExportResult};

/// The project of the runs that scores are about.
#[derive(Debug)]
pub(super) struct Project {
    /// The configured name or id; empty if feedback is sent without a project.
    configured: String,
    /// The id of the project: the configured one, or the cached result of the request by name.
    id: Mutex<Option<Uuid>>,
}

impl Project {
    pub(super) fn new(configured: &str) -> Project {
        Project { configured: configured.to_owned(), id: Mutex::new(Uuid::try_parse(configured).ok()) }
    }

    fn lock_id(&self) -> MutexGuard<'_, Option<Uuid>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the project, requested by name if it is not cached; `None` if no project is configured.
    async fn id(&self, api: &Api) -> Result<Option<Uuid>, ExportResponse> {
        let cached_id = *self.lock_id();
        if cached_id.is_some() || self.configured.is_empty() {
            return Ok(cached_id);
        }
        let query = [("name", &*self.configured), ("limit", "1"), ("include_stats", "false")];
        let url = Url::parse_with_params("http://langsmith", query);
        let path = format!("api/v1/sessions?{}", url.as_ref().ok().and_then(Url::query).unwrap_or_default());
        let projects =
            api.call(Method::GET, &path, None).await.map_err(|refusal| refusal.into_retryable().response)?;
        let id = projects[0]["id"].as_str().and_then(|id| Uuid::try_parse(id).ok());
        let absent = || format!("there is no project '{}' yet", self.configured);
        let id = id.ok_or_else(|| ExportResult::Retry { after: None, reason: absent() })?;
        *self.lock_id() = Some(id);
        Ok(Some(id))
    }

    /// Removes the cached id: the project may have been deleted, and another one created with the same name.
    fn clear_cached_id(&self) {
        *self.lock_id() = Uuid::try_parse(&self.configured).ok();
    }
}

/// Limit on the requests in flight.
const MAX_CONCURRENT_REQUESTS: usize = 8;

/// Limit on the entries of [`RootlessRuns`]. If a root arrives for a trace without an entry, the feedback on the
/// previous topmost run is not deleted.
const MAX_ROOTLESS_TRACES: usize = 10_000;

/// The run with the feedback on each trace without a root.
#[derive(Debug, Default)]
pub(super) struct RootlessRuns(Mutex<HashMap<TraceId, SpanId>>);

impl RootlessRuns {
    fn lock(&self) -> MutexGuard<'_, HashMap<TraceId, SpanId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, trace: TraceId, span: Option<SpanId>) {
        let mut runs = self.lock();
        match span {
            Some(span) => {
                if runs.len() >= MAX_ROOTLESS_TRACES {
                    runs.clear();
                }
                runs.insert(trace, span);
            }
            None => _ = runs.remove(&trace),
        }
    }
}

pub(super) async fn send(
    api: &Api,
    project: &Project,
    rootless_runs: &RootlessRuns,
    scores: &PendingScores<'_>,
) -> SendResult {
    let mut missing_run = None;
    let unsent = scores.unsent();
    let project_id = if unsent.is_empty() { None } else { project.id(api).await? };
    for chunk in unsent.chunks(MAX_CONCURRENT_REQUESTS) {
        let requests = chunk.iter().map(|(_, score)| send_score(api, project_id, rootless_runs, score));
        let mut failed = None;
        for ((index, _), result) in chunk.iter().zip(join_all(requests).await) {
            match result {
                Ok(()) => scores.mark_delivered([*index]),
                // The run may not be stored yet. The scores of other runs do not wait for it.
                Err(refusal) if refusal.status == Some(StatusCode::NOT_FOUND) => {
                    missing_run.get_or_insert(refusal.into_retryable().response);
                }
                Err(refusal)
                    if refusal.status == Some(StatusCode::NOT_IMPLEMENTED) && project_id.is_none() =>
                {
                    failed = Some(refusal.into_permanent("`project` is required here"));
                }
                Err(refusal) => match refusal.content_refusal() {
                    Ok(reason) => scores.mark_refused(*index, reason),
                    Err(response) => failed = Some(longer_wait(failed, response)),
                },
            }
        }
        if let Some(response) = failed {
            return Err(response);
        }
    }
    if missing_run.is_some() {
        project.clear_cached_id();
    }
    missing_run.map_or(Ok(()), Err)
}

/// The response with the longer `Retry-After`; a response that is not retryable takes precedence.
fn longer_wait(a: Option<ExportResponse>, b: ExportResponse) -> ExportResponse {
    let wait = |response: &ExportResponse| match &response.result {
        ExportResult::Retry { after, .. } => Some(after.unwrap_or_default()),
        _ => None,
    };
    match a {
        Some(a) if wait(&a).is_none() || wait(&b).is_some_and(|b| Some(b) < wait(&a)) => a,
        _ => b,
    }
}

/// Creates or updates the feedback for a score. Deletes the feedback on the previous topmost run of a trace if the
/// verdict has moved to another run.
async fn send_score(
    api: &Api,
    project_id: Option<Uuid>,
    rootless_runs: &RootlessRuns,
    score: &Score,
) -> Result<(), Refusal> {
    if score.subject == ScoreSubject::Span {
        return create(api, project_id, score, &ids::score_uuid(score).to_string()).await;
    }
    let mut id = ids::score_uuid(score);
    if score.is_rootless {
        // If the root was in an earlier revision of the trace, its feedback exists and is updated.
        match update(api, score, &id.to_string()).await {
            Err(refusal) if refusal.status == Some(StatusCode::NOT_FOUND) => {}
            result => return result,
        }
        id = ids::trace_score_uuid(score, score.span);
    }
    create(api, project_id, score, &id.to_string()).await?;
    let previous_run = rootless_runs.lock().get(&score.trace).copied();
    if let Some(previous_run) = previous_run.filter(|run| !score.is_rootless || *run != score.span) {
        let path = format!("api/v1/feedback/{}", ids::trace_score_uuid(score, previous_run));
        match api.call(Method::DELETE, &path, None).await {
            Err(refusal) if refusal.status != Some(StatusCode::NOT_FOUND) => return Err(refusal),
            _ => {}
        }
    }
    rootless_runs.set(score.trace, Some(score.span).filter(|_| score.is_rootless));
    Ok(())
}

/// Creates the feedback, or updates it if it exists.
async fn create(api: &Api, project_id: Option<Uuid>, score: &Score, id: &str) -> Result<(), Refusal> {
    let mut body = feedback(score, id);
    if let Some(project_id) = project_id {
        body["session_id"] = project_id.to_string().into();
    }
    match api.call(Method::POST, "api/v1/feedback", Some(&body)).await {
        Err(refusal) if refusal.status == Some(StatusCode::CONFLICT) => update(api, score, id).await,
        result => result.map(|_| ()),
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
        "run_id": ids::langsmith_run_id(score.span).to_string(),
        "key": score.name,
        // LangSmith refuses more than four decimal places.
        "score": score.value.map(|value| (value * 1e4).round() / 1e4),
        "value": score.outcome.as_str(),
        "comment": score.comment,
        "feedback_source": { "type": "api", "metadata": score.metadata },
    })
}
