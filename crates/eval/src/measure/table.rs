//! The metrics, one row each, under the section of `verdict.metrics` that configures them.
//!
//! A row's name is its attribute key. Settings, self-metrics, scales, propagation, scoring and the
//! configuration's JSON schema are derived from the rows: a new metric is a file beside this one, a
//! row here and, where judges answer it, a rubric. Names and scales are those of the papers: 001
//! (tables 1 and 2), 000 (section 3), 002 to 004.

use std::fmt;
use std::sync::Arc;

use Category::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent::{completeness, plan_efficiency, tool_abuse, tool_coverage};
use super::ask::Asker;
use super::path::metric::NAMES as PATH;
use super::plan::part::PlanPart;
use super::rule::{AgentRule, SpanRule};
use super::settings::*;
use super::{
    Category, Metric, Need, avoidance, checklist, error_detection, instruction_following, latency, path,
    plan, reasoning, tokens, tool_completeness,
};

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
    /// The rule that answers it; of a section with several rows the first row has it.
    pub(crate) rules: Option<&'static dyn Metric>,
    /// The name under which that is timed, if not the row's.
    timed: Option<&'static str>,
    /// What asks judges in a way of its own.
    pub(crate) asks: Option<&'static dyn Metric>,
    /// What the configuration says of it.
    pub(crate) settings: fn(&Settings) -> MetricSettings<'_>,
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

    /// The settings that hold unless the caller configures others.
    pub fn defaults(&self) -> Scored {
        Scored { threshold: self.threshold.unwrap_or_default(), ..Scored::default() }
    }

    /// Why a metric of this row cannot be added with these settings.
    pub(crate) fn problem(&self, settings: &Scored) -> Option<String> {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let is_word = |word: &str| !word.is_empty() && word.chars().all(legal);
        if !self.name.split('.').all(is_word) || self.name.split('.').next() == Some("trace") {
            return Some(
                "a name is lower-case words separated by dots, and does not begin with 'trace'".into(),
            );
        }
        if spec(self.name).is_some() {
            return Some("there is a metric of this name".into());
        }
        thresholds(self.scale, settings.threshold, &settings.overrides)
            .into_iter()
            .next()
            .map(|problem| problem.message)
    }

    /// The name under which its rule is timed.
    pub(crate) fn timed(&self) -> &'static str {
        self.timed.unwrap_or(self.name)
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
    rules: None,
    timed: None,
    asks: None,
    settings: |_| MetricSettings::OFF,
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

