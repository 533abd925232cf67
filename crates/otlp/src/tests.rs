//! Properties of splitting and writing together, on arbitrary requests: every span is preserved.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;

use super::arbitrary::{MessageType, SplitMix64, request, with_unknown_fields};
use super::write::{Scalar, TelemetryItem, attribute, requests};
use super::{Fields, Interner, Payload, split};

/// Splits the request and writes every trace as requests of its own, with `appended` after each span.
fn split_and_write(encoded: &[u8], appended: &[u8], max_size: usize) -> Vec<u8> {
    let split = split(encoded, "verdict.", &Interner::default()).unwrap();
    assert_eq!(split.rejected.count, 0, "{}", split.rejected);
    let mut out = Vec::new();
    for group in &split.groups {
        let items: Vec<TelemetryItem<'_>> = group
            .spans
            .iter()
            .map(|span| TelemetryItem { envelope: &span.envelope, bytes: &span.bytes, appended })
            .collect();
        for piece in requests(&items, max_size) {
            assert!(piece.bytes.len() <= max_size || piece.items == 1);
            out.extend_from_slice(&piece.bytes);
        }
    }
    out
}

/// The bytes of all fields except `number`, and the contents of the fields `number`.
fn partition_fields(encoded: &[u8], number: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut others, mut contents) = (Vec::new(), Vec::new());
    for field in Fields::new(encoded) {
        let field = field.unwrap();
        match field.payload {
            Payload::Bytes(b) if field.number == number => contents.push(b.to_vec()),
            _ => others.extend_from_slice(&encoded[field.start..field.end]),
        }
    }
    (others, contents)
}

/// Spans by trace, resource and scope, in order. Independent of the tested code except for [`Fields`].
type Spans = BTreeMap<(Vec<u8>, Vec<u8>, Vec<u8>), Vec<Vec<u8>>>;

fn spans_by_envelope(encoded: &[u8]) -> Spans {
    let mut all = Spans::new();
    for resource_spans in partition_fields(encoded, 1).1 {
        let (resource, scopes) = partition_fields(&resource_spans, 2);
        for scope_spans in scopes {
            let (scope, spans) = partition_fields(&scope_spans, 2);
            for span in spans {
                let trace = Span::decode(&span[..]).unwrap().trace_id;
                all.entry((trace, resource.clone(), scope.clone())).or_default().push(span);
            }
        }
    }
    all
}

/// The same for decoded messages: each span with its resource and scope.
fn decoded(encoded: &[u8]) -> Vec<(ResourceSpans, ScopeSpans, Span)> {
    let mut all = Vec::new();
    for mut outer in ExportTraceServiceRequest::decode(encoded).unwrap().resource_spans {
        for mut inner in std::mem::take(&mut outer.scope_spans) {
            for span in std::mem::take(&mut inner.spans) {
                all.push((outer.clone(), inner.clone(), span));
            }
        }
    }
    all
}

