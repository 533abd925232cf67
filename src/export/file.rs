//! The `file` exporter: OTLP as JSON lines, one request a parcel, appended and there for a
//! reader at once.
//!
//! Invariants: a line is whole or not there. A write that fails half-way is cut off again; where
//! even that fails, the next line starts on a new one. A full disk keeps the parcel and tries
//! again, by the retry policy.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Parcel;
use super::config::RetryOnFailure;
use super::exporter::{Dropped, Exporter};
use super::queue::Job;
use super::retry::Backoff;
use crate::outcome::{Outcome, Receipt};
use verdict_otlp::json;

/// Parcels are gathered up to this size for one write.
const WRITE: usize = 1 << 20;

/// What lines are appended to: a file, or in tests a disk that fails.
pub(super) trait Disk: Send + 'static {
    fn len(&self) -> io::Result<u64>;
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

impl Disk for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
}

/// Where lines go.
#[derive(Debug)]
pub(super) struct Lines<D = File> {
    disk: D,
    /// The file ends in the middle of a line that could not be taken back.
    torn: bool,
}

impl Lines {
    /// Opens for appending; the file is made if need be.
    pub fn open(path: &Path) -> io::Result<Lines> {
        Ok(Lines { disk: OpenOptions::new().append(true).create(true).open(path)?, torn: false })
    }
}

impl<D: Disk> Lines<D> {
    /// Appends whole lines, or nothing.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let before = self.disk.len()?;
        let fresh = if self.torn { self.disk.append(b"\n") } else { Ok(()) };
        let written = fresh.and_then(|()| self.disk.append(lines));
        match written {
            Ok(()) => self.torn = false,
            Err(_) if self.disk.cut(before).is_ok() => {}
            // Pipes and devices cannot be cut.
            Err(_) => self.torn = true,
        }
        written
    }
}

/// A parcel as one request.
fn joined(parcel: &Parcel) -> Bytes {
    match parcel.pieces.as_slice() {
        [one] => one.bytes.clone(),
        several => Bytes::from(several.iter().flat_map(|p| &p.bytes[..]).copied().collect::<Vec<u8>>()),
    }
}

/// A parcel as one line.
fn line(parcel: &Parcel, out: &mut Vec<u8>) -> Result<(), String> {
    let text = json::encode(parcel.signal, &joined(parcel)).map_err(|e| e.to_string())?;
    out.extend_from_slice(&text);
    out.push(b'\n');
    Ok(())
}

/// Writes until the queue is closed and empty, or `stop` is called.
pub(super) async fn consume(
    exporter: Arc<Exporter>,
    lines: Lines,
    retry: RetryOnFailure,
    stop: CancellationToken,
) {
    let mut lines = Some(lines);
    loop {
        let load = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            load = exporter.queue.take(WRITE) => load,
        };
        let Some(load) = load else { return };
        let mut parcels = Vec::new();
        let mut receipts = Vec::new();
        let mut holds = Vec::new();
        for Job { parcel, receipt, hold } in load.jobs {
            parcels.push(parcel);
            receipts.push(receipt);
            holds.push(hold);
        }
        // Shared bytes: nothing is copied.
        let copies: Vec<Parcel> = parcels.clone();
        let done = tokio::select! {
            biased;
            () = stop.cancelled() => Err((Dropped::Shutdown, "no time left to write them".to_owned())),
            done = write(&exporter, &mut lines, parcels, &retry) => done,
        };
        settle(&exporter, receipts, &copies, done).await;
    }
}

/// For each parcel, why it cannot be a line; or why none was written.
type Done = Result<Vec<Option<String>>, (Dropped, String)>;

async fn settle(exporter: &Exporter, receipts: Vec<Receipt>, parcels: &[Parcel], done: Done) {
    for (i, (receipt, parcel)) in receipts.into_iter().zip(parcels).enumerate() {
        let (reason, why) = match &done {
            Ok(faults) => match faults.get(i).and_then(Option::as_ref) {
                None => {
                    receipt.resolve(Outcome::Exported);
                    continue;
                }
                Some(why) => (Dropped::Refused, why),
            },
            Err((reason, why)) => (*reason, why),
        };
        let outcome = exporter.write_dead_letter(parcel.signal, joined(parcel), reason).await;
        exporter.give_up(receipt, reason, why, &outcome);
    }
}

/// Encodes and appends on a thread where waiting for a disk holds up nobody.
async fn write(
    exporter: &Exporter,
    lines: &mut Option<Lines>,
    parcels: Vec<Parcel>,
    retry: &RetryOnFailure,
) -> Done {
    let ended = |why: String| (Dropped::RetriesEnded, why);
    let encode = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        let faults: Vec<_> = parcels.iter().map(|parcel| line(parcel, &mut text).err()).collect();
        (Arc::new(text), faults)
    });
    let (text, faults) = encode.await.map_err(|e| ended(e.to_string()))?;
    let mut backoff = Backoff::new(retry);
    loop {
        let started = Instant::now();
        let Some(mut file) = lines.take() else { return Err(ended("the file is in use".into())) };
        let text = Arc::clone(&text);
        let append = tokio::task::spawn_blocking(move || (file.append(&text), file));
        let (written, file) = append.await.map_err(|e| ended(e.to_string()))?;
        *lines = Some(file);
        exporter.count_request(if written.is_ok() { "ok" } else { "io_error" }, started);
        let Err(error) = written else { return Ok(faults) };
        let Some(wait) = backoff.next(None) else { return Err(ended(error.to_string())) };
        if let Some(held_back) = exporter.quiet.allow("retry") {
            tracing::warn!(exporter = exporter.id(), %error, ?wait, held_back, "cannot write, trying again");
        }
        tokio::time::sleep(wait).await;
        exporter.count_retry();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has room for so many bytes; writes what fits and then fails, as disks do.
    struct Small {
        bytes: Vec<u8>,
        room: usize,
        can_cut: bool,
    }

    impl Disk for Small {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }

        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let fits = bytes.len().min(self.room - self.bytes.len());
            self.bytes.extend_from_slice(&bytes[..fits]);
            if fits == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn cut(&mut self, len: u64) -> io::Result<()> {
            if !self.can_cut {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.bytes.truncate(usize::try_from(len).unwrap());
            Ok(())
        }
    }

    fn lines(can_cut: bool) -> Lines<Small> {
        Lines { disk: Small { bytes: Vec::new(), room: 10, can_cut }, torn: false }
    }

    #[test]
    fn a_line_that_did_not_fit_is_taken_back_and_written_whole_later() {
        let mut lines = lines(true);
        lines.append(b"{1}\n").unwrap();
        assert!(lines.append(b"{22222222}\n").is_err());
        assert_eq!(lines.disk.bytes, b"{1}\n");
        lines.disk.room = 100;
        lines.append(b"{22222222}\n").unwrap();
        assert_eq!(lines.disk.bytes, b"{1}\n{22222222}\n");
    }

    #[test]
    fn where_nothing_can_be_taken_back_the_next_line_starts_afresh() {
        let mut lines = lines(false);
        assert!(lines.append(b"{22222222}\n").is_err());
        lines.disk.room = 100;
        lines.append(b"{22222222}\n").unwrap();
        assert_eq!(
            lines.disk.bytes,
            b"{22222222}\n".iter().take(10).chain(b"\n{22222222}\n").copied().collect::<Vec<u8>>()
        );
    }
}
