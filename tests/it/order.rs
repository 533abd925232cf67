//! The order of arrival within a trace has no effect: the spans and log records of a capture, split into
//! requests, shuffled, and partly duplicated, lead to the same annotated spans.

use std::path::Path;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::RecordingEvaluation;
use otel_verdict::receive::Offer;
use proptest::prelude::*;
use prost::Message as _;
use verdict_otlp::Signal;

use crate::durable::storage;
use crate::frameworks::{case, spans_of};
use crate::support::Process;

/// Captures of three frameworks; one of them with content in logs.
const CAPTURES: [&str; 3] = ["vercelai-e", "strands-c", "googleadk-logs-a"];

/// Every span and record of the captures, each in a request of its own.
pub fn single_item_requests() -> Vec<Offer> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo");
    let requests = CAPTURES.iter().flat_map(|name| case(&folder.join(name)).requests);
    let mut all = Vec::new();
    for Offer { signal, body } in requests {
        let mut add = |body: Vec<u8>| all.push(Offer { signal, body: body.into() });
        match signal {
            Signal::Traces => {
                for resource in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
                    for scope in &resource.scope_spans {
                        for span in &scope.spans {
                            let mut resource = resource.clone();
                            let mut scope = scope.clone();
                            scope.spans = vec![span.clone()];
                            resource.scope_spans = vec![scope];
                            add(ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec());
                        }
                    }
                }
            }
            Signal::Logs => {
                for resource in ExportLogsServiceRequest::decode(body).unwrap().resource_logs {
                    for scope in &resource.scope_logs {
                        for record in &scope.log_records {
                            let mut resource = resource.clone();
                            let mut scope = scope.clone();
                            scope.log_records = vec![record.clone()];
                            resource.scope_logs = vec![scope];
                            add(ExportLogsServiceRequest { resource_logs: vec![resource] }.encode_to_vec());
                        }
                    }
                }
            }
            Signal::Metrics => {}
        }
    }
    all
}

/// Every annotated span, encoded, in order of bytes.
fn annotated_spans<'a>(requests: impl IntoIterator<Item = &'a Offer>) -> Vec<Vec<u8>> {
    let mut evaluation = RecordingEvaluation::new(&Config::default(), 1).unwrap();
    for offer in requests {
        evaluation.add(offer).unwrap();
    }
    let mut spans = Vec::new();
    crate::support::finish(&mut evaluation, |trace| {
        let bodies: Vec<_> = trace.annotated.spans.into_iter().map(|piece| piece.bytes).collect();
        spans.extend(spans_of(&bodies).iter().map(|span| span.encode_to_vec()));
    });
    spans.sort();
    spans
}

/// Requests of the same signal joined: protobuf joins repeated fields by appending.
fn join(offers: &[&Offer]) -> Vec<Offer> {
    offers
        .chunk_by(|a, b| a.signal == b.signal)
        .map(|run| Offer {
            signal: run[0].signal,
            body: run.iter().flat_map(|offer| &offer.body[..]).copied().collect::<Vec<u8>>().into(),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn order_of_arrival_and_resends_do_not_change_annotated_spans(
        keys in prop::collection::vec(any::<u32>(), 512),
        resent in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        size in 1usize..40,
    ) {
        let all = single_item_requests();
        prop_assert!(all.len() > 20 && all.len() <= keys.len());
        let expected = annotated_spans(&all);
        let mut shuffled: Vec<&Offer> = all.iter().chain(resent.iter().map(|i| i.get(&all))).collect();
        let mut keys = keys.iter().cycle();
        shuffled.sort_by_cached_key(|_| keys.next());
        let requests: Vec<Offer> = shuffled.chunks(size).flat_map(join).collect();
        prop_assert!(annotated_spans(&requests) == expected, "the order of arrival changes annotated spans");
    }
}

/// Every annotated span that a service exports, in order of bytes, if it is restarted with its journal after
/// each number of requests in `restarts`. The close reason is left out, since the last traces close by a flush.
async fn export_through_journal(requests: &[Offer], restarts: &[usize]) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    // Resends and restarts take long on a slow machine, so no trace closes by time.
    let config = storage(folder.path(), "verdict: { close: { quiet: 1h } }");
    let mut spans = Vec::new();
    let mut rest = requests;
    let mut sent = 0;
    for &end in restarts.iter().chain([&requests.len()]) {
        let (now, later) = rest.split_at(end.max(sent).min(requests.len()) - sent);
        (sent, rest) = (sent + now.len(), later);
        let process = Process::start(&config).await;
        for request in now {
            process.client().send(request).await;
        }
        if rest.is_empty() {
            process.service.flush().await;
        }
        spans.extend(process.stop().await.spans());
    }
    let plain = |mut span: opentelemetry_proto::tonic::trace::v1::Span| {
        span.attributes.retain(|kv| kv.key != "verdict.trace.close_reason");
        span.encode_to_vec()
    };
    let mut spans: Vec<Vec<u8>> = spans.into_iter().map(plain).collect();
    spans.sort();
    spans
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, ..ProptestConfig::default() })]
    #[test]
    fn restarts_with_a_journal_do_not_change_annotated_spans(
        keys in prop::collection::vec(any::<u32>(), 512),
        resent in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        size in 2usize..40,
        restarts in prop::collection::vec(any::<prop::sample::Index>(), 1..3),
    ) {
        let all = single_item_requests();
        let mut shuffled: Vec<&Offer> = all.iter().chain(resent.iter().map(|i| i.get(&all))).collect();
        let mut keys = keys.iter().cycle();
        shuffled.sort_by_cached_key(|_| keys.next());
        let requests: Vec<Offer> = shuffled.chunks(size).flat_map(join).collect();
        let mut restarts: Vec<usize> = restarts.iter().map(|at| at.index(requests.len())).collect();
        restarts.sort_unstable();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (out, expected) = runtime.block_on(async {
            (export_through_journal(&requests, &restarts).await, export_through_journal(&all, &[]).await)
        });
        prop_assert!(out == expected, "the order of arrival or a restart changes annotated spans");
    }
}
