//! A client that sends a request as several messages, some of which fail.

use std::sync::Mutex;

use super::*;
use crate::export::config::RetryOnFailure;

/// Accepts every parcel that is sent alone and is not "bad"; of several, the first one.
#[derive(Debug, Default)]
struct InParts {
    /// Names of the spans of each request.
    asked: Mutex<Vec<Vec<String>>>,
    /// Reports several as retryable.
    retries: bool,
}

impl ExportClient for InParts {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        let name = |chunk: &bytes::Bytes| {
            let request = ExportTraceServiceRequest::decode(&chunk[..]).unwrap();
            request.resource_spans[0].scope_spans[0].spans[0].name.clone()
        };
        let names: Vec<String> = request.chunks().iter().map(name).collect();
        self.asked.lock().unwrap().push(names.clone());
        let reason = "scripted".to_owned();
        let result = match &names[..] {
            [_, _, ..] => {
                request.delivered().chunks.insert(0, 0);
                if self.retries {
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

/// Sends three parcels as one batch. Returns what was exported and dropped, and the requests.
async fn send(retries: bool) -> ((u64, u64), Vec<Vec<String>>) {
    let exporter = Exporter::new("kafka", true, &Signal::ALL, 1 << 20);
    let client = Arc::new(InParts { retries, ..InParts::default() });
    let transport = ReloadableClient::new(Arc::clone(&client) as _, Duration::MAX);
    let (packing, grouping, retry) =
        (Packing::UNCOMPRESSED, RequestGrouping::PerBatch, RetryOnFailure::default());
    let consumer = Consumer { exporter: Arc::new(exporter), transport, packing, grouping, retry };
    let exporters = Exporters::run(vec![(consumer, 1)], &context());
    for name in ["a", "bad", "c"] {
        exporters.send_record(parcel(&[name]), None).await;
    }
    exporters.drain(Instant::now() + Duration::from_secs(3600)).await;
    let asked = client.asked.lock().unwrap().clone();
    (ended(only(&exporters)), asked)
}

#[tokio::test(start_paused = true)]
async fn what_was_delivered_of_a_request_is_neither_sent_again_nor_given_up() {
    let (ended, asked) = send(false).await;
    assert_eq!(
        (ended, asked),
        ((2, 1), vec![vec!["a".into(), "bad".into(), "c".into()], vec!["bad".into()], vec!["c".into()]])
    );
    // When retries end, the rest is dropped.
    assert_eq!(send(true).await.0, (1, 2));
}
