//! What the journal tells of itself.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::declared as d;

/// Counters of the journal; all stay 0 without `storage.directory`. Clones share their cells.
#[derive(Clone, Debug)]
pub struct JournalMetrics {
    /// Bytes of the log.
    pub bytes: Gauge,
    /// Bytes of records that are held.
    pub live_bytes: Gauge,
    /// Files of the log.
    pub segments: Gauge,
    /// Bytes written since the start.
    pub written: Counter,
    /// Requests refused since the log was full.
    pub refused: Counter,
    /// Writes, forces to the disk and deletions that failed.
    pub errors: Counter,
    /// Damaged places found at start.
    pub corrupt: Counter,
    /// Records taken up at start.
    pub recovered: Counter,
    /// Bytes of dead-letter files.
    pub dead_letter_bytes: Gauge,
    /// How long forcing to the disk took.
    pub sync_duration: Histogram,
}

impl JournalMetrics {
    /// Registers every cell.
    pub fn register(registry: &mut Registry) -> JournalMetrics {
        let cells = JournalMetrics {
            bytes: Gauge::default(),
            live_bytes: Gauge::default(),
            segments: Gauge::default(),
            written: Counter::default(),
            refused: Counter::default(),
            errors: Counter::default(),
            corrupt: Counter::default(),
            recovered: Counter::default(),
            dead_letter_bytes: Gauge::default(),
            sync_duration: super::histogram::latency_buckets(),
        };
        d::JOURNAL_BYTES.register(registry, cells.bytes.clone());
        d::JOURNAL_LIVE_BYTES.register(registry, cells.live_bytes.clone());
        d::JOURNAL_SEGMENTS.register(registry, cells.segments.clone());
        d::JOURNAL_WRITTEN.register(registry, cells.written.clone());
        d::JOURNAL_REFUSED.register(registry, cells.refused.clone());
        d::JOURNAL_ERRORS.register(registry, cells.errors.clone());
        d::JOURNAL_CORRUPT.register(registry, cells.corrupt.clone());
        d::JOURNAL_RECOVERED.register(registry, cells.recovered.clone());
        d::JOURNAL_SYNC_DURATION.register(registry, cells.sync_duration.clone());
        d::DEAD_LETTER_BYTES.register(registry, cells.dead_letter_bytes.clone());
        cells
    }
}
