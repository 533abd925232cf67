//! `verdict:`: selection of spans, trace close, measurements and their output.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Period, Problem};
use verdict_eval::Emit;

use crate::assemble::Close;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VerdictConfig {
    /// Default `annotate`: a trace is buffered until it closes, then exported with its verdicts.
    pub mode: Mode,
    /// The spans that are evaluated. Default: all. Other spans are exported at once.
    pub select: Select,
    /// When a trace closes.
    pub close: Close,
    /// How long a closed trace may wait for judges before it is exported without their missing answers.
    /// Default 30s. Rules answer at once, so without judges no trace waits.
    pub max_wait: Period,
    /// Metrics, propagation of verdicts, and their output.
    #[serde(flatten, skip_deserializing)]
    #[schemars(!skip_deserializing)]
    pub evaluation: verdict_eval::Config,
}

impl Default for VerdictConfig {
    fn default() -> VerdictConfig {
        VerdictConfig {
            mode: Mode::default(),
            select: Select::default(),
            close: Close::default(),
            max_wait: Period::secs(30),
            evaluation: verdict_eval::Config::default(),
        }
    }
}

/// How spans are exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Buffered until their trace closes, then exported with verdicts.
    #[default]
    Annotate,
    /// Exported unchanged at once; verdicts are written as log events and metrics only.
    Shadow,
}

/// The spans that are evaluated. Every configured key must match; a list matches if one of its entries does;
/// `*` at the end of an entry matches any suffix.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Select {
    /// `service.name` of the resource. Default: all.
    pub service: Vec<String>,
    /// Name of the instrumentation scope. Default: all.
    pub scope: Vec<String>,
    /// Values of attributes of the span or its resource. Default: all.
    pub attribute: BTreeMap<String, String>,
}

impl Select {
    /// Whether every span is selected.
    pub fn is_everything(&self) -> bool {
        self.service.is_empty() && self.scope.is_empty() && self.attribute.is_empty()
    }
}

impl VerdictConfig {
    /// Values that cannot be used.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut found = self.evaluation.problems();
        if self.mode == Mode::Shadow && !self.evaluation.emit.contains(&Emit::LogEvents) {
            found.push(Problem::new("emit", "mode shadow writes log events only; add log_events"));
        }
        found
    }
}
