//! Splitting requests that opentelemetry-proto encoded, and requests that it cannot encode.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{self as otlp, ResourceSpans, ScopeSpans};
use prost::Message;

use super::*;

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.into()))
}

fn span(trace: u8, id: u8) -> otlp::Span {
    otlp::Span {
        trace_id: vec![trace; 16],
        span_id: vec![id; 8],
        name: format!("span {id}"),
        start_time_unix_nano: 1_000 + u64::from(id),
        end_time_unix_nano: 2_000 + u64::from(id),
        attributes: vec![text("gen_ai.operation.name", "chat"), text("input.value", "ä ö ü")],
        ..Default::default()
    }
}

fn request(service: &str, spans: Vec<otlp::Span>) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![text("service.name", service)],
                ..Default::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope { name: "tracer".into(), ..Default::default() }),
                spans,
                schema_url: "https://example.org/scope".into(),
            }],
            schema_url: "https://example.org/resource".into(),
        }],
    }
}

fn split_request(request: &ExportTraceServiceRequest) -> SplitRequest {
    split(&request.encode_to_vec(), "verdict.", &Interner::default()).unwrap()
}

/// One field with wire type 2.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(number < 16 && content.len() < 128);
    [&[number << 3 | 2, content.len() as u8][..], content].concat()
}

/// A request with one raw span between two valid ones.
fn with_raw_span(raw: &[u8]) -> Vec<u8> {
    let good = [span(1, 1).encode_to_vec(), span(1, 2).encode_to_vec()].map(|s| field(2, &s));
    let mut scope_spans = good.concat();
    scope_spans.extend(field(2, raw));
    let mut out = Vec::new();
    // Lengths beyond 127 need prost's varints.
    for number in [2, 1] {
        out.clear();
        prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut out);
        prost::encoding::encode_varint(scope_spans.len() as u64, &mut out);
        out.extend_from_slice(&scope_spans);
        scope_spans.clone_from(&out);
    }
    out
}

#[test]
fn an_empty_request_has_no_spans() {
    assert!(split(&[], "verdict.", &Interner::default()).unwrap().groups.is_empty());
}

#[test]
fn spans_are_grouped_by_trace_in_order_and_copied_byte_for_byte() {
    let spans = vec![span(1, 1), span(2, 2), span(1, 3), span(3, 4), span(2, 5)];
    let split = split_request(&request("a", spans.clone()));
    let ids: Vec<(u8, Vec<u8>)> =
        split.groups.iter().map(|g| (g.trace.0[0], g.spans.iter().map(|s| s.id.0[0]).collect())).collect();
    assert_eq!(ids, [(1, vec![1, 3]), (2, vec![2, 5]), (3, vec![4])]);
    for group in &split.groups {
        for s in &group.spans {
            let original = &spans[usize::from(s.id.0[0]) - 1];
            assert_eq!(s.bytes, original.encode_to_vec());
            assert_eq!((s.start, s.end), (original.start_time_unix_nano, original.end_time_unix_nano));
        }
        assert_eq!(group.size, group.spans.iter().map(|s| s.bytes.len()).sum::<usize>());
    }
    assert_eq!(split.rejected.count, 0);
    assert_eq!(split.rejected.to_string(), "");
}

#[test]
fn many_traces_in_one_request_each_get_their_spans() {
    let spans = (0..200u8).flat_map(|i| [span(i + 1, 1), span(200 - i, 2)]).collect();
    let split = split_request(&request("a", spans));
    assert_eq!(split.groups.len(), 200);
    for group in &split.groups {
        let mut ids: Vec<u8> = group.spans.iter().map(|s| s.id.0[0]).collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2]);
    }
}

#[test]
fn spans_of_a_trace_share_one_allocation() {
    let split = split_request(&request("a", vec![span(1, 1), span(1, 2)]));
    let [a, b] = &split.groups[0].spans[..] else { panic!() };
    assert_eq!(a.bytes.as_ptr() as usize + a.bytes.len(), b.bytes.as_ptr() as usize);
}

#[test]
fn large_spans_share_allocations_with_little_waste() {
    let sizes = [300, 12_900, 1_100, 4_700, 9_300, 1_050, 290, 15_700, 5_200, 130_000, 6_100, 310, 1_020];
    let sources: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, &size)| vec![n as u8; size]).collect();
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let (mut rest, mut size, mut allocated) = (&sources[..], sizes.iter().sum::<usize>(), 0);
    while !rest.is_empty() {
        let (count, bytes) = next_allocation(rest, size);
        assert_eq!(rest[..count].iter().map(|s| s.len()).sum::<usize>(), bytes);
        assert!(count == 1 || bytes <= MAX_SHARED_BYTES, "{bytes}");
        allocated += size_class(bytes);
        (rest, size) = (&rest[count..], size - bytes);
    }
    let total: usize = sizes.iter().sum();
    assert!(allocated * 100 <= total * 106, "{allocated} for {total}");

    let template = split_request(&request("a", vec![span(1, 1)])).groups[0].spans[0].clone();
    let mut spans = vec![template; sizes.len()];
    assign_bytes(&mut spans, &sources, total);
    assert!(spans.iter().zip(&sources).all(|(span, source)| span.bytes == *source));
}

