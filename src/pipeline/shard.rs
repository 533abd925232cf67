//! One shard: the task that owns a share of the open traces, judges them as they close, and hands
//! them to the exporters.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::durable;
use super::engine::Judged;
use super::live::{InForce, Live};
use super::memory::{Budget, Held, SPAN_OVERHEAD};
use super::meter::Meter;
use super::select;
use crate::annotate::Annotated;
use crate::assemble::{Assembler, Closing, Reason, Remembered};
use crate::export::{Exporters, Parcel};
use crate::journal::{Claim, Journal, Sealed, Seq};
use crate::receive::Signal;
use crate::trace::{Attached, Span, TraceId, Tree};
use crate::wire::logs::GenAiRecord;
use crate::wire::request::Group;

/// A trace with more spans, or more bytes, is judged on a thread of its own, so that it delays
/// none of its neighbours: at 25 µs a span, 256 spans take some 6 ms.
const LARGE_SPANS: usize = 256;
/// As [`LARGE_SPANS`], in bytes.
const LARGE_BYTES: usize = 2 << 20;
/// Large traces judged at once by one shard; the next waits. Bounds threads and memory.
const LARGE_AT_ONCE: usize = 2;
/// Judged traces that one shard may have on their way into the journal: enough for one write and
/// one force to the disk to serve many. They count against the memory budget.
const LEAVING: usize = 256;
/// Requests taken from the inbox before closing what is due.
const BURST: usize = 64;
/// How long to sleep at most: memory may get scarce by what other shards hold.
const IDLE: Duration = Duration::from_secs(1);

/// What a shard is given.
#[derive(Debug)]
pub(super) enum Work {
    /// Spans of traces of this shard, and the record in the journal that holds them.
    Spans(Vec<Group>, Held, Option<Seq>),
    /// Log records that belong to such spans.
    Logs(Vec<GenAiRecord>, Held, Option<Seq>),
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
    /// Shutdown runs out of time: traces go on unjudged.
    pub hurried: AtomicBool,
    pub journal: Option<Arc<Journal>>,
}

/// A judged trace whose verdict is about to be kept, with what it was judged by.
pub(super) struct Leaving {
    pub live: Arc<Live>,
    pub tree: Tree,
    pub sealed: Sealed,
}

impl Leaving {
    fn verdict(&self) -> Remembered {
        Remembered { passed: self.sealed.passed, revision: self.sealed.revision }
    }
}

pub(super) struct Shard {
    shared: Arc<Shared>,
    assembler: Assembler,
    /// By whose times traces open.
    live: Arc<Live>,
    /// Large traces being judged elsewhere; each ends with what to remember of it.
    elsewhere: JoinSet<(TraceId, Remembered)>,
    /// Records of the journal that hold open traces.
    kept: HashMap<TraceId, Vec<Seq>>,
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
            elsewhere: JoinSet::new(),
            kept: HashMap::new(),
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
            let due = self.assembler.next_deadline().map_or(latest, |at| at.min(latest));
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
                Some(done) = self.elsewhere.join_next() => self.remember(done),
                Some(done) = self.leaving.join_next() => left(done),
            }
            self.close_due().await;
            self.gauge();
            self.relieve().await;
            self.give_up_unused();
        }
        match self.shared.journal {
            Some(_) => self.settle().await,
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
        let excess = self.shared.budget.excess();
        if excess == 0 {
            return;
        }
        for closing in self.assembler.relieve(excess, Instant::now()) {
            self.conclude(closing).await;
        }
        self.gauge();
    }

    async fn flush(&mut self) {
        self.close_due().await;
        for closing in self.assembler.close_all(Reason::Shutdown) {
            self.conclude(closing).await;
        }
        self.settle().await;
        self.gauge();
    }

    /// Waits for what has been judged to reach the exporters' queues.
    async fn settle(&mut self) {
        while let Some(done) = self.elsewhere.join_next().await {
            self.remember(done);
        }
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
        let open = &self.assembler;
        let unused = self.kept.extract_if(|trace, _| !open.is_open(*trace));
        let claims =
            unused.flat_map(|(trace, all)| all.into_iter().map(move |seq| (seq, Claim::Trace(trace))));
        journal.release(claims.collect());
    }

    async fn conclude(&mut self, mut closing: Closing) {
        if closing.reason == Reason::Late {
            // Other late spans of the trace may have been judged since these were set aside.
            closing.before = self.assembler.remembered(closing.trace).or(closing.before);
        }
        let of = self.kept.remove(&closing.trace).unwrap_or_default();
        let bytes: usize = closing.spans.iter().map(|s| s.bytes.len()).sum();
        if closing.spans.len() <= LARGE_SPANS && bytes <= LARGE_BYTES {
            if let Some(journal) = &self.shared.journal {
                let leaving = judge_to_keep(&self.shared, closing, &of);
                self.assembler.remember(leaving.sealed.trace, leaving.verdict());
                let (shared, journal) = (Arc::clone(&self.shared), Arc::clone(journal));
                return self.leave(shared, journal, leaving).await;
            }
            let (trace, verdict) = conclude(&self.shared, closing).await;
            self.assembler.remember(trace, verdict);
            return;
        }
        while self.elsewhere.len() >= LARGE_AT_ONCE {
            match self.elsewhere.join_next().await {
                Some(done) => self.remember(done),
                None => break,
            }
        }
        let shared = Arc::clone(&self.shared);
        let held = shared.budget.hold(bytes + closing.spans.len() * SPAN_OVERHEAD);
        let runtime = tokio::runtime::Handle::current();
        self.elsewhere.spawn_blocking(move || {
            let _held = held;
            runtime.block_on(conclude_elsewhere(&shared, closing, of))
        });
    }

    /// Sends a judged trace on, its verdict written first, while others are judged.
    async fn leave(&mut self, shared: Arc<Shared>, journal: Arc<Journal>, leaving: Leaving) {
        while self.leaving.len() >= LEAVING {
            match self.leaving.join_next().await {
                Some(done) => left(done),
                None => break,
            }
        }
        let held = shared.budget.hold(durable::weight(&leaving.tree));
        self.leaving.spawn(async move {
            let _held = held;
            let began = Instant::now();
            durable::conclude(&shared, &journal, leaving).await;
            shared.meter.exported(began.elapsed());
        });
    }

    fn remember(&mut self, done: Result<(TraceId, Remembered), tokio::task::JoinError>) {
        match done {
            Ok((trace, verdict)) => self.assembler.remember(trace, verdict),
            Err(error) => tracing::error!(%error, "judging a trace ended abnormally; this is a bug"),
        }
    }

    /// Adds to the shared gauges by how much this shard's share has changed.
    fn gauge(&mut self) {
        let now = (self.assembler.traces(), self.assembler.spans(), self.assembler.bytes());
        self.shared.meter.buffered(self.gauged, now);
        let held = |(_, spans, bytes): (usize, usize, usize)| bytes + spans * SPAN_OVERHEAD;
        self.shared.budget.shift(held(self.gauged), held(now));
        self.gauged = now;
    }
}

