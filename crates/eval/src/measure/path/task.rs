//! A task: the agents that it applies to, its calls, the paths that it allows, and the metrics that fail a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alphabet::Alphabet;
use super::automaton::Automaton;
use super::limits::PathLimit;
use super::prompt_pattern::PromptRegex;
use super::score::{Parameters, PathWeights};
use crate::measure::metric_names::PathMetric;
use crate::measure::table::spec;

/// A task that has been checked.
#[derive(Clone, Debug)]
pub struct Task {
    /// The name of the task; `prompt_id` of the authors' records.
    pub name: String,
    /// The agents it applies to.
    pub matching: AgentConditions,
    /// The calls that make the path.
    pub scope: Scope,
    /// Maps calls to symbols.
    pub alphabet: Alphabet,
    /// The allowed paths.
    pub automaton: Automaton,
    /// Rules on amounts and times.
    pub limits: Vec<PathLimit>,
    /// The effect of failed calls.
    pub failed_calls: FailedCalls,
    pub parameters: Parameters,
    /// Overrides of the thresholds of the configuration.
    pub thresholds: Thresholds,
    /// The metrics that fail a span; `None` for those of the configuration.
    pub fail_on: Option<Vec<PathMetric>>,
    pub weights: Option<PathWeights>,
}

/// The agents a task applies to. An agent matches if it meets every given condition; without
/// conditions every agent matches.
#[derive(Clone, Debug, Default)]
pub struct AgentConditions {
    /// `service.name`; `*` at the end matches any suffix.
    pub service: Option<String>,
    /// The agent's name; `*` at the end matches any suffix.
    pub agent: Option<String>,
    /// Attributes of the agent's span or its resource; `*` at the end matches any suffix.
    pub attribute: BTreeMap<String, String>,
    /// The request that the agent received.
    pub prompt: Option<PromptPattern>,
}

impl Task {
    /// Whether the effect of a call of this function depends on its arguments.
    pub(super) fn reads_arguments(&self, function: &str) -> bool {
        self.alphabet.symbols_of(function).iter().any(|symbol| {
            let definition = self.alphabet.definitions().get(symbol.index());
            definition.is_some_and(|definition| definition.arguments.is_some())
                || self.limits.iter().any(|limit| limit.reads(*symbol))
        })
    }
}

impl AgentConditions {
    /// Whether it matches every agent.
    pub fn is_everything(&self) -> bool {
        self.service.is_none() && self.agent.is_none() && self.attribute.is_empty() && self.prompt.is_none()
    }
}

/// Condition on the prompt of the agent.
#[derive(Clone, Debug)]
pub enum PromptPattern {
    /// Equal to this text, except for surrounding whitespace.
    Exactly(String),
    /// Matches this pattern somewhere; arguments may refer to its named groups.
    Matches(PromptRegex),
}

/// The calls that make a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Each matching agent's own calls.
    #[default]
    Agent,
    /// All calls of the trace, where its outermost agent matches.
    Trace,
}

/// The effect of a failed call on the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailedCalls {
    /// None: the call changed nothing.
    #[default]
    Stay,
    /// The same as that of a successful call.
    Advance,
}

impl PathMetric {
    /// The name without `path.`.
    fn name(self) -> &'static str {
        self.as_str().trim_start_matches("path.")
    }
}

/// The threshold of each score, 0 to 1: a minimum, for `harm_rate` a maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Default 0.8: about one call in ten may differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correctness: Option<f64>,
    /// Default 0.8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pc_ktc: Option<f64>,
    /// Default 0.8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_criticality: Option<f64>,
    /// Default 0: no harmful call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harm_rate: Option<f64>,
    /// Default 0.5: at most twice as many calls as needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
    /// Default 0.8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pc_hlr: Option<f64>,
    /// Default 0.8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weighted: Option<f64>,
}

impl Thresholds {
    /// The threshold that is set for a metric.
    fn limit(&self, metric: PathMetric) -> Option<f64> {
        match metric {
            PathMetric::Correctness => self.correctness,
            PathMetric::PcKtc => self.pc_ktc,
            PathMetric::PrefixCriticality => self.prefix_criticality,
            PathMetric::HarmRate => self.harm_rate,
            PathMetric::Efficiency => self.efficiency,
            PathMetric::PcHlr => self.pc_hlr,
            PathMetric::Weighted => self.weighted,
            PathMetric::HarmfulCall | PathMetric::Accepting => None,
        }
    }

    /// The threshold of a score: the one that is set here, else in `general`, else in the metric's row. `None` for a
    /// metric without a score.
    pub(crate) fn limit_for(&self, metric: PathMetric, general: &Thresholds) -> Option<f64> {
        let default = || spec(metric.as_str()).and_then(|row| row.threshold);
        self.limit(metric).or_else(|| general.limit(metric)).or_else(default)
    }

    /// The names of thresholds that are not between 0 and 1.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &'static str> {
        let is_outside =
            |metric: &PathMetric| self.limit(*metric).is_some_and(|limit| !(0.0..=1.0).contains(&limit));
        PathMetric::ALL.into_iter().filter(is_outside).map(PathMetric::name)
    }
}
