//! The evaluator's configuration: the keys of `verdict:` for recognition, metrics, propagation and
//! annotation.
//!
//! Every section is a struct with public fields and a `Default`, and can also be read with `serde`. Keys, defaults and
//! effects are described on the fields.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::annotate::Emission;
use crate::measure::ask::Asker;
use crate::measure::ask::config::{instruction_problems, rubric_problems};
use crate::measure::remote::config::problems as evaluator_problems;
use crate::measure::{MetricSpec, Settings};
use crate::recognise::Recogniser;
use crate::redact::Redactor;

pub use crate::annotate::config::{DetailLevel, Emit, Existing, Explanations};
pub use crate::measure::ask::config::{AskConfig, Instruction};
pub use crate::measure::checklist::settings::ChecklistSettings;
pub use crate::measure::gpa::Gpa;
pub use crate::measure::path::settings::PathSettings;
pub use crate::measure::plan::settings::PlanSettings;
pub use crate::measure::remote::config::Evaluators;
pub use crate::measure::sections::{Labelled, Latency, OutcomeSettings, Override, Scored, TokenLimits};
pub use crate::measure::settings::MetricsConfig;
pub use crate::open_limits::AlarmConfig;
pub use crate::propagate::policy::Policies;
pub use crate::recognise::overrides::Overrides;
pub use crate::recognise::table::TableError;
pub use crate::redact::{InvalidPattern, Redact};
pub use verdict_config::{Invalid, Problem, Source};

/// The parts of [`AskConfig`] and [`Instruction`].
pub mod ask {
    pub use crate::measure::ask::config::{AskCondition, Example, SpanFilter, TraceSampling};
}

/// The parts of [`Labelled`].
pub mod labels {
    pub use crate::measure::sections::{AvoidanceLabel, ErrorLabel, FailingAvoidances, FailingErrors};
}

/// The parts of [`Gpa`].
pub mod gpa {
    pub use crate::measure::gpa::{MetricOverride, Per};
    pub use crate::measure::metric_names::GpaMetric;
}

/// The parts of [`PathSettings`].
pub mod path {
    pub use crate::measure::metric_names::PathMetric;
    pub use crate::measure::path::task::Thresholds;
}

/// The parts of [`PlanSettings`].
pub mod plan {
    pub use crate::measure::plan::pair_questions::Matching;
    pub use crate::measure::plan::part::PlanWeights;
    pub use crate::measure::plan::reference::Rating;
    pub use crate::measure::plan::settings::Reference;
    pub use crate::measure::plan::tools::{Placement, ToolSpec};
}

/// The parts of [`ChecklistSettings`].
pub mod checklist {
    pub use crate::measure::checklist::check::{Called, Check, Lookup, SearchIn, TextForm};
    pub use crate::measure::checklist::compiled::CompiledPattern;
    pub use crate::measure::checklist::settings::{Asset, Class, Fixed, Item, JudgedAgents, Match};
}

/// The parts of [`Evaluators`].
pub mod evaluators {
    pub use crate::measure::remote::config::EvaluatorConfig;
    pub use crate::measure::remote::subject::Subject;
    pub use verdict_config::Size;
}

/// The parts of [`Overrides`].
pub mod recognise {
    pub use crate::recognise::overrides::{
        EventRule, Field, Flag, KindKey, LeafKind, Meaning, NameRule, PlanMarker, Rank,
    };
}

/// The parts of [`Redact`].
pub mod redact {
    pub use crate::redact::Mode;
}

/// The evaluator's part of the section `verdict`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Default `[attributes, log_events]`. Where verdicts are written. `attributes` alone suits
    /// destinations without logs; `span_events` writes measurements as events of the span as well.
    pub emit: Vec<Emit>,
    /// Default `fail`. Which measurements carry an explanation, which makes spans longer.
    pub explanations: Explanations,
    /// Default `normal`. How much is written of a measurement that passes. `full` adds `.judge`,
    /// `.normalized` and `.examined`, which makes spans longer.
    pub detail: DetailLevel,
    /// Default `replace`. The treatment of `verdict.*` attributes that an incoming span already has.
    /// `keep` trusts the sender, which could then write its own verdict.
    pub existing: Existing,
    /// Default `verdict.`. The beginning of every attribute key.
    pub prefix: String,
    /// Default false. Also write log events for measurements without a value, with the reason.
    pub log_unmeasured: bool,
    /// How a parent's verdict follows from those of its children.
    pub propagation: Policies,
    /// Attribute names and values of instrumentation that has no built-in convention.
    pub recognise: Overrides,
    /// Thresholds and switches of the metrics.
    pub metrics: MetricsConfig,
    /// Default none. Metrics that programs of your own answer, by the name of the metric, which is its attribute key:
    /// lower-case words separated by dots.
    pub evaluators: Evaluators,
    /// Which questions judges are asked, and how long they may be.
    pub ask: AskConfig,
    /// Default the built-in ones. Rubrics by the name of the metric, in place of the built-in rubric.
    /// `${file:PATH}` reads one from a file.
    pub rubrics: BTreeMap<String, String>,
    /// Default none. Instructions for judges about particular agents, in addition to the rubric.
    pub instructions: Vec<Instruction>,
    /// Alarms about traces that are still open.
    pub alarms: AlarmConfig,
    /// The patterns of text that is removed from content before a judge reads it, and from explanations.
    pub redact: Redact,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            emit: vec![Emit::Attributes, Emit::LogEvents],
            explanations: Explanations::default(),
            detail: DetailLevel::default(),
            existing: Existing::default(),
            prefix: "verdict.".to_owned(),
            log_unmeasured: false,
            propagation: Policies::default(),
            recognise: Overrides::default(),
            metrics: MetricsConfig::default(),
            evaluators: Evaluators::new(),
            ask: AskConfig::default(),
            rubrics: BTreeMap::new(),
            instructions: Vec::new(),
            alarms: AlarmConfig::default(),
            redact: Redact::default(),
        }
    }
}

