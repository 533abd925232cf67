//! The sections of `verdict.metrics`: switches, thresholds, failing labels, limits.
//!
//! The sections of `path`, `plan` and `checklist` are in the modules of those metrics.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Problem, admits, settings};
use verdict_otlp::labelled_enum;
use verdict_otlp::trace::{Idx, Kind};

use crate::measure::table::{FIVE, MetricSpec, Scale, SectionKey, rows_of};
use crate::recognise::AgentTrace;

/// The name of the rules among the judges of a metric.
pub(crate) const RULES_NAME: &str = "rules";

/// An exception for some spans. All given keys must match; a `*` at the end of a pattern matches
/// any suffix.
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
    /// Whether the metric is measured on these spans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The threshold on these spans, on the metric's scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

settings! {
    /// `verdict.metrics.outcome`: a last question about each trace in which a metric failed. Judges read the findings
    /// and the final answer, and say which findings touched the outcome, what the root cause was, and how good the run
    /// was.
    pub struct OutcomeSettings {
        /// Default true. If false, it is not asked.
        enabled: bool = true,
        /// Default `verdict.metrics.judges`. The judges, by names of `judges`; without any it is not asked.
        judges: Vec<String>,
    }
}

/// A metric with a score from 1 to 5.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Scored {
    /// Default true. If false, the metric is neither measured nor written.
    pub enabled: bool,
    /// Default 4. A score below it fails.
    pub threshold: f64,
    /// Default `verdict.metrics.judges`. The judges: `rules`, and names of `judges`.
    pub judges: Vec<String>,
    /// Default none. Exceptions by kind, agent, service or model; the first match applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
}

impl Default for Scored {
    fn default() -> Scored {
        Scored {
            enabled: true,
            threshold: FIVE.default_threshold(),
            judges: Vec::new(),
            overrides: Vec::new(),
        }
    }
}

/// A metric whose value is a label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Labelled<L: Default> {
    /// Default true. If false, the metric is neither measured nor written.
    pub enabled: bool,
    /// The labels that count as failed.
    pub fail_labels: L,
    /// Default `verdict.metrics.judges`. The judges: `rules`, and names of `judges`.
    pub judges: Vec<String>,
    /// Default none. Exceptions by kind, agent, service or model; the first match applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
}

impl<L: Default> Default for Labelled<L> {
    fn default() -> Labelled<L> {
        Labelled { enabled: true, fail_labels: L::default(), judges: Vec::new(), overrides: Vec::new() }
    }
}

labelled_enum! {
    /// The failing labels of `error_detection` (001, table 1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum ErrorLabel {
        /// The program or the framework itself failed.
        #[serde(rename = "system_error")]
        System = "system_error",
        /// A tool failed.
        #[serde(rename = "tool_error")]
        Tool = "tool_error",
        /// A remote API failed.
        #[serde(rename = "api_error")]
        Api = "api_error",
    }
}

labelled_enum! {
    /// The labels of `avoidance` that can fail (001, table 1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum AvoidanceLabel {
        /// The model does not know the answer, or could not retrieve it.
        MissingKnowledge = "missing_knowledge",
        /// The model refuses for reasons of policy.
        PolicyRestriction = "policy_restriction",
        /// Any other non-answer.
        Other = "other",
    }
}

/// Failing labels of `error_detection`; by default all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct FailingErrors(pub Vec<ErrorLabel>);

/// Failing labels of `avoidance`; by default all except `policy_restriction`, because such a refusal
/// is often correct.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct FailingAvoidances(pub Vec<AvoidanceLabel>);

/// Labels that fail, by default those of the section's row.
pub(crate) trait FailingLabels: Default {
    fn contains(&self, label: &str) -> bool;
}

