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
//! [`Evaluator`] is the way in; `examples/embed.rs` shows it, and `examples/custom_metric.rs` a
//! [`Metric`] of one's own. The types that both need stand here at the top.

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

pub use annotate::{Annotated, EncodedAnnotations, TraceSummary};
pub use config::Config;
pub use evaluate::{Assessment, BuildError, Builder, EvaluatedTrace, Evaluator, Progress};
pub use measure::question_rounds::{Ask, Questions};
pub use measure::settings::Scored;
pub use measure::table::{About, Scale};
pub use measure::{
    Answer, Category, Context, Finding, Form, Measured, Measurement, Metric, MetricSpec, Need, Opinion,
    Prompt, Question, Severity, Step, Unmeasured, Usage, Value,
};
pub use verdict_otlp::trace::{ClosedTrace, Kind};
