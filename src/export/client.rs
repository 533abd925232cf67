//! The client of an exporter: sends single requests to its destination.
//!
//! In: an [`ExportRequest`]. Out: an [`ExportResponse`]. Queue, batches, timeout, retries, dead letters and
//! accounting are the same for all clients; [`ExportClient`] does not include them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::pack::ExportRequest;
use super::response::ExportResponse;

/// The future of [`ExportClient::export`].
pub type ExportFuture<'a> = Pin<Box<dyn Future<Output = ExportResponse> + Send + 'a>>;

/// Sends requests to one destination. A client of an embedding program is registered by the id of an exporter
/// of type `custom`.
pub trait ExportClient: fmt::Debug + Send + Sync {
    /// Sends one request. Called concurrently, up to `sending_queue.num_consumers` times. Dropped after
    /// `timeout`, and at the deadline of a shutdown.
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a>;

    /// Called after a request was dropped because of its timeout.
    fn timed_out(&self) {}

    /// Called at SIGHUP. A client that writes files opens them again. Must not block.
    fn reopen(&self) {}
}

/// Clients of the embedding program, by the ids of their exporters.
pub type ExportClients = std::collections::BTreeMap<String, Arc<dyn ExportClient>>;

/// A client with the credentials that it was created with.
#[derive(Debug)]
pub(super) struct ExportConnection {
    client: Arc<dyn ExportClient>,
    /// Whether the destination has refused the credentials twice, with [`super::consumer::CREDENTIALS_WAIT`] between.
    pub has_refused: AtomicBool,
}

/// The client of an exporter, which a reload replaces, and the timeout of its requests.
#[derive(Debug)]
pub(super) struct ReloadableClient {
    connection: ArcSwap<ExportConnection>,
    timeout: Duration,
}

impl ExportConnection {
    fn new(client: Arc<dyn ExportClient>) -> ExportConnection {
        ExportConnection { client, has_refused: AtomicBool::new(false) }
    }
}

impl ReloadableClient {
    pub(super) fn new(client: Arc<dyn ExportClient>, timeout: Duration) -> Arc<ReloadableClient> {
        Arc::new(ReloadableClient {
            connection: ArcSwap::from_pointee(ExportConnection::new(client)),
            timeout,
        })
    }

    /// Replaces the client. Requests in flight complete with the previous one.
    pub(super) fn replace(&self, client: Arc<dyn ExportClient>) {
        self.connection.store(Arc::new(ExportConnection::new(client)));
    }

    pub(super) fn reopen(&self) {
        self.connection.load().client.reopen();
    }

    pub(super) fn connection(&self) -> Arc<ExportConnection> {
        self.connection.load_full()
    }

    pub(super) async fn export(
        &self,
        connection: &ExportConnection,
        request: &ExportRequest,
    ) -> ExportResponse {
        let response = tokio::time::timeout(self.timeout, connection.client.export(request)).await;
        response.unwrap_or_else(|_| {
            connection.client.timed_out();
            ExportResponse::without_response("timeout", format!("no response within {:?}", self.timeout))
        })
    }
}
