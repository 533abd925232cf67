//! Which of OTLP's services a request is for, by which transport it came, and one encoded request.

use bytes::Bytes;

/// Which of OTLP's services.
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
    /// All of them; the position is `signal as usize`.
    pub const ALL: [Signal; 3] = [Signal::Traces, Signal::Logs, Signal::Metrics];

    /// The word for it in labels and configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Logs => "logs",
            Signal::Metrics => "metrics",
        }
    }
}

/// How a request came in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP.
    Http,
}

impl Transport {
    /// Both; the position is `transport as usize`.
    pub const ALL: [Transport; 2] = [Transport::Grpc, Transport::Http];

    /// The word for it in labels and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Grpc => "grpc",
            Transport::Http => "http",
        }
    }
}

/// A legal request, and how many items it holds.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The encoded message.
    pub bytes: Bytes,
    /// Spans (or log records, or data points) in it.
    pub items: u64,
}
