//! A task: the agents it applies to, its calls, the paths it allows, and its failure conditions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alphabet::Alphabet;
use super::automaton::Automaton;
use super::limits::PathLimit;
use super::prompt_pattern::PromptRegex;
use super::score::{Parameters, PathWeights};
use crate::measure::metric_names::FailCondition;

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
    /// Override those of the configuration.
    pub thresholds: Thresholds,
    /// Overrides that of the configuration.
    pub fail_on: Option<Vec<FailCondition>>,
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

impl FailCondition {
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
    /// Each threshold with its condition and its documented default.
    fn all(&self) -> [(FailCondition, Option<f64>, f64); 7] {
        [
            (FailCondition::Correctness, self.correctness, 0.8),
            (FailCondition::PcKtc, self.pc_ktc, 0.8),
            (FailCondition::PrefixCriticality, self.prefix_criticality, 0.8),
            (FailCondition::HarmRate, self.harm_rate, 0.0),
            (FailCondition::Efficiency, self.efficiency, 0.5),
            (FailCondition::PcHlr, self.pc_hlr, 0.8),
            (FailCondition::Weighted, self.weighted, 0.8),
        ]
    }

    /// The threshold of a score, from `general` where it is not set here; `None` for a condition without
    /// a score.
    pub(crate) fn limit_for(&self, condition: FailCondition, general: &Thresholds) -> Option<f64> {
        let find = |thresholds: &Thresholds| {
            thresholds.all().into_iter().find(|(entry_condition, ..)| *entry_condition == condition)
        };
        let (_, specific, default) = find(self)?;
        specific.or(find(general)?.1).or(Some(default))
    }

    /// The names of thresholds that are not between 0 and 1.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &'static str> {
        let is_outside = |limit: Option<f64>| limit.is_some_and(|l| !(0.0..=1.0).contains(&l));
        self.all()
            .into_iter()
            .filter(move |(_, limit, _)| is_outside(*limit))
            .map(|(condition, ..)| condition.name())
    }
}
