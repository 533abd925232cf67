//! What `verdict.metrics` says: switches, thresholds, failing labels, limits.
//!
//! In: the configuration's YAML. Out: answers to "is this metric on here", "which threshold",
//! "does this label fail". Defaults follow decisions.md (4 on 1-5: the paper counts 3.0 as a
//! failure). A metric's name that this version does not know is an error of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ask::Asker;
use super::plan;
use crate::recognise::AgentTrace;
use verdict_config::{admits, matches};
use verdict_otlp::trace::{Idx, Kind};

mod gpa;
pub use gpa::{Gpa, Judgement, Per, Special};

/// The judge that is built in.
const RULES: &str = "rules";

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

/// Labels of `error_detection` (001, table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorLabel {
    /// The program or the framework itself failed.
    SystemError,
    /// A tool failed.
    ToolError,
    /// A remote API failed.
    ApiError,
}

/// Labels of `avoidance` (001, table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AvoidanceLabel {
    /// It does not know, or could not get at it.
    MissingKnowledge,
    /// It refuses on grounds of policy.
    PolicyRestriction,
    /// Any other non-answer.
    Other,
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

/// All metrics of this version, as `verdict.metrics` configures them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Default `[rules]`. Who answers where a metric does not say: `rules`, and the names of
    /// `judges`. With both, a rule's fact is final, elsewhere the judge leads; several judges give
    /// the median.
    pub judges: Vec<String>,
    /// Errors, by status, exception, flag, or as returned text. Labels `valid`, `system_error`,
    /// `tool_error`, `api_error`; by default all but `valid` fail.
    pub error_detection: Labelled<FailingErrors>,
    /// Refusals and give-ups. Labels `valid`, `missing_knowledge`, `policy_restriction`, `other`.
    pub avoidance: Labelled<FailingAvoidances>,
    /// Verifiable instructions of the prompt, held against the output (1-5).
    pub instruction_following: Scored,
    /// Facts and claims held against what the model had seen (1-5).
    pub reasoning_integrity: Scored,
    /// Whether a tool call did what it was for (1-5).
    pub tool_completeness: Scored,
    /// Time from start to end, in milliseconds.
    pub latency: Latency,
    /// Tokens of a model call.
    pub tokens: TokenLimits,
    /// An agent's run held against its plan (1-5).
    pub plan_efficiency: Scored,
    /// Whether an agent's calls cover its task (1-5).
    pub tool_coverage: Scored,
    /// Repeated, looping or unadapted calls of an agent (1-5).
    pub tool_abuse: Scored,
    /// Whether an agent's final answer covers what was asked (1-5).
    pub completeness: Scored,
    /// Plans that agents write: their form, wiring, tools, and how well they answer (004).
    pub plan: plan::Settings,
    /// An agent's calls held against the paths that its task allows (0-1): `path.*`.
    pub path: super::path::Settings,
    /// The task as a checklist of yes or no questions, each proved from the run (003).
    pub checklist: super::checklist::Settings,
    /// Goal, plan and action (0-3), by judges alone.
    pub gpa: Gpa,
    /// How judges are asked: resolved from `verdict.ask` and its neighbours, not written here.
    #[serde(skip)]
    pub asker: Arc<Asker>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            judges: vec![RULES.to_owned()],
            error_detection: Labelled::default(),
            avoidance: Labelled::default(),
            instruction_following: Scored::default(),
            reasoning_integrity: Scored::default(),
            tool_completeness: Scored::default(),
            latency: Latency::default(),
            tokens: TokenLimits::default(),
            plan_efficiency: Scored::default(),
            tool_coverage: Scored::default(),
            tool_abuse: Scored::default(),
            completeness: Scored::default(),
            plan: plan::Settings::default(),
            path: super::path::Settings::default(),
            checklist: super::checklist::Settings::default(),
            gpa: Gpa::default(),
            asker: Arc::default(),
        }
    }
}

impl Settings {
    fn scored(&self, metric: &str) -> Option<&Scored> {
        Some(match metric {
            "instruction_following" => &self.instruction_following,
            "reasoning_integrity" => &self.reasoning_integrity,
            "tool_completeness" => &self.tool_completeness,
            "plan_efficiency" => &self.plan_efficiency,
            "tool_coverage" => &self.tool_coverage,
            "tool_abuse" => &self.tool_abuse,
            "completeness" => &self.completeness,
            _ => return None,
        })
    }

