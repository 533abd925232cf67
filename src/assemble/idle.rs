//! Open traces without new spans: by size, so that the largest are closed early when memory is scarce, and by the time
//! from which they may be compressed.
//!
//! A trace is examined when it becomes idle and when it is closed, so that the cost of finding the largest ones depends
//! on how many are closed, and not on how many are open.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use verdict_otlp::trace::{ById, TraceId};

use super::compressed;
use super::open::{Activity, BufferedTrace, SPAN_OVERHEAD};

/// A trace with new spans within this time is not closed early: its next spans would be late.
const BUSY_TIME: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct IdleTraces {
    /// Busy traces, with the time from which they may be idle. Traces that have closed are skipped at that time.
    busy: VecDeque<(Instant, TraceId)>,
    /// Idle traces by size.
    by_size: BTreeSet<(usize, TraceId)>,
    /// Idle traces, with the time from which they may be compressed; `None` without compression. Traces that have
    /// closed or have been busy since are skipped at that time.
    to_compress: Option<VecDeque<(Instant, TraceId)>>,
}

impl IdleTraces {
    /// Must be called when a trace has received spans or logs.
    pub(super) fn note_spans(&mut self, trace: TraceId, open: &mut BufferedTrace) {
        match std::mem::replace(&mut open.activity, Activity::Busy) {
            Activity::Busy => return,
            Activity::Idle(size) => _ = self.by_size.remove(&(size, trace)),
            Activity::New => {}
        }
        self.busy.push_back((open.last_arrival + BUSY_TIME, trace));
    }

    /// Moves the traces that have become idle from `busy` to `by_size`.
    pub(super) fn update(&mut self, open_traces: &mut ById<TraceId, BufferedTrace>, now: Instant) {
        while let Some(&(_, trace)) = self.busy.front().filter(|(time, _)| *time <= now) {
            self.busy.pop_front();
            count_examined();
            let Some(open) = open_traces.get_mut(&trace).filter(|open| open.activity == Activity::Busy)
            else {
                continue;
            };
            if open.last_arrival + BUSY_TIME > now {
                self.busy.push_back((open.last_arrival + BUSY_TIME, trace));
                continue;
            }
            let size = open.bytes + open.spans.len() * SPAN_OVERHEAD;
            open.activity = Activity::Idle(size);
            self.by_size.insert((size, trace));
            if let Some(to_compress) = &mut self.to_compress {
                to_compress.push_back((open.last_arrival + compressed::IDLE_TIME, trace));
            }
        }
    }

    /// From now on, [`IdleTraces::next_to_compress`] returns traces.
    pub(super) fn enable_compression(&mut self) {
        self.to_compress.get_or_insert_default();
    }

    /// The earliest time at which a trace may be compressed; `None` if none is idle.
    pub(super) fn next_compression(&self) -> Option<Instant> {
        Some(self.to_compress.as_ref()?.front()?.0)
    }

    /// The next trace that has had no spans for [`compressed::IDLE_TIME`]. Each is returned once until it is busy
    /// again.
    pub(super) fn next_to_compress(
        &mut self,
        open_traces: &ById<TraceId, BufferedTrace>,
        now: Instant,
    ) -> Option<TraceId> {
        let to_compress = self.to_compress.as_mut()?;
        while let Some(&(_, trace)) = to_compress.front().filter(|(time, _)| *time <= now) {
            to_compress.pop_front();
            let is_idle = |open: &BufferedTrace| {
                matches!(open.activity, Activity::Idle(_)) && open.last_arrival + compressed::IDLE_TIME <= now
            };
            if open_traces.get(&trace).is_some_and(is_idle) {
                return Some(trace);
            }
        }
        None
    }

    /// [`IdleTraces::next_to_compress`] returns the trace again.
    pub(super) fn compress_again(&mut self, trace: TraceId, now: Instant) {
        self.to_compress.iter_mut().for_each(|queue| queue.push_front((now, trace)));
    }

    /// The largest idle trace and its size. The next call returns it again unless it was closed.
    pub(super) fn largest(&self) -> Option<(usize, TraceId)> {
        count_examined();
        self.by_size.last().copied()
    }

    /// Must be called when a trace closes.
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
