//! Open traces without new spans, by size: those that are closed early when memory is scarce; and those that have had
//! none for longer, which are compressed.
//!
//! A trace is examined when it becomes idle and when it is closed, so that finding the largest ones costs
//! what is taken, however many traces are open.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use verdict_otlp::trace::{ById, TraceId};

use super::compressed;
use super::open::{Activity, BufferedTrace, SPAN_OVERHEAD};

/// A trace with new spans within this time is not closed early: its next spans would be late.
const BUSY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct IdleTraces {
    /// Busy traces, with the time from which they may be idle. Closed ones are skipped when it is over.
    busy: VecDeque<(Instant, TraceId)>,
    by_size: BTreeSet<(usize, TraceId)>,
    /// Idle traces, with the time from which they may be compressed, if any are. Closed ones and those that have been
    /// busy since are skipped when it is over.
    waiting: Option<VecDeque<(Instant, TraceId)>>,
}

impl IdleTraces {
    /// To be called when a trace has received spans or logs.
    pub(super) fn note_spans(&mut self, trace: TraceId, open: &mut BufferedTrace) {
        match std::mem::replace(&mut open.activity, Activity::Busy) {
            Activity::Busy => return,
            Activity::Idle(size) => _ = self.by_size.remove(&(size, trace)),
            Activity::New => {}
        }
        self.busy.push_back((open.last + BUSY, trace));
    }

    /// Moves the traces that have become idle.
    pub(super) fn update(&mut self, all: &mut ById<TraceId, BufferedTrace>, now: Instant) {
        while let Some(&(_, trace)) = self.busy.front().filter(|(at, _)| *at <= now) {
            self.busy.pop_front();
            count_examined();
            let Some(open) = all.get_mut(&trace).filter(|open| open.activity == Activity::Busy) else {
                continue;
            };
            if open.last + BUSY > now {
                self.busy.push_back((open.last + BUSY, trace));
                continue;
            }
            let size = open.bytes + open.spans.len() * SPAN_OVERHEAD;
            open.activity = Activity::Idle(size);
            self.by_size.insert((size, trace));
            if let Some(waiting) = &mut self.waiting {
                waiting.push_back((open.last + compressed::IDLE, trace));
            }
        }
    }

    /// From now on, [`IdleTraces::next_waiting`] returns traces.
    pub(super) fn note_waiting(&mut self) {
        self.waiting.get_or_insert_default();
    }

    /// The earliest time at which a trace may be compressed.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        Some(self.waiting.as_ref()?.front()?.0)
    }

    /// The next trace that has had no spans for [`compressed::IDLE`]. Each is returned once until it is busy again.
    pub(super) fn next_waiting(
        &mut self,
        all: &ById<TraceId, BufferedTrace>,
        now: Instant,
    ) -> Option<TraceId> {
        let waiting = self.waiting.as_mut()?;
        while let Some(&(_, trace)) = waiting.front().filter(|(at, _)| *at <= now) {
            waiting.pop_front();
            let is_idle = |open: &BufferedTrace| {
                matches!(open.activity, Activity::Idle(_)) && open.last + compressed::IDLE <= now
            };
            if all.get(&trace).is_some_and(is_idle) {
                return Some(trace);
            }
        }
        None
    }

    /// [`IdleTraces::next_waiting`] returns the trace again.
    pub(super) fn return_to_waiting(&mut self, trace: TraceId, now: Instant) {
        self.waiting.iter_mut().for_each(|waiting| waiting.push_front((now, trace)));
    }

    /// The largest idle trace and its size. It must be closed, or the next call returns it again.
    pub(super) fn largest(&self) -> Option<(usize, TraceId)> {
        count_examined();
        self.by_size.last().copied()
    }

    /// To be called when a trace closes.
    pub(super) fn remove(&mut self, trace: TraceId, open: &BufferedTrace) {
        if let Activity::Idle(size) = open.activity {
            self.by_size.remove(&(size, trace));
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Traces examined by this thread.
    pub(super) static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn count_examined() {
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + 1);
}
