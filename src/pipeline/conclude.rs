//! One closed trace: judged, annotated and sent on.
//!
//! In: a closed trace, or one that judges have been heard on. Out: its spans with their verdicts, to
//! the exporters (with a journal the verdict goes there first), and what to remember of it. Its
//! content is a stranger's: should judging it panic, its spans go on unjudged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::asking::{Panel, Said, ask_all, guarded};
use super::durable;
use super::live::Live;
use super::memory::SPAN_OVERHEAD;
use super::shard::Shared;
use crate::export::Parcel;
use verdict_eval::annotate::Annotated;
use verdict_eval::evaluate::{Judged, Weighed};
use verdict_eval::measure::question_rounds::Ask;
use verdict_eval::measure::{self, Usage};
use verdict_journal::{Seq, VerdictRecord};
use verdict_otlp::Piece;
use verdict_otlp::Signal;
use verdict_otlp::trace::{CloseReason, ClosedTrace, PriorVerdict};

/// A trace with more spans, or more bytes, is judged on a thread of its own, so that it delays
/// none of its neighbours: at 25 µs a span, 256 spans take some 6 ms.
const LARGE_SPANS: usize = 256;
/// As [`LARGE_SPANS`], in bytes.
const LARGE_BYTES: usize = 2 << 20;

/// How a trace comes to its verdict.
pub(super) enum Case {
    /// By rules alone.
    Closed(ClosedTrace),
    /// With what judges said of it.
    Heard(Box<Heard>),
}

pub(super) struct Heard {
    closing: ClosedTrace,
    weighed: Weighed,
    said: Said,
}

/// A judged trace whose verdict is about to be kept. Its spans are written already: they are in the
/// processor's cache when it has just been judged, and not when the journal has answered.
pub(super) struct Leaving {
    pub verdict: VerdictRecord,
    /// The spans as they go out; none where they went before.
    pub pieces: Vec<Piece>,
    /// When judging it began.
    pub since: Instant,
}

impl Leaving {
    pub fn verdict(&self) -> PriorVerdict {
        self.verdict.prior_verdict()
    }

    /// Bytes that it keeps in memory until it has been handed to the exporters.
    pub fn weight(&self) -> usize {
        let spans: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        let events: usize = self.verdict.events.iter().map(|(_, bytes)| bytes.len()).sum();
        spans + self.verdict.appended.len() + events
    }
}

/// What a closed trace is charged: as much as while it was open.
pub(super) fn weight(closing: &ClosedTrace) -> usize {
    closing.bytes + closing.spans.len() * SPAN_OVERHEAD
}

pub(super) fn is_large(closing: &ClosedTrace) -> bool {
    closing.spans.len() > LARGE_SPANS || closing.bytes > LARGE_BYTES
}

/// Judges, annotates and sends one trace on.
pub(super) async fn conclude(shared: &Shared, live: &Arc<Live>, case: Case, of: Vec<Seq>) -> PriorVerdict {
    let Some(journal) = &shared.journal else {
        let began = Instant::now();
        let verdict = send(shared, live, case).await;
        shared.meter.exported(began.elapsed());
        return verdict;
    };
    let leaving = judge_to_keep(shared, live, case, of);
    let verdict = leaving.verdict();
    durable::conclude(shared, journal, vec![leaving]).await;
    verdict
}

async fn send(shared: &Shared, live: &Arc<Live>, case: Case) -> PriorVerdict {
    let (trace, verdict, Annotated { spans, events, .. }) = judged(shared, live, case, |judged| {
        let annotated = live.engine.annotate(&judged);
        shared.meter.judged(&judged, annotated.existing);
        let tree = &judged.trace.tree;
        debug_assert!(
            shared.shadow || annotated.spans.iter().map(|p| p.items).sum::<u64>() == tree.len() as u64
        );
        (tree.id, PriorVerdict { passed: judged.note.passed, revision: judged.note.revision }, annotated)
    });
    if !shared.shadow {
        shared.exporters.send(Parcel { signal: Signal::Traces, pieces: spans, trace: Some(trace) }).await;
    }
    if !events.is_empty() {
        shared.exporters.send(Parcel { signal: Signal::Logs, pieces: events, trace: Some(trace) }).await;
    }
    verdict
}

/// Judges a trace whose verdict is to be kept before it goes out.
pub(super) fn judge_to_keep(shared: &Shared, live: &Live, case: Case, of: Vec<Seq>) -> Leaving {
    let since = Instant::now();
    judged(shared, live, case, |judged| {
        let tree = &judged.trace.tree;
        let marks = live.engine.marks(&judged);
        let join = || live.engine.join(tree, &marks);
        let (pieces, existing) = if shared.shadow { Default::default() } else { join() };
        shared.meter.judged(&judged, existing);
        let (passed, revision) = (judged.note.passed, judged.note.revision);
        let verdict = durable::verdict_record(tree.id, of.clone(), passed, revision, shared.shadow, marks);
        Leaving { verdict, pieces, since }
    })
}

