//! The fate of every span: each ends in exactly one outcome per exporter.
//!
//! A [`Receipt`] travels with the spans that it stands for. Resolving it records the outcome;
//! dropping it unresolved is a lost span: counted as such, logged, and a panic in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

verdict_otlp::labelled_enum! {
    /// How spans left one exporter.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
    pub enum Outcome {
        /// The destination accepted them.
        Exported = "exported",
        /// The destination refused them for good, or retries ended, and there is no storage, or its dead
        /// letters may take no more.
        Dropped = "dropped",
        /// Put into the dead-letter file.
        DeadLettered = "dead_lettered",
        /// Left in the log for the next start: shutdown came, or the disk took no dead letter.
        Stored = "stored",
        /// A receipt was dropped without an outcome: a bug.
        Lost = "lost",
    }
}

verdict_otlp::labelled_enum! {
    /// Why items ended in [`Outcome::Dropped`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub enum DropReason {
        /// The queue of an exporter that is not required was full.
        QueueFull = "queue_full",
        /// The destination rejected the request permanently.
        Refused = "refused",
        /// Rejected items of a request that was otherwise accepted (`partial_success`).
        Rejected = "rejected",
        /// The destination does not accept the signal (logs, metrics).
        Unsupported = "unsupported",
        /// `retry_on_failure.max_elapsed_time` was reached, or retries are disabled.
        RetriesEnded = "retries_ended",
        /// Not sent before the shutdown deadline.
        Shutdown = "shutdown",
    }
}

/// Counts of outcomes of one exporter, in spans (or records, or points).
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

/// Acknowledges a stored record when the receipts for all parts of it have been resolved: dropping the
/// last clone does so, unless [`Acknowledge::retain`] was called before.
pub trait Acknowledge: Send + Sync + std::fmt::Debug {
    /// A part was not delivered: the record is retained.
    fn retain(&self);
}

/// Stands for `items` spans on their way through one exporter.
#[derive(Debug)]
#[must_use = "dropping a receipt loses its spans"]
pub struct Receipt {
    items: u64,
    ledger: Option<Arc<Ledger>>,
    /// Acknowledges the stored record that contains them.
    ack: Option<Arc<dyn Acknowledge>>,
}

impl Receipt {
    /// A receipt for `items` spans, to be settled in `ledger`.
    pub fn new(items: u64, ledger: Arc<Ledger>) -> Receipt {
        Receipt { items, ledger: Some(ledger), ack: None }
    }

    /// With the acknowledgement of the stored record that contains them.
    pub fn with_ack(mut self, ack: Option<Arc<dyn Acknowledge>>) -> Receipt {
        self.ack = ack;
        self
    }

    /// Whether they are in the journal, which can export them after the next start.
    pub fn is_stored(&self) -> bool {
        self.ack.is_some()
    }

    /// How many items it stands for.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Takes out a receipt for `items` of them (all, where there are fewer): parts of a request
    /// can end differently.
    pub fn split(&mut self, items: u64) -> Receipt {
        let items = items.min(self.items);
        self.items -= items;
        Receipt { items, ledger: self.ledger.clone(), ack: self.ack.clone() }
    }

    /// Takes in another receipt of the same ledger: from here on they end alike.
    pub fn join(&mut self, mut other: Receipt) {
        self.items += other.items;
        other.ledger = None;
    }

    /// Records what became of them.
    pub fn resolve(mut self, outcome: Outcome) {
        if let Some(ledger) = self.ledger.take() {
            ledger.add(outcome, self.items);
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
            // The journal still has them.
            if let Some(ack) = &self.ack {
                ack.retain();
            }
            tracing::error!(items = self.items, "spans were dropped without an outcome; this is a bug");
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
        let rest = whole.split(100);
        assert_eq!((rest.items(), whole.items()), (7, 0));
        rest.resolve(Outcome::Exported);
        drop(whole);
        assert_eq!((ledger.count(Outcome::Exported), ledger.count(Outcome::Dropped)), (7, 3));
        assert_eq!(ledger.count(Outcome::Lost), 0);
    }

    #[test]
    #[should_panic(expected = "dropped without an outcome")]
    fn unresolved_receipt_counts_as_lost() {
        drop(Receipt::new(1, Arc::new(Ledger::default())));
    }
}
