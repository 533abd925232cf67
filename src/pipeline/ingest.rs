//! Splits requests into traces, stores them, passes them to the shards, and forwards spans that are not
//! buffered.
//!
//! In: requests. Out: work for the shards, and parcels that are exported at once. Room in the shards'
//! inboxes is reserved first, then the request is stored, and only then are spans passed on: a refused
//! request has no effect. There is no await between storing and the last of these steps, so that a client
//! that cancels its request cannot interrupt them.

use std::any::Any;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};
use verdict_journal::{RetainReason, Seq};
use verdict_otlp::logs::{self, GenAiRecord};
use verdict_otlp::request::{self, Group};
use verdict_otlp::trace::{Envelope, PriorVerdict, TraceId};
use verdict_otlp::{Piece, Signal, metrics};
use verdict_telemetry::SELF_TARGET;

use super::budget::Budget;
use super::deliver::forward;
use super::forwarding::{encode, set_forwarded};
use super::shard::ShardMessage;
use super::shared::Shared;
use super::store::{ExportedBefore, ReceivedRecord, RequestRecord};
use super::{Pipeline, select};
use crate::assemble::{self, SPAN_OVERHEAD};
use crate::receive::{Accepted, DropFuture, Intake, Offer, OfferFuture, Refused};
use crate::reservation::Reservation;

/// The delay after which a refused sender should retry: long enough for a queue to drain, short enough that
/// the sender's buffer does not overflow.
const RETRY: Duration = Duration::from_secs(1);
/// How long a request waits for room in the inboxes of its shards. A shard empties a full inbox within
/// milliseconds unless it waits for an exporter or a large trace. The bodies that wait meanwhile must not use
/// up the memory for requests in flight, which all senders share.
const INBOX_WAIT: Duration = Duration::from_millis(100);
/// The request could not be stored, so it is not accepted.
const NOT_STORED: Refused = Refused::Overloaded { retry: RETRY };

/// An item of a request that belongs to one trace and is passed to its shard.
pub(super) trait ShardItem: Sized {
    fn trace(&self) -> TraceId;
    /// The bytes that it is charged while it waits in an inbox.
    fn weight(&self) -> usize {
        0
    }
    fn work(all: Vec<Self>, reservation: Reservation, record: Option<Seq>) -> ShardMessage;
}

impl ShardItem for Group {
    fn trace(&self) -> TraceId {
        self.trace
    }

    fn weight(&self) -> usize {
        self.size + assemble::envelope_bytes(&self.spans) + self.spans.len() * SPAN_OVERHEAD
    }

    fn work(all: Vec<Group>, reservation: Reservation, record: Option<Seq>) -> ShardMessage {
        ShardMessage::Spans(all, reservation, record)
    }
}

impl ShardItem for GenAiRecord {
    fn trace(&self) -> TraceId {
        self.trace
    }

    fn weight(&self) -> usize {
        self.bytes.len()
    }

    fn work(all: Vec<GenAiRecord>, reservation: Reservation, record: Option<Seq>) -> ShardMessage {
        ShardMessage::Logs(all, reservation, record)
    }
}

impl ShardItem for (TraceId, PriorVerdict) {
    fn trace(&self) -> TraceId {
        self.0
    }

    fn work(all: Vec<Self>, _: Reservation, _: Option<Seq>) -> ShardMessage {
        ShardMessage::Closed(all)
    }
}

/// Items, with a permit for the inbox of each shard.
pub(super) struct ReservedItems<T>(Vec<(mpsc::OwnedPermit<ShardMessage>, Vec<T>)>);

impl<T: ShardItem> ReservedItems<T> {
    fn items(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|(_, items)| items)
    }

    /// Sends the items to their shards. `record` is the stored record that contains them.
    pub(super) fn send(self, budget: &Budget, record: Option<Seq>) {
        for (permit, items) in self.0 {
            let reservation = budget.reserve(items.iter().map(T::weight).sum());
            permit.send(T::work(items, reservation, record));
        }
    }
}

/// A parsed request.
struct IngestRequest<T> {
    signal: Signal,
    /// The record of the request, if its receiver has stored it.
    received: ReceivedRecord,
    body: Bytes,
    for_shards: Vec<T>,
    /// The number of items if the whole body is forwarded, else 0.
    forward: u64,
    /// Whether the items of the shards are forwarded, with the body or in `pieces`.
    forwarded: bool,
    /// Parts of the request that are forwarded.
    pieces: Vec<Piece>,
    /// Encodes the items of the shards, if they are not the whole body.
    encode: Option<fn(&ReservedItems<T>) -> Bytes>,
}

