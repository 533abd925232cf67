//! Dead letters: requests that a destination refused for good, or for too long, in files that
//! `replay` sends and `eval` reads.
//!
//! In: encoded requests. Out: `dead-letter-<signal>-<second>-<n>.pb` beside the log, each a
//! sequence of length (4 bytes, big endian) and message, as the Collector's file exporter writes.
//! Bounded: at the cap no more is written; and files are deleted some time after they were last
//! added to.
//!
//! The folder is the operator's, too: files are replayed, moved and deleted while we run. So nothing
//! is held open or remembered that the folder itself can tell, and a letter counts as added once it
//! is in a file that is still there. Letters are rare enough for that.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use super::OpenError;
use verdict_otlp::Signal;

/// A file grows to this; readers take one whole document at a time, and people copy files.
const FILE: u64 = 64 << 20;

/// How often files are looked at for their age.
const LOOK: Duration = Duration::from_secs(3600);

/// Files that are tried for one letter. A second is needed where somebody took the first away that
/// very moment; who does that to three of them wants no letters.
const TRIES: usize = 3;

/// Why a letter was not added.
#[derive(Debug, thiserror::Error)]
pub enum NotAdded {
    /// There is no room under the cap until letters have been taken away.
    #[error("dead letters have reached storage.max_bytes")]
    AtCap,
    /// Its length has no room in four bytes.
    #[error("a request of more than 4 GiB")]
    TooLong,
    /// The disk did not take it; it may another time.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

impl NotAdded {
    /// Whether it may be added later, with nobody making room for it.
    pub fn is_passing(&self) -> bool {
        match self {
            NotAdded::AtCap | NotAdded::TooLong => false,
            NotAdded::Disk(_) => true,
        }
    }
}

/// The files of dead letters in a folder: path, bytes, and when each was last added to.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, u64, SystemTime)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with("dead-letter-") {
            continue;
        }
        match entry.metadata() {
            Ok(about) => all.push((entry.path(), about.len(), about.modified()?)),
            // Taken away since the folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn total(files: &[(PathBuf, u64, SystemTime)]) -> u64 {
    files.iter().map(|(_, bytes, _)| bytes).sum()
}

/// Where dead letters go.
#[derive(Debug)]
pub struct Letters {
    folder: PathBuf,
    cap: u64,
    bytes: Gauge,
    current: Mutex<Current>,
}

/// What is added to next, by signal: a file of this process, and its length as we left it.
type Current = [Option<(PathBuf, u64)>; Signal::ALL.len()];

