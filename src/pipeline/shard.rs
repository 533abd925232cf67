//! One shard: the task that owns a part of the open traces.
//!
//! In: messages with spans and log records, and the time. Out: closed traces, which the schedule evaluates on the
//! shard's task, on a blocking thread, or after judges have answered.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::sleep_until;
use verdict_journal::{RetainReason, Seq};
use verdict_otlp::logs::GenAiRecord;
use verdict_otlp::request::Group;
use verdict_otlp::trace::{AttachedLog, CloseReason, ClosedTrace, PriorVerdict, Span, TraceId};

use super::deliver::forward_events;
use super::evaluate::StoredTrace;
use super::harmful_calls::HarmfulCalls;
use super::list_open::list_open;
use super::queried_runs::{Snapshot, TraceState};
use super::runtime_config::RuntimeConfig;
use super::schedule::Schedule;
use super::select;
use super::shared::Shared;
use super::speculate::Speculation;
use crate::assemble::{Assembler, SPAN_OVERHEAD};
use crate::page::server::OpenTrace;
use crate::reservation::Reservation;

/// Maximum number of messages taken from the inbox before due traces are closed.
const MAX_BURST: usize = 64;
/// Number of traces evaluated before other tasks of the worker thread are polled. Thousands can close at once, for
/// example those that were open before a restart. Without yielding, the exporters would not process
/// responses until all of them were evaluated, since there are as many shards as worker threads.
const YIELD_AFTER: usize = 16;
/// Bytes of evaluated traces after which the shared gauges are updated while further traces are evaluated. They are not
/// updated for each trace, since all shards write to them.
const GAUGE_UPDATE_BYTES: usize = 64 << 10;
/// The longest time between two checks of the memory budget, which traces of other shards can exhaust.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// Bytes of idle traces that are compressed before the next messages are processed. It takes a few milliseconds.
const COMPRESSED_PER_TURN: usize = 1 << 20;
/// The interval at which unused records are released. It is not shorter, since all records are examined each time.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

/// The number of traces, the number of their spans, and their bytes.
type Sizes = (usize, usize, usize);

/// A message to a shard.
#[derive(Debug)]
pub(super) enum ShardMessage {
    /// Spans of traces of this shard, and the stored record that contains them.
    Spans(Vec<Group>, Reservation, Option<Seq>),
    /// Log records of traces of this shard, and the stored record that contains them.
    Logs(Vec<GenAiRecord>, Reservation, Option<Seq>),
    /// The prior verdicts of traces that this process did not close, oldest first.
    Closed(Vec<(TraceId, PriorVerdict)>),
    /// Send the state of a trace.
    State(TraceId, oneshot::Sender<TraceState>),
    /// Send a trace if it is open. The permit returns with it, or is released.
    Snapshot(TraceId, OwnedSemaphorePermit, oneshot::Sender<Option<Snapshot>>),
    /// Send the open traces with the latest spans.
    List(oneshot::Sender<Vec<OpenTrace>>),
    /// Drop the open traces whose partitions were revoked, and send when that is done.
    DropRevoked(oneshot::Sender<()>),
    /// Close and export all traces, and send when that is done.
    Flush(oneshot::Sender<()>),
}

/// The state of a shard's task.
pub(super) struct Shard {
    shared: Arc<Shared>,
    assembler: Assembler,
    /// The configuration with which traces open.
    config: Arc<RuntimeConfig>,
    schedule: Schedule,
    speculation: Speculation,
    harmful_calls: HarmfulCalls,
    /// Closed traces that are evaluated next.
    closed: VecDeque<ClosedTrace>,
    /// The sizes of the traces in `closed`, which remain charged as open traces.
    closed_sizes: Sizes,
    /// Stored records that contain spans or logs of open traces.
    records: HashMap<TraceId, Vec<Seq>>,
    /// When unused records were last released.
    last_release: Instant,
    /// The sizes last reported to the shared gauges.
    reported_sizes: Sizes,
}

impl Shard {
    pub(super) fn new(shared: Arc<Shared>) -> Shard {
        let config = shared.config.load_full();
        Shard {
            assembler: Assembler::new(config.close.clone()).with_compression(),
            schedule: Schedule::new(Arc::clone(&shared)),
            shared,
            config,
            speculation: Speculation::default(),
            harmful_calls: HarmfulCalls::default(),
            closed: VecDeque::new(),
            closed_sizes: (0, 0, 0),
            records: HashMap::new(),
            last_release: Instant::now(),
            reported_sizes: (0, 0, 0),
        }
    }

