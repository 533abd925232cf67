//! Metrics: state machines that compute measurements from a trace. They perform no I/O.
//!
//! In: an [`AgentTrace`] and one of its spans. Out: [`Measurement`]s with evidence, or questions for
//! judges, which the caller asks. Names, scales and thresholds follow paper 001, tables 1 and 2.
//!
//! | module | content |
//! |---|---|
//! | `table`, `metric_names`, `custom_metric` | the rows of the metrics, their names, and the rows of custom metrics |
//! | `settings`, `sections`, `gpa` | `verdict.metrics`: its sections, and the settings of each metric on each span |
//! | `catalog`, `rule`, `evaluated_spans` | the implementations of the metrics; adapters from functions to metrics; the measured spans |
//! | `measurement`, `defect`, `defects`, `rule_names`, `confidence`, `reach` | results, findings, rules that share a defect, the precision of rules; the spans that a result covers |
//! | `question`, `question_context`, `question_rounds`, `inputs` | questions to judges, and their rounds |
//! | `merge_judgements`, `locate_quotes` | results of rules and judges merged; quotes located in the trace |
//! | `latency`, `tokens` | metrics of every span, model call or tool call: its duration, its tokens |
//! | `avoidance`, `error_detection`, `instruction_following`, `reasoning` | metrics of a model call |
//! | `tool_completeness` | the metric of a tool call |
//! | `agent`, `path`, `plan`, `checklist` | metrics of a run |
//! | `ask`, `remote` | metrics that judges or remote evaluators answer |
//! | `calls`, `tool_index`, `tool_purpose`, `schema` | calls: their outcomes, the offered tools, the purpose of a tool, schemas of arguments |
//! | `error_kind`, `error_text`, `failure_origin`, `without_effect`, `harm_reason` | errors: their causes, their texts and the party at fault; calls without effect; reasons for harm |
//! | `provenance` | where the values of arguments came from |
//! | `agent_index`, `conversation`, `dialogue` | agents by span; the turns of a run; the turns of a user |
//! | `request`, `identifier`, `people` | the demands of a task; the words in names of tools; words for people |
//! | `language`, `vocabulary` | statements in texts, in the languages that rules read; words of all these languages by meaning |
//! | `occurrences`, `ascii_letters` | all occurrences of many words in a text, in one pass; runs of ASCII letters |
//! | `numbers`, `units`, `currency`, `median` | numbers in texts, units, currencies; the median |
//! | `records`, `tables` | structured results as records; tables in texts |
//! | `content_piece`, `excerpt`, `sanitize` | pieces of content; excerpts as evidence; untrusted text made safe for prompts |
//! | `memo`, `recurring`, `work_budget` | the caches of one trace and of all traces; the bound on the work for a trace |
//! | `testing` | small traces for the tests of other crates |

use verdict_otlp::trace::Idx;

use self::ask::content::TraceContent;
use crate::recognise::AgentTrace;

/// The result of one step of a metric.
#[derive(Clone, PartialEq, Debug)]
pub enum MetricProgress {
    /// Questions; the next step receives their answers.
    Ask(Vec<Question>),
    /// The measurements; empty if the metric does not apply to the span.
    Done(Vec<Measurement>),
}

/// The input of a metric.
pub struct Context<'a> {
    /// The row of the metric.
    pub row: &'a MetricSpec,
    /// The trace, as far as it has been received.
    pub trace: &'a AgentTrace,
    /// The span to measure.
    pub at: Idx,
    pub(crate) settings: &'a Settings,
    /// Intermediate results about this trace, shared by the metrics.
    pub(crate) memo: &'a Memo,
    /// The measurements of the rules in this trace, by span; empty while the rules run.
    pub rule_measurements: &'a [Measurement],
}