macro_rules! failing_labels {
    ($list:ident, $label:ident, $section:ident) => {
        impl Default for $list {
            fn default() -> Self {
                let names = rows_of(SectionKey::$section).flat_map(|row| row.fail_labels);
                let label_named = |name: &&str| $label::ALL.into_iter().find(|label| label.as_str() == *name);
                $list(names.filter_map(label_named).collect())
            }
        }

        impl FailingLabels for $list {
            fn contains(&self, label: &str) -> bool {
                self.0.iter().any(|failing| failing.as_str() == label)
            }
        }
    };
}
failing_labels!(FailingErrors, ErrorLabel, error_detection);
failing_labels!(FailingAvoidances, AvoidanceLabel, avoidance);

/// `latency`, measured where a limit is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Latency {
    /// Default true. Without limits nothing is measured.
    pub enabled: bool,
    /// Default none. The maximum in milliseconds by span kind (`llm`, `tool`, `agent`, ...).
    pub max_ms: BTreeMap<Kind, f64>,
    /// Default none. The maximum in milliseconds of LLM spans by model; takes precedence over `max_ms`.
    pub by_model: BTreeMap<String, f64>,
    /// Default none. The maximum in milliseconds by agent and span kind; takes precedence over `by_model`.
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

/// `tokens` of LLM spans, measured where a limit is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenLimits {
    /// Default true. Without limits nothing is measured.
    pub enabled: bool,
    /// Default none. The maximum number of tokens, input and output together.
    pub max: Option<u64>,
    /// Default none. The maximum by model; takes precedence over `max`.
    pub by_model: BTreeMap<String, u64>,
    /// Default none. The maximum by agent; takes precedence over `by_model`.
    pub by_agent: BTreeMap<String, u64>,
}

impl Default for TokenLimits {
    fn default() -> TokenLimits {
        TokenLimits { enabled: true, max: None, by_model: BTreeMap::new(), by_agent: BTreeMap::new() }
    }
}

/// The settings of one metric, from its section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetricSettings<'a> {
    pub(crate) enabled: bool,
    pub(crate) threshold: Option<f64>,
    pub(crate) judges: &'a [String],
    pub(crate) overrides: &'a [Override],
}

impl MetricSettings<'_> {
    /// The settings of a metric that is disabled.
    pub(crate) const OFF: MetricSettings<'static> =
        MetricSettings { enabled: false, threshold: None, judges: &[], overrides: &[] };

    /// Whether the metric is enabled on the span `span_index`.
    pub(crate) fn is_enabled_on(&self, trace: &AgentTrace, span_index: Idx) -> bool {
        let mut overrides = self.overrides.iter().filter(|o| o.enabled.is_some());
        overrides.find(|o| o.matches(trace, span_index)).and_then(|o| o.enabled).unwrap_or(self.enabled)
    }

    /// Whether the metric is enabled on all spans or on none; `None` if overrides enable or disable it for some spans.
    pub(crate) fn is_enabled_on_all(&self) -> Option<bool> {
        let differs = self.overrides.iter().any(|o| o.enabled.is_some());
        (!differs).then_some(self.enabled)
    }

    /// Whether the metric may be enabled on some span.
    pub(crate) fn may_be_enabled(&self) -> bool {
        self.enabled || self.overrides.iter().any(|o| o.enabled == Some(true))
    }
}

/// A section of `verdict.metrics`.
pub(crate) trait Section {
    /// The settings of a metric of the section.
    fn settings_for(&self, metric: &str) -> MetricSettings<'_>;

    /// Whether a label of the metric of `row` fails.
    fn fails(&self, row: &MetricSpec, label: &str) -> bool {
        row.fail_labels.contains(&label)
    }

    /// The problems of invalid values. `row` is the first row of the section.
    fn problems(&self, _row: &MetricSpec) -> Vec<Problem> {
        Vec::new()
    }

    /// The names of judges in the section, each after its key in the section.
    fn named_judges(&self) -> Vec<(String, &str)> {
        with_key("judges", self.settings_for("").judges)
    }
}

