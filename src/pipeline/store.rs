//! Stores requests and verdicts until the exporters have acknowledged them: in the journal, nowhere, or in the log of
//! the receiver, as for Kafka.
//!
//! Every request and every trace takes the same path with and without a journal. The invariants: a request
//! is stored before it is acknowledged, and a verdict before its spans are exported.

use std::fmt::Debug;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use verdict_journal::{AckLog, AppendedRequest, Delivery, Journal, RetainReason, Seq, VerdictRecord};
use verdict_otlp::trace::{PriorVerdict, TraceId};
use verdict_otlp::{Piece, Signal};

/// A request, or a part of one, as it is stored.
pub(super) struct RequestRecord {
    pub reasons: Vec<RetainReason>,
    /// Whether the spans of the request are exported on arrival.
    pub forwarded: bool,
    pub body: Bytes,
}

/// Records, each with the reason for which it is no longer retained.
pub(super) type Releases = Vec<(Seq, RetainReason)>;
pub(super) type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An evaluated trace in the form in which it is stored and exported. It is encoded right after its evaluation, while
/// its spans are in the CPU's cache, and not after it was stored.
pub(super) struct EncodedTrace {
    /// The verdict, the annotations and the log events.
    pub verdict: VerdictRecord,
    /// The annotated spans, without those that were forwarded unchanged on arrival, as in shadow mode.
    pub spans: Vec<Piece>,
    /// When its evaluation began.
    pub started: Instant,
}

impl EncodedTrace {
    /// The bytes of the trace in memory.
    pub(super) fn bytes(&self) -> usize {
        let spans: usize = self.spans.iter().map(|piece| piece.bytes.len()).sum();
        let events: usize = self.verdict.events.iter().map(|(_, bytes)| bytes.len()).sum();
        spans + self.verdict.appended.len() + events
    }
}

/// The record in which the receiver of a request has stored the request; `None` if it has not.
pub(super) type ReceivedRecord = Option<Seq>;

/// A stored request. If it is dropped before [`StoredRequest::commit`], it is removed again: its sender received no
/// response and sends it again.
pub(super) enum StoredRequest {
    /// Nothing was stored.
    Nowhere,
    Appended(AppendedRequest),
    /// Stored by its receiver.
    #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
    Received(Seq),
}

impl StoredRequest {
    /// The record, if there is one. From now on the pipeline releases it.
    pub(super) fn commit(self) -> Option<Seq> {
        match self {
            StoredRequest::Nowhere => None,
            StoredRequest::Appended(request) => Some(request.accept()),
            StoredRequest::Received(record) => Some(record),
        }
    }
}

/// Whether a trace of a request that its receiver has stored was exported before the request was read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "kafka"), allow(dead_code))]
pub(super) enum ExportedBefore {
    /// The trace was not evaluated before: it is evaluated.
    No,
    /// The spans of the trace in this request were exported, and are skipped.
    Same,
    /// The verdict of the trace was exported without these spans, which are late.
    Late(PriorVerdict),
}

/// Storage of requests and verdicts. The defaults store nothing.
///
/// The stages depend on the kind of storage in these places:
///
/// | stage | behaviour | decided by |
/// |---|---|---|
/// | all, at shutdown | whether open traces remain for the next start | [`Store::keeps_unfinished_traces`] |
/// | admission, health | a full or failed storage | [`Store::is_full`], [`Store::has_failed`] |
/// | schedule | how many traces one write stores | [`Store::max_batch`], [`Store::max_batches`] |
/// | shard | due traces close after each trace of a request, and release their records | a record of [`Store::admit`] |
/// | ingest | exported and forwarded spans are left out | [`Store::exported_before`], [`Store::was_forwarded`] |
/// | ingest | a stored request waits for no queue, and no signal is refused | [`ReceivedRecord`] |
/// | shard, schedule, delivery | another process's traces end | [`Store::revocation_token`], [`Store::has_lapsed`] |
/// | shard | whether spans of a closed trace are late | [`Store::is_late`] |
/// | service, at shutdown | open traces of requests that receivers have stored are dropped | [`Store::end_received`] |
///
/// The last five exist for Kafka alone.
pub(super) trait Store: Send + Sync + Debug {
    /// Whether stored traces survive the process. If so, shutdown leaves open traces and those that wait for judges
    /// to the next start; otherwise it closes and delivers them.
    fn keeps_unfinished_traces(&self) -> bool {
        false
    }

    /// Whether new requests have to be refused.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether the store has failed permanently: nothing is stored until the process starts again.
    fn has_failed(&self) -> bool {
        false
    }

