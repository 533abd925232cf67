//! Metrics about the process itself: every one declared once, and the cells of components that are
//! crates of their own. The product registers them and serves them at `/metrics`.
//!
//! | file | what it does |
//! |---|---|
//! | [`declared`] | every self-metric: name, kind, unit, labels, meaning |
//! | `histogram` | the buckets that several metrics share |
//! | `journal`, `judge` | cells of the journal and of judges |
//! | `throttle` | one log line for many |
//!
//! Counting is cheap: cells are resolved once and then cost an atomic addition.

pub mod declared;
pub mod histogram;
mod journal;
mod judge;
mod throttle;

pub use journal::JournalMetrics;
pub use judge::{JudgeCells, JudgeMetrics, QuestionOutcome};
pub use throttle::LogThrottle;
