//! The settings of annotation.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::MetricSpec;
use crate::measure::table::spec_among;
use crate::redact::Redactor;

/// Where verdicts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Emit {
    /// `verdict.*` attributes on the spans.
    Attributes,
    /// One `gen_ai.evaluation.result` log record per measurement.
    LogEvents,
    /// The same as events of the span, for back ends without logs.
    SpanEvents,
    /// `braintrust.scores` on the spans, which Braintrust reads: a JSON object of scores from 0 to 1. Labels and
    /// quantities are 1 if they pass and 0 if they fail. An attribute of the sender is kept.
    BraintrustScores,
}

/// Which measurements carry an explanation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Explanations {
    /// Measurements that fail.
    #[default]
    Fail,
    /// Every measurement that has findings or a rationale.
    All,
    /// No measurement, for traces whose content must not be quoted.
    Off,
}

/// How much is written of a measurement that passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DetailLevel {
    /// Its value and result.
    #[default]
    Normal,
    /// Also its judge, its score scaled to 0 to 1, and the number of values that the rules examined.
    Full,
}

/// The treatment of `verdict.*` attributes that an incoming span already has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// The sender's attributes are removed, and the verdict is written, so that a sender cannot forge a verdict.
    #[default]
    Replace,
    /// The sender's attributes remain, and no verdict is written on that span: for an instance that receives spans
    /// which another instance has evaluated.
    Keep,
}

/// The settings of annotation, resolved from the configuration.
#[derive(Clone, Debug)]
pub struct Emission {
    /// The beginning of every attribute key; ends in a dot.
    pub prefix: String,
    /// Where verdicts are written.
    pub emit: Vec<Emit>,
    /// Which measurements carry an explanation.
    pub explanations: Explanations,
    /// How much is written of passing measurements.
    pub detail: DetailLevel,
    /// The treatment of existing verdicts.
    pub existing: Existing,
    /// Write log records of measurements without a value too.
    pub log_unmeasured: bool,
    /// Removes secrets from explanations.
    pub redactor: Redactor,
    /// The metrics that the embedding program added.
    pub custom: Vec<&'static MetricSpec>,
}

impl Emission {
    /// The redacted form of a text that may quote content; `None` with `explanations: off`.
    pub fn disclose<'t>(&self, text: &'t str) -> Option<Cow<'t, str>> {
        (self.explanations != Explanations::Off).then(|| self.redactor.redact(text))
    }

    /// The score of a metric, scaled to 0 to 1. `name` is the name in its evaluation events. `None` for labels and
    /// quantities.
    pub fn normalized(&self, name: &str, score: f64) -> Option<f64> {
        let row = spec_among(&self.custom, name).or_else(|| {
            // `Measurement::written` inserts the task after the first part of a name.
            let (section, task_and_metric) = name.split_once('.')?;
            spec_among(&self.custom, &format!("{section}.{}", task_and_metric.rsplit_once('.')?.1))
        });
        row?.scale.normalized(score)
    }

    /// Whether verdicts are written to `channel`.
    pub fn writes_to(&self, channel: Emit) -> bool {
        self.emit.contains(&channel)
    }
}
