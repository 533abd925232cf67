//! Tests rendered traces: of hand-written annotations, and of arbitrary bytes that a sender may produce.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;
use verdict_eval::annotation::TraceHeader;
use verdict_otlp::trace::Kind;

use super::*;

fn any_value(value: Any) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn text(s: &str) -> Any {
    Any::StringValue(s.into())
}

fn list(items: &[&str]) -> Any {
    Any::ArrayValue(ArrayValue { values: items.iter().map(|s| any_value(text(s))).collect() })
}

/// A span with the id `id` and the parent `parent` (0: none), with annotations.
fn span(id: u8, parent: u8, name: &str, ms: u64, attributes: &[(&str, Any)]) -> Span {
    let id_bytes = |n: u8| if n == 0 { vec![] } else { vec![0, 0, 0, 0, 0, 0, 0, n] };
    let start = 1_000_000_000 + u64::from(id) * 1_000;
    Span {
        trace_id: vec![0xab; 16],
        span_id: id_bytes(id),
        parent_span_id: id_bytes(parent),
        name: name.into(),
        start_time_unix_nano: start,
        end_time_unix_nano: start + ms * 1_000_000,
        attributes: attributes
            .iter()
            .map(|(k, v)| KeyValue {
                key: format!("verdict.{k}"),
                value: Some(any_value(v.clone())),
                ..Default::default()
            })
            .collect(),
        ..Span::default()
    }
}

fn piece(spans: Vec<Span>) -> Bytes {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
}

/// Recognises kinds by the first letter of the name, and keeps the times of the spans.
fn recognise_by_name(tree: Tree) -> RenderedTrace {
    let kinds = tree.spans.iter().map(|span| kind_of(&span.bytes)).collect();
    let start = tree.spans.iter().map(|span| span.start).min().unwrap();
    let end = tree.spans.iter().map(|span| span.end).max().unwrap();
    let header = TraceHeader { duration: end.checked_sub(start), ..TraceHeader::default() };
    RenderedTrace { tree, kinds, header }
}

fn kind_of(span: &[u8]) -> Kind {
    let name = Span::decode(span).map(|s| s.name).unwrap_or_default();
    match name.as_bytes().first() {
        Some(b'a') => Kind::Agent,
        Some(b'c') => Kind::Llm,
        Some(b'g') => Kind::Tool,
        _ => Kind::Unknown,
    }
}

fn style(width: usize, color: bool) -> TreeStyle {
    TreeStyle { color, width, prefix: "verdict.".into() }
}

fn failing_trace() -> Vec<Span> {
    vec![
        span(
            1,
            0,
            "agent travel",
            4_200,
            &[
                ("result", text("fail")),
                ("cause", text("children")),
                ("trace.result", text("fail")),
                ("trace.close_reason", text("root_ended")),
                ("trace.failed_metrics", list(&["error_detection", "tool_completeness"])),
                ("trace.failure_chain", list(&["0000000000000001", "0000000000000003", "0000000000000004"])),
            ],
        ),
        span(
            2,
            1,
            "chat gpt-x",
            812,
            &[
                ("result", text("pass")),
                ("instruction_following.score", Any::DoubleValue(5.0)),
                ("instruction_following.result", text("pass")),
            ],
        ),
        span(3, 1, "agent search", 3_100, &[("result", text("fail")), ("cause", text("children"))]),
        span(
            4,
            3,
            "get_page",
            12,
            &[
                ("result", text("fail")),
                ("cause", text("self")),
                ("severity", text("high")),
                ("category", list(&["Resource Not Found"])),
                ("error_detection.label", text("api_error")),
                ("error_detection.result", text("fail")),
                (
                    "error_detection.explanation",
                    text("The page was not found.\nSeen: \"404 page not found\"\nthird\nfourth\nfifth"),
                ),
                ("tool_completeness.score", Any::DoubleValue(1.5)),
                ("tool_completeness.result", text("fail")),
                ("latency.result", text("unmeasured")),
            ],
        ),
        span(5, 1, "http GET", 0, &[]),
    ]
}

