//! Sends requests to the destination. Redirects are not followed; the log of failures is throttled.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::Client;
use tokio::runtime::Handle;
use verdict_client::ClientError;
use verdict_telemetry::LogThrottle;

use super::config::TelemetryConfig;

/// Largest response that is read: a partial success with its message.
const MAX_RESPONSE: usize = 64 << 10;

/// A client for both signals. The SDK calls it on a thread without a runtime.
#[derive(Clone)]
pub(super) struct TelemetrySender {
    client: Client,
    headers: HeaderMap,
    runtime: Handle,
    throttle: Arc<LogThrottle>,
}

impl fmt::Debug for TelemetrySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl TelemetrySender {
    /// Reads the TLS files; connects with the first request.
    pub(super) fn new(config: &TelemetryConfig, runtime: Handle) -> Result<TelemetrySender, ClientError> {
        let url = config.url("").map_err(ClientError::Endpoint)?;
        let client = verdict_client::client(&[&url], &config.tls, *config.timeout, 1)?;
        let headers = verdict_client::headers(&config.headers)?;
        Ok(TelemetrySender { client, headers, runtime, throttle: Arc::default() })
    }

    /// Sends a request with the configured headers.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let result = self.exchange(request).await;
        let reason = match &result {
            Ok(response) if response.status().is_success() => return result,
            Ok(response) => format!("HTTP {}", response.status()),
            Err(error) => error.to_string(),
        };
        if let Some(suppressed) = self.throttle.allow("telemetry") {
            tracing::warn!(
                reason,
                suppressed,
                "telemetry of this process was not accepted (service.telemetry)"
            );
        }
        result
    }

    /// Sends a request and reads the response, whose body is cut at [`MAX_RESPONSE`].
    async fn exchange(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        request.headers_mut().extend(self.headers.clone());
        let request = reqwest::Request::try_from(request)?;
        let result = self.client.execute(request).await;
        let mut response = result.map_err(|error| verdict_client::reasons(&error.without_url()))?;
        let mut builder = Response::builder().status(response.status());
        if let Some(headers) = builder.headers_mut() {
            headers.clone_from(response.headers());
        }
        let mut body = BytesMut::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|e| verdict_client::reasons(&e.without_url()))?
        {
            if body.len() + chunk.len() > MAX_RESPONSE {
                break;
            }
            body.extend_from_slice(&chunk);
        }
        Ok(builder.body(body.freeze())?)
    }
}

type ResponseFuture<'f> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>;

impl HttpClient for TelemetrySender {
    fn send_bytes<'s, 'f>(&'s self, request: Request<Bytes>) -> ResponseFuture<'f>
    where
        's: 'f,
        Self: 'f,
    {
        let sender = self.clone();
        // On this process' runtime, which drives the connection.
        let response = self.runtime.spawn(async move { sender.send(request).await });
        Box::pin(async move { response.await? })
    }
}
