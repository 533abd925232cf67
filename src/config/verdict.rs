//! `verdict:`: selection of spans, trace close, measurements and their output.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Period, Problem, settings};
use verdict_eval::config::Emit;

use crate::assemble::Close;
use crate::receive::paths::PathsApi;

settings! {
    pub struct VerdictConfig {
        /// Default `annotate`: a trace is buffered until it closes, then exported with its verdicts.
        mode: Mode,
        /// The spans that are evaluated. Default: all. Other spans are exported at once.
        select: Select,
        /// When a trace closes.
        close: Close,
        /// How long a closed trace may wait for judges before it is exported without their missing answers.
        /// Default 4m: the three attempts of a judge with its default timeout and retries, the waits between them, and
        /// time for a second round of questions. Rules answer at once, so without judges no trace waits.
        max_wait: Period = Period::secs(240),
        /// Default none: no listener. Answers gateways whether a call is allowed, before it is made:
        /// `POST /v1/paths/next`.
        #[serde(skip_serializing_if = "Option::is_none")]
        paths_api: Option<PathsApi>,
        /// Metrics, propagation of verdicts, and their output.
        #[serde(flatten, skip_deserializing)]
        #[schemars(!skip_deserializing)]
        evaluation: verdict_eval::Config,
    }

    /// The spans that are evaluated. Every configured key must match; a list matches if one of its entries does;
    /// `*` at the end of an entry matches any suffix.
    pub struct Select {
        /// `service.name` of the resource. Default: all.
        service: Vec<String>,
        /// Name of the instrumentation scope. Default: all.
        scope: Vec<String>,
        /// Values of attributes of the span or its resource. Default: all.
        attribute: BTreeMap<String, String>,
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

impl Select {
    /// Whether every span is selected.
    pub fn is_everything(&self) -> bool {
        self.service.is_empty() && self.scope.is_empty() && self.attribute.is_empty()
    }
}

impl VerdictConfig {
    /// Values that cannot be used.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = self.evaluation.problems();
        if self.mode == Mode::Shadow && !self.evaluation.emit.contains(&Emit::LogEvents) {
            problems.push(Problem::new("emit", "mode shadow writes log events only; add log_events"));
        }
        let api_problems = self.paths_api.iter().flat_map(PathsApi::problems);
        problems.extend(api_problems.map(|problem| problem.in_section("paths_api")));
        problems
    }
}
