//! Segments as files of one directory, behind a trait so that tests can inject faults.
//!
//! In: bytes for a segment. Out: bytes of a segment. The file of a segment is named by its number; frames
//! follow a header of [`HEADER_SIZE`] bytes.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Size of a segment's header: magic, version, marker, checksum.
pub(crate) const HEADER_SIZE: usize = 8 + 4 + 4 + 4;
const MAGIC: [u8; 8] = *b"otvjrnl\n";
/// The version of the layout. A segment of a later version is not changed.
const VERSION: u32 = 2;
/// Version 1 differs only in its checksums, which are CRC-32C. Segments of version 1 are read and deleted like those
/// of the current version, and not appended to.
const VERSION_1: u32 = 1;

/// The header of a segment whose frames begin with `marker`.
pub(crate) fn header(marker: [u8; 4]) -> Vec<u8> {
    with_checksum(&[&MAGIC, &VERSION.to_le_bytes(), &marker])
}

/// The header of a segment as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentHeader {
    /// The header is intact; the value is the marker of the frames.
    Intact([u8; 4]),
    /// The header is damaged; the value is the first four bytes after it, which should be the marker of the first
    /// frame.
    Damaged(Option<[u8; 4]>),
    /// The segment has another version of the layout.
    OtherVersion(u32),
}

pub(crate) fn read_header(segment: &[u8]) -> SegmentHeader {
    let four_bytes = |from: usize| segment.get(from..).and_then(|rest| rest.first_chunk::<4>()).copied();
    let has_magic = segment.starts_with(&MAGIC);
    let intact = has_magic && segment.get(..HEADER_SIZE).and_then(verified).is_some();
    match (intact, four_bytes(8).map(u32::from_le_bytes), four_bytes(12)) {
        (true, Some(VERSION_1 | VERSION), Some(marker)) => SegmentHeader::Intact(marker),
        (true, Some(version), _) => SegmentHeader::OtherVersion(version),
        _ => SegmentHeader::Damaged(four_bytes(HEADER_SIZE)),
    }
}

/// The concatenated parts, followed by their checksum.
pub(crate) fn with_checksum(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend(crc32fast::hash(&out).to_le_bytes());
    out
}

/// The bytes before the checksum at the end of `bytes`; `None` if the checksum does not match them.
pub(crate) fn verified(bytes: &[u8]) -> Option<&[u8]> {
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    matches_checksum(content, u32::from_le_bytes(*checksum)).then_some(content)
}

/// Whether `checksum` is the CRC-32 of the bytes, or their CRC-32C as in version 1.
pub(crate) fn matches_checksum(bytes: &[u8], checksum: u32) -> bool {
    crc32fast::hash(bytes) == checksum || crc32c(bytes) == checksum
}

/// CRC-32C, computed bit by bit without a table: it is needed only for segments of version 1 and for damaged frames.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let shift = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| shift(crc)))
}

/// A file or directory that any thread can fsync.
pub(crate) trait Fsync: Send + Sync {
    /// Returns once the disk has everything that was written before.
    fn fsync(&self) -> io::Result<()>;
}

/// The file of a segment. After its fsync has failed once, every later one fails as well: Linux reports a
/// failed write to the disk once and marks the pages as clean, so another fsync would succeed although the
/// data is lost.
pub(crate) struct SegmentFile {
    file: Arc<dyn Fsync>,
    failed: AtomicBool,
}

impl SegmentFile {
    pub(crate) fn new(file: Arc<dyn Fsync>) -> SegmentFile {
        SegmentFile { file, failed: AtomicBool::new(false) }
    }
}

impl Fsync for SegmentFile {
    fn fsync(&self) -> io::Result<()> {
        if self.failed.load(Ordering::SeqCst) {
            return Err(io::Error::other("an earlier fsync of the same file failed"));
        }
        self.file.fsync().inspect_err(|_| self.failed.store(true, Ordering::SeqCst))
    }
}

/// Fsyncs all files, also after one fails; returns the first error.
pub(crate) fn fsync_all(files: &[Arc<dyn Fsync>]) -> io::Result<()> {
    files.iter().map(|file| file.fsync()).fold(Ok(()), io::Result::and)
}

