//! Valid and invalid JSON requests of senders, and properties of both directions.

use std::fmt::Debug;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::trace::v1::Span;
use proptest::prelude::*;
use prost::Message as _;

use super::table::{FieldDescriptor, FieldKind, MessageDescriptor};
use super::*;
use crate::arbitrary::{SplitMix64, fixed32, request};
use crate::write;

fn traces(json: &str) -> Result<ExportTraceServiceRequest, String> {
    let bytes = decode(Signal::Traces, json.as_bytes()).map_err(|e| e.to_string())?;
    Ok(ExportTraceServiceRequest::decode(bytes).unwrap())
}

/// The span in a request whose only span has the JSON members `fields`.
fn span(fields: &str) -> Result<Span, String> {
    let json = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{{fields}}}]}}]}}]}}"#);
    traces(&json).map(|mut r| r.resource_spans.remove(0).scope_spans.remove(0).spans.remove(0))
}

/// The attribute value that `json` encodes.
fn value(json: &str) -> Result<Option<Value>, String> {
    let mut span = span(&format!(r#""attributes":[{{"key":"k","value":{json}}}]"#))?;
    Ok(span.attributes.remove(0).value.and_then(|v| v.value))
}

#[test]
fn a_span_is_read_with_all_its_fields() {
    let span = span(
        r#""traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"eee19b7ec3c1b174","parentSpanId":"",
        "traceState":"a=b","flags":769,"name":"chat \u00e4 \ud83d\ude00","kind":3,
        "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":1544712661000000000,
        "droppedAttributesCount":1,"events":[{"timeUnixNano":"5","name":"e"}],
        "links":[{"traceId":"00000000000000000000000000000001","spanId":"0000000000000002"}],
        "status":{"code":2,"message":"bad"}"#,
    )
    .unwrap();
    assert_eq!(span.trace_id[..3], [0x5b, 0x8e, 0xff]);
    assert_eq!(span.span_id[7], 0x74);
    assert!(span.parent_span_id.is_empty());
    assert_eq!((span.name.as_str(), span.kind, span.flags), ("chat ä 😀", 3, 769));
    assert_eq!(span.start_time_unix_nano, 1_544_712_660_000_000_000);
    assert_eq!(span.end_time_unix_nano, 1_544_712_661_000_000_000);
    assert_eq!((span.events[0].time_unix_nano, span.events[0].name.as_str()), (5, "e"));
    assert_eq!(span.links[0].span_id[7], 2);
    assert_eq!(span.status.unwrap().code, 2);
}

#[test]
fn snake_case_names_null_and_unknown_fields_are_accepted() {
    let json = r#"{"resource_spans":[{"resource":null,"schema_url":"u","new":{"a":[1,{}]},
        "scope_spans":[{"scope":{"name":"s","newer":1},"spans":[
            {"trace_id":"00","start_time_unix_nano":7,"attributes":null,"events":[],"status":{"deprecatedCode":0}}
        ]}]}]}"#;
    let request = traces(json).unwrap();
    assert_eq!(request.resource_spans[0].schema_url, "u");
    assert!(request.resource_spans[0].resource.is_none());
    let scope_spans = &request.resource_spans[0].scope_spans[0];
    assert_eq!(scope_spans.scope.as_ref().unwrap().name, "s");
    assert_eq!(scope_spans.spans[0].start_time_unix_nano, 7);
    assert_eq!(scope_spans.spans[0].status, Some(Default::default()));
}

