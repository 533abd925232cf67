//! The section `verdict.metrics.path`: task files, and the thresholds and gates of tasks that set none.

use std::path::PathBuf;
use std::sync::Arc;

use verdict_config::{Invalid, Problem, Source, settings};

use super::load::{LoadedTasks, load};
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
    }
}

impl Section for PathSettings {
    fn settings_for(&self, metric: &str) -> MetricSettings<'_> {
        let metric = PathMetric::ALL.into_iter().find(|candidate| candidate.as_str() == metric);
        let threshold = metric.and_then(|metric| self.thresholds.limit_for(metric, &Thresholds::default()));
        MetricSettings { enabled: self.enabled, threshold, ..MetricSettings::OFF }
    }

    fn problems(&self, _: &MetricSpec) -> Vec<Problem> {
        let limits = self.thresholds.problems();
        limits.map(|name| Problem::new(format!("thresholds.{name}"), "not between 0 and 1")).collect()
    }
}

/// The tasks with whose paths the calls of runs are compared. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TaskSet {
    tasks: Arc<[Task]>,
    warnings: Arc<[String]>,
}

impl TaskSet {
    /// Reads the texts of task files, YAML or JSON, each with a name for messages.
    ///
    /// # Errors
    /// Every problem of every text, with its file, line and key.
    pub fn parse(files: &[Source]) -> Result<TaskSet, Invalid> {
        let LoadedTasks { tasks, warnings } = load(files)?;
        Ok(TaskSet { tasks: tasks.into(), warnings: warnings.into() })
    }

    /// The number of tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there is no task, so that no path is compared.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Warnings about probable mistakes in valid task files, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tasks, in order.
    pub(crate) fn tasks(&self) -> &[Task] {
        &self.tasks
    }
}
