//! What a metric says of a span: a value with findings, or why there is none.

use std::borrow::Cow;

use verdict_otlp::trace::{Idx, SpanId};

use super::defect::Defect;

/// How bad a failure is. Score at or below 1.5 is high, at or below 2.5 medium, else low;
/// categories may override.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth recording, seldom changes the outcome.
    Low,
    /// Likely to matter.
    Medium,
    /// Breaks the step or the answer.
    High,
}

impl Severity {
    /// From a score on 1-5.
    pub fn of_score(score: f64) -> Severity {
        match score {
            s if s <= 1.5 => Severity::High,
            s if s <= 2.5 => Severity::Medium,
            _ => Severity::Low,
        }
    }

    /// As written in `verdict.severity`.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
        }
    }
}

/// Failure categories of the TRAIL taxonomy, spelt as the benchmark spells them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[allow(missing_docs)]
pub enum Category {
    LanguageOnly,
    ToolRelated,
    PoorInformationRetrieval,
    IncorrectMemoryUsage,
    ToolOutputMisinterpretation,
    IncorrectProblemIdentification,
    ToolSelectionErrors,
    FormattingErrors,
    InstructionNonCompliance,
    ToolDefinitionIssues,
    EnvironmentSetupErrors,
    RateLimiting,
    AuthenticationErrors,
    ServiceErrors,
    ResourceNotFound,
    ResourceExhaustion,
    TimeoutIssues,
    ContextHandlingFailures,
    ResourceAbuse,
    GoalDeviation,
    TaskOrchestration,
}

impl Category {
    /// Every category, in the taxonomy's order.
    pub const ALL: [Category; 21] = [
        Category::LanguageOnly,
        Category::ToolRelated,
        Category::PoorInformationRetrieval,
        Category::IncorrectMemoryUsage,
        Category::ToolOutputMisinterpretation,
        Category::IncorrectProblemIdentification,
        Category::ToolSelectionErrors,
        Category::FormattingErrors,
        Category::InstructionNonCompliance,
        Category::ToolDefinitionIssues,
        Category::EnvironmentSetupErrors,
        Category::RateLimiting,
        Category::AuthenticationErrors,
        Category::ServiceErrors,
        Category::ResourceNotFound,
        Category::ResourceExhaustion,
        Category::TimeoutIssues,
        Category::ContextHandlingFailures,
        Category::ResourceAbuse,
        Category::GoalDeviation,
        Category::TaskOrchestration,
    ];

    /// As written in `verdict.category`.
    pub fn as_str(self) -> &'static str {
        match self {
            Category::LanguageOnly => "Language-only",
            Category::ToolRelated => "Tool-related",
            Category::PoorInformationRetrieval => "Poor Information Retrieval",
            Category::IncorrectMemoryUsage => "Incorrect Memory Usage",
            Category::ToolOutputMisinterpretation => "Tool Output Misinterpretation",
            Category::IncorrectProblemIdentification => "Incorrect Problem Identification",
            Category::ToolSelectionErrors => "Tool Selection Errors",
            Category::FormattingErrors => "Formatting Errors",
            Category::InstructionNonCompliance => "Instruction Non-compliance",
            Category::ToolDefinitionIssues => "Tool Definition Issues",
            Category::EnvironmentSetupErrors => "Environment Setup Errors",
            Category::RateLimiting => "Rate Limiting",
            Category::AuthenticationErrors => "Authentication Errors",
            Category::ServiceErrors => "Service Errors",
            Category::ResourceNotFound => "Resource Not Found",
            Category::ResourceExhaustion => "Resource Exhaustion",
            Category::TimeoutIssues => "Timeout Issues",
            Category::ContextHandlingFailures => "Context Handling Failures",
            Category::ResourceAbuse => "Resource Abuse",
            Category::GoalDeviation => "Goal Deviation",
            Category::TaskOrchestration => "Task Orchestration",
        }
    }

    /// Caused by what the agent depends on, not by the agent (000, section 1).
    pub fn is_environment(self) -> bool {
        matches!(
            self,
            Category::RateLimiting
                | Category::AuthenticationErrors
                | Category::ServiceErrors
                | Category::ResourceExhaustion
                | Category::TimeoutIssues
                | Category::EnvironmentSetupErrors
        )
    }
}

/// What a metric measured.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// On the metric's scale (1-5, 0-3, 0-1, ...).
    Score(f64),
    /// One of the metric's labels.
    Label(&'static str),
    /// A quantity in the metric's unit (ms, count).
    Number(f64),
}

