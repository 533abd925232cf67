//! The store of a process that receives from Kafka: records of Kafka are retained by the committed offsets of their
//! partitions, requests of other receivers by another store.
//!
//! Verdicts about records of Kafka are not stored. After a crash the spans are read again, and rules give the same
//! verdict.

use std::future::ready;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use verdict_journal::{AckLog, Delivery, RetainReason, Seq};
use verdict_otlp::Signal;
use verdict_otlp::trace::TraceId;

use super::store::{
    EncodedTrace, ExportedBefore, ReceivedRecord, Releases, RequestRecord, Store, StoreFuture, StoredRequest,
};
use crate::receive::kafka::log::{KafkaLog, NO_RECORD, is_kafka};
use crate::receive::kafka::trace::ReplayStatus;

/// The log of records of Kafka, and the store of all other requests.
#[derive(Clone, Debug)]
pub(super) struct KafkaStore {
    log: Arc<KafkaLog>,
    other: Arc<dyn Store>,
}

impl KafkaStore {
    pub(super) fn new(log: Arc<KafkaLog>, other: Box<dyn Store>) -> KafkaStore {
        KafkaStore { log, other: other.into() }
    }
}

impl AckLog for KafkaStore {
    fn release(&self, releases: Vec<(Seq, RetainReason)>) {
        Store::release(self, releases);
    }
}

impl Store for KafkaStore {
    /// As the other store: traces of Kafka have been dropped for their next owner before the other receivers stop.
    fn keeps_unfinished_traces(&self) -> bool {
        self.other.keeps_unfinished_traces()
    }

    fn is_full(&self) -> bool {
        self.other.is_full()
    }

    fn has_failed(&self) -> bool {
        self.other.has_failed()
    }

    fn admit(
        &self,
        signal: Signal,
        origin: ReceivedRecord,
        record: &dyn Fn() -> RequestRecord,
    ) -> StoreFuture<'_, Option<StoredRequest>> {
        if let Some(seq) = origin {
            let is_retained = self.log.retain(seq, &record().reasons);
            return Box::pin(ready(is_retained.then_some(StoredRequest::Received(seq))));
        }
        let stored = self.other.admit(signal, None, record);
        // A request of another receiver always has a record, so that a trace with records of Kafka alone can be
        // distinguished from one that has spans of both.
        Box::pin(async move {
            stored.await.map(|stored| match stored {
                StoredRequest::Nowhere => StoredRequest::Received(NO_RECORD),
                stored => stored,
            })
        })
    }

    fn exported_before(&self, record: Seq, trace: TraceId) -> ExportedBefore {
        match self.log.replay_status(record, trace) {
            ReplayStatus::New => ExportedBefore::No,
            ReplayStatus::Exported => ExportedBefore::Same,
            ReplayStatus::Late(verdict) => ExportedBefore::Late(verdict),
        }
    }

    fn was_forwarded(&self, received: ReceivedRecord) -> bool {
        received.is_some_and(|record| self.log.was_forwarded(record))
    }

    fn end_received(&self) {
        self.log.end_all();
    }

    fn note_closed(&self, trace: TraceId, records: &[Seq]) {
        self.log.note_closed(trace, records);
    }

    fn is_late(&self, record: Seq, trace: TraceId) -> bool {
        self.log.is_late(record, trace)
    }

    fn has_lapsed(&self, records: &[Seq]) -> bool {
        self.log.has_lapsed(records)
    }

    fn revocation_token(&self, records: &[Seq]) -> Option<CancellationToken> {
        self.log.revocation_token(records)
    }

    fn append_verdicts<'a>(&'a self, traces: &'a [EncodedTrace]) -> StoreFuture<'a, Option<Seq>> {
        if traces.iter().all(|trace| !trace.verdict.requests.iter().any(|seq| is_kafka(*seq))) {
            return self.other.append_verdicts(traces);
        }
        for trace in traces {
            let verdict = &trace.verdict;
            self.log.note_evaluated(verdict.trace, &verdict.requests, verdict.prior_verdict());
        }
        Box::pin(ready(Some(NO_RECORD)))
    }

    fn track(&self, seq: Seq, releases: Releases, exporters: Vec<(Arc<str>, bool)>) -> Option<Delivery> {
        if is_kafka(seq) {
            return Some(Delivery::new(Arc::new(self.clone()), seq, releases, exporters));
        }
        self.other.track(seq, releases, exporters)
    }

    fn release(&self, releases: Releases) {
        self.log.release(&releases);
        let other_releases: Releases = releases.into_iter().filter(|(seq, _)| !is_kafka(*seq)).collect();
        if !other_releases.is_empty() {
            self.other.release(other_releases);
        }
    }

    fn end(&self) -> StoreFuture<'_, ()> {
        self.other.end()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use verdict_journal::{Journal, Storage, VerdictRecord};

    use super::*;
    use crate::telemetry::Telemetry;

    #[tokio::test]
    async fn a_verdict_is_stored_in_the_journal_unless_its_trace_has_a_record_of_kafka() {
        let folder = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::new();
        let (journal, _) = Journal::open(folder.path(), &Storage::default(), 0, &telemetry.journal).unwrap();
        let log = Arc::new(KafkaLog::new(false));
        let record =
            log.assign(0, [None; 2], "").record(crate::receive::kafka::stream::PartitionStream::Spans, 0);
        let store = KafkaStore::new(log, Box::new(Arc::clone(&journal)));
        let request = || RequestRecord { reasons: Vec::new(), forwarded: false, body: Default::default() };
        let request = Store::admit(&store, Signal::Traces, None, &request);
        let stored = request.await.unwrap().commit().unwrap();
        for (requests, is_in_journal) in [(vec![stored], true), (vec![stored, record], false)] {
            let verdict =
                VerdictRecord { trace: TraceId([1; 16]), requests, revision: 1, ..Default::default() };
            let trace = EncodedTrace { verdict, spans: Vec::new(), started: Instant::now() };
            let seq = Store::append_verdicts(&store, &[trace]).await.unwrap();
            assert_eq!(is_kafka(seq), !is_in_journal);
        }
        Journal::close(&journal).await;
    }
}
