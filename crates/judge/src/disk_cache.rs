//! The answer cache on disk: one file per answer in a folder.
//!
//! In: answers by key. Out: the same answers, also after a restart. A file is named after the key and contains
//! the answer as `record` writes it. If the total size exceeds the limit, the oldest files are removed. There
//! is no fsync: a lost or damaged answer costs one question.
//!
//! The crate `cacache` verifies content by a hash and shares equal contents, but has neither a limit on the total
//! size nor a removal of the oldest entries.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use prometheus_client::metrics::counter::Counter;
use tokio_util::task::TaskTracker;

use crate::cache_key::{self, CacheKey};
use crate::lock::lock;
use crate::record::{self, JudgeAnswer, MAX_LINE};

/// The unit of allocation of file systems: the limit applies to allocated bytes.
const FILE_BLOCK_BYTES: u64 = 4096;

/// The folder of the answer cache cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskCacheError {
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    #[error("cannot use {0}: {1}")]
    Io(PathBuf, io::Error),
}

/// The files, and the order in which they were written.
#[derive(Debug, Default)]
struct Index {
    /// The allocated bytes of each file.
    files: HashMap<CacheKey, u64>,
    /// Oldest first. A removed file remains in the queue until it is the oldest.
    order: VecDeque<CacheKey>,
    used_bytes: u64,
    max_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct DiskCache {
    path: PathBuf,
    /// Locked while a file is read or written, so that no reader sees a partial file.
    index: Mutex<Index>,
    errors: Counter,
    /// Writes that have not ended.
    writes: TaskTracker,
    /// Locked while the process uses the folder; the operating system releases it at exit.
    _lock: File,
}

impl DiskCache {
    /// Creates the folder if it does not exist, and lists its files.
    pub(crate) fn open(path: &Path, max_bytes: u64, errors: Counter) -> Result<DiskCache, DiskCacheError> {
        let failed = |e| DiskCacheError::Io(path.to_owned(), e);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let lock =
            open_private(OpenOptions::new().create(true).append(true), &path.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(DiskCacheError::InUse(path.to_owned())),
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let (mut entries, mut unknown_files) = (Vec::new(), 0_u64);
        for entry in fs::read_dir(path).map_err(failed)?.flatten() {
            let name = entry.file_name();
            match name.to_str().and_then(cache_key::parse_key).zip(entry.metadata().ok()) {
                Some((key, metadata)) => entries.push((metadata.modified().ok(), key, metadata.len())),
                None => unknown_files += u64::from(name != "lock"),
            }
        }
        if unknown_files > 0 {
            tracing::warn!(files = unknown_files, folder = %path.display(), "files in the folder of the answer cache were not written by this version and are ignored");
        }
        entries.sort_unstable();
        let mut index = Index { max_bytes, ..Index::default() };
        entries.into_iter().for_each(|(_, key, size)| index.insert(key, size));
        let writes = TaskTracker::new();
        // A tracker can only be waited for once it is closed; a closed tracker still accepts tasks.
        writes.close();
        Ok(DiskCache { path: path.to_owned(), index: Mutex::new(index), errors, writes, _lock: lock })
    }

    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }

    /// Sets the limit on the size, which applies from the next write on.
    pub(crate) fn set_max_bytes(&self, max_bytes: u64) {
        lock(&self.index).max_bytes = max_bytes;
    }

    pub(crate) fn contains(&self, key: &CacheKey) -> bool {
        lock(&self.index).files.contains_key(key)
    }

    /// Reads an answer. Blocking. A file that cannot be read or is damaged is removed and counted as an error.
    pub(crate) fn read(&self, key: &CacheKey) -> Option<JudgeAnswer> {
        let mut index = lock(&self.index);
        index.files.get(key)?;
        let mut text = String::new();
        let read = File::open(self.file(key)).and_then(|file| file.take(MAX_LINE).read_to_string(&mut text));
        match read.ok().and_then(|_| record::read(&text)) {
            Some((found, answer)) if found == *key => Some(answer),
            _ => {
                self.errors.inc();
                index.remove(key);
                // If the removal fails, the file is listed again at the next start, and cannot be read again.
                let _ = fs::remove_file(self.file(key));
                None
            }
        }
    }

    /// Writes in the background, so that no question waits for the disk.
    pub(crate) fn write_later(self: &Arc<Self>, key: CacheKey, answer: Arc<JudgeAnswer>) {
        let disk = Arc::clone(self);
        self.writes.spawn_blocking(move || disk.write(&key, &answer));
    }

    /// Returns when all writes have ended. A runtime that ends drops the writes that have not begun.
    pub(crate) async fn wait_until_written(&self) {
        self.writes.wait().await;
    }

    /// Writes an answer. Blocking.
    fn write(&self, key: &CacheKey, answer: &JudgeAnswer) {
        let text = record::write(key, answer);
        let mut index = lock(&self.index);
        if text.len() as u64 > MAX_LINE {
            return;
        }
        if let Err(error) = self.replace(&mut index, key, &text) {
            self.errors.inc();
            tracing::warn!(%error, folder = %self.path.display(), "an answer could not be written to the answer cache on disk");
        }
    }

