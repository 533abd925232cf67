//! `verdict.metrics.gpa`: the seven judgements of paper 000, on 0-3.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

use crate::measure::metric_names::GpaMetric;
use crate::measure::sections::{
    MetricSettings, Override, Section, threshold_problem, threshold_problems, with_key,
};
use crate::measure::table::{GPA, MetricSpec, spec};

/// Goal, plan and action, measured by LLM judges only; without judges nothing is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gpa {
    /// Default true. If false, no judge is asked.
    pub enabled: bool,
    /// Default 2. A score below it fails; 3 is fully correct.
    pub threshold: f64,
    /// Default `[agents, trace]`. `agents` judges each agent, on its span; `trace` judges the trace as
    /// a whole, on its root. If the root is an agent's span it has the judgement of the trace; a trace
    /// of one agent is judged once.
    pub per: Vec<Per>,
    /// Default `verdict.metrics.judges`. The judges, by names of `judges`.
    pub judges: Vec<String>,
    /// Default none. Different settings for some of the seven metrics.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_metric: BTreeMap<GpaMetric, MetricOverride>,
    /// Default none. Exceptions by kind, agent, service or model; the first match applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
}

impl Default for Gpa {
    fn default() -> Gpa {
        Gpa {
            enabled: true,
            threshold: GPA.default_threshold(),
            per: vec![Per::Agents, Per::Trace],
            judges: Vec::new(),
            by_metric: BTreeMap::new(),
            overrides: Vec::new(),
        }
    }
}

/// The subject of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Each agent.
    Agents,
    /// The trace as a whole.
    Trace,
}

/// Settings of one of the seven metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Special")]
pub struct MetricOverride {
    /// Whether the metric is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The threshold, 0 to 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// The judges, by names of `judges`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub judges: Vec<String>,
}

impl GpaMetric {
    /// The key of a field of `by_metric` for this metric.
    fn key(self, field: &str) -> String {
        format!("by_metric.{}.{field}", self.as_str().trim_start_matches("gpa."))
    }
}

impl Section for Gpa {
    fn settings_for(&self, metric: &str) -> MetricSettings<'_> {
        let entry = self.by_metric.iter().find(|(key, _)| key.as_str() == metric);
        let overriding = entry.map(|(_, overriding)| overriding);
        let own_judges = overriding.map_or(&[][..], |overriding| &overriding.judges);
        MetricSettings {
            enabled: overriding.and_then(|overriding| overriding.enabled).unwrap_or(self.enabled),
            threshold: overriding.and_then(|overriding| overriding.threshold).or(Some(self.threshold)),
            judges: if own_judges.is_empty() { &self.judges } else { own_judges },
            overrides: &self.overrides,
        }
    }

    fn problems(&self, row: &MetricSpec) -> Vec<Problem> {
        let by_metric = self.by_metric.iter().filter_map(|(metric, overriding)| {
            threshold_problem(spec(metric.as_str())?.scale, metric.key("threshold"), overriding.threshold?)
        });
        by_metric.chain(threshold_problems(row.scale, self.threshold, &self.overrides)).collect()
    }

    fn named_judges(&self) -> Vec<(String, &str)> {
        let by_metric = self.by_metric.iter();
        let by_metric =
            by_metric.flat_map(|(metric, settings)| with_key(&metric.key("judges"), &settings.judges));
        by_metric.chain(with_key("judges", &self.judges)).collect()
    }
}