#[test]
fn enums_are_read_by_name_too() {
    let span = span(r#""kind":"SPAN_KIND_CLIENT","status":{"code":"STATUS_CODE_ERROR"}"#).unwrap();
    assert_eq!((span.kind, span.status.unwrap().code), (3, 2));
    assert_eq!(super::tests::span(r#""kind":"4""#).unwrap().kind, 4);
    let error = super::tests::span(r#""kind":"SPAN_KIND_CLIENTELE""#).unwrap_err();
    assert!(error.contains("spans[0].kind: expected an enum's number or name, found a string"), "{error}");
}

#[test]
fn every_type_of_value_is_read() {
    assert_eq!(value(r#"{"stringValue":"x"}"#), Ok(Some(Value::StringValue("x".into()))));
    assert_eq!(value(r#"{"boolValue":false}"#), Ok(Some(Value::BoolValue(false))));
    for json in [r#"{"intValue":"-9223372036854775808"}"#, r#"{"int_value":-9223372036854775808}"#] {
        assert_eq!(value(json), Ok(Some(Value::IntValue(i64::MIN))));
    }
    assert_eq!(value(r#"{"intValue":1e3}"#), Ok(Some(Value::IntValue(1000))));
    assert_eq!(value(r#"{"doubleValue":1}"#), Ok(Some(Value::DoubleValue(1.0))));
    assert_eq!(value(r#"{"doubleValue":"1.5"}"#), Ok(Some(Value::DoubleValue(1.5))));
    assert_eq!(value(r#"{"doubleValue":"-Infinity"}"#), Ok(Some(Value::DoubleValue(f64::NEG_INFINITY))));
    let Ok(Some(Value::DoubleValue(nan))) = value(r#"{"doubleValue":"NaN"}"#) else { panic!() };
    assert!(nan.is_nan());
    for json in [r#"{"bytesValue":"/+8="}"#, r#"{"bytesValue":"/+8"}"#, r#"{"bytesValue":"_-8"}"#] {
        assert_eq!(value(json), Ok(Some(Value::BytesValue(vec![0xff, 0xef]))), "{json}");
    }
    let Ok(Some(Value::ArrayValue(array))) =
        value(r#"{"arrayValue":{"values":[{"intValue":1},null,{},{"arrayValue":{}}]}}"#)
    else {
        panic!()
    };
    assert_eq!(array.values.len(), 4);
    let Ok(Some(Value::KvlistValue(map))) =
        value(r#"{"kvlistValue":{"values":[{"key":"a","value":{"boolValue":true}}]}}"#)
    else {
        panic!()
    };
    assert_eq!(map.values[0].key, "a");
    for none in ["null", "{}", r#"{"stringValue":null}"#] {
        assert_eq!(value(none), Ok(None), "{none}");
    }
}

#[test]
fn ids_of_base64_length_are_read_as_base64() {
    let span =
        span(r#""traceId":"W47/95gDgQPSabYzgT/GDA==","spanId":"7uGbfsPBsXQ","parentSpanId":"7uGbfsPBsXQ=""#);
    let span = span.unwrap();
    assert_eq!((span.trace_id[0], span.trace_id.len()), (0x5b, 16));
    assert_eq!((span.span_id[0], span.span_id == span.parent_span_id), (0xee, true));
}

#[test]
fn id_of_wrong_length_is_passed_on_to_validation() {
    assert_eq!(span(r#""traceId":"abcd""#).unwrap().trace_id, [0xab, 0xcd]);
    for id in ["abc", "zz", "5b8efff798038103d269b633813fc60g", "5b8efff798038103d269b633813fc60ä"] {
        let error = span(&format!(r#""traceId":"{id}""#)).unwrap_err();
        assert!(error.contains("spans[0].traceId: expected a trace id as 32 hex digits"), "{error}");
    }
}

#[test]
fn empty_requests_are_valid() {
    for json in [
        "{}",
        " {\n} ",
        r#"{"resourceSpans":[]}"#,
        r#"{"resourceSpans":null}"#,
        r#"{"resource_spans":[],"x":1}"#,
    ] {
        assert_eq!(traces(json), Ok(ExportTraceServiceRequest::default()), "{json}");
    }
    assert!(traces(r#"{"resourceSpans":[{}]}"#).is_ok());
    assert!(traces(r#"{"resourceSpans":[{"resource":{"attributes":[]}}]}"#).is_ok());
}

#[test]
fn unrecognised_objects_are_errors_not_empty_requests() {
    let scope = |inner: &str| format!(r#"{{"resourceSpans":[{{"scopeSpans":[{inner}]}}]}}"#);
    let cases = [
        (
            r#"{"spans":[{"traceId":"00"}]}"#.into(),
            "request: found `spans` but no `resourceSpans` (ExportTraceServiceRequest)",
        ),
        (r#"{"resourceLogs":[]}"#.into(), "request: found `resourceLogs` but no `resourceSpans`"),
        (r#"{"ResourceSpans":[]}"#.into(), "request: found `ResourceSpans` but no `resourceSpans`"),
        ("[]".into(), "request: invalid type: sequence, expected an object with `resourceSpans`"),
        ("null".into(), "request: invalid type: null, expected an object"),
        ("\"x\"".into(), "request: invalid type: string"),
        (String::new(), "request: EOF while parsing a value"),
        ("{} {}".into(), "request: trailing characters"),
        (r#"{"resourceSpans":{}}"#.into(), "resourceSpans: expected an array, found an object"),
        (r#"{"resourceSpans":"#.into(), "resourceSpans: EOF while parsing"),
        (r#"{"resourceSpans":[1]}"#.into(), "resourceSpans[0]: expected an object, found a number"),
        (
            r#"{"resourceSpans":[{"resource":{},"instrumentationLibrarySpans":[{}]}]}"#.into(),
            "resourceSpans[0]: found `instrumentationLibrarySpans` but no `scopeSpans` (ResourceSpans)",
        ),
        (scope(r#"{"span":[]}"#), "resourceSpans[0].scopeSpans[0]: found `span` but no `spans` (ScopeSpans)"),
        (scope(r#"{"spans":[{},{"id":1}]}"#), "resourceSpans[0].scopeSpans[0].spans[1]: found `id` but no"),
        (scope(r#"{"spans":[{"name":5}]}"#), "spans[0].name: expected a string, found a number at line 1"),
        (scope(r#"{"spans":[{"name":["a"]}]}"#), "spans[0].name: expected a string, found an array"),
        (scope(r#"{"spans":[{"startTimeUnixNano":-1}]}"#), "expected an unsigned 64-bit integer"),
        (scope(r#"{"spans":[{"startTimeUnixNano":1.5}]}"#), "expected an unsigned 64-bit integer"),
        (
            scope(r#"{"spans":[{"startTimeUnixNano":true}]}"#),
            "expected an unsigned 64-bit integer, found a boolean",
        ),
        (scope(r#"{"spans":[{"flags":4294967296}]}"#), "spans[0].flags: expected an unsigned 32-bit integer"),
        (
            scope(r#"{"spans":[{"attributes":{"a":1}}]}"#),
            "spans[0].attributes: expected an array, found an object",
        ),
        (
            scope(r#"{"spans":[{"attributes":[{"key":"a","value":"b"}]}]}"#),
            "spans[0].attributes[0].value: expected an object, found a string",
        ),
        (
            scope(r#"{"spans":[{"attributes":[{"key":"a","value":{"strValue":"b"}}]}]}"#),
            "spans[0].attributes[0].value: found `strValue` but no `stringValue` or",
        ),
    ];
    for (json, error) in cases {
        let message = traces(&json).unwrap_err();
        assert!(message.contains(error), "{json}\n{message}\n{error}");
    }
}

#[test]
fn quoted_unknown_names_are_truncated() {
    let error = traces(&format!(r#"{{"{}":1}}"#, "ä".repeat(10_000))).unwrap_err();
    assert!(error.len() < 300, "{error}");
}

#[test]
fn excessive_depth_is_an_error() {
    let deep = |n: usize| {
        let open = r#"{"arrayValue":{"values":["#.repeat(n);
        value(&format!("{open}{}", "]}}".repeat(n)))
    };
    assert!(deep(30).is_ok());
    assert!(deep(100_000).unwrap_err().contains("recursion limit"));
    // The same depth within an unknown field is skipped.
    let unknown = format!(r#"{{"resourceSpans":[],"x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(traces(&unknown).is_ok());
    let mut bytes = Vec::new();
    for _ in 0..2_000 {
        for number in [1, 5] {
            let inner = std::mem::take(&mut bytes);
            write::bytes(&mut bytes, number, &inner);
        }
    }
    for number in [2, 9, 2, 2, 1] {
        let inner = std::mem::take(&mut bytes);
        write::bytes(&mut bytes, number, &inner);
    }
    assert_eq!(encode(Signal::Traces, &bytes), Err(Malformed::Depth));
}

#[test]
fn metrics_are_read_with_packed_and_optional_fields() {
    let json = br#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
        {"name":"h","histogram":{"aggregationTemporality":"AGGREGATION_TEMPORALITY_DELTA","dataPoints":[
            {"count":"3","sum":0,"bucketCounts":["1","2",0],"explicitBounds":[0.5,"Infinity"],"min":-1}]}},
        {"name":"e","exponentialHistogram":{"dataPoints":[{"scale":-3,"positive":{"offset":-1,"bucketCounts":[300]}}]}},
        {"name":"g","gauge":{"dataPoints":[{"asInt":"-5","exemplars":[{"asDouble":1,"traceId":""}]}]}}
    ]}]}]}"#;
    let bytes = decode(Signal::Metrics, json).unwrap();
    let request = ExportMetricsServiceRequest::decode(bytes).unwrap();
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let Some(Data::Histogram(h)) = &metrics[0].data else { panic!() };
    let point = &h.data_points[0];
    assert_eq!((h.aggregation_temporality, point.count, point.sum, point.max), (1, 3, Some(0.0), None));
    assert_eq!(
        (&point.bucket_counts[..], &point.explicit_bounds[..]),
        (&[1, 2, 0][..], &[0.5, f64::INFINITY][..])
    );
    let Some(Data::ExponentialHistogram(e)) = &metrics[1].data else { panic!() };
    let buckets = e.data_points[0].positive.as_ref().unwrap();
    assert_eq!((e.data_points[0].scale, buckets.offset, &buckets.bucket_counts[..]), (-3, -1, &[300][..]));
    let Some(Data::Gauge(g)) = &metrics[2].data else { panic!() };
    assert_eq!(g.data_points[0].value, Some(number_data_point::Value::AsInt(-5)));
}

#[test]
fn written_json_has_hex_ids_numbers_for_enums_and_strings_for_long_integers() {
    let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","kind":2,"startTimeUnixNano":"7","attributes":[{"key":"a\"\n","value":{"intValue":"-1"}},{"key":"b","value":{"doubleValue":1.0}},{"key":"c","value":{"doubleValue":"NaN"}},{"key":"d","value":{"bytesValue":"/+8="}}],"flags":256}]}]}]}"#;
    let bytes = decode(Signal::Traces, json.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(encode(Signal::Traces, &bytes).unwrap()).unwrap(), json);
}

#[test]
fn appended_attributes_are_written_in_one_array() {
    let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"a"}],"events":[{"name":"e"}]}]}]}]}"#;
    let mut span = Vec::new();
    write::bytes(&mut span, 9, &[0x0a, 1, b'a']);
    write::bytes(&mut span, 11, &[0x12, 1, b'e']);
    write::attribute(&mut span, 9, "verdict.late", write::Scalar::Bool(true));
    for number in [2, 2, 1] {
        let inner = std::mem::take(&mut span);
        write::bytes(&mut span, number, &inner);
    }
    let expected =
        json.replace(r#"{"key":"a"}"#, r#"{"key":"a"},{"key":"verdict.late","value":{"boolValue":true}}"#);
    assert_eq!(String::from_utf8(encode(Signal::Traces, &span).unwrap()).unwrap(), expected);
}

/// A message with any of its fields, in any order, written with the table alone.
fn arbitrary(message: &MessageDescriptor, depth: u32, rng: &mut SplitMix64) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.next_below(2 * message.fields.len() as u64 + 1) {
        let field = &message.fields[rng.next_below(message.fields.len() as u64) as usize];
        if depth > 0 || !matches!(field.kind, FieldKind::Message(_)) {
            arbitrary_field(field, depth, rng, &mut out);
        }
    }
    out
}

fn arbitrary_field(field: &FieldDescriptor, depth: u32, rng: &mut SplitMix64, out: &mut Vec<u8>) {
    let big = rng.next_below(u64::MAX) >> rng.next_below(64);
    let double = [0.0, -0.0, 1.5, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, big as f64];
    let double = double[rng.next_below(8) as usize].to_bits();
    let bytes: Vec<u8> = (0..rng.next_below(200)).map(|_| rng.next_below(256) as u8).collect();
    match field.kind {
        FieldKind::Message(message) => write::bytes(out, field.number, &arbitrary(message, depth - 1, rng)),
        FieldKind::String => {
            let text: String = bytes.iter().map(|&b| char::from(b)).collect();
            write::bytes(out, field.number, text.as_bytes());
        }
        FieldKind::Bytes => write::bytes(out, field.number, &bytes),
        FieldKind::Id(len) => {
            write::bytes(out, field.number, &vec![big as u8; if rng.next_below(5) == 0 { 0 } else { len }])
        }
        FieldKind::Bool => write::integer(out, field.number, big & 1),
        FieldKind::Double => write::fixed64(out, field.number, double),
        FieldKind::Fixed64 | FieldKind::Sfixed64 => write::fixed64(out, field.number, big),
        FieldKind::Fixed32 => fixed32(out, field.number, big as u32),
        FieldKind::Int64 | FieldKind::Uint64 => write::integer(out, field.number, big),
        FieldKind::Int32 | FieldKind::Enum(_) => {
            write::integer(out, field.number, i64::from(big as i32) as u64)
        }
        FieldKind::Uint32 | FieldKind::Sint32 => write::integer(out, field.number, u64::from(big as u32)),
    }
}

/// Encodes an arbitrary request as JSON and decodes it again. Both are compared as the debug text of a full decoder,
/// in which NaN equals NaN.
fn round_trip<M: prost::Message + Default + Debug>(signal: Signal, seed: u64) {
    let bytes = arbitrary(request_of(signal), 8, &mut SplitMix64(seed));
    let before = M::decode(&bytes[..]).unwrap();
    let json = encode(signal, &bytes).unwrap();
    assert!(!json.contains(&b'\n'));
    let back = decode(signal, &json).unwrap_or_else(|e| panic!("{e}\n{}", String::from_utf8_lossy(&json)));
    let after = M::decode(back).unwrap();
    assert_eq!(format!("{after:?}"), format!("{before:?}"), "{}", String::from_utf8_lossy(&json));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn json_round_trip_is_lossless(seed: u64) {
        round_trip::<ExportTraceServiceRequest>(Signal::Traces, seed);
        round_trip::<ExportLogsServiceRequest>(Signal::Logs, seed);
        round_trip::<ExportMetricsServiceRequest>(Signal::Metrics, seed);
    }

    #[test]
    fn json_of_opentelemetry_proto_is_decoded_equally(request in request()) {
        let json = serde_json::to_vec(&request).unwrap();
        // The `Serialize` implementations of opentelemetry-proto write infinities as null.
        prop_assume!(!format!("{request:?}").contains("inf"));
        let bytes = decode(Signal::Traces, &json).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(ExportTraceServiceRequest::decode(bytes).unwrap(), request);
    }

    #[test]
    fn opentelemetry_proto_decodes_encoded_json_equally(request in request()) {
        let json = encode(Signal::Traces, &request.encode_to_vec()).unwrap();
        if let Ok(read) = serde_json::from_slice::<ExportTraceServiceRequest>(&json) {
            prop_assert_eq!(read, request);
        }
    }

    /// Truncated or damaged JSON is an error, or decodes to a request that a full decoder accepts; it never panics.
    #[test]
    fn damaged_json_never_panics(request in request(), cut: prop::sample::Index, damaged: prop::sample::Index, byte: u8) {
        let mut json = encode(Signal::Traces, &request.encode_to_vec()).unwrap();
        let cut = cut.index(json.len());
        prop_assert!(decode(Signal::Traces, &json[..cut]).is_err());
        let damaged = damaged.index(json.len());
        json[damaged] = byte;
        if let Ok(bytes) = decode(Signal::Traces, &json) {
            prop_assert!(ExportTraceServiceRequest::decode(bytes).is_ok());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(garbage in prop::collection::vec(any::<u8>(), 0..300)) {
        for signal in [Signal::Traces, Signal::Logs, Signal::Metrics] {
            let _ = decode(signal, &garbage);
            if let Ok(json) = encode(signal, &garbage) {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
            }
        }
    }
}

/// Real requests: captures of ten frameworks, and traces published as OTLP/JSON.
#[test]
fn captured_requests_survive_json() {
    let Some(cases) = std::env::var_os("OTEL_VERDICT_CASES") else {
        println!("skipped: OTEL_VERDICT_CASES is not set");
        return;
    };
    let cases = std::path::Path::new(&cases);
    let mut read = 0;
    for case in std::fs::read_dir(cases.join("frameworks")).unwrap() {
        for file in std::fs::read_dir(case.unwrap().path()).into_iter().flatten() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".pb") && !name.starts_with("logs") {
                let bytes = std::fs::read(&path).unwrap();
                let back = decode(Signal::Traces, &encode(Signal::Traces, &bytes).unwrap()).unwrap();
                assert_eq!(
                    ExportTraceServiceRequest::decode(back).unwrap(),
                    ExportTraceServiceRequest::decode(&bytes[..]).unwrap(),
                    "{}",
                    path.display()
                );
                read += 1;
            }
        }
    }
    assert!(read > 0);
    for file in std::fs::read_dir(cases.join("trail/gaia/traces")).unwrap() {
        let path = file.unwrap().path();
        let bytes = decode(Signal::Traces, &std::fs::read(&path).unwrap()).unwrap();
        assert!(!bytes.is_empty(), "{}", path.display());
    }
}
