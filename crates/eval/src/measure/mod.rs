//! Metrics: small state machines from a trace to measurements. No I/O happens here.
//!
//! In: a [`AgentTrace`] and a span in it. Out: [`Measurement`]s with evidence, or questions for a
//! judge, which `pipeline` carries. Names, scales and thresholds follow paper 001, tables 1 and 2.

use verdict_otlp::trace::Idx;

use crate::recognise::AgentTrace;

/// The next move of a metric.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// It needs answers first.
    Ask(Vec<Question>),
    /// It is done. Empty means: this metric does not exist on such a span.
    Done(Vec<Measurement>),
}

/// What a metric looks at.
pub struct Context<'a> {
    /// The whole trace (or what is there of it).
    pub trace: &'a AgentTrace,
    /// The span in question.
    pub at: Idx,
    /// Thresholds and switches.
    pub settings: &'a Settings,
    /// What other metrics already worked out of this trace's texts.
    pub memo: &'a Memo,
    /// What the rules measured in this trace, by span; empty while they are at it.
    pub rules: &'a [Measurement],
}

impl Context<'_> {
    /// The threshold of a scored metric here; a score below it fails.
    pub fn threshold(&self, metric: &str) -> f64 {
        self.settings.threshold(metric, self.trace, self.at)
    }
}

/// A metric. Deterministic: the same view and answers give the same step.
pub trait Metric: Send + Sync {
    /// The next move, given the answers so far.
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> Step;
}

impl<M: Metric + ?Sized> Metric for &M {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> Step {
        (**self).step(context, answers)
    }
}

// First, since a macro is known only after its definition.
#[macro_use]
pub(crate) mod table;

pub(crate) mod agent;
pub(crate) mod defect;
pub(crate) mod defects;
pub(crate) mod ask;
pub(crate) mod avoidance;
pub(crate) mod catalog;
pub(crate) mod checklist;
pub(crate) mod error_detection;
pub(crate) mod error_kind;
pub(crate) mod error_text;
pub(crate) mod evaluated_spans;
pub(crate) mod excerpt;
pub(crate) mod instruction_following;
pub(crate) mod identifier;
pub(crate) mod inputs;
pub(crate) mod latency;
pub(crate) mod measurement;
pub(crate) mod memo;
pub(crate) mod path;
pub(crate) mod plan;
pub(crate) mod question;
pub(crate) mod reasoning;
pub(crate) mod question_rounds;
pub(crate) mod rule;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod schema;
pub(crate) mod settings;
pub(crate) mod merge_judgements;
pub(crate) mod tokens;
pub(crate) mod tool_completeness;
pub(crate) mod conversation;
pub(crate) mod locate_quotes;
pub(crate) use measurement::{
    Category, Detail, DetailValue, Finding, Measured, Measurement, Severity, Unmeasured, Value,
};
pub(crate) use memo::Memo;
pub(crate) use question::{Answer, Form, Opinion, Prompt, Question, ScoreField, Shows, Usage};
pub(crate) use settings::Settings;
pub(crate) use table::{MetricSpec, Need};

#[cfg(any(test, feature = "testing"))]
#[allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
pub(crate) mod testing;
