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
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long a request waits for space in the inboxes of its shards. A shard empties a full inbox within
/// milliseconds unless it waits for an exporter or a large trace. The bodies of waiting requests must not use
/// up the memory for requests in flight, which all senders share.
const INBOX_TIMEOUT: Duration = Duration::from_millis(100);
/// The response to a request that could not be stored.
const NOT_STORED: Refused = Refused::Overloaded { retry: RETRY_DELAY };

/// An item of a request that belongs to one trace and is passed to its shard.
pub(super) trait ShardItem: Sized {
    fn trace(&self) -> TraceId;
    /// The bytes that are charged for the item while it waits in an inbox.
    fn charged_bytes(&self) -> usize {
        0
    }
    /// The message with items of one shard. `record` is the stored record that contains them.
    fn message(items: Vec<Self>, reservation: Reservation, record: Option<Seq>) -> ShardMessage;
}

impl ShardItem for Group {
    fn trace(&self) -> TraceId {
        self.trace
    }

    fn charged_bytes(&self) -> usize {
        self.size + assemble::envelope_bytes(&self.spans) + self.spans.len() * SPAN_OVERHEAD
    }

    fn message(items: Vec<Group>, reservation: Reservation, record: Option<Seq>) -> ShardMessage {
        ShardMessage::Spans(items, reservation, record)
    }
}

impl ShardItem for GenAiRecord {
    fn trace(&self) -> TraceId {
        self.trace
    }

    fn charged_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn message(items: Vec<GenAiRecord>, reservation: Reservation, record: Option<Seq>) -> ShardMessage {
        ShardMessage::Logs(items, reservation, record)
    }
}

impl ShardItem for (TraceId, PriorVerdict) {
    fn trace(&self) -> TraceId {
        self.0
    }

    fn message(items: Vec<Self>, _: Reservation, _: Option<Seq>) -> ShardMessage {
        ShardMessage::Closed(items)
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
            let reservation = budget.reserve(items.iter().map(T::charged_bytes).sum());
            permit.send(T::message(items, reservation, record));
        }
    }
}

/// A parsed request.
struct IngestRequest<T> {
    signal: Signal,
    /// The record of the request, if its receiver has stored it.
    received: ReceivedRecord,
    body: Bytes,
    /// The items that are passed to shards.
    items: Vec<T>,
    /// The number of items of the body if the whole body is forwarded, else 0.
    forwarded_with_body: u64,
    /// Whether `items` are forwarded, with the body or in `pieces`.
    is_forwarded: bool,
    /// Parts of the request that are forwarded.
    pieces: Vec<Piece>,
    /// Encodes `items`, if they are not the whole body.
    encode: Option<fn(&ReservedItems<T>) -> Bytes>,
}

impl<T> IngestRequest<T> {
    /// A request whose body is stored as a whole, and forwarded if `forwarded_with_body` is not 0.
    fn new(
        signal: Signal,
        received: ReceivedRecord,
        body: Bytes,
        items: Vec<T>,
        forwarded_with_body: u64,
    ) -> IngestRequest<T> {
        IngestRequest {
            signal,
            received,
            body,
            items,
            forwarded_with_body,
            is_forwarded: forwarded_with_body > 0,
            pieces: Vec::new(),
            encode: None,
        }
    }
}

impl Pipeline {
    async fn ingest(&self, offer: Offer, received: ReceivedRecord) -> Result<Accepted, Refused> {
        match offer.signal {
            Signal::Traces => self.ingest_traces(offer.body, received).await,
            Signal::Logs => self.ingest_logs(offer.body, received).await,
            Signal::Metrics => self.ingest_metrics(offer.body).await,
        }
    }