#[test]
fn failing_trace_shows_failed_metrics_and_findings() {
    // The order of the pieces does not matter.
    let mut spans = failing_trace();
    let tail = spans.split_off(3);
    let drawn = render(&[piece(tail), piece(spans)], &recognise_by_name, &style(100, false));
    insta::assert_snapshot!(drawn, @r#"
    ✗ fail  trace abababababababababababababababab  5 spans · 1 failing · 4.2 s · closed by root_ended
      failed error_detection, tool_completeness
      chain  agent travel ▸ agent search ▸ get_page
      ✗ agent     agent travel       4.2 s  caused by children
      ├─ ✓ llm       chat gpt-x     812 ms
      ├─ ✗ agent     agent search    3.1 s  caused by children
      │  └─ ✗ tool      get_page     12 ms  high · Resource Not Found
      │         error_detection api_error  The page was not found.
      │           Seen: "404 page not found"
      │           third
      │           … and 2 more
      │         tool_completeness 1.5
      └─ – unknown   http GET         0 µs
    "#);
}

#[test]
fn header_names_the_run_and_its_task() {
    let header = TraceHeader {
        service: Some("shop".into()),
        agent: Some("clerk".into()),
        session: Some("s-1".into()),
        task: Some("Refund order 7".into()),
        start: Some(1_800_000_000_000_000_000),
        ..TraceHeader::default()
    };
    let drawn = render(
        &[piece(vec![span(1, 0, "agent", 5, &[])])],
        &|tree| RenderedTrace { header: header.clone(), ..recognise_by_name(tree) },
        &style(100, false),
    );
    insta::assert_snapshot!(drawn, @r#"
    – no verdict  trace abababababababababababababababab  1 span · 2027-01-15T08:00:00Z
      run    service shop · agent clerk · session s-1
      task   Refund order 7
      – agent     agent      5 ms
    "#);
}

#[test]
fn header_marks_late_spans_that_do_not_change_the_verdict() {
    let late = [("result", text("fail")), ("cause", text("self")), ("late", Any::BoolValue(true))];
    let spans = vec![span(4, 3, "get_page", 12, &late), span(5, 4, "http GET", 1, &late[2..])];
    let drawn = render(&[piece(spans)], &recognise_by_name, &style(100, false));
    insta::assert_snapshot!(drawn, @r#"
    – late spans  trace abababababababababababababababab  2 spans · 1 failing · 12 ms
      ✗ tool      get_page       12 ms  late
      └─ – unknown   http GET     1 ms  late
    "#);
    // A late span that revises the verdict has annotations of the trace.
    let (mut revised, trace_annotations) =
        (late.to_vec(), [("trace.result", text("fail")), ("trace.close_reason", text("late"))]);
    revised.extend(trace_annotations);
    let drawn =
        render(&[piece(vec![span(4, 3, "get_page", 12, &revised)])], &recognise_by_name, &style(100, false));
    assert!(drawn.starts_with("✗ fail  trace "), "{drawn}");
}

#[test]
fn only_traces_with_selected_results_are_rendered() {
    let mut other = span(1, 0, "chat", 5, &[]);
    other.trace_id = vec![1; 16];
    let pieces = [piece(failing_trace()), piece(vec![other])];
    let rendered_traces = |only: &[TraceResult]| {
        render_only(only, &pieces, &recognise_by_name, &style(100, false)).matches("trace ").count()
    };
    assert_eq!(rendered_traces(&[]), 2);
    assert_eq!(rendered_traces(&[TraceResult::Fail]), 1);
    assert_eq!(rendered_traces(&[TraceResult::Fail, TraceResult::Unmeasured]), 2);
    assert_eq!(rendered_traces(&[TraceResult::Pass]), 0);
}

#[test]
fn colour_is_used_only_if_configured() {
    let plain = render(&[piece(failing_trace())], &recognise_by_name, &style(100, false));
    let colored = render(&[piece(failing_trace())], &recognise_by_name, &style(100, true));
    assert!(!plain.contains('\x1b') && colored.contains("\x1b[1;31m✗\x1b[0m"));
    let mut stripped = colored;
    for code in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[1;31m"] {
        stripped = stripped.replace(code, "");
    }
    let trimmed: String = stripped.lines().map(|l| format!("{}\n", l.trim_end())).collect();
    assert_eq!(trimmed, plain);
}

#[test]
fn unannotated_spans_and_several_traces_are_rendered() {
    let mut other = span(1, 0, "chat", 5, &[]);
    other.trace_id = vec![1; 16];
    let drawn = render(
        &[piece(vec![span(1, 9, "agent orphan", 5, &[]), other])],
        &recognise_by_name,
        &style(80, false),
    );
    insta::assert_snapshot!(drawn, @r#"
    – no verdict  trace abababababababababababababababab  1 span · 5 ms
      – agent     agent orphan     5 ms

    – no verdict  trace 01010101010101010101010101010101  1 span · 5 ms
      – llm       chat       5 ms
    "#);
}

#[test]
fn span_text_cannot_control_the_terminal() {
    let hostile = "chat\x1b[2J\x1b]0;owned\x07\r\nfake ✓ line\u{202e}evil\u{9b}31m";
    let attributes = [
        ("result", text("fail")),
        ("x\x1b[0m.result", text("fail")),
        ("x\x1b[0m.explanation", text(hostile)),
        ("severity", text(hostile)),
        ("category", list(&[hostile])),
    ];
    let drawn =
        render(&[piece(vec![span(1, 0, hostile, 1, &attributes)])], &recognise_by_name, &style(100, false));
    assert!(!drawn.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{drawn:?}");
    // The summary, the span, and two lines of explanation: the line break in the text separates findings.
    assert_eq!(drawn.lines().count(), 4, "{drawn}");
}

#[test]
fn deep_chain_takes_bounded_space() {
    let spans: Vec<Span> = (0..20_000u64)
        .map(|i| Span {
            trace_id: vec![1; 16],
            span_id: (i + 1).to_be_bytes().into(),
            parent_span_id: if i == 0 { vec![] } else { i.to_be_bytes().into() },
            name: "deep".into(),
            ..Span::default()
        })
        .collect();
    let drawn = render(&[piece(spans)], &recognise_by_name, &style(120, false));
    assert!(drawn.ends_with("  … and 18000 more spans\n"), "{}", &drawn[drawn.len() - 60..]);
    assert!(drawn.len() < 2_100 * 300, "{}", drawn.len());
}

proptest! {
    #[test]
    fn every_line_fits_the_width(
        names in proptest::collection::vec((any::<String>(), 0u8..8), 1..8),
        width in 0usize..200,
    ) {
        let spans = names.iter().enumerate().map(|(i, (name, parent))| {
            let attributes = [("result", text("fail")), ("m.result", text("fail")), ("m.explanation", text(name))];
            span(u8::try_from(i).unwrap() + 1, *parent, name, 1, &attributes)
        });
        let drawn = render(&[piece(spans.collect())], &recognise_by_name, &style(width, false));
        for line in drawn.lines() {
            prop_assert!(paint::width(line) <= width.max(40), "{line}");
        }
        // The summary, and for each name a span with one metric: its explanation has at most three times three lines.
        prop_assert!(drawn.lines().count() <= 1 + names.len() * (1 + 3 * 3 + 1));
    }

    #[test]
    fn arbitrary_bytes_render_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = render(&[bytes.into()], &recognise_by_name, &style(80, true));
    }
}

#[test]
fn times_and_order_are_corrected_for_clock_skew() {
    // The clock of the tool is two seconds ahead.
    let shifted = |mut span: Span| {
        span.start_time_unix_nano += 2_000_000_000;
        span.end_time_unix_nano += 2_000_000_000;
        span
    };
    let spans = vec![
        span(1, 0, "agent", 900, &[]),
        shifted(span(2, 1, "get weather", 100, &[])),
        span(3, 1, "chat", 100, &[]),
    ];
    let corrected = |tree: Tree| {
        let (id, mut spans) = (tree.id, tree.spans);
        spans.iter_mut().filter(|span| span.id.0[7] == 2).for_each(|span| span.set_skew(2_000_000_000));
        recognise_by_name(Tree::new(id, spans))
    };
    let drawn = render(&[piece(spans.clone())], &corrected, &style(100, false));
    let position = |drawn: &str, name: &str| drawn.find(name).unwrap();
    assert!(position(&drawn, "get weather") < position(&drawn, "chat"), "{drawn}");
    assert!(drawn.contains("3 spans · 900 ms · clocks corrected"), "{drawn}");
    let raw = render(&[piece(spans)], &recognise_by_name, &style(100, false));
    assert!(
        position(&raw, "chat") < position(&raw, "get weather") && raw.contains("3 spans · 2.1 s"),
        "{raw}"
    );
    assert!(!raw.contains("corrected"));
}
