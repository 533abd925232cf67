//! Self-metrics, which `/metrics` exposes.
//!
//! In: the stages count into cells of [`Telemetry`]. Out: the OpenMetrics text of a scrape. Each
//! self-metric is declared once, in [`verdict_telemetry::declared`]; `docs/self-metrics.md` lists them, and
//! a test compares the two.
//!
//! Counting is one atomic addition: cells are looked up when the process, an exporter or a metric starts.
//! Labels are hashed only on rare events.
//!
//! | file | content |
//! |---|---|
//! | `receive`, `kafka` | counters of the receivers |
//! | `traces`, `agents` | counters of traces and results; the same by service, agent, model, tool and signature |
//! | `export`, `page`, `process` | metrics of exporters, of the live page and of the process |
//! | `text_format` | the text of a scrape |

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use verdict_telemetry::{JournalMetrics, JudgeMetrics, declared};

mod agents;
mod export;
mod kafka;
mod page;
mod process;
mod text_format;
mod receive;
mod traces;

pub use agents::{AgentMetrics, RunCells, TokenCounts};
pub use export::{ExportMetrics, ExporterState, RequestObserver};
pub use kafka::{CommitResult, KafkaMetrics, MessageOutcome};
pub use page::{PageMetrics, PageRefusal};
pub use receive::{ReceiveMetrics, RequestOutcome};
pub use traces::{MetricCells, ResultLabel, TraceMetrics, VerdictMetrics};

pub use text_format::TextFormat;

/// Every self-metric. One per process, shared by the stages.
#[derive(Debug)]
pub struct Telemetry {
    /// Requests, connections, received spans.
    pub receive: ReceiveMetrics,
    /// Messages, partitions and commits of Kafka.
    pub kafka: KafkaMetrics,
    /// The journal and dead letters on disk.
    pub journal: JournalMetrics,
    /// Open and closed traces.
    pub traces: TraceMetrics,
    /// Results of metrics, verdicts.
    pub verdicts: VerdictMetrics,
    /// The live page.
    pub page: PageMetrics,
    /// Results by service, agent, model, tool and signature.
    pub agents: AgentMetrics,
    /// Questions to judges, and their cost.
    pub judge: JudgeMetrics,
    /// Requests and outcomes of exporters.
    pub export: ExportMetrics,
    /// The configured memory budget in bytes.
    pub memory_budget: Gauge,
    reloads: [Counter; 2],
    registry: Registry,
}

impl Telemetry {
    /// Registers every declared metric.
    pub fn new() -> Arc<Telemetry> {
        let mut root_registry = Registry::default();
        root_registry.register_collector(Box::new(process::ProcessMetrics));
        let registry = root_registry.sub_registry_with_prefix(declared::PREFIX);
        let reloads = register_process(registry);
        Arc::new(Telemetry {
            receive: ReceiveMetrics::register(registry),
            kafka: KafkaMetrics::register(registry),
            journal: JournalMetrics::register(registry),
            traces: TraceMetrics::register(registry),
            verdicts: VerdictMetrics::register(registry),
            agents: AgentMetrics::register(registry),
            page: PageMetrics::register(registry),
            judge: JudgeMetrics::register(registry),
            export: ExportMetrics::register(registry),
            memory_budget: declared::MEMORY_BUDGET.register_new(registry),
            reloads,
            registry: root_registry,
        })
    }

    /// Counts a reload of the configuration, and whether it was applied.
    pub fn count_reload(&self, applied: bool) {
        self.reloads[usize::from(applied)].inc();
    }

    /// The state of all metrics as text.
    pub fn render(&self, format: TextFormat) -> String {
        let mut page = String::with_capacity(16 * 1024);
        if text::encode(&mut page, &self.registry).is_err() {
            // Writing to a String does not fail, so the metric is at fault.
            tracing::error!("a self-metric could not be encoded; the scrape is incomplete. This is a bug");
        }
        match format {
            TextFormat::OpenMetrics => page,
            TextFormat::Prometheus => text_format::prometheus(&page),
        }
    }
}

/// Metrics of the process. Returns the counters of refused and of applied reloads.
fn register_process(registry: &mut Registry) -> [Counter; 2] {
    let [build]: [Gauge; 1] = declared::BUILD.register_cells(registry, [env!("CARGO_PKG_VERSION")]);
    build.set(1);
    let start: Gauge = declared::START_TIME.register_new(registry);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    start.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    declared::RELOADS.register_cells(registry, ["refused", "taken"])
}

#[cfg(test)]
mod tests;
