//! Dead letters: requests that a destination refused permanently or until their retries ended, in files
//! that `replay` sends and `eval` reads.
//!
//! In: encoded requests. Out: `dead-letter-<signal>-<second>-<n>.pb` in the journal's directory, each a
//! sequence of length (4 bytes, big endian) and message, as the Collector's file exporter writes. At the
//! cap nothing more is written. Files are deleted after `storage.retention`, counted from the last write, but not in
//! the first hour of a process, nor after the system's clock has jumped.
//!
//! Operators replay, move and delete these files while the process runs. Hence no file stays open, the
//! sizes are read from the directory each time, and a request counts as written only if the file is still
//! at its path afterwards. Dead letters are rare, so the cost does not matter.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;
use verdict_otlp::Signal;

use super::OpenError;
use super::disk::{if_found, owner_only};

/// Size from which another file is started, so that single files are easy to copy. It does not bound the memory of
/// readers, which hold one request.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Interval between deletions of expired files.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(3600);

/// Maximum drift of the system's clock between two passes, as by a leap second or a small adjustment.
const MAX_DRIFT: Duration = Duration::from_secs(60);

/// Number of files that are tried for one request. A second one is needed if the first was moved during the write.
const MAX_FILES_PER_APPEND: usize = 3;

/// The reason for which a dead letter was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLetterError {
    /// The cap is reached until files are removed.
    #[error("dead letters have reached storage.max_bytes")]
    AtCap,
    /// The length does not fit into four bytes.
    #[error("a request of more than 4 GiB")]
    TooLong,
    /// The disk failed; it may not fail the next time.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

impl DeadLetterError {
    /// Whether a later attempt may succeed without anyone freeing space.
    pub fn is_transient(&self) -> bool {
        matches!(self, DeadLetterError::Disk(_))
    }
}

/// The files of dead letters in a directory, each with its path, its size in bytes and the time of its last write.
fn files(directory: &Path) -> io::Result<Vec<(PathBuf, u64, SystemTime)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with("dead-letter-") {
            continue;
        }
        if let Some(metadata) = if_found(entry.metadata())? {
            all.push((entry.path(), metadata.len(), metadata.modified()?));
        }
    }
    Ok(all)
}

fn total(files: &[(PathBuf, u64, SystemTime)]) -> u64 {
    files.iter().map(|(_, bytes, _)| bytes).sum()
}

#[derive(Debug)]
pub struct DeadLetters {
    directory: PathBuf,
    cap: u64,
    bytes: Gauge,
    current: Mutex<CurrentFiles>,
}

/// For each signal, the file that this process wrote to last, and its length after that write.
type CurrentFiles = [Option<(PathBuf, u64)>; Signal::ALL.len()];

