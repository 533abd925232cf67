//! Numbers of the fields that the evaluator writes one by one, from the generated tags.
//!
//! A tag is a field's number above the three bits of its wire type.

use super::tags;

/// `Span`
pub mod span {
    use super::tags::span;

    pub const EVENTS: u32 = span::EVENTS >> 3;
}

/// `Span.Event`
pub mod span_event {
    use super::tags::span_event;

    pub const TIME_UNIX_NANO: u32 = span_event::TIME_UNIX_NANO >> 3;
    pub const NAME: u32 = span_event::NAME >> 3;
}

/// `ScopeLogs`
pub mod scope_logs {
    use super::tags::scope_logs;

    pub const SCOPE: u32 = scope_logs::SCOPE >> 3;
}

/// `InstrumentationScope`
pub mod instrumentation_scope {
    use super::tags::instrumentation_scope;

    pub const NAME: u32 = instrumentation_scope::NAME >> 3;
    pub const VERSION: u32 = instrumentation_scope::VERSION >> 3;
}

/// `LogRecord`
pub mod log_record {
    use super::tags::log_record;

    pub const TIME_UNIX_NANO: u32 = log_record::TIME_UNIX_NANO >> 3;
    pub const SEVERITY_NUMBER: u32 = log_record::SEVERITY_NUMBER >> 3;
    pub const TRACE_ID: u32 = log_record::TRACE_ID >> 3;
    pub const SPAN_ID: u32 = log_record::SPAN_ID >> 3;
    pub const OBSERVED_TIME_UNIX_NANO: u32 = log_record::OBSERVED_TIME_UNIX_NANO >> 3;
    pub const EVENT_NAME: u32 = log_record::EVENT_NAME >> 3;
}
