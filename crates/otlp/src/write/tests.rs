//! Fields and requests that are written, and read again with prost.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use proptest::prelude::*;
use prost::Message;

use super::*;

fn envelope(resource: u32, scope: u32) -> Arc<Envelope> {
    // `schema_url` is field 3 of both.
    let url = |n: u32| {
        let mut out = Vec::new();
        bytes(&mut out, 3, format!("url {n}").as_bytes());
        EnvelopeFields::from(out)
    };
    Arc::new(Envelope { resource: url(resource), scope: url(scope) })
}

fn span(id: u8) -> Vec<u8> {
    Span { trace_id: vec![1; 16], span_id: vec![id; 8], name: "n".into(), ..Default::default() }
        .encode_to_vec()
}

fn write_all(envelopes: &[Arc<Envelope>], max_size: usize) -> Vec<Piece> {
    let spans: Vec<Vec<u8>> = (0..envelopes.len()).map(|i| span(i as u8 + 1)).collect();
    let items: Vec<TelemetryItem<'_>> = envelopes
        .iter()
        .zip(&spans)
        .map(|(envelope, bytes)| TelemetryItem { envelope, bytes, appended: &[] })
        .collect();
    requests(&items, max_size)
}

/// Schema URLs of resource and scope, with the ids of the spans under them.
fn shape(piece: &Piece) -> Vec<(String, String, Vec<u8>)> {
    let request = ExportTraceServiceRequest::decode(&piece.bytes[..]).unwrap();
    let mut shape = Vec::new();
    for resource in request.resource_spans {
        for scope in resource.scope_spans {
            let ids = scope.spans.iter().map(|s| s.span_id[0]).collect();
            shape.push((resource.schema_url.clone(), scope.schema_url, ids));
        }
    }
    shape
}

#[test]
fn without_items_no_request_is_written() {
    assert!(requests(&[], 1_000).is_empty());
}

#[test]
fn spans_are_grouped_by_resource_and_scope_even_when_interleaved() {
    let same_again = envelope(0, 0);
    let [a, b, c] = [envelope(0, 0), envelope(1, 0), envelope(0, 1)];
    let pieces = write_all(&[a.clone(), b, c.clone(), a, c, same_again], usize::MAX);
    let row = |r: &str, s: &str, ids: &[u8]| (format!("url {r}"), format!("url {s}"), ids.to_vec());
    assert_eq!(pieces.len(), 1);
    assert_eq!(shape(&pieces[0]), [row("0", "0", &[1, 4, 6]), row("0", "1", &[3, 5]), row("1", "0", &[2])]);
    let request = ExportTraceServiceRequest::decode(&pieces[0].bytes[..]).unwrap();
    assert_eq!(request.resource_spans.len(), 2, "each resource is written once, with all its scopes");
}

#[test]
fn requests_are_split_at_max_size_without_loss() {
    let envelopes: Vec<_> = (0..40).map(|i| envelope(i % 2, i % 3)).collect();
    for max_size in [0, 1, 50, 100, 300, 1_000, 100_000] {
        let pieces = write_all(&envelopes, max_size);
        assert!(pieces.iter().all(|p| p.bytes.len() <= max_size || p.items == 1), "{max_size}");
        assert_eq!(pieces.iter().map(|p| p.items).sum::<u64>(), 40);
        let mut ids: Vec<u8> = pieces.iter().flat_map(shape).flat_map(|(_, _, ids)| ids).collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=40).collect::<Vec<u8>>());
    }
}

#[test]
fn requests_have_their_exact_size() {
    let envelopes: Vec<_> = (0..40).map(|i| envelope(i % 2, i % 3)).collect();
    for piece in write_all(&envelopes, usize::MAX) {
        let vec = Vec::from(piece.bytes);
        assert_eq!(vec.capacity(), vec.len());
    }
}

#[test]
fn many_envelopes_are_compared_by_content() {
    let envelopes: Vec<_> = (0..200).map(|i| envelope(i % 50, 0)).collect();
    let pieces = write_all(&envelopes, usize::MAX);
    assert_eq!(shape(&pieces[0]).len(), 50);
}

