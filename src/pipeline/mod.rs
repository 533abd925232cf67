//! Connects the stages: requests from `receive`, traces through `assemble` and the evaluator, parcels to
//! `export`.
//!
//! | file | content |
//! |---|---|
//! | `ingest` | splits and stores requests, passes them to shards, forwards spans |
//! | `shard` | the task that owns a part of the open traces: spans in, closed traces out |
//! | `schedule` | closed traces: inline, on blocking threads, or after judges have answered |
//! | `evaluate`, `ask_judges` | assesses, judges and encodes a closed trace |
//! | `deliver` | stores verdicts, exports spans and events |
//! | `forwarding` | the spans that are exported on arrival, by mode |
//! | `store`, `kafka_store` | the journal, no storage, or records of Kafka |
//! | `recover` | recovery from the journal at start |
//! | `speculate`, `harmful_calls` | previews of open traces for judges; alarms of open traces |
//! | `paths`, `queried_runs` | decisions on calls that are about to be made |
//! | `page`, `list_open` | open traces and the state of the process for the live page |
//! | `shared`, `budget` | state of all stages, memory |
//! | `meter`, `agent_metrics` | self-metrics of the pipeline, and of agents, models, tools and signatures |
//! | `runtime_config`, `select` | the configuration and the evaluator that it describes |
//! | `components` | the judges and exporters of a configuration |
//! | `service`, `offline`, `error` | the process; the evaluation of recordings; the errors of both |
//!
//! The hash of a trace's id selects the shard that owns it. While the exporters' queues are full, a shard
//! waits, its inbox fills, and the senders of its traces are asked to retry, so that no span is dropped.

use std::hash::RandomState;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;
use verdict_otlp::request::Interner;

mod agent_metrics;
mod ask_judges;
mod budget;
mod components;
mod deliver;
mod forwarding;
pub mod error;
mod evaluate;
mod harmful_calls;
mod ingest;
#[cfg(feature = "kafka")]
mod kafka_store;
mod list_open;
mod meter;
mod page;
pub mod offline;
mod paths;
mod queried_runs;
mod recover;
mod runtime_config;
mod schedule;
mod select;
pub mod service;
mod shard;
mod shared;
mod speculate;
mod store;

use runtime_config::shard_count;
use shard::{Shard, ShardMessage};
use shared::Shared;

/// Capacity of the inbox of a shard. While it is full, requests with traces of this shard are refused.
const INBOX_CAPACITY: usize = 256;

/// The running pipeline.
#[derive(Debug)]
struct Pipeline {
    /// Emptied at shutdown, which ends the shards.
    inboxes: RwLock<Vec<mpsc::Sender<ShardMessage>>>,
    shared: Arc<Shared>,
    /// Assigns traces to shards.
    hasher: RandomState,
    envelopes: Interner,
    /// Attributes whose keys begin with it are verdicts.
    prefix: String,
    tasks: TaskTracker,
}

impl Pipeline {
    /// Starts one shard per core. Attributes whose keys begin with `prefix` are verdicts.
    fn start(shared: Shared, prefix: &str) -> Arc<Pipeline> {
        tracing::info!(bytes = shared.budget.limit(), "memory budget for buffered spans");
        let shared = Arc::new(shared);
        let tasks = TaskTracker::new();
        let spawn_shard = |_| {
            let (inbox, messages) = mpsc::channel(INBOX_CAPACITY);
            tasks.spawn(Shard::new(Arc::clone(&shared)).run(messages));
            inbox
        };
        Arc::new(Pipeline {
            inboxes: RwLock::new((0..shard_count()).map(spawn_shard).collect()),
            shared,
            hasher: RandomState::new(),
            envelopes: Interner::default(),
            prefix: prefix.to_owned(),
            tasks,
        })
    }

    /// Closes and exports every open trace, and returns when it is in the exporters' queues.
    async fn flush(&self) {
        self.ask_shards(ShardMessage::Flush).await;
    }

    /// Sends a message to every shard, and completes when all have processed it. A shard whose inbox is full does not
    /// delay the others.
    fn ask_shards(
        &self,
        message: fn(oneshot::Sender<()>) -> ShardMessage,
    ) -> impl Future<Output = ()> + use<> {
        let ask = move |inbox: mpsc::Sender<ShardMessage>| async move {
            let (sender, done) = oneshot::channel();
            if inbox.send(message(sender)).await.is_ok() {
                // An error means that the shard has ended, which closes and exports its traces.
                let _ = done.await;
            }
        };
        let all = join_all(self.inboxes().into_iter().map(ask));
        async move { drop(all.await) }
    }

    /// Ends the shards: open traces are closed and exported, or stay in the journal. Must be called after the
    /// receivers have stopped. Traces that are not evaluated after half of `within` are exported without verdicts.
    /// Returns `false` if the shards have not ended within `within`.
    async fn shutdown(&self, within: Duration) -> bool {
        self.inboxes.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.tasks.close();
        if self.shards_end(within / 2).await {
            return true;
        }
        self.shared.skip_evaluation.store(true, Ordering::Relaxed);
        self.shared.stop_waiting.notify_waiters();
        self.shards_end(within / 2).await
    }

    /// Whether all shards end within this time, after which every span is in the exporters' queues.
    async fn shards_end(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.tasks.wait()).await.is_ok()
    }

    /// The parts that have failed permanently. The others still work.
    fn failures(&self) -> Vec<&'static str> {
        let shard = self.shared.shard_failed.load(Ordering::Relaxed).then_some("a shard has failed");
        let journal = self.shared.store.has_failed().then_some("the journal has failed");
        shard.into_iter().chain(journal).collect()
    }

    fn inboxes(&self) -> Vec<mpsc::Sender<ShardMessage>> {
        self.inboxes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
