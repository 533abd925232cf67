//! Why a request to a judge has no reply, and what follows from it.
//!
//! In: an HTTP status, the body of an error. Out: a [`Failure`]. Of a server's error only its type is
//! used: error messages quote keys and prompts.

use std::time::Duration;

use serde_json::Value;

/// Types of errors are shorter.
const MAX_ERROR_TYPE: usize = 64;

/// Why a request has no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The label of self-metrics and logs: one of a fixed set of words.
    pub status: &'static str,
    pub kind: FailureKind,
    /// The server's `Retry-After`. It holds for all requests to this judge.
    pub retry_after: Option<Duration>,
    /// The server's name for the error; letters, digits, `_`, `-` and `.` only.
    pub error_type: String,
}

/// What follows from a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// Unreachable or broken. Retried.
    Unavailable,
    /// No reply in time. Retried; the prompt counts as spent, since it may have been read.
    Timeout,
    /// The server asks for fewer requests. Retried.
    RateLimited,
    /// Key, address or model is wrong, so that every question fails. Not retried.
    Misconfigured,
    /// This question is refused: too long, or with a parameter that is unknown. Not retried, and no
    /// sign that the judge is unhealthy.
    InvalidRequest,
}

impl Failure {
    pub fn new(status: &'static str, kind: FailureKind) -> Failure {
        Failure { status, kind, retry_after: None, error_type: String::new() }
    }

    /// The failure that an HTTP status other than 200 means.
    pub fn of_status(status: u16) -> Failure {
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

    /// Adds the type of the error that `body` states as `error.code`, `error.type`, or the same at its top.
    #[must_use]
    pub fn with_error_type(mut self, body: &Value) -> Failure {
        let error = body.get("error").unwrap_or(body);
        let word = ["code", "type"].iter().find_map(|key| error.get(*key)?.as_str()).unwrap_or_default();
        let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        self.error_type = word.chars().take(MAX_ERROR_TYPE).filter(plain).collect();
        self
    }

    pub(crate) fn is_retryable(&self) -> bool {
        use FailureKind::{RateLimited, Timeout, Unavailable};
        matches!(self.kind, Unavailable | Timeout | RateLimited)
    }

    /// Whether the circuit breaker counts it. A server that says when to come back is healthy.
    pub(crate) fn is_unhealthy(&self) -> bool {
        match self.kind {
            FailureKind::Unavailable | FailureKind::Timeout | FailureKind::Misconfigured => true,
            FailureKind::RateLimited => self.retry_after.is_none(),
            FailureKind::InvalidRequest => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_error_type_is_taken_from_an_error() {
        let error_type = |body: &str| {
            Failure::of_status(400)
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
    fn every_status_but_200_is_a_failure_of_one_kind() {
        let retryable = |s: &u16| Failure::of_status(*s).is_retryable();
        let all: Vec<u16> = (201..600).filter(retryable).collect();
        let clients: Vec<u16> = all.iter().copied().filter(|s| (300..500).contains(s)).collect();
        assert_eq!(clients, [408, 429]);
        assert!((500..600).all(|s| all.contains(&s)));
    }
}
