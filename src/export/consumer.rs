//! The consumers of an exporter: send queued parcels as requests and resolve every item.
//!
//! In: [`Batch`]es. Out: requests to the exporter's client, retried as destination and configuration
//! require. A request that the destination refuses as too large is halved; one that it refuses as invalid is sent
//! parcel by parcel, so that an invalid span does not affect other parcels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verdict_otlp::{Piece, Signal};

use super::client::{ExportConnection, ReloadableClient};
use super::config::{Packing, RetryOnFailure};
use super::exporter::Exporter;
use super::pack::ExportRequest;
use super::queue::{InFlightExport, ParcelBatch};
use super::response::{ExportResponse, ExportResult};
use super::retry::Backoff;
use super::split::split;
use crate::outcome::{DropReason, Outcome, Receipt};
use crate::telemetry::ExporterState;

/// How often a request that is too large is halved: from 4 MiB to 64 KiB. A destination that refuses even 64 KiB
/// enforces another limit, such as a quota, and must not receive many small requests.
const MAX_HALVINGS: u8 = 6;

/// Maximum bytes of a batch of [`RequestGrouping::PerBatch`].
const MAX_BATCH_BYTES: usize = 1 << 20;

/// Minimum delay after the destination refused the credentials: rotated tokens and certificates are read again within
/// it.
pub(super) const CREDENTIALS_WAIT: Duration = Duration::from_secs(5);

/// The reason of items that are dropped at shutdown.
pub(super) const NOT_SENT: &str = "not sent before the shutdown deadline";

/// The grouping of parcels into requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestGrouping {
    /// As many parcels as fit into this many bytes; a larger parcel is split.
    UpTo(usize),
    /// The same, with each piece as a separate chunk whose result the client reports.
    PiecesUpTo(usize),
    /// All waiting parcels up to [`MAX_BATCH_BYTES`], without splitting or joining their pieces.
    PerBatch,
}

/// The state that the consumers of one exporter share.
#[derive(Debug)]
pub(super) struct Consumer {
    pub exporter: Arc<Exporter>,
    pub client: Arc<ReloadableClient>,
    pub packing: Packing,
    pub grouping: RequestGrouping,
    pub retry: RetryOnFailure,
}

/// A piece, its receipt, and the index of its parcel in the batch.
#[derive(Debug)]
struct BatchPart {
    piece: Piece,
    receipt: Receipt,
    parcel: usize,
}

/// Parts that are sent as one request.
#[derive(Debug, Default)]
struct OutgoingRequest {
    parts: Vec<BatchPart>,
    halvings: u8,
}

/// A request that was not accepted, after all retries.
struct FailedRequest {
    /// Splits the request into parts that may be accepted.
    split: SplitFunction,
    drop_reason: DropReason,
    reason: String,
    /// The parts that were delivered, each with the number of its items that were rejected.
    delivered: BTreeMap<usize, u64>,
}

/// Returns parts of a request that may be accepted, the first one last, or the request if it cannot be split.
type SplitFunction = fn(Signal, OutgoingRequest) -> Result<Vec<OutgoingRequest>, OutgoingRequest>;

