//! OTLP over HTTP, protobuf encoded: no redirects; proxies from the environment, as in the Collector,
//! except for loopback addresses.
//!
//! In: an [`ExportRequest`]. Out: an [`ExportResult`] by the OTLP specification's retryable
//! statuses.

use std::time::{Duration, SystemTime};

use ::http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use bytes::BytesMut;
use prost::Message;
use reqwest::{Client, Response, Url};
use verdict_client::{ClientError, retry_after};
use verdict_otlp::Signal;

use super::client::{ExportClient, ExportFuture};
use super::config::OtlpHttp;
use super::error::StartError;
use super::pack::ExportRequest;
use super::response::{ExportResponse, ExportResult, MAX_RESPONSE_BYTES, one_line};
use crate::rpc;

/// An endpoint cannot be used.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(super) struct UrlError {
    /// The key of the endpoint.
    pub key: &'static str,
    pub message: String,
}

/// The URL of a signal: its own endpoint, or the common endpoint with the path of the signal.
pub(super) fn url(config: &OtlpHttp, signal: Signal) -> Result<Url, UrlError> {
    let (key, signal_endpoint, path) = match signal {
        Signal::Traces => ("traces_endpoint", &config.traces_endpoint, "/v1/traces"),
        Signal::Logs => ("logs_endpoint", &config.logs_endpoint, "/v1/logs"),
        Signal::Metrics => ("metrics_endpoint", &config.metrics_endpoint, "/v1/metrics"),
    };
    let (key, text, appended_path) = match (signal_endpoint.is_empty(), config.endpoint.is_empty()) {
        (false, _) => (key, signal_endpoint, ""),
        (true, false) => ("endpoint", &config.endpoint, path),
        (true, true) => {
            let message = "required, for example http://host:4318".into();
            return Err(UrlError { key: "endpoint", message });
        }
    };
    let mut url = verdict_client::http_url(text).map_err(|message| UrlError { key, message })?;
    if !appended_path.is_empty() {
        verdict_client::append_path(&mut url, appended_path);
    }
    Ok(url)
}

/// A client of one destination.
#[derive(Debug)]
pub(super) struct HttpClient {
    client: Client,
    /// The URL of each signal; `None` for signals that are not sent.
    urls: [Option<Url>; 3],
    headers: HeaderMap,
}

impl HttpClient {
    /// Reads the TLS files; connects with the first request.
    pub(super) fn new(config: &OtlpHttp) -> Result<HttpClient, StartError> {
        let mut urls = [None, None, None];
        for &signal in &config.signals {
            urls[signal as usize] = Some(url(config, signal).map_err(|e| ClientError::Endpoint(e.message))?);
        }
        let configured_urls: Vec<&Url> = urls.iter().flatten().collect();
        let max_idle_connections = config.sending_queue.num_consumers;
        let client =
            verdict_client::client(&configured_urls, &config.tls, *config.timeout, max_idle_connections)?;
        let mut headers = verdict_client::headers(&config.headers)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        Ok(HttpClient { client, urls, headers })
    }

    /// Sends a request, and reads the response.
    async fn call(&self, message: &ExportRequest) -> ExportResponse {
        let Some(url) = self.urls[message.signal as usize].clone() else {
            return ExportResult::Unsupported("no endpoint for this signal".into()).into();
        };
        let mut request =
            self.client.post(url).headers(self.headers.clone()).body(reqwest::Body::wrap(message.body()));
        if let Some(name) = message.compression.name() {
            request = request.header(CONTENT_ENCODING, name);
        }
        match request.send().await {
            Ok(response) => read_response(response).await,
            // The connection was refused or reset, or timed out: it is unknown whether the request was accepted.
            Err(error) => {
                let status = if error.is_timeout() { "timeout" } else { "connection" };
                ExportResponse::without_response(
                    status,
                    one_line(&verdict_client::reasons(&error.without_url())),
                )
            }
        }
    }
}

impl ExportClient for HttpClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        Box::pin(self.call(request))
    }
}

async fn read_response(mut response: Response) -> ExportResponse {
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(|v| retry_after(v, SystemTime::now()));
    let mut body = BytesMut::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let length = chunk.len().min(MAX_RESPONSE_BYTES - body.len());
        body.extend_from_slice(chunk.get(..length).unwrap_or_default());
        if body.len() >= MAX_RESPONSE_BYTES {
            break;
        }
    }
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/json"));
    ExportResponse { status: status_label(status), result: classify_response(status, after, &body, is_json) }
}