impl Default for Emission {
    fn default() -> Emission {
        Emission::new(&Config::default())
    }
}

impl Emission {
    /// The settings of annotation.
    pub fn new(config: &Config) -> Emission {
        Emission {
            prefix: config.prefix.clone(),
            emit: config.emit.clone(),
            explanations: config.explanations,
            detail: config.detail,
            existing: config.existing,
            log_unmeasured: config.log_unmeasured,
            // Patterns that do not compile were rejected before (`problems`).
            redactor: match config.redact.explanations {
                true => Redactor::new(&config.redact).unwrap_or_default(),
                false => Redactor::disabled(),
            },
            custom: Vec::new(),
        }
    }
}

impl Settings {
    /// The settings of the metrics, with those of the questions to judges.
    ///
    /// # Errors
    /// A pattern of `redact` is no regular expression.
    pub fn new(config: &Config) -> Result<Settings, InvalidPattern> {
        let (rubrics, instructions) = (config.rubrics.clone(), config.instructions.clone());
        let asker = Asker::new(config.ask.clone(), rubrics, instructions, &config.redact)?;
        Ok(Settings { asker: Arc::new(asker), ..config.metrics.clone().into() })
    }
}

impl Config {
    /// Every judge that a metric names, with the key below `verdict` that names it.
    pub fn named_judges(&self) -> impl Iterator<Item = (String, &str)> {
        let metrics = self.metrics.named_judges().map(|(key, judge)| (format!("metrics.{key}"), judge));
        let evaluators = self.evaluator_judges();
        metrics.chain(evaluators.map(|(metric, judge)| (format!("evaluators.{metric}.judges"), judge)))
    }

    /// The metrics of `evaluators`, each with the judges that it names.
    pub fn evaluator_judges(&self) -> impl Iterator<Item = (&str, &str)> {
        let evaluators = self.evaluators.iter();
        evaluators.flat_map(|(metric, evaluator)| {
            evaluator.judges.iter().map(|judge| (metric.as_str(), judge.as_str()))
        })
    }

    /// The invalid values, by key.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems_with(&[])
    }

    /// The invalid values, where there are also metrics that are added in code.
    pub(crate) fn problems_with(&self, added: &[&'static MetricSpec]) -> Vec<Problem> {
        let mut out = Vec::new();
        if self.emit.is_empty() {
            out.push(Problem::new(
                "emit",
                "expected at least one of attributes, log_events, span_events, braintrust_scores",
            ));
        }
        let is_prefix_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
        if !self.prefix.ends_with('.') || self.prefix.len() < 2 || !self.prefix.chars().all(is_prefix_char) {
            let expected = "expected lower-case words that each end in a dot, such as 'verdict.'";
            out.push(Problem::new("prefix", format!("{expected}, found '{}'", self.prefix)));
        }
        out.extend(self.propagation.problems().into_iter().map(|p| p.in_section("propagation")));
        out.extend(self.metrics.problems().into_iter().map(|p| p.in_section("metrics")));
        out.extend(evaluator_problems(&self.evaluators).into_iter().map(|p| p.in_section("evaluators")));
        let is_added =
            |metric: &str| self.evaluators.contains_key(metric) || added.iter().any(|row| row.name == metric);
        out.extend(self.ask.problems(is_added).into_iter().map(|p| p.in_section("ask")));
        out.extend(rubric_problems(&self.rubrics).into_iter().map(|p| p.in_section("rubrics")));
        out.extend(instruction_problems(&self.instructions));
        out.extend(self.alarms.problems().into_iter().map(|p| p.in_section("alarms")));
        out.extend(self.redact.problems().into_iter().map(|p| p.in_section("redact")));
        // The built-in conventions need no check.
        if self.recognise != Overrides::default()
            && let Err(error) = Recogniser::new(&self.recognise)
        {
            out.push(Problem::new("recognise", error.to_string()));
        }
        out
    }
}