    /// The maximum number of small traces that are stored and delivered together. 1 if storing takes no time: each
    /// trace is then delivered before the next one is evaluated.
    fn max_batch(&self) -> usize {
        1
    }

    /// The maximum number of batches that wait for the store while further traces are evaluated, so that one write
    /// contains many traces. 0 if storing takes no time.
    fn max_batches(&self) -> usize {
        0
    }

    /// Stores a request, or a part of one; `None` if that fails. `record` is called only by stores that write it or
    /// that retain the record of its receiver.
    fn admit(
        &self,
        _: Signal,
        _: ReceivedRecord,
        _record: &dyn Fn() -> RequestRecord,
    ) -> StoreFuture<'_, Option<StoredRequest>> {
        Box::pin(ready(Some(StoredRequest::Nowhere)))
    }

    /// Whether a trace of a request that its receiver has stored was exported before.
    fn exported_before(&self, _record: Seq, _: TraceId) -> ExportedBefore {
        ExportedBefore::No
    }

    /// Whether the forwarded part of such a request was delivered before.
    fn was_forwarded(&self, _: ReceivedRecord) -> bool {
        false
    }

    /// Ends all records that receivers have stored: their open traces are dropped, and no trace of them is exported.
    fn end_received(&self) {}

    /// Records that a trace of these records closed.
    fn note_closed(&self, _: TraceId, _records: &[Seq]) {}

    /// Whether the spans of this record are late for a trace that closed before. Otherwise the trace is assembled
    /// again, from its first record on.
    fn is_late(&self, _record: Seq, _: TraceId) -> bool {
        true
    }

    /// Whether another process owns these records now, so that a trace of them is not exported here.
    fn has_lapsed(&self, _records: &[Seq]) -> bool {
        false
    }

    /// A token that is cancelled when the partition of these records is revoked, so that their trace need not be
    /// evaluated; `None` if that cannot happen.
    fn revocation_token(&self, _records: &[Seq]) -> Option<CancellationToken> {
        None
    }

    /// Stores verdicts. Completes when the traces may be exported, with the first of their consecutive record
    /// numbers; `None` if nothing is stored.
    fn append_verdicts<'a>(&'a self, _: &'a [EncodedTrace]) -> StoreFuture<'a, Option<Seq>> {
        Box::pin(ready(None))
    }

    /// Tracks a record until the exporters (id, and whether it is required) have acknowledged it.
    /// `_releases` are released when all required exporters have acknowledged it.
    fn track(&self, _: Seq, _releases: Releases, _exporters: Vec<(Arc<str>, bool)>) -> Option<Delivery> {
        None
    }

    /// Releases records.
    fn release(&self, _: Releases) {}

    /// Writes all pending records, and ends.
    fn end(&self) -> StoreFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

/// The store without `storage.directory`: buffered data is in memory only.
#[derive(Debug)]
pub(super) struct NoStore;

impl Store for NoStore {}

impl Store for Arc<Journal> {
    fn keeps_unfinished_traces(&self) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        self.pressure()
    }

    fn has_failed(&self) -> bool {
        Journal::has_failed(self)
    }

    /// More than 1, since each command to the journal and each response wakes a thread.
    fn max_batch(&self) -> usize {
        16
    }

    fn max_batches(&self) -> usize {
        64
    }

    fn admit(
        &self,
        signal: Signal,
        _: ReceivedRecord,
        record: &dyn Fn() -> RequestRecord,
    ) -> StoreFuture<'_, Option<StoredRequest>> {
        let RequestRecord { reasons, forwarded, body } = record();
        let stored = self.append_request(signal, reasons, forwarded, body);
        Box::pin(async move { stored.await.map(StoredRequest::Appended) })
    }

    fn append_verdicts<'a>(&'a self, traces: &'a [EncodedTrace]) -> StoreFuture<'a, Option<Seq>> {
        let stored = Journal::append_verdicts(self, traces.iter().map(|trace| &trace.verdict));
        // The spans were accepted and are exported even if their verdicts cannot be stored.
        Box::pin(async move { Some(stored.await.0.start) })
    }

    fn track(&self, seq: Seq, releases: Releases, exporters: Vec<(Arc<str>, bool)>) -> Option<Delivery> {
        let log: Arc<dyn AckLog> = Arc::<Journal>::clone(self);
        Some(Delivery::new(log, seq, releases, exporters))
    }

    fn release(&self, releases: Releases) {
        Journal::release(self, releases);
    }

    fn end(&self) -> StoreFuture<'_, ()> {
        Box::pin(Journal::close(self))
    }
}
