//! The outcome of every span: each ends in exactly one per exporter.
//!
//! A [`Receipt`] accompanies the spans that it counts. Resolving it records their outcome. A receipt that is
//! dropped unresolved counts them as lost, logs an error, and panics in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

verdict_otlp::labelled_enum! {
    /// The result for a span at one exporter.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
    pub enum Outcome {
        /// The destination accepted the span.
        Exported = "exported",
        /// The destination refused the span permanently, or retries ended, and the span could not be dead-lettered.
        Dropped = "dropped",
        /// Written to a dead-letter file.
        DeadLettered = "dead_lettered",
        /// Left in the journal for the next start: at shutdown, or because a dead letter could not be
        /// written.
        Stored = "stored",
        /// Dropped without an outcome, which is a bug.
        Lost = "lost",
    }
}

verdict_otlp::labelled_enum! {
    /// The reason for [`Outcome::Dropped`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub enum DropReason {
        /// The queue of an exporter that is not required was full.
        QueueFull = "queue_full",
        /// The destination refused the request permanently.
        Refused = "refused",
        /// The destination accepted the request without the span (`partial_success`).
        Rejected = "rejected",
        /// The destination does not accept the signal (logs, metrics).
        Unsupported = "unsupported",
        /// `retry_on_failure.max_elapsed_time` was reached, or retries are disabled.
        RetriesEnded = "retries_ended",
        /// Not sent before the shutdown deadline.
        Shutdown = "shutdown",
        /// Scores of spans that their exporter did not deliver.
        SpansUndelivered = "spans_undelivered",
    }
}

verdict_otlp::labelled_enum! {
    /// The outcome of an alert that a rule selected.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AlertOutcome {
        /// The destination has accepted the alert.
        Sent = "sent",
        /// An alert with the same key was sent less than `repeat` ago.
        Repeated = "repeated",
        /// Not sent, because it exceeds `max_per_minute`.
        Limited = "limited",
    }
}

/// The number of items (spans, log records or data points) of one exporter by outcome.
#[derive(Debug, Default)]
pub struct Ledger([AtomicU64; Outcome::ALL.len()]);

impl Ledger {
    /// Items with this outcome.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }

    fn add(&self, outcome: Outcome, items: u64) {
        self.0[outcome as usize].fetch_add(items, Ordering::Relaxed);
    }
}

/// The acknowledgement of a stored record, shared by the receipts for its parts. When the last clone is dropped, the
/// record is acknowledged, unless [`Acknowledge::retain`] was called before.
pub trait Acknowledge: Send + Sync + std::fmt::Debug {
    /// A part was not delivered: the record is retained.
    fn retain(&self);
}

/// The delivery of a parcel by one exporter, observed through its receipts.
#[derive(Clone, Debug, Default)]
pub struct ParcelDelivery(Arc<DeliveryState>);

#[derive(Debug, Default)]
struct DeliveryState {
    /// The highest index in [`Outcome::ALL`] among the outcomes: a parcel that was partly dropped and partly
    /// written as a dead letter counts as a dead letter.
    highest_outcome: AtomicU8,
    is_complete: CancellationToken,
}

/// Reports the outcomes of a parcel to its [`ParcelDelivery`]. All receipts of the parcel share it; when the last one
/// is dropped, the delivery is complete.
#[derive(Debug)]
pub struct DeliveryObserver(Arc<DeliveryState>);

impl ParcelDelivery {
    /// An observer for the parcel's receipt ([`Receipt::observed_by`]).
    pub fn observer(&self) -> DeliveryObserver {
        DeliveryObserver(Arc::clone(&self.0))
    }

    /// Waits until every item has an outcome; returns the outcome with the highest index in [`Outcome::ALL`].
    pub async fn outcome(&self) -> Outcome {
        self.0.is_complete.cancelled().await;
        let highest = usize::from(self.0.highest_outcome.load(Ordering::Acquire));
        Outcome::ALL.get(highest).copied().unwrap_or(Outcome::Lost)
    }
}

impl DeliveryObserver {
    fn record(&self, outcome: Outcome) {
        self.0.highest_outcome.fetch_max(outcome as u8, Ordering::AcqRel);
    }
}

impl Drop for DeliveryObserver {
    fn drop(&mut self) {
        self.0.is_complete.cancel();
    }
}

