//! The consumers of an OTLP exporter: send queued parcels as requests and resolve every item.
//!
//! In: [`Batch`]es. Out: requests of at most `max_request_size`, retried as destination and
//! configuration require. A request that the destination finds too large is halved; one it finds
//! invalid is sent parcel by parcel, so that one invalid span does not affect other parcels.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verdict_otlp::{Piece, Signal};

use super::config::RetryOnFailure;
use super::exporter::Exporter;
use super::grpc::GrpcClient;
use super::http::HttpClient;
use super::pack::{Packed, Packing};
use super::queue::{Batch, InFlight};
use super::response::{ExportResponse, ExportResult};
use super::retry::Backoff;
use super::split::split;
use crate::outcome::{DropReason, Outcome, Receipt};
use crate::telemetry::ExporterState;

/// How often a request that is too large is halved: from 4 MiB to 64 KiB. A destination that rejects
/// even that enforces something else, such as a quota, and must not be flooded.
const MAX_HALVINGS: u8 = 6;

/// The transport of an exporter.
#[derive(Debug)]
pub(super) enum Client {
    Grpc(Box<GrpcClient>),
    Http(Box<HttpClient>),
    #[cfg(test)]
    Scripted(super::tests::away::ScriptedClient),
}

impl Client {
    pub async fn export(&self, signal: Signal, message: &Packed) -> ExportResponse {
        match self {
            Client::Grpc(client) => client.export(signal, message).await,
            Client::Http(client) => client.export(signal, message).await,
            #[cfg(test)]
            Client::Scripted(client) => client.export(message).await,
        }
    }
}

/// Shared by the consumers of one exporter.
#[derive(Debug)]
pub(super) struct OtlpConsumer {
    pub exporter: Arc<Exporter>,
    pub client: Client,
    pub packing: Packing,
    pub max_request: usize,
    pub retry: RetryOnFailure,
}

/// A piece, its receipt, and the index of its parcel in the batch.
#[derive(Debug)]
struct Part {
    piece: Piece,
    receipt: Receipt,
    parcel: usize,
}

/// Parts that are sent as one request.
#[derive(Debug, Default)]
struct OutgoingRequest {
    parts: Vec<Part>,
    halvings: u8,
}

/// Why a request was not accepted, after all retries.
enum Failed {
    TooLarge(String),
    Invalid(String),
    Final(DropReason, String),
}

