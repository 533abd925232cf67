//! Phoenix: `POST v1/{span,trace,session}_annotations`.
//!
//! An annotation replaces the previous one with the same name and identifier on the same span, trace or session.
//! Phoenix queues annotations (`sync=false`), so that it accepts them for spans that it has not stored yet. The API is
//! defined in its routers `v1/spans.py`, `v1/traces.py` and `v1/sessions.py` (20.26).

use ::http::Method;
use serde_json::{Value, json};

use super::http::Api;
use super::pending_scores::{PendingScores, SendResult};
use super::read::{Score, ScoreSubject};

/// The identifier of annotations, which keeps them apart from annotations of other programs with the same name.
const IDENTIFIER: &str = "otel-verdict";

/// Limit on the annotations in one request: the body stays below a megabyte.
const MAX_ANNOTATIONS: usize = 500;

pub(super) async fn send(api: &Api, scores: &PendingScores<'_>) -> SendResult {
    let unsent = scores.unsent();
    let scores_for = |subject| unsent.iter().filter(move |(_, score)| score.subject == subject);
    let spans = scores_for(ScoreSubject::Span).map(|(index, score)| {
        (Some(*index), annotation(score, "span_id", &score.span.to_string(), IDENTIFIER))
    });
    let traces = scores_for(ScoreSubject::Trace).map(|(index, score)| {
        // The score of a trace with a session is delivered with the annotation of the session, which is sent later.
        let index = Some(*index).filter(|_| score.session.is_none());
        (index, annotation(score, "trace_id", &score.trace.to_string(), IDENTIFIER))
    });
    let sessions = scores_for(ScoreSubject::Trace).filter_map(|(index, score)| {
        // The verdict on each trace of a session is an annotation of its own.
        let identifier = format!("{IDENTIFIER}/{}", score.trace);
        let session = score.session.as_ref()?;
        Some((Some(*index), annotation(score, "session_id", session, &identifier)))
    });
    for (path, annotations) in [
        ("v1/span_annotations?sync=false", spans.collect::<Vec<_>>()),
        ("v1/trace_annotations?sync=false", traces.collect()),
        ("v1/session_annotations?sync=false", sessions.collect()),
    ] {
        for chunk in annotations.chunks(MAX_ANNOTATIONS) {
            let body = json!({ "data": chunk.iter().map(|(_, annotation)| annotation).collect::<Vec<_>>() });
            api.call(Method::POST, path, Some(&body)).await.map_err(|refusal| refusal.response)?;
            scores.mark_delivered(chunk.iter().filter_map(|(index, _)| *index));
        }
    }
    Ok(())
}

fn annotation(score: &Score, key: &str, id: &str, identifier: &str) -> Value {
    // Phoenix reserves the name "note" and refuses a whole request that contains it.
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
        "annotator_kind": if score.is_llm_judged { "LLM" } else { "CODE" },
        "result": result,
        "metadata": score.metadata,
        "identifier": identifier,
    })
}
