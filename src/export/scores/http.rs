//! Requests to a back end's API: JSON over HTTP, without redirects.
//!
//! In: a method, a path and a body. Out: the body of the response, or why there is none. Every request may be
//! repeated, since a repeat is an update, so that any failure of a server is retried.

use std::time::SystemTime;

use ::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use reqwest::{Client, Url};
use serde_json::Value;
use verdict_client::{ClientError, retry_after};
use verdict_config::Secret;

use crate::export::config::{Flavor, ScoresConfig};
use crate::export::http::status_label;
use crate::export::response::{ExportResponse, ExportResult, one_line};

/// Largest response that is read: the assessments of one trace of MLflow.
const MAX_RESPONSE: usize = 16 << 20;

/// The API of one back end.
#[derive(Debug)]
pub(super) struct Api {
    client: Client,
    base: Url,
    headers: HeaderMap,
}

/// A request that was not accepted.
#[derive(Debug)]
pub(super) struct Refusal {
    pub status: Option<StatusCode>,
    pub response: ExportResponse,
}

impl Refusal {
    /// Repeated later, although the status alone would not say so.
    pub(super) fn retried(mut self) -> Refusal {
        if let ExportResult::Rejected(reason) | ExportResult::Invalid(reason) = self.response.result {
            self.response.result = ExportResult::Retry { after: None, reason };
        }
        self
    }

    /// The reason, if the back end refused these scores for good and may take others.
    pub(super) fn of_content(self) -> Result<String, ExportResponse> {
        match self.response.result {
            ExportResult::Rejected(reason) | ExportResult::Invalid(reason) => Ok(reason),
            result => Err(ExportResponse { status: self.response.status, result }),
        }
    }
}

/// The headers of every request, with sensitive values.
pub(super) fn headers(config: &ScoresConfig) -> Result<HeaderMap, ClientError> {
    let mut headers = verdict_client::headers(&config.headers)?;
    if let (Some(flavor), Some(key)) = (config.flavor, &config.api_key) {
        let basic = || STANDARD.encode(format!("{}:{}", config.public_key, key.expose()));
        let (name, value) = match flavor {
            Flavor::Phoenix | Flavor::Mlflow => (AUTHORIZATION, format!("Bearer {}", key.expose())),
            Flavor::Langfuse => (AUTHORIZATION, format!("Basic {}", basic())),
            Flavor::Datadog => (HeaderName::from_static("dd-api-key"), key.expose().to_owned()),
            Flavor::Langsmith => (HeaderName::from_static("x-api-key"), key.expose().to_owned()),
        };
        let (name, value) = verdict_client::header(name.as_str(), &Secret::new(value))?;
        headers.insert(name, value);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(headers)
}

impl Api {
    /// Reads the TLS files; connects with the first request.
    pub(super) fn new(config: &ScoresConfig) -> Result<Api, ClientError> {
        let base = config.base().map_err(ClientError::Endpoint)?;
        let idle = config.sending_queue.num_consumers;
        let client = verdict_client::client(&[&base], &config.tls, *config.timeout, idle)?;
        Ok(Api { client, base, headers: headers(config)? })
    }

    /// Sends a request to `path` below the base URL. The response is null if it is no JSON.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refusal> {
        let refused = |response| Refusal { status: None, response };
        let url = self.base.join(path).map_err(|error| {
            refused(ExportResult::Rejected(format!("no URL can be made of {path}: {error}")).into())
        })?;
        let mut request = self.client.request(method, url).headers(self.headers.clone());
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let mut response = request.send().await.map_err(|error| {
            let status = if error.is_timeout() { "timeout" } else { "connection" };
            refused(ExportResponse::none(status, one_line(&verdict_client::reasons(&error.without_url()))))
        })?;
        let status = response.status();
        let after = response.headers().get(RETRY_AFTER).and_then(|v| retry_after(v, SystemTime::now()));
        let mut body = BytesMut::new();
        let cut = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_RESPONSE => body.extend_from_slice(&chunk),
                Ok(None) => break None,
                Ok(Some(_)) => break Some(format!("the response is longer than {MAX_RESPONSE} bytes")),
                Err(error) => break Some(one_line(&verdict_client::reasons(&error.without_url()))),
            }
        };
        match cut {
            Some(why) if status.is_success() => return Err(refused(ExportResponse::none("connection", why))),
            _ if status.is_success() => return Ok(serde_json::from_slice(&body).unwrap_or_default()),
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
        Err(Refusal {
            status: Some(status),
            response: ExportResponse { status: status_label(status), result },
        })
    }
}
