//! Requests to HTTP APIs other than OTLP: JSON, without redirects.
//!
//! In: a request. Out: the body of the response, or why there is none. Every request may be repeated, since
//! receivers recognise a repeat, so that any failure of a server is retried.

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
    pub status: Option<StatusCode>,
    pub response: ExportResponse,
}

impl Refusal {
    /// Without a response.
    pub(super) fn without_response(response: ExportResponse) -> Refusal {
        Refusal { status: None, response }
    }

    /// Repeated later, although the status alone would not say so.
    pub(super) fn retried(mut self) -> Refusal {
        if let ExportResult::Rejected(reason) | ExportResult::Invalid(reason) = self.response.result {
            self.response.result = ExportResult::Retry { after: None, reason };
        }
        self
    }

    /// Never repeated, although the status alone would not say so.
    pub(super) fn ended(self, cause: &str) -> ExportResponse {
        match self.response.result {
            ExportResult::Retry { reason, .. } => ExportResult::Rejected(format!("{reason}; {cause}")).into(),
            result => ExportResponse { status: self.response.status, result },
        }
    }

    /// The reason, if the destination refused this content for good and may take other content.
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
        Refusal::without_response(ExportResponse::none(
            status,
            one_line(&verdict_client::reasons(&error.without_url())),
        ))
    })?;
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(|v| retry_after(v, SystemTime::now()));
    let mut body = BytesMut::new();
    let cut = loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= max_response => body.extend_from_slice(&chunk),
            Ok(None) => break None,
            Ok(Some(_)) => break Some(format!("the response is longer than {max_response} bytes")),
            Err(error) => break Some(one_line(&verdict_client::reasons(&error.without_url()))),
        }
    };
    match cut {
        Some(reason) if status.is_success() => {
            return Err(Refusal::without_response(ExportResponse::none("connection", reason)));
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
