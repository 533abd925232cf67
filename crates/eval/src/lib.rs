//! Evaluates traces of AI agents: spans in, verdicts out. Without a runtime, network, files or clock.
//!
//! | module | in | out |
//! |---|---|---|
//! | `recognise` | the bytes of a trace, in any convention | one vocabulary: kinds, messages, calls, agents |
//! | `measure` | an [`AgentTrace`](trace::AgentTrace) | measurements with evidence, or the reason why there are none |
//! | `propagate` | measurements | pass or fail for every span and the trace; the failure chain |
//! | `annotate` | the results of the other modules | the same span bytes with attributes appended; evaluation events |
//! | `evaluate` | a closed trace | the four steps in order |
//! | `open_trace`, `open_limits` | the calls of a trace that is still open | harmful calls and positions of runs; exceeded limits and loops |
//! | `redact`, `disclosure` | texts of a trace | the same without secrets; which of them may be shown |
//! | [`config`] | | the keys of `verdict:` that the evaluator reads |
//! | `pattern` | | regular expressions of the rules |
//! | `internals` | | items that the product uses in addition to the public types |
//!
//! The public interface: [`Evaluator`] and the types around it here; [`config`], [`trace`], [`metrics`], [`questions`],
//! [`alarms`] and [`propagation`] contain the types for these topics. Every type of a public field or signature has
//! a public path.
//!
//! A metric is a state machine that returns measurements, or questions for judges. [`Evaluator`] is the
//! entry point, see `examples/embed.rs`; `examples/configure.rs` builds a [`Config`] from its types;
//! `examples/custom_metric.rs` adds a [`Metric`](metrics::Metric).
//!
//! The feature `internals` adds modules for the service and commands of the product, which are built from the same
//! revision. They have no stability promise.

// Items that only the feature exports are unused and unreachable without it; these lints are checked with the feature.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))]
#![cfg_attr(feature = "internals", deny(unreachable_pub))]
#![deny(unnameable_types)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

// First, because a macro is in scope only after its definition.
#[macro_use]
mod pattern;

mod annotate;
pub mod config;
mod disclosure;
mod evaluate;
mod open_limits;
#[cfg(feature = "internals")]
mod open_trace;
mod measure;
mod propagate;
mod recognise;
mod redact;

pub use annotate::Annotated;
pub use annotate::summary::TraceSummary;
pub use config::Config;
pub use evaluate::{
    Assessment, BuildError, Builder, EvaluatedTrace, Evaluator, JudgeResults, OutcomeAsk, Progress,
};
pub use measure::work_budget::Stop;
pub use verdict_otlp::trace::{CloseReason, ClosedTrace, PriorVerdict};
pub use verdict_otlp::{Malformed, Piece};

/// A trace in one vocabulary, whichever convention it was recorded in.
pub mod trace {
    #[cfg(feature = "internals")]
    pub use crate::recognise::Recogniser;
    pub use crate::recognise::agent_trace::{Agent, AgentTrace, Call};
    pub use crate::recognise::control_tools::ControlTools;
    pub use crate::recognise::message::{
        Message, MessageParts, Part, Role, Text, ToolDefinition, ToolRequest,
    };
    pub use crate::recognise::span_view::{
        Content, ErrorSign, ErrorSource, RecordedEvaluation, RecordedPlan, SpanView, Tokens,
    };
    pub use verdict_otlp::trace::{Idx, Kind, Span, SpanId, Status, TraceId, Tree};
}

/// The table of metrics, custom metrics, and the types that metrics return.
pub mod metrics {
    pub use crate::measure::custom_metric::CustomMetric;
    pub use crate::measure::defect::Defect;
    pub use crate::measure::measurement::{
        Blame, Category, Detail, DetailValue, Finding, Measured, Measurement, Severity, Unmeasured, Value,
    };
    pub use crate::measure::path::settings::TaskSet;
    pub use crate::measure::sections::{Override, Scored};
    pub use crate::measure::table::{About, MetricSpec, Need, Scale, TABLE, spec};
    pub use crate::measure::{Context, Metric, MetricProgress};
    #[cfg(feature = "internals")]
    pub use crate::{
        measure::catalog::{names, run},
        measure::confidence::{estimate, estimate_from},
        measure::defects::{BEST_SCORE, RULES_JUDGE},
        measure::reach::covers,
        measure::settings::Settings,
        measure::table::{CHECKLIST, HARMFUL_CALL, PLAN_SCORE},
    };
}

/// Questions to judges and their answers, without I/O.
pub mod questions {
    pub use crate::measure::ask::outcome::{FindingRef, RunOutcome};
    pub use crate::measure::question::{Answer, AnswerForm, Opinion, Prompt, Question, ScoreField, Usage};
    pub use crate::measure::question_context::{PassCriterion, QuestionContext, QuestionSubject};
    pub use crate::measure::question_rounds::{Ask, Questions};
}

/// Alarms that were raised while a trace was open: harmful calls, exceeded limits, loops.
pub mod alarms {
    #[cfg(feature = "internals")]
    pub use crate::annotate::alarm::{Alarm, AlarmCause, LimitAlarm};
    pub use crate::annotate::alarm::{AlarmMark, AlarmState};
}

/// Verdicts of spans and traces (001), and the policies by which they follow from measurements.
pub mod propagation {
    pub use crate::propagate::outcome_model::OutcomeModel;
    pub use crate::propagate::policy::{Policies, Policy, RootPolicy, SeverityWeights};
    pub use crate::propagate::verdict::{Cause, FailureProbability, TraceVerdict, Verdict, Verdicts};
    #[cfg(feature = "internals")]
    pub use crate::propagate::{
        OutcomeEvidence,
        outcome_model::{Term, Terms, probability},
        propagate,
        relevance::Relevance,
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
