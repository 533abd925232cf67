//! Keeps the spans and logs of a partition together while a backlog is read.
//!
//! In: the times of the messages of both streams, and the ends of their topics: when the partition is assigned, and as
//! the client learns them later, since a member can fall behind at any time. Out: the stream that is to wait. A trace
//! closes by the time that has passed since its spans were read: if spans were read far ahead of logs, their logs would
//! come after the verdict.

use std::time::{Duration, Instant};

use super::stream::{PartitionStream, STREAMS};

/// Longest wait for a stream that yields no message although its end is not reached: its last messages may have been
/// deleted, or are of transactions.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest distance at which a stream waits. Clocks of senders differ.
const MIN_DISTANCE: Duration = Duration::from_secs(1);
/// How often the pace of a stream is measured.
const PACE_INTERVAL: Duration = Duration::from_secs(1);

/// How far logs may be ahead: they wait in memory, and no trace closes before its spans.
const LOGS_DISTANCE: Duration = Duration::from_secs(60);

/// How far a stream is.
#[derive(Clone, Copy, Debug)]
struct StreamProgress {
    /// After the last message that was read.
    next: i64,
    /// After the last message of the topic, as far as it is known. The broker is asked for it when the partition is
    /// assigned, and not again, since the answer waits for the fetch before it, and polling with it: later ends are
    /// those of the client's statistics.
    end: i64,
    /// Milliseconds of the last message that was read.
    time: Option<i64>,
    /// When a message was read, or could not be.
    moved: Instant,
    /// When the pace was measured, and the time of the message that was read then.
    paced: Option<(Instant, i64)>,
    /// Seconds that it takes to read the messages of a second, at least 1.
    pace: f64,
}

impl StreamProgress {
    fn measure_pace(&mut self, time: Option<i64>, now: Instant) {
        let Some(time) = time else { return };
        let (since, from) = *self.paced.get_or_insert((now, time));
        let passed = now.saturating_duration_since(since);
        if passed >= PACE_INTERVAL {
            let advanced =
                Duration::from_millis(u64::try_from(time.saturating_sub(from)).unwrap_or(0).max(1));
            self.pace = passed.div_duration_f64(advanced).max(1.0);
            self.paced = Some((now, time));
        }
    }
}

/// The backlog of both streams of a partition.
#[derive(Debug)]
pub(super) struct Backlog {
    streams: [StreamProgress; STREAMS],
}

impl Backlog {
    /// The first offsets that are read, and the ends of the topics.
    pub(super) fn new(streams: [(i64, i64); STREAMS], now: Instant) -> Backlog {
        let progress =
            |(next, end)| StreamProgress { next, end, time: None, moved: now, paced: None, pace: 1.0 };
        Backlog { streams: streams.map(progress) }
    }

    /// Notes a message.
    pub(super) fn read(&mut self, stream: PartitionStream, offset: i64, time: Option<i64>, now: Instant) {
        let progress = &mut self.streams[stream as usize];
        (progress.next, progress.time, progress.moved) = (offset + 1, time, now);
        progress.measure_pace(time, now);
    }

    /// Notes the end of a topic, as the client knows it.
    pub(super) fn ends_at(&mut self, stream: PartitionStream, end: i64, now: Instant) {
        let progress = &mut self.streams[stream as usize];
        if progress.next >= progress.end && progress.next < end {
            // The stream had nothing to read until now.
            progress.moved = now;
        }
        progress.end = progress.end.max(end);
    }

    /// Notes that nothing could be read.
    pub(super) fn paused(&mut self, now: Instant) {
        self.streams.iter_mut().for_each(|stream| stream.moved = now);
    }

