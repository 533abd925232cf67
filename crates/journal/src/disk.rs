//! Segments as files of one directory, behind a trait so that tests can inject faults.
//!
//! In: bytes for a segment. Out: bytes of a segment. The file of a segment is named by its number; frames
//! follow a header of [`HEADER`] bytes.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Magic, version, marker, checksum.
pub(super) const HEADER: usize = 8 + 4 + 4 + 4;
const MAGIC: [u8; 8] = *b"otvjrnl\n";
/// Of the layout. A segment with another version is not changed.
const VERSION: u32 = 2;
/// Version 1 had CRC-32C checksums, in its header too.
const FIRST: u32 = 1;

/// The header of a segment whose frames begin with `marker`.
pub(super) fn header(marker: [u8; 4]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&marker);
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out
}

/// The header of a segment as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SegmentHeader {
    /// Intact, with the marker of its frames.
    Marker([u8; 4]),
    /// Damaged, with the four bytes where the first frame should begin.
    Damaged(Option<[u8; 4]>),
    /// Of another version of the layout.
    Other(u32),
}

pub(super) fn read_header(segment: &[u8]) -> SegmentHeader {
    let at = |from: usize| segment.get(from..).and_then(|rest| rest.first_chunk::<4>()).copied();
    let check = segment.get(..16).map(crc32fast::hash);
    let ours = segment.starts_with(&MAGIC);
    let intact = ours && check.is_some() && at(16).map(u32::from_le_bytes) == check;
    match (intact, at(8).map(u32::from_le_bytes), at(12)) {
        (true, Some(VERSION), Some(marker)) => SegmentHeader::Marker(marker),
        (true, Some(version), _) => SegmentHeader::Other(version),
        (false, Some(FIRST), _) if ours => SegmentHeader::Other(FIRST),
        _ => SegmentHeader::Damaged(at(HEADER)),
    }
}

/// A file or directory to fsync, from whatever thread.
pub(super) trait Fsync: Send + Sync {
    /// Returns once the disk has everything that was written before.
    fn fsync(&self) -> io::Result<()>;
}

impl Fsync for File {
    fn fsync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The entries of the directory: without an fsync of it, a new file may be missing after a power cut.
struct Entries(File);

impl Fsync for Entries {
    fn fsync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

pub(super) trait Disk: Send + 'static {
    /// The numbers of all segments, in order.
    fn list(&self) -> io::Result<Vec<u64>>;
    /// Creates an empty segment, for about `size` bytes.
    fn create(&mut self, segment: u64, size: u64) -> io::Result<()>;
    /// Appends the parts in order; after an error any prefix of them may have been written.
    fn append(&mut self, segment: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()>;
    /// Truncates to a length, and frees the preallocated space after it.
    fn truncate(&mut self, segment: u64, len: u64) -> io::Result<()>;
    /// What to fsync so that the disk has the segment and its directory entry. A segment's file is the
    /// same object each time, by which the sync thread recognises a file whose fsync failed.
    fn files_to_sync(&mut self, segment: u64) -> io::Result<Vec<Arc<dyn Fsync>>>;
    fn read(&mut self, segment: u64, at: u64, len: usize) -> io::Result<Vec<u8>>;
    fn read_all(&mut self, segment: u64) -> io::Result<Vec<u8>>;
    /// Deletes it; a missing file is no error.
    fn remove(&mut self, segment: u64) -> io::Result<()>;
}

/// A directory that this process alone uses.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    open: HashMap<u64, Arc<File>>,
    /// A file was created since [`Disk::files_to_sync`] last included the directory.
    grown: bool,
    /// The operating system releases the lock when the process ends.
    _lock: File,
}

/// With more open files than this all are closed; few segments are read at a time.
const OPEN: usize = 64;

impl Directory {
    /// Creates the directory if it is missing, and locks it.
    pub fn open(path: &Path) -> io::Result<Directory> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock = options().create(true).open(path.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => io::Error::other("another process uses this directory"),
            fs::TryLockError::Error(error) => error,
        })?;
        Ok(Directory { path: path.to_owned(), open: HashMap::new(), grown: false, _lock: lock })
    }

    fn name(&self, segment: u64) -> PathBuf {
        self.path.join(format!("{segment:016x}.log"))
    }

    fn file(&mut self, segment: u64) -> io::Result<&Arc<File>> {
        if self.open.len() > OPEN {
            // The newest is appended to; see `Disk::files_to_sync`.
            let newest = self.open.keys().max().copied();
            self.open.retain(|segment, _| Some(*segment) == newest);
        }
        let name = self.name(segment);
        match self.open.entry(segment) {
            std::collections::hash_map::Entry::Occupied(file) => Ok(file.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => {
                Ok(place.insert(Arc::new(options().open(name)?)))
            }
        }
    }
}

/// Readable by the owner only: spans contain what users wrote.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    options
}

/// Preallocates blocks, which is cheaper than an allocation with every write. Without support for it,
/// writes allocate as before.
fn reserve(file: &File, size: u64) {
    #[cfg(target_os = "linux")]
    if rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, size).is_err() {
        // A disk without enough space has allocated what it had left.
        let _ = file.set_len(0);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, size);
}

impl Disk for Directory {
    fn list(&self) -> io::Result<Vec<u64>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|n| n.strip_suffix(".log"));
            all.extend(number.and_then(|n| u64::from_str_radix(n, 16).ok()));
        }
        all.sort_unstable();
        Ok(all)
    }

    fn create(&mut self, segment: u64, size: u64) -> io::Result<()> {
        let file = options().create_new(true).open(self.name(segment))?;
        reserve(&file, size);
        self.open.insert(segment, Arc::new(file));
        self.grown = true;
        Ok(())
    }

    fn append(&mut self, segment: u64, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut file: &File = self.file(segment)?;
        while !parts.is_empty() {
            match file.write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut parts, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn truncate(&mut self, segment: u64, len: u64) -> io::Result<()> {
        self.file(segment)?.set_len(len)
    }

    fn files_to_sync(&mut self, segment: u64) -> io::Result<Vec<Arc<dyn Fsync>>> {
        let mut all: Vec<Arc<dyn Fsync>> = vec![Arc::clone(self.file(segment)?) as _];
        if self.grown {
            all.push(Arc::new(Entries(File::open(&self.path)?)));
            self.grown = false;
        }
        Ok(all)
    }

    fn read(&mut self, segment: u64, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file(segment)?.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn read_all(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        fs::read(self.name(segment))
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.open.remove(&segment);
        match fs::remove_file(self.name(segment)) {
            // Another process deleted it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}
