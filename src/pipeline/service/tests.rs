//! The answers to probes while the service starts, is overloaded, or has failed.

use verdict_config::Source;

use super::*;
use crate::config::from_sources;

#[tokio::test]
async fn failed_shard_is_reported_by_the_service() {
    let text = "receivers: { otlp: { protocols: { grpc: { endpoint: '127.0.0.1:0' }, http: { endpoint: '127.0.0.1:0' } } } }\n\
                exporters: { console: {} }\nservice: { exporters: [console] }\nadmin: { endpoint: '127.0.0.1:0' }";
    let source = Source { name: "test".to_owned(), text: text.to_owned() };
    let service = Service::start(&from_sources(&[source], &|_| None).unwrap()).await.unwrap();
    let short_timeout = Duration::from_millis(600);
    assert!(tokio::time::timeout(short_timeout, service.failed()).await.is_err(), "nothing has failed");
    service.pipeline.shared.shard_failed.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(service.failed().await, "a shard has failed");
    assert_eq!(service.readiness.obstacles(), ["a shard has failed"]);
    assert_eq!(service.stop(Duration::from_secs(180)).await, 0);
}

#[tokio::test]
async fn panic_in_a_task_of_the_service_is_reported() {
    let text = "receivers: { otlp: { protocols: { grpc: { endpoint: '127.0.0.1:0' } } } }\n\
                exporters: { console: {} }\nservice: { exporters: [console] }\nadmin: { endpoint: '127.0.0.1:0' }";
    let source = Source { name: "test".to_owned(), text: text.to_owned() };
    let mut service = Service::start(&from_sources(&[source], &|_| None).unwrap()).await.unwrap();
    assert_eq!(service.readiness.failures(), [""; 0]);
    service.receiver_tasks.spawn(async { panic!("as the test requires") });
    assert_eq!(service.failed().await, "a listener or another task of the service has failed");
    assert_eq!(service.stop(Duration::from_secs(180)).await, 0);
}

/// The status and the body of a response of the admin endpoint.
async fn probe(admin: &str, path: &str) -> (String, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(admin).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_while_the_journal_is_recovered() {
    let folder = tempfile::tempdir().unwrap();
    // Reading the only segment blocks until the other end of the pipe is opened.
    let segment = folder.path().join(format!("{:016x}.log", 1));
    assert!(std::process::Command::new("mkfifo").arg(&segment).status().unwrap().success());
    let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let text = format!(
        "receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: '127.0.0.1:0' }} }} }} }}\n\
         exporters: {{ console: {{}} }}\nservice: {{ exporters: [console] }}\n\
         admin: {{ endpoint: '{admin}' }}\nstorage: {{ directory: {:?} }}",
        folder.path()
    );
    let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
    let starting = tokio::spawn(async move { Service::start(&config).await });
    let probes = async {
        while tokio::net::TcpStream::connect(&admin).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        [probe(&admin, "/livez").await, probe(&admin, "/readyz").await]
    };
    let answered = tokio::time::timeout(Duration::from_secs(180), probes).await;
    let is_recovering = !starting.is_finished();
    // Recovery ends even if the assertions below fail.
    let opened = tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(segment));
    drop(opened.await.unwrap().unwrap());
    let [live, ready] = answered.expect("no probe was answered");
    assert!(is_recovering, "recovery ended before the probes");
    assert_eq!(live, ("200".to_owned(), "live".to_owned()));
    assert_eq!(ready, ("503".to_owned(), "recovering the journal".to_owned()));
    let service = starting.await.unwrap().unwrap();
    assert_eq!(probe(&admin, "/readyz").await, ("200".to_owned(), "ready".to_owned()));
    assert_eq!(service.stop(Duration::from_secs(180)).await, 0);
}

#[tokio::test]
async fn every_cause_of_overload_is_named() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let text = "receivers: { otlp: { protocols: { http: { endpoint: '127.0.0.1:0' } } } }\n\
                exporters: { console: {} }\nservice: { exporters: [console] }\nadmin: { endpoint: '127.0.0.1:0' }\n\
                memory: { budget: 1MiB }";
    let source = Source { name: "test".to_owned(), text: text.to_owned() };
    let service = Service::start(&from_sources(&[source], &|_| None).unwrap()).await.unwrap();
    assert_eq!(service.readiness.obstacles(), [""; 0]);
    // 200 KiB are three quarters of the limit, which one sender may take; 256 KiB are all of it.
    service.telemetry.receive.held_bytes.set(200 << 10);
    assert_eq!(service.readiness.obstacles(), [""; 0]);
    service.telemetry.receive.held_bytes.set(256 << 10);
    let mut peer = tokio::net::TcpStream::connect(service.http.unwrap()).await.unwrap();
    let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n";
    peer.write_all(format!("{head}content-length: 1\r\n\r\nx").as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    peer.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 503");
    let budget = service.pipeline.shared.budget.reserve(1 << 20);
    let causes = service.readiness.obstacles();
    let [memory, in_flight] = causes[..] else { panic!("{causes:?}") };
    assert!(memory.contains("memory.budget") && in_flight.contains("requests in flight"), "{causes:?}");
    service.telemetry.receive.held_bytes.set(0);
    drop(budget);
    assert_eq!(service.stop(Duration::from_secs(180)).await, 0);
}
