//! The `file` exporter: appends OTLP as JSON lines, one per buffer of a request.
//!
//! Invariants: a line is complete or absent. After a partial write the file is truncated; if that fails, the next
//! line starts with a line break. A request is accepted after an fsync of its lines, since the journal then
//! releases it. Failed writes, for example to a full disk, are retried by the retry policy. A file that was renamed
//! or removed is created again by the next write or at SIGHUP.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;
use verdict_otlp::json;
use verdict_telemetry::LogThrottle;

use super::client::{ExportClient, ExportFuture};
use super::config::{FileConfig, Rotation};
use super::pack::ExportRequest;
use super::response::{ExportResponse, ExportResult};
use crate::logging::join_error_reason;

/// The output of a [`LineWriter`]: a file, or in tests a disk that fails.
trait LineOutput {
    fn len(&self) -> io::Result<u64>;
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}

impl LineOutput for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        // Pipes and devices cannot be synced.
        if self.metadata()?.is_file() { self.sync_data() } else { Ok(()) }
    }
}

/// Appends lines to an output.
#[derive(Debug)]
struct LineWriter<O = File> {
    output: O,
    /// Whether the output ends with an incomplete line that could not be truncated.
    ends_torn: bool,
}

impl<O: LineOutput> LineWriter<O> {
    /// Appends complete lines and syncs them to the disk, or appends nothing.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let len_before = self.output.len()?;
        let line_break = if self.ends_torn { self.output.append(b"\n") } else { Ok(()) };
        let written = line_break.and_then(|()| self.output.append(lines)).and_then(|()| self.output.sync());
        match written {
            Ok(()) => self.ends_torn = false,
            Err(_) if self.output.truncate(len_before).is_ok() => {}
            // Pipes and devices cannot be truncated.
            Err(_) => self.ends_torn = true,
        }
        written
    }
}

/// The file at a path, and its backups.
#[derive(Debug)]
struct RotatedFile {
    path: PathBuf,
    rotation: Option<Rotation>,
    lines: LineWriter,
    throttle: LogThrottle,
}

impl RotatedFile {
    /// Appends lines, after a rotation if the file is full. If the rotation fails, the lines are still appended.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.rotate_if_full(lines.len() as u64)
            && let Some(suppressed) = self.throttle.allow("rotation")
        {
            tracing::warn!(path = ?self.path, %error, suppressed, "cannot rotate the file");
        }
        self.reopen()?;
        self.lines.append(lines)
    }

    /// Opens the path again if the file was renamed or removed.
    fn reopen(&mut self) -> io::Result<()> {
        if self.is_moved()? {
            self.lines = open(&self.path)?;
        }
        Ok(())
    }

    /// Renames the file and its backups if the file would exceed its limit by `added` more bytes.
    fn rotate_if_full(&self, added: u64) -> io::Result<()> {
        let Some(rotation) = &self.rotation else { return Ok(()) };
        let len = self.lines.output.len()?;
        if len == 0
            || len.saturating_add(added) <= rotation.max_megabytes.saturating_mul(1 << 20)
            || self.is_moved()?
        {
            return Ok(());
        }
        let path = self.path.display();
        for number in (1..=rotation.max_backups).rev() {
            let from = if number == 1 { path.to_string() } else { format!("{path}.{}", number - 1) };
            if let Err(error) = fs::rename(from, format!("{path}.{number}"))
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the file at the path is another one than the open file, or none.
    fn is_moved(&self) -> io::Result<bool> {
        let open = self.lines.output.metadata()?;
        Ok(fs::metadata(&self.path)
            .map_or(true, |current| (current.dev(), current.ino()) != (open.dev(), open.ino())))
    }
}

/// Opens a file for appending; creates it if it does not exist, readable by its owner only, since spans
/// contain the texts of users. The mode of an existing file may be intended, so that it is only logged.
fn open(path: &Path) -> io::Result<LineWriter> {
    let output = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let metadata = output.metadata()?;
    if let Some(mode) = mode_open_to_others(&metadata) {
        tracing::warn!(
            ?path,
            mode = format!("{mode:o}"),
            "the file contains spans, and not only its owner may read it"
        );
    }
    if metadata.is_file() {
        // After a power failure a new file is lost unless its folder was synced.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // A folder that cannot be read is not synced.
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            folder.sync_all()?;
        }
    }
    Ok(LineWriter { output, ends_torn: false })
}

/// The mode of a file if its group or others can read or write it.
fn mode_open_to_others(metadata: &fs::Metadata) -> Option<u32> {
    let mode = metadata.permissions().mode() & 0o777;
    (metadata.is_file() && mode & 0o077 != 0).then_some(mode)
}

