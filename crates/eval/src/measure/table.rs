//! The table of metrics, with one row for each, under the section of `verdict.metrics` that configures it.
//!
//! A row's name is its attribute key. Settings, default thresholds, self-metrics, scales, propagation, scoring and
//! the configuration's JSON schema are derived from the rows: a new metric is a file in this folder with its `mod`
//! line, a row of this table and, where judges answer it, a rubric. A row names its rule by the path in this folder,
//! which `catalog` resolves. Names and scales are those of the papers: 001 (tables 1, 2), 000 (section 3), 002 to 004.
//!
//! The rows are the body of the macro `metric_table!`, which passes them to the macro in its argument. This file
//! expands them to the data of the rows, `settings` to the struct of the configuration, and `catalog` to the list of
//! implementations, so that `settings` does not import the metrics, which import `settings`.

use std::fmt;

use Category::*;

use verdict_otlp::trace::{Idx, Kind};

use super::measurement::Category;
use crate::measure::harm_reason::HarmReason;
use crate::measure::metric_names::{GpaMetric, PathMetric, PlanPart};
use crate::recognise::AgentTrace;

/// The metric of whether a task was completed (003).
pub const CHECKLIST: &str = "checklist.verdict";
// The names of the questions that judges answer for a checklist.
pub(crate) const CHECKLIST_CRITERIA: &str = "checklist.criteria";
pub(crate) const CHECKLIST_FILTER: &str = "checklist.filter";
pub(crate) const CHECKLIST_SUMMARY: &str = "checklist.summary";
pub(crate) const CHECKLIST_PERCEIVE: &str = "checklist.perceive";
pub(crate) const CHECKLIST_ANSWER: &str = "checklist.answer";
pub(crate) const CHECKLIST_SOURCE: &str = "checklist.source";
pub(crate) const CHECKLIST_SEARCH: &str = "checklist.search";
/// The metric of calls that their task does not allow (002).
pub const HARMFUL_CALL: &str = PathMetric::HarmfulCall.as_str();
/// The detail of a harmful call: the state in which it was made.
pub(crate) const HARMFUL_CALL_STATE: &str = "path.harmful_call.state";
/// The score of a plan (004). The questions about plans belong to this metric.
pub const PLAN_SCORE: &str = "plan.score";
/// The rating of a plan compared with its reference (004).
pub(crate) const PLAN_RATING: &str = "plan.rating";

