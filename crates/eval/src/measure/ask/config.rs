//! What `verdict.ask`, `verdict.rubrics` and `verdict.instructions` say.
//!
//! In: the configuration's YAML. Out: values; [`super::Asker`] resolves them once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Problem, matches};
use verdict_otlp::trace::Kind;

use crate::measure::table::{MetricSpec, asked};

/// `verdict.ask`: which questions go to judges, and how long they may be. The built-in rules are
/// not concerned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ask {
    /// Default 24000. Tokens of one prompt, by an estimate of three bytes a token: leaves room for
    /// the answer in a window of 32k. A run that is longer is judged in overlapping parts, so that
    /// less means more questions, and more means that judges overlook more.
    pub max_prompt_tokens: usize,
    /// Default `always`. Where judges are asked at all.
    pub when: When,
    /// Default none. The same for some metrics, by name; `gpa` stands for all of GPA.
    pub when_by_metric: BTreeMap<String, When>,
    /// Which traces judges are asked about.
    pub sample: Sample,
    /// Which spans judges are asked about.
    pub spans: Which,
    /// Default none. Services whose spans' content stands in no prompt, also not beside other
    /// spans; `*` at the end stands for any rest. What another service's model was given of it is
    /// that service's content.
    pub withhold: Vec<String>,
}

impl Default for Ask {
    fn default() -> Ask {
        Ask {
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
    /// Only where the rules could not measure, or suspect something that is no fact.
    Unsure,
    /// Only in traces in which the rules found a failure.
    Failing,
}

/// Which traces: the same ones in every process, by their ids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sample {
    /// Default 1. The share of traces, 0 to 1.
    pub rate: f64,
    /// Default none. The share for some services, by `service.name` of the span; `*` at the end
    /// stands for any rest.
    pub by_service: BTreeMap<String, f64>,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample { rate: 1.0, by_service: BTreeMap::new() }
    }
}

/// Which spans; every key given must match, a list matches if one of its entries does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Which {
    /// Default all.
    pub kind: Vec<Kind>,
    /// Default all. Span names; `*` at the end stands for any rest.
    pub name: Vec<String>,
    /// Default all. `service.name` of the resource.
    pub service: Vec<String>,
}

/// What judges are told about some agents beside the rubric (000, appendix B.1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Instruction {
    /// Default all agents. `*` at the end stands for any rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Default all services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Default all metrics. Names, or beginnings that end in `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// What to know: how the agent is built, what counts as a mistake here and what does not.
    pub text: String,
    /// Mistakes as they were found before; one or two help most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

/// A finding as it should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Example {
    /// What was seen, word for word.
    pub evidence: String,
    /// What is wrong with it.
    pub problem: String,
    /// Default none. How bad: `low`, `medium`, `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
}

/// Fewest tokens that a prompt must be allowed: rubric and form take about three thousand.
const LEAST_TOKENS: usize = 6_000;
/// Most bytes of a rubric or instruction: they stand in every prompt.
const MOST_TEXT: usize = 32 * 1024;

impl Ask {
    /// What is wrong with the values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        if self.max_prompt_tokens < LEAST_TOKENS {
            let message =
                format!("{} is less than rubric and form need: {LEAST_TOKENS}", self.max_prompt_tokens);
            out.push(Problem::new("max_prompt_tokens", message));
        }
        for metric in self.when_by_metric.keys().filter(|metric| *metric != "gpa" && topic(metric).is_none())
        {
            out.push(Problem::new(format!("when_by_metric.{metric}"), unknown(metric)));
        }
        let services =
            self.sample.by_service.iter().map(|(s, rate)| (format!("sample.by_service.{s}"), rate));
        for (key, rate) in services.chain([("sample.rate".to_owned(), &self.sample.rate)]) {
            if !(0.0..=1.0).contains(rate) {
                out.push(Problem::new(key, format!("{rate} is no share between 0 and 1")));
            }
        }
        out
    }
}

/// What is wrong with `verdict.rubrics`, as (key, message).
pub(crate) fn rubric_problems(rubrics: &BTreeMap<String, String>) -> Vec<Problem> {
    let mut out = Vec::new();
    for (metric, text) in rubrics {
        match (topic(metric), text.trim().len()) {
            (None, _) => out.push(Problem::new(metric, unknown(metric))),
            (_, 0) => out.push(Problem::new(metric, "the rubric is empty")),
            (_, n) if n > MOST_TEXT => out.push(Problem::new(metric, too_long(n))),
            _ => {}
        }
    }
    out
}

/// What is wrong with `verdict.instructions`, as (key, message).
pub(crate) fn instruction_problems(instructions: &[Instruction]) -> Vec<Problem> {
    let mut out = Vec::new();
    for (i, instruction) in instructions.iter().enumerate() {
        let key = |name: &str| format!("instructions[{i}].{name}");
        if instruction.text.trim().is_empty() && instruction.examples.is_empty() {
            out.push(Problem::new(key("text"), "says nothing"));
        }
        if instruction.text.len() > MOST_TEXT {
            out.push(Problem::new(key("text"), too_long(instruction.text.len())));
        }
        for pattern in &instruction.metrics {
            if !asked().any(|topic| matches(pattern, topic.name)) {
                out.push(Problem::new(key("metrics"), unknown(pattern)));
            }
        }
        for example in &instruction.examples {
            let known = |severity: &String| ["low", "medium", "high"].contains(&severity.as_str());
            if !example.severity.as_ref().is_none_or(known) {
                out.push(Problem::new(key("examples"), "severity is low, medium or high"));
            }
        }
    }
    out
}

fn topic(metric: &str) -> Option<&'static MetricSpec> {
    asked().find(|topic| topic.name == metric)
}

fn unknown(metric: &str) -> String {
    let names: Vec<&str> = asked().map(|topic| topic.name).collect();
    format!("'{metric}' is no metric that judges answer; they are {}", names.join(", "))
}

fn too_long(bytes: usize) -> String {
    format!("{bytes} bytes are too many for what stands in every prompt; at most {MOST_TEXT}")
}