/// Counts the items of one exporter from its queue to their outcome.
#[derive(Debug)]
#[must_use = "dropping a receipt loses its spans"]
pub struct Receipt {
    items: u64,
    ledger: Option<Arc<Ledger>>,
    /// Acknowledges the stored record that contains the items.
    ack: Option<Arc<dyn Acknowledge>>,
    /// Notifies tasks that wait for the delivery.
    observer: Option<Arc<DeliveryObserver>>,
}

impl Receipt {
    /// A receipt for `items`, whose outcome is counted in `ledger`.
    pub fn new(items: u64, ledger: Arc<Ledger>) -> Receipt {
        Receipt { items, ledger: Some(ledger), ack: None, observer: None }
    }

    /// Adds the acknowledgement of the stored record that contains the items.
    pub fn with_ack(mut self, ack: Option<Arc<dyn Acknowledge>>) -> Receipt {
        self.ack = ack;
        self
    }

    /// Reports the outcomes to an observer.
    pub fn observed_by(mut self, observer: DeliveryObserver) -> Receipt {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Whether the items are in the journal, which exports them after the next start.
    pub fn is_stored(&self) -> bool {
        self.ack.is_some()
    }

    pub fn items(&self) -> u64 {
        self.items
    }

    /// Splits off a receipt for at most `items` items, since parts of a request can have different outcomes.
    pub fn split(&mut self, items: u64) -> Receipt {
        let items = items.min(self.items);
        self.items -= items;
        Receipt { items, ledger: self.ledger.clone(), ack: self.ack.clone(), observer: self.observer.clone() }
    }

    /// Adds the items of another receipt of the same ledger.
    pub fn join(&mut self, mut other: Receipt) {
        self.items += other.items;
        other.ledger = None;
    }

    /// Records the outcome.
    pub fn resolve(mut self, outcome: Outcome) {
        if let Some(ledger) = self.ledger.take() {
            ledger.add(outcome, self.items);
            if self.items > 0
                && let Some(observer) = &self.observer
            {
                observer.record(outcome);
            }
        }
        if outcome == Outcome::Stored
            && let Some(ack) = &self.ack
        {
            ack.retain();
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(ledger) = self.ledger.take()
            && self.items > 0
        {
            ledger.add(Outcome::Lost, self.items);
            if let Some(observer) = &self.observer {
                observer.record(Outcome::Lost);
            }
            // The journal still has the items.
            if let Some(ack) = &self.ack {
                ack.retain();
            }
            tracing::error!(
                items = self.items,
                "items were dropped without an outcome and are counted as lost. This is a bug"
            );
            #[cfg(test)]
            if !std::thread::panicking() {
                #[allow(clippy::panic)]
                {
                    panic!("a receipt for {} spans was dropped without an outcome", self.items);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_receipts_sum_to_the_whole() {
        let ledger = Arc::new(Ledger::default());
        let mut whole = Receipt::new(10, Arc::clone(&ledger));
        whole.split(3).resolve(Outcome::Dropped);
        let remainder = whole.split(100);
        assert_eq!((remainder.items(), whole.items()), (7, 0));
        remainder.resolve(Outcome::Exported);
        drop(whole);
        assert_eq!((ledger.count(Outcome::Exported), ledger.count(Outcome::Dropped)), (7, 3));
        assert_eq!(ledger.count(Outcome::Lost), 0);
    }

    #[tokio::test]
    async fn delivery_is_complete_with_the_last_receipt_and_reports_the_outcome() {
        let (ledger, delivery) = (Arc::new(Ledger::default()), ParcelDelivery::default());
        let mut whole = Receipt::new(10, ledger).observed_by(delivery.observer());
        let part = whole.split(3);
        part.resolve(Outcome::DeadLettered);
        let outcome = delivery.outcome();
        tokio::pin!(outcome);
        assert!(futures_util::FutureExt::now_or_never(&mut outcome).is_none());
        whole.resolve(Outcome::Exported);
        assert_eq!(outcome.await, Outcome::DeadLettered);
        // A receipt without items has no outcome to report.
        let delivery = ParcelDelivery::default();
        let empty = Receipt::new(0, Arc::default()).observed_by(delivery.observer());
        empty.resolve(Outcome::Dropped);
        assert_eq!(delivery.outcome().await, Outcome::Exported);
    }

    #[test]
    #[should_panic(expected = "dropped without an outcome")]
    fn unresolved_receipt_counts_as_lost() {
        drop(Receipt::new(1, Arc::new(Ledger::default())));
    }
}
