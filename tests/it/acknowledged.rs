//! Acknowledged data is not dropped: signals without an exporter are refused, and shutdown keeps to its
//! timeout.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use otel_verdict::pipeline::service::Service;
use tokio::io::AsyncWriteExt as _;

use crate::scrape::{http, request, span};
use crate::support::{Process, config};

const TRACES_ONLY: &str = "exporters: { otlp_grpc: { signals: [traces] } }";

#[tokio::test(flavor = "multi_thread")]
async fn metrics_without_an_exporter_are_refused() {
    let process = Process::start(TRACES_ONLY).await;
    // One gauge with one point, and nothing else.
    let metrics = b"\x0a\x0a\x12\x08\x12\x06\x2a\x04\x0a\x02\x21\x00";
    let answer = http(process.service.http.unwrap(), "POST /v1/metrics", metrics).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let grpc = process.client().metrics().await.unwrap_err();
    assert_eq!(grpc.code(), tonic::Code::Unimplemented);
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_without_an_exporter_are_rejected_unless_they_are_about_genai() {
    let process = Process::start(TRACES_ONLY).await;
    let span_record = LogRecord { trace_id: vec![1; 16], span_id: vec![1; 8], ..LogRecord::default() };
    let genai_record = LogRecord { event_name: "gen_ai.choice".to_owned(), ..span_record.clone() };
    let scope_logs = vec![ScopeLogs { log_records: vec![genai_record, span_record], ..ScopeLogs::default() }];
    let body =
        ExportLogsServiceRequest { resource_logs: vec![ResourceLogs { scope_logs, ..Default::default() }] };
    let partial = process.client().logs(body).await.unwrap().partial_success.unwrap();
    assert_eq!(partial.rejected_log_records, 1);
    assert!(partial.error_message.contains("no exporter accepts logs"), "{}", partial.error_message);
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_sender_does_not_delay_others_at_shutdown() {
    let process = Process::start("").await;
    let mut slow = tokio::net::TcpStream::connect(process.service.http.unwrap()).await.unwrap();
    let head = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\
        content-type: application/x-protobuf\r\n\r\n\x0a";
    slow.write_all(head).await.unwrap();
    let answer = http(process.service.http.unwrap(), "POST /v1/traces", &request(vec![span(1, 1)])).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(process.stop_within(Duration::from_secs(10)).await.spans().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_dropped_at_shutdown_are_counted() {
    // The port is closed, and the queue has space for a few of the traces only.
    let port = crate::support::unused_port();
    let text = "exporters: { otlp_grpc: { sending_queue: { queue_size: 2048 }, signals: [traces] } }";
    let service = Service::start(&config(port, text)).await.unwrap();
    let spans: Vec<_> = (1..=200).map(|trace| span(trace, 1)).collect();
    let answer = http(service.http.unwrap(), "POST /v1/traces", &request(spans)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(service.stop(Duration::from_secs(2)).await, 200);
}