impl Section for Scored {
    fn settings_for(&self, _: &str) -> MetricSettings<'_> {
        let Scored { enabled, threshold, judges, overrides } = self;
        MetricSettings { enabled: *enabled, threshold: Some(*threshold), judges, overrides }
    }

    fn problems(&self, row: &MetricSpec) -> Vec<Problem> {
        threshold_problems(row.scale, self.threshold, &self.overrides)
    }
}

impl<L: FailingLabels> Section for Labelled<L> {
    fn settings_for(&self, _: &str) -> MetricSettings<'_> {
        let Labelled { enabled, judges, overrides, .. } = self;
        MetricSettings { enabled: *enabled, threshold: None, judges, overrides }
    }

    fn fails(&self, _: &MetricSpec, label: &str) -> bool {
        self.fail_labels.contains(label)
    }

    fn problems(&self, _: &MetricSpec) -> Vec<Problem> {
        let with_threshold = self.overrides.iter().enumerate().filter(|(_, o)| o.threshold.is_some());
        let message = "this metric has labels, not scores: use fail_labels";
        with_threshold.map(|(i, _)| Problem::new(format!("overrides[{i}].threshold"), message)).collect()
    }
}

impl Section for Latency {
    fn settings_for(&self, _: &str) -> MetricSettings<'_> {
        MetricSettings { enabled: self.enabled, ..MetricSettings::OFF }
    }

    fn problems(&self, _: &MetricSpec) -> Vec<Problem> {
        let agent_limits = self.by_agent.values().flat_map(BTreeMap::values);
        let limits = self.max_ms.values().chain(self.by_model.values()).chain(agent_limits);
        let invalid = limits.filter(|ms| !(ms.is_finite() && **ms > 0.0));
        invalid.map(|ms| Problem::new("", format!("{ms} is not a positive number of milliseconds"))).collect()
    }
}

impl Section for TokenLimits {
    fn settings_for(&self, _: &str) -> MetricSettings<'_> {
        MetricSettings { enabled: self.enabled, ..MetricSettings::OFF }
    }
}

/// Names of judges, each after `key`.
pub(crate) fn with_key<'a>(key: &str, judges: &'a [String]) -> Vec<(String, &'a str)> {
    judges.iter().map(|judge| (key.to_owned(), judge.as_str())).collect()
}

/// The problems of thresholds outside a metric's scale.
pub(crate) fn threshold_problems(scale: Scale, general: f64, overrides: &[Override]) -> Vec<Problem> {
    let overriding = overrides.iter().enumerate();
    let overriding =
        overriding.filter_map(|(i, o)| Some((format!("overrides[{i}].threshold"), o.threshold?)));
    let all = [("threshold".to_owned(), general)].into_iter().chain(overriding);
    all.filter_map(|(key, threshold)| threshold_problem(scale, key, threshold)).collect()
}

/// The problem of a threshold, if it is outside the scale.
pub(crate) fn threshold_problem(scale: Scale, key: String, threshold: f64) -> Option<Problem> {
    let (min, max) = scale.range()?;
    let is_outside = !(min..=max).contains(&threshold);
    is_outside.then(|| Problem::new(key, format!("{threshold} is outside the metric's scale {min} to {max}")))
}

impl Override {
    /// Whether the override applies to the span `span_index`.
    pub(crate) fn matches(&self, trace: &AgentTrace, span_index: Idx) -> bool {
        let Some(view) = trace.views.get(span_index) else { return false };
        self.kind.is_none_or(|kind| kind == view.kind)
            && admits(self.service.as_deref(), view.service.as_deref())
            && admits(self.model.as_deref(), view.model.as_deref())
            && admits(self.agent.as_deref(), agent_name(trace, span_index))
    }
}

/// The name of the agent of a span: from the span itself, or from the agent span above it.
pub(crate) fn agent_name(trace: &AgentTrace, span_index: Idx) -> Option<&str> {
    let span_agent = trace.views.get(span_index).and_then(|view| view.agent.as_deref());
    span_agent.or_else(|| {
        let agent = trace.owner.get(span_index).copied().flatten()?;
        trace.agents.get(agent)?.name.as_deref()
    })
}