#[test]
fn log_records_are_written_like_spans() {
    let mut record = Vec::new();
    bytes(&mut record, 12, b"gen_ai.evaluation.result");
    value(&mut record, 5, Scalar::Str("body"));
    attribute(&mut record, 6, "gen_ai.evaluation.name", Scalar::Str("latency"));
    let item = TelemetryItem { envelope: &envelope(1, 2), bytes: &record, appended: &[] };
    let request = ExportLogsServiceRequest::decode(&requests(&[item], usize::MAX)[0].bytes[..]).unwrap();
    let record = &request.resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!(record.event_name, "gen_ai.evaluation.result");
    assert_eq!(record.attributes[0].key, "gen_ai.evaluation.name");
    assert_eq!(record.body.as_ref().unwrap().value, Some(Value::StringValue("body".into())));
}

#[test]
fn stripping_removes_only_attributes_with_the_prefix() {
    let mut span = span(1);
    let before = span.len();
    attribute(&mut span, 9, "verdict.result", Scalar::Str("pass"));
    let first = span.len();
    attribute(&mut span, 9, "verdictless", Scalar::Int(1));
    bytes(&mut span, 5, b"verdict.name");
    bytes(&mut span, 99, b"unknown");
    let second = span.len();
    attribute(&mut span, 9, "verdict.late", Scalar::Bool(true));
    let expected = [&span[..before], &span[first..second]].concat();
    assert_eq!(strip_attributes(&span, "verdict.").unwrap(), expected);
    assert_eq!(strip_attributes(&expected, "verdict."), None);
}

proptest! {
    #[test]
    fn written_values_are_read_equally(key in ".{0,200}", s in ".{0,200}", i: i64, d in -1e300..1e300f64, b: bool,
                        strs in prop::collection::vec(".{0,150}", 0..5)) {
        let strs: Vec<&str> = strs.iter().map(String::as_str).collect();
        let mut out = span(1);
        let values = [Scalar::Str(&s), Scalar::Int(i), Scalar::Double(d), Scalar::Bool(b), Scalar::Strs(&strs)];
        for value in values {
            attribute(&mut out, SPAN_ATTRIBUTES, &key, value);
        }
        let read = Span::decode(&out[..]).unwrap();
        prop_assert!(read.attributes.iter().all(|a| a.key == key));
        let read: Vec<Value> = read.attributes.into_iter().filter_map(|a| a.value?.value).collect();
        let Value::ArrayValue(array) = &read[4] else { panic!("no array") };
        let array: Vec<_> = array.values.iter().map(|v| v.value.clone().unwrap()).collect();
        let expected: Vec<_> = strs.iter().map(|s| Value::StringValue(s.to_string())).collect();
        prop_assert_eq!(array, expected);
        prop_assert_eq!(&read[..4], &[Value::StringValue(s), Value::IntValue(i), Value::DoubleValue(d), Value::BoolValue(b)]);
    }

    #[test]
    fn computed_sizes_match_written_bytes(number in 1u32..1 << 29, value: u64, shift in 0u32..64, len in 0usize..40_000) {
        let value = value >> shift;
        let mut out = Vec::new();
        varint(&mut out, value);
        prop_assert_eq!(out.len(), varint_size(value));
        out.clear();
        bytes(&mut out, number, &vec![0; len]);
        prop_assert_eq!(out.len(), field_size(number, len));
    }
}

#[test]
fn large_resource_is_copied_for_a_bounded_share_of_the_spans() {
    for (resource, spans, name) in
        [(5 << 20, 1_000, 1), (5 << 20, 100, 200 << 10), (3_900 << 10, 300, 100 << 10)]
    {
        let mut field = Vec::new();
        bytes(&mut field, 3, &vec![b'u'; resource]);
        let envelope = Arc::new(Envelope { resource: field.into(), ..Envelope::default() });
        let span =
            Span { trace_id: vec![1; 16], span_id: vec![1; 8], name: "n".repeat(name), ..Span::default() };
        let span = span.encode_to_vec();
        let items = vec![TelemetryItem { envelope: &envelope, bytes: &span, appended: &[] }; spans];
        let pieces = requests(&items, 4 << 20);
        let received = envelope.size() + spans * span.len();
        let written: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
        println!("{written} bytes written of {received}");
        assert!(written <= 5 * received, "{written} bytes written of {received}");
        assert_eq!(pieces.iter().map(|piece| piece.items).sum::<u64>(), spans as u64);
    }
}
