//! The stages joined: requests in from `receive`, traces through `assemble` and the evaluator, parcels out
//! to `export`.
//!
//! | file | stage |
//! |---|---|
//! | `ingest` | requests: split, stored, given to shards, forwarded |
//! | `shard` | spans in, closed traces out, ticks |
//! | `schedule` | closed traces: inline, on blocking threads, or after judges have answered |
//! | `evaluate`, `ask_judges` | a closed trace, assessed, judged, encoded |
//! | `deliver` | encoded traces: verdict stored, spans and events exported |
//! | `store` | the journal, or nowhere |
//! | `recover` | what the journal held at start |
//! | `speculate`, `harmful_calls` | what is done with traces that are still open |
//! | `shared`, `budget`, `meter` | what all stages share: memory, self-metrics |
//! | `runtime_config`, `select` | the configuration and the evaluator that it describes |
//! | `service`, `offline`, `error` | the process; a batch of recordings; why neither can start |
//!
//! A trace is owned by the shard that the hash of its id selects. While the exporters' queues are full a
//! shard waits, its inbox fills, and senders are told to come back later: nothing is dropped on the way.

use std::hash::RandomState;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;
use verdict_otlp::request::Interner;

mod ask_judges;
mod budget;
mod deliver;
pub mod error;
mod evaluate;
mod harmful_calls;
mod ingest;
mod meter;
pub mod offline;
mod recover;
mod runtime_config;
mod schedule;
mod select;
pub mod service;
mod shard;
mod shared;
mod speculate;
mod store;

use shard::{Shard, Work};
use shared::Shared;

/// Requests that may wait for one shard. Beyond it senders wait, and new ones are refused.
const INBOX: usize = 256;

/// The running pipeline.
#[derive(Debug)]
struct Pipeline {
    /// Emptied at shutdown, which ends the shards.
    inboxes: RwLock<Vec<mpsc::Sender<Work>>>,
    shared: Arc<Shared>,
    hasher: RandomState,
    envelopes: Interner,
    prefix: String,
    tasks: TaskTracker,
}

impl Pipeline {
    /// Starts one shard a core. `prefix` begins the keys of our attributes.
    fn start(shared: Shared, prefix: &str) -> Arc<Pipeline> {
        tracing::info!(bytes = shared.budget.limit(), "memory budget for buffered spans");
        let shared = Arc::new(shared);
        let tasks = TaskTracker::new();
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        let spawn = |_| {
            let (inbox, work) = mpsc::channel(INBOX);
            tasks.spawn(Shard::new(Arc::clone(&shared)).run(work));
            inbox
        };
        Arc::new(Pipeline {
            inboxes: RwLock::new((0..shards).map(spawn).collect()),
            shared,
            hasher: RandomState::new(),
            envelopes: Interner::default(),
            prefix: prefix.to_owned(),
            tasks,
        })
    }

    /// Closes and exports every open trace, and returns when it is in the exporters' queues.
    async fn flush(&self) {
        let mut waiting = Vec::new();
        for inbox in self.inboxes() {
            let (done, wait) = oneshot::channel();
            if inbox.send(Work::Flush(done)).await.is_ok() {
                waiting.push(wait);
            }
        }
        for wait in waiting {
            // A shard that is gone has flushed on its way out.
            let _ = wait.await;
        }
    }

    /// Ends the shards: what is open is closed with what is known and handed to the exporters;
    /// a durable store keeps it as it is.
    /// Call it after the receivers have stopped. What is not evaluated when half of `within` is over is
    /// exported without verdicts. False if even that took longer.
    async fn shutdown(&self, within: Duration) -> bool {
        self.inboxes.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.tasks.close();
        if self.ended(within / 2).await {
            return true;
        }
        self.shared.hurried.store(true, Ordering::Relaxed);
        self.shared.hurry.notify_waiters();
        self.ended(within / 2).await
    }

    /// After [`Pipeline::shutdown`]: whether every span has been handed to the exporters, waiting
    /// for at most `within`.
    async fn ended(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.tasks.wait()).await.is_ok()
    }

    fn inboxes(&self) -> Vec<mpsc::Sender<Work>> {
        self.inboxes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
