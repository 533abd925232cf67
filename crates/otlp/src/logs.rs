//! Finds the log records of a request that contain GenAI content or evaluation results of a span.
//!
//! In: an encoded `ExportLogsServiceRequest`. Out: its number of records, and copies of those about
//! a GenAI operation on a span ([`GenAiRecord`]), which a [`LogView`] reads. The request itself is
//! forwarded unchanged.

use bytes::Bytes;

use super::check;
use super::fields::{Fields, Payload};
use super::json::messages;
use super::malformed::Malformed;
use super::scan::{for_each_field, utf8};
use super::tags::{export_logs_service_request as export, resource_logs, scope_logs};
use super::trace::{SpanId, TraceId};
use super::value::{Attributes, LOG_ATTRIBUTES, Value};

/// Prefix of the event names and attribute keys of the GenAI semantic conventions.
const GEN_AI: &str = "gen_ai.";
/// The attribute, or entry of the body, for the event's name before OTLP defined the field `event_name`.
const EVENT_NAME: &str = "event.name";

/// The records of a logs request.
#[derive(Debug, Default)]
pub struct Logs {
    /// Number of all records, malformed ones included.
    pub records: u64,
    pub malformed: u64,
    /// The records about GenAI operations, in order.
    pub gen_ai: Vec<GenAiRecord>,
}

/// A record about a GenAI operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GenAiRecord {
    /// The trace id, not zero.
    pub trace: TraceId,
    /// The span id, not zero.
    pub span: SpanId,
    /// The encoded `LogRecord`, in an allocation of its own.
    pub bytes: Bytes,
}

/// Finds the records of the logs request `body` that have a trace id and a span id, and an event name or
/// an attribute key that begins with `gen_ai.`. A malformed record is only counted;
/// [`without_malformed`] removes it.
///
/// # Errors
/// `body` is not such a request: its framing above the records is malformed.
pub fn find(body: &[u8]) -> Result<Logs, Malformed> {
    let mut logs = Logs::default();
    for_each_field(body, &[export::RESOURCE_LOGS], &mut |_, encoded| {
        use resource_logs::{RESOURCE, SCHEMA_URL, SCOPE_LOGS};
        for_each_field(encoded, &[RESOURCE, SCOPE_LOGS, SCHEMA_URL], &mut |tag, content| match tag {
            RESOURCE => check::message(content, &messages::RESOURCE),
            SCOPE_LOGS => read_scope_logs(content, &mut logs),
            _ => utf8(content),
        })
    })?;
    Ok(logs)
}

fn read_scope_logs(encoded: &[u8], logs: &mut Logs) -> Result<(), Malformed> {
    use scope_logs::{LOG_RECORDS, SCHEMA_URL, SCOPE};
    for_each_field(encoded, &[SCOPE, LOG_RECORDS, SCHEMA_URL], &mut |tag, content| match tag {
        SCOPE => check::message(content, &messages::INSTRUMENTATION_SCOPE),
        LOG_RECORDS => {
            logs.records += 1;
            match check::message(content, &messages::LOG_RECORD) {
                Ok(()) => logs.gen_ai.extend(gen_ai_record(content)),
                Err(_) => logs.malformed += 1,
            }
            Ok(())
        }
        _ => utf8(content),
    })
}

/// A copy of the logs request `body` without its malformed records. Destinations refuse a request with a
/// malformed record as a whole.
pub fn without_malformed(body: &[u8]) -> Bytes {
    let path = [export::RESOURCE_LOGS, resource_logs::SCOPE_LOGS, scope_logs::LOG_RECORDS];
    let valid = |record| check::message(record, &messages::LOG_RECORD).is_ok();
    check::copy_valid(body, &path, &mut |record| valid(record).then_some(record.into())).into()
}

