//! The exporter that writes files.

use super::*;

#[tokio::test]
async fn file_exporter_writes_one_request_per_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let exporters = start(&format!("file: {{ path: {} }}", path.display()));
    exporters.send(parcel(&["a", "b"])).await;
    exporters.send(logs(1)).await;
    let mut two_pieces = parcel(&["c"]);
    two_pieces.pieces.extend(parcel(&["d"]).pieces);
    exporters.send(two_pieces).await;
    drain(&exporters).await;
    assert_eq!(ended(only(&exporters)), (5, 0));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    lines.sort_by_key(|line| line.get("resourceLogs").is_some());
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["resourceSpans"][0]["scopeSpans"][0]["spans"][1]["name"], "b");
    assert_eq!(lines[1]["resourceSpans"].as_array().unwrap().len(), 2);
    assert!(lines[2]["resourceLogs"].is_array());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn writes_to_a_full_disk_are_retried_until_retries_end() {
    let exporters = start(
        "file: { path: /dev/full, retry_on_failure: { initial_interval: 1ms, max_interval: 20ms, max_elapsed_time: 500ms } }",
    );
    exporters.send(parcel(&["a"])).await;
    drain(&exporters).await;
    assert_eq!(ended(only(&exporters)), (0, 1));
    assert_eq!(only(&exporters).dropped(DropReason::RetriesEnded), 1);
    assert!(only(&exporters).retries() > 1);
}
