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

/// Blocking threads of the runtime that may work on traces at once: a quarter of Tokio's default number, since
/// exporters, connections and the journal need threads, too, and other shards' traces wait for the exporters.
const MAX_BLOCKING_THREADS: usize = 128;

#[derive(Debug)]
pub(super) struct Shared {
    pub config: Arc<ArcSwap<RuntimeConfig>>,
    pub exporters: Arc<Exporters>,
    pub delivery: ForwardingMode,
    pub meter: Meter,
    pub budget: Arc<Budget>,
    /// The runs that the paths API was asked about; `None` if it is off.
    pub queried_runs: Option<QueriedRuns>,
    /// Where evaluated traces go for the live page; `None` if it is off.
    pub page: Option<HistoryFeed>,
    pub store: Box<dyn Store>,
    /// The traces that are being evaluated. If the process dies, the next start finds the suspects there.
    pub markers: Arc<EvaluationMarkers>,
    /// Held by work on traces that is on a blocking thread.
    pub blocking_threads: Arc<Semaphore>,
    /// Traces are delivered without evaluation: the time for shutdown is nearly over.
    pub skip_evaluation: AtomicBool,
    /// Notified when traces must no longer wait for judges: at shutdown, or when memory is scarce.
    pub stop_waiting: Notify,
    /// The process stops, and the store keeps unfinished traces: [`Store::keeps_unfinished_traces`].
    pub leave_unfinished: AtomicBool,
    /// The task of a shard, or one that it spawned, panicked: the traces are closed, and the process must end.
    pub shard_failed: AtomicBool,
    /// A trace whose annotations cannot be encoded.
    #[cfg(test)]
    pub unencodable: Option<verdict_otlp::trace::TraceId>,
}

impl Shared {
    /// Without a store.
    pub(super) fn new(
        config: Arc<ArcSwap<RuntimeConfig>>,
        exporters: Arc<Exporters>,
        delivery: ForwardingMode,
        meter: Meter,
        budget: Arc<Budget>,
    ) -> Shared {
        Shared {
            config,
            exporters,
            delivery,
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

    /// Returns when a trace must stop waiting for judges: after `max_wait`, or when memory is scarce or the
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
