//! What `verdict.metrics` says, resolved for use: thresholds, failing labels, switches.

/// Resolved settings of all metrics.
#[derive(Clone, Debug, Default)]
pub struct Settings {}