impl Letters {
    /// Into `folder`, up to `cap` bytes, those from before included. `bytes` shows how many.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn open(folder: &Path, cap: u64, bytes: Gauge) -> Result<Letters, OpenError> {
        let letters = Letters { folder: folder.to_owned(), cap, bytes, current: Mutex::default() };
        let found = files(folder).map_err(|why| OpenError { folder: folder.display().to_string(), why })?;
        letters.show(total(&found));
        Ok(letters)
    }

    /// Deletes old files, at once and every hour, until told to stop. With an age of 0 none is old.
    pub async fn keep_young(self: Arc<Self>, age: Duration, stop: CancellationToken) {
        while !age.is_zero() {
            let this = Arc::clone(&self);
            let expired = tokio::task::spawn_blocking(move || this.expire(age, SystemTime::now())).await;
            match expired.map_err(io::Error::other).flatten() {
                Ok(0) => {}
                Ok(files) => tracing::warn!(files, ?age, "deleted dead letters that nobody has replayed"),
                Err(error) => tracing::error!(%error, "cannot delete old dead letters"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Deletes files to which nothing was added for `age`; returns how many.
    ///
    /// # Errors
    /// The folder cannot be read, or a file not be deleted.
    pub fn expire(&self, age: Duration, now: SystemTime) -> io::Result<u64> {
        let _alone = self.alone();
        let mut deleted = 0;
        let mut left = 0;
        for (path, bytes, last) in files(&self.folder)? {
            if now.duration_since(last).is_ok_and(|passed| passed >= age) {
                match std::fs::remove_file(&path) {
                    // Somebody was quicker.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => removed.map(|()| deleted += 1)?,
                }
            } else {
                left += bytes;
            }
        }
        self.show(left);
        Ok(deleted)
    }

    /// Adds one request, and forces it to the disk.
    ///
    /// # Errors
    /// There is no room, under the cap or on the disk. Nothing of it was added then, but perhaps the
    /// torn end of a file to which nothing is added any more.
    pub fn add(&self, signal: Signal, request: &[u8]) -> Result<(), NotAdded> {
        let length = u32::try_from(request.len()).map_err(|_| NotAdded::TooLong)?;
        let mut letter = Vec::with_capacity(request.len() + 4);
        letter.extend_from_slice(&length.to_be_bytes());
        letter.extend_from_slice(request);
        let size = letter.len() as u64;

        let mut current = self.alone();
        let place = &mut current[signal as usize];
        for _ in 0..TRIES {
            let found = files(&self.folder)?;
            let after = total(&found).saturating_add(size);
            if after > self.cap {
                self.show(total(&found));
                return Err(NotAdded::AtCap);
            }
            let (path, len, file) = match place.take().and_then(reopen) {
                Some(open) => open,
                None => self.begin(signal, found.len())?,
            };
            if let Err(error) = write(&file, &letter) {
                // Torn where that cannot be taken back: what comes next goes to another file.
                *place = file.set_len(len).is_ok().then_some((path, len));
                return Err(error.into());
            }
            // Whoever moved the file away while it was written to may have read it before that. Where
            // the letter is in both, it is sent twice.
            if is_at(&file, &path) {
                *place = Some((path, len + size));
                self.show(after);
                return Ok(());
            }
        }
        Err(io::Error::other("files of dead letters vanish while they are written to").into())
    }

    /// Makes a file, of which it is certain that nobody has written to it. `others` are in the folder.
    fn begin(&self, signal: Signal, others: usize) -> io::Result<(PathBuf, u64, File)> {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // A process before this one may have begun some within the same second.
        for n in 0..=others {
            let path = self.folder.join(format!("dead-letter-{}-{second}-{n}.pb", signal.as_str()));
            let file = match OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // It is found after a power cut only if the folder was forced, too.
            if let Err(error) = File::open(&self.folder).and_then(|folder| folder.sync_all()) {
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
            return Ok((path, 0, file));
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn alone(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, total: u64) {
        self.bytes.set(i64::try_from(total).unwrap_or(i64::MAX));
    }
}

/// Opens a file again, if it is there, as we left it, and has room.
fn reopen((path, len): (PathBuf, u64)) -> Option<(PathBuf, u64, File)> {
    let file = OpenOptions::new().append(true).open(&path).ok()?;
    let as_left = file.metadata().is_ok_and(|about| about.len() == len);
    (as_left && len < FILE).then_some((path, len, file))
}

fn write(mut file: &File, letter: &[u8]) -> io::Result<()> {
    file.write_all(letter)?;
    file.sync_data()
}

/// Whether this file is what is found at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(this), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (this.dev(), this.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_deleted_some_time_after_the_last_was_added() {
        let folder = tempfile::tempdir().unwrap();
        let letters = Letters::open(folder.path(), 1000, Gauge::default()).unwrap();
        letters.add(Signal::Traces, b"request").unwrap();
        std::fs::write(folder.path().join("0000000000000001.log"), "not a letter").unwrap();
        let (age, now) = (Duration::from_secs(3600), SystemTime::now());
        assert_eq!(letters.expire(age, now).unwrap(), 0);
        assert_eq!(letters.expire(age, now + age * 2).unwrap(), 1);
        assert_eq!(letters.bytes.get(), 0);
        letters.add(Signal::Traces, b"another").unwrap();
        assert_eq!(files(folder.path()).unwrap().len(), 1);
        assert!(folder.path().join("0000000000000001.log").exists());
    }

    /// The letters in a file, each of them whole.
    fn read(path: &Path) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(path).unwrap();
        let (mut rest, mut all) = (&bytes[..], Vec::new());
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (letter, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
            all.push(letter.to_vec());
            rest = behind;
        }
        assert!(rest.is_empty());
        all
    }

    fn only(folder: &Path) -> PathBuf {
        let found = files(folder).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].0.clone()
    }

    #[test]
    fn a_file_that_was_taken_away_gets_no_more_and_counts_no_more() {
        for renamed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            // Room for one.
            let letters = Letters::open(folder.path(), 12, Gauge::default()).unwrap();
            letters.add(Signal::Traces, b"request").unwrap();
            let (path, away) = (only(folder.path()), folder.path().join("replayed.pb"));
            match renamed {
                true => std::fs::rename(&path, &away).unwrap(),
                false => std::fs::remove_file(&path).unwrap(),
            }
            letters.add(Signal::Traces, b"another").unwrap();
            assert_eq!(read(&only(folder.path())), [b"another"]);
            assert_eq!(letters.bytes.get(), 11);
            if renamed {
                assert_eq!(read(&away), [b"request"]);
            }
        }
    }

    #[test]
    fn at_the_cap_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let letters = Letters::open(folder.path(), 21, Gauge::default()).unwrap();
        letters.add(Signal::Traces, b"request").unwrap();
        for signal in [Signal::Traces, Signal::Logs] {
            assert!(letters.add(signal, b"another").is_err());
        }
        assert_eq!(read(&only(folder.path())), [b"request"]);
        assert_eq!(letters.bytes.get(), 11);
        letters.add(Signal::Traces, b"little").unwrap();
        assert_eq!(read(&only(folder.path())), [&b"request"[..], b"little"]);
        // Those from before count.
        let letters = Letters::open(folder.path(), 21, Gauge::default()).unwrap();
        assert_eq!(letters.bytes.get(), 21);
        assert!(letters.add(Signal::Logs, b"").is_err());
    }

    #[test]
    fn only_the_owner_can_read_letters() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let letters = Letters::open(folder.path(), 1000, Gauge::default()).unwrap();
        letters.add(Signal::Traces, b"request").unwrap();
        let mode = std::fs::metadata(only(folder.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn restarted_again_and_again_within_a_second_each_has_files_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..50 {
            let letters = Letters::open(folder.path(), 1000, Gauge::default()).unwrap();
            letters.add(Signal::Traces, b"request").unwrap();
        }
        let found = files(folder.path()).unwrap();
        assert_eq!(found.len(), 50);
        found.iter().for_each(|(path, ..)| assert_eq!(read(path), [b"request"]));
    }

    #[test]
    fn nothing_is_added_behind_what_somebody_else_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let letters = Letters::open(folder.path(), 1000, Gauge::default()).unwrap();
        letters.add(Signal::Traces, b"request").unwrap();
        let path = only(folder.path());
        std::fs::write(&path, b"half a let").unwrap();
        letters.add(Signal::Traces, b"another").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"half a let");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&only(folder.path())), [b"another"]);
    }

    #[test]
    fn letters_of_a_signal_share_a_file_and_signals_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let letters = Letters::open(folder.path(), 1000, Gauge::default()).unwrap();
        for (signal, request) in [(Signal::Traces, b"a"), (Signal::Logs, b"b"), (Signal::Traces, b"c")] {
            letters.add(signal, request).unwrap();
        }
        let mut found: Vec<_> = files(folder.path()).unwrap().iter().map(|(path, ..)| read(path)).collect();
        found.sort();
        assert_eq!(found, [vec![b"a".to_vec(), b"c".to_vec()], vec![b"b".to_vec()]]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn behind_a_torn_letter_that_cannot_be_taken_back_comes_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let letters = Letters::open(folder.path(), 1000, Gauge::default()).unwrap();
        // Always full, and cannot be cut.
        letters.alone()[Signal::Traces as usize] = Some(("/dev/full".into(), 0));
        let error = letters.add(Signal::Traces, b"request").unwrap_err();
        assert!(error.is_passing(), "{error}");
        letters.add(Signal::Traces, b"another").unwrap();
        assert_eq!(read(&only(folder.path())), [b"another"]);
    }

    #[test]
    fn a_file_is_where_it_was_until_it_is_moved_or_another_is_put_there() {
        let folder = tempfile::tempdir().unwrap();
        let (here, away) = (folder.path().join("here"), folder.path().join("away"));
        let file = File::create(&here).unwrap();
        assert!(is_at(&file, &here));
        std::fs::rename(&here, &away).unwrap();
        assert!(!is_at(&file, &here));
        File::create(&here).unwrap();
        assert!(!is_at(&file, &here) && is_at(&file, &away));
    }

    #[test]
    fn a_folder_that_is_gone_may_come_back_and_a_cap_is_a_cap() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("letters");
        std::fs::create_dir(&there).unwrap();
        let letters = Letters::open(&there, 11, Gauge::default()).unwrap();
        std::fs::remove_dir(&there).unwrap();
        assert!(letters.add(Signal::Traces, b"request").unwrap_err().is_passing());
        std::fs::create_dir(&there).unwrap();
        letters.add(Signal::Traces, b"request").unwrap();
        assert!(!letters.add(Signal::Traces, b"request").unwrap_err().is_passing());
    }
}
