//! What `verdict.metrics` says: switches, thresholds, failing labels, limits.
//!
//! In: the configuration's YAML. Out: answers to "is this metric on here", "which threshold",
//! "does this label fail". Defaults follow decisions.md (4 on 1-5: the paper counts 3.0 as a
//! failure). A metric's name that this version does not know is an error of the configuration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Problem, admits, matches};
use verdict_otlp::trace::{Idx, Kind};

pub use super::table::Settings;
use super::table::{MetricSpec, Scale, TABLE, spec};
use crate::recognise::AgentTrace;

mod gpa;
pub(crate) use gpa::{Gpa, Judgement, Per};

/// The judge that is built in.
pub(crate) const RULES: &str = "rules";

/// Where an override holds. Every key that is given must match; `*` at the end of a pattern
/// stands for any rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Override {
    /// Only on spans of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Only for this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only for this `service.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Only for this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Switches the metric on or off there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The threshold there, on the metric's scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

/// A metric on 1-5.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Scored {
    /// Default true. When false the metric is not written at all.
    pub enabled: bool,
    /// Default 4. A score below it fails.
    pub threshold: f64,
    /// Default as `verdict.metrics.judges`. Who answers: `rules`, and judges by their names.
    pub judges: Vec<String>,
    /// Default none. Exceptions by kind, agent, service or model; the first that matches holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
}

impl Default for Scored {
    fn default() -> Scored {
        Scored { enabled: true, threshold: 4.0, judges: Vec::new(), overrides: Vec::new() }
    }
}

/// A metric whose value is a label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Labelled<L: Default> {
    /// Default true. When false the metric is not written at all.
    pub enabled: bool,
    /// The labels that fail.
    pub fail_labels: L,
    /// Default as `verdict.metrics.judges`. Who answers: `rules`, and judges by their names.
    pub judges: Vec<String>,
    /// Default none. Exceptions by kind, agent, service or model; the first that matches holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
}

impl<L: Default> Default for Labelled<L> {
    fn default() -> Labelled<L> {
        Labelled { enabled: true, fail_labels: L::default(), judges: Vec::new(), overrides: Vec::new() }
    }
}

/// Labels of `error_detection` (001, table 1), each with its place among the labels of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorLabel {
    /// The program or the framework itself failed.
    SystemError = 3,
    /// A tool failed.
    ToolError = 2,
    /// A remote API failed.
    ApiError = 1,
}

/// Labels of `avoidance` (001, table 1), each with its place among the labels of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AvoidanceLabel {
    /// It does not know, or could not get at it.
    MissingKnowledge = 2,
    /// It refuses on grounds of policy.
    PolicyRestriction = 1,
    /// Any other non-answer.
    Other = 3,
}

/// Failing labels of `error_detection`; by default all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct FailingErrors(pub Vec<ErrorLabel>);

impl Default for FailingErrors {
    fn default() -> Self {
        FailingErrors(vec![ErrorLabel::SystemError, ErrorLabel::ToolError, ErrorLabel::ApiError])
    }
}

/// Failing labels of `avoidance`; by default all but `policy_restriction`: refusing is often right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct FailingAvoidances(pub Vec<AvoidanceLabel>);

impl Default for FailingAvoidances {
    fn default() -> Self {
        FailingAvoidances(vec![AvoidanceLabel::MissingKnowledge, AvoidanceLabel::Other])
    }
}

/// `latency`: off until a limit is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Latency {
    /// Default true; without limits nothing is measured all the same.
    pub enabled: bool,
    /// Default none. Most milliseconds by span kind (`llm`, `tool`, `agent`, ...).
    pub max_ms: BTreeMap<Kind, f64>,
    /// Default none. Most milliseconds of an LLM span by model, before `max_ms`.
    pub by_model: BTreeMap<String, f64>,
    /// Default none. Most milliseconds by agent and span kind, before `by_model`.
    pub by_agent: BTreeMap<String, BTreeMap<Kind, f64>>,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            enabled: true,
            max_ms: BTreeMap::new(),
            by_model: BTreeMap::new(),
            by_agent: BTreeMap::new(),
        }
    }
}

