//! The thread that forces what was written to the disk, so that writing never waits for it.
//!
//! In: files with something new in them, and who waits for that to be forced. Out: answers, and to
//! the writer what came of it. What is written while one force runs shares the next; and that an
//! exporter has something is written soon, however long the disk takes: a killed process loses
//! what was not written, not what was not forced.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::disk::Force;
use super::record::Seq;

/// Somebody who waits for records.
pub(super) struct Waiting {
    pub seqs: Range<Seq>,
    pub answer: oneshot::Sender<bool>,
    /// Given back with the answer.
    pub _room: Option<OwnedSemaphorePermit>,
}

/// What has something new in it, and who waits for that.
pub(super) struct Written {
    pub files: Vec<Arc<dyn Force>>,
    pub waiting: Vec<Waiting>,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Forced {
    pub failed: Option<io::Error>,
    /// Records that nobody was told of.
    pub given_up: Vec<Seq>,
}

/// Forces until nobody is left who writes.
pub(super) fn run(written: &Receiver<Written>, forced: &Sender<Forced>, took: &Histogram) {
    while let Ok(first) = written.recv() {
        let Written { mut files, mut waiting } = first;
        while let Ok(more) = written.try_recv() {
            for file in more.files {
                if files.iter().all(|known| !Arc::ptr_eq(known, &file)) {
                    files.push(file);
                }
            }
            waiting.extend(more.waiting);
        }
        let began = Instant::now();
        let done = files.iter().try_for_each(|file| file.force());
        took.observe(began.elapsed().as_secs_f64());
        let mut result = Forced { failed: done.err(), ..Forced::default() };
        result.given_up = answer(waiting, result.failed.is_none());
        let news = result.failed.is_some() || !result.given_up.is_empty();
        if news && forced.send(result).is_err() {
            return;
        }
    }
}

/// Tells them whether their records are kept; returns those that are not, or whose asker has gone
/// and will send them again.
pub(super) fn answer(waiting: Vec<Waiting>, kept: bool) -> Vec<Seq> {
    let told = |w: Waiting| (w.answer.send(kept).is_err() || !kept).then_some(w.seqs);
    waiting.into_iter().filter_map(told).flatten().collect()
}
