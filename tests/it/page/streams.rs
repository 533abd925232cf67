//! The streams of updates, and the connections beside them.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::hostile::MARKUP;
use super::{failing_run, get, page};
use crate::support::MAX_TIME_WITHOUT_PROGRESS;

/// Reads a stream until it contains `expected`, or ends.
async fn read_until(socket: &mut TcpStream, expected: &str) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(Ok(read)) = tokio::time::timeout(MAX_TIME_WITHOUT_PROGRESS, socket.read(&mut buffer)).await {
        all.extend_from_slice(&buffer[..read]);
        if read == 0 || String::from_utf8_lossy(&all).contains(expected) {
            break;
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

async fn events(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!("GET /api/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_are_sent_until_the_process_stops() {
    let (process, address) = page("", "").await;
    let mut client = process.client();
    let metrics = process.service.telemetry().page.clone();
    let mut reading = events(address).await;
    let head = read_until(&mut reading, ": still here").await;
    assert!(head.contains("text/event-stream"), "{head}");
    assert_eq!(metrics.clients.get(), 1);
    client.spans(failing_run(1, "shop", MARKUP)).await;
    let event = read_until(&mut reading, "\n\n").await;
    let data = event.split("data: ").nth(1).unwrap_or_else(|| panic!("{event}"));
    let row: Value = serde_json::from_str(data.lines().next().unwrap()).unwrap();
    assert_eq!(row["trace_id"], "01".repeat(16));
    // An open stream does not delay the end of the process, which would wait for it for this time.
    let end = process.stop_within(20 * MAX_TIME_WITHOUT_PROGRESS);
    tokio::time::timeout(MAX_TIME_WITHOUT_PROGRESS, Box::pin(end))
        .await
        .expect("the process waits for the stream");
    let remaining_text = read_until(&mut reading, "never sent").await;
    assert!(!remaining_text.contains("event:"), "{remaining_text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_make_room_and_streams_stay_open() {
    let (process, address) = page("", "").await;
    let mut reading = events(address).await;
    read_until(&mut reading, ": still here").await;
    let mut idle = Vec::new();
    for _ in 0..80 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(get(address, "/api/traces").await.status, 200, "after more connections than the page has");
    process.client().spans(failing_run(1, "shop", "plain")).await;
    let event = read_until(&mut reading, "event: trace").await;
    assert!(event.contains("event: trace"), "the stream was closed: {event}");
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_updates_are_limited() {
    let (process, address) = page("", "").await;
    let mut open = Vec::new();
    for _ in 0..32 {
        let mut socket = events(address).await;
        read_until(&mut socket, ": still here").await;
        open.push(socket);
    }
    assert_eq!(get(address, "/api/events").await.status, 503);
    assert_eq!(get(address, "/api/traces").await.status, 200);
    drop(open);
    Box::pin(process.stop()).await;
}
