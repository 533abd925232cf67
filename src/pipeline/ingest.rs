//! Requests: split into traces, stored, given to the shards, and forwarded where spans are not held.
//!
//! In: requests. Out: work for the shards, and what the exporters get at once. Room in the shards' inboxes
//! is reserved first, then the request is stored, and only then is anything handed on: a request that is
//! refused has had no effect. Everything after storing happens without a wait in between, so that a sender
//! that gives up cannot interrupt it.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use verdict_journal::{RetainReason, Seq};
use verdict_otlp::logs::{self, GenAiRecord};
use verdict_otlp::request::{self, Group};
use verdict_otlp::trace::{PriorVerdict, TraceId};
use verdict_otlp::write::{self, Item};
use verdict_otlp::{Piece, Signal, metrics};

use super::budget::{Budget, Held, SPAN_OVERHEAD};
use super::deliver::forward;
use super::shard::Work;
use super::{Pipeline, select};
use crate::assemble;
use crate::config::Select;
use crate::receive::{Accepted, Answer, Intake, Offer, Refused};

/// When a refused sender should come back: long enough for a queue to drain, short enough that
/// its own buffer does not overflow.
const RETRY: Duration = Duration::from_secs(1);
/// Not stored, so not accepted: the sender still has it.
const NOT_STORED: Refused = Refused::Overloaded { retry: RETRY };
/// Largest request made of spans that are forwarded.
const MAX_REQUEST: usize = 4 << 20;

/// What belongs to one trace and is given to its shard.
pub(super) trait OfTrace: Sized {
    fn trace(&self) -> TraceId;
    /// What it is charged while it waits in an inbox.
    fn weight(&self) -> usize {
        0
    }
    fn work(all: Vec<Self>, held: Held, record: Option<Seq>) -> Work;
}

impl OfTrace for Group {
    fn trace(&self) -> TraceId {
        self.trace
    }

    fn weight(&self) -> usize {
        self.size + assemble::envelope_bytes(&self.spans) + self.spans.len() * SPAN_OVERHEAD
    }

    fn work(all: Vec<Group>, held: Held, record: Option<Seq>) -> Work {
        Work::Spans(all, held, record)
    }
}

impl OfTrace for GenAiRecord {
    fn trace(&self) -> TraceId {
        self.trace
    }

    fn weight(&self) -> usize {
        self.bytes.len()
    }

    fn work(all: Vec<GenAiRecord>, held: Held, record: Option<Seq>) -> Work {
        Work::Logs(all, held, record)
    }
}

impl OfTrace for (TraceId, PriorVerdict) {
    fn trace(&self) -> TraceId {
        self.0
    }

    fn work(all: Vec<Self>, _: Held, _: Option<Seq>) -> Work {
        Work::Closed(all)
    }
}

/// Items with room for them in the inbox of each shard.
pub(super) struct Reserved<T>(Vec<(mpsc::OwnedPermit<Work>, Vec<T>)>);

impl<T: OfTrace> Reserved<T> {
    fn items(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|(_, items)| items)
    }

    /// Gives the items to their shards. `record` holds them.
    pub fn send(self, budget: &Arc<Budget>, record: Option<Seq>) {
        for (permit, items) in self.0 {
            let held = budget.hold(items.iter().map(T::weight).sum());
            permit.send(T::work(items, held, record));
        }
    }
}

/// A request, read.
struct Request<T> {
    signal: Signal,
    body: Bytes,
    for_shards: Vec<T>,
    /// Items of the body, where all of it is forwarded.
    forward: u64,
    /// Other requests made of it that are forwarded.
    pieces: Vec<Piece>,
    /// Encodes what the shards get, where that is not the whole body.
    encode: Option<fn(&Reserved<T>) -> Bytes>,
}

impl<T> Request<T> {
    /// Of a body that is stored, and forwarded if `forward` is not 0.
    fn of(signal: Signal, body: Bytes, for_shards: Vec<T>, forward: u64) -> Request<T> {
        Request { signal, body, for_shards, forward, pieces: Vec::new(), encode: None }
    }
}

impl Pipeline {
    async fn traces(&self, body: Bytes) -> Result<Accepted, Refused> {
        let split = request::split(&body, &self.prefix, &self.envelopes)
            .map_err(|error| Refused::Malformed(error.to_string()))?;
        let accepted = Accepted { rejected: split.rejected.count, message: split.rejected.to_string() };
        let mut groups = split.groups;
        let spans = count(&groups);
        let meter = &self.shared.meter;
        meter.received(spans, accepted.rejected);
        let (shadow, mut bypass);
        {
            let config = self.shared.config.load();
            (shadow, bypass) = (config.shadow, Vec::new());
            if let Some(select) = &config.select {
                bypass = take_unselected(&mut groups, select);
                meter.telemetry().traces.passed_through.inc_by(count(&bypass));
            }
        }
        // In shadow mode all is forwarded: the body as it came where it is whole, else what is left of it.
        let whole = shadow && bypass.is_empty() && accepted.rejected == 0;
        let pieces = match (whole, shadow) {
            (true, _) => Vec::new(),
            (_, true) => encode(groups.iter().chain(&bypass), MAX_REQUEST),
            (_, false) => encode(&bypass, MAX_REQUEST),
        };
        let forward = if whole { spans } else { 0 };
        let part: fn(&Reserved<Group>) -> Bytes =
            |groups| encode(groups.items(), usize::MAX).pop().map(|piece| piece.bytes).unwrap_or_default();
        let encode = (!bypass.is_empty()).then_some(part);
        let request = Request { signal: Signal::Traces, body, for_shards: groups, forward, pieces, encode };
        let taken = self.accept(request).await;
        meter.taken(spans, &taken);
        taken.map(|()| accepted)
    }