/// Calls a macro with every section: its documentation, key and type, then its rows: name, base,
/// differences from the base, and the types that implement it.
///
/// Implementations: `rules` measures without judges (if it measures several rows of a section, the first
/// of these rows has it); `timing_name` is the name under which its duration is reported, if not the row's;
/// `asks` asks judges by other prompts than the row's rubric.
macro_rules! metric_table {
    ($expand:ident) => { $expand! {
        /// Errors by status, exception, flag or returned text. Labels `valid`, `system_error`,
        /// `tool_error`, `api_error`; by default all except `valid` fail.
        error_detection: Labelled<FailingErrors> = "error_detection" => BLANK {
            about: About::Call, scale: Scale::Labels(&["valid", "api_error", "tool_error", "system_error"]),
            fail_labels: &["system_error", "tool_error", "api_error"], categories: ERRORS,
            requires: Requires::OutputOrError, on_wrappers: true, judges_calls: true,
            rubric: rubric!("error_detection") }
                by { rules: &SpanRule(error_detection::measure) };
        /// Answers that refuse or give up. Labels `valid`, `missing_knowledge`, `policy_restriction`, `other`.
        avoidance: Labelled<FailingAvoidances> = "avoidance" => BLANK {
            about: About::Model, need: Need::Agent, shows_later: true, categories: &[GoalDeviation],
            scale: Scale::Labels(&["valid", "policy_restriction", "missing_knowledge", "other"]),
            fail_labels: &["missing_knowledge", "other"], requires: Requires::Output, rubric: rubric!("avoidance") }
                by { rules: &ModelRule(avoidance::measure) };
        /// Verifiable instructions of the prompt, compared with the output (1-5).
        instruction_following: Scored = "instruction_following" => MODEL {
            categories: &[InstructionNonCompliance, FormattingErrors], rubric: rubric!("instruction_following") }
                by { rules: &ModelRule(instruction_following::measure) };
        /// Facts and claims compared with the input of the model (1-5).
        reasoning_integrity: Scored = "reasoning_integrity" => MODEL {
            need: Need::Agent, categories: REASONING, rubric: rubric!("reasoning_integrity") }
                by { rules: &ModelRule(reasoning::measure) };
        /// Whether a tool call was valid and returned a usable result (1-5).
        tool_completeness: Scored = "tool_completeness" => FIVE {
            about: About::Tool, need: Need::Agent, categories: TOOL_CALLS, judges_calls: true,
            requires: Requires::OutputOrError, rubric: rubric!("tool_completeness") }
                by { rules: &SpanRule(tool_completeness::measure) };
        /// Time from start to end, in milliseconds.
        latency: Latency = "latency" => BLANK {
            scale: Scale::Quantity("ms"), process: true }
                by { rules: &SpanRule(latency::measure) };
        /// Tokens of a model call.
        tokens: TokenLimits = "tokens" => BLANK {
            about: About::Model, scale: Scale::Quantity("{token}"), process: true }
                by { rules: &ModelRule(tokens::measure) };
        /// An agent's run compared with its plan (1-5).
        plan_efficiency: Scored = "plan_efficiency" => AGENT {
            process: true, categories: PLANNING, rubric: rubric!("plan_efficiency") }
                by { rules: &AgentRule(agent::plan_efficiency::measure) };
        /// Whether an agent's calls cover its task (1-5).
        tool_coverage: Scored = "tool_coverage" => AGENT {
            categories: TOOL_CHOICE, rubric: rubric!("tool_coverage") }
                by { rules: &AgentRule(agent::tool_coverage::measure) };
        /// Repeated, looping or unadapted calls of an agent (1-5).
        tool_abuse: Scored = "tool_abuse" => AGENT {
            process: true, categories: &[ResourceAbuse], rubric: rubric!("tool_abuse") }
                by { rules: &AgentRule(agent::tool_abuse::measure) };
        /// Whether an agent's final answer covers what was asked (1-5).
        completeness: Scored = "completeness" => AGENT {
            categories: ANSWER, requires: Requires::Answer, rubric: rubric!("completeness") }
                by { rules: &AgentRule(agent::completeness::measure) };
        /// Plans written by agents: format, dependencies, tools, and adherence to the query (004).
        plan: PlanSettings =
            PlanPart::ToolPromptAlignment.as_str() => PLAN {},
            PlanPart::Format.as_str() => PLAN {},
            PlanPart::StepExecutability.as_str() => PLAN {},
            PlanPart::QueryAdherence.as_str() => PLAN {},
            PlanPart::Dependencies.as_str() => PLAN {},
            PlanPart::Redundancy.as_str() => PLAN {},
            PlanPart::ToolUsageCompleteness.as_str() => PLAN {},
            PLAN_SCORE => PLAN {
                scale: Scale::Scores(0, 100), threshold: Some(75.0),
                named_prompts: &[PlanPart::ToolPromptAlignment.as_str(), PlanPart::StepExecutability.as_str(),
                    PlanPart::QueryAdherence.as_str(), PLAN_RATING] }
                by { rules: &plan::metric::PlanRules, asks: &plan::metric::PlanJudged },
            PLAN_RATING => PLAN {
                scale: Scale::Labels(&RATINGS), threshold: None, fail_labels: RATINGS.split_at(4).0 };
        /// An agent's calls compared with the paths that its task allows (0-1): `path.*`.
        path: PathSettings =
            PathMetric::Correctness.as_str() => PATHS { threshold: Some(0.8) }
                by { rules: &path::metric::Paths, timing_name: "path" },
            PathMetric::PcKtc.as_str() => PATHS { threshold: Some(0.8) },
            PathMetric::PrefixCriticality.as_str() => PATHS { threshold: Some(0.8) },
            PathMetric::HarmRate.as_str() => PATHS { threshold: Some(0.0) },
            PathMetric::Efficiency.as_str() => PATHS { threshold: Some(0.5) },
            PathMetric::PcHlr.as_str() => PATHS { threshold: Some(0.8) },
            PathMetric::Accepting.as_str() => PATHS { scale: Scale::Labels(&["accepting", "not_accepting"]) },
            PathMetric::Weighted.as_str() => PATHS { threshold: Some(0.8) },
            HARMFUL_CALL => PATHS { about: About::Call, scale: Scale::Labels(&HARM), fail_labels: &HARM };
        /// The task as a checklist of yes-or-no questions, each with evidence from the run (003).
        checklist: ChecklistSettings = CHECKLIST => BLANK {
            about: About::Run, need: Need::Trace, scale: Scale::Labels(&["yes", "no"]), fail_labels: &["no"],
            named_prompts: &[CHECKLIST_CRITERIA, CHECKLIST_FILTER, CHECKLIST_SUMMARY, CHECKLIST_PERCEIVE,
                CHECKLIST_ANSWER, CHECKLIST_SOURCE, CHECKLIST_SEARCH] }
                by { rules: &checklist::Checklist { asks: false }, asks: &checklist::Checklist { asks: true } };
        /// Goal, plan and action (0-3), by LLM judges only.
        gpa: Gpa =
            GpaMetric::GoalFulfillment.as_str() => GPA {
                categories: ANSWER, requires: Requires::Answer, rubric: rubric!("gpa_goal_fulfillment", with examples) },
            GpaMetric::LogicalConsistency.as_str() => GPA {
                categories: REASONING, rubric: rubric!("gpa_logical_consistency", with examples) },
            GpaMetric::ExecutionEfficiency.as_str() => GPA {
                process: true, categories: &[ResourceAbuse], rubric: rubric!("gpa_execution_efficiency", with examples) },
            GpaMetric::PlanQuality.as_str() => GPA {
                about: About::Plans, categories: PLANNING, rubric: rubric!("gpa_plan_quality", with examples) },
            GpaMetric::PlanAdherence.as_str() => GPA {
                about: About::Segments, categories: PLANNING, rubric: rubric!("gpa_plan_adherence", with examples) },
            GpaMetric::ToolSelection.as_str() => GPA {
                categories: TOOL_CHOICE, rubric: rubric!("gpa_tool_selection", with examples) },
            GpaMetric::ToolCalling.as_str() => GPA {
                categories: TOOL_CALLS, rubric: rubric!("gpa_tool_calling", with examples) };
    } };
}