/// A trace judged, and `write` of it. Should either panic, its spans go on unjudged, and so do
/// those of traces for which shutdown leaves no time, or that are quarantined.
fn judged<T>(shared: &Shared, live: &Live, case: Case, write: impl Fn(Judged) -> T) -> T {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let spare = match &case {
        Case::Closed(closing) => closing.clone(),
        Case::Heard(heard) => heard.closing.clone(),
    };
    let trace = spare.trace;
    if shared.attempts.is_quarantined(trace) {
        tracing::error!(%trace, "the process died twice while this trace was judged; it goes on unjudged");
        shared.meter.quarantined();
        let mut unjudged = live.engine.unjudged(spare, now);
        unjudged.note.unmeasured = Some(measure::Unmeasured::Quarantined);
        return write(unjudged);
    }
    if !shared.hurried.load(Ordering::Relaxed) || matches!(case, Case::Heard(_)) {
        let took = &mut shared.meter.stopwatch();
        let judge = || match case {
            Case::Closed(closing) => live.engine.judge(closing, now, took),
            Case::Heard(heard) => {
                let Heard { weighed, said, .. } = *heard;
                live.engine.conclude(weighed, said.measurements, Some(said.usage), now)
            }
        };
        let done = catch_unwind(AssertUnwindSafe(|| write(judge())));
        shared.attempts.judged(trace);
        if let Ok(done) = done {
            return done;
        }
        tracing::error!(%trace, "judging this trace panicked; it goes on unjudged. This is a bug");
    }
    shared.meter.unjudged();
    write(live.engine.unjudged(spare, now))
}

/// What a question takes until it is answered: the content that it shows, and for each judge the body
/// of a request with all of it.
fn of_question(ask: &Ask) -> usize {
    let prompt = &ask.question.prompt;
    prompt.user.len() + ask.judges.len() * (prompt.system.len() + prompt.user.len())
}

/// A trace that waits for judges.
pub(super) struct Waiting {
    pub shared: Arc<Shared>,
    pub live: Arc<Live>,
    pub panel: Arc<dyn Panel>,
    /// What was asked of it while it was open has taken so much.
    pub spent: Usage,
    pub of: Vec<Seq>,
}

impl Waiting {
    /// Judges by rules, asks, and sends on when all is answered or `max_wait` is over. `None` if the
    /// process stops before that and the journal keeps the trace for its next start.
    pub async fn conclude(self, closing: ClosedTrace) -> Option<PriorVerdict> {
        let Waiting { shared, live, panel, spent, of } = self;
        let large = is_large(&closing);
        let (live_too, shared_too, spare) = (Arc::clone(&live), Arc::clone(&shared), closing.clone());
        let weigh = move || {
            let took = &mut shared_too.meter.stopwatch();
            guarded(|| live_too.engine.weigh(spare, took))
        };
        let trace = closing.trace;
        let apart = Arc::clone(&shared.attempts);
        let weighed = match large {
            true => tokio::task::spawn_blocking(move || apart.run(trace, weigh)).await.ok().flatten(),
            false => weigh(),
        };
        let case = match weighed {
            Some(weighed) => {
                let ask = |ask: Ask| {
                    let held = shared.budget.hold(of_question(&ask));
                    let answer = Arc::clone(&panel).ask(trace, ask);
                    let attempts = Arc::clone(&shared.attempts);
                    async move {
                        let _held = held;
                        attempts.watch(trace, answer).await
                    }
                };
                // Waiting would hold more where less must be held.
                let waits = closing.reason != CloseReason::Pressure && !shared.budget.is_full(0);
                let until = async {
                    if waits {
                        shared.time_is_up(live.max_wait).await;
                    }
                };
                let mut said = ask_all(&live.engine, &weighed, ask, until).await;
                said.usage += spent;
                if !said.whole && shared.journal.is_some() && shared.leaving.load(Ordering::Relaxed) {
                    return None;
                }
                Case::Heard(Box::new(Heard { closing, weighed, said }))
            }
            None => Case::Closed(closing),
        };
        if !large {
            return Some(conclude(&shared, &live, case, of).await);
        }
        let runtime = tokio::runtime::Handle::current();
        let done = tokio::task::spawn_blocking(move || {
            runtime.block_on(shared.attempts.watch(trace, conclude(&shared, &live, case, of)))
        });
        done.await.ok()
    }
}