/// `tokens` of LLM spans: off until a limit is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenLimits {
    /// Default true; without limits nothing is measured all the same.
    pub enabled: bool,
    /// Default none. Most tokens, input and output together.
    pub max: Option<u64>,
    /// Default none. The same by model, before `max`.
    pub by_model: BTreeMap<String, u64>,
    /// Default none. The same by agent, before `by_model`.
    pub by_agent: BTreeMap<String, u64>,
}

impl Default for TokenLimits {
    fn default() -> TokenLimits {
        TokenLimits { enabled: true, max: None, by_model: BTreeMap::new(), by_agent: BTreeMap::new() }
    }
}

/// What the configuration says of one metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetricSettings<'a> {
    pub(super) enabled: bool,
    pub(super) threshold: Option<f64>,
    /// A bit for each failing label, by its place among the labels of the row.
    pub(super) failing: u8,
    pub(super) judges: &'a [String],
    pub(super) overrides: &'a [Override],
}

impl MetricSettings<'_> {
    /// Of a metric that is switched off.
    pub(super) const OFF: MetricSettings<'static> =
        MetricSettings { enabled: false, threshold: None, failing: 0, judges: &[], overrides: &[] };

    /// Whether the metric is wanted on the span `at`.
    pub(super) fn enabled(&self, trace: &AgentTrace, at: Idx) -> bool {
        let special = self.overrides.iter().filter(|o| o.enabled.is_some());
        special.into_iter().find(|o| o.holds(trace, at)).and_then(|o| o.enabled).unwrap_or(self.enabled)
    }

    /// Whether the metric is wanted, where that is the same on every span of every trace.
    pub(super) fn everywhere(&self) -> Option<bool> {
        let differs = self.overrides.iter().any(|o| o.enabled.is_some());
        (!differs).then_some(self.enabled)
    }

    fn anywhere(&self) -> bool {
        self.enabled || self.overrides.iter().any(|o| o.enabled == Some(true))
    }
}

/// A section of `verdict.metrics`.
pub(super) trait Section {
    /// What it says of one of its metrics.
    fn of(&self, metric: &str) -> MetricSettings<'_>;

    /// What is wrong with the values.
    fn problems(&self) -> Vec<Problem> {
        Vec::new()
    }

    /// The judges that it names, as (key below the section, name).
    fn named_judges(&self) -> Vec<(String, &str)> {
        below("judges", self.of("").judges)
    }
}

impl Section for Scored {
    fn of(&self, _: &str) -> MetricSettings<'_> {
        let Scored { enabled, threshold, judges, overrides } = self;
        MetricSettings { enabled: *enabled, threshold: Some(*threshold), failing: 0, judges, overrides }
    }

    fn problems(&self) -> Vec<Problem> {
        thresholds(Scale::FIVE, self.threshold, &self.overrides)
    }
}

/// Failing labels, by their places among the labels of the row.
pub(super) trait Failing: Default {
    fn places(&self) -> impl Iterator<Item = u8>;
}

impl Failing for FailingErrors {
    fn places(&self) -> impl Iterator<Item = u8> {
        self.0.iter().map(|label| *label as u8)
    }
}

impl Failing for FailingAvoidances {
    fn places(&self) -> impl Iterator<Item = u8> {
        self.0.iter().map(|label| *label as u8)
    }
}

impl<L: Failing> Section for Labelled<L> {
    fn of(&self, _: &str) -> MetricSettings<'_> {
        let failing = self.fail_labels.places().fold(0, |bits, place| bits | 1 << place);
        let Labelled { enabled, judges, overrides, .. } = self;
        MetricSettings { enabled: *enabled, threshold: None, failing, judges, overrides }
    }

    fn problems(&self) -> Vec<Problem> {
        let with = self.overrides.iter().enumerate().filter(|(_, o)| o.threshold.is_some());
        let why = "this metric has labels, not scores: use fail_labels";
        with.map(|(i, _)| Problem::new(format!("overrides[{i}].threshold"), why)).collect()
    }
}