/// The part of the trace that a metric requires.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    Span,
    /// The span and the other steps of its agent, which have arrived when the agent's span has arrived.
    Agent,
    Subtree,
    Trace,
}

/// The values of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// A score between a minimum and a maximum. The maximum is the best, except for `path.harm_rate`.
    Scores(u8, u8),
    /// A label. Labels that judges answer are ordered from good to bad.
    Labels(&'static [&'static str]),
    /// A quantity in this unit, compared with a configured limit.
    Quantity(&'static str),
}

impl Scale {
    /// 1 to 5 (001).
    pub const FIVE: Scale = Scale::Scores(1, 5);
    /// 0 to 3 (000).
    pub const THREE: Scale = Scale::Scores(0, 3);
    /// 0 to 1 (002, 004).
    pub const UNIT: Scale = Scale::Scores(0, 1);

    /// The worst and the best score; `None` for labels and quantities.
    pub fn range(self) -> Option<(f64, f64)> {
        match self {
            Scale::Scores(min, max) => Some((min.into(), max.into())),
            Scale::Labels(_) | Scale::Quantity(_) => None,
        }
    }

    /// The whole scores, lowest first; none for labels and quantities.
    pub fn scores(self) -> Vec<u8> {
        match self {
            Scale::Scores(min, max) => (min..=max).collect(),
            Scale::Labels(_) | Scale::Quantity(_) => Vec::new(),
        }
    }

