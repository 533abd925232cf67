//! Metrics of the Kafka receiver.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use verdict_otlp::Signal;
use verdict_telemetry::declared as d;

verdict_otlp::labelled_enum! {
    /// The outcome of a message.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum MessageOutcome {
        /// All of its items were accepted.
        Accepted = "accepted",
        /// Malformed items were rejected.
        Partial = "partial",
        /// The message is not OTLP.
        Malformed = "malformed",
        /// No exporter accepts its signal.
        Undeliverable = "undeliverable",
        /// The message is larger than `max_message_size`.
        TooLarge = "too_large",
        /// The previous owner of the partition has exported all of it.
        Skipped = "skipped",
    }
}

verdict_otlp::labelled_enum! {
    /// The result of a commit.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum CommitResult {
        /// The coordinator has accepted the offset.
        Committed = "committed",
        /// The coordinator has not accepted the offset.
        Failed = "failed",
        /// The metadata that must be committed with the offset is too large.
        Deferred = "deferred",
    }
}

/// Counters and gauges of the Kafka receiver.
#[derive(Debug)]
pub struct KafkaMetrics {
    /// The received records, by signal (traces, logs) and outcome.
    records: [[Counter; MessageOutcome::ALL.len()]; 2],
    bytes: [Counter; 2],
    commits: [Counter; CommitResult::ALL.len()],
    replayed: Counter,
    assigned: Gauge,
    paused: Gauge,
    uncommitted: Gauge,
}

impl KafkaMetrics {
    pub(super) fn register(registry: &mut Registry) -> KafkaMetrics {
        use prometheus_client::metrics::family::Family;
        let records: Family<[(&'static str, &'static str); 2], Counter> =
            d::KAFKA_RECORDS.register_new(registry);
        let signals = [Signal::Traces, Signal::Logs].map(Signal::as_str);
        KafkaMetrics {
            records: signals.map(|signal| {
                MessageOutcome::ALL.map(|outcome| {
                    records.get_or_create_owned(&d::KAFKA_RECORDS.label_pairs([signal, outcome.as_str()]))
                })
            }),
            bytes: d::KAFKA_BYTES.register_cells(registry, signals),
            commits: d::KAFKA_COMMITS.register_cells(registry, CommitResult::ALL.map(CommitResult::as_str)),
            replayed: d::KAFKA_REPLAYED.register_new(registry),
            assigned: d::KAFKA_ASSIGNED.register_new(registry),
            paused: d::KAFKA_PAUSED.register_new(registry),
            uncommitted: d::KAFKA_UNCOMMITTED.register_new(registry),
        }
    }

    /// Counts a message.
    pub fn count_message(&self, signal: Signal, outcome: MessageOutcome, bytes: usize) {
        let signal = usize::from(signal != Signal::Traces);
        self.records[signal][outcome as usize].inc();
        self.bytes[signal].inc_by(bytes as u64);
    }

    /// Messages of this outcome.
    pub fn records(&self, signal: Signal, outcome: MessageOutcome) -> u64 {
        self.records[usize::from(signal != Signal::Traces)][outcome as usize].get()
    }

    /// Counts a commit.
    pub fn count_commit(&self, result: CommitResult) {
        self.commits[result as usize].inc();
    }

    /// Counts traces that the next owner of a partition evaluates again.
    pub fn count_replayed(&self, traces: u64) {
        self.replayed.inc_by(traces);
    }

    /// Sets the number of partitions, and of those that are paused, and their uncommitted records.
    pub fn set_partitions(&self, assigned: usize, paused: usize, uncommitted: u64) {
        self.assigned.set(i64::try_from(assigned).unwrap_or(i64::MAX));
        self.paused.set(i64::try_from(paused).unwrap_or(i64::MAX));
        self.uncommitted.set(i64::try_from(uncommitted).unwrap_or(i64::MAX));
    }
}
