//! A closed trace: its spans, the reason for closing, and its previous verdict.

use super::id::TraceId;
use super::span::{Attached, Span};

crate::labelled_enum! {
    /// Why a trace closed; written on its root as `verdict.trace.close_reason`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    pub enum CloseReason {
        /// The root has ended, no parent is missing, and `close.quiet` has passed.
        Complete = "complete",
        /// The root has not come, and `close.idle` has passed.
        Idle = "idle",
        /// Only parents in other processes are missing, and `close.remote_idle` has passed.
        RemoteIdle = "remote_idle",
        /// Open for `close.max_age`.
        MaxAge = "max_age",
        /// Over `close.max_spans`.
        MaxSpans = "max_spans",
        /// Over `close.max_bytes`.
        MaxBytes = "max_bytes",
        /// Closed early to free memory.
        Pressure = "memory_pressure",
        Shutdown = "shutdown",
        /// Offline: the input ended.
        EndOfInput = "end_of_input",
        /// Spans that came after their trace had closed.
        Late = "late",
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
