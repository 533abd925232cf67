//! The facts that are written about a trace and its measurements, and their limits.

use verdict_otlp::trace::CloseReason;

use super::alarm::AlarmMark;
use super::config::Emission;
use crate::measure::{Measurement, Unmeasured, Usage};
use crate::propagate::Verdicts;
use crate::recognise::AgentTrace;

/// Maximum length of an array of ids or names.
pub(crate) const MAX_ITEMS: usize = 100;
/// Maximum length of an explanation in bytes: enough for a rationale with its quote.
pub(crate) const MAX_EXPLANATION: usize = 1024;

/// The facts of a closed trace that are written with its verdicts.
#[derive(Clone, Copy, Debug)]
pub struct TraceSummary {
    pub close_reason: CloseReason,
    /// The number of the trace's verdict, from 1.
    pub revision: u32,
    /// The trace's verdict. Of late spans, combined with the earlier verdict.
    pub passed: Option<bool>,
    /// Whether this is the first verdict of the trace or differs from the previous one.
    pub changed: bool,
    /// The root, or a parent that some span names, has not arrived.
    pub incomplete: bool,
    /// The time of the verdict in nanoseconds since 1970.
    pub now: u64,
    /// Why the trace has no verdict, if there is one reason.
    pub unmeasured_reason: Option<Unmeasured>,
    /// The usage of judges; `None` if no judge was to be asked.
    pub usage: Option<Usage>,
}

/// A measurement with its explanation, if one is written.
#[derive(Clone, Copy)]
pub(super) struct ExplainedMeasurement<'a> {
    pub measurement: &'a Measurement,
    pub explanation: Option<&'a str>,
}

/// An evaluated trace and the settings of its annotation.
#[derive(Clone, Copy)]
pub(crate) struct Annotator<'a> {
    pub(crate) trace: &'a AgentTrace,
    pub(crate) measurements: &'a [Measurement],
    pub(crate) verdicts: &'a Verdicts,
    pub(crate) summary: &'a TraceSummary,
    /// Alarms that were raised while the trace was open.
    pub(crate) alarms: &'a [AlarmMark],
    pub(crate) emission: &'a Emission,
}