    fn overrides(&self, metric: &str) -> &[Override] {
        match metric {
            "error_detection" => &self.error_detection.overrides,
            "avoidance" => &self.avoidance.overrides,
            gpa if Gpa::has(gpa) => &self.gpa.overrides,
            _ => self.scored(metric).map_or(&[], |s| &s.overrides),
        }
    }

    /// Whether the rules answer `metric`.
    pub fn ruled(&self, metric: &str) -> bool {
        if metric == plan::metric::SCORE {
            // Form and wiring are the rules' whoever else is asked; off, no span is even looked at.
            return self.plan.enabled;
        }
        let rules_only = !SCORED.contains(&metric) && !LABELLED.contains(&metric) && !Gpa::has(metric);
        rules_only || self.answering(metric).iter().any(|judge| judge == RULES)
    }

    /// The judges beside the rules that `metric` asks, by name.
    pub fn judges(&self, metric: &str) -> Vec<String> {
        self.answering(metric).iter().filter(|judge| *judge != RULES).cloned().collect()
    }

    /// Every judge that some metric names, with the key that names it.
    pub fn named_judges(&self) -> impl Iterator<Item = (String, &str)> {
        let of = |metric: &'static str| (format!("{metric}.judges"), self.own_judges(metric));
        let metrics = SCORED.into_iter().chain(LABELLED).map(of);
        let plan = ("plan.judges".to_owned(), &self.plan.judges[..]);
        let gpa = self.gpa.by_metric.iter().map(|(judgement, special)| {
            let name = judgement.metric().trim_start_matches("gpa.");
            (format!("gpa.by_metric.{name}.judges"), &special.judges[..])
        });
        let gpa = gpa.chain([("gpa.judges".to_owned(), &self.gpa.judges[..])]);
        let all =
            std::iter::once(("judges".to_owned(), &self.judges[..])).chain(metrics).chain(gpa).chain([plan]);
        all.flat_map(|(key, judges)| judges.iter().map(move |judge| (key.clone(), judge.as_str())))
            .chain(self.checklist.named_judges())
            .filter(|(_, judge)| *judge != RULES)
    }

    fn answering(&self, metric: &str) -> &[String] {
        match self.own_judges(metric) {
            [] => &self.judges,
            own => own,
        }
    }

    fn own_judges(&self, metric: &str) -> &[String] {
        match metric {
            "error_detection" => &self.error_detection.judges,
            "avoidance" => &self.avoidance.judges,
            plan::metric::SCORE => &self.plan.judges,
            super::checklist::NAME => &self.checklist.judges,
            gpa if Gpa::has(gpa) => self.gpa.judges(gpa),
            _ => self.scored(metric).map_or(&[], |s| &s.judges),
        }
    }

    /// Whether `metric` is wanted on the span `at`.
    pub fn enabled(&self, metric: &str, trace: &AgentTrace, at: Idx) -> bool {
        let general = self.general(metric);
        let special = self.overrides(metric).iter().filter(|o| o.enabled.is_some());
        special.into_iter().find(|o| o.holds(trace, at)).and_then(|o| o.enabled).unwrap_or(general)
    }

    /// Whether `metric` is wanted, where that is the same on every span of every trace.
    pub fn everywhere(&self, metric: &str) -> Option<bool> {
        let differs = self.overrides(metric).iter().any(|o| o.enabled.is_some());
        (!differs).then(|| self.general(metric))
    }

    /// Whether `metric` is wanted where no override says otherwise.
    fn general(&self, metric: &str) -> bool {
        match metric {
            "error_detection" => self.error_detection.enabled,
            "avoidance" => self.avoidance.enabled,
            "latency" => self.latency.enabled,
            "tokens" => self.tokens.enabled,
            plan::metric::SCORE => self.plan.enabled,
            "path" => self.path.is_on(),
            super::checklist::NAME => self.checklist.enabled,
            gpa if Gpa::has(gpa) => self.gpa.enabled(gpa),
            _ => self.scored(metric).is_some_and(|s| s.enabled),
        }
    }

