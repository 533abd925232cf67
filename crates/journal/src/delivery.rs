//! Acknowledgements of exporters for stored records.
//!
//! A [`Delivery`] belongs to one record that is being exported, an [`ExporterAck`] to the record and one
//! exporter. Receipts carry the `ExporterAck` through queues, splits and retries; it is dropped when the last
//! receipt is resolved, and acknowledges the record unless [`ExporterAck::retain`] was called. When all
//! required exporters have acknowledged it, the record is released. The log that stores it is an [`AckLog`]: the
//! journal, or another one.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Journal;
use super::record::{RetainReason, Seq};
use super::writer::WriterCommand;

/// A log of records that are retained until exporters have acknowledged them.
pub trait AckLog: Send + Sync + Debug {
    /// Notes that `exporter` has acknowledged a record that other exporters have not acknowledged yet: after a restart
    /// the record need not be sent to `exporter` again.
    fn exporter_acked(&self, _record: Seq, _exporter: &str) {}

    /// Releases records that every required exporter has acknowledged.
    fn release(&self, releases: Vec<(Seq, RetainReason)>);
}

impl AckLog for Journal {
    fn exporter_acked(&self, record: Seq, exporter: &str) {
        self.writer.enqueue(WriterCommand::ExporterAcked(record, exporter.to_owned()));
    }

    fn release(&self, releases: Vec<(Seq, RetainReason)>) {
        Journal::release(self, releases);
    }
}

/// One record that is being exported.
#[derive(Debug)]
pub struct Delivery {
    state: Arc<DeliveryState>,
    acks: Vec<Arc<ExporterAck>>,
}

#[derive(Debug)]
struct DeliveryState {
    log: Arc<dyn AckLog>,
    seq: Seq,
    /// Released when `pending_acks` reaches 0.
    releases: Vec<(Seq, RetainReason)>,
    /// Required exporters that have not acknowledged the record, plus one until it is dispatched.
    pending_acks: AtomicUsize,
}

impl DeliveryState {
    fn ack(&self) {
        if self.pending_acks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.log.release(self.releases.clone());
        }
    }
}

impl Delivery {
    /// The delivery of record `seq` to `exporters` (id, and whether it is required). If it is dropped before
    /// [`Delivery::dispatched`], the record stays in the log.
    pub fn new(
        log: Arc<dyn AckLog>,
        seq: Seq,
        releases: Vec<(Seq, RetainReason)>,
        exporters: Vec<(Arc<str>, bool)>,
    ) -> Delivery {
        let required = exporters.iter().filter(|(_, required)| *required).count();
        let pending_acks = AtomicUsize::new(required + 1);
        let state = Arc::new(DeliveryState { log, seq, releases, pending_acks });
        let acks = exporters.into_iter().map(|(exporter, required)| {
            let (state, retained) = (Arc::clone(&state), AtomicBool::new(false));
            Arc::new(ExporterAck { state, exporter, required, retained })
        });
        Delivery { acks: acks.collect(), state }
    }

    /// The acknowledgement of an exporter; `None` if it does not receive this record.
    pub fn ack(&self, exporter: &str) -> Option<Arc<ExporterAck>> {
        self.acks.iter().find(|ack| *ack.exporter == *exporter).cloned()
    }

    /// Ends the dispatch: every exporter has the record in its queue.
    pub fn dispatched(mut self) {
        self.acks.clear();
        self.state.ack();
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        // Not dispatched: an exporter may not have received the record, so none acknowledges it.
        self.acks.iter().for_each(|ack| ack.retain());
    }
}

/// The acknowledgement of one exporter, sent when it is dropped.
#[derive(Debug)]
pub struct ExporterAck {
    state: Arc<DeliveryState>,
    exporter: Arc<str>,
    required: bool,
    retained: AtomicBool,
}

impl ExporterAck {
    /// Retains the whole record in the log because a part of it was not delivered; it is sent again after a restart.
    pub fn retain(&self) {
        self.retained.store(true, Ordering::Release);
    }
}

impl Drop for ExporterAck {
    fn drop(&mut self) {
        if self.retained.load(Ordering::Acquire) {
            return;
        }
        // The last required exporter releases the record, which makes its acknowledgement unnecessary.
        let last = self.required && self.state.pending_acks.load(Ordering::Acquire) <= 1;
        if !last {
            self.state.log.exporter_acked(self.state.seq, &self.exporter);
        }
        if self.required {
            self.state.ack();
        }
    }
}