/// Sections of the configuration, their types, and their rows: name, base, what differs from that.
macro_rules! metrics {
    ($(
        $(#[doc = $doc:literal])*
        $section:ident: $settings:ty =
            $( $name:expr => $base:ident { $($field:ident: $value:expr),* $(,)? } ),+;
    )*) => {
        /// All metrics of this version, as `verdict.metrics` configures them.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct Settings {
            /// Default `[rules]`. Who answers where a metric does not say: `rules`, and the names of
            /// `judges`. With both, a rule's fact is final, elsewhere the judge leads; several judges give
            /// the median.
            pub judges: Vec<String>,
            $( $(#[doc = $doc])* pub $section: $settings, )*
            /// How judges are asked: resolved from `verdict.ask` and its neighbours, not written here.
            #[serde(skip)]
            pub asker: Arc<Asker>,
            /// Metrics that were added from outside.
            #[serde(skip)]
            pub(crate) custom: Vec<CustomMetric>,
        }

        impl Default for Settings {
            fn default() -> Settings {
                let judges = vec![RULES.to_owned()];
                Settings { judges, $( $section: <$settings>::default(), )* asker: Arc::default(), custom: Vec::new() }
            }
        }

        impl Settings {
            /// The sections, by key.
            pub(super) fn sections(&self) -> Vec<(&'static str, &dyn Section)> {
                vec![$( (stringify!($section), &self.$section), )*]
            }
        }

        /// Every metric; of one span, measurements stand in this order.
        pub static TABLE: &[MetricSpec] = &[$( $( MetricSpec {
            name: $name,
            settings: |settings| settings.$section.of($name),
            $($field: $value,)*
            ..$base
        }, )* )*];
    };
}

metrics! {
    /// Errors, by status, exception, flag, or as returned text. Labels `valid`, `system_error`,
    /// `tool_error`, `api_error`; by default all but `valid` fail.
    error_detection: Labelled<FailingErrors> = error_detection::NAME => BLANK {
        about: About::Step, scale: Scale::Labels(&["valid", "api_error", "tool_error", "system_error"]),
        fail_labels: &["system_error", "tool_error", "api_error"], categories: ERRORS,
        requires: Requires::OutputOrError, on_wrappers: true,
        rules: Some(&SpanRule(error_detection::measure)), rubric: rubric!("error_detection") };
    /// Refusals and give-ups. Labels `valid`, `missing_knowledge`, `policy_restriction`, `other`.
    avoidance: Labelled<FailingAvoidances> = avoidance::NAME => BLANK {
        about: About::Model, need: Need::Parent, categories: &[GoalDeviation],
        scale: Scale::Labels(&["valid", "policy_restriction", "missing_knowledge", "other"]),
        fail_labels: &["missing_knowledge", "other"], requires: Requires::Output,
        rules: Some(&SpanRule(avoidance::measure)), rubric: rubric!("avoidance") };
    /// Verifiable instructions of the prompt, held against the output (1-5).
    instruction_following: Scored = instruction_following::NAME => MODEL {
        categories: &[InstructionNonCompliance, FormattingErrors],
        rules: Some(&instruction_following::InstructionFollowing), rubric: rubric!("instruction_following") };
    /// Facts and claims held against what the model had seen (1-5).
    reasoning_integrity: Scored = reasoning::NAME => MODEL {
        need: Need::Parent, categories: REASONING,
        rules: Some(&reasoning::ReasoningIntegrity), rubric: rubric!("reasoning_integrity") };
    /// Whether a tool call did what it was for (1-5).
    tool_completeness: Scored = tool_completeness::NAME => FIVE {
        about: About::Tool, need: Need::Parent, categories: TOOL_CALLS, requires: Requires::OutputOrError,
        rules: Some(&SpanRule(tool_completeness::measure)), rubric: rubric!("tool_completeness") };
    /// Time from start to end, in milliseconds.
    latency: Latency = latency::NAME => BLANK {
        scale: Scale::Quantity("ms"), process: true, rules: Some(&SpanRule(latency::measure)) };
    /// Tokens of a model call.
    tokens: TokenLimits = tokens::NAME => BLANK {
        about: About::Model, scale: Scale::Quantity("{token}"), process: true,
        rules: Some(&SpanRule(tokens::measure)) };
    /// An agent's run held against its plan (1-5).
    plan_efficiency: Scored = plan_efficiency::NAME => AGENT {
        process: true, categories: PLANNING,
        rules: Some(&AgentRule(plan_efficiency::measure)), rubric: rubric!("plan_efficiency") };
    /// Whether an agent's calls cover its task (1-5).
    tool_coverage: Scored = tool_coverage::NAME => AGENT {
        categories: TOOL_CHOICE,
        rules: Some(&AgentRule(tool_coverage::measure)), rubric: rubric!("tool_coverage") };
    /// Repeated, looping or unadapted calls of an agent (1-5).
    tool_abuse: Scored = tool_abuse::NAME => AGENT {
        process: true, categories: &[ResourceAbuse],
        rules: Some(&AgentRule(tool_abuse::measure)), rubric: rubric!("tool_abuse") };
    /// Whether an agent's final answer covers what was asked (1-5).
    completeness: Scored = completeness::NAME => AGENT {
        categories: ANSWER, requires: Requires::Answer,
        rules: Some(&AgentRule(completeness::measure)), rubric: rubric!("completeness") };
    /// Plans that agents write: their form, wiring, tools, and how well they answer (004).
    plan: plan::Settings =
        PlanPart::ToolPromptAlignment.metric() => PLAN {},
        PlanPart::Format.metric() => PLAN {},
        PlanPart::StepExecutability.metric() => PLAN {},
        PlanPart::QueryAdherence.metric() => PLAN {},
        PlanPart::Dependencies.metric() => PLAN {},
        PlanPart::Redundancy.metric() => PLAN {},
        PlanPart::ToolUsageCompleteness.metric() => PLAN {},
        plan::metric::SCORE => PLAN {
            scale: Scale::Scores(0, 100), threshold: Some(75.0),
            rules: Some(&plan::metric::PlanRules), asks: Some(&plan::metric::PlanJudged) },
        plan::metric::RATING => PLAN {
            scale: Scale::Labels(&RATINGS), threshold: None, fail_labels: RATINGS.split_at(4).0 };
    /// An agent's calls held against the paths that its task allows (0-1): `path.*`.
    path: path::Settings =
        PATH[0] => PATHS { rules: Some(&path::metric::Paths), timed: Some("path") },
        PATH[1] => PATHS {}, PATH[2] => PATHS {}, PATH[3] => PATHS {}, PATH[4] => PATHS {}, PATH[5] => PATHS {},
        PATH[6] => PATHS { scale: Scale::Labels(&["accepting", "not_accepting"]) },
        PATH[7] => PATHS {},
        path::metric::HARMFUL_CALL => PATHS { about: About::Step, scale: Scale::Labels(&HARM), fail_labels: &HARM };
    /// The task as a checklist of yes or no questions, each proved from the run (003).
    checklist: checklist::Settings = checklist::NAME => BLANK {
        about: About::Run, need: Need::Trace, scale: Scale::Labels(&["yes", "no"]), fail_labels: &["no"],
        rules: Some(&checklist::Checklist { asks: false }), asks: Some(&checklist::Checklist { asks: true }) };
    /// Goal, plan and action (0-3), by judges alone.
    gpa: Gpa =
        Judgement::GoalFulfillment.metric() => GPA {
            categories: ANSWER, requires: Requires::Answer, rubric: rubric!("gpa_goal_fulfillment") },
        Judgement::LogicalConsistency.metric() => GPA {
            categories: REASONING, rubric: rubric!("gpa_logical_consistency") },
        Judgement::ExecutionEfficiency.metric() => GPA {
            process: true, categories: &[ResourceAbuse], rubric: rubric!("gpa_execution_efficiency") },
        Judgement::PlanQuality.metric() => GPA {
            about: About::Plans, categories: PLANNING, rubric: rubric!("gpa_plan_quality") },
        Judgement::PlanAdherence.metric() => GPA {
            about: About::Segments, categories: PLANNING, rubric: rubric!("gpa_plan_adherence") },
        Judgement::ToolSelection.metric() => GPA { categories: TOOL_CHOICE, rubric: rubric!("gpa_tool_selection") },
        Judgement::ToolCalling.metric() => GPA { categories: TOOL_CALLS, rubric: rubric!("gpa_tool_calling") };
}

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

/// A metric that is added from outside.
#[derive(Clone)]
pub struct CustomMetric {
    /// Its name and scale.
    pub row: &'static MetricSpec,
    /// Its threshold, and the judges that it asks.
    pub settings: Scored,
    pub(crate) metric: Arc<dyn Metric>,
}

impl CustomMetric {
    /// Where `settings` name judges, its first step may ask; without, it runs with the rules and its
    /// questions are not asked.
    pub fn new(
        row: &'static MetricSpec,
        mut settings: Scored,
        metric: impl Metric + 'static,
    ) -> CustomMetric {
        if settings.judges.is_empty() {
            settings.judges.push(RULES.to_owned());
        }
        CustomMetric { row, settings, metric: Arc::new(metric) }
    }

    /// The judges that it asks.
    pub fn named_judges(&self) -> impl Iterator<Item = &str> {
        self.settings.judges.iter().map(String::as_str).filter(|judge| *judge != RULES)
    }
}

impl PartialEq for CustomMetric {
    fn eq(&self, other: &CustomMetric) -> bool {
        self.row.name == other.row.name && self.settings == other.settings
    }
}

impl fmt::Debug for CustomMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomMetric").field(self.row).field(&self.settings).finish()
    }
}

