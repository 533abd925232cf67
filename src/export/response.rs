//! The result of an export request, by OTLP's rules for both transports.
//!
//! In: the response of a destination. Out: an [`ExportResponse`].

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;

/// Maximum bytes of a response body that are read: the body contains a count and a message.
pub(super) const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Maximum characters of a destination's message that are logged.
const MAX_MESSAGE_CHARS: usize = 300;

/// A result, and its status in self-metrics.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportResponse {
    /// The label of the result in self-metrics, from a fixed set.
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
            ExportResult::Unauthorized(_) => "unauthorized",
        };
        ExportResponse { status, result }
    }
}

impl ExportResponse {
    /// The result without a response: it is unknown whether the request was accepted, so that it is retried.
    pub(super) fn without_response(status: &'static str, reason: String) -> ExportResponse {
        ExportResponse { status, result: ExportResult::Retry { after: None, reason } }
    }
}

/// The result of one request.
#[derive(Clone, PartialEq, Debug)]
pub enum ExportResult {
    /// Delivered except for `rejected` items; 0 with a message is a warning.
    Accepted { rejected: u64, message: String },
    /// Failed temporarily: the request is sent again, at the earliest after the delay that the destination requests.
    Retry { after: Option<Duration>, reason: String },
    /// Too large for the destination: the request is sent again in halves.
    TooLarge(String),
    /// A part of the request is invalid: the parcels are sent again one by one.
    Invalid(String),
    /// Rejected permanently: the items are dropped, or written to the dead letters.
    Rejected(String),
    /// The destination does not accept the signal: one request of logs or metrics is sent per probe interval.
    Unsupported(String),
    /// The destination refused the credentials: the request counts as rejected unless they are replaced soon.
    Unauthorized(String),
}

impl ExportResult {
    /// Delivered completely.
    pub const ACCEPTED: ExportResult = ExportResult::Accepted { rejected: 0, message: String::new() };

    /// Reads the response of a successful request. The encoding is the same for all signals, which differ only in the
    /// name of one field. An unreadable response counts as success, since its status is one; a negative number of
    /// rejected items counts as 0.
    pub(super) fn from_success(response: &[u8]) -> ExportResult {
        let mut decoded = ExportTraceServiceResponse::default();
        // `merge` retains the fields before an error: the count of rejected items if the message after it is not UTF-8,
        // which is an error of prost.
        let error = decoded.merge(response).err();
        let Some(partial) = decoded.partial_success else { return ExportResult::ACCEPTED };
        let message = error.map_or(partial.error_message, |error| format!("message not readable: {error}"));
        ExportResult::Accepted {
            rejected: u64::try_from(partial.rejected_spans).unwrap_or(0),
            message: one_line(&message),
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

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::{
        ExportLogsPartialSuccess, ExportLogsServiceResponse,
    };
    use opentelemetry_proto::tonic::collector::metrics::v1::{
        ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
    };
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

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
    fn responses_of_all_signals_are_read_alike() {
        let partial = ExportLogsPartialSuccess { rejected_log_records: 3, error_message: "old".into() };
        let logs = ExportLogsServiceResponse { partial_success: Some(partial) };
        let partial = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "old".into() };
        let metrics = ExportMetricsServiceResponse { partial_success: Some(partial) };
        for encoded in [response(3, "old"), logs.encode_to_vec(), metrics.encode_to_vec()] {
            let expected = ExportResult::Accepted { rejected: 3, message: "old".into() };
            assert_eq!(ExportResult::from_success(&encoded), expected);
        }
    }

    #[test]
    fn rejected_items_are_counted_although_the_message_is_not_utf8() {
        let mut encoded = response(3, "too old");
        *encoded.last_mut().unwrap() = 0xff;
        let ExportResult::Accepted { rejected, message } = ExportResult::from_success(&encoded) else {
            panic!("not accepted")
        };
        assert_eq!(rejected, 3);
        assert!(message.starts_with("message not readable: ") && message.contains("UTF-8"), "{message}");
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(one_line(&"é".repeat(1000)).chars().count(), MAX_MESSAGE_CHARS + 1);
    }
}
