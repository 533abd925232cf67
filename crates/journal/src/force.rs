//! The thread that forces what was written to the disk, so that writing never waits for it.
//!
//! In: files with something new in them, and who waits for that to be forced. Out: answers, and to
//! the writer what came of it. What is written while one force runs shares the next; and that an
//! exporter has something is written soon, however long the disk takes: a killed process loses
//! what was not written, not what was not forced.

use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Weak};
use std::time::Instant;

use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::disk::Force;

/// Why a file is not forced again.
const DOUBTFUL: &str = "an earlier write to the same file could not be forced";

/// Somebody who waits for records.
pub(super) struct Waiting {
    pub answer: oneshot::Sender<bool>,
    /// Given back with the answer.
    pub _room: Option<OwnedSemaphorePermit>,
}

/// What has something new in it, and who waits for that.
pub(super) struct Written {
    pub files: Vec<Arc<dyn Force>>,
    pub waiting: Vec<Waiting>,
    /// All writes up to this one are in these files, or were given out before.
    pub upto: u64,
}

/// How far the disk has it, or why not.
pub(super) type Forced = io::Result<u64>;

/// Forces until nobody is left who writes.
pub(super) fn run(written: &Receiver<Written>, forced: &Sender<Forced>, took: &Histogram) {
    // Files that could not be forced. The operating system says so once; asked again it would say that
    // all is well, though what was written before then may never have reached the disk.
    let mut doubtful: Vec<Weak<dyn Force>> = Vec::new();
    while let Ok(first) = written.recv() {
        let Written { mut files, mut waiting, mut upto } = first;
        while let Ok(more) = written.try_recv() {
            for file in more.files {
                if files.iter().all(|known| !Arc::ptr_eq(known, &file)) {
                    files.push(file);
                }
            }
            waiting.extend(more.waiting);
            upto = more.upto;
        }
        let began = Instant::now();
        let mut done = Ok(upto);
        for file in &files {
            let again = doubtful.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(file)));
            let tried = if again { Err(io::Error::other(DOUBTFUL)) } else { file.force() };
            if let Err(error) = tried {
                doubtful.push(Arc::downgrade(file));
                done = done.and(Err(error));
            }
        }
        doubtful.retain(|file| file.strong_count() > 0);
        took.observe(began.elapsed().as_secs_f64());
        // Whoever writes knows it before anybody asks for more.
        let kept = done.is_ok();
        let told = forced.send(done);
        answer(waiting, kept);
        if told.is_err() {
            return;
        }
    }
}

/// Tells them whether their records are kept. Whoever has gone gives its record up by itself.
pub(super) fn answer(waiting: Vec<Waiting>, kept: bool) {
    for Waiting { answer, .. } in waiting {
        let _ = answer.send(kept);
    }
}
