//! The stages joined: requests in from `receive`, traces through `assemble` to `annotate`, parcels
//! out to `export`.
//!
//! Requests are taken apart on the task that received them; spans then go to the shard that owns
//! their trace, by a hash of the trace id. A request is acknowledged once its shards have it in
//! their bounded inboxes, and with a journal not before it has been written (`durable`). A shard waits while the exporters' queues are full, its inbox fills, and
//! senders are told to come back later: pressure travels backwards and nothing is dropped on the way.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::assemble;
use crate::config::{Config, Mode, Select, Verdict};
use crate::export::{Exporters, Parcel};
use crate::receive::{Accepted, Answer, Intake, Offer, Refused};
use crate::telemetry::Telemetry;
use verdict_journal::{Attempts, Journal, Seq};
use verdict_judge::Judges;
use verdict_otlp::Piece;
use verdict_otlp::Signal;
use verdict_otlp::logs;
use verdict_otlp::logs::GenAiRecord;
use verdict_otlp::metrics;
use verdict_otlp::request;
use verdict_otlp::request::{Group, Interner};
use verdict_otlp::trace::TraceId;
use verdict_otlp::write;
use verdict_otlp::write::Item;

mod alarm;
mod asking;
mod conclude;
mod durable;
mod early;
mod live;
mod memory;
mod meter;
pub mod offline;
mod select;
mod tasks;
pub mod service;
mod shard;
mod underway;

use asking::Panel;
use live::{InForce, Live};
use memory::{Budget, SPAN_OVERHEAD};
use shard::{Shard, Shared, Work};

/// Requests that may wait for one shard. Beyond it senders wait, and new ones are refused.
const INBOX: usize = 256;
/// When a refused sender should come back: long enough for a queue to drain, short enough that
/// its own buffer does not overflow.
const RETRY: Duration = Duration::from_secs(1);
/// Largest request made of spans that pass straight through.
const MAX_REQUEST: usize = 4 << 20;

/// Room for one piece of work in a shard's inbox.
type Place = mpsc::OwnedPermit<Work>;

/// The running pipeline.
#[derive(Debug)]
pub struct Pipeline {
    /// Emptied at shutdown, which ends the shards.
    inboxes: RwLock<Vec<mpsc::Sender<Work>>>,
    shared: Arc<Shared>,
    hasher: RandomState,
    envelopes: Interner,
    prefix: String,
    tasks: TaskTracker,
}

impl Pipeline {
    /// Starts one shard a core.
    ///
    /// # Errors
    /// The user's additions to the map of conventions do not fit together; says where.
    fn start(
        config: &Config,
        budget: Arc<Budget>,
        telemetry: Arc<Telemetry>,
        exporters: Arc<Exporters>,
        journal: Option<(Arc<Journal>, Arc<Attempts>)>,
        judges: Option<Judges>,
    ) -> Result<Arc<Pipeline>, String> {
        let verdict = &config.verdict;
        let shadow = verdict.mode == Mode::Shadow;
        let live = InForce::new(Live::new(verdict, panel(judges))?);
        tracing::info!(bytes = budget.limit(), "memory budget for buffered spans");
        let meter = meter::Meter::new(telemetry);
        let shared = Arc::new(Shared {
            live,
            exporters,
            meter,
            budget,
            shadow,
            hurried: AtomicBool::new(false),
            hurry: Notify::new(),
            leaving: AtomicBool::new(false),
            attempts: journal.as_ref().map(|(_, attempts)| Arc::clone(attempts)).unwrap_or_default(),
            journal: journal.map(|(journal, _)| journal),
        });
        let tasks = TaskTracker::new();
        let inboxes = (0..shards()).map(|_| spawn(&tasks, &shared)).collect();
        Ok(Arc::new(Pipeline {
            inboxes: RwLock::new(inboxes),
            shared,
            hasher: RandomState::new(),
            envelopes: Interner::default(),
            prefix: verdict.evaluation.prefix.clone(),
            tasks,
        }))
    }

    /// Traces that close from now on are judged by `verdict` and `judges`, and those that open close by it.
    /// Its mode and prefix must be those that the pipeline was started with.
    ///
    /// # Errors
    /// The user's additions to the map of conventions do not fit together; nothing changes then.
    pub fn take(&self, verdict: &Verdict, judges: Option<Judges>) -> Result<(), String> {
        self.shared.live.set(Live::new(verdict, panel(judges))?);
        Ok(())
    }

