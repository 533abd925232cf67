//! The input of the metrics that ask judges.

use super::Settings;
use super::measurement::Measurement;
use crate::recognise::AgentTrace;

/// A trace, the settings, and the measurements by rules.
#[derive(Clone, Copy)]
pub(crate) struct JudgeInputs<'a> {
    /// The trace as far as it has arrived.
    pub trace: &'a AgentTrace,
    pub settings: &'a Settings,
    /// Ordered by span.
    pub rule_measurements: &'a [Measurement],
}
