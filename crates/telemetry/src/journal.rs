//! Self-metrics of the journal.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::declared as d;
use crate::histogram::latency_buckets;

crate::registered! { registry =>
    /// Metrics of the journal, described in [`declared`](d); all stay 0 without `storage.directory`.
    /// Clones share their values.
    #[derive(Clone, Debug)]
    pub struct JournalMetrics {
        pub bytes: Gauge = d::JOURNAL_BYTES.register_new(registry),
        /// The limit of `bytes`.
        pub max_bytes: Gauge = d::JOURNAL_MAX_BYTES.register_new(registry),
        pub live_bytes: Gauge = d::JOURNAL_LIVE_BYTES.register_new(registry),
        pub segments: Gauge = d::JOURNAL_SEGMENTS.register_new(registry),
        pub written: Counter = d::JOURNAL_WRITTEN.register_new(registry),
        pub refused: Counter = d::JOURNAL_REFUSED.register_new(registry),
        pub errors: Counter = d::JOURNAL_ERRORS.register_new(registry),
        pub corrupt: Counter = d::JOURNAL_CORRUPT.register_new(registry),
        pub recovered: Counter = d::JOURNAL_RECOVERED.register_new(registry),
        pub sync_duration: Histogram = d::JOURNAL_SYNC_DURATION.register(registry, latency_buckets()),
        pub dead_letter_bytes: Gauge = d::DEAD_LETTER_BYTES.register_new(registry),
    }
}
