//! Dead letters: requests that a destination refused for good, or for too long, in files that
//! `replay` sends and `eval` reads.
//!
//! In: encoded requests. Out: `dead-letter-<signal>-<second>-<n>.pb` beside the log, each a
//! sequence of length (4 bytes, big endian) and message, as the Collector's file exporter writes.
//! Bounded: at the cap no more is written, and what would have been is dropped and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::Gauge;

use super::OpenError;
use crate::receive::Signal;

/// A file grows to this; readers take one whole document at a time, and people copy files.
const FILE: u64 = 64 << 20;

/// Bytes of dead letters from before.
fn size(folder: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("dead-letter-") {
            total += entry.metadata()?.len();
        }
    }
    Ok(total)
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
        let total = size(&folder).map_err(|why| OpenError { folder: folder.display().to_string(), why })?;
        bytes.set(i64::try_from(total).unwrap_or(i64::MAX));
        let open = Mutex::new(State { total, ..State::default() });
        Ok(Letters { folder, cap, bytes, open })
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
