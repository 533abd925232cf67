//! The result of an export request by OTLP's rules, for both transports.

use std::time::Duration;

use prost::Message;
use verdict_otlp::Signal;

/// Largest part of a response body that is read, in bytes: it holds a count and a message.
pub(super) const MAX_RESPONSE: usize = 64 << 10;

/// Largest part of a destination's message that is logged, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

/// A result, and its status in self-metrics.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportResponse {
    /// One of a fixed set of words, since each is a label.
    pub status: &'static str,
    pub result: ExportResult,
}

impl From<ExportResult> for ExportResponse {
    fn from(result: ExportResult) -> ExportResponse {
        let status = match &result {
            ExportResult::Accepted { .. } => "ok",
            ExportResult::Retry { .. } => "retry",
            ExportResult::TooLarge(_) => "too_large",
            ExportResult::Invalid(_) => "invalid",
            ExportResult::Rejected(_) => "rejected",
            ExportResult::Unsupported(_) => "unsupported",
        };
        ExportResponse { status, result }
    }
}

impl ExportResponse {
    /// No response came, so it is unknown whether the request was accepted.
    pub(super) fn none(status: &'static str, reason: String) -> ExportResponse {
        ExportResponse { status, result: ExportResult::Retry { after: None, reason } }
    }
}

/// The result of one request.
#[derive(Clone, PartialEq, Debug)]
pub enum ExportResult {
    /// Delivered except for `rejected` items; 0 with a message is a warning.
    Accepted { rejected: u64, message: String },
    /// Failed; to be repeated, after at least `after` if the destination says so.
    Retry { after: Option<Duration>, reason: String },
    /// Too large, or over a quota: sent again in halves.
    TooLarge(String),
    /// A part of the request is invalid: sent again trace by trace.
    Invalid(String),
    /// Rejected permanently: dropped, or written to the dead letters.
    Rejected(String),
    /// The destination does not accept the signal: logs and metrics are not sent to it again.
    Unsupported(String),
}

/// `Export*ServiceResponse`, the same for all signals.
#[derive(Message)]
struct ServiceResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    /// A string, but not every server sends UTF-8.
    #[prost(bytes = "vec", tag = "2")]
    message: Vec<u8>,
}

/// `google.rpc.Status`
#[derive(Message)]
pub(super) struct RpcStatus {
    #[prost(bytes = "vec", tag = "2")]
    pub message: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.protobuf.Any`
#[derive(Message)]
pub(super) struct Any {
    #[prost(bytes = "vec", tag = "1")]
    pub type_url: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

impl ExportResult {
    /// Delivered completely.
    pub const ACCEPTED: ExportResult = ExportResult::Accepted { rejected: 0, message: String::new() };

    /// Reads the `Export*ServiceResponse` of a successful request. An unreadable response counts as
    /// success, as its status says; a negative number of rejected items as 0.
    pub(super) fn from_success(response: &[u8]) -> ExportResult {
        let partial = ServiceResponse::decode(response).ok().and_then(|r| r.partial_success);
        let PartialSuccess { rejected, message } = partial.unwrap_or_default();
        ExportResult::Accepted {
            rejected: u64::try_from(rejected).unwrap_or(0),
            message: one_line(&String::from_utf8_lossy(&message)),
        }
    }
}

/// A destination's message without control characters, cut for one log line.
pub(super) fn one_line(text: &str) -> String {
    let mut clean = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut out: String = clean.clone().take(MAX_MESSAGE_CHARS).collect();
    if clean.nth(MAX_MESSAGE_CHARS).is_some() {
        out.push('…');
    }
    out
}

/// The gRPC method of a signal.
pub(super) fn method(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceResponse,
    };

    use super::*;

    fn response(rejected_spans: i64, error_message: &str) -> Vec<u8> {
        let partial = ExportTracePartialSuccess { rejected_spans, error_message: error_message.into() };
        ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec()
    }

    #[test]
    fn partial_success_is_read_and_an_unreadable_response_is_success() {
        let accepted = |rejected, message: &str| ExportResult::Accepted { rejected, message: message.into() };
        assert_eq!(ExportResult::from_success(&[]), accepted(0, ""));
        assert_eq!(ExportResult::from_success(&response(3, "too\nold")), accepted(3, "too old"));
        assert_eq!(ExportResult::from_success(&response(-3, "x")), accepted(0, "x"));
        assert_eq!(ExportResult::from_success(b"\xff\xff\xff"), accepted(0, ""));
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(one_line(&"é".repeat(1000)).chars().count(), MAX_MESSAGE_CHARS + 1);
    }
}
