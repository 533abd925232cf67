//! `verdict:` - what is measured, when, and what is written about it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Period, Problem};
use verdict_eval::Emit;

use crate::assemble::Close;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Verdict {
    /// Default `annotate`: hold a trace until it closes, then send it on with its verdicts.
    pub mode: Mode,
    /// Default everything. Which spans are judged; what is not selected passes straight through.
    pub select: Select,
    /// When a trace counts as complete.
    pub close: Close,
    /// Default 30s. How long a closed trace may wait for judges before it goes on with what there
    /// is. The built-in rules answer at once, so without judges nothing waits.
    pub max_wait: Period,
    /// What is measured, how verdicts propagate, and what is written.
    #[serde(flatten, skip_deserializing)]
    #[schemars(!skip_deserializing)]
    pub evaluation: verdict_eval::Config,
}

impl Default for Verdict {
    fn default() -> Verdict {
        Verdict {
            mode: Mode::default(),
            select: Select::default(),
            close: Close::default(),
            max_wait: Period::secs(30),
            evaluation: verdict_eval::Config::default(),
        }
    }
}

/// What is done with the spans themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Buffered until their trace closes, then sent on with verdicts.
    #[default]
    Annotate,
    /// Sent on at once and untouched; verdicts go out as log events and metrics only.
    Shadow,
}

/// Which spans are judged. Every key given must match; a list matches if one of its entries
/// does; `*` at the end of an entry matches any rest.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Select {
    /// Default all. `service.name` of the resource.
    pub service: Vec<String>,
    /// Default all. Name of the instrumentation scope.
    pub scope: Vec<String>,
    /// Default all. Attributes of the span or its resource that must have these values.
    pub attribute: BTreeMap<String, String>,
}

impl Select {
    /// Nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.service.is_empty() && self.scope.is_empty() && self.attribute.is_empty()
    }
}

impl Verdict {
    /// What is wrong with the values.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut found = self.evaluation.problems();
        if self.mode == Mode::Shadow && !self.evaluation.emit.contains(&Emit::LogEvents) {
            found.push(Problem::new("emit", "mode shadow writes log events only; add log_events"));
        }
        found
    }
}