    /// `(score - min) / (max - min)`, clamped to 0 to 1; `None` for labels and quantities.
    pub fn normalized(self, score: f64) -> Option<f64> {
        let (min, max) = self.range()?;
        Some(((score - min) / (max - min)).clamp(0.0, 1.0))
    }
}

/// The spans on which a metric is written, and the part of the trace that it measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    Model,
    Tool,
    /// A model call or a tool call.
    Call,
    /// An agent with its subtree.
    Agent,
    /// Each agent, and the trace as a whole.
    Run,
    /// As `Run`; measured is each plan with the steps before it.
    Plans,
    /// As `Run`; measured is each plan with the steps up to the next plan.
    Segments,
    /// A span of any kind.
    Any,
}

impl About {
    /// Whether the metric may be about more than one step.
    pub(crate) fn is_run(self) -> bool {
        !matches!(self, About::Model | About::Tool | About::Call)
    }
}

/// The recorded content without which the metric is unmeasured and judges are not asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requires {
    Nothing,
    InputAndOutput,
    Output,
    /// The span's output, or an error of the span.
    OutputOrError,
    /// The agent's final answer.
    Answer,
}

/// The instructions by which judges score a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rubric {
    /// The name of the schema of the answers.
    pub form: &'static str,
    pub text: &'static str,
    /// Graded examples of invented runs, if there are any (000, section 4.1.3).
    pub examples: Option<&'static str>,
}

/// A metric's row.
pub struct MetricSpec {
    /// The name, as in attribute keys.
    pub name: &'static str,
    /// The spans on which the metric is written, and the measured part of the trace.
    pub about: About,
    pub scale: Scale,
    /// The part of the trace that must have been received before judges are asked. Rules run when the
    /// trace has closed, because later spans show how an output was used.
    pub(crate) need: Need,
    /// Whether a prompt about one step contains the later steps. It does only where the rubric needs them: a judge who
    /// knows the outcome blames decisions that were correct at the time.
    pub(crate) shows_later: bool,
    /// The recorded content without which judges are not asked.
    pub(crate) requires: Requires,
    /// Whether the rule applies to wrappers, the second spans of a model call.
    pub(crate) on_wrappers: bool,
    /// The default threshold; a score below it fails, a `path.harm_rate` above it.
    pub threshold: Option<f64>,
    /// The labels that fail by default.
    pub(crate) fail_labels: &'static [&'static str],
    /// Whether the metric measures the process and not the result, see `propagate::relevance`.
    pub process: bool,
    /// Whether the metric judges a model call by the tool calls that it requested.
    pub(crate) judges_calls: bool,
    /// The categories of defects that the metric is designed to detect; empty means all. Its recall is computed over
    /// these (000, appendix A.1).
    pub categories: &'static [Category],
    /// The rubric, if judges are asked by one.
    pub(crate) rubric: Option<Rubric>,
    /// The questions to judges in place of a rubric, each with a text that `verdict.rubrics` can replace.
    pub(crate) named_prompts: &'static [&'static str],
    /// The section of `verdict.metrics` that configures the metric; `None` for a custom metric.
    pub(crate) section: Option<SectionKey>,
}