impl OtlpConsumer {
    /// Sends until the queue is closed and empty, or `stop` is cancelled.
    pub async fn consume(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let batch = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                batch = self.exporter.queue.take(self.max_request) => batch,
            };
            let Some(Batch { signal, jobs, in_flight }) = batch else { return };
            // Released when the whole batch is resolved.
            let mut spaces = Vec::with_capacity(jobs.len());
            let mut parts = Vec::with_capacity(jobs.len());
            for (parcel, job) in jobs.into_iter().enumerate() {
                spaces.push(job.space);
                let mut receipt = job.receipt;
                for piece in job.parcel.pieces {
                    self.push_parts(signal, piece, parcel, &mut receipt, &mut parts);
                }
                // Items that the pieces do not account for are resolved with the last piece.
                match parts.last_mut() {
                    Some(last) if last.parcel == parcel => last.receipt.join(receipt),
                    _ => receipt.resolve(Outcome::Exported),
                }
            }
            let mut pending = self.requests(parts);
            let mut in_flight = Some(in_flight);
            let finished = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                () = self.deliver(signal, &mut pending, &mut in_flight) => true,
            };
            if !finished {
                for part in pending.into_iter().flat_map(|request| request.parts) {
                    self.exporter.drop_items(
                        part.receipt,
                        DropReason::Shutdown,
                        "not sent before the shutdown deadline",
                    );
                }
                return;
            }
        }
    }

    /// Adds a piece to `parts`, split if it is larger than a request may be.
    fn push_parts(
        &self,
        signal: Signal,
        piece: Piece,
        parcel: usize,
        receipt: &mut Receipt,
        parts: &mut Vec<Part>,
    ) {
        if piece.bytes.len() <= self.max_request {
            let receipt = receipt.split(piece.items);
            parts.push(Part { piece, receipt, parcel });
            return;
        }
        for piece in split(signal, &piece.bytes, self.max_request) {
            let receipt = receipt.split(piece.items);
            parts.push(Part { piece, receipt, parcel });
        }
    }

    /// Groups parts in order into requests of at most `max_request`; the last request comes first, to
    /// be popped.
    fn requests(&self, parts: Vec<Part>) -> Vec<OutgoingRequest> {
        let mut all: Vec<OutgoingRequest> = Vec::new();
        let mut size = 0usize;
        for part in parts {
            let len = part.piece.bytes.len();
            match all.last_mut() {
                Some(request) if size.saturating_add(len) <= self.max_request => {
                    size += len;
                    request.parts.push(part);
                }
                _ => {
                    size = len;
                    all.push(OutgoingRequest { parts: vec![part], halvings: 0 });
                }
            }
        }
        all.reverse();
        all
    }

    /// Resolves every request. A request stays in `pending` until its result is known, so that after a
    /// cancellation all unresolved requests are there.
    async fn deliver(
        &self,
        signal: Signal,
        pending: &mut Vec<OutgoingRequest>,
        in_flight: &mut Option<InFlight>,
    ) {
        while let Some(request) = pending.last() {
            let result = self.send(signal, request, in_flight).await;
            let Some(request) = pending.pop() else { return };
            let (request, reason, why) = match result {
                Ok(rejected) => {
                    self.resolve_accepted(request, rejected);
                    continue;
                }
                Err(Failed::TooLarge(why)) => match halve(signal, request) {
                    Ok(halves) => {
                        pending.extend(halves);
                        continue;
                    }
                    Err(request) => (request, DropReason::Refused, why),
                },
                Err(Failed::Invalid(why)) => match split_by_parcel(request) {
                    Ok(parcels) => {
                        pending.extend(parcels);
                        continue;
                    }
                    Err(request) => (request, DropReason::Refused, why),
                },
                Err(Failed::Final(reason, why)) => (request, reason, why),
            };
            let pieces: Vec<Bytes> = request.parts.iter().map(|part| part.piece.bytes.clone()).collect();
            pending.push(request);
            let mut outcomes = Vec::with_capacity(pieces.len());
            for piece in pieces {
                outcomes.push(self.exporter.write_dead_letter(signal, piece, reason).await);
            }
            let Some(request) = pending.pop() else { return };
            for (part, outcome) in request.parts.into_iter().zip(outcomes) {
                self.exporter.give_up(part.receipt, reason, &why, &outcome);
            }
        }
    }

    /// Sends one request, with retries; returns the number of rejected items.
    async fn send(
        &self,
        signal: Signal,
        request: &OutgoingRequest,
        in_flight: &mut Option<InFlight>,
    ) -> Result<u64, Failed> {
        let message = self.packing.pack(request.parts.iter().map(|part| &part.piece.bytes)).await;
        let mut backoff = Backoff::new(&self.retry);
        loop {
            let started = Instant::now();
            let ExportResponse { status, result } = self.client.export(signal, &message).await;
            self.exporter.count_request(status, started);
            let exporter = self.exporter.id();
            match result {
                ExportResult::Accepted { rejected, message } => {
                    if (rejected > 0 || !message.is_empty())
                        && let Some(suppressed) = self.exporter.throttle.allow("partial_success")
                    {
                        tracing::warn!(exporter, rejected, message, suppressed, "partial success");
                    }
                    return Ok(rejected);
                }
                ExportResult::TooLarge(reason) => return Err(Failed::TooLarge(reason)),
                ExportResult::Invalid(reason) => return Err(Failed::Invalid(reason)),
                ExportResult::Rejected(reason) => return Err(Failed::Final(DropReason::Refused, reason)),
                ExportResult::Unsupported(reason) if signal == Signal::Traces => {
                    return Err(Failed::Final(DropReason::Refused, reason));
                }
                ExportResult::Unsupported(reason) => {
                    self.exporter.set_unsupported(signal, &reason);
                    return Err(Failed::Final(DropReason::Unsupported, reason));
                }
                ExportResult::Retry { after, reason } => {
                    let Some(wait) = backoff.next(after) else {
                        return Err(Failed::Final(DropReason::RetriesEnded, reason));
                    };
                    if let Some(suppressed) = self.exporter.throttle.allow("retry") {
                        tracing::warn!(exporter, reason, ?wait, suppressed, "request failed; retrying");
                    }
                    // Other consumers must not batch behind a request that waits.
                    *in_flight = None;
                    tokio::time::sleep(wait).await;
                    self.exporter.count_retry();
                }
            }
        }
    }

    fn resolve_accepted(&self, request: OutgoingRequest, mut rejected: u64) {
        for mut part in request.parts {
            if rejected > 0 {
                let lost = part.receipt.split(rejected);
                rejected -= lost.items();
                self.exporter.drop_items(lost, DropReason::Rejected, "rejected by the destination");
            }
            part.receipt.resolve(Outcome::Exported);
        }
    }
}

/// Two requests of about half the size, the first one last; or the request, if it cannot be split.
fn halve(signal: Signal, mut request: OutgoingRequest) -> Result<Vec<OutgoingRequest>, OutgoingRequest> {
    if request.halvings >= MAX_HALVINGS {
        return Err(request);
    }
    if request.parts.len() == 1 {
        let Some(mut whole) = request.parts.pop() else { return Err(request) };
        let pieces = split(signal, &whole.piece.bytes, whole.piece.bytes.len() / 2);
        if pieces.len() < 2 {
            request.parts.push(whole);
            return Err(request);
        }
        for piece in pieces {
            let receipt = whole.receipt.split(piece.items);
            request.parts.push(Part { piece, receipt, parcel: whole.parcel });
        }
        if let Some(last) = request.parts.last_mut() {
            last.receipt.join(whole.receipt);
        }
    }
    let halvings = request.halvings + 1;
    let second = request.parts.split_off(request.parts.len() / 2);
    Ok(vec![OutgoingRequest { parts: second, halvings }, OutgoingRequest { parts: request.parts, halvings }])
}

/// One request per parcel, the first one last; or the request, if it holds one parcel only.
fn split_by_parcel(request: OutgoingRequest) -> Result<Vec<OutgoingRequest>, OutgoingRequest> {
    let first = request.parts.first().map(|part| part.parcel);
    if request.parts.iter().all(|part| Some(part.parcel) == first) {
        return Err(request);
    }
    let halvings = request.halvings;
    let mut all: Vec<OutgoingRequest> = Vec::new();
    for part in request.parts {
        match all.last_mut() {
            Some(last) if last.parts.iter().all(|p| p.parcel == part.parcel) => last.parts.push(part),
            _ => all.push(OutgoingRequest { parts: vec![part], halvings }),
        }
    }
    all.reverse();
    Ok(all)
}