impl<T> IngestRequest<T> {
    /// A request whose body is stored as a whole, and forwarded if `forward` is not 0.
    fn new(
        signal: Signal,
        received: ReceivedRecord,
        body: Bytes,
        for_shards: Vec<T>,
        forward: u64,
    ) -> IngestRequest<T> {
        let forwarded = forward > 0;
        IngestRequest {
            signal,
            received,
            body,
            for_shards,
            forward,
            forwarded,
            pieces: Vec::new(),
            encode: None,
        }
    }
}

impl Pipeline {
    async fn take(&self, offer: Offer, received: ReceivedRecord) -> Result<Accepted, Refused> {
        match offer.signal {
            Signal::Traces => self.traces(offer.body, received).await,
            Signal::Logs => self.logs(offer.body, received).await,
            Signal::Metrics => self.metrics(offer.body).await,
        }
    }

    async fn traces(&self, body: Bytes, received: ReceivedRecord) -> Result<Accepted, Refused> {
        let split = request::split(&body, &self.prefix, &self.envelopes)
            .map_err(|error| Refused::Malformed(error.to_string()))?;
        let accepted = Accepted { rejected: split.rejected.count, message: split.rejected.to_string() };
        let all_groups = split.groups.len();
        let mut groups = self.without_exported(received, split.groups).await?;
        // The body is more than what is forwarded.
        let has_passed = self.shared.store.was_forwarded(received);
        let left_out = accepted.rejected + (all_groups - groups.len()) as u64;
        let spans = count(&groups);
        let meter = &self.shared.meter;
        meter.received(spans, accepted.rejected);
        let mut unselected = Vec::new();
        if let Some(select) = &self.shared.config.load().select {
            unselected = take_unselected(&mut groups, |span| select::selects(select, span));
        }
        if has_own(&groups) {
            unselected.extend(take_unselected(&mut groups, |span| !select::is_own(&span.envelope)));
        }
        if has_passed {
            unselected.clear();
        } else {
            meter.telemetry.traces.passed_through.inc_by(count(&unselected));
        }
        // A span about a request of spans about ourselves would never end.
        let receive_span = match groups.is_empty() && unselected.iter().all(is_own) {
            true => Span::none(),
            false => {
                tracing::info_span!(target: SELF_TARGET, "receive", spans, bytes = body.len(), accepted = Empty)
            }
        };
        let delivery = self.shared.delivery;
        let (whole, pieces) = match has_passed {
            true => (false, Vec::new()),
            false => delivery.on_arrival(&groups, &unselected, left_out),
        };
        let (forward, forwarded) = (if whole { spans } else { 0 }, delivery.forwards());
        if forwarded {
            set_forwarded(&mut groups);
        }
        let part: fn(&ReservedItems<Group>) -> Bytes =
            |groups| encode(groups.items(), usize::MAX).pop().map(|piece| piece.bytes).unwrap_or_default();
        let encode = (!unselected.is_empty()).then_some(part);
        let (signal, for_shards) = (Signal::Traces, groups);
        let request =
            IngestRequest { signal, received, body, for_shards, forward, forwarded, pieces, encode };
        let result = self.accept(request).instrument(receive_span.clone()).await;
        receive_span.record("accepted", result.is_ok());
        meter.answered(spans, &result);
        result.map(|()| accepted)
    }

    async fn logs(&self, body: Bytes, received: ReceivedRecord) -> Result<Accepted, Refused> {
        let mut found = logs::find(&body).map_err(|error| Refused::Malformed(error.to_string()))?;
        found.gen_ai = self.without_exported(received, found.gen_ai).await?;
        let (used, malformed) = (found.gen_ai.len() as u64, found.malformed);
        let valid = found.records - malformed;
        let accepts = self.shared.exporters.accepts(Signal::Logs);
        // GenAI records are used for evaluation whether or not they can be delivered.
        // A stored request is not sent again: the exporters decide what becomes of it.
        if accepts && used == 0 && received.is_none() && !self.shared.exporters.delivers(Signal::Logs) {
            return Err(Refused::Undeliverable(Signal::Logs));
        }
        let body = if malformed > 0 { logs::without_malformed(&body) } else { body };
        let forward = if accepts && !self.shared.store.was_forwarded(received) { valid } else { 0 };
        self.accept(IngestRequest::new(Signal::Logs, received, body, found.gen_ai, forward)).await?;
        // Without an exporter for logs, GenAI records are used for evaluation only, and others are rejected.
        let rejected = if accepts || received.is_some() { malformed } else { found.records - used };
        let message = match rejected {
            0 => String::new(),
            _ if accepts || received.is_some() => format!("{malformed} malformed log records were rejected"),
            _ => format!(
                "no exporter accepts logs; {used} GenAI records were used for evaluation, the others were rejected"
            ),
        };
        Ok(Accepted { rejected, message })
    }

