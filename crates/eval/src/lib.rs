//! Evaluates traces of AI agents: spans in, verdicts out. Without a runtime, network, files or clock.
//!
//! | module | in | out |
//! |---|---|---|
//! | `recognise` | the bytes of a trace, in any convention | one vocabulary: kinds, messages, calls, agents |
//! | `measure` | an [`AgentTrace`] | measurements with evidence, or the reason why there are none |
//! | `propagate` | measurements | pass or fail for every span and the trace; the failure chain |
//! | `annotate` | the results of the other modules | the same span bytes with attributes appended; evaluation events |
//! | `evaluate` | a closed trace | the four steps in order |
//! | `open_trace`, `open_limits` | the calls of a trace that is still open | harmful calls and positions of runs; exceeded limits and loops |
//! | `redact`, `disclosure` | texts of a trace | the same without secrets; which of them may be shown |
//! | `config` | | the keys of `verdict:` that the evaluator reads |
//! | `pattern` | | regular expressions of the rules |
//! | `internals` | | what the product uses in addition to the public types |
//!
//! A metric is a state machine that returns measurements, or questions for judges. [`Evaluator`] is the
//! entry point, see `examples/embed.rs`; `examples/custom_metric.rs` adds a [`Metric`].
//!
//! The feature `internals` adds modules for the service and commands of the product, which are built from the same
//! revision. They have no stability promise.

// Modules that only the feature exports are unused and unreachable without it; both lints are checked with the feature.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))]
#![cfg_attr(feature = "internals", deny(unreachable_pub))]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

// First, because a macro is in scope only after its definition.
#[macro_use]
mod pattern;

mod annotate;
mod config;
mod disclosure;
mod evaluate;
mod open_limits;
mod open_trace;
mod measure;
mod propagate;
mod recognise;
mod redact;

pub use crate::measure::sections::{Override, Scored};
pub use annotate::alarm::{Alarm, AlarmCause, AlarmMark, AlarmState, LimitAlarm};
pub use annotate::config::{Emission, Emit};
pub use annotate::summary::TraceSummary;
pub use annotate::{Annotated, EncodedAnnotations};
pub use config::Config;
pub use evaluate::{
    Assessment, BuildError, Builder, EvaluatedTrace, Evaluator, JudgeResults, OutcomeAsk, Progress,
};
pub use measure::ask::outcome::{FindingRef, RunOutcome};
pub use measure::custom_metric::CustomMetric;
pub use measure::measurement::{
    Blame, Category, DetailValue, Finding, Measured, Measurement, Severity, Unmeasured, Value,
};
pub use measure::path::settings::TaskSet;
pub use measure::question::{Answer, Form, Opinion, Prompt, Question, ScoreField, Usage};
pub use measure::question_context::{PassCriterion, QuestionContext, QuestionSubject};
pub use measure::question_rounds::{Ask, Questions};
pub use measure::settings::Settings;
pub use measure::table::{About, MetricSpec, Need, Scale};
pub use measure::work_budget::Stop;
pub use measure::{Context, Metric, MetricProgress};
pub use recognise::Recogniser;
pub use recognise::agent_trace::{Agent, AgentTrace, Call};
pub use recognise::message::{Message, Part, Text, ToolRequest};
pub use recognise::span_view::{ErrorSign, RecordedEvaluation, SpanView, Tokens};
pub use verdict_otlp::trace::{ClosedTrace, Kind};

/// The table of metrics, and the rules alone.
pub mod metrics {
    pub use crate::measure::catalog::{names, run};
    pub use crate::measure::defects::{Defect, RULES};
    pub use crate::measure::table::{TABLE, spec};
    #[cfg(feature = "internals")]
    pub use crate::{
        measure::confidence::estimate,
        measure::reach::covers,
        measure::table::{CHECKLIST, HARMFUL_CALL, PLAN_SCORE},
    };
}

/// Verdicts of spans and traces from their measurements (001).
pub mod propagation {
    pub use crate::propagate::outcome_model::OutcomeModel;
    pub use crate::propagate::policy::{Policies, Policy, RootPolicy, Weights};
    pub use crate::propagate::propagate;
    pub use crate::propagate::relevance::Relevance;
    pub use crate::propagate::verdict::{FailureProbability, TraceVerdict, Verdict, Verdicts};
    #[cfg(feature = "internals")]
    pub use crate::propagate::{
        outcome_model::{TERMS, Terms},
        outcome_terms,
    };
}

#[cfg(feature = "internals")]
mod internals;
#[cfg(feature = "internals")]
pub use internals::*;

/// Traces for tests.
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing {
    pub use crate::measure::testing::{MAX_PROBLEMS, MAX_STEPS, Script, measured};
}
