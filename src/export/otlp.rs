//! The consumer of an OTLP exporter: from parcels in the queue to requests on the wire and an
//! outcome for every item.
//!
//! In: [`Load`]s. Out: requests of at most `max_request_size`, retried as the destination and the
//! configuration say. What is too large is halved; what a destination calls invalid is sent
//! parcel by parcel, so that one bad span does not take others down with it.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, Reply};
use super::config::RetryOnFailure;
use super::exporter::{Dropped, Exporter};
use super::grpc::GrpcClient;
use super::http::HttpClient;
use super::pack::{Packed, Packing};
use super::queue::{Load, Turn};
use super::retry::Backoff;
use super::split::split;
use crate::outcome::{Outcome, Receipt};
use verdict_otlp::Piece;
use verdict_otlp::Signal;

/// A request that is too large is halved so often, no more: from 4 MiB to 64 KiB. A destination
/// that refuses even that means something else by it (a quota), and must not be flooded.
const HALVINGS: u8 = 6;

/// How requests travel.
#[derive(Debug)]
pub(super) enum Client {
    Grpc(Box<GrpcClient>),
    Http(Box<HttpClient>),
    #[cfg(test)]
    Told(super::tests::away::Told),
}

impl Client {
    pub async fn export(&self, signal: Signal, message: &Packed) -> Reply {
        match self {
            Client::Grpc(client) => client.export(signal, message).await,
            Client::Http(client) => client.export(signal, message).await,
            #[cfg(test)]
            Client::Told(told) => told.export(message).await,
        }
    }
}

/// What the consumers of one exporter share.
#[derive(Debug)]
pub(super) struct Otlp {
    pub exporter: Arc<Exporter>,
    pub client: Client,
    pub packing: Packing,
    pub max_request: usize,
    pub retry: RetryOnFailure,
}

/// A piece on its way, and the parcel that it is of.
#[derive(Debug)]
struct Part {
    piece: Piece,
    receipt: Receipt,
    parcel: usize,
}

/// Parts that go as one request.
#[derive(Debug, Default)]
struct Batch {
    parts: Vec<Part>,
    halvings: u8,
}

/// Why a batch was not taken, once there is nothing left to wait for.
enum Failed {
    TooLarge(String),
    Invalid(String),
    Final(Dropped, String),
}

