//! Tests the retries of a client that sends each chunk of a request as a message of its own, of which some fail.

use std::sync::Mutex;

use super::*;
use crate::export::config::RetryOnFailure;

/// Accepts a single chunk unless its span is named "bad", and only the first of several chunks.
#[derive(Debug, Default)]
struct PartialClient {
    /// The names of the spans in each request.
    requests: Mutex<Vec<Vec<String>>>,
    /// Whether the failure of several chunks is retryable.
    is_retryable: bool,
}

impl ExportClient for PartialClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        let name = |chunk: &bytes::Bytes| {
            let request = ExportTraceServiceRequest::decode(&chunk[..]).unwrap();
            request.resource_spans[0].scope_spans[0].spans[0].name.clone()
        };
        let names: Vec<String> = request.chunks().iter().map(name).collect();
        self.requests.lock().unwrap().push(names.clone());
        let reason = "scripted".to_owned();
        let result = match &names[..] {
            [_, _, ..] => {
                request.delivered().chunks.insert(0, 0);
                if self.is_retryable {
                    ExportResult::Retry { after: None, reason }
                } else {
                    ExportResult::Invalid(reason)
                }
            }
            [bad] if bad == "bad" => ExportResult::Invalid(reason),
            _ => ExportResult::ACCEPTED,
        };
        Box::pin(std::future::ready(result.into()))
    }
}

/// Sends three parcels as one batch. Returns the numbers of exported and dropped items, and the requests.
async fn send(is_retryable: bool) -> ((u64, u64), Vec<Vec<String>>) {
    let exporter = Exporter::new("kafka", true, &Signal::ALL, 1 << 20);
    let client = Arc::new(PartialClient { is_retryable, ..PartialClient::default() });
    let reloadable_client = ReloadableClient::new(Arc::clone(&client) as _, Duration::MAX);
    let (packing, grouping, retry) =
        (Packing::UNCOMPRESSED, RequestGrouping::PerBatch, RetryOnFailure::default());
    let exporter = Arc::new(exporter);
    let consumer = Consumer { exporter, client: reloadable_client, packing, grouping, retry };
    let exporters = Exporters::run(vec![(consumer, 1)], &context());
    for name in ["a", "bad", "c"] {
        exporters.send_record(parcel(&[name]), None).await;
    }
    exporters.drain(Instant::now() + Duration::from_secs(3600)).await;
    let requests = client.requests.lock().unwrap().clone();
    (exported_and_dropped(only(&exporters)), requests)
}

#[tokio::test(start_paused = true)]
async fn delivered_chunks_are_neither_sent_again_nor_dropped() {
    let (counts, requests) = send(false).await;
    assert_eq!(
        (counts, requests),
        ((2, 1), vec![vec!["a".into(), "bad".into(), "c".into()], vec!["bad".into()], vec!["c".into()]])
    );
    // When retries end, the chunks that were not delivered are dropped.
    assert_eq!(send(true).await.0, (1, 2));
}
