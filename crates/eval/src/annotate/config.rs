//! What is written, and where: `verdict.emit` and its neighbours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::MetricSpec;
use crate::redact::Redactor;

/// A way for verdicts to go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Emit {
    /// `verdict.*` attributes on the spans.
    Attributes,
    /// One `gen_ai.evaluation.result` log record a measurement.
    LogEvents,
    /// The same as events on the span, for back ends that show no logs.
    SpanEvents,
}

/// Which measurements say why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Explanations {
    /// Failing ones.
    #[default]
    Fail,
    /// All that have something to say.
    All,
    /// None: rationales quote the trace, and some must not leave by this way.
    Off,
}

/// What becomes of `verdict.*` attributes that a span brings along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// Ours stand in their place: a sender cannot spoof a verdict.
    #[default]
    Replace,
    /// They stay, and we write none on that span: for a second processor behind a first.
    Keep,
}

/// How annotation is done, resolved from `verdict.*` in the configuration.
#[derive(Clone, Debug)]
pub struct Emission {
    /// Begins every attribute's key; ends in a dot.
    pub prefix: String,
    /// Where verdicts are written.
    pub emit: Vec<Emit>,
    /// Which measurements carry their rationale.
    pub explanations: Explanations,
    /// What becomes of verdicts that were there before.
    pub existing: Existing,
    /// Log records for unmeasured metrics too.
    pub log_unmeasured: bool,
    /// What is taken out of explanations.
    pub redactor: Redactor,
    /// Metrics that were added from outside.
    pub custom: Vec<&'static MetricSpec>,
}

impl Default for Emission {
    fn default() -> Emission {
        Emission {
            prefix: "verdict.".to_owned(),
            emit: vec![Emit::Attributes, Emit::LogEvents],
            explanations: Explanations::Fail,
            existing: Existing::Replace,
            log_unmeasured: false,
            redactor: Redactor::default(),
            custom: Vec::new(),
        }
    }
}

impl Emission {
    /// Whether verdicts go out this way.
    pub fn has(&self, channel: Emit) -> bool {
        self.emit.contains(&channel)
    }
}