    /// Closes and exports every open trace, and returns when it is in the exporters' queues.
    pub async fn flush(&self) {
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
    /// with a journal it is left there as it is.
    /// Call it after the receivers have stopped. What is not judged when half of `within` is over
    /// goes on unjudged. False if even that took longer.
    pub async fn shutdown(&self, within: Duration) -> bool {
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
    pub async fn ended(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.tasks.wait()).await.is_ok()
    }

    fn inboxes(&self) -> Vec<mpsc::Sender<Work>> {
        self.inboxes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn traces(&self, body: Bytes) -> Result<Accepted, Refused> {
        let split = request::split(&body, &self.prefix, &self.envelopes)
            .map_err(|error| Refused::Malformed(error.to_string()))?;
        let accepted = Accepted { rejected: split.rejected.count, message: split.rejected.to_string() };
        let mut groups = split.groups;
        let good = count(&groups);
        self.shared.meter.received(good, accepted.rejected);
        let live = self.shared.live.get();
        let mut passed = Vec::new();
        if let Some(select) = &live.select {
            passed = pass(&mut groups, select);
            self.shared.meter.telemetry().traces.passed_through.inc_by(count(&passed));
        }
        let taken = match &self.shared.journal {
            Some(journal) => self.keep_traces(journal, body, accepted.rejected == 0, groups, passed).await,
            None => self.take_traces(body, accepted.rejected == 0, groups, passed).await,
        };
        self.shared.meter.taken(good, &taken);
        taken.map(|()| accepted)
    }

    /// Takes a request's spans. `whole` is the request, where nothing of it was rejected.
    async fn take_traces(
        &self,
        body: Bytes,
        whole: bool,
        groups: Vec<Group>,
        passed: Vec<Group>,
    ) -> Result<(), Refused> {
        if !passed.is_empty() {
            self.forward_groups(&passed).await;
        }
        if self.shared.shadow {
            match whole && self.shared.live.get().select.is_none() {
                true => self.forward(Signal::Traces, body, count(&groups)).await,
                false => self.forward_groups(&groups).await,
            }
        }
        let places = self.reserve(groups, |group| group.trace).await?;
        self.put(places, |groups| self.spans(groups, None));
        Ok(())
    }

    async fn logs(&self, body: Bytes) -> Result<Accepted, Refused> {
        let found = logs::find(&body).map_err(|error| Refused::Malformed(error.to_string()))?;
        let used = found.gen_ai.len() as u64;
        let records = found.records;
        let delivers = self.shared.exporters.delivers(Signal::Logs);
        match &self.shared.journal {
            Some(journal) => self.keep_logs(journal, body, found, delivers).await?,
            None => {
                let places = self.reserve(found.gen_ai, |record| record.trace).await?;
                self.put(places, |records| self.records(records, None));
                if delivers {
                    self.forward(Signal::Logs, body, records).await;
                }
            }
        }
        if delivers {
            return Ok(Accepted::default());
        }
        // What they say of a span is judged, and that is all that becomes of them.
        let rejected = records.saturating_sub(used);
        let message = match rejected {
            0 => String::new(),
            _ => format!("no exporter takes logs; {used} records about GenAI were used, the others were not"),
        };
        Ok(Accepted { rejected, message })
    }

    async fn metrics(&self, body: Bytes) -> Result<Accepted, Refused> {
        if !self.shared.exporters.delivers(Signal::Metrics) {
            return Err(Refused::Unsupported(Signal::Metrics));
        }
        let points = metrics::count(&body).map_err(|error| Refused::Malformed(error.to_string()))?;
        if let Some(journal) = &self.shared.journal {
            let piece = Piece { bytes: body, items: points };
            return self.keep_passing(journal, Signal::Metrics, piece).await.map(|()| Accepted::default());
        }
        self.forward(Signal::Metrics, body, points).await;
        Ok(Accepted::default())
    }

    fn spans(&self, groups: Vec<Group>, kept: Option<Seq>) -> Work {
        let held = self.shared.budget.hold(groups.iter().map(held).sum());
        Work::Spans(groups, held, kept)
    }

    fn records(&self, records: Vec<GenAiRecord>, kept: Option<Seq>) -> Work {
        let held = self.shared.budget.hold(records.iter().map(|record| record.bytes.len()).sum());
        Work::Logs(records, held, kept)
    }

    /// Gives each shard its own, and takes room for it everywhere, so that a request is taken as
    /// a whole or not at all. Most requests hold one trace, or few.
    async fn reserve<T>(
        &self,
        items: Vec<T>,
        trace: impl Fn(&T) -> TraceId,
    ) -> Result<Vec<(Place, Vec<T>)>, Refused> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let inboxes = self.inboxes();
        if inboxes.is_empty() {
            return Err(Refused::ShuttingDown);
        }
        let mut by_shard: Vec<Vec<T>> = (0..inboxes.len()).map(|_| Vec::new()).collect();
        for item in items {
            let shard = self.hasher.hash_one(trace(&item)) as usize % inboxes.len();
            by_shard[shard].push(item);
        }
        let mut places = Vec::with_capacity(inboxes.len());
        for (inbox, items) in inboxes.into_iter().zip(by_shard).filter(|(_, items)| !items.is_empty()) {
            let place = inbox.reserve_owned().await.map_err(|_| Refused::ShuttingDown)?;
            places.push((place, items));
        }
        Ok(places)
    }

    fn put<T>(&self, places: Vec<(Place, Vec<T>)>, work: impl Fn(Vec<T>) -> Work) {
        for (place, items) in places {
            place.send(work(items));
        }
    }

    async fn forward(&self, signal: Signal, body: Bytes, items: u64) {
        if items > 0 {
            let pieces = vec![Piece { bytes: body, items }];
            self.shared.exporters.send(Parcel { signal, pieces, trace: None }).await;
        }
    }

    /// Sends spans on as they are.
    async fn forward_groups(&self, groups: &[Group]) {
        let pieces = write::requests(&items(groups), MAX_REQUEST);
        if !pieces.is_empty() {
            self.shared.exporters.send(Parcel { signal: Signal::Traces, pieces, trace: None }).await;
        }
    }
}

impl Intake for Pipeline {
    fn pressure(&self) -> Option<Duration> {
        let inboxes = self.inboxes.read().unwrap_or_else(PoisonError::into_inner);
        let full = inboxes.iter().any(|inbox| inbox.capacity() == 0);
        let unwritable = self.shared.journal.as_ref().is_some_and(|journal| journal.pressure());
        let queued = self.shared.exporters.required_bytes();
        (full || unwritable || self.shared.budget.is_full(queued))
            .then_some(RETRY)
            .or_else(|| self.shared.exporters.pressure())
    }

