//! Connects the stages: requests from `receive`, traces through `assemble` and the evaluator, parcels to
//! `export`.
//!
//! | file | content |
//! |---|---|
//! | `ingest` | splits and stores requests, passes them to shards, forwards spans |
//! | `shard` | spans in, closed traces out, ticks |
//! | `schedule` | closed traces: inline, on blocking threads, or after judges have answered |
//! | `evaluate`, `ask_judges` | assesses, judges and encodes a closed trace |
//! | `deliver` | stores verdicts, exports spans and events |
//! | `forwarding` | the spans that are exported on arrival, by mode |
//! | `store`, `kafka_store` | the journal, no storage, or records of Kafka |
//! | `recover` | recovery from the journal at start |
//! | `speculate`, `harmful_calls` | questions and reports about open traces |
//! | `paths`, `queried_runs` | decisions on calls that are about to be made |
//! | `page`, `list_open` | open traces and the state of the process for the live page |
//! | `shared`, `budget` | state of all stages, memory |
//! | `meter`, `agent_metrics` | self-metrics of the pipeline, and of agents, models, tools and signatures |
//! | `runtime_config`, `select` | the configuration and the evaluator that it describes |
//! | `components` | the judges and exporters of a configuration |
//! | `service`, `offline`, `error` | the process; a batch of recordings; why neither can start |
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

use runtime_config::shards;
use shard::{Shard, ShardMessage};
use shared::Shared;

/// Requests that may wait for one shard. Above it requests with traces of this shard are refused.
const INBOX: usize = 256;

/// The running pipeline.
#[derive(Debug)]
struct Pipeline {
    /// Emptied at shutdown, which ends the shards.
    inboxes: RwLock<Vec<mpsc::Sender<ShardMessage>>>,
    shared: Arc<Shared>,
    hasher: RandomState,
    envelopes: Interner,
    prefix: String,
    tasks: TaskTracker,
}

impl Pipeline {
    /// Starts one shard per core. Attributes whose keys begin with `prefix` are verdicts.
    fn start(shared: Shared, prefix: &str) -> Arc<Pipeline> {
        tracing::info!(bytes = shared.budget.limit(), "memory budget for buffered spans");
        let shared = Arc::new(shared);
        let tasks = TaskTracker::new();
        let spawn = |_| {
            let (inbox, work) = mpsc::channel(INBOX);
            tasks.spawn(Shard::new(Arc::clone(&shared)).run(work));
            inbox
        };
        Arc::new(Pipeline {
            inboxes: RwLock::new((0..shards()).map(spawn).collect()),
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

    /// Sends work to every shard, and returns when all have done it. A shard whose inbox is full keeps no other from
    /// its work.
    fn ask_shards(&self, work: fn(oneshot::Sender<()>) -> ShardMessage) -> impl Future<Output = ()> + use<> {
        let ask = move |inbox: mpsc::Sender<ShardMessage>| async move {
            let (done, wait) = oneshot::channel();
            if inbox.send(work(done)).await.is_ok() {
                // A shard that has ended has flushed before.
                let _ = wait.await;
            }
        };
        let all = join_all(self.inboxes().into_iter().map(ask));
        async move { drop(all.await) }
    }

    /// Ends the shards: open traces are closed and exported, or stay in a durable store. Must be called
    /// after the receivers have stopped. Traces that are not evaluated after half of `within` are exported
    /// without verdicts. False if even that takes longer.
    async fn shutdown(&self, within: Duration) -> bool {
        self.inboxes.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.tasks.close();
        if self.ended(within / 2).await {
            return true;
        }
        self.shared.skip_evaluation.store(true, Ordering::Relaxed);
        self.shared.stop_waiting.notify_waiters();
        self.ended(within / 2).await
    }

    /// After [`Pipeline::shutdown`]: whether every span is in the exporters' queues within this time.
    async fn ended(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.tasks.wait()).await.is_ok()
    }

    /// The parts that have failed for good; the others still work.
    fn failures(&self) -> Vec<&'static str> {
        let shard = self.shared.shard_failed.load(Ordering::Relaxed).then_some("a shard has failed");
        let journal = self.shared.store.has_failed().then_some("the journal has failed");
        shard.into_iter().chain(journal).collect()
    }

    fn inboxes(&self) -> Vec<mpsc::Sender<ShardMessage>> {
        self.inboxes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
