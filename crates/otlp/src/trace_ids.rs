//! Finds the trace ids of requests without reading anything else in them.
//!
//! In: an encoded request, or text of OTLP/JSON. Out: the trace id of every span and log record. Nothing is
//! validated, so this is an order of magnitude faster than [`split`](super::split). A program that reads a
//! recording twice determines in the first pass where each trace ends.

use super::fields::{Fields, Payload};
use super::signal::Signal;
use super::tags::{log_record, span};
use super::trace::TraceId;

/// Calls `each` with the id of every span or log record in an encoded request, in order, up to the first malformed
/// field. Repeated ids are passed repeatedly. Requests of metrics have none.
pub fn visit_request(signal: Signal, body: &[u8], each: &mut dyn FnMut(TraceId)) {
    let number = match signal {
        Signal::Traces => span::TRACE_ID >> 3,
        Signal::Logs => log_record::TRACE_ID >> 3,
        Signal::Metrics => return,
    };
    // `resource_*`, `scope_*` and the records have the same numbers in both requests.
    for resource in Fields::new(body).contents(1) {
        for scope in Fields::new(resource).contents(2) {
            for record in Fields::new(scope).contents(2) {
                // The id is the first field of most spans; the fields after it are not read.
                let id_bytes =
                    Fields::new(record).map_while(Result::ok).find_map(|field| match field.payload {
                        Payload::Bytes(id) if field.number == number => Some(id),
                        _ => None,
                    });
                if let Some(id) = id_bytes.and_then(|id| id.try_into().ok()) {
                    each(TraceId(id));
                }
            }
        }
    }
}

/// Maximum number of bytes from the start of a key to the end of its id: [`visit_json`] does not find a longer pair.
pub const JSON_WINDOW: usize = 256;

/// Calls `each` with the value of every key `traceId` or `trace_id` in JSON text, and the offset of the key. The text
/// need not be a whole document. A string that contains such a key has its quotes escaped, so a match is a key or
/// a string value of that name. A key that is written with escapes is not found.
pub fn visit_json(text: &[u8], each: &mut dyn FnMut(usize, TraceId)) {
    for offset in memchr::memmem::find_iter(text, b"\"trace") {
        let key = text.get(offset..).unwrap_or_default();
        let window = key.get(..JSON_WINDOW).unwrap_or(key);
        if let Some(id) = json_id(window) {
            each(offset, id);
        }
    }
}

/// The id in `"traceId": "0102..."`.
fn json_id(text: &[u8]) -> Option<TraceId> {
    let after_key = text.strip_prefix(b"\"traceId\"").or_else(|| text.strip_prefix(b"\"trace_id\""))?;
    let value = after_key.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', value)?;
    let text = std::str::from_utf8(value.get(..end)?).ok()?;
    super::json::trace_id(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    const SPANS: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
        {"traceId":"0101010101010101010101010101010f","spanId":"0202020202020202","name":"\"traceId\":\"no\""},
        {"spanId":"0202020202020203", "trace_id" :
          "AQEBAQEBAQEBAQEBAQEBAg==","attributes":[{"key":"traceId","value":{"stringValue":"x"}}]}]}]}]}"#;
    const LOGS: &str = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[
        {"timeUnixNano":"5","body":{"stringValue":"a"},"traceId":"0101010101010101010101010101010F"},{}]}]}]}"#;

    fn ids(last: [u8; 2]) -> Vec<TraceId> {
        last.map(|last| TraceId([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, last])).to_vec()
    }

    #[test]
    fn ids_of_text_and_of_the_request_that_it_encodes_are_the_same() {
        for (signal, text, expected) in
            [(Signal::Traces, SPANS, ids([0x0f, 2])), (Signal::Logs, LOGS, ids([0x0f, 0x0f])[..1].to_vec())]
        {
            let (mut in_text, mut in_bytes) = (Vec::new(), Vec::new());
            visit_json(text.as_bytes(), &mut |offset, id| {
                assert!(text[offset..].starts_with("\"trace"));
                in_text.push(id);
            });
            let body = json::decode(signal, text.as_bytes()).unwrap();
            visit_request(signal, &body, &mut |id| in_bytes.push(id));
            assert_eq!((in_text, in_bytes), (expected.clone(), expected));
        }
    }

    #[test]
    fn ids_with_dashes_are_those_of_published_traces() {
        let mut ids_at_offsets = Vec::new();
        let text =
            br#"{"trace_id": "01010101-0101-0101-0101-01010101010f", "spans": []} "traceId" "trace_id": "#;
        visit_json(text, &mut |offset, id| ids_at_offsets.push((offset, id)));
        assert_eq!(ids_at_offsets, [(1, ids([0x0f, 0])[0])]);
    }

    #[test]
    fn any_bytes_are_read_without_an_error() {
        visit_json(b"\"traceId\":\"\xff\"\"traceId\":\"00", &mut |_, id| panic!("found {id}"));
        for signal in [Signal::Traces, Signal::Logs, Signal::Metrics] {
            visit_request(signal, b"\x0a\x05\x12\x03\x12\x0f\x01", &mut |id| panic!("found {id}"));
        }
    }
}