    async fn metrics(&self, body: Bytes) -> Result<Accepted, Refused> {
        if !self.shared.exporters.accepts(Signal::Metrics) {
            return Err(Refused::Unsupported(Signal::Metrics));
        }
        if !self.shared.exporters.delivers(Signal::Metrics) {
            return Err(Refused::Undeliverable(Signal::Metrics));
        }
        let points = metrics::count(&body).map_err(|error| Refused::Malformed(error.to_string()))?;
        let (valid, rejected) = (points.all - points.malformed, points.malformed);
        let body = if rejected > 0 { metrics::without_malformed(&body) } else { body };
        self.accept(IngestRequest::<Group>::new(Signal::Metrics, None, body, Vec::new(), valid)).await?;
        let message = match rejected {
            0 => String::new(),
            _ => format!("{rejected} malformed data points were rejected"),
        };
        Ok(Accepted { rejected, message })
    }

    /// Stores a request, sends the items to their shards, and forwards the rest.
    async fn accept<T: ShardItem>(&self, request: IngestRequest<T>) -> Result<(), Refused> {
        let IngestRequest { signal, received, body, for_shards, forward: whole, forwarded, pieces, encode } =
            request;
        let shared = &self.shared;
        let reserved = self.reserve_within(inbox_wait(received), for_shards).await?;
        let mut stored = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let record = || RequestRecord {
                reasons: vec![RetainReason::Forwarded],
                forwarded: true,
                body: piece.bytes.clone(),
            };
            let admission = shared.store.admit(signal, received, &record);
            stored.push((admission.await.ok_or(NOT_STORED)?, piece));
        }
        let mut record = None;
        if whole > 0 || !reserved.0.is_empty() {
            let admission = shared.store.admit(signal, received, &|| {
                let reason = (whole > 0).then_some(RetainReason::Forwarded);
                let traces = reserved.items().map(|item| RetainReason::Trace(item.trace()));
                let reasons: BTreeSet<RetainReason> = reason.into_iter().chain(traces).collect();
                let body = encode.map_or_else(|| body.clone(), |encode| encode(&reserved));
                RequestRecord { reasons: reasons.into_iter().collect(), forwarded, body }
            });
            record = admission.await.ok_or(NOT_STORED)?.commit();
        }
        // From here to the last await nothing can fail or be interrupted.
        reserved.send(&shared.budget, record);
        let mut waits = Vec::new();
        if whole > 0 {
            waits.push(forward(shared, record, signal, Piece { bytes: body, items: whole }, &[]));
        }
        for (admission, piece) in stored {
            waits.push(forward(shared, admission.commit(), signal, piece, &[]));
        }
        // A receiver that stores its requests looks for pressure before each of them, and must not wait.
        if received.is_none() {
            for wait in waits {
                wait.await;
            }
        }
        Ok(())
    }

    /// The items of a request, without those of traces that were exported before if its receiver has stored it. The
    /// shards of the others receive the list of those that are late.
    async fn without_exported<T: ShardItem>(
        &self,
        received: ReceivedRecord,
        items: Vec<T>,
    ) -> Result<Vec<T>, Refused> {
        let Some(record) = received else { return Ok(items) };
        let (mut left, mut late) = (Vec::with_capacity(items.len()), Vec::new());
        for item in items {
            match self.shared.store.exported_before(record, item.trace()) {
                ExportedBefore::Same => continue,
                ExportedBefore::Late(verdict) => late.push((item.trace(), verdict)),
                ExportedBefore::No => {}
            }
            left.push(item);
        }
        self.reserve_within(inbox_wait(received), late).await?.send(&self.shared.budget, None);
        Ok(left)
    }

    /// As [`Pipeline::reserve`]. A full shard refuses only the requests with traces of its own.
    async fn reserve_within<T: ShardItem>(
        &self,
        within: Duration,
        items: Vec<T>,
    ) -> Result<ReservedItems<T>, Refused> {
        timeout(within, self.reserve(items)).await.map_err(|_| Refused::Overloaded { retry: RETRY })?
    }

    /// Distributes items to shards and reserves room in every inbox, so that a request is accepted as a
    /// whole or not at all.
    pub(super) async fn reserve<T: ShardItem>(&self, items: Vec<T>) -> Result<ReservedItems<T>, Refused> {
        if items.is_empty() {
            return Ok(ReservedItems(Vec::new()));
        }
        let inboxes = self.inboxes();
        if inboxes.is_empty() {
            return Err(Refused::ShuttingDown);
        }
        let mut by_shard: Vec<Vec<T>> = (0..inboxes.len()).map(|_| Vec::new()).collect();
        for item in items {
            let shard = self.hasher.hash_one(item.trace()) as usize % inboxes.len();
            by_shard[shard].push(item);
        }
        let mut needed: Vec<_> =
            inboxes.into_iter().zip(by_shard).filter(|(_, items)| !items.is_empty()).collect();
        // The fullest inbox first: a request that waits for it holds no room in the others.
        needed.sort_by_key(|(inbox, _)| inbox.capacity());
        let mut reserved = Vec::with_capacity(needed.len());
        for (inbox, items) in needed {
            let permit = inbox.reserve_owned().await.map_err(|_| Refused::ShuttingDown)?;
            reserved.push((permit, items));
        }
        Ok(ReservedItems(reserved))
    }

    /// Why all senders are asked to retry, and after which delay.
    pub(super) fn overloads(&self) -> impl Iterator<Item = (Duration, &'static str)> {
        let inboxes = self.inboxes.read().unwrap_or_else(PoisonError::into_inner);
        let full = !inboxes.is_empty() && inboxes.iter().all(|inbox| inbox.capacity() == 0);
        let Shared { store, budget, exporters, .. } = &*self.shared;
        let retry = |is_full: bool| is_full.then_some(RETRY);
        [
            (retry(full), "overloaded: the inboxes of all shards are full"),
            (retry(store.is_full()), "overloaded: the journal is full or cannot be written"),
            (retry(budget.is_full(exporters.required_bytes())), "overloaded: memory.budget is used up"),
            (exporters.pressure(), "overloaded: the queue of a required exporter is full"),
        ]
        .into_iter()
        .filter_map(|(retry, cause)| Some((retry?, cause)))
    }
}

