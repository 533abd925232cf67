//! What assembling and judging count: open traces, closings, results of metrics, verdicts.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use verdict_otlp::trace::CloseReason;
use verdict_telemetry::declared as d;
use verdict_telemetry::histogram::{Buckets, latency_buckets};

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Counters of open and closed traces.
#[derive(Debug)]
pub struct Traces {
    /// Traces being assembled.
    pub open: Gauge,
    /// Spans held in them.
    pub buffered_spans: Gauge,
    /// Bytes of those spans.
    pub buffered_bytes: Gauge,
    /// Spans that came after their trace had closed.
    pub late: Counter,
    /// Exact resends within an open trace.
    pub duplicates: Counter,
    /// Spans that the configuration does not select.
    pub passed_through: Counter,
    /// Incoming `verdict.*` attributes taken off.
    pub attributes_replaced: Counter,
    /// Traces that went on unjudged.
    pub unjudged: Counter,
    /// Of these, traces that are quarantined.
    pub quarantined: Counter,
    /// Harmful calls told of open traces.
    pub harmful_calls: Counter,
    closed: [Counter; CloseReason::ALL.len()],
}

impl Traces {
    pub(super) fn register(registry: &mut Registry) -> Traces {
        let closed = Family::<Labels<1>, Counter>::default();
        let cells = Traces {
            open: Gauge::default(),
            buffered_spans: Gauge::default(),
            buffered_bytes: Gauge::default(),
            late: Counter::default(),
            duplicates: Counter::default(),
            passed_through: Counter::default(),
            attributes_replaced: Counter::default(),
            unjudged: Counter::default(),
            quarantined: Counter::default(),
            harmful_calls: Counter::default(),
            closed: CloseReason::ALL
                .map(|reason| closed.get_or_create_owned(&d::TRACES_CLOSED.with([reason.as_str()]))),
        };
        d::TRACES_OPEN.register(registry, cells.open.clone());
        d::BUFFERED_SPANS.register(registry, cells.buffered_spans.clone());
        d::BUFFERED_BYTES.register(registry, cells.buffered_bytes.clone());
        d::TRACES_CLOSED.register(registry, closed);
        d::SPANS_LATE.register(registry, cells.late.clone());
        d::SPANS_DUPLICATE.register(registry, cells.duplicates.clone());
        d::SPANS_PASSED.register(registry, cells.passed_through.clone());
        d::ATTRIBUTES_REPLACED.register(registry, cells.attributes_replaced.clone());
        d::TRACES_UNJUDGED.register(registry, cells.unjudged.clone());
        d::TRACES_QUARANTINED.register(registry, cells.quarantined.clone());
        d::HARMFUL_CALLS_OPEN.register(registry, cells.harmful_calls.clone());
        cells
    }

    /// A trace closed, or spans of a closed one were sent on as late.
    pub fn closed(&self, reason: CloseReason) {
        self.closed[reason as usize].inc();
    }
}

verdict_otlp::labelled_enum! {
    /// A result as telemetry counts it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Judged {
        /// At or above the threshold.
        Pass = "pass",
        /// Below it.
        Fail = "fail",
        /// There was nothing to measure, or nobody who could.
        Unmeasured = "unmeasured",
    }
}

impl From<Option<bool>> for Judged {
    /// `Some(passed)`, or `None` for unmeasured.
    fn from(passed: Option<bool>) -> Judged {
        match passed {
            Some(true) => Judged::Pass,
            Some(false) => Judged::Fail,
            None => Judged::Unmeasured,
        }
    }
}

/// Cells of one metric, to be resolved once and kept beside it.
#[derive(Clone, Debug)]
pub struct MetricCells {
    results: [Counter; Judged::ALL.len()],
    duration: Histogram,
}

impl MetricCells {
    /// One measurement ended so.
    #[inline]
    pub fn count(&self, result: Judged) {
        self.results[result as usize].inc();
    }

    /// One run took so long.
    #[inline]
    pub fn took(&self, time: Duration) {
        self.duration.observe(time.as_secs_f64());
    }
}

/// Rules cost microseconds, LLM judges seconds: factors of 4 from 1 µs to 67 s.
fn metric_buckets() -> Histogram {
    Histogram::new(std::iter::successors(Some(1e-6), |edge| Some(edge * 4.0)).take(14))
}

/// Counters of measurements and verdicts.
#[derive(Debug)]
pub struct Verdicts {
    results: Family<Labels<2>, Counter>,
    durations: Family<Labels<1>, Histogram, Buckets>,
    traces: [Counter; Judged::ALL.len()],
    close_to_export: Histogram,
}

impl Verdicts {
    pub(super) fn register(registry: &mut Registry) -> Verdicts {
        let traces = Family::<Labels<1>, Counter>::default();
        let cells = Verdicts {
            results: Family::default(),
            durations: Family::new_with_constructor(Buckets(metric_buckets)),
            traces: Judged::ALL
                .map(|result| traces.get_or_create_owned(&d::TRACE_VERDICTS.with([result.as_str()]))),
            close_to_export: latency_buckets(),
        };
        d::MEASUREMENTS.register(registry, cells.results.clone());
        d::METRIC_DURATION.register(registry, cells.durations.clone());
        d::TRACE_VERDICTS.register(registry, traces);
        d::CLOSE_TO_EXPORT.register(registry, cells.close_to_export.clone());
        cells
    }

    /// The cells of one metric, by its name. Looked up under a lock: resolve once, not per span.
    pub fn metric(&self, name: &'static str) -> MetricCells {
        MetricCells {
            results: Judged::ALL.map(|result| {
                self.results.get_or_create_owned(&d::MEASUREMENTS.with([name, result.as_str()]))
            }),
            duration: self.durations.get_or_create_owned(&d::METRIC_DURATION.with([name])),
        }
    }

    /// A trace's verdict was made.
    pub fn trace(&self, result: Judged) {
        self.traces[result as usize].inc();
    }

    /// A closed trace reached the exporters' queues after so long.
    pub fn close_to_export(&self, time: Duration) {
        self.close_to_export.observe(time.as_secs_f64());
    }
}
