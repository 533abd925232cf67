//! One exporter as the rest of the process sees it: what it takes, its queue, its ledger, and
//! counts of what it does.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use tokio::time::Instant;

use super::queue::{Job, NoRoom, Queue};
use super::{Parcel, Watch, slot};
use crate::outcome::{Acknowledge, Ledger, Outcome, Receipt};
use verdict_journal::{DeadLetters, ExporterAck};
use verdict_otlp::Signal;
use verdict_telemetry::LogThrottle;

impl Acknowledge for ExporterAck {
    fn retain(&self) {
        ExporterAck::retain(self);
    }
}

/// Why items were dropped; what [`Ledger`] counts as dropped, told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Dropped {
    /// The queue of an exporter that is not required was full.
    QueueFull,
    /// The destination refused them for good.
    Refused,
    /// The destination took the request but not these items (`partial_success`).
    Rejected,
    /// The destination does not have the service (logs, metrics).
    Unsupported,
    /// Retries ended.
    RetriesEnded,
    /// Shutdown came before they could be sent.
    Shutdown,
}

impl Dropped {
    /// Every reason, in the order of counting.
    pub const ALL: [Dropped; 6] = [
        Dropped::QueueFull,
        Dropped::Refused,
        Dropped::Rejected,
        Dropped::Unsupported,
        Dropped::RetriesEnded,
        Dropped::Shutdown,
    ];

    /// As a metric's label writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Dropped::QueueFull => "queue_full",
            Dropped::Refused => "refused",
            Dropped::Rejected => "rejected",
            Dropped::Unsupported => "unsupported",
            Dropped::RetriesEnded => "retries_ended",
            Dropped::Shutdown => "shutdown",
        }
    }
}

/// The result of [`Exporter::write_dead_letter`].
#[derive(Debug)]
pub(super) enum DeadLetterOutcome {
    Written,
    /// Dead letters are not configured, or not written for this reason.
    Disabled,
    /// The cap is reached, or the request is too long.
    Full(String),
    /// The disk failed.
    Failed(String),
}

/// One running exporter.
pub struct Exporter {
    id: Arc<str>,
    required: bool,
    signals: [bool; 3],
    /// The destination said that it has no such service.
    unsupported: [AtomicBool; 3],
    pub(super) queue: Arc<Queue>,
    ledger: Arc<Ledger>,
    dropped: [AtomicU64; 6],
    requests: AtomicU64,
    retries: AtomicU64,
    watch: OnceLock<Arc<dyn Watch>>,
    dead_letters: OnceLock<Arc<DeadLetters>>,
    pub(super) quiet: LogThrottle,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter").field("id", &self.id).field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

impl Exporter {
    pub(super) fn new(id: &str, required: bool, signals: &[Signal], capacity: u64) -> Arc<Exporter> {
        let mut takes = [false; 3];
        signals.iter().for_each(|&s| takes[slot(s)] = true);
        Arc::new(Exporter {
            id: id.into(),
            required,
            signals: takes,
            unsupported: Default::default(),
            queue: Queue::new(capacity),
            ledger: Arc::default(),
            dropped: Default::default(),
            requests: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            watch: OnceLock::new(),
            dead_letters: OnceLock::new(),
            quiet: LogThrottle::default(),
        })
    }

    /// `type` or `type/name`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// As [`Exporter::id`], to be kept.
    pub(super) fn shared_id(&self) -> Arc<str> {
        Arc::clone(&self.id)
    }

    /// A full queue of it makes the pipeline wait.
    pub fn required(&self) -> bool {
        self.required
    }

    /// Whether it is configured to get a signal.
    pub fn takes(&self, signal: Signal) -> bool {
        self.signals[slot(signal)]
    }

    /// What became of the items that it was given.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Items dropped for one reason.
    pub fn dropped(&self, why: Dropped) -> u64 {
        self.dropped[why as usize].load(Ordering::Relaxed)
    }

    /// Bytes that wait or are being sent.
    pub fn queued_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Bytes that may wait.
    pub fn queue_capacity(&self) -> u64 {
        self.queue.capacity()
    }

    /// Requests (or writes) tried, retries included.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Of those, the ones that were tried again.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Has `watch` told of every request from here on. The first one set stays.
    pub fn watch(&self, watch: Arc<dyn Watch>) {
        let _ = self.watch.set(watch);
    }

    pub(super) fn count_request(&self, status: &'static str, started: Instant) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(watch) = self.watch.get() {
            watch.request(status, started.elapsed());
        }
    }

