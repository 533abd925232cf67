//! How the log learns that an exporter has what it was given.
//!
//! A [`Ticket`] stands for one record on its way to every exporter, a [`Stake`] for one of them.
//! Receipts carry the stake through queues, splits and retries; when the last of them is resolved
//! the exporter has all of it. When every required exporter has, the record's claims are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Journal;
use super::record::{Claim, Seq};

/// One record on its way out.
#[derive(Debug)]
pub struct Ticket {
    way: Arc<Way>,
    stakes: Vec<(Arc<str>, Arc<Stake>)>,
}

#[derive(Debug)]
struct Way {
    journal: Arc<Journal>,
    seq: Seq,
    /// What is done once every required exporter has it.
    ends: Vec<(Seq, Claim)>,
    /// Required exporters that have it not, and one for whoever still hands it out.
    owed: AtomicUsize,
}

impl Way {
    fn paid(&self) {
        if self.owed.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.journal.release(self.ends.clone());
        }
    }
}

impl Ticket {
    /// For record `seq`, to go to `exporters` (id, and whether it is required). [`Ticket::handed_out`]
    /// says that all of them were given it; dropped before, it stays in the log.
    pub fn new(
        journal: &Arc<Journal>,
        seq: Seq,
        ends: Vec<(Seq, Claim)>,
        exporters: Vec<(Arc<str>, bool)>,
    ) -> Ticket {
        let required = exporters.iter().filter(|(_, required)| *required).count();
        let owed = AtomicUsize::new(required + 1);
        let way = Arc::new(Way { journal: Arc::clone(journal), seq, ends, owed });
        let stakes = exporters.into_iter().map(|(exporter, required)| {
            let left = AtomicBool::new(false);
            let stake = Stake { way: Arc::clone(&way), exporter: Arc::clone(&exporter), required, left };
            (exporter, Arc::new(stake))
        });
        let stakes = stakes.collect();
        Ticket { way, stakes }
    }

    /// The stake of an exporter; `None` if it is not to get this record.
    pub fn stake(&self, exporter: &str) -> Option<Arc<Stake>> {
        self.stakes.iter().find(|(id, _)| **id == *exporter).map(|(_, stake)| Arc::clone(stake))
    }

    /// The record has been handed to every exporter that it names.
    pub fn handed_out(mut self) {
        self.stakes.clear();
        self.way.paid();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Given up before all had it: nobody is to be taken for having it.
        self.stakes.iter().for_each(|(_, stake)| stake.leave());
    }
}

/// What one exporter owes the log.
#[derive(Debug)]
pub struct Stake {
    way: Arc<Way>,
    exporter: Arc<str>,
    required: bool,
    /// A part of it was not sent: all of it is to be sent again.
    left: AtomicBool,
}

impl Stake {
    /// A part of it stays in the log for the next start.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }
}

impl Drop for Stake {
    fn drop(&mut self) {
        if self.left.load(Ordering::Acquire) {
            return;
        }
        // Where this is the last one owed, the end of all says it too.
        let others = !self.required || self.way.owed.load(Ordering::Acquire) > 1;
        if others {
            self.way.journal.acked(self.way.seq, &self.exporter);
        }
        if self.required {
            self.way.paid();
        }
    }
}
