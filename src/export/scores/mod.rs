//! Exporters of type `scores`: they send verdicts through the API of an observability back end that does not read
//! evaluation events or attributes of spans.
//!
//! In: requests of evaluation events (`gen_ai.evaluation.result`) of closed traces. Out: requests to the API of
//! one back end. A repeated verdict replaces the previous one with the same name on the same span or trace. The
//! module of each back end and `docs/backends.md` describe by which mechanism.

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
pub(super) use ids::text_uuid;
pub use read::Normalize;
pub(super) use read::{Score, ScoreOutcome, ScoreSubject, all_scores, text};