    async fn logs(&self, body: Bytes) -> Result<Accepted, Refused> {
        let found = logs::find(&body).map_err(|error| Refused::Malformed(error.to_string()))?;
        let used = found.gen_ai.len() as u64;
        let delivers = self.shared.exporters.delivers(Signal::Logs);
        let forward = if delivers { found.records } else { 0 };
        self.accept(Request::of(Signal::Logs, body, found.gen_ai, forward)).await?;
        // Records that no exporter takes are used for evaluation alone; the others are rejected.
        let rejected = if delivers { 0 } else { found.records.saturating_sub(used) };
        let message = match rejected {
            0 => String::new(),
            _ => format!("no exporter takes logs; {used} records about GenAI were used, the others were not"),
        };
        Ok(Accepted { rejected, message })
    }

    async fn metrics(&self, body: Bytes) -> Result<Accepted, Refused> {
        if !self.shared.exporters.delivers(Signal::Metrics) {
            return Err(Refused::Unsupported(Signal::Metrics));
        }
        let points = metrics::count(&body).map_err(|error| Refused::Malformed(error.to_string()))?;
        self.accept(Request::<Group>::of(Signal::Metrics, body, Vec::new(), points)).await?;
        Ok(Accepted::default())
    }

    /// Stores a request, gives the shards their items, and forwards what is to be forwarded.
    async fn accept<T: OfTrace>(&self, request: Request<T>) -> Result<(), Refused> {
        let Request { signal, body, for_shards, forward: whole, pieces, encode } = request;
        let shared = &self.shared;
        let reserved = self.reserve(for_shards).await?;
        let mut stored = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let admission =
                shared.store.admit(signal, &|| (vec![RetainReason::PassThrough], piece.bytes.clone()));
            stored.push((admission.await.ok_or(NOT_STORED)?, piece));
        }
        let mut record = None;
        if whole > 0 || !reserved.0.is_empty() {
            let admission = shared.store.admit(signal, &|| {
                let pass = (whole > 0).then_some(RetainReason::PassThrough);
                let traces = reserved.items().map(|item| RetainReason::Trace(item.trace()));
                let reasons: BTreeSet<RetainReason> = pass.into_iter().chain(traces).collect();
                (
                    reasons.into_iter().collect(),
                    encode.map_or_else(|| body.clone(), |encode| encode(&reserved)),
                )
            });
            record = admission.await.ok_or(NOT_STORED)?.commit();
        }
        // From here to the last wait nothing can fail or be interrupted.
        reserved.send(&shared.budget, record);
        let mut waits = Vec::new();
        if whole > 0 {
            waits.push(forward(shared, record, signal, Piece { bytes: body, items: whole }, &[]));
        }
        for (admission, piece) in stored {
            waits.push(forward(shared, admission.commit(), signal, piece, &[]));
        }
        for wait in waits {
            wait.await;
        }
        Ok(())
    }

    /// Gives each shard its own, and reserves room for it everywhere, so that a request is taken as a
    /// whole or not at all. Most requests hold one trace, or few.
    pub(super) async fn reserve<T: OfTrace>(&self, items: Vec<T>) -> Result<Reserved<T>, Refused> {
        if items.is_empty() {
            return Ok(Reserved(Vec::new()));
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
        let mut reserved = Vec::with_capacity(inboxes.len());
        for (inbox, items) in inboxes.into_iter().zip(by_shard).filter(|(_, items)| !items.is_empty()) {
            let permit = inbox.reserve_owned().await.map_err(|_| Refused::ShuttingDown)?;
            reserved.push((permit, items));
        }
        Ok(Reserved(reserved))
    }
}

impl Intake for Pipeline {
    fn pressure(&self) -> Option<Duration> {
        let inboxes = self.inboxes.read().unwrap_or_else(PoisonError::into_inner);
        let full = inboxes.iter().any(|inbox| inbox.capacity() == 0);
        let queued = self.shared.exporters.required_bytes();
        (full || self.shared.store.is_full() || self.shared.budget.is_full(queued))
            .then_some(RETRY)
            .or_else(|| self.shared.exporters.pressure())
    }

    fn offer(&self, offer: Offer) -> Answer<'_> {
        Box::pin(async move {
            match offer.signal {
                Signal::Traces => self.traces(offer.body).await,
                Signal::Logs => self.logs(offer.body).await,
                Signal::Metrics => self.metrics(offer.body).await,
            }
        })
    }
}

/// Requests of spans as they are.
fn encode<'a>(groups: impl IntoIterator<Item = &'a Group>, max_size: usize) -> Vec<Piece> {
    let spans = groups.into_iter().flat_map(|group| &group.spans);
    let items: Vec<Item<'_>> =
        spans.map(|span| Item { envelope: &span.envelope, bytes: &span.bytes, appended: &[] }).collect();
    write::requests(&items, max_size)
}

fn count(groups: &[Group]) -> u64 {
    groups.iter().map(|group| group.spans.len() as u64).sum()
}

/// Takes the spans that are not selected out of `groups`.
fn take_unselected(groups: &mut Vec<Group>, wanted: &Select) -> Vec<Group> {
    let mut unselected = Vec::new();
    for group in groups.iter_mut() {
        let (keep, spans): (Vec<_>, Vec<_>) =
            std::mem::take(&mut group.spans).into_iter().partition(|span| select::selects(wanted, span));
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