    /// The stream that is ahead of the other one, which has not reached its end: spans by more than the logs of half of
    /// `quiet` take to be read, or logs by more than a minute.
    pub(super) fn ahead(&self, quiet: Duration, now: Instant) -> Option<PartitionStream> {
        let [spans, logs] = self.streams;
        let is_ahead = |progress: StreamProgress, other: StreamProgress, limit: Duration| {
            let behind = other.next < other.end && now.saturating_duration_since(other.moved) < PATIENCE;
            let exceeds_limit =
                |(time, other): (i64, i64)| i128::from(time) - i128::from(other) > limit.as_millis() as i128;
            behind
                && progress
                    .time
                    .zip(other.time)
                    .map_or(progress.time.is_some() && limit < LOGS_DISTANCE, exceeds_limit)
        };
        let distance = (quiet / 2).div_f64(logs.pace);
        if is_ahead(spans, logs, distance.max(MIN_DISTANCE).min(LOGS_DISTANCE / 2)) {
            return Some(PartitionStream::Spans);
        }
        is_ahead(logs, spans, LOGS_DISTANCE).then_some(PartitionStream::Logs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(10);

    #[test]
    fn the_stream_that_is_ahead_waits_until_the_other_has_caught_up_or_ends() {
        let now = Instant::now();
        let mut backlog = Backlog::new([(0, 1000), (7, 10)], now);
        assert_eq!(backlog.ahead(QUIET, now), None);
        // No log was read yet. Logs do not wait for the first span.
        backlog.read(PartitionStream::Spans, 0, Some(60_000), now);
        assert_eq!(backlog.ahead(QUIET, now), Some(PartitionStream::Spans));
        backlog.read(PartitionStream::Logs, 7, Some(54_999), now);
        assert_eq!(backlog.ahead(QUIET, now), Some(PartitionStream::Spans));
        backlog.read(PartitionStream::Logs, 8, Some(55_000), now);
        assert_eq!(backlog.ahead(QUIET, now), None);
        backlog.read(PartitionStream::Spans, 500, Some(600_000), now);
        assert_eq!(backlog.ahead(QUIET, now), Some(PartitionStream::Spans));
        // The last log of the backlog.
        backlog.read(PartitionStream::Logs, 9, Some(56_000), now);
        assert_eq!(backlog.ahead(QUIET, now), None);
        backlog.ends_at(PartitionStream::Logs, 11, now);
        assert_eq!(backlog.ahead(QUIET, now), Some(PartitionStream::Spans));
        backlog.read(PartitionStream::Logs, 10, Some(900_000), now);
        assert_eq!(backlog.ahead(QUIET, now), Some(PartitionStream::Logs));
        // Its messages before the end are gone; a pause is not its fault.
        let later = now + PATIENCE;
        assert_eq!(backlog.ahead(QUIET, later), None);
        backlog.paused(later);
        assert_eq!(backlog.ahead(QUIET, later), Some(PartitionStream::Logs));
        // Without a time of the message nothing is known.
        backlog.read(PartitionStream::Logs, 10, None, later);
        assert_eq!(backlog.ahead(QUIET, later), None);
    }
    #[test]
    fn a_stream_that_falls_behind_after_its_end_is_waited_for() {
        let start = Instant::now();
        let mut backlog = Backlog::new([(0, 0), (0, 0)], start);
        backlog.read(PartitionStream::Spans, 0, Some(1_000), start);
        backlog.read(PartitionStream::Logs, 0, Some(1_000), start);
        // Long afterwards: the end of logs is known before they are read.
        let now = start + PATIENCE * 2;
        backlog.read(PartitionStream::Spans, 1, Some(61_000), now);
        assert_eq!(backlog.ahead(QUIET, now), None);
        backlog.ends_at(PartitionStream::Logs, 3, now);
        assert_eq!(backlog.ahead(QUIET, now), Some(PartitionStream::Spans));
        // The statistics may be older than what was read.
        backlog.ends_at(PartitionStream::Logs, 2, now);
        backlog.read(PartitionStream::Logs, 1, Some(60_900), now);
        assert_eq!(backlog.ahead(QUIET, now), None);
    }

    #[test]
    fn spans_are_read_less_ahead_of_logs_that_are_read_slowly() {
        let start = Instant::now();
        let mut backlog = Backlog::new([(0, 100), (0, 100)], start);
        backlog.read(PartitionStream::Logs, 0, Some(0), start);
        backlog.read(PartitionStream::Spans, 0, Some(4_000), start);
        assert_eq!(backlog.ahead(QUIET, start), None, "4 seconds ahead");
        // Half a second of logs takes two: what is 4 seconds ahead would take 16 to be read.
        let now = start + Duration::from_secs(2);
        backlog.read(PartitionStream::Logs, 1, Some(500), now);
        assert_eq!(backlog.ahead(QUIET, now), Some(PartitionStream::Spans));
        backlog.read(PartitionStream::Logs, 2, Some(2_900), now);
        assert_eq!(backlog.ahead(QUIET, now), None, "1.1 seconds ahead");
    }
}
