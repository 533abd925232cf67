//! The thread that forces what was written to the disk, so that writing never waits for it.
//!
//! In: files with something new in them, and who waits for that to be forced. Out: answers, and to
//! the writer what failed. What is written while one force runs shares the next; and that an
//! exporter has something is written at once, however long the disk takes: a killed process loses
//! what was not written, not what was not forced.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use prometheus_client::metrics::histogram::Histogram;

use super::answer::{Answers, Waiting, refuse};
use super::disk::Force;
use super::record::Seq;

/// What has something new in it, and who waits for that.
pub(super) struct Written {
    pub files: Vec<Arc<dyn Force>>,
    pub waiting: Vec<Waiting>,
}

/// What could not be forced.
pub(super) struct Failed {
    pub why: io::Error,
    /// Records that are refused for it.
    pub refused: Vec<Seq>,
}

/// Forces until nobody is left who writes.
pub(super) fn run(
    written: &Receiver<Written>,
    answers: &Answers,
    failures: &Sender<Failed>,
    took: &Histogram,
) {
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
        match done {
            Ok(()) => answers.kept(waiting),
            Err(why) => {
                if failures.send(Failed { why, refused: refuse(waiting) }).is_err() {
                    return;
                }
            }
        }
    }
}
