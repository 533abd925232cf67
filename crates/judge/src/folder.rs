//! Answers on disk: files of lines that are appended to, and an index of them in memory.
//!
//! In: answers by key. Out: the same, later, in this process or the next. A line is its checksum
//! (CRC-32, eight digits), a space, the answer as `line` writes it. A damaged line is passed over.
//! When all files together are over their bound, the oldest goes: what is asked now is what was
//! asked lately. Nothing is forced to the disk: a lost answer costs one question.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kept::{Errors, Said};
use super::line::{self, MAX_LINE};
use super::named::Key;

/// The bound is kept by whole files: so many share it.
const FILES: u64 = 8;
/// Checksum and space.
const HEAD: usize = 9;

/// The folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process has it.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// It cannot be made, listed or read.
    #[error("cannot use {0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Where an answer's line stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: u64,
    at: u64,
    len: usize,
}

#[derive(Debug)]
struct State {
    index: HashMap<Key, Place>,
    /// By number: the oldest first, the last one is written to.
    files: BTreeMap<u64, (File, u64)>,
    max_bytes: u64,
}

/// A folder of answers that is ours alone.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    state: Mutex<State>,
    errors: Errors,
    /// Held as long as we run; the operating system gives it up when we die.
    _lock: File,
}

impl Folder {
    /// Makes the folder where it is not there; reads every line of its files once.
    pub fn open(path: &Path, max_bytes: u64, errors: Errors) -> Result<Folder, FolderError> {
        let wrong = |e| FolderError::Io(path.to_owned(), e);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(wrong)?;
        let lock = private().open(path.join("lock")).map_err(wrong)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(FolderError::InUse(path.to_owned())),
            Err(fs::TryLockError::Error(why)) => return Err(wrong(why)),
        }
        let mut state = State { index: HashMap::new(), files: BTreeMap::new(), max_bytes };
        let mut numbers: Vec<u64> = fs::read_dir(path)
            .map_err(wrong)?
            .filter_map(|entry| number(entry.ok()?.file_name().to_str()?))
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            let file = private().open(name(path, number)).map_err(wrong)?;
            let damaged = state.learn(number, file).map_err(wrong)?;
            if damaged > 0 {
                errors.inc_by(damaged);
                tracing::warn!(lines = damaged, file = %name(path, number).display(), "damaged answers were passed over");
            }
        }
        Ok(Folder { path: path.to_owned(), state: Mutex::new(state), errors, _lock: lock })
    }

    /// Whether this is the folder at `path`.
    pub fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }

    /// Sets another bound; it holds from the next answer on.
    pub fn bound(&self, max_bytes: u64) {
        self.state().max_bytes = max_bytes;
    }

    /// Whether there is an answer, as far as the index knows.
    pub fn has(&self, key: &Key) -> bool {
        self.state().index.contains_key(key)
    }

    /// The answer to a question. Blocks.
    pub fn read(&self, key: &Key) -> Option<Said> {
        let mut state = self.state();
        let place = *state.index.get(key)?;
        let (file, _) = state.files.get(&place.file)?;
        let mut bytes = vec![0; place.len];
        let found = file.read_exact_at(&mut bytes, place.at).ok().and_then(|()| parse(&bytes));
        match found {
            Some((found, said)) if found == *key => Some(said),
            _ => {
                self.errors.inc();
                state.index.remove(key);
                None
            }
        }
    }

    /// Keeps an answer. Blocks.
    pub fn write(&self, key: &Key, said: &Said) {
        let mut state = self.state();
        if let Err(why) = state.append(&self.path, key, said) {
            self.errors.inc();
            tracing::warn!(%why, folder = %self.path.display(), "an answer could not be kept");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Puts a file's lines into the index; the number of damaged ones.
    fn learn(&mut self, number: u64, file: File) -> io::Result<u64> {
        let mut reader = BufReader::new(&file);
        let (mut at, mut damaged) = (0u64, 0);
        loop {
            let mut bytes = Vec::new();
            let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)?;
            if read == 0 {
                break;
            }
            match bytes.strip_suffix(b"\n").and_then(|line| Some((parse(line)?.0, line.len()))) {
                Some((key, len)) => drop(self.index.insert(key, Place { file: number, at, len })),
                None => damaged += u64::from(bytes != b"\n"),
            }
            at += read as u64;
        }
        self.files.insert(number, (file, at));
        Ok(damaged)
    }

    fn append(&mut self, folder: &Path, key: &Key, said: &Said) -> io::Result<()> {
        let text = line::write(key, said);
        // A line before it that was cut must not take this one along.
        let line = format!("\n{:08x} {text}\n", crc32fast::hash(text.as_bytes()));
        if line.len() as u64 >= MAX_LINE {
            return Ok(());
        }
        let full = |used: u64| used >= self.max_bytes / FILES;
        let number = match self.files.last_key_value() {
            Some((number, (_, used))) if !full(*used) => *number,
            last => {
                let number = last.map_or(0, |(number, _)| number + 1);
                self.files.insert(number, (private().open(name(folder, number))?, 0));
                number
            }
        };
        if let Some((file, used)) = self.files.get_mut(&number) {
            let written = file.write_all(line.as_bytes());
            // What is there now, whatever came of it.
            let at = *used + 1;
            *used = file.metadata()?.len();
            written?;
            self.index.insert(*key, Place { file: number, at, len: line.len() - 2 });
        }
        self.shrink(folder)
    }

    fn shrink(&mut self, folder: &Path) -> io::Result<()> {
        let total = |files: &BTreeMap<u64, (File, u64)>| files.values().map(|(_, used)| used).sum::<u64>();
        while total(&self.files) > self.max_bytes && self.files.len() > 1 {
            let Some((number, _)) = self.files.pop_first() else { break };
            self.index.retain(|_, place| place.file != number);
            fs::remove_file(name(folder, number))?;
        }
        Ok(())
    }
}