fn appended() -> Vec<u8> {
    let mut out = Vec::new();
    attribute(&mut out, 9, "verdict.result", Scalar::Str("fail"));
    attribute(&mut out, 9, "verdict.latency.value", Scalar::Double(1.5));
    attribute(&mut out, 9, "verdict.late", Scalar::Bool(true));
    attribute(&mut out, 9, "verdict.trace.revision", Scalar::Int(-1));
    attribute(&mut out, 9, "verdict.failed_metrics", Scalar::Strs(&["a", "", "latency"]));
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// No byte of any span is changed, moved to another resource or scope, or lost, including unknown
    /// fields at every level; the appended fields follow.
    #[test]
    fn split_and_write_preserve_every_byte(
        request in request(), seed: u64, max_size in 0usize..4_000,
    ) {
        let encoded = with_unknown_fields(&request.encode_to_vec(), MessageType::Request, &mut SplitMix64(seed));
        let out = split_and_write(&encoded, &appended(), max_size);
        let mut expected = spans_by_envelope(&encoded);
        for span in expected.values_mut().flatten() {
            span.extend(appended());
        }
        prop_assert_eq!(spans_by_envelope(&out), expected);
    }

    /// A full decoder reads the same fields, and the appended attributes after those of the span.
    #[test]
    fn full_decoder_agrees_and_sees_appended_fields(request in request()) {
        let out = split_and_write(&request.encode_to_vec(), &appended(), usize::MAX);
        let mut expected = decoded(&request.encode_to_vec());
        let mut actual = decoded(&out);
        for (_, _, span) in &mut actual {
            let ours = span.attributes.split_off(span.attributes.len() - 5);
            let keys: Vec<&str> = ours.iter().map(|a| a.key.as_str()).collect();
            prop_assert_eq!(keys[..2].to_vec(), ["verdict.result", "verdict.latency.value"]);
        }
        let by_id = |a: &(ResourceSpans, ScopeSpans, Span), b: &(_, _, Span)| a.2.span_id.cmp(&b.2.span_id);
        expected.sort_by(by_id);
        actual.sort_by(by_id);
        prop_assert_eq!(actual, expected);
    }

    /// A request truncated at any byte is malformed or has fewer spans; nothing panics.
    #[test]
    fn truncated_requests_are_errors(request in request(), cut: prop::sample::Index) {
        let encoded = request.encode_to_vec();
        let cut = &encoded[..cut.index(encoded.len() + 1)];
        if let Ok(split) = split(cut, "verdict.", &Interner::default()) {
            prop_assert_eq!(split.rejected.count, 0);
            prop_assert!(ExportTraceServiceRequest::decode(cut).is_ok());
        }
    }

    /// A full decoder accepts every span that is accepted from a damaged request, so that no destination
    /// refuses a batch because of an invalid span.
    #[test]
    fn accepted_spans_of_a_damaged_request_decode(
        request in request(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut encoded = request.encode_to_vec();
        prop_assume!(!encoded.is_empty());
        for (offset, byte) in damage {
            let offset = offset.index(encoded.len());
            encoded[offset] = byte;
        }
        if let Ok(split) = split(&encoded, "verdict.", &Interner::default()) {
            for group in &split.groups {
                for span in &group.spans {
                    let item = TelemetryItem { envelope: &span.envelope, bytes: &span.bytes, appended: &appended() };
                    let written = &requests(&[item], usize::MAX)[0];
                    let decoded = ExportTraceServiceRequest::decode(&written.bytes[..]);
                    prop_assert!(decoded.is_ok(), "{:?}", decoded);
                }
            }
        }
    }

    /// No input panics.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = split(&bytes, "verdict.", &Interner::default());
        let _ = super::write::strip_attributes(&bytes, "verdict.");
        for field in Fields::new(&bytes).map_while(Result::ok) {
            prop_assert!(field.end <= bytes.len());
        }
        super::Attributes::new(&bytes, 9).for_each(drop);
        let value = super::Value::read(&bytes);
        value.items().for_each(drop);
        value.entries().for_each(drop);
    }

    /// The fields that assembling needs are read as by a full decoder.
    #[test]
    fn partial_reads_agree_with_a_full_decoder(request in request()) {
        let split = split(&request.encode_to_vec(), "verdict.", &Interner::default()).unwrap();
        for group in &split.groups {
            for span in &group.spans {
                let full = Span::decode(&span.bytes[..]).unwrap();
                prop_assert_eq!(&group.trace.0[..], &full.trace_id[..]);
                prop_assert_eq!(&span.id.0[..], &full.span_id[..]);
                let parent: &[u8] = if span.parent.is_zero() { &[] } else { &span.parent.0 };
                prop_assert_eq!(parent, &full.parent_span_id[..]);
                prop_assert_eq!((span.start, span.end), (full.start_time_unix_nano, full.end_time_unix_nano));
                let code = full.status.map_or(0, |s| s.code);
                prop_assert_eq!(span.status as i32, if (0..3).contains(&code) { code } else { 0 });
                let verdict = full.attributes.iter().any(|a| a.key.starts_with("verdict."));
                prop_assert_eq!(span.has_verdict, verdict);
            }
        }
    }
}

/// Captured requests of real instrumentations, if `OTEL_VERDICT_CASES` names them.
#[test]
fn captured_requests_pass_through_unchanged() {
    let Some(cases) = std::env::var_os("OTEL_VERDICT_CASES") else {
        println!("skipped: OTEL_VERDICT_CASES is not set");
        return;
    };
    let mut requests = 0;
    for case in std::fs::read_dir(std::path::Path::new(&cases).join("frameworks")).unwrap() {
        let case = case.unwrap().path();
        for file in std::fs::read_dir(&case).into_iter().flatten() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.ends_with(".pb") || name.starts_with("logs") {
                continue;
            }
            let encoded = std::fs::read(&path).unwrap();
            let out = split_and_write(&encoded, &[], usize::MAX);
            assert_eq!(spans_by_envelope(&out), spans_by_envelope(&encoded), "{}", path.display());
            requests += 1;
        }
    }
    assert!(requests > 0);
}