    /// Whether any metric may be wanted anywhere. If not, spans need not even be read.
    pub fn any(&self) -> bool {
        let asked = Judgement::ALL.into_iter().map(Judgement::metric);
        let asked = asked.filter(|metric| !self.judges(metric).is_empty());
        super::catalog::names().chain(asked).any(|metric| {
            self.general(metric) || self.overrides(metric).iter().any(|o| o.enabled == Some(true))
        })
    }

    /// The threshold of a scored metric on the span `at`; a score below it fails.
    pub fn threshold(&self, metric: &str, trace: &AgentTrace, at: Idx) -> f64 {
        let general = match self.scored(metric) {
            Some(scored) => scored.threshold,
            None if Gpa::has(metric) => self.gpa.threshold(metric),
            None => Scored::default().threshold,
        };
        let mut special = self.overrides(metric).iter().filter(|o| o.threshold.is_some());
        special.find(|o| o.holds(trace, at)).and_then(|o| o.threshold).unwrap_or(general)
    }

    /// Whether `label` of a label metric counts as failed. `valid` never does.
    pub fn fails(&self, metric: &str, label: &str) -> bool {
        let errors = &self.error_detection.fail_labels.0;
        let avoidances = &self.avoidance.fail_labels.0;
        match (metric, label) {
            ("error_detection", "system_error") => errors.contains(&ErrorLabel::SystemError),
            ("error_detection", "tool_error") => errors.contains(&ErrorLabel::ToolError),
            ("error_detection", "api_error") => errors.contains(&ErrorLabel::ApiError),
            ("avoidance", "missing_knowledge") => avoidances.contains(&AvoidanceLabel::MissingKnowledge),
            ("avoidance", "policy_restriction") => avoidances.contains(&AvoidanceLabel::PolicyRestriction),
            ("avoidance", "other") => avoidances.contains(&AvoidanceLabel::Other),
            _ => false,
        }
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

    /// What is wrong with the values, as (key below `verdict.metrics`, message).
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for metric in SCORED {
            let Some(scored) = self.scored(metric) else { continue };
            check_threshold(metric, scored.threshold, &mut out);
            for (i, special) in scored.overrides.iter().enumerate() {
                if let Some(threshold) = special.threshold {
                    check_threshold(&format!("{metric}.overrides[{i}]"), threshold, &mut out);
                }
            }
        }
        for (metric, overrides) in
            [("error_detection", &self.error_detection.overrides), ("avoidance", &self.avoidance.overrides)]
        {
            for (i, _) in overrides.iter().enumerate().filter(|(_, o)| o.threshold.is_some()) {
                let key = format!("{metric}.overrides[{i}].threshold");
                out.push((key, "this metric has labels, not scores: use fail_labels".to_owned()));
            }
        }
        out.extend(self.plan.problems().into_iter().map(|(key, why)| (format!("plan.{key}"), why)));
        out.extend(self.path.problems().into_iter().map(|(key, message)| (format!("path.{key}"), message)));
        let of_checklist = self.checklist.problems().into_iter();
        out.extend(of_checklist.map(|(key, why)| (format!("checklist.{key}"), why)));
        out.extend(self.gpa.problems());
        let limits = &self.latency;
        let of_kinds = limits.by_agent.values().flat_map(BTreeMap::values);
        for ms in limits.max_ms.values().chain(limits.by_model.values()).chain(of_kinds) {
            if !(ms.is_finite() && *ms > 0.0) {
                out.push(("latency".to_owned(), format!("{ms} is not a positive number of milliseconds")));
            }
        }
        out
    }
}

/// Metrics with labels that judges answer as well.
const LABELLED: [&str; 2] = ["error_detection", "avoidance"];

/// Metrics with scores on 1-5 that judges answer as well.
const SCORED: [&str; 7] = [
    "instruction_following",
    "reasoning_integrity",
    "tool_completeness",
    "plan_efficiency",
    "tool_coverage",
    "tool_abuse",
    "completeness",
];

fn check_threshold(key: &str, threshold: f64, out: &mut Vec<(String, String)>) {
    if !(1.0..=5.0).contains(&threshold) {
        out.push((format!("{key}.threshold"), format!("{threshold} is outside the metric's scale 1 to 5")));
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
