//! Counters of the receivers and the intake. Every cell is looked up once, so that counting is one atomic
//! addition.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use verdict_otlp::{Signal, Transport};
use verdict_telemetry::declared as d;

type Labels<const N: usize> = [(&'static str, &'static str); N];

verdict_otlp::labelled_enum! {
    /// The response to a request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum RequestOutcome {
        /// All items were accepted.
        Accepted = "accepted",
        /// Some items were rejected; the response names them.
        Partial = "partial",
        /// The message, the compression or the framing is invalid.
        Malformed = "malformed",
        /// Larger than the configured limit, before or after decompression.
        TooLarge = "too_large",
        /// A limit on memory or queues is reached; the sender was asked to retry.
        Overloaded = "overloaded",
        /// The process is shutting down; the sender was asked to retry.
        ShuttingDown = "shutting_down",
        /// An unsupported encoding or content type, or a signal without an exporter.
        Unsupported = "unsupported",
        /// The sender closed the connection, or did not send the body in time.
        CutOff = "cut_off",
        /// Credentials are missing or unknown.
        Unauthenticated = "unauthenticated",
    }
}

/// Cells of one transport and signal.
#[derive(Debug)]
struct Route {
    outcomes: [Counter; RequestOutcome::ALL.len()],
    bytes: Counter,
    rejected: Counter,
}

/// Counters of the receivers.
#[derive(Debug)]
pub struct ReceiveMetrics {
    /// The counters of each transport and signal.
    routes: [[Route; Signal::ALL.len()]; Transport::ALL.len()],
    connections: [Gauge; Transport::ALL.len()],
    handshakes_failed: [Counter; Transport::ALL.len()],
    /// Bytes of requests being received or waiting for their acknowledgement.
    pub held_bytes: Gauge,
    /// Spans of decoded requests.
    pub spans_received: Counter,
    /// Spans accepted and acknowledged.
    pub spans_accepted: Counter,
    refused: Family<Labels<1>, Counter>,
}

impl ReceiveMetrics {
    pub(super) fn register(registry: &mut Registry) -> ReceiveMetrics {
        let requests: Family<Labels<3>, Counter> = d::REQUESTS.register_new(registry);
        let bytes: Family<Labels<2>, Counter> = d::BODY_BYTES.register_new(registry);
        let rejected: Family<Labels<2>, Counter> = d::ITEMS_REJECTED.register_new(registry);
        let transports = Transport::ALL.map(Transport::as_str);
        ReceiveMetrics {
            routes: transports.map(|transport| {
                Signal::ALL.map(|signal| {
                    let route = [transport, signal.as_str()];
                    Route {
                        outcomes: RequestOutcome::ALL.map(|outcome| {
                            let labels = [transport, signal.as_str(), outcome.as_str()];
                            requests.get_or_create_owned(&d::REQUESTS.label_pairs(labels))
                        }),
                        bytes: bytes.get_or_create_owned(&d::BODY_BYTES.label_pairs(route)),
                        rejected: rejected.get_or_create_owned(&d::ITEMS_REJECTED.label_pairs(route)),
                    }
                })
            }),
            connections: d::CONNECTIONS.register_cells(registry, transports),
            handshakes_failed: d::HANDSHAKES_FAILED.register_cells(registry, transports),
            held_bytes: d::HELD_BYTES.register_new(registry),
            spans_received: d::SPANS_RECEIVED.register_new(registry),
            spans_accepted: d::SPANS_ACCEPTED.register_new(registry),
            refused: d::SPANS_REFUSED.register_new(registry),
        }
    }

    fn route(&self, transport: Transport, signal: Signal) -> &Route {
        &self.routes[transport as usize][signal as usize]
    }

    /// Counts a response.
    pub fn count_request(&self, transport: Transport, signal: Signal, outcome: RequestOutcome) {
        self.route(transport, signal).outcomes[outcome as usize].inc();
    }

    /// Counts the bytes of a message that is offered to the pipeline.
    pub fn count_body(&self, transport: Transport, signal: Signal, bytes: usize) {
        self.route(transport, signal).bytes.inc_by(bytes as u64);
    }

    /// Counts items that a partial success rejected.
    pub fn count_rejected(&self, transport: Transport, signal: Signal, items: u64) {
        self.route(transport, signal).rejected.inc_by(items);
    }

    /// The gauge of a transport's open connections.
    pub fn connections(&self, transport: Transport) -> &Gauge {
        &self.connections[transport as usize]
    }

    /// The counter of a transport's failed TLS handshakes.
    pub fn handshakes_failed(&self, transport: Transport) -> &Counter {
        &self.handshakes_failed[transport as usize]
    }

    /// Counts refused spans. `reason` is one of a fixed set.
    pub fn count_refused(&self, reason: &'static str, spans: u64) {
        self.refused.get_or_create(&d::SPANS_REFUSED.label_pairs([reason])).inc_by(spans);
    }
}
