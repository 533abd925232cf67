//! `service:` and `memory:` - settings of the process as a whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{MemoryBudget, Period, Problem};

use crate::logging::Format;

/// `service:`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Default: every exporter that is defined. Ids under `exporters` that are in use; one that
    /// is defined and not named here is not started.
    pub exporters: Vec<String>,
    /// Default 30s. After SIGTERM, how long open traces and queues have to drain. What is left then is
    /// dropped, counted and logged, or stays in the journal if there is one. Keep it below the grace
    /// period of the supervisor.
    pub shutdown_timeout: Period,
    /// Default `info`. `error`, `warn`, `info`, `debug`, `trace`, or directives by module such as
    /// `info,otel_verdict::export=debug`.
    pub log_level: String,
    /// Default `auto`: text on a terminal, otherwise one JSON object per line.
    pub log_format: Format,
}

impl Default for Service {
    fn default() -> Service {
        Service {
            exporters: Vec::new(),
            shutdown_timeout: Period::secs(30),
            log_level: "info".to_owned(),
            log_format: Format::default(),
        }
    }
}

impl Service {
    /// What is wrong with the values.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let level = crate::logging::filter(&self.log_level).err();
        level.map(|e| Problem::new("log_level", e.to_string())).into_iter().collect()
    }
}

/// `memory:`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Default `auto`: half of what the container, else the machine, has. Bytes that buffered
    /// spans may take: those of open traces, of what is being judged, and of what waits for required
    /// exporters. From nine tenths of it, without the queues, the largest idle traces are closed
    /// early, marked `verdict.incomplete`; when all is used, requests are refused before they are
    /// read, with a time to retry: senders wait instead of losing spans. Beside it requests being
    /// read take at most a quarter as much, and the queue of each exporter that is not required at
    /// most an eighth.
    pub budget: MemoryBudget,
}
