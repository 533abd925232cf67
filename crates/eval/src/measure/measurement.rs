//! The result of a metric on a span: a value with findings, or the reason why it is unmeasured.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use verdict_otlp::trace::{Idx, SpanId};

use super::defect::Defect;
use crate::recognise::Content;

verdict_otlp::labelled_enum! {
    /// The severity of a failure. A score at or below 1.5 is high, at or below 2.5 medium, else low; some
    /// categories override it.
    ///
    /// Labels are values of `verdict.severity`.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Severity {
        /// Seldom changes the result of the run.
        Low = "low",
        /// Likely to change the result of the run.
        Medium = "medium",
        /// The step or the answer is wrong because of it.
        High = "high",
    }
}

impl Severity {
    /// The severity with this label, if there is one.
    pub(crate) fn named(label: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|severity| severity.as_str() == label)
    }

    /// The severity of a score from 1 to 5.
    pub fn from_score(score: f64) -> Severity {
        match score {
            s if s <= 1.5 => Severity::High,
            s if s <= 2.5 => Severity::Medium,
            _ => Severity::Low,
        }
    }
}

verdict_otlp::labelled_enum! {
    /// Failure categories of the TRAIL taxonomy, spelt as the benchmark spells them.
    ///
    /// Labels are values of `verdict.category`.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
    pub enum Category {
        LanguageOnly = "Language-only",
        ToolRelated = "Tool-related",
        PoorInformationRetrieval = "Poor Information Retrieval",
        IncorrectMemoryUsage = "Incorrect Memory Usage",
        ToolOutputMisinterpretation = "Tool Output Misinterpretation",
        IncorrectProblemIdentification = "Incorrect Problem Identification",
        ToolSelectionErrors = "Tool Selection Errors",
        FormattingErrors = "Formatting Errors",
        InstructionNonCompliance = "Instruction Non-compliance",
        ToolDefinitionIssues = "Tool Definition Issues",
        EnvironmentSetupErrors = "Environment Setup Errors",
        RateLimiting = "Rate Limiting",
        AuthenticationErrors = "Authentication Errors",
        ServiceErrors = "Service Errors",
        ResourceNotFound = "Resource Not Found",
        ResourceExhaustion = "Resource Exhaustion",
        TimeoutIssues = "Timeout Issues",
        ContextHandlingFailures = "Context Handling Failures",
        ResourceAbuse = "Resource Abuse",
        GoalDeviation = "Goal Deviation",
        TaskOrchestration = "Task Orchestration",
    }
}

impl Category {
    /// The severity of failures of this category, where the category determines it more than the score: the impact that
    /// the annotators of TRAIL gave to at least two thirds of at least ten errors (development half).
    pub(crate) fn severity(self) -> Option<Severity> {
        match self {
            // The run deviated from the request, or made a statement without a basis.
            Category::GoalDeviation
            | Category::LanguageOnly
            | Category::ToolRelated
            | Category::ToolSelectionErrors => Some(Severity::High),
            // The run takes longer; such a failure alone seldom determines the result.
            Category::ResourceAbuse
            | Category::TaskOrchestration
            | Category::IncorrectProblemIdentification
            | Category::PoorInformationRetrieval => Some(Severity::Medium),
            _ => None,
        }
    }

    /// Whether the environment causes failures of this category, not the agent (000, section 1).
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

verdict_otlp::labelled_enum! {
    /// The cause of a failure (000, section 1). Labels are values of `blame` in `verdict.findings`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub enum Blame {
        /// The agent: its models, plans and calls.
        Agent = "agent",
        /// The environment of the agent: services, limits, the machine.
        Environment = "environment",
    }
}

/// The value of a measurement.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A score on the metric's scale (1-5, 0-3, 0-1, ...).
    Score(f64),
    /// One of the metric's labels.
    Label(&'static str),
    /// A quantity in the metric's unit (ms, count).
    Number(f64),
}

verdict_otlp::labelled_enum! {
    /// The reason why a metric is unmeasured, which is neither a pass nor a score of 0.
    ///
    /// Labels are values of `verdict.<metric>.reason`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub enum Unmeasured {
        /// The instrumentation recorded no content.
        NoContent = "no_content",
        /// The content was withheld: its recording is switched off, or a marker or a hash replaces it.
        Hidden = "hidden",
        /// The content was cut off when it was recorded, so that the rest is unknown.
        Truncated = "truncated",
        /// The rule does not read the language of the content.
        Language = "language",
        /// The metric does not apply to this span.
        NotApplicable = "not_applicable",
        /// Rules cannot decide, and no judge has decided.
        Undecided = "undecided",
        /// The judge returned an error or an invalid answer.
        JudgeError = "judge_error",
        /// The budget of the judges was exhausted.
        Budget = "budget",
        /// The judge did not answer in time.
        Timeout = "timeout",
        /// The question was not sampled.
        SampledOut = "sampled_out",
        /// Measuring it would exceed the trace's work budget.
        Limit = "limit",
        /// The process terminated twice during the evaluation of the trace.
        Quarantined = "quarantined",
    }
}

impl From<Content> for Unmeasured {
    /// The reason why content of this state leaves a metric unmeasured.
    fn from(content: Content) -> Unmeasured {
        match content {
            Content::Present => Unmeasured::NotApplicable,
            Content::Absent => Unmeasured::NoContent,
            Content::Redacted => Unmeasured::Hidden,
            Content::Truncated => Unmeasured::Truncated,
        }
    }
}