/// A copy of the record; `None` if it is not about GenAI or belongs to no span.
fn gen_ai_record(record: &[u8]) -> Option<GenAiRecord> {
    let view = LogView::read(record);
    let (trace, span) = (view.trace, view.span);
    let is_gen_ai = |name: &str| name.starts_with(GEN_AI);
    let gen_ai = view.event_name.is_some_and(is_gen_ai) || view.attributes().any(|(key, _)| is_gen_ai(key));
    (gen_ai && !trace.is_zero() && !span.is_zero()).then(|| GenAiRecord {
        trace,
        span,
        bytes: Bytes::copy_from_slice(record),
    })
}

/// The fields of a log record that recognition uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogView<'a> {
    /// `event_name`, else the attribute `event.name`, else the entry `event.name` of the body.
    pub event_name: Option<&'a str>,
    /// `body`
    pub body: Value<'a>,
    /// `time_unix_nano`, else `observed_time_unix_nano`; 0 if neither is set.
    pub time: u64,
    trace: TraceId,
    span: SpanId,
    record: &'a [u8],
}

impl<'a> LogView<'a> {
    /// Reads an encoded `LogRecord`; a malformed field reads as absent.
    pub fn read(record: &'a [u8]) -> LogView<'a> {
        let mut view = LogView { record, ..LogView::default() };
        let mut observed = 0;
        for field in Fields::new(record).map_while(Result::ok) {
            match (field.number, field.payload) {
                (1, Payload::Fixed64(time)) => view.time = time,
                (11, Payload::Fixed64(time)) => observed = time,
                (5, Payload::Bytes(body)) => view.body = Value::read(body),
                (9, Payload::Bytes(id)) => view.trace.0 = id.try_into().unwrap_or_default(),
                (10, Payload::Bytes(id)) => view.span.0 = id.try_into().unwrap_or_default(),
                (12, Payload::Bytes(name)) => view.event_name = simdutf8::basic::from_utf8(name).ok(),
                _ => {}
            }
        }
        if view.time == 0 {
            view.time = observed;
        }
        view.event_name = view
            .event_name
            .filter(|name| !name.is_empty())
            .or_else(|| event_name_in(view.attributes()))
            .or_else(|| event_name_in(view.body.entries()));
        view
    }

    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.record, LOG_ATTRIBUTES)
    }
}

