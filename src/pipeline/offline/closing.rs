//! Decides when the traces of a recording close while it is read.
//!
//! In: the positions and times of the requests. Out: the traces that are complete, or the time for the assembler.
//!
//! A recording in files is read twice: the first pass records the last position of every trace ([`TraceEnds`]), and in
//! the second pass a trace closes right after it. Therefore every verdict is about the whole trace, independent of the
//! order of spans and of the clocks of their senders, and memory depends on the number of traces that are open at a
//! position. Closing by time alone would evaluate a trace in parts if a service reports late, if a root follows after a
//! long pause, or if a file is not in order.
//!
//! In input that can be read only once, such as standard input, traces close by the time of their spans
//! ([`RecordingClock`]), as in the service by the time of arrival.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use verdict_otlp::trace::{ById, TraceId};

/// The maximum by which one request advances the clock: the delay with which SDKs send by default. Therefore a span
/// with a wrong clock, or a pause between recordings, closes no trace whose spans are in the next requests.
const MAX_STEP: Duration = Duration::from_secs(5);
/// A request that ends this many nanoseconds or more before the latest time was recorded with another clock.
const FAR_BEHIND_NANOS: u64 = 3_600_000_000_000;
/// Maximum number of consecutive requests with another clock, which may come from a service whose clock is behind.
/// After more of them another recording has begun, or the latest time was wrong.
const MAX_BEHIND_REQUESTS: u32 = 64;

/// How the traces of a recording close while it is read.
#[derive(Debug)]
pub enum Closing {
    /// Traces close by the times of their spans and the configured times; spans after that are late.
    ByTime,
    /// After their last spans.
    AfterLastSpans(TraceEnds),
}

/// A position in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the file.
    pub file: u32,
    /// Offset in its content.
    pub offset: u64,
}

/// The last position of every trace: some 50 bytes per trace.
#[derive(Debug, Default)]
pub struct TraceEnds {
    /// The last position of each trace that has not opened yet.
    last: ById<TraceId, Position>,
    /// Open traces by their last position.
    open: BTreeSet<(Position, TraceId)>,
}

impl TraceEnds {
    /// Records that a trace occurs at a position, which must not be before the previous ones.
    pub fn note(&mut self, trace: TraceId, position: Position) {
        self.last.insert(trace, position);
    }

    /// Must be called when a trace occurs in a request. A trace without a recorded position, since the file has
    /// changed, stays open until the end.
    pub(super) fn note_opened(&mut self, trace: TraceId) {
        if let Some(last) = self.last.remove(&trace) {
            self.open.insert((last, trace));
        }
    }

    /// Removes and returns the traces whose last position is before `end`.
    pub(super) fn take_ended(&mut self, end: Position) -> impl Iterator<Item = TraceId> {
        std::iter::from_fn(move || {
            self.open.first().filter(|(last, _)| *last < end)?;
            self.open.pop_first().map(|(_, trace)| trace)
        })
    }
}

/// The time of a recording, derived from its spans. It never decreases.
#[derive(Debug)]
pub(super) struct RecordingClock {
    now: Instant,
    file: u32,
    /// The largest end of a span in this file, in nanoseconds since 1970; 0 before the first.
    latest_nanos: u64,
    /// The number of consecutive requests that ended far before `latest_nanos`.
    behind_requests: u32,
}

impl RecordingClock {
    pub(super) fn new() -> RecordingClock {
        RecordingClock { now: Instant::now(), file: 0, latest_nanos: 0, behind_requests: 0 }
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Advances to the largest end of a request's spans, and returns the time. The first request of a file does not
    /// advance it, since its recording may begin at any time.
    pub(super) fn advance(&mut self, file: u32, end_nanos: u64) -> Instant {
        if end_nanos == 0 {
            return self.now;
        }
        let is_behind = end_nanos < self.latest_nanos.saturating_sub(FAR_BEHIND_NANOS);
        self.behind_requests = if is_behind { self.behind_requests + 1 } else { 0 };
        if self.latest_nanos == 0 || self.file != file || self.behind_requests >= MAX_BEHIND_REQUESTS {
            (self.file, self.latest_nanos, self.behind_requests) = (file, end_nanos, 0);
        }
        let step = Duration::from_nanos(end_nanos.saturating_sub(self.latest_nanos)).min(MAX_STEP);
        self.latest_nanos = self.latest_nanos.max(end_nanos);
        self.now = self.now.checked_add(step).unwrap_or(self.now);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;

    /// Seconds by which the ends, in seconds, advance the clock.
    fn advanced_by(file: u32, clock: &mut RecordingClock, ends: impl IntoIterator<Item = u64>) -> f64 {
        let before = clock.now();
        ends.into_iter().for_each(|end| _ = clock.advance(file, end));
        (clock.now() - before).as_secs_f64()
    }

    #[test]
    fn time_follows_the_latest_end_and_never_goes_back() {
        let clock = &mut RecordingClock::new();
        assert_eq!(advanced_by(0, clock, [DAY, DAY + 2 * SECOND, DAY + SECOND, DAY + 3 * SECOND, 0]), 3.0);
        // Another file may begin at any time.
        assert_eq!(advanced_by(1, clock, [SECOND, 2 * SECOND]), 1.0);
        assert_eq!(advanced_by(2, clock, [9 * DAY, 9 * DAY + SECOND]), 1.0);
    }

    #[test]
    fn a_jump_ahead_counts_as_one_step_and_a_wrong_time_is_discarded() {
        let clock = &mut RecordingClock::new();
        assert_eq!(advanced_by(0, clock, [DAY, DAY + 8 * 3600 * SECOND]), 5.0);
        assert_eq!(advanced_by(0, clock, [u64::MAX, 2 * DAY]), 5.0);
        let wrong = (1..63).map(|second| 2 * DAY + second * SECOND);
        assert_eq!(advanced_by(0, clock, wrong), 0.0);
        assert_eq!(advanced_by(0, clock, [2 * DAY + 63 * SECOND, 2 * DAY + 65 * SECOND]), 2.0);
    }

    #[test]
    fn a_service_whose_clock_is_behind_advances_nothing() {
        let clock = &mut RecordingClock::new();
        let turns = (0..500).map(|turn| if turn % 2 == 0 { 9 * DAY + turn * SECOND } else { turn * SECOND });
        assert_eq!(advanced_by(0, clock, turns), 498.0);
    }

    #[test]
    fn traces_end_after_their_last_position() {
        let mut ends = TraceEnds::default();
        let trace = |n: u8| TraceId([n; 16]);
        let position = |offset| Position { file: 0, offset };
        [(1, 5), (2, 7), (1, 9), (3, 20)]
            .iter()
            .for_each(|&(n, offset)| ends.note(trace(n), position(offset)));
        let mut ended = |opened: &[u8], end: u64| -> Vec<TraceId> {
            opened.iter().for_each(|&n| ends.note_opened(trace(n)));
            ends.take_ended(position(end)).collect()
        };
        assert_eq!(ended(&[1], 6), []);
        assert_eq!(ended(&[2, 1], 8), [trace(2)]);
        assert_eq!(ended(&[1, 4], 9), []);
        assert_eq!(ended(&[], 10), [trace(1)]);
        assert_eq!(ended(&[3], 30), [trace(3)]);
    }
}
