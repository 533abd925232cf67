//! Numbers of the fields that the evaluator writes one by one, from the generated tags.
//!
//! A tag is a field's number above the three bits of its wire type.

macro_rules! numbers {
    ($($(#[$doc:meta])* $message:ident { $($field:ident),* })*) => {$(
        $(#[$doc])*
        pub mod $message {
            $(pub const $field: u32 = crate::tags::$message::$field >> 3;)*
        }
    )*};
}

numbers! {
    /// `Span`
    span { EVENTS }
    /// `Span.Event`
    span_event { TIME_UNIX_NANO, NAME }
    /// `ScopeLogs`
    scope_logs { SCOPE }
    /// `InstrumentationScope`
    instrumentation_scope { NAME, VERSION }
    /// `LogRecord`
    log_record { TIME_UNIX_NANO, SEVERITY_NUMBER, TRACE_ID, SPAN_ID, OBSERVED_TIME_UNIX_NANO, EVENT_NAME }
}
