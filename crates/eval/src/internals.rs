//! Items that the service, the judges and the commands of the product use in addition to the public types, behind the
//! feature `internals`. They have no stability promise, since they change together with the product.

pub use crate::annotate::EncodedAnnotations;
pub use crate::annotate::config::Emission;
pub use crate::disclosure::Disclosure;
pub use crate::evaluate::{MAX_REQUEST, OUTCOME_QUESTION};
pub use crate::measure::ask::asker::Asker;
pub use crate::measure::question::services;
pub use crate::open_trace::OpenTraceAlarms;
pub use crate::redact::Redactor;

/// Attributes and events from verdicts, without an [`Evaluator`](crate::Evaluator).
pub mod annotation {
    pub use crate::annotate::alarm_events::{ALARM_EVENT, PATH_ALARM_EVENT};
    pub use crate::annotate::findings::finding_id;
    pub use crate::annotate::header::{RenderedTrace, TraceHeader};
    pub use crate::annotate::signature::signature;
    pub use crate::annotate::{EVALUATION_EVENT, SCOPE_NAME, TRACE_EVALUATION, apply, encode};
}

/// Metrics that programs behind HTTP endpoints answer: the JSON of requests and answers.
pub mod evaluators {
    pub use crate::measure::remote::protocol::{
        AgentOutline, ContentOutline, ContentType, EvaluatedSubject, EvaluationAnswer, EvaluationFinding,
        EvaluationRequest, EvaluationUsage, RequestedScale, SpanOutline, SubjectType, VERSION, probe,
        request_schema, run_code,
    };
}

/// A whole trace judged in one question, as a baseline (001, section 4.2).
pub mod baseline {
    pub use crate::measure::ask::whole_trace::{ReportedError, question, read};
}

/// Paths through task automata (002).
pub mod path {
    pub use crate::measure::path::alphabet::{
        Alphabet, ArgumentKey, ArgumentPattern, ObservedCall, SymbolDefinition,
    };
    pub use crate::measure::path::argument::ValuePattern;
    pub use crate::measure::path::automaton::{Automaton, StateId, Symbol, Transition};
    pub use crate::measure::path::check::{CheckedAutomaton, check};
    pub use crate::measure::path::draft::{Draft, DraftEdge, DraftState, TaskProblem};
    pub use crate::measure::path::learn::{LearntTask, MAX_RUNS, RecordedCall, TaskIdentity, learn};
    pub use crate::measure::path::limits::PathLimit;
    pub use crate::measure::path::load::{LoadedTasks, load, schema};
    pub use crate::measure::path::matching::calls_of;
    pub use crate::measure::path::next::{
        NextCall, PathAnswer, PathDecision, PathPositions, PendingCall, ProposedCall, RunHints, TaskDecision,
    };
    pub use crate::measure::path::prompt_pattern::{CapturedText, PromptRegex};
    pub use crate::measure::path::run_walk::{HarmfulCall, RunWalk, has_failed};
    pub use crate::measure::path::score::{Parameters, PathScores, PathWeights};
    pub use crate::measure::path::task::{AgentConditions, FailedCalls, PromptPattern, Scope, Task};
    pub use crate::measure::path::walk::{CondensedStep, PathToken, Walk};
    pub use crate::recognise::json_keys::values as json_values;
}

/// Plans over tools: assessment, improvement, weights (004).
pub mod plan {
    pub use crate::measure::metric_names::PlanPart;
    pub use crate::measure::plan::assessment::{PlanAssessment, PlanPartJudgement};
    pub use crate::measure::plan::batch::{
        BatchPlan, BatchReport, LabelAgreement, LabelRow, MetricMean, StepTags, TierGroup, Tiers,
        report as batch_report,
    };
    pub use crate::measure::plan::improve::questions::StepFinding;
    pub use crate::measure::plan::improve::{
        ImprovementLoop, Lineage, MAX_PASSES, Revision, StopReason, Tag, read_tags, tag_questions,
    };
    pub use crate::measure::plan::judge_questions::{
        JUDGED_PARTS, median_judgement, questions as judge_questions,
    };
    pub use crate::measure::plan::learn_weights::{
        LearntWeights, MetricAgreement, RankedPlan, Sensitivity, learn_weights,
    };
    pub use crate::measure::plan::lineage::{LineageStatistics, Spread, statistics as lineage_statistics};
    pub use crate::measure::plan::pair_questions::{
        JUDGED_KEY, Matching, embedding_question, pair_question, read_cosines, read_pairs,
    };
    pub use crate::measure::plan::parse::{parse_plan, query_of_file};
    pub use crate::measure::plan::part::PlanWeights;
    pub use crate::measure::plan::prompt::{DATA, fence};
    pub use crate::measure::plan::reference::{Rating, ReferenceMatch};
    pub use crate::measure::plan::schema::{Fault, Plan, PlanIssue, PlanStep, StepNotation};
    pub use crate::measure::plan::shape::{Shape, is_rejected, shape};
    pub use crate::measure::plan::tools::Toolbox;

    /// Pairwise comparison of answers to one query.
    pub mod comparison {
        pub use crate::measure::plan::compare::{
            NAMES, ResponseComparison, ResponseScores, WinRates, combine, questions, read_keyed, win_rates,
        };
    }
}

/// JSON Schema validation in bounded steps.
pub mod schema {
    pub use crate::measure::schema::compile::Schema;
    pub use crate::measure::schema::problem::SchemaProblem;
    pub use crate::measure::schema::{Validation, Validity};
}
