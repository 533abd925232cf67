//! The signal of a request, its transport, and one encoded request.

use bytes::Bytes;

/// One of OTLP's services.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// `TraceService`, `/v1/traces`.
    Traces,
    /// `LogsService`, `/v1/logs`.
    Logs,
    /// `MetricsService`, `/v1/metrics`.
    Metrics,
}

impl Signal {
    /// In the order of `signal as usize`.
    pub const ALL: [Signal; 3] = [Signal::Traces, Signal::Logs, Signal::Metrics];

    pub fn as_str(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Logs => "logs",
            Signal::Metrics => "metrics",
        }
    }
}

/// The transport of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP.
    Http,
}

impl Transport {
    /// In the order of `transport as usize`.
    pub const ALL: [Transport; 2] = [Transport::Grpc, Transport::Http];

    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Grpc => "grpc",
            Transport::Http => "http",
        }
    }
}

/// A valid encoded request and its number of items.
#[derive(Clone, Debug)]
pub struct Piece {
    pub bytes: Bytes,
    /// Spans, log records or data points.
    pub items: u64,
}