/// Encodes the buffers of a request and appends each as one line, with one fsync.
fn append_request(file: &Mutex<RotatedFile>, request: &ExportRequest) -> ExportResponse {
    let mut lines = Vec::new();
    for chunk in request.chunks() {
        match json::encode(request.signal, chunk) {
            Ok(line) => lines.extend_from_slice(&line),
            Err(error) => return ExportResult::Invalid(error.to_string()).into(),
        }
        lines.push(b'\n');
    }
    match file.lock().unwrap_or_else(PoisonError::into_inner).append(&lines) {
        Ok(()) => ExportResult::ACCEPTED.into(),
        Err(error) => ExportResponse::without_response("io_error", error.to_string()),
    }
}

/// Appends requests to a file, on blocking threads.
#[derive(Debug)]
pub(super) struct FileClient(Arc<Mutex<RotatedFile>>);

impl FileClient {
    pub(super) fn open(config: &FileConfig) -> io::Result<FileClient> {
        let (path, rotation) = (config.path.clone(), config.rotation.clone());
        let lines = open(&path)?;
        let file = RotatedFile { path, rotation, lines, throttle: LogThrottle::default() };
        Ok(FileClient(Arc::new(Mutex::new(file))))
    }
}

impl ExportClient for FileClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        let (file, request) = (Arc::clone(&self.0), request.clone());
        let written = spawn_blocking(move || append_request(&file, &request));
        Box::pin(async {
            written.await.unwrap_or_else(|e| ExportResult::Rejected(join_error_reason(&e).to_owned()).into())
        })
    }

    fn reopen(&self) {
        let file = Arc::clone(&self.0);
        spawn_blocking(move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = file.reopen() {
                tracing::warn!(path = ?file.path, %error, "cannot open the file again");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A disk with a capacity: a write beyond it is partial and fails.
    struct SmallDisk {
        bytes: Vec<u8>,
        capacity: usize,
        can_truncate: bool,
        synced_bytes: Cell<usize>,
        /// The number of further syncs that succeed.
        remaining_syncs: Cell<u32>,
    }

    impl LineOutput for SmallDisk {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }

        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            let written = bytes.len().min(self.capacity - self.bytes.len());
            self.bytes.extend_from_slice(&bytes[..written]);
            if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn truncate(&mut self, len: u64) -> io::Result<()> {
            if !self.can_truncate {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.bytes.truncate(usize::try_from(len).unwrap());
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            let remaining = self.remaining_syncs.get().checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            self.remaining_syncs.set(remaining);
            self.synced_bytes.set(self.bytes.len());
            Ok(())
        }
    }

    fn small_disk(can_truncate: bool) -> LineWriter<SmallDisk> {
        let output = SmallDisk {
            bytes: Vec::new(),
            capacity: 10,
            can_truncate,
            synced_bytes: Cell::new(0),
            remaining_syncs: Cell::new(3),
        };
        LineWriter { output, ends_torn: false }
    }

    #[test]
    fn a_partial_line_is_truncated_and_written_completely_later() {
        let mut lines = small_disk(true);
        lines.append(b"{1}\n").unwrap();
        assert!(lines.append(b"{22222222}\n").is_err());
        assert_eq!(lines.output.bytes, b"{1}\n");
        lines.output.capacity = 100;
        lines.append(b"{22222222}\n").unwrap();
        assert_eq!(lines.output.bytes, b"{1}\n{22222222}\n");
    }

    #[test]
    fn without_truncation_the_next_line_starts_with_a_line_break() {
        let mut lines = small_disk(false);
        assert!(lines.append(b"{22222222}\n").is_err());
        lines.output.capacity = 100;
        lines.append(b"{22222222}\n").unwrap();
        assert_eq!(
            lines.output.bytes,
            b"{22222222}\n".iter().take(10).chain(b"\n{22222222}\n").copied().collect::<Vec<u8>>()
        );
    }

    #[test]
    fn mode_of_an_existing_file_is_kept_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        for (mode, reported) in [(0o644, Some(0o644)), (0o640, Some(0o640)), (0o600, None), (0o400, None)] {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!(mode_open_to_others(&metadata), reported);
            fs::remove_file(&path).unwrap();
        }
        let created = open(&path).unwrap().output.metadata().unwrap();
        assert_eq!(mode_open_to_others(&created), None);
    }

    #[test]
    fn lines_are_accepted_after_they_are_on_the_disk() {
        let mut lines = small_disk(true);
        lines.append(b"{1}\n").unwrap();
        assert_eq!(lines.output.synced_bytes.get(), 4);
        lines.output.remaining_syncs.set(0);
        assert!(lines.append(b"{2}\n").is_err());
        assert_eq!(lines.output.bytes, b"{1}\n", "written again by the retry");
    }
}
