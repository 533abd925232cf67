//! Verdicts as scores of observability back ends, through their own APIs: back ends that do not read
//! evaluation events or attributes of spans.
//!
//! In: requests of evaluation events (`gen_ai.evaluation.result`) of closed traces. Out: requests to the API of
//! one back end. A repeated verdict replaces the previous one of the same name about the same span or trace:
//! each back end has its own way, described in its file and in `docs/backends.md`.

mod check;
mod client;
mod datadog;
mod http;
mod ids;
mod langfuse;
mod langsmith;
mod mlflow;
mod phoenix;
mod read;
mod pending_scores;

pub(super) use client::ScoresClient;
pub(super) use ids::text_uuid as id_of_text;
pub use read::Normalize;
pub(super) use read::{Score, ScoreOutcome, ScoreSubject, all_scores, text};
