//! The signal of a request, its transport, and one encoded request.

use bytes::Bytes;

crate::labelled_enum! {
    /// One of OTLP's services.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Signal {
        /// `TraceService`, `/v1/traces`.
        Traces = "traces",
        /// `LogsService`, `/v1/logs`.
        Logs = "logs",
        /// `MetricsService`, `/v1/metrics`.
        Metrics = "metrics",
    }
}

impl Signal {
    /// The path of the gRPC method that exports it.
    pub const fn grpc_method(self) -> &'static str {
        match self {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        }
    }
}

crate::labelled_enum! {
    /// The transport of a request.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Transport {
        /// OTLP/gRPC.
        Grpc = "grpc",
        /// OTLP/HTTP.
        Http = "http",
    }
}

/// A valid encoded request and the number of its items.
#[derive(Clone, Debug)]
pub struct Piece {
    pub bytes: Bytes,
    /// Spans, log records or data points.
    pub items: u64,
}