    async fn ingest_traces(&self, body: Bytes, received: ReceivedRecord) -> Result<Accepted, Refused> {
        let split = request::split(&body, &self.prefix, &self.envelopes)
            .map_err(|error| Refused::Malformed(error.to_string()))?;
        let accepted = Accepted { rejected: split.rejected.count, message: split.rejected.to_string() };
        let group_count = split.groups.len();
        let mut groups = self.without_exported(received, split.groups).await?;
        // If its forwarded part was delivered before, only the items of the shards are left.
        let was_forwarded = self.shared.store.was_forwarded(received);
        let omitted = accepted.rejected + (group_count - groups.len()) as u64;
        let spans = span_count(&groups);
        let meter = &self.shared.meter;
        meter.count_received(spans, accepted.rejected);
        let mut unselected = Vec::new();
        if let Some(select) = &self.shared.config.load().select {
            unselected = remove_unselected(&mut groups, |span| select::selects(select, span));
        }
        if has_self_telemetry(&groups) {
            let is_of_agents = |span: &verdict_otlp::trace::Span| !select::is_self_telemetry(&span.envelope);
            unselected.extend(remove_unselected(&mut groups, is_of_agents));
        }
        if was_forwarded {
            unselected.clear();
        } else {
            meter.telemetry.traces.passed_through.inc_by(span_count(&unselected));
        }
        // A span about a request with self-telemetry alone would cause further such requests without end.
        let receive_span = match groups.is_empty() && unselected.iter().all(is_self_telemetry) {
            true => Span::none(),
            false => {
                tracing::info_span!(target: SELF_TARGET, "receive", spans, bytes = body.len(), accepted = Empty)
            }
        };
        let forwarding = self.shared.forwarding;
        let (forwards_body, pieces) = match was_forwarded {
            true => (false, Vec::new()),
            false => forwarding.on_arrival(&groups, &unselected, omitted),
        };
        let forwarded_with_body = if forwards_body { spans } else { 0 };
        let is_forwarded = forwarding.forwards();
        if is_forwarded {
            set_forwarded(&mut groups);
        }
        let encode_items: fn(&ReservedItems<Group>) -> Bytes =
            |groups| encode(groups.items(), usize::MAX).pop().map(|piece| piece.bytes).unwrap_or_default();
        let encode = (!unselected.is_empty()).then_some(encode_items);
        let request = IngestRequest {
            signal: Signal::Traces,
            received,
            body,
            items: groups,
            forwarded_with_body,
            is_forwarded,
            pieces,
            encode,
        };
        let result = self.accept(request).instrument(receive_span.clone()).await;
        receive_span.record("accepted", result.is_ok());
        meter.count_answered(spans, &result);
        result.map(|()| accepted)
    }

    async fn ingest_logs(&self, body: Bytes, received: ReceivedRecord) -> Result<Accepted, Refused> {
        let mut records = logs::find(&body).map_err(|error| Refused::Malformed(error.to_string()))?;
        records.gen_ai = self.without_exported(received, records.gen_ai).await?;
        let (used, malformed) = (records.gen_ai.len() as u64, records.malformed);
        let valid = records.records - malformed;
        let accepts = self.shared.exporters.accepts(Signal::Logs);
        // GenAI records are used for evaluation even if they cannot be delivered. A request that its receiver has
        // stored is not refused, since it would not be sent again.
        if accepts && used == 0 && received.is_none() && !self.shared.exporters.delivers(Signal::Logs) {
            return Err(Refused::Undeliverable(Signal::Logs));
        }
        let body = if malformed > 0 { logs::without_malformed(&body) } else { body };
        let forwarded_with_body =
            if accepts && !self.shared.store.was_forwarded(received) { valid } else { 0 };
        self.accept(IngestRequest::new(Signal::Logs, received, body, records.gen_ai, forwarded_with_body))
            .await?;
        // Without an exporter for logs, GenAI records are used for evaluation only, and others are rejected.
        let rejected = if accepts || received.is_some() { malformed } else { records.records - used };
        let message = match rejected {
            0 => String::new(),
            _ if accepts || received.is_some() => format!("{malformed} malformed log records were rejected"),
            _ => format!(
                "no exporter accepts logs; {used} GenAI records were used for evaluation, the others were rejected"
            ),
        };
        Ok(Accepted { rejected, message })
    }

