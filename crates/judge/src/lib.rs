//! LLM judges: questions in, validated answers out, within limits and budgets.
//!
//! In: an [`Ask`](verdict_eval::Ask) of a metric, and the trace that it is about. Out: an
//! [`Answer`](verdict_eval::Answer) whose opinions fit the question's form, or the reason why there
//! is none. This crate does not know what is asked, and metrics do not know who answers.
//!
//! | file | what it does |
//! |---|---|
//! | `config`, `check` | `judges:` and `judging:`, and their validation |
//! | `judges` | all judges: who is asked, caches, recordings, reload |
//! | `judge_client` | one judge: reserve, wait, send, retry, validate, ask again |
//! | `provider`, `failure` | the interface to what answers, and its failures |
//! | `extensions` | dialects and providers that are added from outside |
//! | `http_provider`, `dialect`, `dialects` | the provider behind HTTP, and the JSON of its APIs |
//! | `request_limiter`, `breaker` | concurrency, rate, pauses; the circuit breaker |
//! | `budget` | tokens and money, by trace, hour and day |
//! | `answer_validator`, `logprobs` | texts against schemas; scores by probabilities |
//! | `answer_cache`, `disk_cache`, `cache_key` | each question is paid for once |
//! | `recording`, `record` | runs repeated offline; an answer as a line of JSON |
//!
//! # Providers of your own
//!
//! Implement [`Dialect`] for another HTTP API, or [`Provider`] for anything else, and register it with
//! [`JudgeExtensions`]. `tests/custom_provider.rs` does both.
//!
//! Requests to judges carry no trace context and make no spans, so that they are never judged.

#![deny(unreachable_pub)]

mod answer_cache;
mod answer_validator;
mod breaker;
mod budget;
mod cache_key;
mod check;
pub mod config;
mod dialect;
mod dialects;
mod disk_cache;
mod extensions;
mod failure;
mod http_provider;
mod judge_client;
mod judges;
mod lock;
mod logprobs;
mod provider;
mod record;
mod recording;
mod request_limiter;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use answer_validator::{AnswerValidator, InvalidAnswer, InvalidSchema};
pub use check::problems;
pub use config::{JudgeConfig, JudgeConfigs, JudgingConfig};
pub use dialect::Dialect;
pub use disk_cache::DiskCacheError;
pub use extensions::JudgeExtensions;
pub use failure::{Failure, FailureKind};
pub use judges::{JudgeError, Judges, JudgesBuilder};
pub use provider::{Correction, FinishReason, JudgeRequest, Provider, Reply, ReplyFuture, Token, TokenCount};