#[test]
fn size_classes_are_a_quarter_of_a_power_of_two_apart() {
    let sizes = [65, 80, 81, 1024, 1025, 1280, 8192, 8193, 17_500, 65_537];
    assert_eq!(sizes.map(size_class), [80, 80, 96, 1024, 1280, 1280, 8192, 10_240, 20_480, 81_920]);
}

#[test]
fn status_parent_remote_flag_and_earlier_verdicts_are_read() {
    let mut s = span(1, 1);
    s.parent_span_id = vec![9; 8];
    s.flags = 0x301;
    s.status = Some(otlp::Status { message: "bad".into(), code: 2 });
    s.attributes.push(text("verdict.result", "pass"));
    let split = split_request(&request("a", vec![s, span(1, 2)]));
    let [a, b] = &split.groups[0].spans[..] else { panic!() };
    assert_eq!(
        (a.parent, a.status, a.remote_parent, a.has_verdict),
        (SpanId([9; 8]), Status::Error, true, true)
    );
    assert_eq!(
        (b.parent, b.status, b.remote_parent, b.has_verdict),
        (SpanId::default(), Status::Unset, false, false)
    );
}

#[test]
fn remote_parent_needs_both_flag_bits() {
    for (flags, remote) in [(0x100, false), (0x200, false), (0x300, true)] {
        let s = otlp::Span { flags, ..span(1, 1) };
        assert_eq!(
            split_request(&request("a", vec![s])).groups[0].spans[0].remote_parent,
            remote,
            "{flags:x}"
        );
    }
}

#[test]
fn envelopes_keep_schema_urls_and_are_shared_between_requests() {
    let interner = Interner::default();
    let encoded = request("a", vec![span(1, 1), span(2, 2)]).encode_to_vec();
    let first = split(&encoded, "verdict.", &interner).unwrap();
    let second = split(&encoded, "verdict.", &interner).unwrap();
    let envelope = &first.groups[0].spans[0].envelope;
    assert!(Arc::ptr_eq(envelope, &first.groups[1].spans[0].envelope));
    assert!(Arc::ptr_eq(envelope, &second.groups[0].spans[0].envelope));
    let resource = ResourceSpans::decode(Bytes::clone(&envelope.resource)).unwrap();
    let scope = ScopeSpans::decode(Bytes::clone(&envelope.scope)).unwrap();
    let mut original = request("a", Vec::new()).resource_spans.remove(0);
    let original_scope = original.scope_spans.remove(0);
    assert_eq!((resource, scope), (original, original_scope));
}

#[test]
fn a_resource_after_its_spans_and_in_two_parts_is_read() {
    let part = |key: &str| {
        ResourceSpans {
            resource: Some(Resource { attributes: vec![text(key, "x")], ..Default::default() }),
            ..Default::default()
        }
        .encode_to_vec()
    };
    let spans = ResourceSpans {
        scope_spans: vec![ScopeSpans { spans: vec![span(1, 1)], ..Default::default() }],
        ..Default::default()
    };
    let around = [part("a"), spans.encode_to_vec(), part("b")].concat();
    let mut encoded = vec![0x0a];
    prost::encoding::encode_varint(around.len() as u64, &mut encoded);
    encoded.extend(around);
    let split = split(&encoded, "verdict.", &Interner::default()).unwrap();
    assert_eq!(**split.groups[0].spans[0].envelope.resource, [part("a"), part("b")].concat());
}

#[test]
fn invalid_span_is_rejected_alone_and_named() {
    let ids = [field(1, &[7; 16]), field(2, &[8; 8])].concat();
    let with_ids = |more: &[u8]| [&ids[..], more].concat();
    let cases: [(&str, Vec<u8>, Malformed, bool); 14] = [
        ("no ids", Vec::new(), Malformed::TraceId, false),
        ("zero trace id", [field(1, &[0; 16]), field(2, &[8; 8])].concat(), Malformed::TraceId, true),
        ("zero span id", [field(1, &[7; 16]), field(2, &[0; 8])].concat(), Malformed::SpanId, false),
        ("short trace id", field(1, &[7; 15]), Malformed::TraceId, false),
        ("long span id", [field(1, &[7; 16]), field(2, &[8; 9])].concat(), Malformed::SpanId, false),
        ("odd parent", with_ids(&field(4, &[1; 7])), Malformed::Id, true),
        ("odd link", with_ids(&field(13, &field(1, &[1; 15]))), Malformed::Id, true),
        ("name not UTF-8", with_ids(&field(5, b"\xff")), Malformed::Utf8, true),
        ("key not UTF-8", with_ids(&field(9, &field(1, b"\xc3"))), Malformed::Utf8, true),
        (
            "value not UTF-8",
            with_ids(&field(9, &field(2, &field(1, b"a\xed\xa0\x80")))),
            Malformed::Utf8,
            true,
        ),
        ("event cut off", with_ids(&field(11, &[0x0a, 5, 1])), Malformed::Type, true),
        ("attribute cut off", with_ids(&field(9, &[0x0a, 5, 1])), Malformed::CutOff, true),
        ("start as a varint", with_ids(&[0x38, 1]), Malformed::Type, true),
        ("status as a string", with_ids(&field(15, &field(3, b"2"))), Malformed::Type, true),
    ];
    for (name, raw, reason, readable) in cases {
        let split = split(&with_raw_span(&raw), "verdict.", &Interner::default()).unwrap();
        assert_eq!(split.groups[0].spans.len(), 2, "{name}");
        assert_eq!(split.rejected.count, 1, "{name}");
        let span = readable.then_some(SpanId([8; 8]));
        assert_eq!(
            split.rejected.first,
            [SpanRejection { span, part: RejectedPart::Span, reason }],
            "{name}"
        );
    }
}

