//! A client without queue, batching or retries: `replay` sends recorded requests unchanged and reports
//! the result of each.
//!
//! In: an encoded request. Out: the number of rejected items, or the reason of a failure.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use verdict_otlp::Signal;

use super::client::ReloadableClient;
use super::config::{OtlpGrpc, OtlpHttp, Packing};
use super::error::StartError;
use super::grpc::GrpcClient;
use super::http::HttpClient;
use super::response::ExportResult;

/// A client that sends one request at a time.
#[derive(Debug)]
pub struct DirectClient(Arc<ReloadableClient>);

/// A request that was not accepted.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct SendError {
    /// `Some` if a retry may succeed, with the delay that the destination requests, if any.
    pub retry: Option<Option<Duration>>,
    /// The destination's reason.
    pub reason: String,
}

impl DirectClient {
    /// A client over gRPC. Connects with the first request.
    ///
    /// # Errors
    /// The endpoint, a header or TLS cannot be used.
    pub fn grpc(config: &OtlpGrpc) -> Result<DirectClient, StartError> {
        Ok(DirectClient(ReloadableClient::new(Arc::new(GrpcClient::new(config)?), *config.timeout)))
    }

    /// A client over HTTP. Connects with the first request.
    ///
    /// # Errors
    /// The endpoint, a header or TLS cannot be used.
    pub fn http(config: &OtlpHttp) -> Result<DirectClient, StartError> {
        Ok(DirectClient(ReloadableClient::new(Arc::new(HttpClient::new(config)?), *config.timeout)))
    }

    /// Sends one encoded request, and returns the number of rejected items and the destination's message.
    ///
    /// # Errors
    /// The request was not accepted.
    pub async fn send(&self, signal: Signal, body: &Bytes) -> Result<(u64, String), SendError> {
        let request = Packing::UNCOMPRESSED.pack(signal, std::iter::once(body)).await;
        match self.0.export(&self.0.connection(), &request).await.result {
            ExportResult::Accepted { rejected, message } => Ok((rejected, message)),
            ExportResult::Retry { after, reason } => Err(SendError { retry: Some(after), reason }),
            ExportResult::TooLarge(reason)
            | ExportResult::Invalid(reason)
            | ExportResult::Rejected(reason)
            | ExportResult::Unauthorized(reason)
            | ExportResult::Unsupported(reason) => Err(SendError { retry: None, reason }),
        }
    }
}
