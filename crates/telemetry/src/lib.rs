//! Self-metrics: the declaration of each, and the metrics of the journal and of judges, which are crates
//! of their own. The product registers all of them and serves them at `/metrics`.
//!
//! | file | content |
//! |---|---|
//! | [`declared`] | every self-metric: name, kind, unit, labels, description |
//! | [`histogram`] | buckets that several metrics share |
//! | `registered` | structs of registered metrics |
//! | `journal`, `judge` | metrics of the journal and of judges |
//! | `throttle` | the limit on repeated log lines |
//!
//! A cell is the metric of one combination of label values. Cells are looked up once; after that each count is an
//! atomic addition.

#![deny(unreachable_pub)]

/// The `tracing` target of the spans that the process records about itself. Only the exporter of `service.telemetry`
/// reads these spans; without it they are not opened.
pub const SELF_TARGET: &str = "otel_verdict::self";

/// The instrumentation scope of the spans of [`SELF_TARGET`], and of self-metrics as OTLP. Spans with this scope are
/// never evaluated.
pub const SELF_SCOPE: &str = "otel-verdict.self";

pub mod declared;
pub mod histogram;
mod journal;
mod judge;
mod registered;
mod throttle;

pub use journal::JournalMetrics;
pub use judge::{CascadeCells, CascadeResult, JudgeCells, JudgeMetrics, QuestionOutcome};
pub use throttle::LogThrottle;
