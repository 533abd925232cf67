//! One shard: the task that owns a share of the open traces, judges them as they close, and hands
//! them to the exporters.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::alarm::Alarm;
use super::conclude::{Case, Leaving, Waiting, conclude, is_large, judge_to_keep, weight};
use super::durable;
use super::early::Early;
use super::live::{InForce, Live};
use super::memory::{Budget, Held, SPAN_OVERHEAD};
use super::meter::Meter;
use super::select;
use super::underway::{Behind, Underway};
use crate::assemble::Assembler;
use crate::export::Exporters;
use verdict_journal::{Attempts, Journal, RetainReason, Seq};
use verdict_otlp::logs::GenAiRecord;
use verdict_otlp::request::Group;
use verdict_otlp::trace::{Attached, Span, TraceId};
use verdict_otlp::trace::{CloseReason, ClosedTrace, PriorVerdict};

/// Large traces judged at once by one shard; the next waits. Bounds threads and memory.
const LARGE_AT_ONCE: usize = 2;
/// Groups of judged traces that one shard may have on their way into the journal: enough for one write
/// and one force to the disk to serve many. They count against the memory budget.
const LEAVING: usize = 64;
/// So many judged traces, or so many bytes, make a group: each command to the journal and each answer
/// wakes somebody.
const TOGETHER: usize = 16;
/// As [`TOGETHER`], in bytes.
const TOGETHER_BYTES: usize = 256 << 10;
/// Requests taken from the inbox before closing what is due.
const BURST: usize = 64;
/// What a trace that waits for judges is charged, as a multiple of its spans: it is held as bytes
/// and as what was read of them, whose texts are most of it and stand there once.
const READ_SHARE: usize = 2;
/// How long to sleep at most: memory may get scarce by what other shards hold.
const IDLE: Duration = Duration::from_secs(1);

/// What a shard is given.
#[derive(Debug)]
pub(super) enum Work {
    /// Spans of traces of this shard, and the record in the journal that holds them.
    Spans(Vec<Group>, Held, Option<Seq>),
    /// Log records that belong to such spans.
    Logs(Vec<GenAiRecord>, Held, Option<Seq>),
    /// Traces that closed before the process started, oldest first.
    Closed(Vec<(TraceId, PriorVerdict)>),
    /// Close everything, export it, and say when that is done.
    Flush(oneshot::Sender<()>),
}

/// What all shards share.
#[derive(Debug)]
pub(super) struct Shared {
    pub live: InForce,
    pub exporters: Arc<Exporters>,
    pub meter: Meter,
    pub budget: Arc<Budget>,
    pub shadow: bool,
    /// Shutdown runs out of time: traces go on unjudged, ...
    pub hurried: AtomicBool,
    /// ... and traces that wait for judges wait no longer. Also told when memory is scarce.
    pub hurry: Notify,
    /// The process stops and the journal keeps what waits for judges.
    pub leaving: AtomicBool,
    pub journal: Option<Arc<Journal>>,
    /// With a journal: which traces are being judged, for the next start should the process die of one.
    pub attempts: Arc<Attempts>,
}

impl Shared {
    /// Returns when a trace should wait for judges no longer: after `max_wait`, or when memory is
    /// scarce or the process stops.
    pub async fn time_is_up(&self, max_wait: Duration) {
        let hurry = self.hurry.notified();
        tokio::pin!(hurry);
        // From here on no call is missed.
        hurry.as_mut().enable();
        if self.hurried.load(Ordering::Relaxed) || self.leaving.load(Ordering::Relaxed) {
            return;
        }
        tokio::select! {
            () = hurry => {}
            () = tokio::time::sleep(max_wait) => {}
        }
    }
}

pub(super) struct Shard {
    shared: Arc<Shared>,
    assembler: Assembler,
    /// By whose times traces open.
    live: Arc<Live>,
    /// Closed traces whose verdict is still being made.
    underway: Underway,
    /// What is asked of traces that are open.
    early: Early,
    alarm: Alarm,
    /// Records of the journal that hold open traces.
    kept: HashMap<TraceId, Vec<Seq>>,
    /// Judged traces that go into the journal next, and what they will be charged.
    departing: (Vec<Leaving>, usize),
    /// Judged traces on their way into the journal and to the exporters.
    leaving: JoinSet<()>,
    /// What was last added to the shared gauges.
    gauged: (usize, usize, usize),
}

impl Shard {
    pub fn new(shared: Arc<Shared>) -> Shard {
        let live = shared.live.get();
        let assembler = Assembler::new(live.close.clone());
        Shard {
            shared,
            assembler,
            live,
            underway: Underway::default(),
            early: Early::default(),
            alarm: Alarm::default(),
            kept: HashMap::new(),
            departing: (Vec::new(), 0),
            leaving: JoinSet::new(),
            gauged: (0, 0, 0),
        }
    }