fn left(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done {
        tracing::error!(%error, "sending a trace on ended abnormally; this is a bug");
    }
}

/// Judges a trace whose verdict is to be kept before it goes out.
fn judge_to_keep(shared: &Shared, closing: Closing, of: &[Seq]) -> Leaving {
    let trace = closing.trace;
    judged(shared, closing, |live, judged| {
        let existing = judged.scene.tree.spans.iter().filter(|span| span.has_verdict).count();
        shared.meter.judged(&judged, existing);
        let marks = live.engine.marks(&judged);
        let (passed, revision) = (judged.note.passed, judged.note.revision);
        let sealed = durable::sealed(trace, of.to_vec(), passed, revision, shared.shadow, marks);
        Leaving { live: Arc::clone(live), tree: judged.scene.tree, sealed }
    })
}

async fn conclude_elsewhere(shared: &Shared, closing: Closing, of: Vec<Seq>) -> (TraceId, Remembered) {
    let Some(journal) = &shared.journal else { return conclude(shared, closing).await };
    let began = Instant::now();
    let leaving = judge_to_keep(shared, closing, &of);
    let remembered = (leaving.sealed.trace, leaving.verdict());
    durable::conclude(shared, journal, leaving).await;
    shared.meter.exported(began.elapsed());
    remembered
}

/// Judges, annotates and sends one trace on.
async fn conclude(shared: &Shared, closing: Closing) -> (TraceId, Remembered) {
    let began = Instant::now();
    let trace = closing.trace;
    let spans = closing.spans.len() as u64;
    let (verdict, annotated) = judge(shared, closing);
    if !shared.shadow {
        debug_assert_eq!(annotated.spans.iter().map(|p| p.items).sum::<u64>(), spans);
        let parcel = Parcel { signal: Signal::Traces, pieces: annotated.spans, trace: Some(trace) };
        shared.exporters.send(parcel).await;
    }
    if !annotated.events.is_empty() {
        let parcel = Parcel { signal: Signal::Logs, pieces: annotated.events, trace: Some(trace) };
        shared.exporters.send(parcel).await;
    }
    shared.meter.exported(began.elapsed());
    (trace, verdict)
}

/// What goes out for a closed trace.
fn judge(shared: &Shared, closing: Closing) -> (Remembered, Annotated) {
    judged(shared, closing, |live, judged| {
        let annotated = live.engine.annotate(&judged);
        shared.meter.judged(&judged, annotated.existing);
        (Remembered { passed: judged.note.passed, revision: judged.note.revision }, annotated)
    })
}

/// A closed trace judged, and `write` of it. Its content is a stranger's: should judging it panic,
/// its spans go on unjudged, and so do those of traces for which shutdown leaves no time.
fn judged<T>(shared: &Shared, closing: Closing, write: impl Fn(&Arc<Live>, Judged) -> T) -> T {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let live = shared.live.get();
    let spare = closing.clone();
    if !shared.hurried.load(Ordering::Relaxed) {
        let took = &mut |metric, time| shared.meter.took(metric, time);
        let judged = catch_unwind(AssertUnwindSafe(|| write(&live, live.engine.judge(closing, now, took))));
        if let Ok(judged) = judged {
            return judged;
        }
        tracing::error!(trace = %spare.trace, "judging this trace panicked; it goes on unjudged. This is a bug");
    }
    shared.meter.unjudged();
    write(&live, live.engine.unjudged(spare, now))
}

#[cfg(test)]
mod tests;
