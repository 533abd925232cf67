//! The result of an export request by OTLP's rules, for both transports.

use std::time::Duration;

use verdict_otlp::{Fields, Payload, Signal};

/// Largest part of a response body that is read, in bytes: it holds a count and a message.
pub(super) const MAX_RESPONSE: usize = 64 << 10;

/// Largest part of a destination's message that is logged, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

/// A result, and its status in metrics.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ExportResponse {
    pub status: &'static str,
    pub result: ExportResult,
}

impl ExportResponse {
    /// No response came, so it is unknown whether the request was accepted.
    pub fn none(status: &'static str, reason: String) -> ExportResponse {
        ExportResponse { status, result: ExportResult::Retry { after: None, reason } }
    }
}

/// The result of one request.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum ExportResult {
    /// Accepted except for `rejected` items; 0 with a message is a warning.
    Accepted { rejected: u64, message: String },
    /// To be repeated, after at least `after` if the destination says so.
    Retry { after: Option<Duration>, reason: String },
    /// Too large, or over a quota: a part of the request may be accepted.
    TooLarge(String),
    /// A part of the request is invalid: the rest may be accepted.
    Invalid(String),
    /// Rejected permanently.
    Rejected(String),
    /// The destination does not accept the signal.
    Unsupported(String),
}

impl ExportResult {
    /// Reads the `Export*ServiceResponse` of a successful request. An unreadable response counts as
    /// success, as its status says.
    pub fn from_success(response: &[u8]) -> ExportResult {
        let mut rejected = 0;
        let mut message = String::new();
        for field in Fields::new(response).map_while(Result::ok) {
            if let (1, Payload::Bytes(partial)) = (field.number, field.payload) {
                for field in Fields::new(partial).map_while(Result::ok) {
                    match (field.number, field.payload) {
                        // An int64; a negative value counts as 0.
                        (1, Payload::Varint(n)) => {
                            rejected = u64::try_from(n.cast_signed()).unwrap_or(0);
                        }
                        (2, Payload::Bytes(text)) => message = one_line(&String::from_utf8_lossy(text)),
                        _ => {}
                    }
                }
            }
        }
        ExportResult::Accepted { rejected, message }
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
    use prost::Message;

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
