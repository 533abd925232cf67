//! Evaluates traces of AI agents: spans in, verdicts out. Without a runtime, network, files or clock.
//!
//! | module | in | out |
//! |---|---|---|
//! | `recognise` | the bytes of a trace, in any convention | one vocabulary: kinds, messages, calls, agents |
//! | `measure` | an [`AgentTrace`] | measurements with evidence, or the reason why there are none |
//! | `propagate` | measurements | pass or fail for every span and the trace; the failure chain |
//! | `annotate` | the results of the other modules | the same span bytes with attributes appended; evaluation events |
//! | `evaluate` | a closed trace | the four steps in order |
//!
//! A metric is a state machine that returns measurements, or questions for judges. [`Evaluator`] is the
//! entry point, see `examples/embed.rs`; `examples/custom_metric.rs` adds a [`Metric`].
//!
//! The public API is what this page shows. Items hidden from it serve the commands of the product, which is built from
//! the same revision, and change with them.

#![deny(unreachable_pub)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

// First, because a macro is in scope only after its definition.
#[macro_use]
#[doc(hidden)]
pub mod pattern;

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

pub use annotate::alarm::{Alarm, AlarmCause, AlarmMark, AlarmState, LimitAlarm};
pub use annotate::config::{Emission, Emit};
pub use annotate::summary::TraceSummary;
pub use annotate::{Annotated, EncodedAnnotations};
pub use config::Config;
pub use evaluate::{
    Assessment, BuildError, Builder, EvaluatedTrace, Evaluator, JudgeResults, OutcomeAsk, Progress,
};
pub use measure::ask::outcome::{FindingRef, RunOutcome};
pub use measure::catalog::CustomMetric;
pub use measure::measurement::{
    Blame, Category, DetailValue, Finding, Measured, Measurement, Severity, Unmeasured, Value,
};
pub use measure::path::settings::TaskSet;
pub use measure::question::{Answer, Form, Opinion, Prompt, Question, ScoreField, Usage};
pub use measure::question_context::{PassCriterion, QuestionContext, QuestionSubject};
pub use measure::question_rounds::{Ask, Questions};
pub use measure::settings::Settings;
pub use measure::settings::sections::{Override, Scored};
pub use measure::table::{About, MetricSpec, Need, Scale};
pub use measure::work_budget::Stop;
pub use measure::{Context, Metric, MetricProgress};
pub use recognise::Recogniser;
pub use recognise::agent_trace::{Agent, AgentTrace, Call};
pub use recognise::message::{Message, Part, Text, ToolRequest};
pub use recognise::span_view::{ErrorSign, RecordedEvaluation, SpanView, Tokens};
pub use verdict_otlp::trace::{ClosedTrace, Kind};

/// Stages of the pipeline: alarms on open traces, disclosure, the question about the outcome.
#[doc(hidden)]
pub use stages::*;
mod stages {
    pub use crate::disclosure::Disclosure;
    pub use crate::evaluate::{MAX_REQUEST, OUTCOME_QUESTION};
    pub use crate::measure::ask::asker::Asker;
    pub use crate::measure::question::services;
    pub use crate::open_limits::AlarmConfig;
    pub use crate::open_trace::OpenCalls;
}

/// The table of metrics, and the rules alone.
pub mod metrics {
    pub use crate::measure::catalog::{names, run};
    pub use crate::measure::confidence::estimate;
    pub use crate::measure::defects::{Defect, RULES};
    pub use crate::measure::reach::covers;
    pub use crate::measure::table::{CHECKLIST, HARMFUL_CALL, PLAN_SCORE, TABLE, spec};
}

/// Verdicts of spans and traces from their measurements (001).
pub mod propagation {
    pub use crate::propagate::outcome_model::{OutcomeModel, TERMS, Terms};
    pub use crate::propagate::policy::{Policies, Policy, RootPolicy, Weights};
    pub use crate::propagate::relevance::Relevance;
    pub use crate::propagate::verdict::{FailureProbability, TraceVerdict, Verdict, Verdicts};
    pub use crate::propagate::{outcome_terms, propagate};
}

