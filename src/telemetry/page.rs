//! Gauges and counters of the live page.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use verdict_telemetry::declared as d;

verdict_otlp::labelled_enum! {
    /// Why a request to the live page was refused.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum PageRefusal {
        /// Credentials are missing or unknown.
        Credentials = "credentials",
        /// The requested host is not a name of the listener.
        Host = "host",
        /// Too many streams of updates are open.
        Clients = "clients",
    }
}

verdict_telemetry::registered! { registry =>
    /// Metrics of the live page; all stay 0 without it. Clones share their values.
    #[derive(Clone, Debug)]
    pub struct PageMetrics {
        /// Evaluated traces in the history.
        pub traces: Gauge = d::PAGE_TRACES.register_new(registry),
        /// Bytes of these traces.
        pub bytes: Gauge = d::PAGE_BYTES.register_new(registry),
        /// Evaluated traces that are not in the history.
        pub skipped: Counter = d::PAGE_SKIPPED.register_new(registry),
        /// Open streams of updates.
        pub clients: Gauge = d::PAGE_CLIENTS.register_new(registry),
        /// Streams that were closed because their client read too slowly.
        pub slow: Counter = d::PAGE_SLOW.register_new(registry),
        /// Refused requests, by reason.
        pub refused: [Counter; PageRefusal::ALL.len()] =
            d::PAGE_REFUSED.register_cells(registry, PageRefusal::ALL.map(PageRefusal::as_str)),
    }
}

/// Metrics that no registry exposes.
impl Default for PageMetrics {
    fn default() -> PageMetrics {
        PageMetrics::register(&mut Registry::default())
    }
}
