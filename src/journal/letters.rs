//! Dead letters: requests that a destination refused for good, or for too long, in files that
//! `replay` sends and `eval` reads.
//!
//! In: encoded requests. Out: `dead-letter-<signal>-<second>-<n>.pb` beside the log, each a
//! sequence of length (4 bytes, big endian) and message, as the Collector's file exporter writes.
//! Bounded: at the cap no more is written, and what would have been is dropped and counted; and
//! files are deleted some time after they were last added to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use super::OpenError;
use crate::receive::Signal;

/// A file grows to this; readers take one whole document at a time, and people copy files.
const FILE: u64 = 64 << 20;

/// How often files are looked at for their age.
const LOOK: Duration = Duration::from_secs(3600);

/// The files of dead letters in a folder: path, bytes, and when each was last added to.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, u64, SystemTime)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("dead-letter-") {
            let about = entry.metadata()?;
            all.push((entry.path(), about.len(), about.modified()?));
        }
    }
    Ok(all)
}

/// Where dead letters go.
#[derive(Debug)]
pub struct Letters {
    folder: PathBuf,
    cap: u64,
    bytes: Gauge,
    open: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: [Option<(File, u64)>; Signal::ALL.len()],
    total: u64,
    made: u64,
}

impl Letters {
    /// Into `folder`, up to `cap` bytes, those from before included. `bytes` shows how many.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn open(folder: &Path, cap: u64, bytes: Gauge) -> Result<Letters, OpenError> {
        let folder = folder.to_owned();
        let found = files(&folder).map_err(|why| OpenError { folder: folder.display().to_string(), why })?;
        let total = found.iter().map(|(_, bytes, _)| bytes).sum();
        bytes.set(i64::try_from(total).unwrap_or(i64::MAX));
        let open = Mutex::new(State { total, ..State::default() });
        Ok(Letters { folder, cap, bytes, open })
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
        let mut guard = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        let mut deleted = 0;
        for (path, bytes, last) in files(&self.folder)? {
            if now.duration_since(last).is_ok_and(|passed| passed >= age) {
                std::fs::remove_file(&path)?;
                state.total = state.total.saturating_sub(bytes);
                deleted += 1;
            }
        }
        if deleted > 0 {
            // One that was open may be among them; what comes next begins another.
            state.files = Default::default();
            self.bytes.set(i64::try_from(state.total).unwrap_or(i64::MAX));
        }
        Ok(deleted)
    }

    /// Adds one request, and forces it to the disk.
    ///
    /// # Errors
    /// There is no room, under the cap or on the disk. Nothing of it was added then.
    pub fn add(&self, signal: Signal, request: &[u8]) -> io::Result<()> {
        let mut guard = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        let size = request.len() as u64 + 4;
        if state.total.saturating_add(size) > self.cap {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "dead letters have reached storage.max_bytes",
            ));
        }
        let length = u32::try_from(request.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let place = &mut state.files[signal as usize];
        if place.as_ref().is_none_or(|(_, len)| *len >= FILE) {
            let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let name = format!("dead-letter-{}-{second}-{}.pb", signal.as_str(), state.made);
            state.made += 1;
            let mut options = OpenOptions::new();
            options.append(true).create_new(true).mode(0o600);
            *place = Some((options.open(self.folder.join(name))?, 0));
        }
        let Some((file, len)) = place else { return Err(io::ErrorKind::NotFound.into()) };
        let mut letter = Vec::with_capacity(request.len() + 4);
        letter.extend_from_slice(&length.to_be_bytes());
        letter.extend_from_slice(request);
        if let Err(error) = file.write_all(&letter).and_then(|()| file.sync_data()) {
            if file.set_len(*len).is_err() {
                // Torn: what comes next goes to another file.
                *place = None;
            }
            return Err(error);
        }
        *len += size;
        state.total += size;
        self.bytes.set(i64::try_from(state.total).unwrap_or(i64::MAX));
        Ok(())
    }
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
}
