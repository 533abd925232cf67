//! Keeps the spans and logs of a partition together while a backlog is read.
//!
//! In: the times of the messages of both streams, and the ends of their topics, which are read when the partition is
//! assigned and updated by the client's statistics, since a member can fall behind at any time. Out: the stream that
//! has to wait. A trace closes by the time that has passed since its spans were read: if spans were read far ahead of
//! logs, their logs would be read after the verdict.

use std::time::{Duration, Instant};

use super::stream::{PartitionStream, STREAMS};

/// Longest wait for a stream that yields no message although its end is not reached: its last offsets may belong to
/// deleted messages or to markers of transactions.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Shortest distance at which a stream waits, since the clocks of senders differ.
const MIN_DISTANCE: Duration = Duration::from_secs(1);
/// How often the pace of a stream is measured.
const PACE_INTERVAL: Duration = Duration::from_secs(1);

/// How far logs may be ahead of spans. Logs wait in memory for their spans, without which no trace closes.
const MAX_LOGS_DISTANCE: Duration = Duration::from_secs(60);

/// The reading position of a stream.
#[derive(Clone, Copy, Debug)]
struct StreamProgress {
    /// The offset after the last message that was read.
    next: i64,
    /// The known end of the topic: the offset after its last message. It is read from the broker when the partition is
    /// assigned, and only then, since the response waits for the preceding fetch and would block polling. Later ends
    /// are those of the client's statistics.
    end: i64,
    /// Timestamp of the last message that was read, in milliseconds since 1970.
    timestamp_ms: Option<i64>,
    /// When a message was last read, or reading was last paused.
    last_activity: Instant,
    /// When the pace was last measured, and the timestamp of the message that was read then.
    last_measurement: Option<(Instant, i64)>,
    /// Seconds needed to read the messages of one second of timestamps; at least 1.
    pace: f64,
}

impl StreamProgress {
    fn measure_pace(&mut self, timestamp_ms: Option<i64>, now: Instant) {
        let Some(timestamp_ms) = timestamp_ms else { return };
        let (measured_at, previous_ms) = *self.last_measurement.get_or_insert((now, timestamp_ms));
        let elapsed = now.saturating_duration_since(measured_at);
        if elapsed >= PACE_INTERVAL {
            let advanced_ms = u64::try_from(timestamp_ms.saturating_sub(previous_ms)).unwrap_or(0).max(1);
            self.pace = elapsed.div_duration_f64(Duration::from_millis(advanced_ms)).max(1.0);
            self.last_measurement = Some((now, timestamp_ms));
        }
    }
}

/// The backlog of both streams of a partition.
#[derive(Debug)]
pub(super) struct Backlog {
    streams: [StreamProgress; STREAMS],
}

impl Backlog {
    /// `streams` are the first offset to read and the end of the topic, by stream.
    pub(super) fn new(streams: [(i64, i64); STREAMS], now: Instant) -> Backlog {
        let progress = |(next, end)| StreamProgress {
            next,
            end,
            timestamp_ms: None,
            last_activity: now,
            last_measurement: None,
            pace: 1.0,
        };
        Backlog { streams: streams.map(progress) }
    }

    /// Records that a message was read.
    pub(super) fn note_read(
        &mut self,
        stream: PartitionStream,
        offset: i64,
        timestamp_ms: Option<i64>,
        now: Instant,
    ) {
        let progress = &mut self.streams[stream as usize];
        (progress.next, progress.timestamp_ms, progress.last_activity) = (offset + 1, timestamp_ms, now);
        progress.measure_pace(timestamp_ms, now);
    }

    /// Records the end of a topic from the client's statistics, which may be older than the last message read.
    pub(super) fn note_end(&mut self, stream: PartitionStream, end: i64, now: Instant) {
        let progress = &mut self.streams[stream as usize];
        if progress.next >= progress.end && progress.next < end {
            // The stream had nothing to read until now.
            progress.last_activity = now;
        }
        progress.end = progress.end.max(end);
    }

    /// Records that reading is paused, so that the pause does not count as an idle stream.
    pub(super) fn note_pause(&mut self, now: Instant) {
        self.streams.iter_mut().for_each(|stream| stream.last_activity = now);
    }