    pub(super) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        if let Some(watch) = self.watch.get() {
            watch.retry();
        }
    }

    pub(super) fn drop_items(&self, receipt: Receipt, why: Dropped, reason: &str) {
        let items = receipt.items();
        if why == Dropped::Shutdown && receipt.is_stored() {
            return receipt.resolve(Outcome::Stored);
        }
        self.dropped[why as usize].fetch_add(items, Ordering::Relaxed);
        receipt.resolve(Outcome::Dropped);
        if items > 0
            && let Some(held_back) = self.quiet.allow(why.as_str())
        {
            let (exporter, why) = (self.id(), why.as_str());
            tracing::error!(exporter, items, why, reason, held_back, "dropped");
        }
    }

    /// Whether the destination has said that it does not have a signal's service.
    pub fn unsupported(&self, signal: Signal) -> bool {
        self.unsupported[slot(signal)].load(Ordering::Relaxed)
    }

    /// Where dead letters are written from now on. Only the first call has an effect.
    pub(super) fn set_dead_letters(&self, dead_letters: Arc<DeadLetters>) {
        let _ = self.dead_letters.set(dead_letters);
    }

    /// Writes a request that will not be delivered to the dead letters.
    pub(super) async fn write_dead_letter(
        &self,
        signal: Signal,
        request: Bytes,
        why: Dropped,
    ) -> DeadLetterOutcome {
        let Some(dead_letters) = self.dead_letters.get().map(Arc::clone) else {
            return DeadLetterOutcome::Disabled;
        };
        if !matches!(why, Dropped::Refused | Dropped::RetriesEnded) {
            return DeadLetterOutcome::Disabled;
        }
        match tokio::task::spawn_blocking(move || dead_letters.append(signal, &request)).await {
            Ok(Ok(())) => DeadLetterOutcome::Written,
            Ok(Err(error)) if error.is_transient() => DeadLetterOutcome::Failed(error.to_string()),
            Ok(Err(error)) => DeadLetterOutcome::Full(error.to_string()),
            Err(error) => DeadLetterOutcome::Failed(error.to_string()),
        }
    }

    /// Resolves the receipt of a request that will not be delivered, by the result of
    /// [`Exporter::write_dead_letter`].
    pub(super) fn give_up(&self, receipt: Receipt, why: Dropped, reason: &str, outcome: &DeadLetterOutcome) {
        let items = receipt.items();
        let (exporter, cause) = (self.id(), why.as_str());
        match outcome {
            DeadLetterOutcome::Disabled => self.drop_items(receipt, why, reason),
            DeadLetterOutcome::Written => {
                receipt.resolve(Outcome::DeadLettered);
                if let Some(held_back) = self.quiet.allow("dead_letter") {
                    tracing::error!(
                        exporter,
                        items,
                        why = cause,
                        reason,
                        held_back,
                        "written to a dead-letter file"
                    );
                }
            }
            // The journal retains it while a required exporter has not delivered it: the next start sends it.
            DeadLetterOutcome::Failed(error) if self.required && receipt.is_stored() => {
                receipt.resolve(Outcome::Stored);
                if let Some(held_back) = self.quiet.allow("no_dead_letter") {
                    tracing::error!(
                        exporter,
                        items,
                        why = cause,
                        reason,
                        error,
                        held_back,
                        "cannot write a dead letter; the items stay in the journal for the next start"
                    );
                }
            }
            // At the cap it is dropped: left in the journal, the requests that one destination refuses
            // would fill it, until requests for the other destinations were refused as well.
            DeadLetterOutcome::Full(error) | DeadLetterOutcome::Failed(error) => {
                self.drop_items(receipt, why, &format!("{reason}; and no dead letter: {error}"));
            }
        }
    }

    /// Marks a signal as not supported by the destination; warns the first time.
    pub(super) fn set_unsupported(&self, signal: Signal, reason: &str) {
        if !self.unsupported[slot(signal)].swap(true, Ordering::Relaxed) {
            let exporter = self.id();
            tracing::warn!(
                exporter,
                ?signal,
                reason,
                "the destination does not take this signal; it gets no more"
            );
        }
    }

    /// Takes a parcel in at once, or gives it back because the queue is full.
    /// `ack` acknowledges the record of the journal that it is part of.
    pub(super) fn offer(
        &self,
        parcel: Parcel,
        ack: Option<Arc<ExporterAck>>,
    ) -> Result<(), (Parcel, Receipt)> {
        let receipt = Receipt::new(parcel.items(), Arc::clone(&self.ledger))
            .with_ack(ack.map(|ack| ack as Arc<dyn Acknowledge>));
        if self.unsupported(parcel.signal) {
            self.drop_items(receipt, Dropped::Unsupported, "the destination does not take this signal");
            return Ok(());
        }
        match self.queue.try_reserve(parcel.size()) {
            Ok(hold) => self.put(Job { parcel, receipt, hold }),
            Err(NoRoom::Closed) => self.drop_items(receipt, Dropped::Shutdown, "shutting down"),
            Err(NoRoom::Full) if self.required => return Err((parcel, receipt)),
            Err(NoRoom::Full) => self.drop_items(receipt, Dropped::QueueFull, "sending_queue is full"),
        }
        Ok(())
    }

    /// Takes a parcel in as soon as there is room.
    pub(super) async fn wait(&self, parcel: Parcel, receipt: Receipt) {
        match self.queue.reserve(parcel.size()).await {
            Ok(hold) => self.put(Job { parcel, receipt, hold }),
            Err(_) => self.drop_items(receipt, Dropped::Shutdown, "shutting down"),
        }
    }

    fn put(&self, job: Job) {
        if let Err(job) = self.queue.put(job) {
            self.drop_items(job.receipt, Dropped::Shutdown, "shutting down");
        }
    }
}
