//! Segments as files of one folder, behind a trait so that tests can have a disk that fails.
//!
//! In: bytes for a segment. Out: bytes of a segment. A segment's file is named by its number and
//! begins with [`HEADER`] bytes; what follows are frames.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Magic, version, marker, checksum.
pub(super) const HEADER: usize = 8 + 4 + 4 + 4;
/// How every segment begins.
const MAGIC: [u8; 8] = *b"otvjrnl\n";
/// Of the layout. A folder with another one is left alone, segment by segment.
const VERSION: u32 = 2;
/// The first one had other checksums (CRC-32C), in its header too.
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

/// What a segment's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// Frames begin with this.
    Marker([u8; 4]),
    /// Damaged; this is what stands where the first frame should begin.
    Damaged(Option<[u8; 4]>),
    /// Written by another version of the program.
    Other(u32),
}

/// Reads a segment's header.
pub(super) fn opening(segment: &[u8]) -> Opening {
    let at = |from: usize| segment.get(from..).and_then(|rest| rest.first_chunk::<4>()).copied();
    let check = segment.get(..16).map(crc32fast::hash);
    let ours = segment.starts_with(&MAGIC);
    let whole = ours && check.is_some() && at(16).map(u32::from_le_bytes) == check;
    match (whole, at(8).map(u32::from_le_bytes), at(12)) {
        (true, Some(VERSION), Some(marker)) => Opening::Marker(marker),
        (true, Some(version), _) => Opening::Other(version),
        (false, Some(FIRST), _) if ours => Opening::Other(FIRST),
        _ => Opening::Damaged(at(HEADER)),
    }
}

/// Something that can be forced to the disk.
pub(super) trait Force: Send + Sync {
    /// Returns once all that was written before is there.
    fn force(&self) -> io::Result<()>;
}

impl Force for File {
    fn force(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The folder: a new file is found after a power cut only if that was forced, too.
struct Entries(File);

impl Force for Entries {
    fn force(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// Where segments are.
pub(super) trait Disk: Send + 'static {
    /// Numbers of those there are, in order.
    fn list(&self) -> io::Result<Vec<u64>>;
    /// Makes an empty one, which is to take about `size` bytes.
    fn create(&mut self, segment: u64, size: u64) -> io::Result<()>;
    /// Appends the parts one after the other; on error any part may have been written.
    fn append(&mut self, segment: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()>;
    /// Cuts to a length, and gives back what was set aside behind it.
    fn cut(&mut self, segment: u64, len: u64) -> io::Result<()>;
    /// What forces it to the disk, and that it is there, on whatever thread, while more is appended.
    fn forcible(&mut self, segment: u64) -> io::Result<Vec<Arc<dyn Force>>>;
    /// Reads a part.
    fn read(&mut self, segment: u64, at: u64, len: usize) -> io::Result<Vec<u8>>;
    /// Reads all of it.
    fn read_all(&mut self, segment: u64) -> io::Result<Vec<u8>>;
    /// Deletes it.
    fn remove(&mut self, segment: u64) -> io::Result<()>;
}

/// A folder that is ours alone.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    open: HashMap<u64, Arc<File>>,
    /// A file was made since the folder was last given out to be forced.
    grown: bool,
    /// Held as long as we run; the operating system gives it up when we die.
    _lock: File,
}

/// More open files than this are closed; a log has few segments that are read.
const OPEN: usize = 64;

impl Folder {
    /// Makes the folder if need be, and locks it.
    pub fn open(path: &Path) -> io::Result<Folder> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock = options().create(true).open(path.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => io::Error::other("another process uses this folder"),
            fs::TryLockError::Error(error) => error,
        })?;
        Ok(Folder { path: path.to_owned(), open: HashMap::new(), grown: false, _lock: lock })
    }

    fn name(&self, segment: u64) -> PathBuf {
        self.path.join(format!("{segment:016x}.log"))
    }

    fn file(&mut self, segment: u64) -> io::Result<&Arc<File>> {
        if self.open.len() > OPEN {
            self.open.clear();
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

/// Readable by its owner only: spans hold what users said.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    options
}

/// Has the disk set aside room that the file will grow into: blocks are found once, and not anew with
/// every write. Where that cannot be had, writes find them as they go.
fn reserve(file: &File, size: u64) {
    #[cfg(target_os = "linux")]
    if rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, size).is_err() {
        // A disk that was full before it had all of it has set aside what it had left.
        let _ = file.set_len(0);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, size);
}

impl Disk for Folder {
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

    fn cut(&mut self, segment: u64, len: u64) -> io::Result<()> {
        self.file(segment)?.set_len(len)
    }

    fn forcible(&mut self, segment: u64) -> io::Result<Vec<Arc<dyn Force>>> {
        let mut all: Vec<Arc<dyn Force>> = vec![Arc::clone(self.file(segment)?) as _];
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
        let mut bytes = Vec::new();
        let mut file: &File = self.file(segment)?;
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.open.remove(&segment);
        match fs::remove_file(self.name(segment)) {
            // Somebody was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}