fn parse(line: &[u8]) -> Option<(Key, Said)> {
    let text = std::str::from_utf8(line).ok()?;
    let sum = u32::from_str_radix(text.get(..HEAD - 1)?, 16).ok()?;
    let text = text.get(HEAD..)?;
    (crc32fast::hash(text.as_bytes()) == sum).then(|| line::read(text))?
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true).mode(0o600);
    options
}

fn name(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("answers-{number:08}.jsonl"))
}

fn number(name: &str) -> Option<u64> {
    name.strip_prefix("answers-")?.strip_suffix(".jsonl")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use verdict_eval::measure::Usage;

    fn key(n: u64) -> Key {
        let mut key = Key::default();
        key[..8].copy_from_slice(&n.to_le_bytes());
        key
    }

    fn said(n: u64) -> Said {
        Said {
            value: serde_json::json!({ "rationale": "x".repeat(100), "score": n }),
            weighted: None,
            judge: "m/12345678".into(),
            usage: Usage { tokens: n, cost_usd: 0.5 },
        }
    }

    fn open(path: &Path, max_bytes: u64) -> (Folder, Errors) {
        let errors = Errors::default();
        (Folder::open(path, max_bytes, errors.clone()).unwrap(), errors)
    }

    #[test]
    fn answers_outlive_the_process_and_are_for_their_owner_alone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/cache");
        let (folder, _) = open(&path, 1 << 20);
        (0..100).for_each(|n| folder.write(&key(n), &said(n)));
        assert!(matches!(Folder::open(&path, 1, Errors::default()), Err(FolderError::InUse(_))));
        drop(folder);
        let (folder, errors) = open(&path, 1 << 20);
        assert!((0..100).all(|n| folder.read(&key(n)) == Some(said(n))));
        assert_eq!((folder.read(&key(100)), errors.get()), (None, 0));
        for entry in fs::read_dir(&path).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn the_bound_holds_and_the_oldest_go_first() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, _) = open(temp.path(), 16 << 10);
        for n in 0..1000 {
            folder.write(&key(n), &said(n));
            let used: u64 =
                fs::read_dir(temp.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
            assert!(used <= 16 << 10, "{used} after {n}");
        }
        assert_eq!(folder.read(&key(999)), Some(said(999)));
        assert_eq!(folder.read(&key(0)), None);
        let there: Vec<u64> = (0..1000).filter(|n| folder.read(&key(*n)).is_some()).collect();
        assert!(there.len() > 20 && there.is_sorted() && there.windows(2).all(|w| w[1] == w[0] + 1));
    }

    #[test]
    fn damage_costs_the_answer_it_hits_and_no_other() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, _) = open(temp.path(), 1 << 20);
        (0..20).for_each(|n| folder.write(&key(n), &said(n)));
        drop(folder);
        let file = name(temp.path(), 0);
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        // A crash cuts the last line.
        bytes.truncate(bytes.len() - 10);
        fs::write(&file, &bytes).unwrap();
        let (folder, errors) = open(temp.path(), 1 << 20);
        let there = (0..20).filter(|n| folder.read(&key(*n)) == Some(said(*n))).count();
        assert_eq!((there, errors.get()), (18, 2));
        folder.write(&key(50), &said(50));
        drop(folder);
        let (folder, _) = open(temp.path(), 1 << 20);
        assert_eq!(folder.read(&key(50)), Some(said(50)), "behind the cut line");
        // Damage that comes while we run.
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, vec![b'x'; bytes.len()]).unwrap();
        assert_eq!(folder.read(&key(50)), None);
    }
}
