//! The evaluator's configuration: the keys of `verdict:` for recognition, metrics, propagation and
//! annotation.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

use crate::annotate::{DetailLevel, Emission, Emit, Existing, Explanations};
use crate::measure::Settings;
use crate::measure::ask::{self, AskConfig, Asker, Instruction};
use crate::measure::remote::{self, Evaluators};
use crate::open_limits::AlarmConfig;
use crate::propagate::Policies;
use crate::recognise::{Overrides, Recogniser};
use crate::redact::{InvalidPattern, Redact, Redactor};

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
    pub metrics: Settings,
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
            metrics: Settings::default(),
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
        Config::default().emission()
    }
}

impl Config {
    /// The settings of annotation.
    pub fn emission(&self) -> Emission {
        Emission {
            prefix: self.prefix.clone(),
            emit: self.emit.clone(),
            explanations: self.explanations,
            detail: self.detail,
            existing: self.existing,
            log_unmeasured: self.log_unmeasured,
            // Patterns that do not compile were rejected before (`problems`).
            redactor: match self.redact.explanations {
                true => Redactor::new(&self.redact).unwrap_or_default(),
                false => Redactor::disabled(),
            },
            custom: Vec::new(),
        }
    }

    /// The settings of the metrics, with those of the questions to judges.
    ///
    /// # Errors
    /// A pattern of `redact` is no regular expression.
    pub fn settings(&self) -> Result<Settings, InvalidPattern> {
        let (rubrics, instructions) = (self.rubrics.clone(), self.instructions.clone());
        let asker = Asker::new(self.ask.clone(), rubrics, instructions, self.redact.clone())?;
        Ok(Settings { asker: Arc::new(asker), ..self.metrics.clone() })
    }

    /// Every judge that a metric names, with the key below `verdict` that names it.
    pub fn named_judges(&self) -> impl Iterator<Item = (String, &str)> {
        let metrics = self.metrics.named_judges().map(|(key, judge)| (format!("metrics.{key}"), judge));
        let evaluators = self.evaluator_judges();
        metrics.chain(evaluators.map(|(metric, judge)| (format!("evaluators.{metric}.judges"), judge)))
    }

    /// The metrics of `evaluators`, each with the judges that it names.
    pub fn evaluator_judges(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.evaluators.iter();
        all.flat_map(|(metric, evaluator)| {
            evaluator.judges.iter().map(|judge| (metric.as_str(), judge.as_str()))
        })
    }

    /// The invalid values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        if self.emit.is_empty() {
            out.push(Problem::new(
                "emit",
                "expected at least one of attributes, log_events, span_events, braintrust_scores",
            ));
        }
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
        if !self.prefix.ends_with('.') || self.prefix.len() < 2 || !self.prefix.chars().all(legal) {
            let expected = "expected lower-case words that each end in a dot, such as 'verdict.'";
            out.push(Problem::new("prefix", format!("{expected}, found '{}'", self.prefix)));
        }
        out.extend(self.propagation.problems().into_iter().map(|p| p.below("propagation")));
        out.extend(self.metrics.problems().into_iter().map(|p| p.below("metrics")));
        out.extend(remote::config::problems(&self.evaluators).into_iter().map(|p| p.below("evaluators")));
        let is_added = |metric: &str| self.evaluators.contains_key(metric);
        out.extend(self.ask.problems(is_added).into_iter().map(|p| p.below("ask")));
        out.extend(ask::config::rubric_problems(&self.rubrics).into_iter().map(|p| p.below("rubrics")));
        out.extend(ask::config::instruction_problems(&self.instructions));
        out.extend(self.alarms.problems().into_iter().map(|p| p.below("alarms")));
        out.extend(self.redact.problems().into_iter().map(|p| p.below("redact")));
        // The built-in conventions need no check.
        if self.recognise != Overrides::default()
            && let Err(error) = Recogniser::new(&self.recognise)
        {
            out.push(Problem::new("recognise", error.to_string()));
        }
        out
    }
}
