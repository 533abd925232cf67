//! Asks questions while a trace is open, so that their answers are cached when it closes.
//!
//! In: open traces that have grown. Out: answers in the judges' caches, under the prompts that the closed
//! trace will use, and their usage. Only questions that do not depend on later spans are asked: those whose prompt
//! contains a call alone or an agent's task alone, and those about calls whose agent has ended. The others are asked
//! when the trace has closed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use verdict_eval::questions::Usage;
use verdict_journal::EvaluationMarkers;
use verdict_otlp::trace::{CloseReason, ClosedTrace, TraceId};

use super::ask_judges::{QuestionAnswerer, ask_early, catch_panic};
use super::budget::{Budget, EVALUATED_FACTOR, JUDGED_FACTOR, charge};
use super::runtime_config::RuntimeConfig;
use super::schedule::question_bytes;
use super::shared::Shared;
use crate::assemble::Assembler;
use crate::reservation::Reservation;

/// The interval of previews: short compared with `close.quiet`, long compared with the time that a preview
/// takes.
const PREVIEW_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of previews of one shard at once: the traces are in memory twice, as spans and as assessments.
const MAX_PREVIEWS: usize = 4;

/// Questions about the open traces of one shard.
#[derive(Debug, Default)]
pub(super) struct Speculation {
    last_preview: Option<Instant>,
    tasks: JoinSet<(TraceId, Usage)>,
    usage: HashMap<TraceId, Usage>,
}

impl Speculation {
    /// The time of the next preview; `None` if no judge is asked.
    pub(super) fn next_preview(&self, config: &RuntimeConfig) -> Option<Instant> {
        config
            .answerer_for(CloseReason::Complete)
            .map(|_| self.last_preview.map_or_else(Instant::now, |last| last + PREVIEW_INTERVAL))
    }

    /// Asks about the spans that have arrived since the last preview, if the interval is over.
    pub(super) fn preview(
        &mut self,
        assembler: &mut Assembler,
        config: &Arc<RuntimeConfig>,
        shared: &Shared,
        now: Instant,
    ) {
        while let Some(result) = self.tasks.try_join_next() {
            let Ok((trace, usage)) = result else { continue };
            if assembler.is_open(trace) {
                *self.usage.entry(trace).or_default() += usage;
            }
        }
        let Some(answerer) = config.answerer_for(CloseReason::Complete) else {
            return assembler.end_previews();
        };
        if self.last_preview.is_some_and(|last| now < last + PREVIEW_INTERVAL) {
            return;
        }
        self.last_preview = Some(now);
        // A preview takes memory, and its only benefit is time.
        if shared.budget.is_scarce() {
            return;
        }
        let free_slots = MAX_PREVIEWS.saturating_sub(self.tasks.len());
        for snapshot in assembler.traces_to_preview(now, free_slots) {
            if shared.markers.is_suspect_or_quarantined(snapshot.trace) {
                continue;
            }
            let reservation = SnapshotReservation {
                snapshot: shared.budget.reserve_trace(&snapshot, EVALUATED_FACTOR),
                assessed_bytes: charge(&snapshot, JUDGED_FACTOR),
                budget: Arc::clone(&shared.budget),
            };
            let (markers, threads) = (Arc::clone(&shared.markers), Arc::clone(&shared.blocking_threads));
            self.tasks.spawn(assess_and_ask(
                snapshot,
                Arc::clone(config),
                Arc::clone(answerer),
                markers,
                threads,
                reservation,
            ));
        }
    }

    /// Removes and returns the usage of a trace that closes. Later answers count for the judges, but not for the trace.
    pub(super) fn take_usage(&mut self, trace: TraceId) -> Usage {
        self.usage.remove(&trace).unwrap_or_default()
    }
}

/// The memory of a snapshot and its assessment, and the budget to which its questions are charged.
struct SnapshotReservation {
    snapshot: Reservation,
    /// The bytes to reserve for the snapshot once it is assessed.
    assessed_bytes: usize,
    budget: Arc<Budget>,
}

/// Assesses a snapshot on a blocking thread, and asks the early questions. Returns their usage.
async fn assess_and_ask(
    snapshot: ClosedTrace,
    config: Arc<RuntimeConfig>,
    answerer: Arc<dyn QuestionAnswerer>,
    markers: Arc<EvaluationMarkers>,
    threads: Arc<Semaphore>,
    mut reservation: SnapshotReservation,
) -> (TraceId, Usage) {
    let trace = snapshot.trace;
    let task_config = Arc::clone(&config);
    let task_markers = Arc::clone(&markers);
    let assess =
        move || task_markers.run(trace, || catch_panic(|| task_config.evaluator.assess_open(snapshot)));
    let thread = threads.acquire().await;
    let Ok(Some(assessment)) = tokio::task::spawn_blocking(assess).await else {
        return (trace, Usage::default());
    };
    drop(thread);
    reservation.snapshot.resize(reservation.assessed_bytes);
    let ask = |ask| {
        let question_reservation = reservation.budget.reserve_closed(question_bytes(&ask));
        let (answer, markers) = (Arc::clone(&answerer).ask(trace, ask), Arc::clone(&markers));
        async move {
            let _reservation = question_reservation;
            markers.watch(trace, answer).await
        }
    };
    let usage = markers.watch(trace, ask_early(&config.evaluator, &assessment, ask)).await;
    drop(reservation.snapshot);
    (trace, usage)
}
