//! The metrics, one row each, under the section of `verdict.metrics` that configures them.
//!
//! A row's name is its attribute key. Settings, self-metrics, scales, propagation, scoring and the
//! configuration's JSON schema are derived from the rows: a new metric is a file in this folder, a row
//! here and, where judges answer it, a rubric. Names and scales are those of the papers: 001 (tables 1
//! and 2), 000 (section 3), 002 to 004.
//!
//! The rows are the body of the macro `metric_table!`, which passes them to another macro. This file
//! makes the rows' data of them, `settings` the struct of the configuration, and `catalog` the list of
//! implementations: so the settings need not import the metrics, which read them.

use std::fmt;

use Category::*;

use super::measurement::Category;

/// Calls a macro with every section: its documentation, key and type, then its rows: name, base,
/// differences from the base, and the types that implement it.
///
/// Implementations: `rules` answers from the trace alone (where several rows of a section come from
/// one implementation, the first row has it), `timed` is the name under which that is timed if not the
/// row's, `asks` asks judges in another way than by the row's rubric.
macro_rules! metric_table {
    ($then:ident) => { $then! {
        /// Errors, by status, exception, flag, or as returned text. Labels `valid`, `system_error`,
        /// `tool_error`, `api_error`; by default all but `valid` fail.
        error_detection: Labelled<FailingErrors> = "error_detection" => BLANK {
            about: About::Step, scale: Scale::Labels(&["valid", "api_error", "tool_error", "system_error"]),
            fail_labels: &["system_error", "tool_error", "api_error"], categories: ERRORS,
            requires: Requires::OutputOrError, on_wrappers: true, rubric: rubric!("error_detection") }
                by { rules: &SpanRule(error_detection::measure) };
        /// Refusals and give-ups. Labels `valid`, `missing_knowledge`, `policy_restriction`, `other`.
        avoidance: Labelled<FailingAvoidances> = "avoidance" => BLANK {
            about: About::Model, need: Need::Parent, categories: &[GoalDeviation],
            scale: Scale::Labels(&["valid", "policy_restriction", "missing_knowledge", "other"]),
            fail_labels: &["missing_knowledge", "other"], requires: Requires::Output, rubric: rubric!("avoidance") }
                by { rules: &SpanRule(avoidance::measure) };
        /// Verifiable instructions of the prompt, compared with the output (1-5).
        instruction_following: Scored = "instruction_following" => MODEL {
            categories: &[InstructionNonCompliance, FormattingErrors], rubric: rubric!("instruction_following") }
                by { rules: &SpanRule(instruction_following::measure) };
        /// Facts and claims compared with what the model had seen (1-5).
        reasoning_integrity: Scored = "reasoning_integrity" => MODEL {
            need: Need::Parent, categories: REASONING, rubric: rubric!("reasoning_integrity") }
                by { rules: &SpanRule(reasoning::measure) };
        /// Whether a tool call did what it was for (1-5).
        tool_completeness: Scored = "tool_completeness" => FIVE {
            about: About::Tool, need: Need::Parent, categories: TOOL_CALLS,
            requires: Requires::OutputOrError, rubric: rubric!("tool_completeness") }
                by { rules: &SpanRule(tool_completeness::measure) };
        /// Time from start to end, in milliseconds.
        latency: Latency = "latency" => BLANK {
            scale: Scale::Quantity("ms"), process: true }
                by { rules: &SpanRule(latency::measure) };
        /// Tokens of a model call.
        tokens: TokenLimits = "tokens" => BLANK {
            about: About::Model, scale: Scale::Quantity("{token}"), process: true }
                by { rules: &SpanRule(tokens::measure) };
        /// An agent's run compared with its plan (1-5).
        plan_efficiency: Scored = "plan_efficiency" => AGENT {
            process: true, categories: PLANNING, rubric: rubric!("plan_efficiency") }
                by { rules: &AgentRule(plan_efficiency::measure) };
        /// Whether an agent's calls cover its task (1-5).
        tool_coverage: Scored = "tool_coverage" => AGENT {
            categories: TOOL_CHOICE, rubric: rubric!("tool_coverage") }
                by { rules: &AgentRule(tool_coverage::measure) };
        /// Repeated, looping or unadapted calls of an agent (1-5).
        tool_abuse: Scored = "tool_abuse" => AGENT {
            process: true, categories: &[ResourceAbuse], rubric: rubric!("tool_abuse") }
                by { rules: &AgentRule(tool_abuse::measure) };
        /// Whether an agent's final answer covers what was asked (1-5).
        completeness: Scored = "completeness" => AGENT {
            categories: ANSWER, requires: Requires::Answer, rubric: rubric!("completeness") }
                by { rules: &AgentRule(completeness::measure) };
        /// Plans that agents write: their form, wiring, tools, and how well they answer (004).
        plan: PlanSettings =
            "plan.tool_prompt_alignment" => PLAN {},
            "plan.format" => PLAN {},
            "plan.step_executability" => PLAN {},
            "plan.query_adherence" => PLAN {},
            "plan.dependencies" => PLAN {},
            "plan.redundancy" => PLAN {},
            "plan.tool_usage_completeness" => PLAN {},
            "plan.score" => PLAN {
                scale: Scale::Scores(0, 100), threshold: Some(75.0) }
                by { rules: &plan::metric::PlanRules, asks: &plan::metric::PlanJudged },
            "plan.rating" => PLAN {
                scale: Scale::Labels(&RATINGS), threshold: None, fail_labels: RATINGS.split_at(4).0 };
        /// An agent's calls compared with the paths that its task allows (0-1): `path.*`.
        path: PathSettings =
            "path.correctness" => PATHS {}
                by { rules: &path::metric::Paths, timed: "path" },
            "path.pc_ktc" => PATHS {}, "path.prefix_criticality" => PATHS {}, "path.harm_rate" => PATHS {}, "path.efficiency" => PATHS {}, "path.pc_hlr" => PATHS {},
            "path.accepting" => PATHS { scale: Scale::Labels(&["accepting", "not_accepting"]) },
            "path.weighted" => PATHS {},
            "path.harmful_call" => PATHS { about: About::Step, scale: Scale::Labels(&HARM), fail_labels: &HARM };
        /// The task as a checklist of yes or no questions, each proved from the run (003).
        checklist: ChecklistSettings = "checklist.verdict" => BLANK {
            about: About::Run, need: Need::Trace, scale: Scale::Labels(&["yes", "no"]), fail_labels: &["no"] }
                by { rules: &checklist::Checklist { asks: false }, asks: &checklist::Checklist { asks: true } };
        /// Goal, plan and action (0-3), by judges alone.
        gpa: Gpa =
            "gpa.goal_fulfillment" => GPA {
                categories: ANSWER, requires: Requires::Answer, rubric: rubric!("gpa_goal_fulfillment") },
            "gpa.logical_consistency" => GPA {
                categories: REASONING, rubric: rubric!("gpa_logical_consistency") },
            "gpa.execution_efficiency" => GPA {
                process: true, categories: &[ResourceAbuse], rubric: rubric!("gpa_execution_efficiency") },
            "gpa.plan_quality" => GPA {
                about: About::Plans, categories: PLANNING, rubric: rubric!("gpa_plan_quality") },
            "gpa.plan_adherence" => GPA {
                about: About::Segments, categories: PLANNING, rubric: rubric!("gpa_plan_adherence") },
            "gpa.tool_selection" => GPA { categories: TOOL_CHOICE, rubric: rubric!("gpa_tool_selection") },
            "gpa.tool_calling" => GPA { categories: TOOL_CALLS, rubric: rubric!("gpa_tool_calling") };
    } };
}

