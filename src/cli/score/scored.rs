//! The figures of one run against TRAIL.

use crate::score::counts::Confusion;
use crate::score::trail::Benchmark;
use crate::score::trail::benchmark::Intervals;
use crate::score::trail::ratings::Correlated;

/// Everything that is reported of a run.
pub(super) struct Scored {
    pub(super) figures: Benchmark,
    pub(super) intervals: Intervals,
    pub(super) ratings: [Correlated; 5],
    /// By policy; `None` for somebody else's predictions, which carry no verdict.
    pub(super) roots: Option<[(&'static str, Confusion); 2]>,
    /// Others' figures, by name.
    pub(super) beside: Vec<(String, Benchmark)>,
}