    fn offer(&self, offer: Offer) -> Answer<'_> {
        Box::pin(async move {
            match offer.signal {
                Signal::Traces => self.traces(offer.body).await,
                Signal::Logs => self.logs(offer.body).await,
                Signal::Metrics => self.metrics(offer.body).await,
            }
        })
    }
}

fn shards() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn spawn(tasks: &TaskTracker, shared: &Arc<Shared>) -> mpsc::Sender<Work> {
    let (inbox, work) = mpsc::channel(INBOX);
    tasks.spawn(Shard::new(Arc::clone(shared)).run(work));
    inbox
}

fn panel(judges: Option<Judges>) -> Option<Arc<dyn Panel>> {
    judges.map(|judges| Arc::new(judges) as Arc<dyn Panel>)
}

/// Spans as they are, to be written.
fn items<'a>(groups: impl IntoIterator<Item = &'a Group>) -> Vec<Item<'a>> {
    let spans = groups.into_iter().flat_map(|group| &group.spans);
    spans.map(|span| Item { envelope: &span.envelope, bytes: &span.bytes, appended: &[] }).collect()
}

/// What a group is charged.
fn held(group: &Group) -> usize {
    group.size + assemble::envelope_bytes(&group.spans) + group.spans.len() * SPAN_OVERHEAD
}

fn count(groups: &[Group]) -> u64 {
    groups.iter().map(|group| group.spans.len() as u64).sum()
}

/// Takes the spans that are not selected out of `groups`.
fn pass(groups: &mut Vec<Group>, wanted: &Select) -> Vec<Group> {
    let mut passed = Vec::new();
    for group in groups.iter_mut() {
        let (keep, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut group.spans).into_iter().partition(|span| select::selects(wanted, span));
        group.spans = keep;
        if !rest.is_empty() {
            passed.push(Group {
                trace: group.trace,
                size: rest.iter().map(|s| s.bytes.len()).sum(),
                spans: rest,
            });
        }
    }
    groups.retain(|group| !group.spans.is_empty());
    passed
}