impl Otlp {
    /// Sends until the queue is closed and empty, or `stop` is called.
    pub async fn consume(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let load = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                load = self.exporter.queue.take(self.max_request) => load,
            };
            let Some(Load { signal, jobs, turn }) = load else { return };
            // Room in the queue is given back when all of the load is settled.
            let mut holds = Vec::with_capacity(jobs.len());
            let mut parts = Vec::with_capacity(jobs.len());
            for (parcel, job) in jobs.into_iter().enumerate() {
                holds.push(job.hold);
                let mut receipt = job.receipt;
                for piece in job.parcel.pieces {
                    self.part(signal, piece, parcel, &mut receipt, &mut parts);
                }
                // What the pieces did not account for goes with the last of them.
                match parts.last_mut() {
                    Some(last) if last.parcel == parcel => last.receipt.join(receipt),
                    _ => receipt.resolve(Outcome::Exported),
                }
            }
            let mut pending = self.batches(parts);
            let mut turn = Some(turn);
            let finished = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                () = self.deliver(signal, &mut pending, &mut turn) => true,
            };
            if !finished {
                for part in pending.into_iter().flat_map(|batch| batch.parts) {
                    self.exporter.drop_items(part.receipt, Dropped::Shutdown, "no time left to send them");
                }
                return;
            }
        }
    }

    fn part(
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

    /// Groups parts in order, each group within the largest request; last first, to be popped.
    fn batches(&self, parts: Vec<Part>) -> Vec<Batch> {
        let mut all: Vec<Batch> = Vec::new();
        let mut size = 0usize;
        for part in parts {
            let len = part.piece.bytes.len();
            match all.last_mut() {
                Some(batch) if size.saturating_add(len) <= self.max_request => {
                    size += len;
                    batch.parts.push(part);
                }
                _ => {
                    size = len;
                    all.push(Batch { parts: vec![part], halvings: 0 });
                }
            }
        }
        all.reverse();
        all
    }

    /// Settles every batch. A batch stays in `pending` until its fate is known, so that whoever
    /// cancels this finds all that is left there.
    async fn deliver(&self, signal: Signal, pending: &mut Vec<Batch>, turn: &mut Option<Turn>) {
        while let Some(batch) = pending.last() {
            let fate = self.send(signal, batch, turn).await;
            let Some(batch) = pending.pop() else { return };
            let (batch, reason, why) = match fate {
                Ok(rejected) => {
                    self.taken(batch, rejected);
                    continue;
                }
                Err(Failed::TooLarge(why)) => match halve(signal, batch) {
                    Ok(halves) => {
                        pending.extend(halves);
                        continue;
                    }
                    Err(batch) => (batch, Dropped::Refused, why),
                },
                Err(Failed::Invalid(why)) => match by_parcel(batch) {
                    Ok(parcels) => {
                        pending.extend(parcels);
                        continue;
                    }
                    Err(batch) => (batch, Dropped::Refused, why),
                },
                Err(Failed::Final(reason, why)) => (batch, reason, why),
            };
            let pieces: Vec<Bytes> = batch.parts.iter().map(|part| part.piece.bytes.clone()).collect();
            pending.push(batch);
            let mut outcomes = Vec::with_capacity(pieces.len());
            for piece in pieces {
                outcomes.push(self.exporter.write_dead_letter(signal, piece, reason).await);
            }
            let Some(batch) = pending.pop() else { return };
            for (part, outcome) in batch.parts.into_iter().zip(outcomes) {
                self.exporter.give_up(part.receipt, reason, &why, &outcome);
            }
        }
    }

    /// Sends one batch until it is taken or will not be; `Ok` tells how many items were rejected.
    async fn send(&self, signal: Signal, batch: &Batch, turn: &mut Option<Turn>) -> Result<u64, Failed> {
        let message = self.packing.pack(batch.parts.iter().map(|part| &part.piece.bytes)).await;
        let mut backoff = Backoff::new(&self.retry);
        loop {
            let started = Instant::now();
            let Reply { status, answer } = self.client.export(signal, &message).await;
            self.exporter.count_request(status, started);
            let exporter = self.exporter.id();
            match answer {
                Answer::Taken { rejected, message } => {
                    if (rejected > 0 || !message.is_empty())
                        && let Some(held_back) = self.exporter.quiet.allow("partial_success")
                    {
                        tracing::warn!(exporter, rejected, message, held_back, "partly taken");
                    }
                    return Ok(rejected);
                }
                Answer::TooLarge(why) => return Err(Failed::TooLarge(why)),
                Answer::Invalid(why) => return Err(Failed::Invalid(why)),
                Answer::Refused(why) => return Err(Failed::Final(Dropped::Refused, why)),
                Answer::Unsupported(why) if signal == Signal::Traces => {
                    return Err(Failed::Final(Dropped::Refused, why));
                }
                Answer::Unsupported(why) => {
                    self.exporter.set_unsupported(signal, &why);
                    return Err(Failed::Final(Dropped::Unsupported, why));
                }
                Answer::Later { after, why } => {
                    let Some(wait) = backoff.next(after) else {
                        return Err(Failed::Final(Dropped::RetriesEnded, why));
                    };
                    if let Some(held_back) = self.exporter.quiet.allow("retry") {
                        tracing::warn!(exporter, why, ?wait, held_back, "not taken now, trying again");
                    }
                    // While this one waits, others are not to gather behind it.
                    *turn = None;
                    tokio::time::sleep(wait).await;
                    self.exporter.count_retry();
                }
            }
        }
    }

    fn taken(&self, batch: Batch, mut rejected: u64) {
        for mut part in batch.parts {
            if rejected > 0 {
                let lost = part.receipt.split(rejected);
                rejected -= lost.items();
                self.exporter.drop_items(lost, Dropped::Rejected, "rejected by the destination");
            }
            part.receipt.resolve(Outcome::Exported);
        }
    }
}

/// Two batches of about half the size, the first one last; or the batch, if it cannot be parted.
fn halve(signal: Signal, mut batch: Batch) -> Result<Vec<Batch>, Batch> {
    if batch.halvings >= HALVINGS {
        return Err(batch);
    }
    if batch.parts.len() == 1 {
        let Some(mut whole) = batch.parts.pop() else { return Err(batch) };
        let pieces = split(signal, &whole.piece.bytes, whole.piece.bytes.len() / 2);
        if pieces.len() < 2 {
            batch.parts.push(whole);
            return Err(batch);
        }
        for piece in pieces {
            let receipt = whole.receipt.split(piece.items);
            batch.parts.push(Part { piece, receipt, parcel: whole.parcel });
        }
        if let Some(last) = batch.parts.last_mut() {
            last.receipt.join(whole.receipt);
        }
    }
    let halvings = batch.halvings + 1;
    let second = batch.parts.split_off(batch.parts.len() / 2);
    Ok(vec![Batch { parts: second, halvings }, Batch { parts: batch.parts, halvings }])
}

/// One batch a parcel, the first one last; or the batch, if it is of one parcel only.
fn by_parcel(batch: Batch) -> Result<Vec<Batch>, Batch> {
    let first = batch.parts.first().map(|part| part.parcel);
    if batch.parts.iter().all(|part| Some(part.parcel) == first) {
        return Err(batch);
    }
    let halvings = batch.halvings;
    let mut all: Vec<Batch> = Vec::new();
    for part in batch.parts {
        match all.last_mut() {
            Some(last) if last.parts.iter().all(|p| p.parcel == part.parcel) => last.parts.push(part),
            _ => all.push(Batch { parts: vec![part], halvings }),
        }
    }
    all.reverse();
    Ok(all)
}
