//! Questions asked while a trace is still open, so that their answers are there when it closes.
//!
//! In: open traces that have grown. Out: nothing but answers in the judges' caches, under the same
//! prompts that the closed trace will ask with, and what they took. Only questions about spans
//! whose parents have come; those about agents and the trace wait until it is whole.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::asking::{Panel, ask_early, guarded};
use super::live::Live;
use crate::assemble::Assembler;
use verdict_eval::measure::Usage;
use verdict_journal::Attempts;
use verdict_otlp::trace::ClosedTrace;
use verdict_otlp::trace::TraceId;

/// How often open traces are looked at: short beside the time that a trace stays quiet before it
/// closes, long beside the time that looking takes.
const EVERY: Duration = Duration::from_millis(500);
/// Open traces of one shard that ask at once. They are kept twice meanwhile, as spans and as what
/// was read of them.
const AT_ONCE: usize = 4;

/// What one shard asks beforehand.
#[derive(Debug, Default)]
pub(super) struct Early {
    looked: Option<Instant>,
    tasks: JoinSet<(TraceId, Usage)>,
    spent: HashMap<TraceId, Usage>,
}

impl Early {
    /// When to look again; `None` where no judge is asked.
    pub fn next(&self, live: &Live) -> Option<Instant> {
        live.asks().then(|| self.looked.map_or_else(Instant::now, |at| at + EVERY))
    }

    /// Asks about what has come since the last look, where it is time for one.
    pub fn look(
        &mut self,
        assembler: &mut Assembler,
        live: &Arc<Live>,
        attempts: &Arc<Attempts>,
        now: Instant,
    ) {
        while let Some(done) = self.tasks.try_join_next() {
            let Ok((trace, usage)) = done else { continue };
            if assembler.is_open(trace) {
                *self.spent.entry(trace).or_default() += usage;
            }
        }
        let Some(panel) = live.panel.clone().filter(|_| live.asks()) else { return };
        if self.looked.is_some_and(|at| now < at + EVERY) {
            return;
        }
        self.looked = Some(now);
        let room = AT_ONCE.saturating_sub(self.tasks.len());
        for snapshot in assembler.traces_to_preview(now, room) {
            if attempts.is_noted(snapshot.trace) {
                continue;
            }
            self.tasks.spawn(ask(snapshot, Arc::clone(live), Arc::clone(&panel), Arc::clone(attempts)));
        }
    }

    /// What was spent on a trace that closes now. What is still on its way then counts for the
    /// judges, and no more for the trace.
    pub fn spent_on(&mut self, trace: TraceId) -> Usage {
        self.spent.remove(&trace).unwrap_or_default()
    }
}

async fn ask(
    snapshot: ClosedTrace,
    live: Arc<Live>,
    panel: Arc<dyn Panel>,
    attempts: Arc<Attempts>,
) -> (TraceId, Usage) {
    let trace = snapshot.trace;
    let reader = Arc::clone(&live);
    let view = Arc::clone(&attempts);
    let weigh = move || view.run(trace, || guarded(|| reader.engine.weigh(snapshot, &mut |_| ())));
    let Ok(Some(weighed)) = tokio::task::spawn_blocking(weigh).await else {
        return (trace, Usage::default());
    };
    let ask = |ask| {
        let (answer, attempts) = (Arc::clone(&panel).ask(trace, ask), Arc::clone(&attempts));
        async move { attempts.watch(trace, answer).await }
    };
    let usage = attempts.watch(trace, ask_early(&live.engine, &weighed, ask)).await;
    (trace, usage)
}
