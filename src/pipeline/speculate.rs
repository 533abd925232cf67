//! Questions asked while a trace is still open, so that their answers are there when it closes.
//!
//! In: open traces that have grown. Out: answers in the judges' caches, under the same prompts that the
//! closed trace will ask with, and what they took. Only questions about spans whose parents have arrived;
//! those about agents and the trace wait until it is complete.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use verdict_eval::Usage;
use verdict_journal::Attempts;
use verdict_otlp::trace::{CloseReason, ClosedTrace, TraceId};

use super::ask_judges::{Panel, ask_early, guarded};
use super::runtime_config::RuntimeConfig;
use crate::assemble::Assembler;

/// How often open traces are looked at: short compared with the time that a trace stays quiet before it
/// closes, long compared with the time that looking takes.
const EVERY: Duration = Duration::from_millis(500);
/// Open traces of one shard that ask at once. They are in memory twice meanwhile, as spans and as
/// assessments.
const AT_ONCE: usize = 4;

/// Questions about the open traces of one shard.
#[derive(Debug, Default)]
pub(super) struct Speculation {
    last_look: Option<Instant>,
    tasks: JoinSet<(TraceId, Usage)>,
    spent: HashMap<TraceId, Usage>,
}

impl Speculation {
    /// When to look again; `None` where no judge is asked.
    pub fn next(&self, config: &RuntimeConfig) -> Option<Instant> {
        config
            .panel_for(CloseReason::Complete)
            .map(|_| self.last_look.map_or_else(Instant::now, |at| at + EVERY))
    }

    /// Asks about what has come since the last look, where it is time for one.
    pub fn look(
        &mut self,
        assembler: &mut Assembler,
        config: &Arc<RuntimeConfig>,
        attempts: &Arc<Attempts>,
        now: Instant,
    ) {
        while let Some(done) = self.tasks.try_join_next() {
            let Ok((trace, usage)) = done else { continue };
            if assembler.is_open(trace) {
                *self.spent.entry(trace).or_default() += usage;
            }
        }
        let Some(panel) = config.panel_for(CloseReason::Complete) else { return };
        if self.last_look.is_some_and(|at| now < at + EVERY) {
            return;
        }
        self.last_look = Some(now);
        let room = AT_ONCE.saturating_sub(self.tasks.len());
        for snapshot in assembler.traces_to_preview(now, room) {
            if attempts.is_noted(snapshot.trace) {
                continue;
            }
            self.tasks.spawn(ask(snapshot, Arc::clone(config), Arc::clone(panel), Arc::clone(attempts)));
        }
    }

    /// What was spent on a trace that closes now. Answers that arrive later count for the judges, and no
    /// longer for the trace.
    pub fn spent_on(&mut self, trace: TraceId) -> Usage {
        self.spent.remove(&trace).unwrap_or_default()
    }
}

async fn ask(
    snapshot: ClosedTrace,
    config: Arc<RuntimeConfig>,
    panel: Arc<dyn Panel>,
    attempts: Arc<Attempts>,
) -> (TraceId, Usage) {
    let trace = snapshot.trace;
    let reader = Arc::clone(&config);
    let view = Arc::clone(&attempts);
    let assess = move || view.run(trace, || guarded(|| reader.evaluator.assess(snapshot, &mut |_| ())));
    let Ok(Some(assessment)) = tokio::task::spawn_blocking(assess).await else {
        return (trace, Usage::default());
    };
    let ask = |ask| {
        let (answer, attempts) = (Arc::clone(&panel).ask(trace, ask), Arc::clone(&attempts));
        async move { attempts.watch(trace, answer).await }
    };
    let usage = attempts.watch(trace, ask_early(&config.evaluator, &assessment, ask)).await;
    (trace, usage)
}
