//! Alarms: harmful calls that are reported while their trace is open, and their retraction.

use std::sync::Arc;

use verdict_otlp::trace::{Envelope, SpanId};

verdict_otlp::labelled_enum! {
    /// The state of an alarm, as in `verdict.path.alarm`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AlarmState {
        /// The spans that have arrived show a harmful call.
        Raised = "raised",
        /// Later spans showed that the call was allowed.
        Retracted = "retracted",
    }
}

verdict_otlp::labelled_enum! {
    /// What an open trace has exceeded, as in `verdict.alarm.cause`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AlarmCause {
        /// Calls are repeated without progress.
        Loop = "loop",
        /// Tokens of model calls.
        Tokens = "tokens",
        /// The cost of model calls.
        Cost = "cost",
    }
}

/// An open trace that loops, or exceeds a limit.
#[derive(Clone, Debug)]
pub struct LimitAlarm {
    pub cause: AlarmCause,
    /// The span with which it was found.
    pub span: SpanId,
    pub agent: Option<String>,
    pub session: Option<String>,
    pub explanation: String,
    /// The start of the span, in nanoseconds since 1970.
    pub(crate) time: u64,
    pub(crate) envelope: Arc<Envelope>,
}

/// A harmful call of an open trace.
#[derive(Clone, Debug)]
pub struct Alarm {
    /// The span of the call.
    pub span: SpanId,
    /// Why it is harmful: the label of `path.harmful_call`.
    pub reason: &'static str,
    /// The task that does not allow it, and the state that the run was in.
    pub task: String,
    pub state: String,
    pub agent: Option<String>,
    pub session: Option<String>,
    pub explanation: String,
    /// The calls that it is about, by the span of the model that requested each and its place there: a call
    /// is on the model's span until the span of the tool arrives.
    pub(crate) calls: Vec<(SpanId, usize)>,
    /// The start of the span, in nanoseconds since 1970.
    pub(crate) time: u64,
    pub(crate) envelope: Arc<Envelope>,
}

impl Alarm {
    /// Whether both are about one call.
    pub fn is_of_same_call(&self, other: &Alarm) -> bool {
        self.span == other.span || self.calls.iter().any(|call| other.calls.contains(call))
    }
}

/// The state of an alarm when its trace closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlarmMark {
    pub span: SpanId,
    pub state: AlarmState,
}
