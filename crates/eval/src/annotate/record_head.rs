//! The fields of a log record before its attributes.

use verdict_otlp::numbers::log_record;
use verdict_otlp::trace::{SpanId, TraceId};
use verdict_otlp::write;

/// `SeverityNumber` INFO and WARN. A failed verdict is no error of the pipeline.
const INFO: u64 = 9;
const WARN: u64 = 13;

pub(super) struct RecordHead {
    pub trace: TraceId,
    pub span: SpanId,
    /// In nanoseconds since 1970, as is `now`.
    pub time: u64,
    pub warns: bool,
    /// The time at which it was observed.
    pub now: u64,
    pub event: &'static str,
}

impl RecordHead {
    pub(super) fn put(self, record: &mut Vec<u8>) {
        let RecordHead { trace, span, time, warns, now, event } = self;
        write::fixed64(record, log_record::TIME_UNIX_NANO, time);
        write::integer(record, log_record::SEVERITY_NUMBER, if warns { WARN } else { INFO });
        write::bytes(record, log_record::TRACE_ID, &trace.0);
        write::bytes(record, log_record::SPAN_ID, &span.0);
        write::fixed64(record, log_record::OBSERVED_TIME_UNIX_NANO, now);
        write::bytes(record, log_record::EVENT_NAME, event.as_bytes());
    }
}