    fn replace(&self, index: &mut Index, key: &CacheKey, text: &str) -> io::Result<()> {
        // Files are removed before writing, so that the limit is never exceeded.
        while index.used_bytes + allocated_size(text.len() as u64) > index.max_bytes {
            let Some(oldest) = index.order.pop_front() else { break };
            if index.remove(&oldest) {
                fs::remove_file(self.file(&oldest))?;
            }
        }
        let file = self.file(key);
        let written = open_private(OpenOptions::new().create(true).write(true).truncate(true), &file)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => index.insert(*key, text.len() as u64),
            Err(_) => {
                index.remove(key);
                let _ = fs::remove_file(file);
            }
        }
        written
    }

    fn file(&self, key: &CacheKey) -> PathBuf {
        self.path.join(cache_key::hex(key))
    }
}

impl Index {
    fn insert(&mut self, key: CacheKey, len: u64) {
        let size = allocated_size(len);
        match self.files.insert(key, size) {
            Some(before) => self.used_bytes -= before,
            None => self.order.push_back(key),
        }
        self.used_bytes += size;
    }

    fn remove(&mut self, key: &CacheKey) -> bool {
        let size = self.files.remove(key);
        self.used_bytes -= size.unwrap_or(0);
        size.is_some()
    }
}

fn allocated_size(len: u64) -> u64 {
    len.next_multiple_of(FILE_BLOCK_BYTES)
}

/// Answers quote the judged content, so only the owner may read the file.
fn open_private(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use verdict_eval::questions::Usage;

    fn key(n: u64) -> CacheKey {
        let mut key = CacheKey::default();
        key[..8].copy_from_slice(&n.to_le_bytes());
        key
    }

    fn answer(n: u64) -> JudgeAnswer {
        JudgeAnswer::new(
            "m/12345678",
            serde_json::json!({ "rationale": "x".repeat(100), "score": n }),
            None,
            Usage { tokens: n, cost_usd: 0.5 },
        )
    }

    fn open(path: &Path, max_bytes: u64) -> (DiskCache, Counter) {
        let errors = Counter::default();
        (DiskCache::open(path, max_bytes, errors.clone()).unwrap(), errors)
    }

    #[test]
    fn answers_survive_a_restart_and_only_the_owner_may_read_them() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/cache");
        let (cache, _) = open(&path, 1 << 20);
        (0..100).for_each(|n| cache.write(&key(n), &answer(n)));
        assert!(matches!(DiskCache::open(&path, 1, Counter::default()), Err(DiskCacheError::InUse(_))));
        drop(cache);
        let (cache, errors) = open(&path, 1 << 20);
        assert!((0..100).all(|n| cache.read(&key(n)) == Some(answer(n))));
        assert_eq!((cache.read(&key(100)), errors.get()), (None, 0));
        for entry in fs::read_dir(&path).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn the_size_limit_is_kept_and_the_oldest_files_are_removed_first() {
        let temp = tempfile::tempdir().unwrap();
        let (cache, _) = open(temp.path(), 256 << 10);
        for n in 0..1000 {
            cache.write(&key(n), &answer(n));
            let used: u64 =
                fs::read_dir(temp.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
            assert!(used <= 256 << 10, "{used} after {n}");
        }
        assert_eq!(cache.read(&key(999)), Some(answer(999)));
        assert_eq!(cache.read(&key(0)), None);
        let present: Vec<u64> = (0..1000).filter(|n| cache.read(&key(*n)).is_some()).collect();
        assert!(present.len() > 20 && present.is_sorted() && present.windows(2).all(|w| w[1] == w[0] + 1));
    }

    #[test]
    fn a_damaged_file_loses_only_its_answer() {
        let temp = tempfile::tempdir().unwrap();
        let (cache, _) = open(temp.path(), 1 << 20);
        (0..20).for_each(|n| cache.write(&key(n), &answer(n)));
        let (flipped, cut) = (cache.file(&key(7)), cache.file(&key(19)));
        drop(cache);
        let mut bytes = fs::read(&flipped).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        fs::write(&flipped, &bytes).unwrap();
        // A crash may leave a part of the file that was being written.
        let mut bytes = fs::read(&cut).unwrap();
        bytes.truncate(bytes.len() - 10);
        fs::write(&cut, &bytes).unwrap();
        let (cache, errors) = open(temp.path(), 1 << 20);
        let present = (0..20).filter(|n| cache.read(&key(*n)) == Some(answer(*n))).count();
        assert_eq!((present, errors.get()), (18, 2));
        cache.write(&key(19), &answer(50));
        drop(cache);
        let (cache, _) = open(temp.path(), 1 << 20);
        assert_eq!(cache.read(&key(19)), Some(answer(50)), "in place of the cut file");
        // Damage while the process runs.
        fs::write(&cut, vec![b'x'; 100]).unwrap();
        assert_eq!(cache.read(&key(19)), None);
    }

    #[test]
    fn files_of_another_format_are_ignored_and_not_removed() {
        let temp = tempfile::tempdir().unwrap();
        let other = temp.path().join("answers-00000000.jsonl");
        fs::write(&other, "00000000 {}\n").unwrap();
        let (cache, errors) = open(temp.path(), 1 << 20);
        cache.write(&key(1), &answer(1));
        assert_eq!((cache.read(&key(1)), errors.get()), (Some(answer(1)), 0));
        assert!(other.exists());
    }
}
