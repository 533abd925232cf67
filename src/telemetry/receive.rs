//! What the receivers and the intake count. Every cell is resolved once, so that counting is
//! one atomic addition.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use verdict_otlp::{Signal, Transport};
use verdict_telemetry::declared as d;

type Labels<const N: usize> = [(&'static str, &'static str); N];

verdict_otlp::labelled_enum! {
    /// How a request was answered.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum RequestOutcome {
        /// All of it was taken.
        Accepted = "accepted",
        /// Taken but for some items, which the answer names.
        Partial = "partial",
        /// Not the message (or the compression, or the framing) that it claimed to be.
        Malformed = "malformed",
        /// Larger than the configured limit, before or after decompression.
        TooLarge = "too_large",
        /// No room; the sender was asked to try again.
        Overloaded = "overloaded",
        /// The process is going down; the sender was asked to try again.
        ShuttingDown = "shutting_down",
        /// An encoding or content type that is not served, or a signal that no exporter takes.
        Unsupported = "unsupported",
        /// The sender went away, or did not send the body in time.
        CutOff = "cut_off",
        /// Without credentials, or with some that are not known.
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

/// Counters of the receiving side.
#[derive(Debug)]
pub struct ReceiveMetrics {
    /// By transport, then by signal.
    routes: [[Route; Signal::ALL.len()]; Transport::ALL.len()],
    connections: [Gauge; Transport::ALL.len()],
    handshakes_failed: [Counter; Transport::ALL.len()],
    /// Bytes of requests being received or waiting for their acknowledgement.
    pub held_bytes: Gauge,
    /// Spans in requests that were decoded.
    pub spans_received: Counter,
    /// Spans taken and acknowledged.
    pub spans_accepted: Counter,
    refused: Family<Labels<1>, Counter>,
}

impl ReceiveMetrics {
    pub(super) fn register(registry: &mut Registry) -> ReceiveMetrics {
        let requests = Family::<Labels<3>, Counter>::default();
        let bytes = Family::<Labels<2>, Counter>::default();
        let rejected = Family::<Labels<2>, Counter>::default();
        let connections = Family::<Labels<1>, Gauge>::default();
        let failed = Family::<Labels<1>, Counter>::default();
        let cells = ReceiveMetrics {
            routes: Transport::ALL.map(|transport| {
                Signal::ALL.map(|signal| {
                    let route = [transport.as_str(), signal.as_str()];
                    Route {
                        outcomes: RequestOutcome::ALL.map(|outcome| {
                            let labels = [route[0], route[1], outcome.as_str()];
                            requests.get_or_create_owned(&d::REQUESTS.with(labels))
                        }),
                        bytes: bytes.get_or_create_owned(&d::BODY_BYTES.with(route)),
                        rejected: rejected.get_or_create_owned(&d::ITEMS_REJECTED.with(route)),
                    }
                })
            }),
            connections: Transport::ALL
                .map(|t| connections.get_or_create_owned(&d::CONNECTIONS.with([t.as_str()]))),
            handshakes_failed: Transport::ALL
                .map(|t| failed.get_or_create_owned(&d::HANDSHAKES_FAILED.with([t.as_str()]))),
            held_bytes: Gauge::default(),
            spans_received: Counter::default(),
            spans_accepted: Counter::default(),
            refused: Family::default(),
        };
        d::REQUESTS.register(registry, requests);
        d::BODY_BYTES.register(registry, bytes);
        d::CONNECTIONS.register(registry, connections);
        d::HANDSHAKES_FAILED.register(registry, failed);
        d::HELD_BYTES.register(registry, cells.held_bytes.clone());
        d::SPANS_RECEIVED.register(registry, cells.spans_received.clone());
        d::SPANS_ACCEPTED.register(registry, cells.spans_accepted.clone());
        d::SPANS_REFUSED.register(registry, cells.refused.clone());
        d::ITEMS_REJECTED.register(registry, rejected);
        cells
    }

    fn route(&self, transport: Transport, signal: Signal) -> &Route {
        &self.routes[transport as usize][signal as usize]
    }

    /// A request was answered so.
    pub fn request(&self, transport: Transport, signal: Signal, outcome: RequestOutcome) {
        self.route(transport, signal).outcomes[outcome as usize].inc();
    }

    /// A message of so many bytes was offered to the pipeline.
    pub fn body(&self, transport: Transport, signal: Signal, bytes: usize) {
        self.route(transport, signal).bytes.inc_by(bytes as u64);
    }

    /// A partial success named so many items.
    pub fn rejected(&self, transport: Transport, signal: Signal, items: u64) {
        self.route(transport, signal).rejected.inc_by(items);
    }

    /// The gauge of a transport's open connections.
    pub fn connections(&self, transport: Transport) -> &Gauge {
        &self.connections[transport as usize]
    }

    /// How often a transport's TLS handshake failed.
    pub fn handshakes_failed(&self, transport: Transport) -> &Counter {
        &self.handshakes_failed[transport as usize]
    }

    /// So many spans were refused; `reason` is one of a fixed few words.
    pub fn refused(&self, reason: &'static str, spans: u64) {
        self.refused.get_or_create(&d::SPANS_REFUSED.with([reason])).inc_by(spans);
    }
}