/// The event name in attributes, or in the entries of a body.
fn event_name_in<'a>(mut attributes: Attributes<'a>) -> Option<&'a str> {
    attributes.find(|(key, _)| *key == EVENT_NAME).and_then(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, KeyValueList, any_value};
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::arbitrary::{any_value, attributes};

    fn record(span: u8) -> LogRecord {
        LogRecord { trace_id: vec![1; 16], span_id: vec![span; 8], ..Default::default() }
    }

    fn string(value: &str) -> Option<AnyValue> {
        Some(AnyValue { value: Some(any_value::Value::StringValue(value.into())) })
    }

    fn attribute(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.into(), value: string(value), ..Default::default() }
    }

    fn request(log_records: Vec<LogRecord>) -> Vec<u8> {
        let scope_logs = vec![ScopeLogs { log_records, ..Default::default() }];
        let resource_logs = vec![ResourceLogs { scope_logs, ..Default::default() }];
        ExportLogsServiceRequest { resource_logs }.encode_to_vec()
    }

    #[test]
    fn records_about_gen_ai_are_found_by_event_name_or_attribute_key() {
        let by_event_name = LogRecord { event_name: "gen_ai.choice".into(), ..record(1) };
        let by_event_name_attribute =
            LogRecord { attributes: vec![attribute("event.name", "gen_ai.user.message")], ..record(2) };
        let by_attribute_key = LogRecord { attributes: vec![attribute("gen_ai.system", "x")], ..record(3) };
        let values = vec![attribute("event.name", "gen_ai.tool.message")];
        let map = AnyValue { value: Some(any_value::Value::KvlistValue(KeyValueList { values })) };
        let by_body_entry = LogRecord { body: Some(map), ..record(4) };
        let other = LogRecord { event_name: "http.request".into(), body: string("gen_ai."), ..record(5) };
        let without_span = LogRecord { span_id: vec![], ..by_event_name.clone() };
        let zero = LogRecord { trace_id: vec![0; 16], ..by_event_name.clone() };
        let all = [
            by_event_name,
            by_event_name_attribute,
            by_attribute_key,
            by_body_entry,
            other,
            without_span,
            zero,
        ];
        let logs = find(&request(all.to_vec())).unwrap();
        assert_eq!(logs.records, 7);
        let actual: Vec<_> =
            logs.gen_ai.iter().map(|r| (r.trace.0[0], r.span.0[0], r.bytes.to_vec())).collect();
        let expected: Vec<_> = all[..4].iter().map(|r| (1, r.span_id[0], r.encode_to_vec())).collect();
        assert_eq!(actual, expected);
    }

    #[test]
    fn malformed_record_is_only_counted_and_malformed_framing_is_an_error() {
        let good = request(vec![LogRecord { event_name: "gen_ai.choice".into(), ..record(1) }]);
        // trace id of one byte
        let bad = [0x0a, 7, 0x12, 5, 0x12, 3, 0x4a, 1, 1];
        let logs = find(&[&good[..], &bad].concat()).unwrap();
        assert_eq!((logs.records, logs.malformed, logs.gen_ai.len()), (2, 1, 1));
        // The malformed record is removed, and its resource and scope stay.
        let valid = without_malformed(&[&good[..], &bad].concat());
        assert_eq!(valid, [&good[..], &[0x0a, 2, 0x12, 0]].concat());
        assert_eq!(find(&valid).map(|l| (l.records, l.malformed)), Ok((1, 0)));
        assert_eq!(without_malformed(&good), good);
        assert_eq!(find(&good[..good.len() - 1]).map(|l| l.records), Err(Malformed::CutOff));
        assert_eq!(find(&[0x0a, 2, 0x10, 1]).map(|l| l.records), Err(Malformed::Type));
    }

    #[test]
    fn a_view_reads_name_body_time_and_attributes() {
        let full = LogRecord {
            event_name: "gen_ai.choice".into(),
            observed_time_unix_nano: 9,
            body: string("hello"),
            attributes: vec![attribute("event.name", "not this"), attribute("gen_ai.system", "x")],
            ..record(1)
        };
        let bytes = full.encode_to_vec();
        let view = LogView::read(&bytes);
        assert_eq!((view.event_name, view.body, view.time), (Some("gen_ai.choice"), Value::Str("hello"), 9));
        assert_eq!(view.attributes().last(), Some(("gen_ai.system", Value::Str("x"))));
        let bytes = LogRecord { time_unix_nano: 5, event_name: String::new(), ..full }.encode_to_vec();
        let view = LogView::read(&bytes);
        assert_eq!((view.event_name, view.time), (Some("not this"), 5));
    }

    proptest! {
        #[test]
        fn valid_records_are_read_and_arbitrary_bytes_never_panic(
            attributes in attributes(), body in any_value(), cut: prop::sample::Index,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let event_name = "gen_ai.choice".into();
            let whole = request(vec![LogRecord { attributes, body: Some(body), event_name, ..record(1) }]);
            prop_assert_eq!(find(&whole).unwrap().gen_ai.len(), 1);
            let _ = find(&whole[..cut.index(whole.len())]);
            let _ = find(&bytes);
            LogView::read(&bytes).attributes().for_each(drop);
        }
    }

    /// Frameworks that put content into logs, as captured.
    #[test]
    fn captured_content_logs_are_found() {
        let Some(cases) = std::env::var_os("OTEL_VERDICT_CASES") else {
            println!("skipped: OTEL_VERDICT_CASES is not set");
            return;
        };
        let folder = std::path::Path::new(&cases).join("frameworks/googleadk-logs-a");
        let mut count = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.file_name().unwrap().to_string_lossy().starts_with("logs") {
                count += find(&std::fs::read(&path).unwrap()).unwrap().gen_ai.len();
            }
        }
        assert!(count > 0);
    }
}
