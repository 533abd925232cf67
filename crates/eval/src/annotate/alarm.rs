//! Alarms about open traces: harmful calls, which later spans may retract, and loops and exceeded limits.

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
    /// Why an alarm about an open trace was raised, as in `verdict.alarm.cause`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AlarmCause {
        /// Calls are repeated without progress.
        Loop = "loop",
        /// The tokens of model calls exceed the limit.
        Tokens = "tokens",
        /// The cost of model calls exceeds the limit.
        Cost = "cost",
    }
}

/// The report that an open trace loops or exceeds a limit.
#[derive(Clone, Debug)]
pub struct LimitAlarm {
    pub cause: AlarmCause,
    /// The span that exceeded the limit, or the last repeated call.
    pub span: SpanId,
    pub agent: Option<String>,
    pub session: Option<String>,
    pub explanation: String,
    /// The start of the span, in nanoseconds since 1970.
    pub(crate) time: u64,
    pub(crate) envelope: Arc<Envelope>,
}

/// The report of a harmful call of an open trace.
#[derive(Clone, Debug)]
pub struct Alarm {
    /// The span of the call.
    pub span: SpanId,
    /// Why the call is harmful: the label of `path.harmful_call`.
    pub reason: &'static str,
    /// The task that does not allow the call.
    pub task: String,
    /// The state of the run at the call.
    pub state: String,
    pub agent: Option<String>,
    pub session: Option<String>,
    pub explanation: String,
    /// The reported calls, each as the span of the model that requested it and its index among the requests of that
    /// span: until the span of the tool arrives, the alarm is on the span of the model.
    pub(crate) calls: Vec<(SpanId, usize)>,
    /// The start of the span, in nanoseconds since 1970.
    pub(crate) time: u64,
    pub(crate) envelope: Arc<Envelope>,
}

impl Alarm {
    /// The keys of the alarm. Two alarms are about one call if they share a key. Alarms are compared by sets of keys,
    /// since a run can have as many alarms as calls.
    pub fn keys(&self) -> impl Iterator<Item = (SpanId, Option<usize>)> {
        let calls = self.calls.iter().map(|(model, request_index)| (*model, Some(*request_index)));
        std::iter::once((self.span, None)).chain(calls)
    }
}

/// The state of an alarm when its trace closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlarmMark {
    pub span: SpanId,
    pub state: AlarmState,
}

#[cfg(test)]
mod tests {
    use foldhash::HashSet;

    use super::*;

    fn id(n: usize) -> SpanId {
        SpanId(u64::try_from(n).unwrap().to_be_bytes())
    }

    fn alarm(span: usize, calls: Vec<(SpanId, usize)>) -> Alarm {
        Alarm {
            span: id(span),
            reason: "other_function",
            task: String::new(),
            state: String::new(),
            agent: None,
            session: None,
            explanation: String::new(),
            calls,
            time: 0,
            envelope: Arc::default(),
        }
    }

    #[test]
    fn alarms_of_one_call_share_the_span_or_a_requested_call() {
        let model_alarm = alarm(1, vec![(id(7), 0), (id(7), 1)]);
        let known_keys: HashSet<_> = model_alarm.keys().chain(alarm(2, Vec::new()).keys()).collect();
        for (alarm, expected) in [
            (alarm(1, Vec::new()), true),
            // The span of the tool has arrived.
            (alarm(3, vec![(id(7), 1)]), true),
            (alarm(2, vec![(id(9), 0)]), true),
            (alarm(3, vec![(id(7), 2), (id(8), 0)]), false),
            (alarm(7, Vec::new()), false),
        ] {
            assert_eq!(alarm.keys().any(|key| known_keys.contains(&key)), expected, "{alarm:?}");
        }
    }
}
