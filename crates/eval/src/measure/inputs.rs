//! What metrics that ask judges read.

use super::Settings;
use super::measurement::Measurement;
use crate::recognise::AgentTrace;

/// The input of the metrics that ask judges.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The whole trace (or what is there of it).
    pub trace: &'a AgentTrace,
    /// Thresholds, switches, judges.
    pub settings: &'a Settings,
    /// What the rules measured, by span.
    pub rules: &'a [Measurement],
}