/// Attributes and events from verdicts, without an [`Evaluator`].
#[doc(hidden)]
pub mod annotation {
    pub use crate::annotate::alarm_events::{ALARM_EVENT, PATH_ALARM_EVENT};
    pub use crate::annotate::config::Emission;
    pub use crate::annotate::findings::finding_id;
    pub use crate::annotate::header::{RenderedTrace, TraceHeader};
    pub use crate::annotate::signature::signature;
    pub use crate::annotate::{Annotated, EVALUATION_EVENT, SCOPE_NAME, TRACE_EVALUATION, apply, encode};
}

/// Metrics that programs behind HTTP endpoints answer: the JSON of requests and answers.
#[doc(hidden)]
pub mod evaluators {
    pub use crate::measure::remote::config::EvaluatorConfig;
    pub use crate::measure::remote::protocol::{
        AgentOutline, ContentOutline, ContentType, EvaluatedSubject, EvaluationAnswer, EvaluationFinding,
        EvaluationRequest, EvaluationUsage, RequestedScale, SpanOutline, SubjectType, VERSION, probe,
        request_schema, run_code,
    };
}

/// A whole trace judged in one question, as a baseline (001, section 4.2).
#[doc(hidden)]
pub mod baseline {
    pub use crate::measure::ask::whole_trace::{ReportedError, question, read};
}

/// Paths through task automata (002).
#[doc(hidden)]
pub mod path {
    pub use crate::measure::path::automaton::{Automaton, StateId, Transition};
    pub use crate::measure::path::check::check;
    pub use crate::measure::path::draft::Draft;
    pub use crate::measure::path::learn::{MAX_RUNS, RecordedCall, TaskIdentity, learn};
    pub use crate::measure::path::load::{LoadedTasks, load, schema};
    pub use crate::measure::path::matching::calls_of;
    pub use crate::measure::path::next::{
        NextCall, PathAnswer, PathDecision, PathPositions, PendingCall, ProposedCall, RunHints, TaskDecision,
    };
    pub use crate::measure::path::run_walk::{RunWalk, has_failed};
    pub use crate::measure::path::score::{Parameters, PathScores};
    pub use crate::measure::path::settings::{Settings, TaskSet};
    pub use crate::measure::path::task::Task;
    pub use crate::measure::path::walk::{Token, Walk};
    pub use crate::recognise::json_keys::values as json_values;
}

/// Plans over tools: assessment, improvement, weights (004).
#[doc(hidden)]
pub mod plan {
    pub use crate::measure::plan::assessment::PlanAssessment;
    pub use crate::measure::plan::batch::{
        BatchPlan, BatchReport, LabelAgreement, StepTags, Tiers, report as batch_report,
    };
    pub use crate::measure::plan::improve::{
        ImprovementLoop, Lineage, MAX_PASSES, Tag, read_tags, tag_questions,
    };
    pub use crate::measure::plan::judge_questions::{
        JUDGED_PARTS, median_judgement, questions as judge_questions,
    };
    pub use crate::measure::plan::learn_weights::{LearntWeights, RankedPlan, learn_weights};
    pub use crate::measure::plan::lineage::statistics as lineage_statistics;
    pub use crate::measure::plan::pair_questions::{
        EMBEDDED_KEY, JUDGED_KEY, Matching, embedding_question, pair_question, read_cosines, read_pairs,
    };
    pub use crate::measure::plan::parse::{parse_plan, query_of_file};
    pub use crate::measure::plan::part::{PlanPart, Weights};
    pub use crate::measure::plan::prompt::{DATA, fence};
    pub use crate::measure::plan::reference::{Rating, ReferenceMatch};
    pub use crate::measure::plan::schema::Plan;
    pub use crate::measure::plan::shape::{Shape, is_rejected, shape};
    pub use crate::measure::plan::tools::Toolbox;

    /// Pairwise comparison of answers to one query.
    pub mod comparison {
        pub use crate::measure::plan::compare::{
            NAMES, ResponseComparison, WinRates, combine, questions, read_keyed, win_rates,
        };
    }
}

/// JSON Schema validation in bounded steps.
#[doc(hidden)]
pub mod schema {
    pub use crate::measure::schema::compile::Schema;
    pub use crate::measure::schema::{Validation, Validity};
}

/// Traces for tests.
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing {
    pub use crate::measure::testing::{MAX_PROBLEMS, MAX_STEPS, Script, measured};
}
