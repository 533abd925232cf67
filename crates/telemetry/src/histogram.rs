//! Histogram buckets that several metrics share.

use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;

/// Buckets for latencies, in seconds: from the evaluation of a small trace to the timeout of a judge.
pub fn latency_buckets() -> Histogram {
    Histogram::new([0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0])
}

/// Constructs the histograms of a family.
#[derive(Clone, Debug)]
pub struct Buckets(pub fn() -> Histogram);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        (self.0)()
    }
}

/// A histogram family with buckets for network latencies.
pub fn latency_family<S: Clone + std::hash::Hash + Eq>() -> Family<S, Histogram, Buckets> {
    Family::new_with_constructor(Buckets(latency_buckets))
}
