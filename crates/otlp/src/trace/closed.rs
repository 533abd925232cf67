//! A closed trace: its spans, the reason for closing, and its previous verdict.

use super::id::TraceId;
use super::span::{AttachedLog, Span};

crate::labelled_enum! {
    /// The reason why a trace closed; written on its root as `verdict.trace.close_reason`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    pub enum CloseReason {
        /// The root has ended, no parent is missing, and `close.quiet` has passed.
        Complete = "complete",
        /// The root has not arrived, and `close.idle` has passed.
        Idle = "idle",
        /// Only parents in other processes are missing, and `close.remote_idle` has passed.
        RemoteIdle = "remote_idle",
        /// `close.max_age` has passed since the first span.
        MaxAge = "max_age",
        /// The trace has reached `close.max_spans`.
        MaxSpans = "max_spans",
        /// The trace has reached `close.max_bytes`.
        MaxBytes = "max_bytes",
        /// Closed early to free memory.
        Pressure = "memory_pressure",
        Shutdown = "shutdown",
        /// Offline: the input ended.
        EndOfInput = "end_of_input",
        /// The spans arrived after their trace had closed.
        Late = "late",
    }
}

/// A closed trace, or late spans of one. Cloning copies no span bytes.
#[derive(Clone, Debug)]
pub struct ClosedTrace {
    pub trace: TraceId,
    /// The spans in order of arrival.
    pub spans: Vec<Span>,
    pub logs: Vec<AttachedLog>,
    /// Memory of the trace in bytes, as counted while it was open: the allocations that its spans share,
    /// their envelopes, and its logs.
    pub bytes: usize,
    pub close_reason: CloseReason,
    /// The root or a parent of some span is missing.
    pub incomplete: bool,
    /// The verdict on the trace before these late spans.
    pub prior_verdict: Option<PriorVerdict>,
}

/// The remembered verdict on a closed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PriorVerdict {
    /// `Some(true)` for pass, `None` for unmeasured.
    pub passed: Option<bool>,
    /// Revision of the verdict, from 1.
    pub revision: u32,
}
