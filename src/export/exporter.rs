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
use verdict_journal::{Letters, Stake};
use verdict_otlp::Signal;
use verdict_telemetry::LogThrottle;

impl Acknowledge for Stake {
    fn leave(&self) {
        Stake::leave(self);
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

/// What became of a request that was to be a dead letter.
#[derive(Debug)]
pub(super) enum Buried {
    /// It is one.
    Letter,
    /// There are none, or not for such.
    Without,
    /// They may take no more, and why.
    NoRoom(String),
    /// The disk did not take it, and why.
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
    letters: OnceLock<Arc<Letters>>,
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
            letters: OnceLock::new(),
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

    /// Where dead letters go from here on. The first one set stays.
    pub(super) fn set_letters(&self, letters: Arc<Letters>) {
        let _ = self.letters.set(letters);
    }

    /// Writes a request that is about to be given up into the dead letters.
    pub(super) async fn bury(&self, signal: Signal, request: Bytes, why: Dropped) -> Buried {
        let Some(letters) = self.letters.get().map(Arc::clone) else { return Buried::Without };
        if !matches!(why, Dropped::Refused | Dropped::RetriesEnded) {
            return Buried::Without;
        }
        match tokio::task::spawn_blocking(move || letters.add(signal, &request)).await {
            Ok(Ok(())) => Buried::Letter,
            Ok(Err(error)) if error.is_passing() => Buried::Failed(error.to_string()),
            Ok(Err(error)) => Buried::NoRoom(error.to_string()),
            Err(error) => Buried::Failed(error.to_string()),
        }
    }

    /// Settles what was given up, by what [`Exporter::bury`] said of it.
    pub(super) fn give_up(&self, receipt: Receipt, why: Dropped, reason: &str, buried: &Buried) {
        let items = receipt.items();
        let (exporter, cause) = (self.id(), why.as_str());
        match buried {
            Buried::Without => self.drop_items(receipt, why, reason),
            Buried::Letter => {
                receipt.resolve(Outcome::DeadLettered);
                if let Some(held_back) = self.quiet.allow("dead_letter") {
                    tracing::error!(
                        exporter,
                        items,
                        why = cause,
                        reason,
                        held_back,
                        "put into the dead-letter file"
                    );
                }
            }
            // The log has it as long as a required exporter needs it: the next start sends it again.
            Buried::Failed(error) if self.required && receipt.is_stored() => {
                receipt.resolve(Outcome::Stored);
                if let Some(held_back) = self.quiet.allow("no_dead_letter") {
                    tracing::error!(
                        exporter,
                        items,
                        why = cause,
                        reason,
                        error,
                        held_back,
                        "no dead letter could be written; left in the journal for the next start"
                    );
                }
            }
            // At the cap it ends: left in the log, what a destination refuses would fill that as well,
            // until senders were refused what other destinations take.
            Buried::NoRoom(error) | Buried::Failed(error) => {
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
    /// `stake` is what the exporter owes the log for it, where there is one.
    pub(super) fn offer(&self, parcel: Parcel, stake: Option<Arc<Stake>>) -> Result<(), (Parcel, Receipt)> {
        let receipt = Receipt::new(parcel.items(), Arc::clone(&self.ledger))
            .with_stake(stake.map(|stake| stake as Arc<dyn Acknowledge>));
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