/// The rows that judges answer by a rubric.
pub(crate) fn asked() -> impl Iterator<Item = &'static MetricSpec> {
    TABLE.iter().filter(|row| row.rubric.is_some())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::measure::question_rounds::{Inputs, Questions};
    use crate::measure::testing::Script;
    use crate::measure::{Unmeasured, catalog};

    #[test]
    fn every_rubric_says_what_it_is_about_and_anchors_its_scale() {
        for row in asked() {
            let text = row.rubric.unwrap().text;
            assert!(text.starts_with("<!-- version "), "{}", row.name);
            for part in ["## What is judged", "## What is not", "## Scale", "## Findings"] {
                assert!(text.contains(part), "{} lacks {part}", row.name);
            }
            let anchors: Vec<String> = match row.scale {
                Scale::Labels(labels) => labels.iter().map(|l| format!("\n- `{l}`: ")).collect(),
                scale => scale.scores().iter().map(|s| format!("\n- {s}: ")).collect(),
            };
            for anchor in anchors {
                assert_eq!(text.matches(&anchor).count(), 1, "{}: {anchor}", row.name);
            }
        }
    }

    #[test]
    fn names_are_told_apart() {
        let names: BTreeSet<_> = TABLE.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), TABLE.len());
        assert!(asked().all(|row| row.form() == row.name.replace('.', "_")));
        assert_eq!(asked().count(), 16);
    }

    #[test]
    fn a_row_stands_under_its_section_and_says_its_defaults() {
        let settings = Settings::default();
        let sections: BTreeSet<_> = settings.sections().into_iter().map(|(key, _)| key).collect();
        for row in TABLE {
            assert!(sections.contains(row.name.split('.').next().unwrap()), "{}", row.name);
            let default = (row.settings)(&settings);
            assert_eq!(default.threshold, row.threshold, "{}", row.name);
            if let (Scale::Labels(labels), true) = (row.scale, row.rubric.is_some()) {
                let fails = |label: &&&str| settings.fails(row.name, label);
                let failing: BTreeSet<_> = labels.iter().filter(fails).collect();
                assert_eq!(failing, row.fail_labels.iter().collect(), "{}", row.name);
            }
        }
    }

    const TASK: &str = r#"
