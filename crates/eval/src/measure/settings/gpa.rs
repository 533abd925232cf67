//! `verdict.metrics.gpa`: the seven judgements of paper 000, on 0-3.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Override;

/// Goal, plan and action, each by a judge of its own. No rule answers them: without judges nothing
/// is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gpa {
    /// Default true: asked wherever judges are configured.
    pub enabled: bool,
    /// Default 2. A score below it fails; 3 is fully correct.
    pub threshold: f64,
    /// Default `[agents, trace]`. What is judged: each agent by itself, on its span, and the trace
    /// as a whole, on its root. Where the root is an agent's span, the trace's judgement stands
    /// there; a lone agent is judged once.
    pub per: Vec<Per>,
    /// Default as `verdict.metrics.judges`. Who answers, by the names of `judges`.
    pub judges: Vec<String>,
    /// Default none. Other settings for some of the seven.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_metric: BTreeMap<Judgement, Special>,
    /// Default none. Exceptions by kind, agent, service or model; the first that matches holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
}

impl Default for Gpa {
    fn default() -> Gpa {
        Gpa {
            enabled: true,
            threshold: 2.0,
            per: vec![Per::Agents, Per::Trace],
            judges: Vec::new(),
            by_metric: BTreeMap::new(),
            overrides: Vec::new(),
        }
    }
}

/// What a judgement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Each agent by itself.
    Agents,
    /// The trace as a whole.
    Trace,
}

/// The seven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Judgement {
    GoalFulfillment,
    LogicalConsistency,
    ExecutionEfficiency,
    PlanQuality,
    PlanAdherence,
    ToolSelection,
    ToolCalling,
}

/// Settings of one of the seven.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Special {
    /// Switches it on or off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its threshold, 0 to 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Who answers it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub judges: Vec<String>,
}

impl Judgement {
    /// All seven.
    pub const ALL: [Judgement; 7] = [
        Judgement::GoalFulfillment,
        Judgement::LogicalConsistency,
        Judgement::ExecutionEfficiency,
        Judgement::PlanQuality,
        Judgement::PlanAdherence,
        Judgement::ToolSelection,
        Judgement::ToolCalling,
    ];

    /// The metric.
    pub fn metric(self) -> &'static str {
        match self {
            Judgement::GoalFulfillment => "gpa.goal_fulfillment",
            Judgement::LogicalConsistency => "gpa.logical_consistency",
            Judgement::ExecutionEfficiency => "gpa.execution_efficiency",
            Judgement::PlanQuality => "gpa.plan_quality",
            Judgement::PlanAdherence => "gpa.plan_adherence",
            Judgement::ToolSelection => "gpa.tool_selection",
            Judgement::ToolCalling => "gpa.tool_calling",
        }
    }

    fn of(metric: &str) -> Option<Judgement> {
        Judgement::ALL.into_iter().find(|judgement| judgement.metric() == metric)
    }
}

impl Gpa {
    fn special(&self, metric: &str) -> Option<&Special> {
        self.by_metric.get(&Judgement::of(metric)?)
    }

    /// Whether `metric` is one of the seven.
    pub(super) fn has(metric: &str) -> bool {
        Judgement::of(metric).is_some()
    }

    pub(super) fn enabled(&self, metric: &str) -> bool {
        self.special(metric).and_then(|special| special.enabled).unwrap_or(self.enabled)
    }

    pub(super) fn threshold(&self, metric: &str) -> f64 {
        self.special(metric).and_then(|special| special.threshold).unwrap_or(self.threshold)
    }

    pub(super) fn judges(&self, metric: &str) -> &[String] {
        match self.special(metric).map(|special| &special.judges[..]) {
            None | Some([]) => &self.judges,
            Some(own) => own,
        }
    }

    /// What is wrong with the values, as (key below `verdict.metrics`, message).
    pub(super) fn problems(&self) -> Vec<(String, String)> {
        let special = self.by_metric.iter().filter_map(|(judgement, special)| {
            let name = judgement.metric().trim_start_matches("gpa.");
            Some((format!("gpa.by_metric.{name}"), special.threshold?))
        });
        let overrides = self.overrides.iter().enumerate();
        let overrides = overrides.filter_map(|(i, o)| Some((format!("gpa.overrides[{i}]"), o.threshold?)));
        let all = [("gpa".to_owned(), self.threshold)].into_iter().chain(special).chain(overrides);
        all.filter(|(_, threshold)| !(0.0..=3.0).contains(threshold))
            .map(|(key, threshold)| {
                (format!("{key}.threshold"), format!("{threshold} is outside the metric's scale 0 to 3"))
            })
            .collect()
    }
}