impl Consumer {
    /// Sends until the queue is closed and empty, or `stop` is cancelled.
    pub(super) async fn consume(self: Arc<Self>, stop: CancellationToken) {
        let max_bytes = match self.grouping {
            RequestGrouping::UpTo(max_bytes) | RequestGrouping::PiecesUpTo(max_bytes) => max_bytes,
            RequestGrouping::PerBatch => MAX_BATCH_BYTES,
        };
        loop {
            let batch = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                batch = self.exporter.queue.take(max_bytes) => batch,
            };
            let Some(ParcelBatch { signal, jobs, in_flight }) = batch else { return };
            // The space in the queue is released when the whole batch is resolved.
            let mut spaces = Vec::with_capacity(jobs.len());
            let mut parts = Vec::with_capacity(jobs.len());
            for (parcel, job) in jobs.into_iter().enumerate() {
                spaces.push(job.space);
                let mut receipt = job.receipt;
                for piece in job.parcel.pieces.into_iter().flat_map(|piece| self.split_to_fit(signal, piece))
                {
                    let receipt = receipt.split(piece.items);
                    parts.push(BatchPart { piece, receipt, parcel });
                }
                // Items beyond the counts of the pieces are resolved with the last piece.
                match parts.last_mut() {
                    Some(last) if last.parcel == parcel => last.receipt.join(receipt),
                    _ => receipt.resolve(Outcome::Exported),
                }
            }
            let mut pending = self.group(parts);
            let mut in_flight = Some(in_flight);
            let is_finished = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                () = self.deliver(signal, &mut pending, &mut in_flight) => true,
            };
            if !is_finished {
                for part in pending.into_iter().flat_map(|request| request.parts) {
                    self.exporter.drop_items(part.receipt, DropReason::Shutdown, NOT_SENT);
                }
                return;
            }
        }
    }

    /// Splits a piece if it is larger than the limit of a request.
    fn split_to_fit(&self, signal: Signal, piece: Piece) -> Vec<Piece> {
        match self.grouping {
            RequestGrouping::UpTo(max_bytes) | RequestGrouping::PiecesUpTo(max_bytes)
                if piece.bytes.len() > max_bytes =>
            {
                split(signal, &piece.bytes, max_bytes)
            }
            _ => vec![piece],
        }
    }

    /// Groups parts in order into requests. The result is in reverse order, so that the first request is popped first.
    fn group(&self, parts: Vec<BatchPart>) -> Vec<OutgoingRequest> {
        let mut all: Vec<OutgoingRequest> = Vec::new();
        let mut size = 0usize;
        for part in parts {
            let len = part.piece.bytes.len();
            let fits = match self.grouping {
                RequestGrouping::UpTo(max_bytes) | RequestGrouping::PiecesUpTo(max_bytes) => {
                    size.saturating_add(len) <= max_bytes
                }
                RequestGrouping::PerBatch => true,
            };
            match all.last_mut() {
                Some(request) if fits => {
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

    /// Sends every request in `pending` and resolves its items. A request stays in `pending` until its result is known,
    /// so that after a cancellation `pending` contains all unresolved requests.
    async fn deliver(
        &self,
        signal: Signal,
        pending: &mut Vec<OutgoingRequest>,
        in_flight: &mut Option<InFlightExport>,
    ) {
        while let Some(request) = pending.last() {
            let result = self.send(signal, request, in_flight).await;
            let Some(request) = pending.pop() else { return };
            let FailedRequest { split, drop_reason, reason, delivered } = match result {
                Ok(rejected) => {
                    self.resolve_accepted(request, rejected);
                    continue;
                }
                Err(failed) => failed,
            };
            let Some(request) = self.resolve_delivered(request, &delivered) else { continue };
            let request = match split(signal, request) {
                Ok(parts) => {
                    pending.extend(parts);
                    continue;
                }
                Err(request) => request,
            };
            let pieces: Vec<Bytes> = request.parts.iter().map(|part| part.piece.bytes.clone()).collect();
            pending.push(request);
            let mut outcomes = Vec::with_capacity(pieces.len());
            for piece in pieces {
                outcomes.push(self.exporter.write_dead_letter(signal, piece, drop_reason).await);
            }
            let Some(request) = pending.pop() else { return };
            for (part, outcome) in request.parts.into_iter().zip(outcomes) {
                self.exporter.give_up(part.receipt, drop_reason, &reason, &outcome);
            }
        }
    }

    /// Sends one request, with retries, and returns the number of rejected items.
    async fn send(
        &self,
        signal: Signal,
        request: &OutgoingRequest,
        in_flight: &mut Option<InFlightExport>,
    ) -> Result<u64, FailedRequest> {
        if !self.exporter.may_send(signal) {
            let reason = "destination does not accept this signal".to_owned();
            let delivered = BTreeMap::new();
            return Err(FailedRequest {
                split: cannot_split,
                drop_reason: DropReason::Unsupported,
                reason,
                delivered,
            });
        }
        let pieces = request.parts.iter().map(|part| &part.piece.bytes);
        let message = match self.grouping {
            RequestGrouping::PerBatch | RequestGrouping::PiecesUpTo(_) => {
                ExportRequest::from_pieces(signal, pieces)
            }
            RequestGrouping::UpTo(_) => self.packing.pack(signal, pieces).await,
        };
        let failed = |split, drop_reason, reason| {
            let delivered = message.delivered().chunks.clone();
            FailedRequest { split, drop_reason, reason, delivered }
        };
        let mut backoff = Backoff::new(&self.retry);
        let mut is_first_refusal = true;
        let mut delivered_messages = 0;
        loop {
            let started = Instant::now();
            let connection = self.client.connection();
            let ExportResponse { status, mut result } = self.client.export(&connection, &message).await;
            self.exporter.count_request(status, started);
            let exporter = self.exporter.id();
            self.exporter.note_result(signal, &result);
            self.retry_with_new_credentials(&connection, &mut is_first_refusal, &mut result);
            let (split, drop_reason, reason): (SplitFunction, _, _) = match result {
                ExportResult::Accepted { rejected, message } => {
                    if (rejected > 0 || !message.is_empty())
                        && let Some(suppressed) = self.exporter.throttle.allow("partial_success")
                    {
                        tracing::warn!(exporter, rejected, message, suppressed, "partial success");
                    }
                    return Ok(rejected);
                }
                ExportResult::TooLarge(reason) => match self.grouping {
                    RequestGrouping::UpTo(_) | RequestGrouping::PiecesUpTo(_) => {
                        (halve, DropReason::Refused, reason)
                    }
                    // Each parcel is a message of its own.
                    RequestGrouping::PerBatch => (split_or_halve, DropReason::Refused, reason),
                },
                ExportResult::Invalid(reason) => (split_by_parcel, DropReason::Refused, reason),
                ExportResult::Unsupported(reason) if signal != Signal::Traces => {
                    (cannot_split, DropReason::Unsupported, reason)
                }
                ExportResult::Rejected(reason)
                | ExportResult::Unauthorized(reason)
                | ExportResult::Unsupported(reason) => (cannot_split, DropReason::Refused, reason),
                ExportResult::Retry { after, reason } => {
                    // Progress restarts the backoff: a destination with a rate limit accepts some messages with each
                    // attempt.
                    let delivered_before =
                        std::mem::replace(&mut delivered_messages, message.delivered().messages.len());
                    if delivered_messages > delivered_before {
                        backoff = Backoff::new(&self.retry);
                    }
                    let Some(wait) = backoff.next_delay(after) else {
                        return Err(failed(cannot_split, DropReason::RetriesEnded, reason));
                    };
                    if let Some(suppressed) = self.exporter.throttle.allow("retry") {
                        tracing::warn!(exporter, reason, ?wait, suppressed, "request failed; retrying");
                    }
                    // A request that waits for its retry must not count as in flight, which would make other consumers
                    // wait for larger batches.
                    *in_flight = None;
                    tokio::time::sleep(wait).await;
                    self.exporter.count_retry();
                    continue;
                }
            };
            return Err(failed(split, drop_reason, reason));
        }
    }

    /// Turns a refusal of the credentials into a retry if they were replaced meanwhile, or else once for each
    /// connection.
    fn retry_with_new_credentials(
        &self,
        connection: &Arc<ExportConnection>,
        is_first_refusal: &mut bool,
        result: &mut ExportResult,
    ) {
        let ExportResult::Unauthorized(reason) = result else { return };
        let has_refused = &connection.has_refused;
        let is_replaced = !Arc::ptr_eq(connection, &self.client.connection());
        if is_replaced || std::mem::take(is_first_refusal) && !has_refused.load(Ordering::Relaxed) {
            *result = ExportResult::Retry { after: Some(CREDENTIALS_WAIT), reason: std::mem::take(reason) };
        } else {
            has_refused.store(true, Ordering::Relaxed);
        }
    }

    /// Resolves the items of an accepted request, of which `rejected` were rejected.
    fn resolve_accepted(&self, request: OutgoingRequest, mut rejected: u64) {
        for part in request.parts {
            rejected -= self.resolve_part(part, rejected);
        }
    }

    /// Resolves the items of a part, of which at most `rejected` were rejected, and returns how many were.
    fn resolve_part(&self, mut part: BatchPart, rejected: u64) -> u64 {
        let mut dropped_items = 0;
        if rejected > 0 {
            let dropped = part.receipt.split(rejected);
            dropped_items = dropped.items();
            self.exporter.drop_items(dropped, DropReason::Rejected, "rejected by the destination");
        }
        part.receipt.resolve(Outcome::Exported);
        dropped_items
    }

    /// Resolves the delivered parts, and returns the request without them; `None` if all were delivered.
    fn resolve_delivered(
        &self,
        request: OutgoingRequest,
        delivered: &BTreeMap<usize, u64>,
    ) -> Option<OutgoingRequest> {
        let OutgoingRequest { parts: all, halvings } = request;
        let mut parts = Vec::with_capacity(all.len());
        for (index, part) in all.into_iter().enumerate() {
            match delivered.get(&index) {
                Some(rejected) => _ = self.resolve_part(part, *rejected),
                None => parts.push(part),
            }
        }
        (!parts.is_empty()).then_some(OutgoingRequest { parts, halvings })
    }
}

fn cannot_split(_: Signal, request: OutgoingRequest) -> Result<Vec<OutgoingRequest>, OutgoingRequest> {
    Err(request)
}

/// One request per parcel, or two of about half the size.
fn split_or_halve(signal: Signal, request: OutgoingRequest) -> Result<Vec<OutgoingRequest>, OutgoingRequest> {
    split_by_parcel(signal, request).or_else(|request| halve(signal, request))
}

/// Two requests of about half the size.
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
            request.parts.push(BatchPart { piece, receipt, parcel: whole.parcel });
        }
        if let Some(last) = request.parts.last_mut() {
            last.receipt.join(whole.receipt);
        }
    }
    let halvings = request.halvings + 1;
    let second = request.parts.split_off(request.parts.len() / 2);
    Ok(vec![OutgoingRequest { parts: second, halvings }, OutgoingRequest { parts: request.parts, halvings }])
}

/// One request per parcel.
fn split_by_parcel(_: Signal, request: OutgoingRequest) -> Result<Vec<OutgoingRequest>, OutgoingRequest> {
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