    async fn ingest_metrics(&self, body: Bytes) -> Result<Accepted, Refused> {
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

    /// Stores a request, sends the items to their shards, and forwards the parts that are exported on arrival.
    async fn accept<T: ShardItem>(&self, request: IngestRequest<T>) -> Result<(), Refused> {
        let IngestRequest {
            signal,
            received,
            body,
            items,
            forwarded_with_body,
            is_forwarded,
            pieces,
            encode,
        } = request;
        let shared = &self.shared;
        let reserved = self.reserve_within(inbox_timeout(received), items).await?;
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
        if forwarded_with_body > 0 || !reserved.0.is_empty() {
            let admission = shared.store.admit(signal, received, &|| {
                let reason = (forwarded_with_body > 0).then_some(RetainReason::Forwarded);
                let traces = reserved.items().map(|item| RetainReason::Trace(item.trace()));
                let reasons: BTreeSet<RetainReason> = reason.into_iter().chain(traces).collect();
                let body = encode.map_or_else(|| body.clone(), |encode| encode(&reserved));
                RequestRecord { reasons: reasons.into_iter().collect(), forwarded: is_forwarded, body }
            });
            record = admission.await.ok_or(NOT_STORED)?.commit();
        }
        // From here on no step can fail, and the items are sent before the next await.
        reserved.send(&shared.budget, record);
        let mut waits = Vec::new();
        if forwarded_with_body > 0 {
            let piece = Piece { bytes: body, items: forwarded_with_body };
            waits.push(forward(shared, record, signal, piece, &[]));
        }
        for (admission, piece) in stored {
            waits.push(forward(shared, admission.commit(), signal, piece, &[]));
        }
        // A receiver that stores its requests checks the pressure before each of them, and must not wait.
        if received.is_none() {
            for wait in waits {
                wait.await;
            }
        }
        Ok(())
    }

    /// The items of a request. If its receiver has stored the request, items that were exported before are left out,
    /// and the shards receive the prior verdicts of the traces whose items are late.
    async fn without_exported<T: ShardItem>(
        &self,
        received: ReceivedRecord,
        items: Vec<T>,
    ) -> Result<Vec<T>, Refused> {
        let Some(record) = received else { return Ok(items) };
        let (mut remaining, mut late) = (Vec::with_capacity(items.len()), Vec::new());
        for item in items {
            match self.shared.store.exported_before(record, item.trace()) {
                ExportedBefore::Same => continue,
                ExportedBefore::Late(verdict) => late.push((item.trace(), verdict)),
                ExportedBefore::No => {}
            }
            remaining.push(item);
        }
        self.reserve_within(inbox_timeout(received), late).await?.send(&self.shared.budget, None);
        Ok(remaining)
    }

    /// Like [`Pipeline::reserve`], with a timeout. A full shard refuses only the requests with traces of its own.
    async fn reserve_within<T: ShardItem>(
        &self,
        limit: Duration,
        items: Vec<T>,
    ) -> Result<ReservedItems<T>, Refused> {
        timeout(limit, self.reserve(items)).await.map_err(|_| Refused::Overloaded { retry: RETRY_DELAY })?
    }

    /// Distributes items to shards and reserves space in every inbox, so that a request is accepted as a
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
        // The fullest inbox first: a request that waits for it holds no space in the others.
        needed.sort_by_key(|(inbox, _)| inbox.capacity());
        let mut reserved = Vec::with_capacity(needed.len());
        for (inbox, items) in needed {
            let permit = inbox.reserve_owned().await.map_err(|_| Refused::ShuttingDown)?;
            reserved.push((permit, items));
        }
        Ok(ReservedItems(reserved))
    }

    /// The causes for which all senders are asked to retry, each with the delay after which they should.
    pub(super) fn overloads(&self) -> impl Iterator<Item = (Duration, &'static str)> {
        let inboxes = self.inboxes.read().unwrap_or_else(PoisonError::into_inner);
        let are_full = !inboxes.is_empty() && inboxes.iter().all(|inbox| inbox.capacity() == 0);
        let Shared { store, budget, exporters, .. } = &*self.shared;
        let retry = |is_overloaded: bool| is_overloaded.then_some(RETRY_DELAY);
        [
            (retry(are_full), "overloaded: the inboxes of all shards are full"),
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
        Box::pin(self.ingest(offer, None))
    }

    fn offer_stored(&self, offer: Offer, record: Seq) -> OfferFuture<'_> {
        Box::pin(self.ingest(offer, Some(record)))
    }

    fn drop_revoked(&self) -> DropFuture {
        Box::pin(self.ask_shards(ShardMessage::DropRevoked))
    }

    fn charge(&self, bytes: usize) -> Box<dyn Any + Send> {
        Box::new(self.shared.budget.reserve(bytes))
    }
}

/// How long a request waits for space in the inboxes: not at all if its receiver has stored it, since the receiver
/// offers it again.
fn inbox_timeout(received: ReceivedRecord) -> Duration {
    if received.is_some() { Duration::ZERO } else { INBOX_TIMEOUT }
}

/// The number of spans.
fn span_count(groups: &[Group]) -> u64 {
    groups.iter().map(|group| group.spans.len() as u64).sum()
}

/// Whether all spans are telemetry of this process, or of another otel-verdict.
fn is_self_telemetry(group: &Group) -> bool {
    group.spans.iter().all(|span| select::is_self_telemetry(&span.envelope))
}

/// Whether any span is telemetry of this process, or of another otel-verdict. Consecutive spans usually share an
/// envelope, which is read once.
fn has_self_telemetry(groups: &[Group]) -> bool {
    let mut last: Option<&Arc<Envelope>> = None;
    groups.iter().flat_map(|group| &group.spans).any(|span| {
        let is_known = last.is_some_and(|last| Arc::ptr_eq(last, &span.envelope));
        last = Some(&span.envelope);
        !is_known && select::is_self_telemetry(&span.envelope)
    })
}

/// Removes the spans for which `is_selected` is false from `groups`, and returns them.
fn remove_unselected(
    groups: &mut Vec<Group>,
    is_selected: impl Fn(&verdict_otlp::trace::Span) -> bool,
) -> Vec<Group> {
    let mut unselected = Vec::new();
    for group in groups.iter_mut() {
        let (selected, spans): (Vec<_>, Vec<_>) =
            std::mem::take(&mut group.spans).into_iter().partition(&is_selected);
        group.spans = selected;
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