impl Section for Latency {
    fn of(&self, _: &str) -> MetricSettings<'_> {
        MetricSettings { enabled: self.enabled, ..MetricSettings::OFF }
    }

    fn problems(&self) -> Vec<Problem> {
        let of_kinds = self.by_agent.values().flat_map(BTreeMap::values);
        let limits = self.max_ms.values().chain(self.by_model.values()).chain(of_kinds);
        let wrong = limits.filter(|ms| !(ms.is_finite() && **ms > 0.0));
        wrong.map(|ms| Problem::new("", format!("{ms} is not a positive number of milliseconds"))).collect()
    }
}

impl Section for TokenLimits {
    fn of(&self, _: &str) -> MetricSettings<'_> {
        MetricSettings { enabled: self.enabled, ..MetricSettings::OFF }
    }
}

/// Judges with the key that names them.
pub(super) fn below<'a>(key: &str, judges: &'a [String]) -> Vec<(String, &'a str)> {
    judges.iter().map(|judge| (key.to_owned(), judge.as_str())).collect()
}

/// Thresholds outside a metric's scale.
pub(super) fn thresholds(scale: Scale, general: f64, overrides: &[Override]) -> Vec<Problem> {
    let special = overrides.iter().enumerate();
    let special = special.filter_map(|(i, o)| Some((format!("overrides[{i}].threshold"), o.threshold?)));
    let all = [("threshold".to_owned(), general)].into_iter().chain(special);
    all.filter_map(|(key, threshold)| outside(scale, key, threshold)).collect()
}

fn outside(scale: Scale, key: String, threshold: f64) -> Option<Problem> {
    let (min, max) = scale.range()?;
    let outside = !(min..=max).contains(&threshold);
    outside.then(|| Problem::new(key, format!("{threshold} is outside the metric's scale {min} to {max}")))
}