    /// The stream that must wait for the other one, which has not reached its end; `None` if neither must. Spans wait
    /// if reading the logs that they are ahead of would take more than half of `quiet`, logs if they are ahead by more
    /// than [`MAX_LOGS_DISTANCE`].
    pub(super) fn stream_ahead(&self, quiet: Duration, now: Instant) -> Option<PartitionStream> {
        let [spans, logs] = self.streams;
        let is_ahead = |progress: StreamProgress, other: StreamProgress, limit: Duration| {
            let other_has_messages =
                other.next < other.end && now.saturating_duration_since(other.last_activity) < MAX_WAIT;
            let exceeds_limit = |(own_ms, other_ms): (i64, i64)| {
                i128::from(own_ms) - i128::from(other_ms) > limit.as_millis() as i128
            };
            // Before the first message of the other stream, spans wait and logs do not.
            let waits_for_first = progress.timestamp_ms.is_some() && limit < MAX_LOGS_DISTANCE;
            let timestamps = progress.timestamp_ms.zip(other.timestamp_ms);
            other_has_messages && timestamps.map_or(waits_for_first, exceeds_limit)
        };
        let distance = (quiet / 2).div_f64(logs.pace);
        if is_ahead(spans, logs, distance.max(MIN_DISTANCE).min(MAX_LOGS_DISTANCE / 2)) {
            return Some(PartitionStream::Spans);
        }
        is_ahead(logs, spans, MAX_LOGS_DISTANCE).then_some(PartitionStream::Logs)
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
        assert_eq!(backlog.stream_ahead(QUIET, now), None);
        // No log was read yet. Logs do not wait for the first span.
        backlog.note_read(PartitionStream::Spans, 0, Some(60_000), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), Some(PartitionStream::Spans));
        backlog.note_read(PartitionStream::Logs, 7, Some(54_999), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), Some(PartitionStream::Spans));
        backlog.note_read(PartitionStream::Logs, 8, Some(55_000), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), None);
        backlog.note_read(PartitionStream::Spans, 500, Some(600_000), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), Some(PartitionStream::Spans));
        // The last log of the backlog.
        backlog.note_read(PartitionStream::Logs, 9, Some(56_000), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), None);
        backlog.note_end(PartitionStream::Logs, 11, now);
        assert_eq!(backlog.stream_ahead(QUIET, now), Some(PartitionStream::Spans));
        backlog.note_read(PartitionStream::Logs, 10, Some(900_000), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), Some(PartitionStream::Logs));
        // The spans before the end may be deleted, so that logs do not wait longer; a pause does not count as such a
        // wait.
        let later = now + MAX_WAIT;
        assert_eq!(backlog.stream_ahead(QUIET, later), None);
        backlog.note_pause(later);
        assert_eq!(backlog.stream_ahead(QUIET, later), Some(PartitionStream::Logs));
        // Without a timestamp of its message no stream waits.
        backlog.note_read(PartitionStream::Logs, 10, None, later);
        assert_eq!(backlog.stream_ahead(QUIET, later), None);
    }

    #[test]
    fn a_stream_that_falls_behind_after_its_end_is_waited_for() {
        let start = Instant::now();
        let mut backlog = Backlog::new([(0, 0), (0, 0)], start);
        backlog.note_read(PartitionStream::Spans, 0, Some(1_000), start);
        backlog.note_read(PartitionStream::Logs, 0, Some(1_000), start);
        // Long afterwards: the end of logs is known before they are read.
        let now = start + MAX_WAIT * 2;
        backlog.note_read(PartitionStream::Spans, 1, Some(61_000), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), None);
        backlog.note_end(PartitionStream::Logs, 3, now);
        assert_eq!(backlog.stream_ahead(QUIET, now), Some(PartitionStream::Spans));
        // The statistics may be older than what was read.
        backlog.note_end(PartitionStream::Logs, 2, now);
        backlog.note_read(PartitionStream::Logs, 1, Some(60_900), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), None);
    }

    #[test]
    fn spans_are_read_less_ahead_of_logs_that_are_read_slowly() {
        let start = Instant::now();
        let mut backlog = Backlog::new([(0, 100), (0, 100)], start);
        backlog.note_read(PartitionStream::Logs, 0, Some(0), start);
        backlog.note_read(PartitionStream::Spans, 0, Some(4_000), start);
        assert_eq!(backlog.stream_ahead(QUIET, start), None, "4 seconds ahead");
        // Half a second of logs took two seconds to read: logs of 4 seconds would take 16.
        let now = start + Duration::from_secs(2);
        backlog.note_read(PartitionStream::Logs, 1, Some(500), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), Some(PartitionStream::Spans));
        backlog.note_read(PartitionStream::Logs, 2, Some(2_900), now);
        assert_eq!(backlog.stream_ahead(QUIET, now), None, "1.1 seconds ahead");
    }
}
