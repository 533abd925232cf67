//! State shared by all shards and requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use verdict_journal::Attempts;

use super::budget::Budget;
use super::meter::Meter;
use super::runtime_config::RuntimeConfig;
use super::store::{NoStore, Store};
use crate::export::Exporters;

#[derive(Debug)]
pub(super) struct Shared {
    pub config: Arc<ArcSwap<RuntimeConfig>>,
    pub exporters: Arc<Exporters>,
    pub meter: Meter,
    pub budget: Arc<Budget>,
    pub store: Box<dyn Store>,
    /// The traces that are being evaluated. If the process dies, the next start finds the suspects there.
    pub attempts: Arc<Attempts>,
    /// The time for shutdown is nearly over: traces are delivered without evaluation, ...
    pub hurried: AtomicBool,
    /// ... and traces no longer wait for judges. Also notified when memory is scarce.
    pub hurry: Notify,
    /// The process stops, and traces that wait for judges remain in the store.
    pub stopping: AtomicBool,
    /// The task of a shard panicked: its traces are closed, and the process must end.
    pub shard_failed: AtomicBool,
    /// A trace whose annotations cannot be encoded.
    #[cfg(test)]
    pub unencodable: Option<verdict_otlp::trace::TraceId>,
}

impl Shared {
    /// Without a store.
    pub fn new(
        config: Arc<ArcSwap<RuntimeConfig>>,
        exporters: Arc<Exporters>,
        meter: Meter,
        budget: Arc<Budget>,
    ) -> Shared {
        Shared {
            config,
            exporters,
            meter,
            budget,
            store: Box::new(NoStore),
            attempts: Arc::default(),
            hurried: AtomicBool::new(false),
            hurry: Notify::new(),
            stopping: AtomicBool::new(false),
            shard_failed: AtomicBool::new(false),
            #[cfg(test)]
            unencodable: None,
        }
    }

    /// Returns when a trace must stop waiting for judges: after `max_wait`, or when memory is scarce or the
    /// process stops.
    pub async fn wait_for_judges(&self, max_wait: Duration) {
        let hurry = self.hurry.notified();
        tokio::pin!(hurry);
        // Registers before the flags are read, so that no notification is missed.
        hurry.as_mut().enable();
        if self.hurried.load(Ordering::Relaxed) || self.stopping.load(Ordering::Relaxed) {
            return;
        }
        tokio::select! {
            () = hurry => {}
            () = tokio::time::sleep(max_wait) => {}
        }
    }
}
