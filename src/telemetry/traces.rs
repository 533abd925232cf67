//! Counters of assembly and evaluation: open traces, closed traces, results of metrics, verdicts.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use verdict_eval::alarms::AlarmCause;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::path::PathDecision;
use verdict_otlp::trace::CloseReason;
use verdict_telemetry::declared as d;
use verdict_telemetry::histogram::{Buckets, latency_buckets};

type Labels<const N: usize> = [(&'static str, &'static str); N];

verdict_telemetry::registered! { registry =>
    /// Counters of open and closed traces.
    #[derive(Debug)]
    pub struct TraceMetrics {
        /// Traces being assembled.
        pub open: Gauge = d::TRACES_OPEN.register_new(registry),
        /// Spans of open traces.
        pub buffered_spans: Gauge = d::BUFFERED_SPANS.register_new(registry),
        /// Bytes of these spans.
        pub buffered_bytes: Gauge = d::BUFFERED_BYTES.register_new(registry),
        /// Bytes that wait for a shard.
        pub in_transit_bytes: Gauge = d::IN_TRANSIT_BYTES.register_new(registry),
        /// Bytes of closed traces that are not delivered yet.
        pub closed_bytes: Gauge = d::CLOSED_BYTES.register_new(registry),
        /// Spans that arrived after their trace had closed.
        pub late: Counter = d::SPANS_LATE.register_new(registry),
        /// Exact resends within an open trace.
        pub duplicates: Counter = d::SPANS_DUPLICATE.register_new(registry),
        /// Spans that the configuration does not select.
        pub passed_through: Counter = d::SPANS_PASSED.register_new(registry),
        /// Incoming `verdict.*` attributes that were removed.
        pub attributes_replaced: Counter = d::ATTRIBUTES_REPLACED.register_new(registry),
        /// Traces that were exported without evaluation.
        pub unjudged: Counter = d::TRACES_UNJUDGED.register_new(registry),
        /// Unjudged traces that are quarantined.
        pub quarantined: Counter = d::TRACES_QUARANTINED.register_new(registry),
        /// Harmful calls reported in open traces.
        pub harmful_calls: Counter = d::HARMFUL_CALLS_OPEN.register_new(registry),
        /// Reports of harmful calls that were retracted.
        pub harmful_calls_retracted: Counter = d::HARMFUL_CALLS_RETRACTED.register_new(registry),
        /// Traces that closed before they were examined for alarms, or before the result was known.
        pub alarm_checks_skipped: Counter = d::ALARM_CHECKS_SKIPPED.register_new(registry),
        alarms: [Counter; AlarmCause::ALL.len()] =
            d::ALARMS_OPEN.register_cells(registry, AlarmCause::ALL.map(AlarmCause::as_str)),
        path_decisions: [Counter; PathDecision::ALL.len()] =
            d::PATH_DECISIONS.register_cells(registry, PathDecision::ALL.map(PathDecision::as_str)),
        closed: [Counter; CloseReason::ALL.len()] =
            d::TRACES_CLOSED.register_cells(registry, CloseReason::ALL.map(CloseReason::as_str)),
    }
}

impl TraceMetrics {
    /// Counts a closed trace, or late spans of one that were exported.
    pub fn count_closed(&self, reason: CloseReason) {
        self.closed[reason as usize].inc();
    }

    /// The counter of loops and exceeded limits of open traces with this cause.
    pub fn alarm(&self, cause: AlarmCause) -> &Counter {
        &self.alarms[cause as usize]
    }

    /// The counter of answers of the paths API with this decision.
    pub fn path_decision(&self, decision: PathDecision) -> &Counter {
        &self.path_decisions[decision as usize]
    }
}

verdict_otlp::labelled_enum! {
    /// The result of a measurement or a trace.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ResultLabel {
        /// At or above the threshold.
        Pass = "pass",
        /// Below the threshold.
        Fail = "fail",
        /// Without a value.
        Unmeasured = "unmeasured",
    }
}

impl From<Option<bool>> for ResultLabel {
    /// `Some(passed)`, or `None` for unmeasured.
    fn from(passed: Option<bool>) -> ResultLabel {
        match passed {
            Some(true) => ResultLabel::Pass,
            Some(false) => ResultLabel::Fail,
            None => ResultLabel::Unmeasured,
        }
    }
}

/// Cells of one metric. Looked up once and kept by the caller.
#[derive(Clone, Debug)]
pub struct MetricCells {
    results: [Counter; ResultLabel::ALL.len()],
    /// Unmeasured results that exceeded the work budget of their trace.
    pub limited: Counter,
    duration: Histogram,
}

impl MetricCells {
    /// Counts one measurement.
    #[inline]
    pub fn count(&self, result: ResultLabel) {
        self.results[result as usize].inc();
    }

    /// Records the duration of one run over a trace.
    #[inline]
    pub fn record_duration(&self, time: Duration) {
        self.duration.observe(time.as_secs_f64());
    }
}

/// Rules take microseconds, LLM judges seconds: factors of 4 from 1 µs to 67 s.
fn metric_buckets() -> Histogram {
    Histogram::new(std::iter::successors(Some(1e-6), |edge| Some(edge * 4.0)).take(14))
}

/// Counters of measurements and verdicts.
#[derive(Debug)]
pub struct VerdictMetrics {
    results: Family<Labels<2>, Counter>,
    limited: Family<Labels<1>, Counter>,
    unmeasured: [Counter; Unmeasured::ALL.len()],
    durations: Family<Labels<1>, Histogram, Buckets>,
    traces: [Counter; ResultLabel::ALL.len()],
    close_to_export: Histogram,
}

impl VerdictMetrics {
    pub(super) fn register(registry: &mut Registry) -> VerdictMetrics {
        let cells = VerdictMetrics {
            results: d::MEASUREMENTS.register_new(registry),
            limited: d::MEASUREMENTS_LIMITED.register_new(registry),
            unmeasured: d::MEASUREMENTS_UNMEASURED
                .register_cells(registry, Unmeasured::ALL.map(Unmeasured::as_str)),
            durations: Family::new_with_constructor(Buckets(metric_buckets)),
            traces: d::TRACE_VERDICTS.register_cells(registry, ResultLabel::ALL.map(ResultLabel::as_str)),
            close_to_export: latency_buckets(),
        };
        d::METRIC_DURATION.register(registry, cells.durations.clone());
        d::CLOSE_TO_EXPORT.register(registry, cells.close_to_export.clone());
        cells
    }

    /// The cells of one metric, by name. Takes a lock: call it once per metric, not per span.
    pub fn metric(&self, name: &'static str) -> MetricCells {
        MetricCells {
            results: ResultLabel::ALL.map(|result| {
                self.results.get_or_create_owned(&d::MEASUREMENTS.label_pairs([name, result.as_str()]))
            }),
            limited: self.limited.get_or_create_owned(&d::MEASUREMENTS_LIMITED.label_pairs([name])),
            duration: self.durations.get_or_create_owned(&d::METRIC_DURATION.label_pairs([name])),
        }
    }

    /// Counts a measurement without a value.
    #[inline]
    pub fn count_unmeasured(&self, reason: Unmeasured) {
        self.unmeasured[reason as usize].inc();
    }

    /// Counts the verdict of a trace.
    pub fn count_trace(&self, result: ResultLabel) {
        self.traces[result as usize].inc();
    }

    /// Records the time from the close of a trace to its entry in the exporters' queues.
    pub fn record_close_to_export(&self, time: Duration) {
        self.close_to_export.observe(time.as_secs_f64());
    }
}
