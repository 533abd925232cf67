//! A buffered span, and log records that belong to spans.

use std::sync::Arc;

use bytes::Bytes;

use super::envelope::Envelope;
use super::id::SpanId;

/// Index of a span in its [`Tree`](super::Tree).
pub type Idx = usize;

/// `Status.code` of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Status {
    #[default]
    Unset,
    Ok,
    Error,
}

/// One buffered span: the fields that assembling needs, and the encoded message.
#[derive(Clone, Debug)]
pub struct Span {
    pub id: SpanId,
    /// Zero for a root.
    pub parent: SpanId,
    /// `start_time_unix_nano`, less `skew`: nanoseconds since the Unix epoch.
    pub start: u64,
    /// `end_time_unix_nano`, less `skew`: nanoseconds since the Unix epoch; 0 if the sender did not set it.
    pub end: u64,
    /// Estimated nanoseconds by which the sender's clock is ahead of the clock of the trace's root.
    pub skew: i64,
    /// `Status.code`.
    pub status: Status,
    /// Whether the parent is in another process (`Span.flags`, bits 8 and 9).
    pub remote_parent: bool,
    /// Whether the span arrived with `verdict.*` attributes, which are replaced or kept but never duplicated.
    pub has_verdict: bool,
    /// Whether the span was exported when it arrived, as in shadow mode: it is evaluated, and not exported
    /// with the verdict.
    pub forwarded: bool,
    /// The encoded `Span` message, unchanged.
    pub bytes: Bytes,
    pub envelope: Arc<Envelope>,
}

impl Span {
    /// `start` or `end` as the sender recorded it.
    pub fn as_sent(&self, time: u64) -> u64 {
        if time == 0 { 0 } else { time.wrapping_add_signed(self.skew) }
    }

    /// Sets the skew of a span that has none.
    pub fn set_skew(&mut self, skew: i64) {
        let corrected = |time: u64| if time == 0 { 0 } else { time.wrapping_sub_signed(skew) };
        (self.start, self.end, self.skew) = (corrected(self.start), corrected(self.end), skew);
    }
}

/// A log record that belongs to a span of the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachedLog {
    pub span: SpanId,
    /// The encoded `LogRecord`.
    pub record: Bytes,
}