/// The statuses with a label of their own in self-metrics.
const STATUS_LABELS: [(u16, &str); 10] = [
    (400, "http_400"),
    (401, "http_401"),
    (403, "http_403"),
    (404, "http_404"),
    (413, "http_413"),
    (429, "http_429"),
    (500, "http_500"),
    (502, "http_502"),
    (503, "http_503"),
    (504, "http_504"),
];

/// The label of a status in self-metrics, from a fixed set.
pub(super) fn status_label(status: StatusCode) -> &'static str {
    let label = STATUS_LABELS.iter().find(|(code, _)| *code == status.as_u16()).map(|(_, label)| *label);
    label.unwrap_or(match status.as_u16() {
        200..=299 => "ok",
        400..=499 => "http_4xx",
        500..=599 => "http_5xx",
        _ => "http_other",
    })
}

/// The result of a response. `after` is the delay in `Retry-After`.
fn classify_response(
    status: StatusCode,
    after: Option<Duration>,
    body: &[u8],
    is_json: bool,
) -> ExportResult {
    if status.is_success() {
        return if is_json { accepted_json(body) } else { ExportResult::from_success(body) };
    }
    let reason = format!("HTTP {status}: {}", error_message(body));
    match status.as_u16() {
        429 | 502 | 503 | 504 => ExportResult::Retry { after, reason },
        413 => ExportResult::TooLarge(reason),
        400 | 422 => ExportResult::Invalid(reason),
        404 | 405 | 501 => ExportResult::Unsupported(reason),
        401 | 403 => ExportResult::Unauthorized(reason),
        _ => ExportResult::Rejected(reason),
    }
}

/// Reads the response of a successful request as JSON, which some servers send in response to protobuf.
fn accepted_json(body: &[u8]) -> ExportResult {
    let response: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let partial = &response["partialSuccess"];
    let rejected = ["rejectedSpans", "rejectedLogRecords", "rejectedDataPoints"].iter().find_map(|key| {
        let value = &partial[*key];
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    });
    let message = one_line(partial["errorMessage"].as_str().unwrap_or_default());
    ExportResult::Accepted { rejected: rejected.unwrap_or(0), message }
}

/// The message of an encoded `google.rpc.Status`, or else the body as text.
fn error_message(body: &[u8]) -> String {
    let status = rpc::RpcStatus::decode(body).ok().map(|status| status.message);
    one_line(&String::from_utf8_lossy(status.as_deref().filter(|m| !m.is_empty()).unwrap_or(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_paths_are_appended_as_in_the_collector() {
        let config = OtlpHttp {
            endpoint: "http://h:4318/base/".into(),
            logs_endpoint: "https://logs/x".into(),
            ..OtlpHttp::default()
        };
        assert_eq!(url(&config, Signal::Traces).unwrap().as_str(), "http://h:4318/base/v1/traces");
        assert_eq!(url(&config, Signal::Logs).unwrap().as_str(), "https://logs/x");
        for invalid in ["", "h:4318", "ftp://h", "http://"] {
            let config = OtlpHttp { endpoint: invalid.into(), ..OtlpHttp::default() };
            assert_eq!(url(&config, Signal::Traces).unwrap_err().key, "endpoint", "{invalid}");
        }
    }

    #[test]
    fn only_the_statuses_of_the_specification_are_retried() {
        for status in (300..600).filter_map(|s| StatusCode::from_u16(s).ok()) {
            let is_retried =
                matches!(classify_response(status, None, b"", false), ExportResult::Retry { .. });
            assert_eq!(is_retried, [429, 502, 503, 504].contains(&status.as_u16()), "{status}");
        }
    }

    #[test]
    fn responses_are_read_as_protobuf_json_or_text() {
        let json = br#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"old"}}"#;
        let expected = ExportResult::Accepted { rejected: 2, message: "old".into() };
        assert_eq!(classify_response(StatusCode::OK, None, json, true), expected);
        let status = b"\x08\x03\x12\x08no spans";
        assert_eq!(
            classify_response(StatusCode::BAD_REQUEST, None, status, false),
            ExportResult::Invalid("HTTP 400 Bad Request: no spans".into())
        );
        assert_eq!(
            classify_response(StatusCode::FORBIDDEN, None, b"go away", false),
            ExportResult::Unauthorized("HTTP 403 Forbidden: go away".into())
        );
    }
}
