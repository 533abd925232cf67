//! A gauge of requests or questions that are in progress.

use prometheus_client::metrics::gauge::Gauge;

/// Increments a gauge until it is dropped.
pub(crate) struct GaugeGuard<'a>(&'a Gauge);

impl<'a> GaugeGuard<'a> {
    pub(crate) fn inc(gauge: &'a Gauge) -> GaugeGuard<'a> {
        gauge.inc();
        GaugeGuard(gauge)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
