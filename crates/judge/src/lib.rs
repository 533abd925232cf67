//! LLM judges: questions in, validated answers out, within limits and budgets.
//!
//! In: an [`Ask`](verdict_eval::questions::Ask) of a metric, and the id of the trace. Out: an
//! [`Answer`](verdict_eval::questions::Answer) whose opinions match the question's form, or the reason for having none.
//! This crate does not depend on the content of questions, and metrics do not depend on judges.
//!
//! | file | content |
//! |---|---|
//! | `config`, `check` | `judges:` and `judging:`, and their validation |
//! | `judges` | all judges: selection, samples, recordings, reload |
//! | `cascade` | a small judge first, a strong one where it does not suffice |
//! | `judge_client`, `read_reply` | one judge: reserve, wait, send, retry, validate, ask again |
//! | `prepared_question` | a question with its validator and keys |
//! | `provider`, `failure`, `server_message` | the interface of providers, failures of requests and their messages |
//! | `request_shape` | the optional parts of a request, without those that the server refuses |
//! | `extensions` | custom dialects and providers |
//! | `http_provider`, `dialect`, `dialects` | the HTTP provider, and the JSON of its APIs |
//! | `request_limiter`, `breaker`, `outage` | concurrency, rate, pauses; the circuit breaker; waiting in commands |
//! | `tally` | results of the questions to each judge |
//! | `budget` | limits in tokens and USD, per trace, hour and day |
//! | `spending` | the file of spending, for the next start |
//! | `answer_validator`, `logprobs` | validation of answers; scores weighted by probabilities |
//! | `answer_cache`, `disk_cache`, `cache_key` | cached answers in memory and on disk |
//! | `recording`, `record` | recorded answers; an answer as a line of JSON |
//! | `lock`, `gauge_guard` | locking of mutexes; a gauge of requests or questions in progress |
//!
//! # Custom providers
//!
//! Implement [`Dialect`] for another HTTP API, or [`Provider`] for any other kind of judge, and register it
//! with [`JudgeExtensions`]. `tests/custom_provider.rs` contains an example of each.
//!
//! Requests to judges have no trace context and create no spans, so that they are never evaluated.

#![deny(unreachable_pub)]

mod answer_cache;
mod answer_validator;
mod breaker;
mod budget;
mod cache_key;
mod cascade;
mod check;
pub mod config;
mod dialect;
mod dialects;
mod disk_cache;
mod extensions;
mod failure;
mod gauge_guard;
mod http_provider;
mod judge_client;
mod judges;
mod lock;
mod logprobs;
mod outage;
mod prepared_question;
mod provider;
mod read_reply;
mod record;
mod recording;
mod request_limiter;
mod request_shape;
mod server_message;
mod spending;
mod tally;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use answer_validator::{AnswerValidator, InvalidAnswer, InvalidSchema};
pub use cascade::{CascadeCost, CascadeReport};
pub use check::problems;
pub use config::{CascadeConfig, JudgeConfig, JudgeConfigs, JudgingConfig, ReasoningEffort};
pub use dialect::Dialect;
pub use dialects::EVALUATOR;
pub use disk_cache::DiskCacheError;
pub use extensions::JudgeExtensions;
pub use failure::{Failure, FailureKind};
pub use judges::{BatchMode, JudgeError, Judges};
pub use provider::{Correction, FinishReason, JudgeRequest, Provider, Reply, ReplyFuture, Token, TokenCount};
pub use request_shape::{Reasoning, RequestShape, TokenLimit};
pub use tally::{JudgeReport, PlannedQuestions, ReportedTokens};
