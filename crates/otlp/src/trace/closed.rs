//! A closed trace: its spans, the reason for closing, and its previous verdict.

use super::id::TraceId;
use super::span::{Attached, Span};

/// Why a trace closed; written on its root as `verdict.trace.close_reason`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CloseReason {
    /// The root has ended, no parent is missing, and `close.quiet` has passed.
    Complete,
    /// The root has not come, and `close.idle` has passed.
    Idle,
    /// Only parents in other processes are missing, and `close.remote_idle` has passed.
    RemoteIdle,
    /// Open for `close.max_age`.
    MaxAge,
    /// Over `close.max_spans`.
    MaxSpans,
    /// Over `close.max_bytes`.
    MaxBytes,
    /// Closed early to free memory.
    Pressure,
    Shutdown,
    /// Offline: the input ended.
    EndOfInput,
    /// Spans that came after their trace had closed.
    Late,
}

impl CloseReason {
    pub const ALL: [CloseReason; 10] = [
        CloseReason::Complete,
        CloseReason::Idle,
        CloseReason::RemoteIdle,
        CloseReason::MaxAge,
        CloseReason::MaxSpans,
        CloseReason::MaxBytes,
        CloseReason::Pressure,
        CloseReason::Shutdown,
        CloseReason::EndOfInput,
        CloseReason::Late,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            CloseReason::Complete => "complete",
            CloseReason::Idle => "idle",
            CloseReason::RemoteIdle => "remote_idle",
            CloseReason::MaxAge => "max_age",
            CloseReason::MaxSpans => "max_spans",
            CloseReason::MaxBytes => "max_bytes",
            CloseReason::Pressure => "memory_pressure",
            CloseReason::Shutdown => "shutdown",
            CloseReason::EndOfInput => "end_of_input",
            CloseReason::Late => "late",
        }
    }
}

/// A closed trace, or late spans of one. Cloning copies no span bytes.
#[derive(Clone, Debug)]
pub struct ClosedTrace {
    pub trace: TraceId,
    /// In order of arrival.
    pub spans: Vec<Span>,
    pub logs: Vec<Attached>,
    /// Bytes it keeps in memory, as counted while it was open: the whole allocations that its spans
    /// share, their envelopes, and its logs.
    pub bytes: usize,
    pub reason: CloseReason,
    /// The root or a parent of some span is missing.
    pub incomplete: bool,
    /// The verdict from when the trace first closed; for late spans only.
    pub before: Option<PriorVerdict>,
}

/// The verdict remembered of a closed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PriorVerdict {
    /// `Some(true)` for pass, `None` for unmeasured.
    pub passed: Option<bool>,
    /// Revision of the verdict, from 1.
    pub revision: u32,
}
