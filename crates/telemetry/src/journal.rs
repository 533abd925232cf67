//! Self-metrics of the journal.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::declared as d;

/// Metrics of the journal, described in [`declared`](d); all stay 0 without `storage.directory`.
/// Clones share their values.
#[derive(Clone, Debug)]
pub struct JournalMetrics {
    pub bytes: Gauge,
    pub live_bytes: Gauge,
    pub segments: Gauge,
    pub written: Counter,
    pub refused: Counter,
    pub errors: Counter,
    pub corrupt: Counter,
    pub recovered: Counter,
    pub sync_duration: Histogram,
    pub dead_letter_bytes: Gauge,
}

impl JournalMetrics {
    pub fn register(registry: &mut Registry) -> JournalMetrics {
        let sync_duration = crate::histogram::latency_buckets();
        d::JOURNAL_SYNC_DURATION.register(registry, sync_duration.clone());
        JournalMetrics {
            bytes: d::JOURNAL_BYTES.register_new(registry),
            live_bytes: d::JOURNAL_LIVE_BYTES.register_new(registry),
            segments: d::JOURNAL_SEGMENTS.register_new(registry),
            written: d::JOURNAL_WRITTEN.register_new(registry),
            refused: d::JOURNAL_REFUSED.register_new(registry),
            errors: d::JOURNAL_ERRORS.register_new(registry),
            corrupt: d::JOURNAL_CORRUPT.register_new(registry),
            recovered: d::JOURNAL_RECOVERED.register_new(registry),
            sync_duration,
            dead_letter_bytes: d::DEAD_LETTER_BYTES.register_new(registry),
        }
    }
}