/// A defect with its evidence. A rule reports no finding without evidence.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The expected and the observed behaviour, in one or two sentences.
    pub rationale: String,
    /// The evidence, never empty: a verbatim excerpt from the span `seen_in`. For a status or a
    /// quantity, its recorded value; for an omission, the text that requires the missing part.
    pub quote: String,
    /// The span that contains the quote, if it is not the span of the measurement.
    pub seen_in: Option<SpanId>,
    /// Further spans that the finding depends on.
    pub cited: Vec<SpanId>,
    /// The category in the TRAIL taxonomy, if one applies.
    pub category: Option<Category>,
    pub severity: Severity,
    /// The score from 1 to 5 that this defect alone results in (table in `measure::defects`).
    pub score: f64,
    /// The span that caused the failure, if it is another one (an LLM span that wrote the arguments
    /// with which a tool span failed). The failure counts there.
    pub origin: Option<Idx>,
    /// Whether the finding is a fact (an error status, arguments that violate their schema), which no judge
    /// overrules.
    pub fact: bool,
    /// The defect, for a finding of a rule; `None` for a finding of a judge.
    pub defect: Option<Defect>,
    /// The rule, by the name of its file, where several report its defect.
    pub rule: Option<&'static str>,
    /// The precision of the rule on labelled traces, from 0 to 1; `None` for a finding of a judge.
    pub confidence: Option<f64>,
}

/// One metric's result on one span.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurement {
    /// The measured span.
    pub at: Idx,
    /// The name of the metric, as in its attribute key.
    pub metric: &'static str,
    /// The task in the name of the metric, if several tasks are measured on one span: `path.<task>.correctness`.
    pub task: Option<Arc<str>>,
    /// The value and findings, or the reason why there are none.
    pub outcome: Result<Measured, Unmeasured>,
    /// The judge: `rules/1`, or a model and the hash of its prompt.
    pub judge: Cow<'static, str>,
    /// The number of items that a rule examined, such as facts, instructions or calls; 0 if unmeasured, and if a judge
    /// answered.
    pub examined: u64,
    /// Further values, each written as an attribute.
    pub details: Vec<Detail>,
    /// A judge's rationale for the value, and which of its findings were discarded. Rules give their
    /// rationale in their findings.
    pub rationale: Option<Box<str>>,
}

impl Finding {
    /// A finding without a category that counts on the span of its measurement. `score`, from 1 to 5,
    /// is the score that this defect alone results in; the severity follows from it.
    pub fn new(rationale: impl Into<String>, quote: impl Into<String>, score: f64) -> Finding {
        Finding {
            rationale: rationale.into(),
            quote: quote.into(),
            seen_in: None,
            cited: Vec::new(),
            category: None,
            severity: Severity::from_score(score),
            score,
            origin: None,
            fact: false,
            defect: None,
            rule: None,
            confidence: None,
        }
    }

    /// Orders findings: the worst first.
    pub fn worst_first(&self, other: &Finding) -> Ordering {
        other.severity.cmp(&self.severity).then(self.score.total_cmp(&other.score))
    }

    /// The cause of the failure; `None` for an error of unknown cause and a limit that was exceeded.
    pub fn blame(&self) -> Option<Blame> {
        match (self.category, self.defect) {
            (Some(category), _) if category.is_environment() => Some(Blame::Environment),
            (Some(_), _) => Some(Blame::Agent),
            (None, Some(Defect::Errored | Defect::RetryAnnounced | Defect::OverLimit)) => None,
            (None, _) => Some(Blame::Agent),
        }
    }
}

impl Measurement {
    /// A measurement of `metric` on the span `span_index` by `judge`, for example `rules/1`.
    pub fn new(
        span_index: Idx,
        metric: &'static str,
        judge: impl Into<Cow<'static, str>>,
        outcome: Result<Measured, Unmeasured>,
    ) -> Measurement {
        let (judge, details) = (judge.into(), Vec::new());
        Measurement {
            at: span_index,
            metric,
            task: None,
            outcome,
            judge,
            examined: 0,
            details,
            rationale: None,
        }
    }

    /// The name of the metric in the output, with the task.
    pub fn name(&self) -> Cow<'static, str> {
        self.with_task(self.metric)
    }

    /// A key of this measurement with the task after its section; `key` itself without a task.
    pub fn with_task(&self, key: &'static str) -> Cow<'static, str> {
        let Some(task) = &self.task else { return Cow::Borrowed(key) };
        let parts = key.split_once('.');
        parts.map_or(Cow::Borrowed(key), |(section, rest)| format!("{section}.{task}.{rest}").into())
    }

    /// Sets the number of examined items.
    #[must_use]
    pub fn having_examined(mut self, items: usize) -> Measurement {
        self.examined = items as u64;
        self
    }
}

/// A further attribute of a measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Detail {
    /// The key without the prefix, for example `checklist.items`.
    pub key: &'static str,
    pub value: DetailValue,
}

/// The value of a [`Detail`].
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
#[serde(untagged)]
pub enum DetailValue {
    /// A text. The metric bounds its length.
    Text(String),
    /// A quantity.
    Number(f64),
    Count(u64),
    /// A yes or no.
    Flag(bool),
    /// A list, of which the first hundred entries are written.
    Texts(Vec<String>),
}

/// The value and findings of a [`Measurement`].
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The value on the metric's scale.
    pub value: Value,
    /// Whether the score is not below the threshold, or the label is not among the failing labels.
    pub passed: bool,
    /// The defects, most severe first. A passing measurement may have minor ones.
    pub findings: Vec<Finding>,
}

impl Measured {
    /// The greatest confidence of its findings that are no notes; `None` if none of them has a confidence.
    pub fn confidence(&self) -> Option<f64> {
        let decisive = self.findings.iter().filter(|finding| !finding.is_note());
        decisive.filter_map(|finding| finding.confidence).reduce(f64::max)
    }
}