impl PartialEq for MetricSpec {
    fn eq(&self, other: &MetricSpec) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for MetricSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl MetricSpec {
    /// The row of a custom metric. The name is the attribute key: lower-case words separated by dots. The metric is
    /// called for every span; its first step decides whether it applies.
    pub const fn custom(name: &'static str, scale: Scale, threshold: Option<f64>) -> MetricSpec {
        MetricSpec { name, scale, threshold, ..BLANK }
    }

    /// Sets the part of the trace that must have been received before judges are asked; by default the span.
    #[must_use]
    pub const fn with_need(self, need: Need) -> MetricSpec {
        MetricSpec { need, ..self }
    }

    /// Sets the spans on which the metric is written; by default any. A metric of model or tool calls does not run on
    /// spans of unknown kind, and a metric of agents or runs does not run in a trace without an agent. A trace whose
    /// final answer is not recorded can pass only if a metric of agents, runs or any span was measured.
    #[must_use]
    pub const fn with_about(self, about: About) -> MetricSpec {
        MetricSpec { about, ..self }
    }

    /// Sets whether the metric measures the process and not the result; by default the result. Failures of the process
    /// do not count where the policy `outcome_relevant` applies.
    #[must_use]
    pub const fn with_process(self, process: bool) -> MetricSpec {
        MetricSpec { process, ..self }
    }

    /// Sets the categories of the defects that the metric detects; by default all.
    #[must_use]
    pub const fn with_categories(self, categories: &'static [Category]) -> MetricSpec {
        MetricSpec { categories, ..self }
    }

    /// Sets the labels that fail; by default none.
    #[must_use]
    pub const fn with_fail_labels(self, fail_labels: &'static [&'static str]) -> MetricSpec {
        MetricSpec { fail_labels, ..self }
    }

    /// The key of `verdict.metrics` that configures the metric; `None` for a custom metric.
    pub fn section(&self) -> Option<&'static str> {
        self.section.map(SectionKey::as_str)
    }

    /// Whether the metric is measured on the span `span_index` although it is a wrapper: a metric of the run applies to
    /// the root of the trace, whether it is the span of an agent or only contains one.
    pub(crate) fn is_on_wrapper(&self, trace: &AgentTrace, span_index: Idx) -> bool {
        matches!(self.about, About::Run | About::Plans | About::Segments)
            && trace.tree.root() == Some(span_index)
    }

    /// Whether the metric may be measured in a trace: a metric of agents needs an agent.
    pub(crate) fn may_be_in(&self, trace: &AgentTrace) -> bool {
        !trace.agents.is_empty()
            || matches!(self.about, About::Model | About::Tool | About::Call | About::Any)
    }

    /// Whether the metric may be measured on a span of this kind: a metric of steps needs a recognised kind.
    pub(crate) fn may_be_on(&self, kind: Kind) -> bool {
        kind != Kind::Unknown || !matches!(self.about, About::Model | About::Tool | About::Call)
    }

    /// The default threshold; 0 for a metric without scores.
    pub(crate) fn default_threshold(&self) -> f64 {
        self.threshold.unwrap_or_default()
    }

    /// The name of the schema of judges' answers.
    pub(crate) fn form(&self) -> &'static str {
        self.rubric.map_or(self.name, |rubric| rubric.form)
    }
}

const BLANK: MetricSpec = MetricSpec {
    name: "",
    about: About::Any,
    scale: Scale::UNIT,
    need: Need::Span,
    shows_later: false,
    requires: Requires::Nothing,
    on_wrappers: false,
    threshold: None,
    fail_labels: &[],
    process: false,
    judges_calls: false,
    categories: &[],
    rubric: None,
    named_prompts: &[],
    section: None,
};

/// The base of the metrics on 1-5.
pub(crate) const FIVE: MetricSpec = MetricSpec { scale: Scale::FIVE, threshold: Some(4.0), ..BLANK };
const MODEL: MetricSpec = MetricSpec { about: About::Model, requires: Requires::InputAndOutput, ..FIVE };
const AGENT: MetricSpec = MetricSpec { about: About::Agent, need: Need::Subtree, ..FIVE };
/// The base of the metrics of `gpa`.
pub(crate) const GPA: MetricSpec =
    MetricSpec { about: About::Run, scale: Scale::THREE, need: Need::Trace, threshold: Some(2.0), ..BLANK };
