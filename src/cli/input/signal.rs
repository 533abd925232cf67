//! Detects the signal of a recorded request, and encodes JSON.
//!
//! In: a file name, an encoded request or JSON. Out: the signal. The three requests nest in the same way
//! (`resource_* { scope_* { record } }`); the records differ: fields 1 and 2 of a span are its trace id (16 bytes)
//! and span id (8 bytes), those of a log record are numbers, field 1 of a metric is its name.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use verdict_otlp::{Fields, Malformed, Payload, Signal, json};

/// The signal that a file's name starts with, as in `logs-001.pb` or `metrics.json`; `None` if there is none.
pub(super) fn from_file_name(path: &str) -> Option<Signal> {
    let name = path.rsplit(['/', '\\']).next()?.to_ascii_lowercase();
    let signals = [("logs", Signal::Logs), ("metrics", Signal::Metrics), ("traces", Signal::Traces)];
    signals.into_iter().find(|(start, _)| name.starts_with(start)).map(|(_, signal)| signal)
}

/// The signal of the first record that identifies one; `None` if no record does.
///
/// # Errors
/// The bytes do not nest as the three requests do.
pub(super) fn from_content(body: &[u8]) -> Result<Option<Signal>, Malformed> {
    let mut signal = None;
    for resource in Fields::new(body) {
        let resource = resource?;
        let (1, Payload::Bytes(resource)) = (resource.number, resource.payload) else {
            return Err(Malformed::Type);
        };
        for scope in Fields::new(resource) {
            let scope = scope?;
            let (2, Payload::Bytes(scope)) = (scope.number, scope.payload) else { continue };
            for record in Fields::new(scope) {
                let record = record?;
                if let (2, Payload::Bytes(record)) = (record.number, record.payload) {
                    signal = signal.or_else(|| from_record(record));
                }
            }
        }
    }
    Ok(signal)
}

/// The signal of a record; `None` if its fields fit several. A trace id may be readable text, as a metric's name is;
/// the times and the kind of a span have types that no field of a metric has.
fn from_record(record: &[u8]) -> Option<Signal> {
    let (mut has_name, mut has_data) = (false, false);
    for field in Fields::new(record).map_while(Result::ok) {
        match (field.number, field.payload) {
            (1, Payload::Bytes(id)) if id.len() == 16 && !id.iter().all(|b| (0x20..0x7f).contains(b)) => {
                return Some(Signal::Traces);
            }
            (7 | 8, Payload::Fixed64(_)) | (6, Payload::Varint(_)) => return Some(Signal::Traces),
            (1 | 11, Payload::Fixed64(_)) | (2, Payload::Varint(_)) => return Some(Signal::Logs),
            (1, Payload::Bytes(_)) => has_name = true,
            (5 | 7 | 9 | 10 | 11, Payload::Bytes(_)) => has_data = true,
            _ => {}
        }
    }
    (has_name && has_data).then_some(Signal::Metrics)
}

/// The requests in a JSON document, encoded; none if it is not OTLP.
///
/// # Errors
/// The text is not JSON, or not such a request.
pub(super) fn decode_json(text: &[u8]) -> Result<Vec<(Signal, Bytes)>, String> {
    if let Some(body) = decode_spans(text) {
        return Ok(vec![(Signal::Traces, body)]);
    }
    let decode = |signal| Ok((signal, json::decode(signal, text).map_err(|e| e.to_string())?));
    signals_in_json(text)?.into_iter().map(decode).collect()
}

/// The request of spans in a document that contains no other one, as most do; otherwise `None`. Only the
/// keys are searched for: a key inside a string has escaped quotes and does not match.
pub(super) fn decode_spans(text: &[u8]) -> Option<Bytes> {
    let has = |key: &&str| memchr::memmem::find(text, key.as_bytes()).is_some();
    let only_spans = has(&"\"resourceSpans\"") && !OTHER_KEYS.iter().any(has);
    if only_spans { json::decode(Signal::Traces, text).ok() } else { None }
}

/// The keys of requests without spans.
const OTHER_KEYS: [&str; 4] =
    ["\"resourceLogs\"", "\"resource_logs\"", "\"resourceMetrics\"", "\"resource_metrics\""];

/// The top-level keys of a JSON document, also with the names of the protobuf fields.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SignalKeys {
    #[serde(alias = "resource_spans", rename = "resourceSpans")]
    spans: Option<IgnoredAny>,
    #[serde(alias = "resource_logs", rename = "resourceLogs")]
    logs: Option<IgnoredAny>,
    #[serde(alias = "resource_metrics", rename = "resourceMetrics")]
    metrics: Option<IgnoredAny>,
}

/// The signals in a JSON document; none if it is not OTLP.
///
/// # Errors
/// The text is not JSON.
fn signals_in_json(text: &[u8]) -> Result<Vec<Signal>, String> {
    let keys: SignalKeys = serde_json::from_slice(text).map_err(|e| format!("not JSON: {e}"))?;
    let all = [(keys.spans, Signal::Traces), (keys.logs, Signal::Logs), (keys.metrics, Signal::Metrics)];
    Ok(all.into_iter().filter(|(field, _)| field.is_some()).map(|(_, signal)| signal).collect())
}
