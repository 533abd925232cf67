//! Answers to those who wait for a record, given from within the runtime that they wait in.
//!
//! In: who waits for what is kept now, a batch at a time. Out: answers; and to the writer, records
//! whose asker has gone. Waking a task from a thread outside its runtime takes a lock and often a
//! call of the operating system: the writer does that once for a batch, and not for each in it.

use std::sync::mpsc::{self, Receiver, Sender};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::record::Seq;

/// Somebody who waits for a record.
pub(super) struct Waiting {
    pub seq: Seq,
    pub answer: oneshot::Sender<bool>,
    /// Given back with the answer.
    pub _room: Option<OwnedSemaphorePermit>,
}

/// Where batches are handed over that are to be told that their records are kept.
#[derive(Clone)]
pub(super) struct Answers(UnboundedSender<Vec<Waiting>>);

impl Answers {
    /// Starts to answer, until nobody is left who could hand anything over. What nobody was told of
    /// can be received: whoever asked will send it again.
    pub fn start() -> (Answers, Receiver<Vec<Seq>>) {
        let (handed, inbox) = unbounded_channel();
        let (outbox, untold) = mpsc::channel();
        tokio::spawn(run(inbox, outbox));
        (Answers(handed), untold)
    }

    /// Tells them that their record is kept.
    pub fn kept(&self, waiting: Vec<Waiting>) {
        if !waiting.is_empty() {
            // A runtime that has ended has none left who could be told.
            let _ = self.0.send(waiting);
        }
    }
}

async fn run(mut inbox: UnboundedReceiver<Vec<Waiting>>, untold: Sender<Vec<Seq>>) {
    while let Some(waiting) = inbox.recv().await {
        let gone: Vec<Seq> =
            waiting.into_iter().filter_map(|w| w.answer.send(true).is_err().then_some(w.seq)).collect();
        if !gone.is_empty() && untold.send(gone).is_err() {
            return;
        }
    }
}

/// Tells them that their record is not kept; returns the records.
pub(super) fn refuse(waiting: Vec<Waiting>) -> Vec<Seq> {
    let tell = |w: Waiting| {
        // Whoever has gone will send it again all the same.
        let _ = w.answer.send(false);
        w.seq
    };
    waiting.into_iter().map(tell).collect()
}
