//! The `file` exporter: appends OTLP as JSON lines, one request per parcel, unbuffered.
//!
//! Invariant: a line is complete or absent. After a partial write the file is truncated; if that
//! fails, the next line starts with a line break. Writes to a full disk are retried by the retry
//! policy.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verdict_otlp::{Malformed, json};

use super::config::RetryOnFailure;
use super::exporter::Exporter;
use super::parcel::Parcel;
use super::queue::Job;
use super::retry::Backoff;
use crate::outcome::{DropReason, Outcome, Receipt};
use crate::telemetry::ExporterState;

/// Largest size of one write, in bytes.
const MAX_WRITE: usize = 1 << 20;

/// The output of a [`LineWriter`]: a file, or a failing one in tests.
pub(super) trait Output: Send + 'static {
    fn len(&self) -> io::Result<u64>;
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn truncate(&mut self, len: u64) -> io::Result<()>;
}

impl Output for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
}

/// Appends lines to an output.
#[derive(Debug)]
pub(super) struct LineWriter<O = File> {
    output: O,
    /// The output ends in the middle of a line that could not be truncated.
    torn: bool,
}

impl LineWriter {
    /// Opens a file for appending; creates it if it does not exist.
    pub fn open(path: &Path) -> io::Result<LineWriter> {
        Ok(LineWriter { output: OpenOptions::new().append(true).create(true).open(path)?, torn: false })
    }
}

impl<O: Output> LineWriter<O> {
    /// Appends complete lines, or nothing.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let before = self.output.len()?;
        let line_break = if self.torn { self.output.append(b"\n") } else { Ok(()) };
        let written = line_break.and_then(|()| self.output.append(lines));
        match written {
            Ok(()) => self.torn = false,
            Err(_) if self.output.truncate(before).is_ok() => {}
            // Pipes and devices cannot be truncated.
            Err(_) => self.torn = true,
        }
        written
    }
}

/// The pieces of a parcel as one request.
fn joined(parcel: &Parcel) -> Bytes {
    match parcel.pieces.as_slice() {
        [one] => one.bytes.clone(),
        several => Bytes::from(several.iter().flat_map(|p| &p.bytes[..]).copied().collect::<Vec<u8>>()),
    }
}

/// Appends a parcel as one line.
fn line(parcel: &Parcel, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let text = json::encode(parcel.signal, &joined(parcel))?;
    out.extend_from_slice(&text);
    out.push(b'\n');
    Ok(())
}

/// Writes until the queue is closed and empty, or `stop` is cancelled.
pub(super) async fn consume(
    exporter: Arc<Exporter>,
    lines: LineWriter,
    retry: RetryOnFailure,
    stop: CancellationToken,
) {
    let mut lines = Some(lines);
    loop {
        let batch = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            batch = exporter.queue.take(MAX_WRITE) => batch,
        };
        let Some(batch) = batch else { return };
        let mut parcels = Vec::new();
        let mut receipts = Vec::new();
        let mut spaces = Vec::new();
        for Job { parcel, receipt, space } in batch.jobs {
            parcels.push(parcel);
            receipts.push(receipt);
            spaces.push(space);
        }
        // Clones share the bytes.
        let copies: Vec<Parcel> = parcels.clone();
        let written = tokio::select! {
            biased;
            () = stop.cancelled() => Err((DropReason::Shutdown, "not written before the shutdown deadline".to_owned())),
            written = write(&exporter, &mut lines, parcels, &retry) => written,
        };
        resolve(&exporter, receipts, &copies, written).await;
    }
}

/// For each parcel the error of its encoding, if any; or why nothing was written.
type Written = Result<Vec<Option<Malformed>>, (DropReason, String)>;

async fn resolve(exporter: &Exporter, receipts: Vec<Receipt>, parcels: &[Parcel], written: Written) {
    for (i, (receipt, parcel)) in receipts.into_iter().zip(parcels).enumerate() {
        let (reason, why) = match &written {
            Ok(faults) => match faults.get(i).and_then(Option::as_ref) {
                None => {
                    receipt.resolve(Outcome::Exported);
                    continue;
                }
                Some(error) => (DropReason::Refused, error.to_string()),
            },
            Err((reason, why)) => (*reason, why.clone()),
        };
        let outcome = exporter.write_dead_letter(parcel.signal, joined(parcel), reason).await;
        exporter.give_up(receipt, reason, &why, &outcome);
    }
}

/// Encodes and appends on a blocking thread, with retries.
async fn write(
    exporter: &Exporter,
    lines: &mut Option<LineWriter>,
    parcels: Vec<Parcel>,
    retry: &RetryOnFailure,
) -> Written {
    let ended = |why: String| (DropReason::RetriesEnded, why);
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
        if let Some(suppressed) = exporter.throttle.allow("retry") {
            tracing::warn!(exporter = exporter.id(), %error, ?wait, suppressed, "cannot write; retrying");
        }
        tokio::time::sleep(wait).await;
        exporter.count_retry();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small disk: writes what fits and then fails.
    struct SmallDisk {
        bytes: Vec<u8>,
        room: usize,
        can_truncate: bool,
    }

    impl Output for SmallDisk {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }

        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let fits = bytes.len().min(self.room - self.bytes.len());
            self.bytes.extend_from_slice(&bytes[..fits]);
            if fits == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn truncate(&mut self, len: u64) -> io::Result<()> {
            if !self.can_truncate {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.bytes.truncate(usize::try_from(len).unwrap());
            Ok(())
        }
    }

    fn lines(can_truncate: bool) -> LineWriter<SmallDisk> {
        LineWriter { output: SmallDisk { bytes: Vec::new(), room: 10, can_truncate }, torn: false }
    }

    #[test]
    fn a_partial_line_is_truncated_and_written_completely_later() {
        let mut lines = lines(true);
        lines.append(b"{1}\n").unwrap();
        assert!(lines.append(b"{22222222}\n").is_err());
        assert_eq!(lines.output.bytes, b"{1}\n");
        lines.output.room = 100;
        lines.append(b"{22222222}\n").unwrap();
        assert_eq!(lines.output.bytes, b"{1}\n{22222222}\n");
    }

    #[test]
    fn without_truncation_the_next_line_starts_with_a_line_break() {
        let mut lines = lines(false);
        assert!(lines.append(b"{22222222}\n").is_err());
        lines.output.room = 100;
        lines.append(b"{22222222}\n").unwrap();
        assert_eq!(
            lines.output.bytes,
            b"{22222222}\n".iter().take(10).chain(b"\n{22222222}\n").copied().collect::<Vec<u8>>()
        );
    }
}
