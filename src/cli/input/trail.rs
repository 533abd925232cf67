//! Traces of the TRAIL benchmark as they are published: `{trace_id, spans: [{..., child_spans}]}`.
//!
//! In: a JSON document. Out: the same spans as an OTLP request. The nesting of `child_spans` gives the parents. Times
//! are in RFC 3339, durations in ISO 8601 (`PT1M48.755330S`), kinds and statuses are words. `links` are not read, since
//! they are empty in the benchmark; nor are `logs`, which are about the harness that made the recordings.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use verdict_otlp::Signal;

#[derive(Deserialize)]
struct TrailTrace {
    trace_id: String,
    spans: Vec<TrailSpan>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TrailSpan {
    span_id: String,
    parent_span_id: Option<String>,
    trace_state: Option<String>,
    span_name: String,
    span_kind: Option<String>,
    timestamp: String,
    duration: Option<String>,
    status_code: Option<String>,
    status_message: Option<String>,
    service_name: Option<String>,
    scope_name: Option<String>,
    scope_version: Option<String>,
    resource_attributes: Map<String, Value>,
    span_attributes: Map<String, Value>,
    events: Vec<TrailEvent>,
    child_spans: Vec<TrailSpan>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TrailEvent {
    #[serde(alias = "Name")]
    name: String,
    #[serde(alias = "Timestamp")]
    timestamp: Option<String>,
    #[serde(alias = "Attributes")]
    attributes: Map<String, Value>,
}

/// The keys by which a document is recognised as a trace of the benchmark.
#[derive(Deserialize)]
struct TrailKeys {
    #[serde(rename = "trace_id")]
    _trace: String,
    #[serde(rename = "spans")]
    _spans: Vec<serde::de::IgnoredAny>,
}

/// Spans of one resource and scope.
type TrailGroups = BTreeMap<(String, String, String), Vec<Value>>;

/// The OTLP request with the spans of a document; `None` if the document is not a trace of the benchmark.
///
/// # Errors
/// The document is a trace of the benchmark, but a field is malformed.
pub(super) fn decode(text: &[u8]) -> Result<Option<Bytes>, String> {
    if serde_json::from_slice::<TrailKeys>(text).is_err() {
        return Ok(None);
    }
    let trace: TrailTrace =
        serde_json::from_slice(text).map_err(|e| format!("not a trace of the TRAIL benchmark: {e}"))?;
    let id = trace.trace_id.replace('-', "");
    let mut groups = TrailGroups::new();
    for span in trace.spans {
        let parent = span.parent_span_id.clone().unwrap_or_default();
        add_span(span, &id, parent, &mut groups)?;
    }
    let resources = groups.into_iter().map(|((resource, name, version), spans)| {
        let attributes: Value = serde_json::from_str(&resource).unwrap_or_default();
        json!({
            "resource": { "attributes": attributes },
            "scopeSpans": [{ "scope": { "name": name, "version": version }, "spans": spans }],
        })
    });
    let request = json!({ "resourceSpans": resources.collect::<Vec<_>>() }).to_string();
    verdict_otlp::json::decode(Signal::Traces, request.as_bytes()).map(Some).map_err(|e| e.to_string())
}

/// Adds a span and its descendants. The limit of the JSON parser bounds the depth of the recursion.
fn add_span(span: TrailSpan, trace: &str, parent: String, groups: &mut TrailGroups) -> Result<(), String> {
    let with_span = |reason: String| format!("span {}: {reason}", span.span_id);
    let start = unix_nanos(&span.timestamp).map_err(with_span)?;
    let duration_nanos = span.duration.as_deref().map_or(Ok(0), duration_nanos).map_err(with_span)?;
    let events: Vec<Value> = span
        .events
        .iter()
        .map(|span_event| event(span_event, start))
        .collect::<Result<_, _>>()
        .map_err(with_span)?;
    let mut resource = span.resource_attributes;
    if let Some(service) = span.service_name {
        resource.entry("service.name").or_insert(service.into());
    }
    let otlp_span = json!({
        "traceId": trace,
        "spanId": span.span_id,
        "parentSpanId": parent,
        "traceState": span.trace_state.unwrap_or_default(),
        "name": span.span_name,
        "kind": kind_number(span.span_kind.as_deref().unwrap_or_default()),
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": start.saturating_add(duration_nanos).to_string(),
        "attributes": attributes(&span.span_attributes),
        "events": events,
        "status": {
            "code": status_number(span.status_code.as_deref().unwrap_or_default()),
            "message": span.status_message.unwrap_or_default(),
        },
    });
    let resource = Value::Array(attributes(&resource)).to_string();
    let scope = (span.scope_name.unwrap_or_default(), span.scope_version.unwrap_or_default());
    groups.entry((resource, scope.0, scope.1)).or_default().push(otlp_span);
    for child in span.child_spans {
        add_span(child, trace, span.span_id.clone(), groups)?;
    }
    Ok(())
}

fn event(event: &TrailEvent, start: u64) -> Result<Value, String> {
    let time = event.timestamp.as_deref().map_or(Ok(start), unix_nanos)?;
    let attributes = attributes(&event.attributes);
    Ok(json!({ "name": event.name, "timeUnixNano": time.to_string(), "attributes": attributes }))
}

fn attributes(fields: &Map<String, Value>) -> Vec<Value> {
    let non_null = fields.iter().filter(|(_, value)| !value.is_null());
    non_null.map(|(key, value)| json!({ "key": key, "value": any_value(value) })).collect()
}

/// A value as OTLP/JSON. The limit of the JSON parser bounds the depth of the recursion.
fn any_value(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Bool(flag) => json!({ "boolValue": flag }),
        Value::Number(n) if n.is_i64() => json!({ "intValue": n.to_string() }),
        Value::Number(n) => json!({ "doubleValue": n.as_f64() }),
        Value::String(text) => json!({ "stringValue": text }),
        Value::Array(values) => {
            json!({ "arrayValue": { "values": values.iter().map(any_value).collect::<Vec<_>>() } })
        }
        Value::Object(map) => json!({ "kvlistValue": { "values": attributes(map) } }),
    }
}

fn kind_number(word: &str) -> u8 {
    let kinds = ["internal", "server", "client", "producer", "consumer"];
    kinds.iter().zip(1..).find(|(name, _)| word.eq_ignore_ascii_case(name)).map_or(0, |(_, kind)| kind)
}

fn status_number(word: &str) -> u8 {
    match word {
        _ if word.eq_ignore_ascii_case("ok") => 1,
        _ if word.eq_ignore_ascii_case("error") => 2,
        _ => 0,
    }
}

fn unix_nanos(time: &str) -> Result<u64, String> {
    let utc = time.strip_suffix("+00:00").unwrap_or(time);
    let parsed = humantime::parse_rfc3339_weak(utc).map_err(|e| format!("time '{time}': {e}"))?;
    let since_epoch = parsed.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}

/// Nanoseconds of a duration in days, hours, minutes and seconds, of which the last may have a fraction.
fn duration_nanos(text: &str) -> Result<u64, String> {
    let malformed = || format!("duration '{text}' is not ISO 8601, such as PT1M48.7S");
    let mut rest = text.strip_prefix('P').ok_or_else(malformed)?;
    let mut sum = 0u64;
    while let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let (number, unit) = (&rest[..end], &rest[end..=end]);
        rest = &rest[end + 1..];
        let seconds = match unit {
            "T" if number.is_empty() => continue,
            "D" => 86_400,
            "H" => 3_600,
            "M" => 60,
            "S" => 1,
            _ => return Err(malformed()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole: u64 = whole.parse().map_err(|_| malformed())?;
        let digits = format!("{fraction:0<9}");
        let fraction: u64 = digits.get(..9).and_then(|nine| nine.parse().ok()).ok_or_else(malformed)?;
        let nanos = whole.saturating_mul(1_000_000_000).saturating_add(fraction);
        sum = sum.saturating_add(nanos.saturating_mul(seconds));
    }
    if rest.is_empty() { Ok(sum) } else { Err(malformed()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message;

    #[test]
    fn durations_are_read_in_every_unit() {
        assert_eq!(duration_nanos("PT1M48.755330S"), Ok(108_755_330_000));
        assert_eq!(duration_nanos("PT0.125S"), Ok(125_000_000));
        assert_eq!(duration_nanos("P1DT2H"), Ok(93_600_000_000_000));
        assert_eq!(duration_nanos("PT0.1234567891S"), Ok(123_456_789));
        for malformed in ["", "1s", "PT1", "PTS", "PT1X", "PT-1S", "PT1.éS", "PT1é"] {
            assert!(duration_nanos(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn times_are_utc_with_and_without_an_offset() {
        let expected = Ok(1_742_401_928_062_589_000);
        for time in
            ["2025-03-19T16:32:08.062589Z", "2025-03-19T16:32:08.062589+00:00", "2025-03-19T16:32:08.062589"]
        {
            assert_eq!(unix_nanos(time), expected, "{time}");
        }
        assert!(unix_nanos("yesterday").is_err());
    }

    #[test]
    fn nested_spans_are_children_of_the_span_around_them() {
        let span = |id: &str, children: Value| {
            json!({
                "span_id": id, "span_name": id, "span_kind": "Client", "timestamp": "1970-01-01T00:00:01Z",
                "duration": "PT2S", "status_code": "Error", "status_message": "late", "service_name": "s",
                "scope_name": "o", "span_attributes": { "n": 7, "ok": true, "list": ["a"], "none": null },
                "events": [{ "Name": "exception", "Timestamp": "1970-01-01T00:00:02Z" }],
                "child_spans": children,
            })
        };
        let inner = span("0000000000000003", json!([]));
        let middle = span("0000000000000002", json!([inner]));
        let spans = json!([span("0000000000000001", json!([middle, span("0000000000000004", json!([]))]))]);
        let text = json!({ "trace_id": "01010101-0101-0101-0101-010101010101", "spans": spans }).to_string();
        let body = decode(text.as_bytes()).unwrap().unwrap();
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        let spans: Vec<_> = scopes.flat_map(|scope| &scope.spans).collect();
        let parents: Vec<(u8, u8)> = spans
            .iter()
            .map(|span| (span.span_id[7], span.parent_span_id.last().copied().unwrap_or_default()))
            .collect();
        assert_eq!(parents, [(1, 0), (2, 1), (3, 2), (4, 1)]);
        let first = spans[0];
        assert_eq!((first.trace_id.as_slice(), first.kind), (&[1; 16][..], 3));
        assert_eq!((first.start_time_unix_nano, first.end_time_unix_nano), (1_000_000_000, 3_000_000_000));
        assert_eq!(first.status.as_ref().map(|s| (s.code, s.message.as_str())), Some((2, "late")));
        assert_eq!((first.attributes.len(), first.events[0].time_unix_nano), (3, 2_000_000_000));
        let resource = request.resource_spans[0].resource.as_ref().unwrap();
        assert_eq!(resource.attributes[0].key, "service.name");
    }

    #[test]
    fn nesting_beyond_the_limit_of_json_is_an_error() {
        let text = format!(
            r#"{{"trace_id": "a", "spans": [{}{}]}}"#,
            r#"{"timestamp": "1970-01-01T00:00:01Z", "child_spans": ["#.repeat(5_000),
            "]}".repeat(5_000)
        );
        assert!(decode(text.as_bytes()).is_err());
    }

    #[test]
    fn other_documents_are_not_taken_for_a_trace() {
        for other in [r#"{"errors": []}"#, r#"{"trace_id": "a"}"#, r#"{"trace_id": 1, "spans": []}"#] {
            assert_eq!(decode(other.as_bytes()), Ok(None), "{other}");
        }
        let malformed = r#"{"trace_id": "a", "spans": [{"span_id": "b", "timestamp": "x"}]}"#;
        assert!(decode(malformed.as_bytes()).unwrap_err().contains("span b: time 'x'"));
    }
}
