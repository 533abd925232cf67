//! The `file` exporter: appends OTLP as JSON lines, one request per parcel, unbuffered.
//!
//! Invariant: a line is complete or absent. After a partial write the file is truncated; if that
//! fails, the next line starts with a line break. Writes to a full disk are retried by the retry
//! policy.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::task::spawn_blocking;
use verdict_otlp::{Signal, json};

use super::client::{ExportClient, ExportFuture};
use super::pack::ExportRequest;
use super::response::{ExportResponse, ExportResult};

/// The output of a [`LineWriter`]: a file, or a failing one in tests.
trait Output {
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
struct LineWriter<O = File> {
    output: O,
    /// The output ends in the middle of a line that could not be truncated.
    torn: bool,
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

/// Encodes a request and appends it as one line.
fn append(lines: &Mutex<LineWriter>, signal: Signal, request: &Bytes) -> ExportResponse {
    let mut line = match json::encode(signal, request) {
        Ok(text) => text,
        Err(error) => return ExportResult::Rejected(error.to_string()).into(),
    };
    line.push(b'\n');
    match lines.lock().unwrap_or_else(PoisonError::into_inner).append(&line) {
        Ok(()) => ExportResult::ACCEPTED.into(),
        Err(error) => ExportResponse::none("io_error", error.to_string()),
    }
}

/// Appends requests to a file, on blocking threads.
#[derive(Debug)]
pub(super) struct FileClient(Arc<Mutex<LineWriter>>);

impl FileClient {
    /// Opens a file for appending; creates it if it does not exist.
    pub(super) fn open(path: &Path) -> io::Result<FileClient> {
        let output = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(FileClient(Arc::new(Mutex::new(LineWriter { output, torn: false }))))
    }
}

impl ExportClient for FileClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        let (lines, signal, bytes) = (Arc::clone(&self.0), request.signal, request.to_bytes());
        let written = spawn_blocking(move || append(&lines, signal, &bytes));
        Box::pin(async { written.await.unwrap_or_else(|e| ExportResult::Rejected(e.to_string()).into()) })
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
