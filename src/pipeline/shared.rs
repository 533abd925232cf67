//! State shared by all shards and requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, Semaphore};
use verdict_journal::EvaluationMarkers;

use super::budget::Budget;
use super::forwarding::ForwardingMode;
use super::meter::Meter;
use super::queried_runs::QueriedRuns;
use super::runtime_config::RuntimeConfig;
use super::store::{NoStore, Store};
use crate::export::Exporters;
use crate::page::history::HistoryFeed;

/// Maximum number of blocking threads that work on traces at once: a quarter of Tokio's default number, since
/// exporters, connections and the journal need threads, too, and traces wait for the exporters.
const MAX_BLOCKING_THREADS: usize = 128;

/// The state that all stages use.
#[derive(Debug)]
pub(super) struct Shared {
    pub config: Arc<ArcSwap<RuntimeConfig>>,
    pub exporters: Arc<Exporters>,
    pub forwarding: ForwardingMode,
    pub meter: Meter,
    pub budget: Arc<Budget>,
    /// The runs that the paths API was asked about; `None` if it is off.
    pub queried_runs: Option<QueriedRuns>,
    /// Receives evaluated traces for the live page; `None` if it is off.
    pub page: Option<HistoryFeed>,
    pub store: Box<dyn Store>,
    /// The traces that are being evaluated. If the process dies, the next start finds the suspects there.
    pub markers: Arc<EvaluationMarkers>,
    /// Permits for work on traces on blocking threads.
    pub blocking_threads: Arc<Semaphore>,
    /// Whether traces are delivered without evaluation, because the shutdown timeout has nearly elapsed.
    pub skip_evaluation: AtomicBool,
    /// Notified when traces must no longer wait for judges: at shutdown, or when memory is scarce.
    pub stop_waiting: Notify,
    /// Whether the process stops and the store keeps unfinished traces ([`Store::keeps_unfinished_traces`]).
    pub leave_unfinished: AtomicBool,
    /// Whether the task of a shard, or one that it spawned, has panicked: its traces are closed, and the process must
    /// end.
    pub shard_failed: AtomicBool,
    /// In tests, a trace whose encoding panics.
    #[cfg(test)]
    pub unencodable: Option<verdict_otlp::trace::TraceId>,
}

impl Shared {
    /// State without a store, queried runs and a live page.
    pub(super) fn new(
        config: Arc<ArcSwap<RuntimeConfig>>,
        exporters: Arc<Exporters>,
        forwarding: ForwardingMode,
        meter: Meter,
        budget: Arc<Budget>,
    ) -> Shared {
        Shared {
            config,
            exporters,
            forwarding,
            meter,
            budget,
            queried_runs: None,
            page: None,
            store: Box::new(NoStore),
            markers: Arc::default(),
            blocking_threads: Arc::new(Semaphore::new(MAX_BLOCKING_THREADS)),
            skip_evaluation: AtomicBool::new(false),
            stop_waiting: Notify::new(),
            leave_unfinished: AtomicBool::new(false),
            shard_failed: AtomicBool::new(false),
            #[cfg(test)]
            unencodable: None,
        }
    }

    /// Completes when a trace must stop waiting for judges: after `max_wait`, or when memory is scarce or the
    /// process stops.
    pub(super) async fn wait_for_judges(&self, max_wait: Duration) {
        let stop_waiting = self.stop_waiting.notified();
        tokio::pin!(stop_waiting);
        // Registers before the flags are read, so that no notification is missed.
        stop_waiting.as_mut().enable();
        if self.skip_evaluation.load(Ordering::Relaxed) || self.leave_unfinished.load(Ordering::Relaxed) {
            return;
        }
        tokio::select! {
            () = stop_waiting => {}
            () = tokio::time::sleep(max_wait) => {}
        }
    }
}

/// The state of a pipeline under test.
#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::config::Config;
    use crate::export::{ExportClients, ExportContext};
    use crate::extensions::Extensions;
    use crate::pipeline::ask_judges::QuestionAnswerer;
    use crate::telemetry::Telemetry;

    /// The exporters in use, with these clients of type `custom`.
    pub(in crate::pipeline) fn exporters(config: &Config, clients: ExportClients) -> Arc<Exporters> {
        let context = ExportContext { clients, ..ExportContext::for_test() };
        Arc::new(Exporters::start(&config.exporters, &config.service.exporters, &context).unwrap())
    }

    /// The state without a store.
    pub(in crate::pipeline) fn shared(
        config: &Config,
        exporters: &Arc<Exporters>,
        answerer: Option<Arc<dyn QuestionAnswerer>>,
    ) -> Shared {
        let runtime_config = RuntimeConfig::new(&config.verdict, &Extensions::default(), answerer).unwrap();
        let telemetry = Telemetry::new();
        let budget = Budget::new(config.memory.budget, &telemetry.traces);
        Shared::new(
            Arc::new(ArcSwap::from_pointee(runtime_config)),
            Arc::clone(exporters),
            ForwardingMode(config.verdict.mode),
            Meter::new(telemetry, std::iter::empty()),
            budget,
        )
    }
}
