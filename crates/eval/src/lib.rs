//! Evaluates traces of AI agents: spans in, verdicts out. No runtime, network, disk or clock.
//!
//! | module | in | out |
//! |---|---|---|
//! | [`recognise`] | a trace's bytes, in any convention | one vocabulary: kinds, messages, calls, agents |
//! | [`measure`] | a [`AgentTrace`](recognise::AgentTrace) | measurements with evidence, or why there are none |
//! | [`propagate`] | measurements | pass or fail for every span and the trace; the causal chain |
//! | [`annotate`] | all of it | the same span bytes with attributes appended; evaluation events |
//! | [`evaluate`] | a closed trace | all four in order |
//!
//! A metric is a small state machine that is done at once or asks questions for others to answer.

// First, since a macro is known only after its definition.
#[macro_use]
pub mod pattern;

pub mod recognise;
pub mod measure;
pub mod propagate;
pub mod annotate;
pub mod redact;
pub mod config;
pub mod evaluate;

pub use config::Config;
