//! Requests to HTTP APIs other than OTLP: JSON, without redirects.
//!
//! In: a request. Out: the body of the response, or the reason of a failure. Every failure of a server is retried,
//! since back ends and receivers of alerts recognise a repeated request.

use std::time::SystemTime;

use ::http::StatusCode;
use ::http::header::RETRY_AFTER;
use bytes::BytesMut;
use reqwest::RequestBuilder;
use verdict_client::retry_after;

use super::http::status_label;
use super::response::{ExportResponse, ExportResult, one_line};

/// A request that was not accepted.
#[derive(Debug)]
pub(super) struct Refusal {
    /// `None` without a response.
    pub status: Option<StatusCode>,
    pub response: ExportResponse,
}

impl Refusal {
    /// A refusal without a response of the destination.
    pub(super) fn without_response(response: ExportResponse) -> Refusal {
        Refusal { status: None, response }
    }

    /// Makes the request retryable, although its status alone is not.
    pub(super) fn into_retryable(mut self) -> Refusal {
        if let ExportResult::Rejected(reason) | ExportResult::Invalid(reason) = self.response.result {
            self.response.result = ExportResult::Retry { after: None, reason };
        }
        self
    }

    /// Makes the refusal permanent, although its status alone is retryable.
    pub(super) fn into_permanent(self, cause: &str) -> ExportResponse {
        match self.response.result {
            ExportResult::Retry { reason, .. } => ExportResult::Rejected(format!("{reason}; {cause}")).into(),
            result => ExportResponse { status: self.response.status, result },
        }
    }

    /// The reason, if the destination refused this content permanently and may accept other content. Otherwise the
    /// error is the response.
    pub(super) fn content_refusal(self) -> Result<String, ExportResponse> {
        match self.response.result {
            ExportResult::Rejected(reason) | ExportResult::Invalid(reason) => Ok(reason),
            result => Err(ExportResponse { status: self.response.status, result }),
        }
    }
}

/// Sends a request, and reads up to `max_response` bytes of the response.
pub(super) async fn send(request: RequestBuilder, max_response: usize) -> Result<BytesMut, Refusal> {
    let mut response = request.send().await.map_err(|error| {
        let status = if error.is_timeout() { "timeout" } else { "connection" };
        Refusal::without_response(ExportResponse::without_response(
            status,
            one_line(&verdict_client::reasons(&error.without_url())),
        ))
    })?;
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(|v| retry_after(v, SystemTime::now()));
    let mut body = BytesMut::new();
    let read_error = loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= max_response => body.extend_from_slice(&chunk),
            Ok(None) => break None,
            Ok(Some(_)) => break Some(format!("the response is longer than {max_response} bytes")),
            Err(error) => break Some(one_line(&verdict_client::reasons(&error.without_url()))),
        }
    };
    match read_error {
        Some(reason) if status.is_success() => {
            return Err(Refusal::without_response(ExportResponse::without_response("connection", reason)));
        }
        _ if status.is_success() => return Ok(body),
        _ => {}
    }
    let reason = format!("HTTP {status}: {}", one_line(&String::from_utf8_lossy(&body)));
    let result = match status.as_u16() {
        408 | 425 | 429 | 500.. => ExportResult::Retry { after, reason },
        413 => ExportResult::TooLarge(reason),
        400 | 422 => ExportResult::Invalid(reason),
        401 | 403 => ExportResult::Unauthorized(reason),
        _ => ExportResult::Rejected(reason),
    };
    Err(Refusal { status: Some(status), response: ExportResponse { status: status_label(status), result } })
}
