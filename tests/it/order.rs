//! Within one closure the order of arrival shows nowhere: whatever way a capture's spans and log
//! records come (split into requests, shuffled, some twice), the annotated spans are the same.

use std::path::Path;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::Evaluation;
use otel_verdict::receive::{Offer, Signal};
use proptest::prelude::*;
use prost::Message as _;

use crate::frameworks::{case, spans_of};

/// Captures of three frameworks; one of them with content in logs.
const CAPTURES: [&str; 3] = ["vercelai-e", "strands-c", "googleadk-logs-a"];

/// Every span and record of the captures, each in a request of its own.
fn one_by_one() -> Vec<Offer> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/frameworks");
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
fn annotated<'a>(requests: impl IntoIterator<Item = &'a Offer>) -> Vec<Vec<u8>> {
    let mut evaluation = Evaluation::new(&Config::default(), 1).unwrap();
    for offer in requests {
        evaluation.add(offer).unwrap();
    }
    let mut spans = Vec::new();
    evaluation.finish(|trace| {
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
    fn however_spans_and_records_arrive_the_annotated_spans_are_the_same(
        keys in prop::collection::vec(any::<u32>(), 512),
        twice in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        size in 1usize..40,
    ) {
        let all = one_by_one();
        prop_assert!(all.len() > 20 && all.len() <= keys.len());
        let expected = annotated(&all);
        let mut dealt: Vec<&Offer> = all.iter().chain(twice.iter().map(|i| i.get(&all))).collect();
        let mut keys = keys.iter().cycle();
        dealt.sort_by_cached_key(|_| keys.next());
        let requests: Vec<Offer> = dealt.chunks(size).flat_map(join).collect();
        prop_assert!(annotated(&requests) == expected, "the order of arrival shows");
    }
}
