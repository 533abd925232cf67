//! Phoenix: `POST v1/{span,trace,session}_annotations`.
//!
//! An annotation is replaced by the next one with the same name and identifier of the same span, trace or
//! session. Phoenix queues them (`sync=false`), so that a span which is not stored yet is no error. Read from
//! its routers `v1/spans.py`, `v1/traces.py` and `v1/sessions.py` (20.26).

use ::http::Method;
use serde_json::{Value, json};

use super::http::Api;
use super::pending_scores::{Scores, Sent};
use super::read::{Score, ScoreSubject};

/// Names our annotations among those of others.
const IDENTIFIER: &str = "otel-verdict";

/// Annotations of one request: the body stays below a megabyte.
const MAX_ANNOTATIONS: usize = 500;

pub(super) async fn send(api: &Api, scores: &Scores<'_>) -> Sent {
    let left = scores.left();
    let scores_for = |target| left.iter().filter(move |(_, score)| score.target == target);
    let spans = scores_for(ScoreSubject::Span)
        .map(|(at, score)| (Some(*at), annotation(score, "span_id", &score.span.to_string(), IDENTIFIER)));
    let traces = scores_for(ScoreSubject::Trace).map(|(at, score)| {
        // The annotation of the session follows.
        let at = Some(*at).filter(|_| score.session.is_none());
        (at, annotation(score, "trace_id", &score.trace.to_string(), IDENTIFIER))
    });
    let sessions = scores_for(ScoreSubject::Trace).filter_map(|(at, score)| {
        // A session has one verdict per trace.
        let identifier = format!("{IDENTIFIER}/{}", score.trace);
        let session = score.session.as_ref()?;
        Some((Some(*at), annotation(score, "session_id", session, &identifier)))
    });
    for (path, annotations) in [
        ("v1/span_annotations?sync=false", spans.collect::<Vec<_>>()),
        ("v1/trace_annotations?sync=false", traces.collect()),
        ("v1/session_annotations?sync=false", sessions.collect()),
    ] {
        for chunk in annotations.chunks(MAX_ANNOTATIONS) {
            let body = json!({ "data": chunk.iter().map(|(_, annotation)| annotation).collect::<Vec<_>>() });
            api.call(Method::POST, path, Some(&body)).await.map_err(|refusal| refusal.response)?;
            scores.mark_delivered(chunk.iter().filter_map(|(at, _)| *at));
        }
    }
    Ok(())
}

fn annotation(score: &Score, key: &str, id: &str, identifier: &str) -> Value {
    // Phoenix keeps the name "note" for notes, and refuses the whole request.
    let name = if score.name == "note" { "note_" } else { &score.name };
    let mut result = json!({ "label": score.outcome.as_str() });
    if let Some(value) = score.value {
        result["score"] = value.into();
    }
    if let Some(comment) = &score.comment {
        result["explanation"] = comment.as_str().into();
    }
    json!({
        key: id,
        "name": name,
        "annotator_kind": if score.by_llm { "LLM" } else { "CODE" },
        "result": result,
        "metadata": score.metadata,
        "identifier": identifier,
    })
}
