//! Reports harmful calls of open traces at once, as a log line and a counter. Attributes are written when
//! the trace closes.
//!
//! In: the traces that have grown. Out: each harmful call once. A check reads an open trace as if it closed
//! now, so its result depends on the spans that have arrived: a call that began earlier and takes longer may
//! still change the state of the run. Traces that grew little since their last check wait, so that all
//! checks of a growing trace together cost a constant multiple of evaluating it once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use verdict_otlp::trace::{ClosedTrace, SpanId, TraceId};

use super::meter::Meter;
use super::runtime_config::RuntimeConfig;
use super::shared::Shared;
use crate::assemble::Assembler;

/// The interval of checks: short enough to stop an agent, long enough that a batch of spans is checked
/// once.
const INTERVAL: Duration = Duration::from_millis(250);
/// Traces of one shard that are checked at once, each on a blocking thread.
const MAX_CHECKS: usize = 2;
/// Up to this number of spans a trace is checked whenever it has grown.
const SMALL: usize = 64;
/// Larger traces are checked when they have grown by their size divided by this.
const GROWTH: usize = 8;
/// Harmful calls reported per trace; further ones are not reported before it closes.
const MAX_REPORTED: usize = 100;

/// An open trace that was checked.
#[derive(Debug, Default)]
struct Checked {
    /// Number of spans at the last check.
    spans: usize,
    reported: HashSet<SpanId>,
}

/// Span, reason, and an explanation.
type Harmful = (SpanId, &'static str, String);

/// Checks the open traces of one shard.
#[derive(Debug, Default)]
pub(super) struct HarmfulCalls {
    last_check: Option<Instant>,
    /// Open traces with spans that arrived since their last check.
    unchecked: HashSet<TraceId>,
    checked: HashMap<TraceId, Checked>,
    checks: JoinSet<(TraceId, Vec<Harmful>)>,
}

impl HarmfulCalls {
    /// Notes that spans of a trace have arrived.
    pub(super) fn note_spans(&mut self, trace: TraceId, config: &RuntimeConfig) {
        if config.evaluator.has_tasks() {
            self.unchecked.insert(trace);
        }
    }

    /// The time of the next check; `None` while no trace has grown.
    pub(super) fn next(&self) -> Option<Instant> {
        let waiting = !self.unchecked.is_empty() || !self.checks.is_empty();
        waiting.then(|| self.last_check.map_or_else(Instant::now, |at| at + INTERVAL))
    }

    /// Reports the results of finished checks, and checks the traces that have grown.
    pub(super) fn check(
        &mut self,
        assembler: &Assembler,
        config: &Arc<RuntimeConfig>,
        shared: &Shared,
        now: Instant,
    ) {
        while let Some(done) = self.checks.try_join_next() {
            if let Ok((trace, found)) = done {
                self.report(trace, found, &shared.meter);
            }
        }
        if self.last_check.is_some_and(|at| now < at + INTERVAL) || self.unchecked.is_empty() {
            return;
        }
        self.last_check = Some(now);
        let attempts = &shared.attempts;
        self.unchecked.retain(|trace| assembler.is_open(*trace) && !attempts.is_noted(*trace));
        self.checked.retain(|trace, _| assembler.is_open(*trace));
        let room = MAX_CHECKS.saturating_sub(self.checks.len());
        let due: Vec<TraceId> =
            self.unchecked.iter().copied().filter(|t| self.is_due(assembler, *t)).take(room).collect();
        for trace in due {
            self.unchecked.remove(&trace);
            let Some(snapshot) = assembler.snapshot(trace) else { continue };
            self.checked.entry(trace).or_default().spans = snapshot.spans.len();
            let (config, attempts) = (Arc::clone(config), Arc::clone(attempts));
            self.checks.spawn_blocking(move || (trace, attempts.run(trace, || harmful(&config, snapshot))));
        }
    }

    fn is_due(&self, assembler: &Assembler, trace: TraceId) -> bool {
        let before = self.checked.get(&trace).map_or(0, |checked| checked.spans);
        before <= SMALL || assembler.spans_of(trace) > before + before / GROWTH
    }

    fn report(&mut self, trace: TraceId, found: Vec<Harmful>, meter: &Meter) {
        let checked = self.checked.entry(trace).or_default();
        for (span, reason, why) in found {
            if checked.reported.len() < MAX_REPORTED && checked.reported.insert(span) {
                meter.telemetry.traces.harmful_calls.inc();
                tracing::warn!(%trace, %span, reason, why, "harmful call in an open trace");
            }
        }
    }
}

/// The content is untrusted: a check that panics reports nothing, and closing the trace logs the panic.
fn harmful(config: &RuntimeConfig, snapshot: ClosedTrace) -> Vec<Harmful> {
    let check = std::panic::AssertUnwindSafe(|| config.evaluator.harmful(snapshot));
    std::panic::catch_unwind(check).unwrap_or_default()
}