#[test]
fn values_may_nest_up_to_max_depth() {
    let nested = |levels: u32| {
        let mut value = AnyValue { value: Some(any_value::Value::BoolValue(true)) }.encode_to_vec();
        for _ in 0..levels {
            for number in [1u8, 5] {
                let mut outer = vec![number << 3 | 2];
                prost::encoding::encode_varint(value.len() as u64, &mut outer);
                outer.extend(value);
                value = outer;
            }
        }
        check::any_value(&value, MAX_DEPTH)
    };
    assert_eq!(nested(MAX_DEPTH), Ok(()));
    assert_eq!(nested(MAX_DEPTH + 1), Err(Malformed::Depth));
    assert_eq!(nested(1_000), Err(Malformed::Depth));
}

#[test]
fn invalid_resource_rejects_only_its_spans() {
    let good = request("a", vec![span(1, 1)]).encode_to_vec();
    let resource = field(1, &field(1, &field(1, b"\xff")));
    let scope_spans = field(2, &field(2, &[field(1, &[7; 16]), field(2, &[8; 8])].concat()));
    let bad = field(1, &[resource, scope_spans].concat());
    let split = split(&[good, bad].concat(), "verdict.", &Interner::default()).unwrap();
    assert_eq!(split.groups.len(), 1);
    assert_eq!(
        split.rejected.to_string(),
        "rejected: span 0808080808080808: its resource: string is not UTF-8"
    );
}

#[test]
fn invalid_scope_rejects_its_spans_before_or_after_them() {
    let span = |trace: u8, id: u8| field(2, &[field(1, &[trace; 16]), field(2, &[id; 8])].concat());
    let (nameless, scope) = (field(2, &field(5, b"?")), field(1, &field(1, b"\xff")));
    let spans = [span(7, 1), span(6, 2), nameless].concat();
    let good = field(2, &span(7, 3));
    for bad in [[&scope[..], &spans].concat(), [&spans[..], &scope].concat()] {
        let encoded = [&good, &field(2, &bad), &good].map(|scope_spans| field(1, scope_spans)).concat();
        let split = split(&encoded, "verdict.", &Interner::default()).unwrap();
        let accepted: Vec<_> = split.groups.iter().map(|g| (g.trace, g.spans.len(), g.size)).collect();
        assert_eq!(accepted, [(TraceId([7; 16]), 2, 2 * (span(7, 3).len() - 2))]);
        let rejected = |span| SpanRejection { span, part: RejectedPart::Scope, reason: Malformed::Utf8 };
        let named = [Some(SpanId([1; 8])), Some(SpanId([2; 8])), None].map(rejected);
        assert_eq!((split.rejected.count, &split.rejected.first[..]), (3, &named[..]));
    }
}

#[test]
fn malformed_framing_rejects_the_request() {
    let good = request("a", vec![span(1, 1)]).encode_to_vec();
    let split = |bytes: &[u8]| split(bytes, "verdict.", &Interner::default()).map(drop);
    assert_eq!(split(&good[..good.len() - 1]), Err(Malformed::CutOff));
    assert_eq!(split(&[&good[..], &[0x0a]].concat()), Err(Malformed::Varint));
    assert_eq!(split(&[&good[..], &[0x08, 1]].concat()), Err(Malformed::Type));
    assert_eq!(split(&[&good[..], &[0x00, 1]].concat()), Err(Malformed::Tag));
    assert_eq!(split(&field(1, &[0x10, 1])), Err(Malformed::Type));
    assert_eq!(split(&field(1, &field(2, &[0x15, 1, 1, 1, 1]))), Err(Malformed::Type));
    assert_eq!(split(b"{\"resourceSpans\":[]}"), Err(Malformed::Tag));
}

#[test]
fn all_rejections_are_counted_and_the_first_are_named() {
    let spans = (0..100).map(|i| otlp::Span { trace_id: vec![], ..span(1, i + 1) }).collect();
    let split = split_request(&request("a", spans));
    assert_eq!((split.rejected.count, split.rejected.first.len()), (100, Rejected::MAX_NAMED_SPANS));
    assert!(split.rejected.to_string().ends_with("; and 92 more"), "{}", split.rejected);
    assert!(split.groups.is_empty());
}