    /// Runs until every sender of work is gone; then closes and exports what is open, or leaves it
    /// in the journal.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Work>) {
        let mut burst = Vec::with_capacity(BURST);
        let timer = sleep_until((Instant::now() + IDLE).into());
        tokio::pin!(timer);
        loop {
            let latest = Instant::now() + IDLE;
            let next = [self.assembler.next_deadline(), self.early.next(&self.live), self.alarm.next()];
            let due = next.into_iter().flatten().fold(latest, Instant::min);
            if timer.deadline().into_std() != due {
                timer.as_mut().reset(due.into());
            }
            tokio::select! {
                got = inbox.recv_many(&mut burst, BURST) => {
                    if got == 0 {
                        break;
                    }
                    self.follow();
                    for work in burst.drain(..) {
                        self.take(work).await;
                    }
                }
                () = &mut timer => {}
                Some((trace, verdict)) = self.underway.next() => self.through(trace, verdict).await,
                Some(done) = self.leaving.join_next() => left(done),
            }
            self.close_due().await;
            self.early.look(&mut self.assembler, &self.live, &self.shared.attempts, Instant::now());
            self.alarm.look(&self.assembler, &self.live, &self.shared, Instant::now());
            self.depart().await;
            self.gauge();
            self.relieve().await;
            self.give_up_unused();
        }
        match self.shared.journal {
            Some(_) => {
                self.shared.leaving.store(true, Ordering::Relaxed);
                self.shared.hurry.notify_waiters();
                self.settle().await;
            }
            None => self.flush().await,
        }
    }

    /// Takes the times that are in force now.
    fn follow(&mut self) {
        let live = self.shared.live.get();
        if !Arc::ptr_eq(&live, &self.live) {
            self.assembler.set_close(live.close.clone());
            self.live = live;
        }
    }

    async fn take(&mut self, work: Work) {
        let now = Instant::now();
        match work {
            Work::Spans(groups, _held, kept) => {
                for group in groups {
                    self.keep(group.trace, kept);
                    let service = |span: &Span| select::service(&span.envelope).map(str::to_owned);
                    let tally = self.assembler.add(group.trace, group.spans, group.size, service, now);
                    self.shared.meter.tally(tally);
                    self.alarm.grown(group.trace, &self.live);
                    // What closes now is of the records up to this one, not of those behind it.
                    if kept.is_some() {
                        self.close_due().await;
                    }
                }
            }
            Work::Logs(records, _held, kept) => {
                for GenAiRecord { trace, span, bytes } in records {
                    self.keep(trace, kept);
                    self.assembler.attach(trace, Attached { span, record: bytes }, now);
                }
            }
            Work::Closed(all) => all.into_iter().for_each(|(t, verdict)| self.assembler.remember(t, verdict)),
            Work::Flush(done) => {
                self.flush().await;
                // Whoever asked may have gone; the work is done either way.
                let _ = done.send(());
            }
        }
    }

    async fn close_due(&mut self) {
        for closing in self.assembler.poll(Instant::now()) {
            self.conclude(closing).await;
        }
    }

    /// Closes large idle traces early where memory is scarce.
    async fn relieve(&mut self) {
        if !self.shared.budget.is_scarce() {
            return;
        }
        self.shared.hurry.notify_waiters();
        let excess = self.shared.budget.excess(charge(self.gauged));
        for closing in self.assembler.relieve(excess, SPAN_OVERHEAD, Instant::now()) {
            self.conclude(closing).await;
        }
        self.depart().await;
        self.gauge();
    }

    async fn flush(&mut self) {
        self.close_due().await;
        for closing in self.assembler.close_all(CloseReason::Shutdown) {
            self.conclude(closing).await;
        }
        self.settle().await;
        self.gauge();
    }

    /// Waits for what has been judged to reach the exporters' queues.
    async fn settle(&mut self) {
        self.depart().await;
        while let Some((trace, verdict)) = self.underway.next().await {
            self.through(trace, verdict).await;
        }
        self.depart().await;
        while let Some(done) = self.leaving.join_next().await {
            left(done);
        }
        self.give_up_unused();
    }

    /// Notes the record that holds spans or logs of a trace.
    fn keep(&mut self, trace: TraceId, kept: Option<Seq>) {
        if let Some(seq) = kept {
            let all = self.kept.entry(trace).or_default();
            if all.last() != Some(&seq) {
                all.push(seq);
            }
        }
    }

    /// Lets go of records whose trace is not open and did not close: logs whose spans never came,
    /// or came before and have gone.
    fn give_up_unused(&mut self) {
        let Some(journal) = &self.shared.journal else { return };
        if self.kept.len() <= self.assembler.traces() {
            return;
        }
        let (open, underway) = (&self.assembler, &self.underway);
        let unused = self.kept.extract_if(|trace, _| !open.is_open(*trace) && !underway.is_of(*trace));
        let releases =
            unused.flat_map(|(trace, all)| all.into_iter().map(move |seq| (seq, RetainReason::Trace(trace))));
        journal.release(releases.collect());
    }

    /// Concludes what has just closed, of all records that hold something of it so far.
    async fn conclude(&mut self, closing: ClosedTrace) {
        let of = self.kept.remove(&closing.trace).unwrap_or_default();
        self.conclude_of(closing, of).await;
    }

    async fn conclude_of(&mut self, mut closing: ClosedTrace, of: Vec<Seq>) {
        let trace = closing.trace;
        let weight = weight(&closing);
        if closing.reason == CloseReason::Late {
            if self.underway.is_of(trace) {
                let held = self.shared.budget.hold(weight);
                return self.underway.keep_behind(Behind { closing, of, held });
            }
            // Other late spans of the trace may have been judged since these were set aside.
            closing.before = self.assembler.remembered(trace).or(closing.before);
        }
        let live = self.shared.live.get();
        let quarantined = self.shared.attempts.is_quarantined(trace);
        if let Some(panel) = live.panel.clone().filter(|_| live.engine.asks(closing.reason) && !quarantined) {
            // It is open no more: nothing is to be charged twice.
            self.gauge();
            let held = self.shared.budget.hold(weight.saturating_mul(READ_SHARE));
            let spent = self.early.spent_on(trace);
            let waiting = Waiting { shared: Arc::clone(&self.shared), live, panel, spent, of };
            return self.underway.waiting(trace, async move {
                let _held = held;
                let attempts = Arc::clone(&waiting.shared.attempts);
                attempts.watch(trace, waiting.conclude(closing)).await
            });
        }
        if is_large(&closing) {
            // Whoever is judged already waits for none of it.
            self.depart().await;
            self.underway.room(LARGE_AT_ONCE).await;
            let shared = Arc::clone(&self.shared);
            let held = shared.budget.hold(weight);
            let runtime = tokio::runtime::Handle::current();
            return self.underway.large(trace, move || {
                let _held = held;
                let concluding = conclude(&shared, &live, Case::Closed(closing), of);
                Some(runtime.block_on(shared.attempts.watch(trace, concluding)))
            });
        }
        let case = Case::Closed(closing);
        if self.shared.journal.is_some() {
            let section = self.shared.attempts.enter(trace).await;
            let leaving = judge_to_keep(&self.shared, &live, case, of);
            drop(section);
            self.assembler.remember(trace, leaving.verdict());
            self.departing.1 += leaving.weight();
            self.departing.0.push(leaving);
            if self.departing.0.len() >= TOGETHER || self.departing.1 >= TOGETHER_BYTES {
                self.depart().await;
            }
            return;
        }
        let verdict = conclude(&self.shared, &live, case, of).await;
        self.assembler.remember(trace, verdict);
    }

    /// A trace's verdict is there: late spans that stayed behind follow.
    async fn through(&mut self, trace: TraceId, verdict: Option<PriorVerdict>) {
        if let Some(verdict) = verdict {
            self.assembler.remember(trace, verdict);
        }
        let behind = self.underway.release(trace);
        if verdict.is_none() && self.shared.leaving.load(Ordering::Relaxed) {
            // The journal has them all, and goes on holding them.
            return;
        }
        for Behind { closing, of, held: _held } in behind {
            Box::pin(self.conclude_of(closing, of)).await;
        }
    }

    /// Sends judged traces on, their verdicts written first, while others are judged.
    async fn depart(&mut self) {
        let Some(journal) = self.shared.journal.clone().filter(|_| !self.departing.0.is_empty()) else {
            return;
        };
        let (departing, weight) = std::mem::take(&mut self.departing);
        let held = self.shared.budget.hold(weight);
        while self.leaving.len() >= LEAVING {
            match self.leaving.join_next().await {
                Some(done) => left(done),
                None => break,
            }
        }
        let shared = Arc::clone(&self.shared);
        self.leaving.spawn(async move {
            let _held = held;
            durable::conclude(&shared, &journal, departing).await;
        });
    }

    /// Adds to the shared gauges by how much this shard's share has changed.
    fn gauge(&mut self) {
        let now = (self.assembler.traces(), self.assembler.spans(), self.assembler.bytes());
        self.shared.meter.buffered(self.gauged, now);
        self.shared.budget.shift(charge(self.gauged), charge(now));
        self.gauged = now;
    }
}

/// What open traces are charged: so many, with so many spans and bytes.
fn charge((_, spans, bytes): (usize, usize, usize)) -> usize {
    bytes + spans * SPAN_OVERHEAD
}

fn left(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done {
        tracing::error!(%error, "sending a trace on ended abnormally; this is a bug");
    }
}

#[cfg(test)]
mod tests;