const PATHS: MetricSpec = MetricSpec { about: About::Agent, need: Need::Trace, ..BLANK };
/// The base of the metrics of `plan`.
pub(crate) const PLAN: MetricSpec = MetricSpec { need: Need::Subtree, threshold: Some(0.75), ..BLANK };

macro_rules! rubric {
    ($form:literal) => {
        Some(Rubric { form: $form, text: include_str!(concat!("ask/rubric/", $form, ".md")), examples: None })
    };
    ($form:literal, with examples) => {
        Some(Rubric {
            form: $form,
            text: include_str!(concat!("ask/rubric/", $form, ".md")),
            examples: Some(include_str!(concat!("ask/examples/", $form, ".md"))),
        })
    };
}

/// Expands the table to the data of the rows.
macro_rules! rows {
    ($(
        $(#[doc = $doc:literal])*
        $section:ident: $settings:ty = $(
            $name:expr => $base:ident { $($field:ident: $value:expr),* $(,)? }
            $(by { $($implementation:tt)* })?
        ),+;
    )*) => {
        /// Keys of `verdict.metrics`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(non_camel_case_types, reason = "named as the keys")]
        pub(crate) enum SectionKey { $($section),* }

        impl SectionKey {
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $( SectionKey::$section => stringify!($section), )* }
            }
        }

        /// Every metric, in the order of the measurements of one span.
        pub static TABLE: &[MetricSpec] = &[$($(
            MetricSpec { name: $name, section: Some(SectionKey::$section), $($field: $value,)* ..$base },
        )*)*];
    };
}
metric_table!(rows);

const HARM: [&str; HarmReason::ALL.len()] = {
    let mut labels = [""; HarmReason::ALL.len()];
    let mut i = 0;
    while i < labels.len() {
        labels[i] = HarmReason::ALL[i].as_str();
        i += 1;
    }
    labels
};
const RATINGS: [&str; 7] =
    ["extremely_bad", "very_bad", "bad", "acceptable", "good", "very_good", "extremely_good"];

const ERRORS: &[Category] = &[
    FormattingErrors,
    ToolDefinitionIssues,
    EnvironmentSetupErrors,
    RateLimiting,
    AuthenticationErrors,
    ServiceErrors,
    ResourceNotFound,
    ResourceExhaustion,
    TimeoutIssues,
];
const REASONING: &[Category] = &[
    LanguageOnly,
    ToolRelated,
    ToolOutputMisinterpretation,
    IncorrectProblemIdentification,
    IncorrectMemoryUsage,
    ContextHandlingFailures,
];
const TOOL_CALLS: &[Category] = &[PoorInformationRetrieval, FormattingErrors, ToolRelated, ResourceNotFound];
const TOOL_CHOICE: &[Category] = &[PoorInformationRetrieval, ToolSelectionErrors];
const PLANNING: &[Category] = &[TaskOrchestration, GoalDeviation, IncorrectProblemIdentification];
const ANSWER: &[Category] = &[GoalDeviation, InstructionNonCompliance, LanguageOnly];

/// The row of the table with this name.
pub fn spec(name: &str) -> Option<&'static MetricSpec> {
    TABLE.iter().find(|row| row.name == name)
}

/// The row of the table or of `custom` with this name.
pub(crate) fn spec_among(custom: &[&'static MetricSpec], name: &str) -> Option<&'static MetricSpec> {
    spec(name).or_else(|| custom.iter().copied().find(|row| row.name == name))
}

/// The rows of a section.
pub(crate) fn rows_of(section: SectionKey) -> impl Iterator<Item = &'static MetricSpec> {
    TABLE.iter().filter(move |row| row.section == Some(section))
}

/// The rows that judges answer by a rubric.
pub(crate) fn rows_with_rubric() -> impl Iterator<Item = &'static MetricSpec> {
    TABLE.iter().filter(|row| row.rubric.is_some())
}