/// What a metric must see before it can run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    /// The span alone.
    Span,
    /// Its earlier siblings too.
    Siblings,
    /// Its parent too.
    Parent,
    /// The agent's whole subtree.
    Subtree,
    /// The whole trace.
    Trace,
}

/// What a metric's value may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// A score from the first to the second, which is the best.
    Scores(u8, u8),
    /// A label; of those that judges answer, from good to bad.
    Labels(&'static [&'static str]),
    /// A quantity in this unit, compared with a limit of the operator's.
    Quantity(&'static str),
}

impl Scale {
    /// 1 to 5 (001).
    pub const FIVE: Scale = Scale::Scores(1, 5);
    /// 0 to 3 (000).
    pub const THREE: Scale = Scale::Scores(0, 3);
    /// 0 to 1 (002, 004).
    pub const UNIT: Scale = Scale::Scores(0, 1);

    /// The worst and the best score; labels and quantities have none.
    pub fn range(self) -> Option<(f64, f64)> {
        match self {
            Scale::Scores(min, max) => Some((min.into(), max.into())),
            Scale::Labels(_) | Scale::Quantity(_) => None,
        }
    }

    /// Whole scores, lowest first; none for labels and quantities.
    pub fn scores(self) -> Vec<u8> {
        match self {
            Scale::Scores(min, max) => (min..=max).collect(),
            Scale::Labels(_) | Scale::Quantity(_) => Vec::new(),
        }
    }

    /// `(score - min) / (max - min)`, from 0 to 1.
    pub fn normalised(self, score: f64) -> Option<f64> {
        let (min, max) = self.range()?;
        Some(((score - min) / (max - min)).clamp(0.0, 1.0))
    }
}

/// Which spans a metric is written on, and what of the trace it looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// A model call.
    Model,
    /// A tool call.
    Tool,
    /// Either.
    Step,
    /// An agent with all beneath it.
    Agent,
    /// An agent by itself, and the trace as a whole.
    Run,
    /// The same, its plans alone and what led to each.
    Plans,
    /// The same, each plan with what was done until the next.
    Segments,
    /// A span of any kind.
    Any,
}