impl DeadLetters {
    /// Dead letters in `directory`, of up to `cap` bytes including existing files. `bytes` is the gauge of their sum.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(directory: &Path, cap: u64, bytes: Gauge) -> Result<DeadLetters, OpenError> {
        let current = Mutex::default();
        let dead_letters = DeadLetters { directory: directory.to_owned(), cap, bytes, current };
        let existing = files(directory).map_err(|reason| OpenError::new(directory, reason))?;
        dead_letters.set_gauge(total(&existing));
        Ok(dead_letters)
    }

    /// Deletes expired files every hour, until cancelled, while the system's clock runs evenly. With an age of 0 none
    /// expires.
    pub async fn expire_loop(self: Arc<Self>, age: Duration, stop: CancellationToken) {
        let mut before = None;
        while !age.is_zero() {
            let this = Arc::clone(&self);
            let now = (Instant::now(), SystemTime::now());
            let is_even = before.replace(now).is_some_and(|before| runs_evenly(before, now));
            let expire = move || if is_even { this.expire(age, now.1) } else { Ok(0) };
            let expired = tokio::task::spawn_blocking(expire).await;
            match expired.map_err(io::Error::other).flatten() {
                Ok(0) => {}
                Ok(files) => tracing::warn!(files, ?age, "deleted dead letters that were not replayed"),
                Err(error) => tracing::error!(%error, "cannot delete expired dead letters"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EXPIRE_INTERVAL) => {}
            }
        }
    }

    /// Deletes files that were last written at least `age` ago; returns the number of deleted files.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be deleted.
    pub fn expire(&self, age: Duration, now: SystemTime) -> io::Result<u64> {
        let _current = self.lock();
        let (mut deleted, mut remaining_bytes) = (0, 0);
        for (path, bytes, last) in files(&self.directory)? {
            if now.duration_since(last).is_ok_and(|passed| passed >= age) {
                deleted += u64::from(if_found(std::fs::remove_file(&path))?.is_some());
            } else {
                remaining_bytes += bytes;
            }
        }
        self.set_gauge(remaining_bytes);
        Ok(deleted)
    }

    /// Writes and fsyncs one request.
    ///
    /// # Errors
    /// The request would exceed the cap, or the disk fails. No file contains the request then, except that a file
    /// that is not appended to again may end with a part of it.
    pub fn append(&self, signal: Signal, request: &[u8]) -> Result<(), DeadLetterError> {
        let length = u32::try_from(request.len()).map_err(|_| DeadLetterError::TooLong)?;
        let entry = [&length.to_be_bytes(), request].concat();
        let size = entry.len() as u64;

        let mut current = self.lock();
        let last_file = &mut current[signal as usize];
        for _ in 0..MAX_FILES_PER_APPEND {
            let existing = files(&self.directory)?;
            let after = total(&existing).saturating_add(size);
            if after > self.cap {
                self.set_gauge(total(&existing));
                return Err(DeadLetterError::AtCap);
            }
            let (path, len, file) = match last_file.take().and_then(reopen) {
                Some(open) => open,
                None => self.create(signal, existing.len())?,
            };
            if let Err(error) = (&file).write_all(&entry).and_then(|()| file.sync_data()) {
                // If a partial write cannot be truncated, the next request goes to another file.
                *last_file = file.set_len(len).is_ok().then_some((path, len));
                return Err(error.into());
            }
            // A file that was moved during the write may have been read before it. If both files have
            // the request, it is sent twice.
            if is_file_at(&file, &path) {
                *last_file = Some((path, len + size));
                self.set_gauge(after);
                return Ok(());
            }
        }
        Err(io::Error::other("files of dead letters are moved while they are written").into())
    }

    /// Creates a file with a new name. The directory contains `others` files.
    fn create(&self, signal: Signal, others: usize) -> io::Result<(PathBuf, u64, File)> {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // An earlier process may have created files within the same second.
        for n in 0..=others {
            let path = self.directory.join(format!("dead-letter-{}-{second}-{n}.pb", signal.as_str()));
            let file = match owner_only().append(true).create_new(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // Without an fsync of the directory the file may be missing after a power cut.
            if let Err(error) = File::open(&self.directory).and_then(|directory| directory.sync_all()) {
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
            return Ok((path, 0, file));
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn lock(&self) -> MutexGuard<'_, CurrentFiles> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_gauge(&self, total: u64) {
        self.bytes.set(i64::try_from(total).unwrap_or(i64::MAX));
    }
}

/// Whether the system's clock and the monotonic one have advanced equally between two passes. If not, the system's was
/// set: all files may seem to be as old as the jump is long.
fn runs_evenly(before: (Instant, SystemTime), now: (Instant, SystemTime)) -> bool {
    let passed = now.1.duration_since(before.1);
    passed.is_ok_and(|passed| passed.abs_diff(now.0.duration_since(before.0)) <= MAX_DRIFT)
}

/// Reopens a file if it exists, has the length after our last write, and is below the maximum size.
fn reopen((path, len): (PathBuf, u64)) -> Option<(PathBuf, u64, File)> {
    let file = OpenOptions::new().append(true).open(&path).ok()?;
    let unchanged = file.metadata().is_ok_and(|metadata| metadata.len() == len);
    (unchanged && len < MAX_FILE_BYTES).then_some((path, len, file))
}

/// Whether `path` still names the open `file`: false once the file was moved or replaced.
fn is_file_at(file: &File, path: &Path) -> bool {
    let (Ok(file_metadata), Ok(path_metadata)) = (file.metadata(), std::fs::metadata(path)) else {
        return false;
    };
    (file_metadata.dev(), file_metadata.ino()) == (path_metadata.dev(), path_metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_deleted_after_retention_since_the_last_write() {
        let folder = tempfile::tempdir().unwrap();
        let dead_letters = DeadLetters::open(folder.path(), 1000, Gauge::default()).unwrap();
        dead_letters.append(Signal::Traces, b"request").unwrap();
        std::fs::write(folder.path().join("0000000000000001.log"), "a segment").unwrap();
        let (age, now) = (Duration::from_secs(3600), SystemTime::now());
        assert_eq!(dead_letters.expire(age, now).unwrap(), 0);
        assert_eq!(dead_letters.expire(age, now + age * 2).unwrap(), 1);
        assert_eq!(dead_letters.bytes.get(), 0);
        dead_letters.append(Signal::Traces, b"another").unwrap();
        assert_eq!(files(folder.path()).unwrap().len(), 1);
        assert!(folder.path().join("0000000000000001.log").exists());
    }

    #[test]
    fn files_are_not_deleted_after_a_jump_of_the_clock() {
        let (start, wall) = (Instant::now(), SystemTime::now());
        let after = |monotonic: u64, clock: u64| {
            (start + Duration::from_secs(monotonic), wall + Duration::from_secs(clock))
        };
        assert!(
            runs_evenly((start, wall), after(3600, 3600)) && runs_evenly((start, wall), after(3600, 3630))
        );
        assert!(!runs_evenly((start, wall), after(3600, 3600 + 30 * 86_400)));
        assert!(!runs_evenly(after(0, 3600), after(3600, 0)), "set back");
    }

    /// The requests in a file, which must be complete.
    fn read(path: &Path) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(path).unwrap();
        let (mut rest, mut all) = (&bytes[..], Vec::new());
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (request, after) = after.split_at(u32::from_be_bytes(*length) as usize);
            all.push(request.to_vec());
            rest = after;
        }
        assert!(rest.is_empty());
        all
    }

    fn only_file(folder: &Path) -> PathBuf {
        let found_files = files(folder).unwrap();
        assert_eq!(found_files.len(), 1, "{found_files:?}");
        found_files[0].0.clone()
    }

    #[test]
    fn a_removed_file_is_neither_appended_to_nor_counted() {
        for renamed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            // The cap allows one request.
            let dead_letters = DeadLetters::open(folder.path(), 12, Gauge::default()).unwrap();
            dead_letters.append(Signal::Traces, b"request").unwrap();
            let (path, moved) = (only_file(folder.path()), folder.path().join("replayed.pb"));
            match renamed {
                true => std::fs::rename(&path, &moved).unwrap(),
                false => std::fs::remove_file(&path).unwrap(),
            }
            dead_letters.append(Signal::Traces, b"another").unwrap();
            assert_eq!(read(&only_file(folder.path())), [b"another"]);
            assert_eq!(dead_letters.bytes.get(), 11);
            if renamed {
                assert_eq!(read(&moved), [b"request"]);
            }
        }
    }

    #[test]
    fn at_the_cap_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let dead_letters = DeadLetters::open(folder.path(), 21, Gauge::default()).unwrap();
        dead_letters.append(Signal::Traces, b"request").unwrap();
        for signal in [Signal::Traces, Signal::Logs] {
            assert!(dead_letters.append(signal, b"another").is_err());
        }
        assert_eq!(read(&only_file(folder.path())), [b"request"]);
        assert_eq!(dead_letters.bytes.get(), 11);
        dead_letters.append(Signal::Traces, b"little").unwrap();
        assert_eq!(read(&only_file(folder.path())), [&b"request"[..], b"little"]);
        // Existing files count towards the cap.
        let dead_letters = DeadLetters::open(folder.path(), 21, Gauge::default()).unwrap();
        assert_eq!(dead_letters.bytes.get(), 21);
        assert!(dead_letters.append(Signal::Logs, b"").is_err());
    }

    #[test]
    fn only_the_owner_can_read_dead_letters() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let dead_letters = DeadLetters::open(folder.path(), 1000, Gauge::default()).unwrap();
        dead_letters.append(Signal::Traces, b"request").unwrap();
        let mode = std::fs::metadata(only_file(folder.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn each_start_within_one_second_creates_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..50 {
            let dead_letters = DeadLetters::open(folder.path(), 1000, Gauge::default()).unwrap();
            dead_letters.append(Signal::Traces, b"request").unwrap();
        }
        let found_files = files(folder.path()).unwrap();
        assert_eq!(found_files.len(), 50);
        found_files.iter().for_each(|(path, ..)| assert_eq!(read(path), [b"request"]));
    }

    #[test]
    fn a_file_changed_by_another_process_is_not_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let dead_letters = DeadLetters::open(folder.path(), 1000, Gauge::default()).unwrap();
        dead_letters.append(Signal::Traces, b"request").unwrap();
        let path = only_file(folder.path());
        std::fs::write(&path, b"another length").unwrap();
        dead_letters.append(Signal::Traces, b"another").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"another length");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&only_file(folder.path())), [b"another"]);
    }

    #[test]
    fn each_signal_has_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        let dead_letters = DeadLetters::open(folder.path(), 1000, Gauge::default()).unwrap();
        for (signal, request) in [(Signal::Traces, b"a"), (Signal::Logs, b"b"), (Signal::Traces, b"c")] {
            dead_letters.append(signal, request).unwrap();
        }
        let mut found_files: Vec<_> =
            files(folder.path()).unwrap().iter().map(|(path, ..)| read(path)).collect();
        found_files.sort();
        assert_eq!(found_files, [vec![b"a".to_vec(), b"c".to_vec()], vec![b"b".to_vec()]]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn after_a_partial_write_that_cannot_be_truncated_another_file_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let dead_letters = DeadLetters::open(folder.path(), 1000, Gauge::default()).unwrap();
        // `/dev/full` fails every write and cannot be truncated.
        dead_letters.lock()[Signal::Traces as usize] = Some(("/dev/full".into(), 0));
        let error = dead_letters.append(Signal::Traces, b"request").unwrap_err();
        assert!(error.is_transient(), "{error}");
        dead_letters.append(Signal::Traces, b"another").unwrap();
        assert_eq!(read(&only_file(folder.path())), [b"another"]);
    }

    #[test]
    fn is_at_is_false_after_the_file_is_moved_or_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (original, moved) = (folder.path().join("original"), folder.path().join("moved"));
        let file = File::create(&original).unwrap();
        assert!(is_file_at(&file, &original));
        std::fs::rename(&original, &moved).unwrap();
        assert!(!is_file_at(&file, &original));
        File::create(&original).unwrap();
        assert!(!is_file_at(&file, &original) && is_file_at(&file, &moved));
    }

    #[test]
    fn a_missing_directory_is_a_transient_error_and_the_cap_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("dead-letters");
        std::fs::create_dir(&directory).unwrap();
        let dead_letters = DeadLetters::open(&directory, 11, Gauge::default()).unwrap();
        std::fs::remove_dir(&directory).unwrap();
        assert!(dead_letters.append(Signal::Traces, b"request").unwrap_err().is_transient());
        std::fs::create_dir(&directory).unwrap();
        dead_letters.append(Signal::Traces, b"request").unwrap();
        assert!(!dead_letters.append(Signal::Traces, b"request").unwrap_err().is_transient());
    }
}
