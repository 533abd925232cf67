//! Tests of reading recordings: every format is detected from its content.

use std::io::Write;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Gauge, Metric, ResourceMetrics, ScopeMetrics, metric};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

use super::*;

fn spans() -> Vec<u8> {
    let span = Span { trace_id: vec![1; 16], span_id: vec![2; 8], name: "s".into(), ..Default::default() };
    let scope = ScopeSpans { spans: vec![span], ..Default::default() };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { scope_spans: vec![scope], ..Default::default() }],
    }
    .encode_to_vec()
}

fn logs() -> Vec<u8> {
    let body = AnyValue { value: Some(any_value::Value::StringValue("hello".into())) };
    let record = LogRecord { observed_time_unix_nano: 5, body: Some(body), ..Default::default() };
    let scope = ScopeLogs { log_records: vec![record], ..Default::default() };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { scope_logs: vec![scope], ..Default::default() }],
    }
    .encode_to_vec()
}

fn metrics() -> Vec<u8> {
    let metric = Metric {
        name: "sixteen.letters_".into(),
        data: Some(metric::Data::Gauge(Gauge::default())),
        ..Default::default()
    };
    let scope = ScopeMetrics { metrics: vec![metric], ..Default::default() };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics { scope_metrics: vec![scope], ..Default::default() }],
    }
    .encode_to_vec()
}

const JSON_SPAN: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0101010101010101010101010101010f","spanId":"0202020202020202","name":"a } \" { b"}]}]}]}"#;
const JSON_LOG: &str = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"5"}]}]}]}"#;

/// A request, and the offset of the byte after it.
#[derive(Debug)]
struct ReadRequest {
    offer: Offer,
    end: u64,
}

fn read_bytes(name: &str, content: &[u8]) -> Result<Vec<ReadRequest>, Unreadable> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    let mut requests = Vec::new();
    read(&InputFile { path: Some(path), from_folder: false }, &ProgressBar::hidden(), &mut |recorded| {
        requests.push(ReadRequest { offer: recorded.offer, end: recorded.end });
        Ok(())
    })?;
    Ok(requests)
}

/// The ids of traces that the first pass finds, with their offsets.
fn index_bytes(name: &str, content: &[u8]) -> Vec<(u8, u64)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    let mut trace_offsets = Vec::new();
    index(
        &InputFile { path: Some(path), from_folder: false },
        &ProgressBar::hidden(),
        &mut |trace, offset| {
            trace_offsets.push((trace.0[15], offset));
        },
    );
    trace_offsets
}

fn to_frames(bodies: &[Vec<u8>]) -> Vec<u8> {
    let frame = |body: &Vec<u8>| [&u32::try_from(body.len()).unwrap().to_be_bytes(), &body[..]].concat();
    bodies.iter().flat_map(frame).collect()
}

fn signals(requests: &[ReadRequest]) -> Vec<Signal> {
    requests.iter().map(|r| r.offer.signal).collect()
}

#[test]
fn the_signal_is_detected_from_the_records() {
    for (bytes, signal) in [(spans(), Signal::Traces), (logs(), Signal::Logs), (metrics(), Signal::Metrics)] {
        let requests = read_bytes("request.bin", &bytes).unwrap();
        assert_eq!(signals(&requests), [signal]);
        assert_eq!(requests[0].offer.body, bytes);
    }
}

#[test]
fn readable_trace_id_is_no_name_of_a_metric() {
    let span = Span {
        trace_id: b"0123456789abcdef".to_vec(),
        span_id: vec![2; 8],
        name: "s".into(),
        kind: 1,
        ..Default::default()
    };
    let timed = Span { kind: 0, start_time_unix_nano: 5, ..span.clone() };
    for span in [span, timed] {
        let scope = ScopeSpans { spans: vec![span], ..Default::default() };
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { scope_spans: vec![scope], ..Default::default() }],
        };
        let requests = read_bytes("request.bin", &request.encode_to_vec()).unwrap();
        assert_eq!(signals(&requests), [Signal::Traces]);
        assert_eq!(index_bytes("request.bin", &request.encode_to_vec()).len(), 1);
    }
}

#[test]
fn json_is_read_as_one_document_as_lines_as_an_array_and_pretty_printed() {
    let pretty = serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(JSON_SPAN).unwrap());
    for text in [
        format!("{JSON_SPAN}\n{JSON_LOG}\n"),
        format!("\n\n {JSON_SPAN}{JSON_LOG}"),
        format!("[{JSON_SPAN},\n{JSON_LOG}]"),
        format!("{}\n{JSON_LOG}", pretty.unwrap()),
        format!("\u{feff}{JSON_SPAN}\r\n{JSON_LOG}\r\n"),
    ] {
        let requests = read_bytes("x.json", text.as_bytes()).unwrap();
        assert_eq!(signals(&requests), [Signal::Traces, Signal::Logs], "{text}");
    }
}

