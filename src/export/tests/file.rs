//! Tests the exporter of type `file`.

use super::*;

#[tokio::test]
async fn file_exporter_writes_one_request_per_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let exporters = start(&format!("file: {{ path: {} }}", path.display()));
    exporters.send_record(parcel(&["a", "b"]), None).await;
    exporters.send_record(logs_parcel(1), None).await;
    let mut two_pieces = parcel(&["c"]);
    two_pieces.pieces.extend(parcel(&["d"]).pieces);
    exporters.send_record(two_pieces, None).await;
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (5, 0));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    lines.sort_by_key(|line| line.get("resourceLogs").is_some());
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0]["resourceSpans"][0]["scopeSpans"][0]["spans"][1]["name"], "b");
    assert_eq!(lines[2]["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"], "d");
    assert!(lines[3]["resourceLogs"].is_array());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn writes_to_a_full_disk_are_retried_until_retries_end() {
    let exporters = start(
        "file: { path: /dev/full, retry_on_failure: { initial_interval: 1ms, max_interval: 20ms, max_elapsed_time: 2s } }",
    );
    retry_until_dropped(&exporters, parcel(&["a"]), Duration::from_millis(50)).await;
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (0, 1));
    assert_eq!(only(&exporters).dropped(DropReason::RetriesEnded), 1);
    assert!(only(&exporters).retries() > 1);
}

/// Sends a span with this name and waits until it has been written.
async fn send_and_wait(exporters: &Exporters, name: &str) {
    let exported = || only(exporters).ledger().count(Outcome::Exported);
    let before = exported();
    exporters.send_record(parcel(&[name]), None).await;
    while exported() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn file_that_was_renamed_or_removed_is_created_again_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("out.jsonl"), folder.path().join("moved"));
    let exporters = start(&format!("file: {{ path: {} }}", path.display()));
    send_and_wait(&exporters, "first").await;
    std::fs::rename(&path, &moved).unwrap();
    send_and_wait(&exporters, "second").await;
    let read = |path| std::fs::read_to_string(path).unwrap();
    assert!(read(&moved).contains("first") && !read(&moved).contains("second"));
    assert!(read(&path).contains("second"));
    std::fs::remove_file(&path).unwrap();
    send_and_wait(&exporters, "third").await;
    assert!(read(&path).contains("third"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drain(&exporters).await;
}

#[tokio::test]
async fn file_that_was_renamed_is_created_again_at_sighup_without_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("out.jsonl"), folder.path().join("moved"));
    let exporters = start(&format!("file: {{ path: {} }}", path.display()));
    send_and_wait(&exporters, "first").await;
    std::fs::rename(&path, &moved).unwrap();
    exporters.reopen();
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    send_and_wait(&exporters, "second").await;
    let read = |path| std::fs::read_to_string(path).unwrap();
    assert!(read(&moved).contains("first") && !read(&moved).contains("second"));
    assert!(read(&path).contains("second"));
    drain(&exporters).await;
}

#[tokio::test]
async fn file_is_rotated_by_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let rotation = "rotation: { max_megabytes: 1, max_backups: 2 }";
    let exporters = start(&format!("file: {{ path: {}, {rotation} }}", path.display()));
    let padding = "p".repeat(400_000);
    // A file has space for two spans.
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        send_and_wait(&exporters, &format!("{name}{padding}")).await;
    }
    drain(&exporters).await;
    let names = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        text.lines().map(|line| line.split(&padding).next().unwrap().chars().last().unwrap().into()).collect()
    };
    assert_eq!(names("out.jsonl"), ["g"]);
    assert_eq!(names("out.jsonl.1"), ["e", "f"]);
    assert_eq!(names("out.jsonl.2"), ["c", "d"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[tokio::test]
async fn queued_parcels_are_written_with_one_fsync() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let exporters = start(&format!("file: {{ path: {} }}", path.display()));
    let requests = Arc::new(RequestCounter::default());
    only(&exporters).observe(Arc::clone(&requests) as Arc<dyn RequestObserver>);
    // The consumer runs on this thread, so that all parcels are queued before it takes one.
    let sends: Vec<_> = (0..50).map(|i| exporters.send_record(parcel(&[&format!("s{i}")]), None)).collect();
    for send in sends {
        send.await;
    }
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (50, 0));
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 50);
    assert_eq!(requests.0.load(std::sync::atomic::Ordering::SeqCst), 1);
}
