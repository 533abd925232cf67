//! What of the configuration may change while the process runs: how traces are evaluated, when they
//! close, which spans are evaluated at all.
//!
//! One value is shared by all shards and replaced as a whole. It is loaded once per request and once per
//! closing trace, so that a trace is evaluated and annotated by one configuration.

use std::sync::Arc;
use std::time::Duration;

use verdict_otlp::trace::CloseReason;

use super::ask_judges::Panel;
use super::evaluator::Evaluator;
use super::path_tasks;
use crate::assemble::Close;
use crate::config::{Mode, Select, Verdict};

#[derive(Debug)]
pub(super) struct RuntimeConfig {
    pub evaluator: Evaluator,
    pub close: Close,
    /// `None`: every span is evaluated.
    pub select: Option<Select>,
    /// Spans are forwarded as they come, and only log events are written about them.
    pub shadow: bool,
    /// The judges, where any are configured.
    pub panel: Option<Arc<dyn Panel>>,
    /// How long a closed trace waits for them.
    pub max_wait: Duration,
}

impl RuntimeConfig {
    /// # Errors
    /// The conventions in `recognise` do not fit together, or a task file cannot be used.
    pub fn new(verdict: &Verdict, panel: Option<Arc<dyn Panel>>) -> Result<RuntimeConfig, String> {
        let shadow = verdict.mode == Mode::Shadow;
        let tasks = path_tasks::read(&verdict.evaluation.metrics.path)?;
        Ok(RuntimeConfig {
            evaluator: Evaluator::builder(&verdict.evaluation)
                .path_tasks(tasks)
                .events_only(shadow)
                .build()
                .map_err(|error| error.to_string())?,
            close: verdict.close.clone(),
            select: (!verdict.select.is_everything()).then(|| verdict.select.clone()),
            shadow,
            panel,
            max_wait: *verdict.max_wait,
        })
    }

    /// The judges to ask about a trace that closed for this reason.
    pub fn panel_for(&self, reason: CloseReason) -> Option<&Arc<dyn Panel>> {
        self.panel.as_ref().filter(|_| self.evaluator.asks(reason))
    }
}
