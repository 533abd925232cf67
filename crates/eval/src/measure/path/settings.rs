//! What `verdict.metrics.path` says: which task files, and what fails a trace where a task does not
//! say so itself.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

use super::task::{Gate, Task, Thresholds};
use crate::measure::settings::sections::{MetricSettings, Section};

/// `path`: nothing is measured until a task file is named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Default true; without task files nothing is measured all the same.
    pub enabled: bool,
    /// Default none. Task files (YAML or JSON), relative to the working directory. They are read
    /// when the process starts and when the configuration is read again; a fault in one of them
    /// makes the whole configuration unusable. `otel-verdict path check` shows faults beforehand.
    pub tasks: Vec<PathBuf>,
    /// What each score must reach, where the task does not say so.
    pub thresholds: Thresholds,
    /// Default `[harmful_call]`. Which of them fail their span, where the task does not say so; the
    /// rest is measured and passes.
    pub fail_on: Vec<Gate>,
    /// The tasks themselves, once their files have been read.
    #[serde(skip)]
    #[schemars(skip)]
    pub loaded: TaskSet,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            enabled: true,
            tasks: Vec::new(),
            thresholds: Thresholds::default(),
            fail_on: vec![Gate::HarmfulCall],
            loaded: TaskSet::default(),
        }
    }
}

impl Settings {
    /// Whether anything is to be measured.
    pub fn is_on(&self) -> bool {
        self.enabled && !self.tasks.is_empty()
    }
}

impl Section for Settings {
    fn of(&self, _: &str) -> MetricSettings<'_> {
        MetricSettings { enabled: self.is_on(), ..MetricSettings::OFF }
    }

    fn problems(&self) -> Vec<Problem> {
        let limits = self.thresholds.problems();
        limits.map(|name| Problem::new(format!("thresholds.{name}"), "not between 0 and 1")).collect()
    }
}

/// Tasks that are ready to judge; shared by all who judge.
#[derive(Clone, Debug, Default)]
pub struct TaskSet(Arc<[Task]>);

impl TaskSet {
    /// Of these tasks.
    pub fn new(tasks: Vec<Task>) -> TaskSet {
        TaskSet(tasks.into())
    }

    /// The tasks, in order.
    pub fn tasks(&self) -> &[Task] {
        &self.0
    }
}

impl PartialEq for TaskSet {
    /// The same as long as it is the same reading of the files.
    fn eq(&self, other: &TaskSet) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.is_empty() && other.0.is_empty()
    }
}
