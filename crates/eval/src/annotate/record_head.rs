//! The fields of a log record before its attributes.

use verdict_otlp::field_numbers::log_record;
use verdict_otlp::trace::{SpanId, TraceId};
use verdict_otlp::write;

/// `SeverityNumber` INFO and WARN. A failed verdict is no error of the pipeline.
pub(super) const INFO: u64 = 9;
pub(super) const WARN: u64 = 13;

/// Appends the fields of a record. `time` is the time of the event and `now` its observed time, both in nanoseconds
/// since 1970.
pub(super) fn put_head(
    record: &mut Vec<u8>,
    (trace, span): (TraceId, SpanId),
    (time, now): (u64, u64),
    severity: u64,
    event: &str,
) {
    write::fixed64(record, log_record::TIME_UNIX_NANO, time);
    write::integer(record, log_record::SEVERITY_NUMBER, severity);
    write::bytes(record, log_record::TRACE_ID, &trace.0);
    write::bytes(record, log_record::SPAN_ID, &span.0);
    write::fixed64(record, log_record::OBSERVED_TIME_UNIX_NANO, now);
    write::bytes(record, log_record::EVENT_NAME, event.as_bytes());
}