impl Intake for Pipeline {
    fn pressure(&self) -> Option<Duration> {
        self.overloads().next().map(|(retry, _)| retry)
    }

    fn offer(&self, offer: Offer) -> OfferFuture<'_> {
        Box::pin(self.take(offer, None))
    }

    fn offer_stored(&self, offer: Offer, record: Seq) -> OfferFuture<'_> {
        Box::pin(self.take(offer, Some(record)))
    }

    fn drop_revoked(&self) -> DropFuture {
        Box::pin(self.ask_shards(ShardMessage::DropRevoked))
    }

    fn charge(&self, bytes: usize) -> Box<dyn Any + Send> {
        Box::new(self.shared.budget.reserve(bytes))
    }
}

/// A receiver that has stored its requests offers them again soon, and has other work meanwhile.
fn inbox_wait(received: ReceivedRecord) -> Duration {
    if received.is_some() { Duration::ZERO } else { INBOX_WAIT }
}

fn count(groups: &[Group]) -> u64 {
    groups.iter().map(|group| group.spans.len() as u64).sum()
}

fn is_own(group: &Group) -> bool {
    group.spans.iter().all(|span| select::is_own(&span.envelope))
}

/// Whether a span is about this process, or another of its kind. Consecutive spans usually share an envelope.
fn has_own(groups: &[Group]) -> bool {
    let mut last: Option<&Arc<Envelope>> = None;
    groups.iter().flat_map(|group| &group.spans).any(|span| {
        let is_known = last.is_some_and(|last| Arc::ptr_eq(last, &span.envelope));
        last = Some(&span.envelope);
        !is_known && select::is_own(&span.envelope)
    })
}

/// Removes the spans that are not `wanted` from `groups`, and returns them.
fn take_unselected(
    groups: &mut Vec<Group>,
    wanted: impl Fn(&verdict_otlp::trace::Span) -> bool,
) -> Vec<Group> {
    let mut unselected = Vec::new();
    for group in groups.iter_mut() {
        let (keep, spans): (Vec<_>, Vec<_>) = std::mem::take(&mut group.spans).into_iter().partition(&wanted);
        group.spans = keep;
        if !spans.is_empty() {
            let size = spans.iter().map(|span| span.bytes.len()).sum();
            unselected.push(Group { trace: group.trace, size, spans });
        }
    }
    groups.retain(|group| !group.spans.is_empty());
    unselected
}

#[cfg(test)]
mod tests;
