//! The directory: its lock and permissions, segments of other versions, and preallocation.

use super::*;

#[test]
fn a_directory_is_locked_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("deep/journal");
    let mut first = Directory::open(&folder).unwrap();
    assert!(Directory::open(&folder).unwrap_err().to_string().contains("another process"));
    first.create(1, 4096).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for entry in std::fs::read_dir(&folder).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    drop(first);
    Directory::open(&folder).unwrap();
}

#[test]
fn a_segment_of_another_version_is_not_changed() {
    // Version 1 had other checksums.
    for (version, check) in [(1, None), (3, Some(crc32fast::hash))] {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = disk::header(*b"mark");
        bytes[8] = version;
        let check = check.map_or(77, |check| check(&bytes[..16]));
        bytes[16..20].copy_from_slice(&check.to_le_bytes());
        bytes.extend_from_slice(b"unknown");
        let path = folder.path().join("0000000000000007.log");
        std::fs::write(&path, &bytes).unwrap();
        let (mut log, recovered, _) = open(folder.path());
        assert_eq!((recovered.corrupt, recovered.torn), (1, 0));
        log.append(std::iter::once(&Frame::acked(1, "x"))).unwrap();
        log.reclaim(false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

#[tokio::test]
async fn records_of_an_unreadable_segment_keep_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let storage = failing::storage(Durability::None);
    let open = || Journal::open(folder, &storage, REMEMBER, &metrics()).unwrap();
    let mut admitted = Vec::new();
    for _ in 0..2 {
        let (journal, _) = open();
        for t in 0..3 {
            admitted.push(failing::admit(&journal, t).await.unwrap());
        }
        journal.close().await;
    }
    // Root reads a file of any mode, so a directory takes the place of each segment.
    let hidden = folder.join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let segments: Vec<_> = (1..=2).map(|segment| format!("{segment:016x}.log")).collect();
    for segment in &segments {
        std::fs::rename(folder.join(segment), hidden.join(segment)).unwrap();
        std::fs::create_dir(folder.join(segment)).unwrap();
    }
    for already in [0, 3] {
        let (journal, recovered) = open();
        assert_eq!((recovered.corrupt, recovered.open.len()), (2, already));
        for t in 3..6 {
            admitted.push(failing::admit(&journal, t).await.unwrap());
        }
        journal.close().await;
    }
    for segment in &segments {
        std::fs::remove_dir(folder.join(segment)).unwrap();
        std::fs::rename(hidden.join(segment), folder.join(segment)).unwrap();
    }
    let (journal, recovered) = open();
    assert_eq!(recovered.corrupt, 0);
    assert!(admitted.is_sorted_by(|a, b| a < b), "each name once: {admitted:?}");
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), admitted);
    journal.close().await;
}

/// Bytes allocated for a segment.
#[cfg(target_os = "linux")]
fn allocated(folder: &Path, segment: u64) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(folder.join(format!("{segment:016x}.log"))).unwrap().blocks() * 512
}

#[test]
#[cfg(target_os = "linux")]
fn space_for_a_segment_is_preallocated_and_returned() {
    const SEGMENT: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let open =
        || Log::open(Directory::open(folder).unwrap(), Limits { segment: SEGMENT, ..limits() }).unwrap();
    let frame = Frame::acked(1, "x");
    let (mut log, ..) = open();
    log.append(std::iter::once(&frame)).unwrap();
    if allocated(folder, 1) < SEGMENT {
        return println!("skipped: this file system does not preallocate");
    }
    let path = folder.join("0000000000000001.log");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), (disk::HEADER + frame.size()) as u64);
    log.close().unwrap();
    assert!(allocated(folder, 1) < SEGMENT / 2, "close returns it");
    drop(log);

    let (mut log, ..) = open();
    log.append(std::iter::once(&frame)).unwrap();
    assert!(allocated(folder, 2) >= SEGMENT);
    drop(log);
    let (_log, recovered, _) = open();
    assert!(allocated(folder, 2) < SEGMENT / 2, "the start after a crash returns it");
    assert_eq!((recovered.corrupt, recovered.torn), (0, 0));
}
