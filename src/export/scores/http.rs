//! Requests to a back end's API: JSON over HTTP, without redirects.
//!
//! In: a method, a path and a body. Out: the body of the response, or the refusal.

use ::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, Url};
use serde_json::Value;
use verdict_client::ClientError;
use verdict_config::Secret;

use crate::export::api::{self, Refusal};
use crate::export::config::{Flavor, ScoresConfig};
use crate::export::response::ExportResult;

/// Limit on the size of a response. The largest one lists the assessments of a trace in MLflow.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// The API of one back end.
#[derive(Debug)]
pub(super) struct Api {
    client: Client,
    base: Url,
    headers: HeaderMap,
}

/// The headers of every request. Their values are marked as sensitive.
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

    /// Sends a request to `path` below the base URL. Returns the body of the response, or null if it is not JSON.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refusal> {
        let url = self.base.join(path).map_err(|error| {
            Refusal::without_response(
                ExportResult::Rejected(format!("no URL can be made of {path}: {error}")).into(),
            )
        })?;
        let mut request = self.client.request(method, url).headers(self.headers.clone());
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let body = api::send(request, MAX_RESPONSE_BYTES).await?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }
}
