//! OTLP in, over gRPC and HTTP: bytes are framed, unpacked under limits, and offered to the
//! pipeline; the answer is the protocol's own.
//!
//! In: connections. Out: [`Offer`]s to an [`Intake`], and responses by OTLP's rules: malformed
//! INVALID_ARGUMENT / 400, too large RESOURCE_EXHAUSTED without RetryInfo / 413, overloaded
//! UNAVAILABLE with RetryInfo / 503 with Retry-After, partly bad `partial_success`.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

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

/// One request, unpacked: the encoded `Export*ServiceRequest` message.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Which service it was sent to.
    pub signal: Signal,
    /// The message, in an allocation of its own (a JSON request has been turned into protobuf).
    pub body: Bytes,
}

/// The request was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Spans (or records, or points) that could not be taken; 0 for full success.
    pub rejected: u64,
    /// Names them and says why; empty for full success.
    pub message: String,
}

/// The request was not taken at all, and the sender is told so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not the message it should be: INVALID_ARGUMENT / 400. Sending it again will not help.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// No room now: UNAVAILABLE with RetryInfo / 503 with Retry-After.
    #[error("overloaded, try again in {retry:?}")]
    Overloaded {
        /// When to try again.
        retry: Duration,
    },
    /// Going down: as overloaded, another instance may take it.
    #[error("shutting down")]
    ShuttingDown,
}

/// Boxed, so that receivers do not become generic over the pipeline.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Accepted, Refused>> + Send + 'a>>;

/// Where requests go. Implemented by `pipeline`.
pub trait Intake: Send + Sync + 'static {
    /// Asked before a body is read or decoded: `Some` means "refuse now, try again then".
    fn pressure(&self) -> Option<Duration>;
    /// Takes a request; returns once it is safe to acknowledge it.
    fn offer(&self, offer: Offer) -> Answer<'_>;
}
