//! The sections `verdict.ask`, `verdict.rubrics` and `verdict.instructions`.
//!
//! In: the configuration's YAML. Out: values; [`super::Asker`] resolves them once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Problem, matches};
use verdict_otlp::trace::Kind;

use crate::measure::table::{MetricSpec, asked};

/// `verdict.ask`: which questions are sent to judges, and the maximum length of a prompt. It has no effect
/// on the built-in rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AskConfig {
    /// Default 24000. Maximum tokens of one prompt, estimated as three bytes per token. The default leaves
    /// space for the answer in a context window of 32k. A longer run is judged in overlapping parts: a
    /// smaller limit causes more questions, and with a larger one judges overlook more.
    pub max_prompt_tokens: usize,
    /// Default `always`. The condition on which judges are asked.
    pub when: When,
    /// Default none. The condition for single metrics, by name; `gpa` means all metrics of GPA.
    pub when_by_metric: BTreeMap<String, When>,
    /// Which traces judges are asked about.
    pub sample: Sample,
    /// Which spans judges are asked about.
    pub spans: Which,
    /// Default none. Services whose content is in no prompt, not even as context of other spans. A `*` at
    /// the end of a name matches any rest. Content that a model of another service received is content of
    /// that other service.
    pub withhold: Vec<String>,
}

impl Default for AskConfig {
    fn default() -> AskConfig {
        AskConfig {
            max_prompt_tokens: 24_000,
            when: When::Always,
            when_by_metric: BTreeMap::new(),
            sample: Sample::default(),
            spans: Which::default(),
            withhold: Vec::new(),
        }
    }
}

/// On what condition a judge is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Always.
    #[default]
    Always,
    /// Only if the rules could not measure, or have findings that are not facts.
    Unsure,
    /// Only in traces in which the rules found a failure.
    Failing,
}

/// The traces about which judges are asked: the same ones in every process, by a hash of their ids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sample {
    /// Default 1. The share of traces, 0 to 1.
    pub rate: f64,
    /// Default none. The share for single services, by `service.name` of the span. A `*` at the end
    /// matches any rest.
    pub by_service: BTreeMap<String, f64>,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample { rate: 1.0, by_service: BTreeMap::new() }
    }
}

/// The spans about which judges are asked. All given keys must match; a list matches if one of its
/// entries does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Which {
    /// Default all.
    pub kind: Vec<Kind>,
    /// Default all. Span names. A `*` at the end matches any rest.
    pub name: Vec<String>,
    /// Default all. `service.name` of the resource.
    pub service: Vec<String>,
}

/// Additional text for judges about particular agents (000, appendix B.1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Instruction {
    /// Default all agents. The name of an agent; a `*` at the end matches any rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Default all services. `service.name` of the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Default all metrics. Names of metrics; a `*` at the end matches any rest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// The text: how the agent is built, and which behaviour is a mistake or is not.
    pub text: String,
    /// Findings of earlier mistakes; one or two are best.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

/// An example of a finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Example {
    /// The quotation, verbatim.
    pub evidence: String,
    /// The problem.
    pub problem: String,
    /// Default none. `low`, `medium` or `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
}

/// Minimum of `max_prompt_tokens`: rubric and form take about three thousand tokens.
const MIN_TOKENS: usize = 6_000;
/// Maximum bytes of a rubric or instruction, which are part of every prompt.
const MAX_TEXT: usize = 32 * 1024;

impl AskConfig {
    /// Invalid values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        if self.max_prompt_tokens < MIN_TOKENS {
            let message = format!(
                "{} is too small for rubric and form; the minimum is {MIN_TOKENS}",
                self.max_prompt_tokens
            );
            out.push(Problem::new("max_prompt_tokens", message));
        }
        for metric in self.when_by_metric.keys().filter(|metric| *metric != "gpa" && row(metric).is_none()) {
            out.push(Problem::new(format!("when_by_metric.{metric}"), unknown(metric)));
        }
        let services =
            self.sample.by_service.iter().map(|(s, rate)| (format!("sample.by_service.{s}"), rate));
        for (key, rate) in services.chain([("sample.rate".to_owned(), &self.sample.rate)]) {
            if !(0.0..=1.0).contains(rate) {
                out.push(Problem::new(key, format!("{rate} is not between 0 and 1")));
            }
        }
        out
    }
}

/// Invalid values of `verdict.rubrics`.
pub(crate) fn rubric_problems(rubrics: &BTreeMap<String, String>) -> Vec<Problem> {
    let mut out = Vec::new();
    for (metric, text) in rubrics {
        match (row(metric), text.trim().len()) {
            (None, _) => out.push(Problem::new(metric, unknown(metric))),
            (_, 0) => out.push(Problem::new(metric, "the rubric is empty")),
            (_, n) if n > MAX_TEXT => out.push(Problem::new(metric, too_long(n))),
            _ => {}
        }
    }
    out
}

/// Invalid values of `verdict.instructions`.
pub(crate) fn instruction_problems(instructions: &[Instruction]) -> Vec<Problem> {
    let mut out = Vec::new();
    for (i, instruction) in instructions.iter().enumerate() {
        let key = |name: &str| format!("instructions[{i}].{name}");
        if instruction.text.trim().is_empty() && instruction.examples.is_empty() {
            out.push(Problem::new(key("text"), "neither a text nor an example is given"));
        }
        if instruction.text.len() > MAX_TEXT {
            out.push(Problem::new(key("text"), too_long(instruction.text.len())));
        }
        for pattern in &instruction.metrics {
            if !asked().any(|row| matches(pattern, row.name)) {
                out.push(Problem::new(key("metrics"), unknown(pattern)));
            }
        }
        for example in &instruction.examples {
            let known = |severity: &String| ["low", "medium", "high"].contains(&severity.as_str());
            if !example.severity.as_ref().is_none_or(known) {
                out.push(Problem::new(key("examples"), "severity must be low, medium or high"));
            }
        }
    }
    out
}

fn row(metric: &str) -> Option<&'static MetricSpec> {
    asked().find(|row| row.name == metric)
}

fn unknown(metric: &str) -> String {
    let names: Vec<&str> = asked().map(|row| row.name).collect();
    format!("'{metric}' is not a metric that judges answer; these are {}", names.join(", "))
}

fn too_long(bytes: usize) -> String {
    format!("{bytes} bytes are too many for a text that is part of every prompt; the maximum is {MAX_TEXT}")
}
