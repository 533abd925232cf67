//! The extensions of a program that embeds the product: metrics, judge dialects, judge providers and exporters.
//!
//! In: implementations of the traits of the crates. Out: one value for [`config::load_with`],
//! [`Service::start_with`] and [`RecordingEvaluation::with_extensions`]; the service applies it again at every reload.
//! `docs/embedding.md` has an example.
//!
//! [`config::load_with`]: crate::config::load_with
//! [`RecordingEvaluation::with_extensions`]: crate::pipeline::offline::RecordingEvaluation::with_extensions
//! [`Service::start_with`]: crate::pipeline::service::Service::start_with

use verdict_eval::metrics::CustomMetric;
use verdict_judge::JudgeExtensions;

use crate::export::ExportClients;

/// Additions to the built-in metrics, judges and exporters. The default adds nothing.
#[derive(Clone, Debug, Default)]
pub struct Extensions {
    /// Metrics, with their settings. Judges that these name must be configured or provided.
    pub metrics: Vec<CustomMetric>,
    /// Dialects of judges' HTTP APIs, and providers that answer in place of an HTTP API.
    pub judges: JudgeExtensions,
    /// Clients of exporters of type `custom`, by the exporters' ids.
    pub exporters: ExportClients,
}
