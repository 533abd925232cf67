//! Metrics about ourselves, and where they are read: `/metrics`, `/livez`, `/readyz`, logs.
//!
//! In: the stages count into cells of [`Telemetry`]. Out: the OpenMetrics text of a scrape. Each
//! self-metric is declared once, in [`verdict_telemetry::declared`]; `docs/self-metrics.md` lists them, and a test compares
//! the two.
//!
//! Counting is cheap: cells are resolved when the process starts (or when an exporter or metric
//! is set up), and then cost an atomic addition. Labels are hashed only on rare events.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use verdict_telemetry::{JournalMetrics, JudgeMetrics, declared};

mod export;
mod receive;
mod traces;

pub use export::{ExportMetrics, ExporterState, RequestObserver};
pub use receive::{ReceiveMetrics, RequestOutcome};
pub use traces::{Judged, MetricCells, Traces, Verdicts};

/// The `Content-Type` of [`Telemetry::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Every self-metric. One per process, shared by the stages.
#[derive(Debug)]
pub struct Telemetry {
    /// Requests, connections, spans in.
    pub receive: ReceiveMetrics,
    /// What is held on disk.
    pub journal: JournalMetrics,
    /// Open and closed traces.
    pub traces: Traces,
    /// Results of metrics, verdicts.
    pub verdicts: Verdicts,
    /// Questions to judges, what they cost.
    pub judge: JudgeMetrics,
    /// Requests and outcomes out, by exporter.
    pub export: ExportMetrics,
    reloads: [Counter; 2],
    registry: Registry,
}

impl Telemetry {
    /// Registers everything that is declared.
    pub fn new() -> Arc<Telemetry> {
        let mut registry = Registry::with_prefix(declared::PREFIX);
        let reloads = register_process(&mut registry);
        Arc::new(Telemetry {
            receive: ReceiveMetrics::register(&mut registry),
            journal: JournalMetrics::register(&mut registry),
            traces: Traces::register(&mut registry),
            verdicts: Verdicts::register(&mut registry),
            judge: JudgeMetrics::register(&mut registry),
            export: ExportMetrics::register(&mut registry),
            reloads,
            registry,
        })
    }

    /// The configuration was read again, and taken or refused.
    pub fn reloaded(&self, taken: bool) {
        self.reloads[usize::from(taken)].inc();
    }

    /// The state of all metrics as OpenMetrics text.
    pub fn render(&self) -> String {
        let mut page = String::with_capacity(16 * 1024);
        if text::encode(&mut page, &self.registry).is_err() {
            // Writing to a String does not fail; a metric that cannot be encoded is our bug.
            tracing::error!("a self-metric could not be encoded");
        }
        page
    }
}

/// Out: how often the configuration was read again, refused and taken.
fn register_process(registry: &mut Registry) -> [Counter; 2] {
    let build = Family::<_, Gauge>::default();
    build.get_or_create(&declared::BUILD.with([env!("CARGO_PKG_VERSION")])).set(1);
    declared::BUILD.register(registry, build);
    let start = Gauge::<i64>::default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    start.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    declared::START_TIME.register(registry, start);
    let reloads = Family::<_, Counter>::default();
    let cells = ["refused", "taken"].map(|r| reloads.get_or_create_owned(&declared::RELOADS.with([r])));
    declared::RELOADS.register(registry, reloads);
    cells
}

#[cfg(test)]
mod tests;
