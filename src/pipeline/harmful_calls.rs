//! Harmful calls of traces that are still open, reported at once: a log line and a counter. What is
//! written on spans follows when the trace closes, as always.
//!
//! In: which traces have grown. Out: each harmful call once. A look reads an open trace as if it closed
//! now, so its result rests on the spans that have arrived: a call that began earlier and takes longer may
//! still change the state of the run. Traces that grew little since the last look wait, so that looking at
//! a trace as it grows costs a constant number of times what evaluating it costs once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use verdict_otlp::trace::{ClosedTrace, SpanId, TraceId};

use super::meter::Meter;
use super::runtime_config::RuntimeConfig;
use super::shared::Shared;
use crate::assemble::Assembler;

/// How often open traces are looked at: soon enough to stop an agent, seldom enough that a batch
/// of spans is looked at once.
const EVERY: Duration = Duration::from_millis(250);
/// Traces of one shard that are looked at at once, on threads of their own.
const AT_ONCE: usize = 2;
/// A look at every new span of a trace so small costs next to nothing.
const SMALL: usize = 64;
/// Larger ones are looked at when they have grown by this part: an eighth.
const SHARE: usize = 8;
/// Harmful calls remembered of one trace: more are not reported before it closes.
const MAX_REPORTED: usize = 100;

/// An open trace that was looked at.
#[derive(Debug, Default)]
struct Known {
    /// Spans at the last look.
    looked_at: usize,
    reported: HashSet<SpanId>,
}

/// Span, reason, and an explanation.
type Harmful = (SpanId, &'static str, String);

/// Looks at the open traces of one shard.
#[derive(Debug, Default)]
pub(super) struct HarmfulCalls {
    last_look: Option<Instant>,
    grown: HashSet<TraceId>,
    known: HashMap<TraceId, Known>,
    looks: JoinSet<(TraceId, Vec<Harmful>)>,
}

impl HarmfulCalls {
    /// Spans of a trace have arrived.
    pub fn grown(&mut self, trace: TraceId, config: &RuntimeConfig) {
        if config.evaluator.has_tasks() {
            self.grown.insert(trace);
        }
    }

    /// When to look again; `None` while nothing has grown.
    pub fn next(&self) -> Option<Instant> {
        let waiting = !self.grown.is_empty() || !self.looks.is_empty();
        waiting.then(|| self.last_look.map_or_else(Instant::now, |at| at + EVERY))
    }

    /// Reports what the last looks found, and looks at what has grown since.
    pub fn look(
        &mut self,
        assembler: &Assembler,
        config: &Arc<RuntimeConfig>,
        shared: &Shared,
        now: Instant,
    ) {
        while let Some(done) = self.looks.try_join_next() {
            if let Ok((trace, found)) = done {
                self.report(trace, found, &shared.meter);
            }
        }
        if self.last_look.is_some_and(|at| now < at + EVERY) || self.grown.is_empty() {
            return;
        }
        self.last_look = Some(now);
        let attempts = &shared.attempts;
        self.grown.retain(|trace| assembler.is_open(*trace) && !attempts.is_noted(*trace));
        self.known.retain(|trace, _| assembler.is_open(*trace));
        let room = AT_ONCE.saturating_sub(self.looks.len());
        let due: Vec<TraceId> =
            self.grown.iter().copied().filter(|t| self.is_due(assembler, *t)).take(room).collect();
        for trace in due {
            self.grown.remove(&trace);
            let Some(snapshot) = assembler.snapshot(trace) else { continue };
            self.known.entry(trace).or_default().looked_at = snapshot.spans.len();
            let (config, attempts) = (Arc::clone(config), Arc::clone(attempts));
            self.looks.spawn_blocking(move || (trace, attempts.run(trace, || harmful(&config, snapshot))));
        }
    }

    fn is_due(&self, assembler: &Assembler, trace: TraceId) -> bool {
        let before = self.known.get(&trace).map_or(0, |known| known.looked_at);
        before <= SMALL || assembler.spans_of(trace) > before + before / SHARE
    }

    fn report(&mut self, trace: TraceId, found: Vec<Harmful>, meter: &Meter) {
        let known = self.known.entry(trace).or_default();
        for (span, reason, why) in found {
            if known.reported.len() < MAX_REPORTED && known.reported.insert(span) {
                meter.harmful_call();
                tracing::warn!(%trace, %span, reason, why, "harmful call in a trace that is still open");
            }
        }
    }
}

/// The content is untrusted: a look that panics reports nothing, and closing the trace logs why.
fn harmful(config: &RuntimeConfig, snapshot: ClosedTrace) -> Vec<Harmful> {
    let look = std::panic::AssertUnwindSafe(|| config.evaluator.harmful(snapshot));
    std::panic::catch_unwind(look).unwrap_or_default()
}