impl Context<'_> {
    /// The threshold of the metric on this span, if it has scores; a score below it fails.
    pub fn threshold(&self) -> f64 {
        self.settings.threshold(self.row, self.trace, self.at)
    }

    /// A text of the trace as a judge may read it: without invisible characters, and redacted as configured.
    pub fn cleaned(&self, text: &str) -> String {
        self.settings.asker.clean(text)
    }

    /// The content of the trace as judges may read it.
    pub(crate) fn content(&self) -> TraceContent<'_> {
        TraceContent { asker: &self.settings.asker, trace: self.trace, memo: self.memo }
    }

    /// Whether this label of the metric fails.
    pub fn fails(&self, label: &str) -> bool {
        self.settings.fails(self.row, label)
    }
}

/// A metric. It must be deterministic: equal contexts and answers give equal steps.
pub trait Metric: Send + Sync {
    /// The next step, by all answers so far. Its measurements are written under the name of the row, no matter with
    /// which name they were created.
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress;

    /// As [`Metric::step`] in a trace that is still open, for questions that need less of the trace than the metric.
    /// The questions about the closed trace must be the same. The measurements are discarded. By default there are no
    /// questions.
    fn early_step(&self, _context: &Context<'_>, _answers: &[Answer]) -> MetricProgress {
        MetricProgress::Done(Vec::new())
    }
}

impl<M: Metric + ?Sized> Metric for &M {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        (**self).step(context, answers)
    }

    fn early_step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        (**self).early_step(context, answers)
    }
}

// This module is the first one, because a macro is in scope only after its definition.
#[macro_use]
pub(crate) mod table;

pub(crate) mod agent;
pub(crate) mod ascii_letters;
pub(crate) mod agent_index;
pub(crate) mod defect;
pub(crate) mod defects;
pub(crate) mod ask;
pub(crate) mod avoidance;
pub(crate) mod calls;
pub(crate) mod catalog;
pub(crate) mod checklist;
pub(crate) mod custom_metric;
pub(crate) mod error_detection;
pub(crate) mod error_kind;
pub(crate) mod error_text;
pub(crate) mod evaluated_spans;
pub(crate) mod excerpt;
pub(crate) mod instruction_following;
pub(crate) mod language;
pub(crate) mod identifier;
pub(crate) mod inputs;
pub(crate) mod dialogue;
pub(crate) mod latency;
pub(crate) mod measurement;
pub(crate) mod median;
pub(crate) mod memo;
pub(crate) mod metric_names;
pub(crate) mod path;
pub(crate) mod people;
pub(crate) mod plan;
pub(crate) mod question;
pub(crate) mod reach;
pub(crate) mod reasoning;
pub(crate) mod remote;
pub(crate) mod question_rounds;
pub(crate) mod rule;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod schema;
pub(crate) mod settings;
pub(crate) mod question_context;
pub(crate) mod merge_judgements;
pub(crate) mod tokens;
mod units;
mod vocabulary;
pub(crate) mod tool_completeness;
pub(crate) mod confidence;
mod rule_names;
pub(crate) mod content_piece;
pub(crate) mod currency;
pub(crate) mod tool_index;
pub(crate) mod tool_purpose;
pub(crate) mod provenance;
pub(crate) mod failure_origin;
pub(crate) mod recurring;
pub(crate) mod conversation;
pub(crate) mod gpa;
pub(crate) mod harm_reason;
pub(crate) mod work_budget;
pub(crate) mod locate_quotes;
pub(crate) mod numbers;
pub(crate) mod occurrences;
pub(crate) mod records;
pub(crate) mod request;
pub(crate) mod sanitize;
pub(crate) mod sections;
pub(crate) mod tables;
pub(crate) use defect::Defect;
pub(crate) use measurement::{
    Category, Detail, DetailValue, Finding, Measured, Measurement, Severity, Unmeasured, Value,
};
pub(crate) use memo::Memo;
pub(crate) use question::{Answer, AnswerForm, Opinion, Prompt, Question, ScoreField, Shows, Usage};
pub(crate) use settings::Settings;
pub(crate) use table::{MetricSpec, Need};

#[cfg(any(test, feature = "testing"))]
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types
)]
pub(crate) mod testing;
pub(crate) mod without_effect;