    /// Runs until every sender is dropped. Then open traces are closed and exported, or stay in the
    /// journal. After a panic the same is done at once, since requests in the inbox and spans of open traces
    /// were acknowledged.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<ShardMessage>) {
        let mut burst = Vec::with_capacity(MAX_BURST);
        if AssertUnwindSafe(self.serve(&mut inbox, &mut burst)).catch_unwind().await.is_ok() {
            return self.end().await;
        }
        tracing::error!(
            "the task of a shard panicked; its traces are closed and the process ends. This is a bug"
        );
        self.shared.shard_failed.store(true, Ordering::Relaxed);
        inbox.close();
        let remaining_work = async {
            while let Some(message) = burst.pop() {
                self.process(message).await;
            }
            while let Some(message) = inbox.recv().await {
                self.process(message).await;
            }
            self.end().await;
        };
        if AssertUnwindSafe(remaining_work).catch_unwind().await.is_err() {
            let spans = self.reported_sizes.1;
            tracing::error!(
                spans,
                "closing the traces of the shard panicked, too; spans that are in no journal are lost"
            );
        }
    }

    /// Runs until every sender is dropped. `burst` contains the messages taken from the inbox, the next one last.
    async fn serve(&mut self, inbox: &mut mpsc::Receiver<ShardMessage>, burst: &mut Vec<ShardMessage>) {
        let timer = sleep_until((Instant::now() + MAX_SLEEP).into());
        tokio::pin!(timer);
        loop {
            let latest = Instant::now() + MAX_SLEEP;
            let next_times = [
                self.assembler.next_deadline(),
                self.speculation.next_preview(&self.config),
                self.harmful_calls.next_check(),
            ];
            let due = next_times.into_iter().flatten().fold(latest, Instant::min);
            if timer.deadline().into_std() != due {
                timer.as_mut().reset(due.into());
            }
            tokio::select! {
                received = inbox.recv_many(burst, MAX_BURST) => {
                    if received == 0 {
                        return;
                    }
                    self.refresh_config();
                    burst.reverse();
                    while let Some(message) = burst.pop() {
                        self.process(message).await;
                    }
                }
                () = &mut timer => {}
                Some((trace, verdict)) = self.schedule.next_finished() => self.on_evaluated(trace, verdict).await,
            }
            self.close_due().await;
            // This is necessary without new spans, too: a preview must not ask a judge that a reload has removed.
            self.refresh_config();
            let now = Instant::now();
            self.speculation.preview(&mut self.assembler, &self.config, &self.shared, now);
            let alarm_events = self.harmful_calls.check(&self.assembler, &self.config, &self.shared, now);
            for events in alarm_events {
                forward_events(&self.shared, events).await;
            }
            self.schedule.flush_batch().await;
            self.update_gauges();
            self.close_early().await;
            self.assembler.compress_idle(COMPRESSED_PER_TURN, now);
            if self.last_release.elapsed() >= RELEASE_INTERVAL {
                self.release_unused();
            }
        }
    }

    /// Ends the shard: open traces stay in the journal, or are closed and exported.
    async fn end(&mut self) {
        self.drop_revoked();
        if self.shared.store.keeps_unfinished_traces() {
            self.shared.leave_unfinished.store(true, Ordering::Relaxed);
            self.shared.stop_waiting.notify_waiters();
            self.drain().await;
        } else {
            self.flush().await;
        }
    }

    /// Loads the current configuration if a reload has replaced it.
    fn refresh_config(&mut self) {
        let config = self.shared.config.load();
        if !Arc::ptr_eq(&config, &self.config) {
            self.assembler.set_close(config.close.clone());
            self.config = Arc::clone(&config);
        }
    }

    async fn process(&mut self, message: ShardMessage) {
        let now = Instant::now();
        match message {
            ShardMessage::Spans(groups, _reservation, record) => {
                for group in groups {
                    self.note_record(group.trace, record);
                    self.forget_if_received_again(group.trace, record);
                    let service = |span: &Span| select::service(&span.envelope).map(str::to_owned);
                    let tally = self.assembler.add(group.trace, group.spans, group.size, service, now);
                    self.shared.meter.count_tally(tally);
                    self.harmful_calls.note_spans(group.trace, &self.config);
                    // A trace that closes now is attributed to the records up to this one. Without records the
                    // whole request is processed first, so that a panic in evaluation cannot lose the other groups.
                    if record.is_some() {
                        self.close_due().await;
                    }
                }
            }
            ShardMessage::Logs(records, _reservation, record) => {
                for GenAiRecord { trace, span, bytes } in records {
                    self.note_record(trace, record);
                    self.forget_if_received_again(trace, record);
                    self.assembler.attach(trace, AttachedLog { span, record: bytes }, now);
                    self.harmful_calls.note_spans(trace, &self.config);
                }
            }
            ShardMessage::Closed(verdicts) => {
                verdicts.into_iter().for_each(|(trace, verdict)| self.assembler.remember(trace, verdict))
            }
            // The receivers of the replies may have been dropped after a timeout.
            ShardMessage::State(trace, reply) => drop(reply.send(self.state_of(trace))),
            ShardMessage::Snapshot(_, _, reply) if reply.is_closed() => {}
            ShardMessage::Snapshot(trace, permit, reply) => {
                let sizes = self.assembler.counts_of(trace);
                let snapshot = self.assembler.snapshot(trace).zip(sizes);
                drop(reply.send(snapshot.map(|(trace, sizes)| Snapshot { trace, sizes, permit })));
            }
            ShardMessage::List(reply) => drop(reply.send(list_open(&self.assembler, now))),
            ShardMessage::DropRevoked(done) => {
                self.drop_revoked();
                let _ = done.send(());
            }
            ShardMessage::Flush(done) => {
                self.flush().await;
                // The receiver may be dropped; the traces are exported in any case.
                let _ = done.send(());
            }
        }
    }

    fn state_of(&self, trace: TraceId) -> TraceState {
        match self.assembler.counts_of(trace) {
            Some(sizes) => TraceState::Open(sizes),
            None if self.assembler.remembered(trace).is_some() => TraceState::Closed,
            None => TraceState::Absent,
        }
    }

    async fn close_due(&mut self) {
        let closed = self.assembler.poll(Instant::now());
        self.on_closed(closed).await;
    }

    /// Closes large idle traces early if memory is scarce.
    async fn close_early(&mut self) {
        if !self.shared.budget.is_scarce() {
            return;
        }
        self.shared.stop_waiting.notify_waiters();
        let excess = self.shared.budget.excess(charged_bytes(self.reported_sizes));
        let closed = self.assembler.close_early(excess, Instant::now());
        self.on_closed(closed).await;
        self.schedule.flush_batch().await;
        self.update_gauges();
    }

    async fn flush(&mut self) {
        self.close_due().await;
        let closed = self.assembler.close_all(CloseReason::Shutdown);
        self.on_closed(closed).await;
        self.drain().await;
        self.update_gauges();
    }

    /// Waits until every closed trace is in the exporters' queues.
    async fn drain(&mut self) {
        self.schedule.flush_batch().await;
        while let Some((trace, verdict)) = self.schedule.next_finished().await {
            self.on_evaluated(trace, verdict).await;
            self.schedule.flush_batch().await;
        }
        self.release_unused();
    }

    /// Adds a record that contains spans or logs of a trace.
    fn note_record(&mut self, trace: TraceId, record: Option<Seq>) {
        if let Some(seq) = record {
            let records = self.records.entry(trace).or_default();
            if records.last() != Some(&seq) {
                records.push(seq);
            }
        }
    }

    /// Forgets the verdict of a trace that is received again from its first record on, so that it opens again.
    fn forget_if_received_again(&mut self, trace: TraceId, record: Option<Seq>) {
        if let Some(seq) = record
            && self.assembler.remembered(trace).is_some()
            && !self.shared.store.is_late(seq, trace)
        {
            self.assembler.forget(trace);
        }
    }

    /// Drops the open traces whose partitions were revoked. Traces that are being evaluated are not exported once their
    /// records have lapsed.
    fn drop_revoked(&mut self) {
        let store = &self.shared.store;
        let is_revoked =
            |seqs: &[Seq]| store.revocation_token(seqs).is_some_and(|token| token.is_cancelled());
        for (trace, _) in self.records.extract_if(|_, seqs| is_revoked(seqs)) {
            self.assembler.discard(trace);
            self.harmful_calls.take_alarms(trace, &self.shared.meter);
            self.speculation.take_usage(trace);
        }
        self.update_gauges();
    }

    /// Releases records of traces that are neither open nor in flight: logs whose spans never arrived, or
    /// were exported before.
    fn release_unused(&mut self) {
        self.last_release = Instant::now();
        if self.records.len() <= self.assembler.traces() {
            return;
        }
        let (assembler, schedule) = (&self.assembler, &self.schedule);
        let unused =
            self.records.extract_if(|trace, _| !assembler.is_open(*trace) && !schedule.is_in_flight(*trace));
        let releases = unused
            .flat_map(|(trace, seqs)| seqs.into_iter().map(move |seq| (seq, RetainReason::Trace(trace))));
        self.shared.store.release(releases.collect());
    }

    /// Evaluates closed traces, with the records that contain parts of them.
    async fn on_closed(&mut self, traces: Vec<ClosedTrace>) {
        for closed in traces {
            let (traces, spans, bytes) = self.closed_sizes;
            self.closed_sizes = (traces + 1, spans + closed.spans.len(), bytes + closed.bytes);
            self.closed.push_back(closed);
        }
        let mut evaluated_count = 0;
        while let Some(closed) = self.closed.pop_front() {
            let (traces, spans, bytes) = self.closed_sizes;
            self.closed_sizes = (traces - 1, spans - closed.spans.len(), bytes - closed.bytes);
            // Without this, all of them would be charged twice once they are in the exporters' queues.
            if self.reported_sizes.2.saturating_sub(self.buffered().2) >= GAUGE_UPDATE_BYTES {
                self.update_gauges();
            }
            evaluated_count += 1;
            if evaluated_count % YIELD_AFTER == 0 {
                tokio::task::yield_now().await;
            }
            let records = self.records.remove(&closed.trace).unwrap_or_default();
            self.shared.store.note_closed(closed.trace, &records);
            let alarms = self.harmful_calls.take_alarms(closed.trace, &self.shared.meter);
            self.evaluate(StoredTrace { closed, records, alarms }).await;
        }
    }

    /// Evaluates a closed trace inline, on a blocking thread, or with judges; defers late spans of a trace in flight.
    async fn evaluate(&mut self, mut trace: StoredTrace) {
        let id = trace.closed.trace;
        if trace.closed.close_reason == CloseReason::Late {
            if self.schedule.is_in_flight(id) {
                return self.schedule.defer(trace);
            }
            // Other late spans of the trace may have been evaluated since these were deferred.
            trace.closed.prior_verdict = self.assembler.remembered(id).or(trace.closed.prior_verdict);
        }
        let config = self.shared.config.load_full();
        let is_quarantined = self.shared.markers.is_quarantined(id);
        match config.answerer_for(trace.closed.close_reason).filter(|_| !is_quarantined).map(Arc::clone) {
            Some(answerer) => {
                // Without this the trace, which is no longer open, would be charged twice.
                self.update_gauges();
                let spent = self.speculation.take_usage(id);
                self.schedule.evaluate_judged(config, answerer, spent, trace);
            }
            None if trace.is_large() || self.shared.markers.is_suspect(id) => {
                // Without this the trace, which is no longer open, would be charged twice.
                self.update_gauges();
                self.schedule.evaluate_blocking(config, trace);
            }
            None => match self.schedule.evaluate_inline(&config, trace).await {
                Ok(verdict) => self.assembler.remember(id, verdict),
                Err(trace) => {
                    self.update_gauges();
                    self.schedule.evaluate_blocking(config, trace);
                }
            },
        }
    }

    /// Remembers the verdict of a trace that was in flight, and evaluates its late spans.
    async fn on_evaluated(&mut self, trace: TraceId, verdict: Option<PriorVerdict>) {
        if let Some(verdict) = verdict {
            self.assembler.remember(trace, verdict);
        }
        let late = self.schedule.take_late(trace);
        if verdict.is_none() && self.shared.leave_unfinished.load(Ordering::Relaxed) {
            // The late spans are in the store, as the trace.
            return;
        }
        for late in late {
            self.evaluate(late.trace).await;
        }
    }

    /// The sizes of open traces and of the closed ones that are evaluated next.
    fn buffered(&self) -> Sizes {
        let (traces, spans, bytes) = self.closed_sizes;
        (self.assembler.traces() + traces, self.assembler.spans() + spans, self.assembler.bytes() + bytes)
    }

    /// Updates the shared gauges by the change since the last call.
    fn update_gauges(&mut self) {
        let now = self.buffered();
        self.shared.meter.update_buffered(self.reported_sizes, now);
        self.shared.budget.update_open(charged_bytes(self.reported_sizes), charged_bytes(now));
        self.reported_sizes = now;
    }
}

/// The bytes that are charged for open traces of these sizes.
fn charged_bytes((_, spans, bytes): Sizes) -> usize {
    bytes + spans * SPAN_OVERHEAD
}

#[cfg(test)]
mod tests;
