//! What is written about a trace and its measurements, and how much of it.

use verdict_otlp::trace::CloseReason;

use crate::measure::{Measurement, Unmeasured, Usage};

/// Longest array written, of ids or names: a trace with thousands of failures does not make
/// thousands of values of one attribute.
pub(crate) const MAX_ITEMS: usize = 100;
/// Longest explanation, in bytes: enough for a rationale and its quote.
pub(crate) const MAX_EXPLANATION: usize = 1024;

/// The facts of a closed trace that are written with its verdicts.
#[derive(Clone, Copy, Debug)]
pub struct TraceSummary {
    /// Why it closed.
    pub reason: CloseReason,
    /// Which verdict of this trace it is, from 1.
    pub revision: u32,
    /// The trace's verdict. For late spans it counts what came before, too.
    pub passed: Option<bool>,
    /// It is the first verdict, or another than the one before.
    pub changed: bool,
    /// The root, or a named parent, has not come.
    pub incomplete: bool,
    /// When the verdict was made, in nanoseconds since 1970.
    pub now: u64,
    /// Why nothing of the trace was measured, where that has one reason.
    pub unmeasured: Option<Unmeasured>,
    /// What the judges took; `None` where none was to be asked.
    pub usage: Option<Usage>,
}

/// A measurement with its explanation, where one is written.
#[derive(Clone, Copy)]
pub(super) struct ExplainedMeasurement<'a> {
    pub measurement: &'a Measurement,
    pub explanation: Option<&'a str>,
}
