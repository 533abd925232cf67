//! Failures of requests to judges.
//!
//! In: an HTTP status, the body of an error. Out: a [`Failure`] with the type of the server's error and its
//! message. Messages quote keys and prompts: they are redacted before they are shown ([`crate::server_message`]).

use std::time::Duration;

use serde_json::Value;
use verdict_eval::metrics::Unmeasured;

use crate::server_message::ServerMessage;

/// Largest length of an error type.
const MAX_ERROR_TYPE: usize = 64;

/// A request to a judge failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The label in self-metrics and logs: one of a fixed set of words.
    pub status: &'static str,
    pub kind: FailureKind,
    /// The server's `Retry-After`. It applies to all requests to this judge.
    pub retry_after: Option<Duration>,
    /// The error type in the server's response; letters, digits, `_`, `-` and `.` only.
    pub error_type: String,
    pub(crate) message: ServerMessage,
}

/// The kind of a failure, which determines whether the request is retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The server is unreachable or broken. Retried.
    Unavailable,
    /// No reply in time. Retried; the prompt counts as spent, since the server may have processed it.
    Timeout,
    /// The server limits the rate of requests. Retried.
    RateLimited,
    /// Key, address or model is wrong, so that every request fails. Not retried.
    Misconfigured,
    /// The server refuses this request: it is too long, or has an unknown parameter. Not retried, and not
    /// counted by the circuit breaker.
    InvalidRequest,
}

impl Failure {
    pub fn new(status: &'static str, kind: FailureKind) -> Failure {
        Failure {
            status,
            kind,
            retry_after: None,
            error_type: String::new(),
            message: ServerMessage::default(),
        }
    }

    /// The failure for an HTTP status other than 200.
    pub fn from_status(status: u16) -> Failure {
        use FailureKind::{InvalidRequest, Misconfigured, RateLimited, Unavailable};
        let (status, kind) = match status {
            400 => ("http_400", InvalidRequest),
            401 => ("http_401", Misconfigured),
            403 => ("http_403", Misconfigured),
            404 => ("http_404", Misconfigured),
            408 => ("http_408", Unavailable),
            413 => ("http_413", InvalidRequest),
            422 => ("http_422", InvalidRequest),
            429 => ("http_429", RateLimited),
            402..=499 => ("http_4xx", Misconfigured),
            500 => ("http_500", Unavailable),
            502 => ("http_502", Unavailable),
            503 => ("http_503", Unavailable),
            504 => ("http_504", Unavailable),
            501..=599 => ("http_5xx", Unavailable),
            300..=399 => ("http_3xx", Misconfigured),
            _ => ("http_other", Unavailable),
        };
        Failure::new(status, kind)
    }

    /// Adds the error type from `error.code` or `error.type` of `body`, or from `code` or `type` at its top
    /// level.
    #[must_use]
    pub fn with_error_type(mut self, body: &Value) -> Failure {
        // Gemini puts the error into an array.
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").unwrap_or(body);
        self.message = ServerMessage::from_body(body);
        let word = ["code", "type"].iter().find_map(|key| error.get(*key)?.as_str()).unwrap_or_default();
        let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        self.error_type = word.chars().take(MAX_ERROR_TYPE).filter(plain).collect();
        self
    }

    pub(crate) fn is_retryable(&self) -> bool {
        use FailureKind::{RateLimited, Timeout, Unavailable};
        matches!(self.kind, Unavailable | Timeout | RateLimited)
    }

    /// Whether the same request would be refused again.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.kind, FailureKind::InvalidRequest | FailureKind::Misconfigured)
    }

    /// Whether the judge does not respond: it may answer the same request later.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self.kind, FailureKind::Unavailable | FailureKind::RateLimited)
    }

    /// Whether the circuit breaker counts it. A server that sends `Retry-After` is healthy.
    pub(crate) fn is_unhealthy(&self) -> bool {
        match self.kind {
            FailureKind::Unavailable | FailureKind::Timeout | FailureKind::Misconfigured => true,
            FailureKind::RateLimited => self.retry_after.is_none(),
            FailureKind::InvalidRequest => false,
        }
    }
}

/// The reason for which a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoAnswer {
    pub unmeasured: Unmeasured,
    /// One of a fixed set of words: a status, a fault of answers, or a limit.
    pub cause: &'static str,
}

/// The result of a question that the judge failed to answer.
pub(crate) const fn failed(cause: &'static str) -> NoAnswer {
    NoAnswer { unmeasured: Unmeasured::JudgeError, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sanitised_error_type_is_taken_from_a_response() {
        let error_type = |body: &str| {
            Failure::from_status(400)
                .with_error_type(&serde_json::from_str(body).unwrap_or_default())
                .error_type
        };
        assert_eq!(
            error_type(r#"{"error":{"type":"invalid_request_error","code":null}}"#),
            "invalid_request_error"
        );
        assert_eq!(error_type(r#"{"error":{"code":"a b\n\u001b[31m<sk-1>","message":"sk-2"}}"#), "ab31msk-1");
        assert_eq!(error_type("[1]"), "");
        assert_eq!(error_type(&format!(r#"{{"type":"{}"}}"#, "x".repeat(500))).len(), MAX_ERROR_TYPE);
    }

    #[test]
    fn client_errors_are_not_retried_except_408_and_429_and_server_errors_are() {
        let retryable = |s: &u16| Failure::from_status(*s).is_retryable();
        let all: Vec<u16> = (201..600).filter(retryable).collect();
        let clients: Vec<u16> = all.iter().copied().filter(|s| (300..500).contains(s)).collect();
        assert_eq!(clients, [408, 429]);
        assert!((500..600).all(|s| all.contains(&s)));
    }
}
