//! The section `verdict.metrics.path`: task files, and the thresholds and gates of tasks that set none.

use std::path::PathBuf;
use std::sync::Arc;

use verdict_config::{Problem, settings};

use super::task::{Task, Thresholds};
use crate::measure::metric_names::PathMetric;
use crate::measure::sections::{MetricSettings, Section};
use crate::measure::table::MetricSpec;

settings! {
    /// `path`: measures nothing until a task file is named.
    pub struct PathSettings {
        /// Default true. Has no effect without task files.
        enabled: bool = true,
        /// Default none. Task files (YAML or JSON), relative to the working directory. They are read
        /// when the process starts and when the configuration is reloaded; a problem in one of them
        /// invalidates the whole configuration. `otel-verdict path check` shows problems beforehand.
        tasks: Vec<PathBuf>,
        /// The threshold of each score, for tasks that do not set it.
        thresholds: Thresholds,
        /// Default `[harmful_call]`. The metrics that fail a span, for tasks that do not set them;
        /// the others are measured and pass.
        fail_on: Vec<PathMetric> = vec![PathMetric::HarmfulCall],
        /// The tasks, after their files have been read.
        #[serde(skip)]
        #[schemars(skip)]
        loaded: TaskSet,
    }
}

impl PathSettings {
    /// Whether any path metric is measured.
    pub fn is_on(&self) -> bool {
        self.enabled && !self.tasks.is_empty()
    }
}

impl Section for PathSettings {
    fn settings_for(&self, metric: &str) -> MetricSettings<'_> {
        let metric = PathMetric::ALL.into_iter().find(|candidate| candidate.as_str() == metric);
        let threshold = metric.and_then(|metric| self.thresholds.limit_for(metric, &Thresholds::default()));
        MetricSettings { enabled: self.is_on(), threshold, ..MetricSettings::OFF }
    }

    fn problems(&self, _: &MetricSpec) -> Vec<Problem> {
        let limits = self.thresholds.problems();
        limits.map(|name| Problem::new(format!("thresholds.{name}"), "not between 0 and 1")).collect()
    }
}

/// The loaded tasks, shared by all evaluations.
#[derive(Clone, Debug, Default)]
pub struct TaskSet(Arc<[Task]>);

impl TaskSet {
    pub fn new(tasks: Vec<Task>) -> TaskSet {
        TaskSet(tasks.into())
    }

    /// The tasks, in order.
    pub fn tasks(&self) -> &[Task] {
        &self.0
    }
}

impl PartialEq for TaskSet {
    /// Equal if both come from the same reading of the files.
    fn eq(&self, other: &TaskSet) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.is_empty() && other.0.is_empty()
    }
}
