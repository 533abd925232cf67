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
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = disk::header(*b"mark");
    bytes[8] = 3;
    let check = crc32fast::hash(&bytes[..16]);
    bytes[16..20].copy_from_slice(&check.to_le_bytes());
    bytes.extend_from_slice(&[7; 3 * SEGMENT as usize]);
    let path = folder.path().join("0000000000000007.log");
    std::fs::write(&path, &bytes).unwrap();
    let (mut log, recovered, _) = open(folder.path());
    assert_eq!((recovered.corrupt, recovered.truncated_bytes), (1, 0));
    assert_eq!(log.bytes(), bytes.len() as u64, "it counts against the limit");
    let frame = Frame::request(1, Signal::Logs, &[RetainReason::Forwarded], true, body(&[1], 9));
    let position = log.append(std::iter::once(&frame)).unwrap()[0];
    log.insert(1, position, frame.size() as u64, RetainReasons::new(vec![RetainReason::Forwarded]));
    log.reclaim(false).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let written = (disk::HEADER_SIZE + frame.size()) as u64;
    assert_eq!(log.bytes(), bytes.len() as u64 + written, "its bytes cause no rewriting");
}

/// The same segment in the layout of version 1: with another version number and CRC-32C checksums.
fn as_version_1(mut segment: Vec<u8>) -> Vec<u8> {
    // The check value of the catalogue of CRC algorithms.
    assert_eq!(disk::crc32c(b"123456789"), 0xe306_9283);
    let checksum = |bytes: &[u8]| disk::crc32c(bytes).to_le_bytes();
    segment[8] = 1;
    let header = checksum(&segment[..16]);
    segment[16..disk::HEADER_SIZE].copy_from_slice(&header);
    let mut at = disk::HEADER_SIZE;
    while at < segment.len() {
        let len = u32::from_le_bytes(segment[at + 4..at + 8].try_into().unwrap()) as usize;
        // Marker, length, kind, seq; then both checksums, and the payload.
        let payload = checksum(&segment[at + 25..at + 25 + len]);
        segment[at + 17..at + 21].copy_from_slice(&payload);
        let fields = checksum(&segment[at + 4..at + 21]);
        segment[at + 21..at + 25].copy_from_slice(&fields);
        at += 25 + len;
    }
    segment
}

#[tokio::test]
async fn segments_of_version_1_are_recovered_as_current_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let storage = failing::storage(Durability::None);
    let open = || Journal::open(folder, &storage, REMEMBER, &metrics()).unwrap();
    let (journal, _) = open();
    let mut stored = Vec::new();
    for t in 0..20 {
        stored.push(failing::admit(&journal, t).await.unwrap());
    }
    let verdict = VerdictRecord { trace: trace(0), requests: vec![stored[0]], ..VerdictRecord::default() };
    journal.append_verdicts([&verdict].into_iter()).await;
    journal.close().await;
    let mut segments = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            std::fs::write(&path, as_version_1(std::fs::read(&path).unwrap())).unwrap();
            segments += 1;
        }
    }
    assert!(segments > 1);

    let (journal, recovered) = open();
    assert_eq!((recovered.corrupt, recovered.truncated_bytes, recovered.verdicts.len()), (0, 0, 1));
    assert_eq!(recovered.open.keys().copied().collect::<Vec<_>>(), stored[1..]);
    for (t, &seq) in stored.iter().enumerate() {
        let Some(JournalRecord::Request { body: read, forwarded, .. }) = journal.read(seq).await else {
            panic!("{seq}")
        };
        assert_eq!((read, forwarded), (body(&[t as u8], 500), false));
    }
    let released = stored.iter().enumerate().map(|(t, &seq)| (seq, RetainReason::Trace(trace(t as u8))));
    released.for_each(|release| journal.release(vec![release]));
    recovered.verdicts.keys().for_each(|&seq| journal.release(vec![(seq, RetainReason::Verdict)]));
    assert!(failing::admit(&journal, 30).await.unwrap() > stored[19]);
    journal.close().await;
    let (journal, recovered) = open();
    assert_eq!((recovered.open.len(), recovered.verdicts.len()), (1, 0));
    journal.close().await;
}

#[tokio::test]
async fn records_of_an_unreadable_segment_keep_their_numbers() {
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
    assert!(admitted.is_sorted_by(|a, b| a < b), "each number once: {admitted:?}");
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
    let open = || {
        Log::open(Directory::open(folder).unwrap(), LogLimits { segment_bytes: SEGMENT, ..limits() }).unwrap()
    };
    let frame = Frame::acked(1, "x");
    let (mut log, ..) = open();
    log.append(std::iter::once(&frame)).unwrap();
    if allocated(folder, 1) < SEGMENT {
        return println!("skipped: this file system does not preallocate");
    }
    let path = folder.join("0000000000000001.log");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), (disk::HEADER_SIZE + frame.size()) as u64);
    log.close().unwrap();
    assert!(allocated(folder, 1) < SEGMENT / 2, "close returns it");
    drop(log);

    let (mut log, ..) = open();
    log.append(std::iter::once(&frame)).unwrap();
    assert!(allocated(folder, 2) >= SEGMENT);
    drop(log);
    let (_log, recovered, _) = open();
    assert!(allocated(folder, 2) < SEGMENT / 2, "the start after a crash returns it");
    assert_eq!((recovered.corrupt, recovered.truncated_bytes), (0, 0));
}
