//! Recovery of a journal whose traces a destination does not accept.

use std::time::Duration;

use otel_verdict::pipeline::service::Service;

use crate::durable::{requests, span};
use crate::support::{MAX_TIME_WITHOUT_PROGRESS, config};

/// More traces than the inboxes of the shards and the queue of the exporter can contain.
const TRACES: u64 = 1_500;

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_although_recovered_traces_wait_for_a_destination() {
    let folder = tempfile::tempdir().unwrap();
    let started = async |close: &str| {
        let text = format!(
            "storage: {{ directory: {:?} }}\nverdict: {{ close: {{ {close} }} }}\n\
             exporters: {{ otlp_grpc: {{ sending_queue: {{ queue_size: 1KiB }}, retry_on_failure: {{ max_elapsed_time: 0s }} }} }}",
            folder.path()
        );
        // No destination listens on port 1.
        Box::pin(Service::start(&config(1, &text))).await.unwrap()
    };
    let client = async |service: &Service| {
        let url = format!("http://{}", service.grpc.unwrap());
        opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient::connect(
            url,
        )
        .await
        .unwrap()
    };
    let root = |trace: u64| {
        let mut request = requests(trace)[1].clone();
        request.resource_spans[0].scope_spans[0].spans = vec![span(trace, 1, 0, "root", Vec::new())];
        request
    };
    let service = started("quiet: 1h").await;
    let mut first = client(&service).await;
    for trace in 0..TRACES {
        first.export(root(trace)).await.unwrap();
    }
    assert_eq!(Box::pin(service.stop(MAX_TIME_WITHOUT_PROGRESS)).await, 0);

    // Traces close as soon as they are recovered, and none can be exported.
    let service = started("quiet: 0s").await;
    let answer = tokio::time::timeout(MAX_TIME_WITHOUT_PROGRESS, async {
        client(&service).await.export(root(TRACES)).await
    });
    // Where the recovered traces fill the inboxes, the client is asked to retry.
    match answer.await.expect("a request waits for recovered traces") {
        Ok(_) => {}
        Err(status) => assert_eq!(status.code(), tonic::Code::Unavailable, "{status}"),
    }
    Box::pin(service.stop(Duration::from_secs(2))).await;
}