/// Why there is no measurement. Never a pass and never a 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Unmeasured {
    /// The instrumentation recorded no content.
    NoContent,
    /// The question does not arise here.
    NotApplicable,
    /// The judge failed to answer.
    JudgeError,
    /// The judges' budget was spent.
    Budget,
    /// The judge did not answer in time.
    Timeout,
    /// Sampling left it out.
    SampledOut,
    /// The process had died twice while the trace was judged.
    Quarantined,
}

impl Unmeasured {
    /// As written in `verdict.<metric>.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Unmeasured::NoContent => "no_content",
            Unmeasured::NotApplicable => "not_applicable",
            Unmeasured::JudgeError => "judge_error",
            Unmeasured::Budget => "budget",
            Unmeasured::Timeout => "timeout",
            Unmeasured::SampledOut => "sampled_out",
            Unmeasured::Quarantined => "quarantined",
        }
    }
}

/// One defect, with its evidence. A rule without evidence has no finding.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// What was expected and what was seen instead, in plain words.
    pub rationale: String,
    /// The evidence, never empty: a stretch of the text of the span named by `seen_in`, verbatim. Of
    /// what is no text (a status, a quantity) the recorded fact itself; of an omission, what asked for
    /// what is missing.
    pub quote: String,
    /// Where the quote stands, if not in the span that the finding is written on.
    pub seen_in: Option<SpanId>,
    /// Spans that the finding rests on, beside the one it is written on.
    pub cited: Vec<SpanId>,
    /// Where one fits.
    pub category: Option<Category>,
    /// How bad.
    pub severity: Severity,
    /// The score on 1-5 that this defect alone would leave (table in `measure::defects`).
    pub score: f64,
    /// For a manifestation (a tool span that failed because of what an LLM span wrote): the
    /// origin, where the failure counts.
    pub origin: Option<Idx>,
    /// Beyond judgement (an error status, arguments against their schema): no judge overrules it.
    pub fact: bool,
    /// What the rule that found it calls it; `None` for a judge's finding.
    pub defect: Option<Defect>,
}

/// One metric's result on one span.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurement {
    /// The span it is written on.
    pub at: Idx,
    /// The metric, as in its attribute key.
    pub metric: &'static str,
    /// Measured with a value, or unmeasured with a reason.
    pub outcome: Result<Measured, Unmeasured>,
    /// Which judge answered: `rules/1`, or a model and prompt hash.
    pub judge: Cow<'static, str>,
    /// What else there is to say, each as an attribute of its own.
    pub details: Vec<Detail>,
    /// What a judge says of the whole, and what became of its findings; rules say all they have
    /// to say in theirs.
    pub rationale: Option<Box<str>>,
}

impl Finding {
    /// A finding that counts where it is written, without a category: `score` on 1-5 is what this
    /// defect alone would leave, and says how bad it is.
    pub fn new(rationale: impl Into<String>, quote: impl Into<String>, score: f64) -> Finding {
        Finding {
            rationale: rationale.into(),
            quote: quote.into(),
            seen_in: None,
            cited: Vec::new(),
            category: None,
            severity: Severity::of_score(score),
            score,
            origin: None,
            fact: false,
            defect: None,
        }
    }
}

impl Measurement {
    /// Of the metric `metric` on the span `at`; `judge` says who answered, as in `rules/1`.
    pub fn new(
        at: Idx,
        metric: &'static str,
        judge: impl Into<Cow<'static, str>>,
        outcome: Result<Measured, Unmeasured>,
    ) -> Measurement {
        Measurement { at, metric, outcome, judge: judge.into(), details: Vec::new(), rationale: None }
    }
}

/// One more attribute of a measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Detail {
    /// The whole key after the prefix, as in `checklist.items`.
    pub key: &'static str,
    /// The value.
    pub value: DetailValue,
}

/// The value of a `Detail`.
#[derive(Clone, PartialEq, Debug)]
pub enum DetailValue {
    /// A text; whoever makes it bounds it.
    Text(String),
    /// A quantity.
    Number(f64),
    /// A count.
    Count(u64),
    /// A yes or no.
    Flag(bool),
    /// A list; written are the first hundred.
    Texts(Vec<String>),
}

/// The measured side of a [`Measurement`].
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The value on the metric's scale.
    pub value: Value,
    /// At or above its threshold, or outside the failing labels.
    pub passed: bool,
    /// Defects that led there, worst first. Passing measurements may carry minor ones.
    pub findings: Vec<Finding>,
}