task: refund
alphabet: { look: get_order, pay: issue_refund }
states:
  begin: { on: { look: seen } }
  seen: { on: { pay: paid } }
  paid: { final: true }
weights: { correctness: 1 }
"#;

    #[test]
    fn what_rules_and_judges_write_is_in_the_table_and_the_table_has_nothing_else() {
        let settings = "judges: [rules, main]\nplan: { enabled: true }\nlatency: { max_ms: { llm: 1 } }\n\
            tokens: { max: 1 }\nchecklist: { fixed: [{ items: [{ question: 'Is it done?' }] }] }\n\
            path: { tasks: [refund.yaml] }\n";
        let mut settings: Settings = serde_saphyr::from_str(settings).unwrap();
        let task = verdict_config::Source { name: "refund.yaml".into(), text: TASK.into() };
        settings.path.loaded = path::settings::TaskSet::new(path::load::load(&[task]).unwrap().tasks);
        let trace = Script::new("Please refund order A-17.")
            .tools(&["get_order", "issue_refund"])
            .says("First look, then pay.")
            .plan(&["get_order", "issue_refund"])
            .calls("", &[("issue_refund", "{}")])
            .returns("paid")
            .answers("Done.")
            .build();
        let rules = catalog::run(&trace, &settings);
        let inputs = Inputs { trace: &trace, settings: &settings, rules: &[] };
        let mut rounds = Questions::new(inputs);
        while rounds.next_question().is_some() {}
        let asked = rounds.finish(Unmeasured::Timeout);
        let written: BTreeSet<_> = rules.iter().chain(&asked).map(|m| m.metric).collect();
        assert_eq!(written, TABLE.iter().map(|row| row.name).collect());
    }
}