#[test]
fn compressed_files_and_the_collectors_frames_are_read() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(JSON_SPAN.as_bytes()).unwrap();
    assert_eq!(read_bytes("x.gz", &gzip.finish().unwrap()).unwrap().len(), 1);
    let zstd = zstd::encode_all(spans().as_slice(), 1).unwrap();
    assert_eq!(read_bytes("x.zst", &zstd).unwrap().len(), 1);
    let mut frames = to_frames(&[spans(), logs()]);
    assert_eq!(signals(&read_bytes("x.bin", &frames).unwrap()), [Signal::Traces, Signal::Logs]);
    frames.pop();
    assert!(read_bytes("x.bin", &frames).unwrap_err().to_string().contains("message 2 is cut off"));
}

#[test]
fn errors_name_the_location() {
    let error_for = |content: &[u8]| read_bytes("bad.json", content).unwrap_err().to_string();
    assert!(error_for(b"").contains("bad.json: empty"));
    assert!(error_for(b"{}").contains("not OTLP"));
    assert!(error_for(b"{\"resourceSpans\": [").contains("line 1: the document that starts here is cut off"));
    // The writer was killed: the documents before the last one are read.
    let cut = format!("{JSON_SPAN}\n{{\"resourceSpans\": [");
    assert_eq!(read_bytes("cut.jsonl", cut.as_bytes()).unwrap().len(), 1);
    assert!(error_for(format!("{JSON_SPAN}\nnonsense").as_bytes()).contains("line 2: not a JSON object"));
    assert!(error_for(b"{\"resourceSpans\": nope}").contains("line 1: not JSON"));
    assert!(error_for(b"just some text").contains("not an OTLP request"));
    assert!(error_for(&spans()[..20]).contains("not an OTLP request"));
}

#[test]
fn folders_are_read_in_order_and_other_json_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    write("b/002.pb", &spans());
    write("b/001.pb", &spans());
    write("a.json", JSON_LOG.as_bytes());
    write("truth.json", br#"{"expected": "pass"}"#);
    write("README.md", b"not telemetry");
    write(".hidden.json", b"{");
    let mut names = Vec::new();
    for input in files(&[folder.path().to_owned()]).unwrap() {
        read(&input, &ProgressBar::hidden(), &mut |r| {
            names.push(r.location.replace(folder.path().to_str().unwrap(), ""));
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(names, ["/a.json:1", "/b/001.pb", "/b/002.pb"]);
    assert!(files(&[folder.path().join("nowhere")]).is_err());
    let empty = tempfile::tempdir().unwrap();
    assert!(files(&[empty.path().to_owned()]).unwrap_err().to_string().contains("no file here"));
}

#[test]
fn the_first_pass_finds_every_trace_before_the_end_of_its_request() {
    let json = JSON_SPAN.to_owned();
    let pretty =
        serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(JSON_SPAN).unwrap()).unwrap();
    // Longer than one read, so that keys are cut off at its end.
    let long = format!("{json}\n{}", "{\"resourceSpans\":[]}\n".repeat(20_000)) + &json.repeat(3_000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(long.as_bytes()).unwrap();
    let contents = [
        ("one.pb", spans(), 1),
        ("frames.bin", to_frames(&[spans(), logs(), spans()]), 2),
        ("lines.jsonl", format!("{json}\n{JSON_LOG}\n{json}\n").into_bytes(), 2),
        ("after-space.json", format!("\n {json}{json}").into_bytes(), 2),
        ("pretty.json", format!("{pretty}\n{pretty}").into_bytes(), 2),
        ("long.jsonl", long.clone().into_bytes(), 3_001),
        ("long.gz", gzip.finish().unwrap(), 3_001),
    ];
    for (name, content, count) in contents {
        let requests = read_bytes(name, &content).unwrap();
        let trace_offsets = index_bytes(name, &content);
        assert_eq!(trace_offsets.len(), count, "{name}");
        // Every occurrence is inside one of the requests with spans.
        let mut ends = requests
            .iter()
            .filter(|request| request.offer.signal == Signal::Traces)
            .filter(|request| !request.offer.body.is_empty());
        let mut previous_end = 0;
        for (_, offset) in trace_offsets {
            let end = ends.next().unwrap().end;
            assert!(
                previous_end <= offset && offset < end,
                "{name}: {offset} is not in {previous_end} to {end}"
            );
            previous_end = end;
        }
    }
}

#[test]
fn only_the_last_request_of_a_document_ends_it() {
    let both = format!("{},{}", JSON_SPAN.trim_end_matches('}'), &JSON_LOG[1..]);
    let requests = read_bytes("both.json", format!("{JSON_SPAN}\n{both}").as_bytes()).unwrap();
    assert_eq!(signals(&requests), [Signal::Traces, Signal::Traces, Signal::Logs]);
    let (start, end) = (JSON_SPAN.len() as u64, (JSON_SPAN.len() + 1 + both.len()) as u64);
    assert_eq!(requests.iter().map(|request| request.end).collect::<Vec<_>>(), [start, start + 1, end]);
}

#[test]
fn unreadable_content_ends_the_first_pass() {
    for content in [&b""[..], b"just some text", &to_frames(&[spans()])[..20], b"{\"resourceSpans\": nope}"] {
        assert_eq!(index_bytes("bad.bin", content), []);
    }
}
