//! The sections `verdict.ask`, `verdict.rubrics` and `verdict.instructions`.
//!
//! In: the configuration's YAML. Out: values; [`super::Asker`] resolves them once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Problem, matches, settings};
use verdict_otlp::trace::Kind;

use crate::measure::Severity;
use crate::measure::table::{MetricSpec, SectionKey, TABLE, rows_with_rubric};

settings! {
    /// `verdict.ask`: which questions are sent to judges, and the maximum length of a prompt. It has no effect
    /// on the built-in rules.
    pub struct AskConfig {
        /// Default 24000. Maximum tokens of one prompt, estimated as three bytes per token. The default leaves
        /// space for the answer in a context window of 32k. A longer run is judged in overlapping parts: a
        /// smaller limit causes more questions, and with a larger one judges overlook more.
        max_prompt_tokens: usize = 24_000,
        /// Default `always`. The condition on which judges are asked.
        when: AskCondition = AskCondition::Always,
        /// Default none. The condition for single metrics, by name; `gpa` means all metrics of GPA.
        when_by_metric: BTreeMap<String, AskCondition>,
        /// Which traces judges are asked about.
        sample: TraceSampling,
        /// Which spans judges are asked about.
        spans: SpanFilter,
        /// Default true. Judges assign a category of the TRAIL taxonomy to each finding. With false they are not
        /// shown the taxonomy, and their findings have no category.
        categories: bool = true,
        /// Default true. Judges of GPA are shown two graded examples from invented runs after the built-in rubric
        /// (000, section 4.1). A rubric of `verdict.rubrics` has none but those of `verdict.instructions`.
        examples: bool = true,
        /// Default none. Services whose content is in no prompt, not even as context of other spans. A `*` at
        /// the end of a name matches any rest. In a trace with such a service, a text that a span of another service
        /// repeats is withheld as well, and so is text whose service cannot be determined.
        withhold: Vec<String>,
    }

    /// The traces about which judges are asked: the same ones in every process, by a hash of their ids.
    #[schemars(rename = "Sample")]
    pub struct TraceSampling {
        /// Default 1. The share of traces, 0 to 1.
        rate: f64 = 1.0,
        /// Default none. The share for single services, by `service.name` of the span. A `*` at the end
        /// matches any rest.
        by_service: BTreeMap<String, f64>,
    }

    /// The spans about which judges are asked. All given keys must match; a list matches if one of its
    /// entries does.
    #[schemars(rename = "Which")]
    pub struct SpanFilter {
        /// Default all.
        kind: Vec<Kind>,
        /// Default all. Span names. A `*` at the end matches any rest.
        name: Vec<String>,
        /// Default all. `service.name` of the resource.
        service: Vec<String>,
    }

    /// Additional text for judges about particular agents (000, appendix B.1).
    pub struct Instruction {
        /// Default all agents. The name of an agent; a `*` at the end matches any rest.
        #[serde(skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// Default all services. `service.name` of the resource.
        #[serde(skip_serializing_if = "Option::is_none")]
        service: Option<String>,
        /// Default all metrics. Names of metrics; a `*` at the end matches any rest.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        metrics: Vec<String>,
        /// The text: how the agent is built, and which behaviour is a mistake or is not.
        text: String,
        /// Findings of earlier mistakes; one or two are best.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        examples: Vec<Example>,
    }

    /// An example of a finding.
    pub struct Example {
        /// The quotation, verbatim.
        evidence: String,
        /// The problem.
        problem: String,
        /// Default none. `low`, `medium` or `high`.
        #[serde(skip_serializing_if = "Option::is_none")]
        severity: Option<String>,
    }
}

/// On what condition a judge is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "When")]
pub enum AskCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the rules could not measure, or have findings that are not facts.
    Unsure,
    /// Only in traces in which the rules found a failure.
    Failing,
}

/// Metrics that ask several kinds of questions, each with a named prompt.
pub(crate) fn metrics_with_named_prompts() -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(|row| !row.named_prompts.is_empty()).map(|row| row.name)
}

/// The names of the prompts of [`metrics_with_named_prompts`], whose texts `verdict.rubrics` can replace.
pub(crate) fn named_prompts() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|row| row.named_prompts).copied()
}

/// Minimum of `max_prompt_tokens`: rubric and form take about three thousand tokens.
const MIN_TOKENS: usize = 6_000;
/// Maximum bytes of a rubric or instruction, which are part of every prompt.
const MAX_TEXT_BYTES: usize = 32 * 1024;

impl AskConfig {
    /// Invalid values; `is_added` returns whether a metric of this name exists that is not built in.
    pub(crate) fn problems(&self, is_added: impl Fn(&str) -> bool) -> Vec<Problem> {
        let mut out = Vec::new();
        if self.max_prompt_tokens < MIN_TOKENS {
            let message = format!(
                "{} is too small for rubric and form; the minimum is {MIN_TOKENS}",
                self.max_prompt_tokens
            );
            out.push(Problem::new("max_prompt_tokens", message));
        }
        let is_known = |metric: &String| {
            metric == SectionKey::gpa.as_str()
                || row(metric).is_some()
                || metrics_with_named_prompts().any(|name| name == metric)
                || is_added(metric)
        };
        for metric in self.when_by_metric.keys().filter(|metric| !is_known(metric)) {
            out.push(Problem::new(
                format!("when_by_metric.{metric}"),
                unknown_metric(metric, metrics_with_named_prompts()),
            ));
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
        let is_known = row(metric).is_some() || named_prompts().any(|name| name == metric);
        match (is_known, text.trim().len()) {
            (false, _) => out.push(Problem::new(metric, unknown_metric(metric, named_prompts()))),
            (_, 0) => out.push(Problem::new(metric, "the rubric is empty")),
            (_, n) if n > MAX_TEXT_BYTES => out.push(Problem::new(metric, too_long(n))),
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
        if instruction.text.len() > MAX_TEXT_BYTES {
            out.push(Problem::new(key("text"), too_long(instruction.text.len())));
        }
        for pattern in &instruction.metrics {
            let names_without_rubric = named_prompts().chain(metrics_with_named_prompts());
            if !rows_with_rubric()
                .map(|row| row.name)
                .chain(names_without_rubric)
                .any(|name| matches(pattern, name))
            {
                out.push(Problem::new(key("metrics"), unknown_metric(pattern, named_prompts())));
            }
        }
        for example in &instruction.examples {
            let is_severity = |severity: &String| Severity::named(severity).is_some();
            if !example.severity.as_ref().is_none_or(is_severity) {
                out.push(Problem::new(key("examples"), "severity must be low, medium or high"));
            }
        }
    }
    out
}

fn row(metric: &str) -> Option<&'static MetricSpec> {
    rows_with_rubric().find(|row| row.name == metric)
}

/// The message about an unknown name, with the known ones: those of rows with a rubric, and `other_names`.
fn unknown_metric(metric: &str, other_names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<&str> = rows_with_rubric().map(|row| row.name).chain(other_names).collect();
    format!("'{metric}' is not a metric that judges answer; these are {}", names.join(", "))
}

fn too_long(bytes: usize) -> String {
    format!(
        "{bytes} bytes are too many for a text that is part of every prompt; the maximum is {MAX_TEXT_BYTES}"
    )
}