impl Settings {
    /// What it says of `metric`.
    pub(super) fn of(&self, metric: &str) -> MetricSettings<'_> {
        spec(metric).or_else(|| self.custom_row(metric)).map_or(MetricSettings::OFF, |row| self.own(row))
    }

    /// What it says of the metric of `row`.
    pub(super) fn own(&self, row: &MetricSpec) -> MetricSettings<'_> {
        match self.custom.iter().find(|own| own.row.name == row.name) {
            Some(custom) => custom.settings.of(row.name),
            None => (row.settings)(self),
        }
    }

    fn custom_row(&self, metric: &str) -> Option<&'static MetricSpec> {
        self.custom.iter().map(|own| own.row).find(|row| row.name == metric)
    }

    /// Whether the rules answer the metric of `row`. What judges cannot be asked instead of them
    /// they always answer.
    pub(super) fn ruled(&self, row: &MetricSpec) -> bool {
        let always = row.rubric.is_none() && self.custom_row(row.name).is_none();
        always || self.answering(row).iter().any(|judge| judge == RULES)
    }

    /// The judges beside the rules that the metric of `row` asks, by name.
    pub(crate) fn judges(&self, row: &MetricSpec) -> Vec<String> {
        self.answering(row).iter().filter(|judge| *judge != RULES).cloned().collect()
    }

    fn answering(&self, row: &MetricSpec) -> &[String] {
        match self.own(row).judges {
            [] => &self.judges,
            own => own,
        }
    }

    /// Every judge that some metric names, with the key that names it.
    pub fn named_judges(&self) -> impl Iterator<Item = (String, &str)> {
        let sections = self.sections().into_iter().flat_map(|(section, own)| {
            own.named_judges().into_iter().map(move |(key, judge)| (format!("{section}.{key}"), judge))
        });
        let all = below("judges", &self.judges).into_iter().chain(sections);
        all.filter(|(_, judge)| *judge != RULES)
    }

    /// Whether any metric may be wanted anywhere. If not, spans need not even be read.
    pub fn any(&self) -> bool {
        let is_answered = |row: &&MetricSpec| row.rules.is_some() || !self.judges(row).is_empty();
        !self.custom.is_empty() || TABLE.iter().filter(is_answered).any(|row| (row.settings)(self).anywhere())
    }

    /// The threshold of a scored metric on the span `at`; a score below it fails.
    pub fn threshold(&self, metric: &str, trace: &AgentTrace, at: Idx) -> f64 {
        let own = self.of(metric);
        let mut special = own.overrides.iter().filter(|o| o.threshold.is_some());
        let special = special.find(|o| o.holds(trace, at)).and_then(|o| o.threshold);
        special.or(own.threshold).unwrap_or_default()
    }

    /// Whether `label` of a label metric counts as failed. `valid` never does.
    pub fn fails(&self, metric: &str, label: &str) -> bool {
        let Some(row) = spec(metric) else { return false };
        let Scale::Labels(labels) = row.scale else { return false };
        let place = labels.iter().position(|known| *known == label);
        place.is_some_and(|place| (row.settings)(self).failing >> place & 1 == 1)
    }

    /// Most milliseconds allowed on the span `at`, where a limit is set.
    pub fn max_ms(&self, trace: &AgentTrace, at: Idx) -> Option<f64> {
        let view = trace.views.get(at)?;
        let limits = &self.latency;
        let of_agent = agent_name(trace, at)
            .and_then(|name| by_pattern(&limits.by_agent, name))
            .and_then(|kinds| kinds.get(&view.kind));
        let of_model = || match (view.kind, &view.model) {
            (Kind::Llm, Some(model)) => by_pattern(&limits.by_model, model),
            _ => None,
        };
        of_agent.or_else(of_model).or_else(|| limits.max_ms.get(&view.kind)).copied()
    }

    /// Most tokens allowed on the span `at`, where a limit is set.
    pub fn max_tokens(&self, trace: &AgentTrace, at: Idx) -> Option<u64> {
        let limits = &self.tokens;
        let of_agent = agent_name(trace, at).and_then(|name| by_pattern(&limits.by_agent, name));
        let model = trace.views.get(at).and_then(|r| r.model.as_deref());
        let of_model = || model.and_then(|name| by_pattern(&limits.by_model, name));
        of_agent.or_else(of_model).copied().or(limits.max)
    }

    /// What is wrong with the values.
    pub fn problems(&self) -> Vec<Problem> {
        let of = |(section, own): (&'static str, &dyn Section)| {
            own.problems().into_iter().map(move |problem| problem.below(section))
        };
        self.sections().into_iter().flat_map(of).collect()
    }
}

impl Override {
    fn holds(&self, trace: &AgentTrace, at: Idx) -> bool {
        let Some(view) = trace.views.get(at) else { return false };
        self.kind.is_none_or(|kind| kind == view.kind)
            && admits(self.service.as_deref(), view.service.as_deref())
            && admits(self.model.as_deref(), view.model.as_deref())
            && admits(self.agent.as_deref(), agent_name(trace, at))
    }
}

/// The agent that a span belongs to, by the span's own word or its owner's.
pub(super) fn agent_name(trace: &AgentTrace, at: Idx) -> Option<&str> {
    let own = trace.views.get(at).and_then(|r| r.agent.as_deref());
    own.or_else(|| {
        let agent = trace.owner.get(at).copied().flatten()?;
        trace.agents.get(agent)?.name.as_deref()
    })
}

/// The exact name first, else the longest pattern that matches.
fn by_pattern<'a, V>(map: &'a BTreeMap<String, V>, name: &str) -> Option<&'a V> {
    map.get(name).or_else(|| {
        let fitting = map.iter().filter(|(pattern, _)| matches(pattern, name));
        fitting.max_by_key(|(pattern, _)| pattern.len()).map(|(_, value)| value)
    })
}

#[cfg(test)]
mod tests;
