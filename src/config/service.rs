//! `service:` and `memory:`: settings of the process as a whole.

use verdict_config::{MemoryBudget, Period, Problem, settings};

use crate::logging::Format;
use crate::own_telemetry::TelemetryConfig;

settings! {
    /// `service:`
    pub struct Service {
        /// Ids under `exporters` that are in use. Default: every exporter that is defined. One that is
        /// defined and not named here is not started.
        exporters: Vec<String>,
        /// Time after SIGTERM in which open traces and queues are drained. Default 30s. What is left then
        /// is dropped, counted and logged, or stays in the journal if there is one. Keep it below the grace
        /// period of the supervisor.
        shutdown_timeout: Period = Period::secs(30),
        /// `error`, `warn`, `info` (default), `debug`, `trace`, or directives by module such as
        /// `info,otel_verdict::export=debug`.
        log_level: String = "info".to_owned(),
        /// Default none: nothing is sent. Spans and metrics of this process, as OTLP.
        #[serde(skip_serializing_if = "Option::is_none")]
        telemetry: Option<TelemetryConfig>,
        /// `auto` (default): text on a terminal, otherwise one JSON object per line.
        log_format: Format,
    }

    /// `memory:`
    pub struct Memory {
        /// Bytes of buffered spans: of open traces, of traces that are being evaluated, and in the queues of
        /// required exporters. Default `auto`: half of the memory of the container, else of the machine. From
        /// nine tenths of it, without the queues, the largest idle traces are closed early, marked
        /// `verdict.incomplete`; when all of it is used, requests are refused before they are read, with a time
        /// to retry, so that senders wait instead of losing spans. In addition requests that are being read take
        /// at most a quarter as much, and the queue of each exporter that is not required at most an eighth.
        budget: MemoryBudget,
    }
}

impl Service {
    /// Values that cannot be used.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let level = crate::logging::filter(&self.log_level).err();
        let level = level.map(|e| Problem::new("log_level", e.to_string()));
        let telemetry = self.telemetry.iter().flat_map(TelemetryConfig::problems);
        level.into_iter().chain(telemetry.map(|problem| problem.in_section("telemetry"))).collect()
    }
}