impl Fsync for File {
    fn fsync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A directory. It needs `fsync`, since `fdatasync` need not write the entries of a directory.
struct DirectoryEntries(File);

impl Fsync for DirectoryEntries {
    fn fsync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// `None` if the file does not exist: other processes delete files of the directory.
pub(crate) fn if_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// The segments of a journal.
pub(crate) trait Disk: Send + 'static {
    /// The numbers of all segments, in order.
    fn list(&self) -> io::Result<Vec<u64>>;
    /// Creates an empty segment with preallocated space for `size` bytes; returns its file.
    fn create(&mut self, segment: u64, size: u64) -> io::Result<Arc<dyn Fsync>>;
    /// Appends the parts in order; after an error any prefix of them may have been written.
    fn append(&mut self, segment: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()>;
    /// Truncates to a length, and frees the preallocated space after it.
    fn truncate(&mut self, segment: u64, len: u64) -> io::Result<()>;
    /// The directory, if a segment was created since the last call: without an fsync of it, the new file may
    /// be missing after a power cut.
    fn directory_to_sync(&mut self) -> io::Result<Option<Arc<dyn Fsync>>>;
    fn read(&mut self, segment: u64, at: u64, len: usize) -> io::Result<Vec<u8>>;
    fn read_all(&mut self, segment: u64) -> io::Result<Vec<u8>>;
    /// The size in bytes of a segment that could not be read; 0 if it is unknown.
    fn size_of(&self, _segment: u64) -> u64 {
        0
    }
    /// Deletes a segment; a missing file is no error.
    fn remove(&mut self, segment: u64) -> io::Result<()>;
}

/// A directory that this process alone uses.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    open: HashMap<u64, Arc<File>>,
    /// Whether a file was created since the last call of [`Disk::directory_to_sync`].
    has_new_file: bool,
    /// The operating system releases the lock when the process ends.
    _lock: File,
}

/// Number of retries while another process holds the lock.
const LOCK_RETRIES: u32 = 20;
/// Pause before each of them.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Number of open files above which all are closed. Few segments are read at a time.
const MAX_OPEN_FILES: usize = 64;

impl Directory {
    /// Creates the directory if it is missing, and locks it. The lock is tried for up to a second: a process
    /// that is being replaced may still be exiting.
    pub(crate) fn open(path: &Path) -> io::Result<Directory> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock = owner_only().read(true).append(true).create(true).open(path.join("lock"))?;
        let mut retries_left = LOCK_RETRIES;
        while let Err(error) = lock.try_lock() {
            match error {
                fs::TryLockError::Error(error) => return Err(error),
                fs::TryLockError::WouldBlock if retries_left == 0 => {
                    return Err(io::Error::other("another process uses this directory"));
                }
                fs::TryLockError::WouldBlock => retries_left -= 1,
            }
            std::thread::sleep(LOCK_RETRY_DELAY);
        }
        Ok(Directory { path: path.to_owned(), open: HashMap::new(), has_new_file: false, _lock: lock })
    }

    fn path_of(&self, segment: u64) -> PathBuf {
        self.path.join(format!("{segment:016x}.log"))
    }

    fn file(&mut self, segment: u64) -> io::Result<&Arc<File>> {
        if !self.open.contains_key(&segment) {
            if self.open.len() > MAX_OPEN_FILES {
                self.open.clear();
            }
            self.open
                .insert(segment, Arc::new(owner_only().read(true).append(true).open(self.path_of(segment))?));
        }
        self.open.get(&segment).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Options that create a file only its owner can read: spans contain texts of users.
pub(crate) fn owner_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Preallocates blocks, which is cheaper than an allocation with every write. Without support for it,
/// writes allocate as before.
fn preallocate(file: &File, size: u64) {
    #[cfg(target_os = "linux")]
    if rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, size).is_err() {
        // Without enough space the call may have allocated the remaining space of the disk.
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

    fn create(&mut self, segment: u64, size: u64) -> io::Result<Arc<dyn Fsync>> {
        let file =
            Arc::new(owner_only().read(true).append(true).create_new(true).open(self.path_of(segment))?);
        preallocate(&file, size);
        self.open.insert(segment, Arc::clone(&file));
        self.has_new_file = true;
        Ok(file)
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

    fn directory_to_sync(&mut self) -> io::Result<Option<Arc<dyn Fsync>>> {
        let directory = self.has_new_file.then(|| File::open(&self.path)).transpose()?;
        self.has_new_file = false;
        Ok(directory.map(|file| Arc::new(DirectoryEntries(file)) as _))
    }

    fn read(&mut self, segment: u64, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file(segment)?.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn read_all(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        fs::read(self.path_of(segment))
    }

    fn size_of(&self, segment: u64) -> u64 {
        fs::metadata(self.path_of(segment)).map_or(0, |file| file.len())
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.open.remove(&segment);
        if_found(fs::remove_file(self.path_of(segment))).map(drop)
    }
}
