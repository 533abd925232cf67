//! Metrics of an embedding program or a remote evaluator, each with its row and settings.

use std::fmt;
use std::sync::Arc;

use super::rule::Rule;
use super::sections::{RULES_NAME, Scored};
use super::{Answer, Context, Metric, MetricProgress, MetricSpec};

/// A metric that an embedding program or a remote evaluator adds.
#[derive(Clone)]
pub struct CustomMetric {
    /// The name and scale of the metric.
    pub row: &'static MetricSpec,
    /// The threshold, and the judges that the metric asks.
    pub settings: Scored,
    pub(crate) metric: Arc<dyn Metric>,
}

impl CustomMetric {
    /// A custom metric. If `settings` name judges, its first step may ask questions. Otherwise it runs with the rules,
    /// and its questions are not asked.
    pub fn new(
        row: &'static MetricSpec,
        mut settings: Scored,
        metric: impl Metric + 'static,
    ) -> CustomMetric {
        if settings.judges.is_empty() {
            settings.judges.push(RULES_NAME.to_owned());
        }
        CustomMetric { row, settings, metric: Arc::new(metric) }
    }

    /// The names of the judges that the metric asks.
    pub fn named_judges(&self) -> impl Iterator<Item = &str> {
        self.settings.judges.iter().map(String::as_str).filter(|judge| *judge != RULES_NAME)
    }
}

impl Rule for CustomMetric {}

impl Metric for CustomMetric {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        match self.metric.step(context, answers) {
            MetricProgress::Done(mut measurements) => {
                // A measurement with another name would have no scale and no settings, or those of another metric.
                measurements.iter_mut().for_each(|measurement| measurement.metric = self.row.name);
                MetricProgress::Done(measurements)
            }
            ask => ask,
        }
    }

    fn early_step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        self.metric.early_step(context, answers)
    }
}

impl fmt::Debug for CustomMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.row.fmt(f)
    }
}
