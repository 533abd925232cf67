//! A trace that has closed: its spans, why it closed, and the verdict that it had before.

use super::{Attached, Span, TraceId};

/// Why a trace closed; written on its root as `verdict.trace.close_reason`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CloseReason {
    /// The root has ended, every parent is here, and it was quiet since.
    Complete,
    /// No root came, and nothing else either.
    Idle,
    /// A parent in another process did not come.
    RemoteIdle,
    /// It was open for too long.
    MaxAge,
    /// It had too many spans.
    MaxSpans,
    /// It had too many bytes.
    MaxBytes,
    /// Memory was needed.
    Pressure,
    /// The process is stopping.
    Shutdown,
    /// Offline: the input ended.
    EndOfInput,
    /// These spans came after their trace had closed.
    Late,
}

impl CloseReason {
    /// Every reason, for declaring metrics.
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

    /// As written in the attribute.
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

/// A trace that has closed (or spans that came too late for theirs). Cloning copies no span.
#[derive(Clone, Debug)]
pub struct ClosedTrace {
    /// Its id.
    pub trace: TraceId,
    /// Its spans, in order of arrival.
    pub spans: Vec<Span>,
    /// Log records that belong to them.
    pub logs: Vec<Attached>,
    /// Bytes that it keeps in memory, as they were counted while it was open: the allocations that
    /// its spans share, each whole, what stands around them, and its logs.
    pub bytes: usize,
    /// Why now.
    pub reason: CloseReason,
    /// The root, or a parent that some span names, has not come.
    pub incomplete: bool,
    /// What the trace's verdict was when it closed the first time; for late spans only.
    pub before: Option<PriorVerdict>,
}

/// What is kept of a closed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PriorVerdict {
    /// Its verdict: `Some(true)` for pass, `None` for unmeasured.
    pub passed: Option<bool>,
    /// The revision of that verdict, from 1.
    pub revision: u32,
}
