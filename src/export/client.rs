//! The client of an exporter: sends single requests to its destination.
//!
//! In: an [`ExportRequest`]. Out: an [`ExportResponse`]. Queue, batches, timeout, retries, dead letters and
//! accounting are the same for all clients and lie above the trait [`ExportClient`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::pack::ExportRequest;
use super::response::ExportResponse;

/// The future of [`ExportClient::export`].
pub type ExportFuture<'a> = Pin<Box<dyn Future<Output = ExportResponse> + Send + 'a>>;

/// Sends requests to one destination. A client from outside is registered by the id of an exporter of type
/// `custom`.
pub trait ExportClient: fmt::Debug + Send + Sync {
    /// Sends one request. Called concurrently, up to `sending_queue.num_consumers` times. Dropped after
    /// `timeout`, and at the deadline of a shutdown.
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a>;

    /// Called after a request was dropped because of its timeout.
    fn timed_out(&self) {}
}

/// Clients from outside, by the ids of their exporters.
pub type ExportClients = std::collections::BTreeMap<String, Arc<dyn ExportClient>>;

/// A client and the timeout of its requests.
#[derive(Debug)]
pub(super) struct Transport {
    pub client: Arc<dyn ExportClient>,
    pub timeout: Duration,
}

impl Transport {
    pub(super) async fn export(&self, request: &ExportRequest) -> ExportResponse {
        let response = tokio::time::timeout(self.timeout, self.client.export(request)).await;
        response.unwrap_or_else(|_| {
            self.client.timed_out();
            ExportResponse::none("timeout", format!("no response within {:?}", self.timeout))
        })
    }
}