/// The recorded content without which judges are not asked, as the metric is unmeasured then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requires {
    /// None.
    Nothing,
    /// The span's input and output.
    InputAndOutput,
    /// The span's output.
    Output,
    /// The span's output, or an error of the span.
    OutputOrError,
    /// The agent's final answer.
    Answer,
}

/// How judges are asked for a metric.
#[derive(Clone, Copy, Debug)]
pub struct Rubric {
    /// Names the schema of their answers.
    pub form: &'static str,
    /// What they are told.
    pub text: &'static str,
}

/// A metric's row.
pub struct MetricSpec {
    /// As in attribute keys.
    pub name: &'static str,
    /// Which spans it is written on.
    pub about: About,
    /// What its value may be.
    pub scale: Scale,
    /// What of the trace must be there before judges can be asked. Rules run when the trace has
    /// closed: what a span's output is for, and how it went on, shows later.
    pub need: Need,
    /// The recorded content without which judges are not asked.
    pub(crate) requires: Requires,
    /// Its rule also applies to wrappers, the second spans of a model call.
    pub(crate) on_wrappers: bool,
    /// The default threshold, on its scale; a score below it fails.
    pub threshold: Option<f64>,
    /// The labels that fail by default.
    pub fail_labels: &'static [&'static str],
    /// It is about the way, not about the result: see `propagate::relevance`.
    pub process: bool,
    /// What it is there to find; empty means anything. A metric is not blamed for what is another's
    /// task (000, appendix A.1: coverage is recall on the errors that a judge is designed to detect).
    pub categories: &'static [Category],
    /// How judges are asked, where the rows' common way of asking serves.
    pub rubric: Option<Rubric>,
    /// The section of `verdict.metrics` that configures it; none for a metric added from outside.
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
    /// The row of a metric that is added from outside: its name is its attribute key, lower-case words
    /// separated by dots. Wanted on every span; its first step decides.
    pub const fn custom(name: &'static str, scale: Scale, threshold: Option<f64>) -> MetricSpec {
        MetricSpec { name, scale, threshold, ..BLANK }
    }

    /// Names the schema of judges' answers.
    pub(crate) fn form(&self) -> &'static str {
        self.rubric.map_or(self.name, |rubric| rubric.form)
    }
}

const BLANK: MetricSpec = MetricSpec {
    name: "",
    about: About::Any,
    scale: Scale::UNIT,
    need: Need::Span,
    requires: Requires::Nothing,
    on_wrappers: false,
    threshold: None,
    fail_labels: &[],
    process: false,
    categories: &[],
    rubric: None,
    section: None,
};

const FIVE: MetricSpec = MetricSpec { scale: Scale::FIVE, threshold: Some(4.0), ..BLANK };
const MODEL: MetricSpec = MetricSpec { about: About::Model, requires: Requires::InputAndOutput, ..FIVE };
const AGENT: MetricSpec = MetricSpec { about: About::Agent, need: Need::Subtree, ..FIVE };
const GPA: MetricSpec =
    MetricSpec { about: About::Run, scale: Scale::THREE, need: Need::Trace, threshold: Some(2.0), ..BLANK };
const PATHS: MetricSpec = MetricSpec { about: About::Agent, need: Need::Trace, ..BLANK };
const PLAN: MetricSpec = MetricSpec { need: Need::Subtree, threshold: Some(0.75), ..BLANK };

macro_rules! rubric {
    ($form:literal) => {
        Some(Rubric { form: $form, text: include_str!(concat!("ask/rubric/", $form, ".md")) })
    };
}

/// The data of the rows.
macro_rules! rows {
    ($(
        $(#[doc = $doc:literal])*
        $section:ident: $settings:ty = $(
            $name:literal => $base:ident { $($field:ident: $value:expr),* $(,)? }
            $(by { $($implementation:tt)* })?
        ),+;
    )*) => {
        /// Keys of `verdict.metrics`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(non_camel_case_types, reason = "named as the keys")]
        pub(crate) enum SectionKey { $($section),* }

        /// Every metric, in the order of the measurements of one span.
        pub static TABLE: &[MetricSpec] = &[$($(
            MetricSpec { name: $name, section: Some(SectionKey::$section), $($field: $value,)* ..$base },
        )*)*];
    };
}
metric_table!(rows);

const HARM: [&str; 3] = ["not_allowed_here", "other_arguments", "other_function"];
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

/// The row of a metric.
pub fn spec(name: &str) -> Option<&'static MetricSpec> {
    TABLE.iter().find(|row| row.name == name)
}

/// The row of a metric of the table, or of one that was added.
pub(crate) fn spec_among(custom: &[&'static MetricSpec], name: &str) -> Option<&'static MetricSpec> {
    spec(name).or_else(|| custom.iter().copied().find(|row| row.name == name))
}

/// The rows that judges answer by a rubric.
pub(crate) fn asked() -> impl Iterator<Item = &'static MetricSpec> {
    TABLE.iter().filter(|row| row.rubric.is_some())
}
