//! Judges for commands that ask their own questions, without a trace.
//!
//! In: the configuration and the names of judges in it. Out: answers. Limits, retries, budgets, recordings
//! and redaction are those of the pipeline.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use verdict_eval::{Answer, Ask, Asker, Question, Text};
use verdict_judge::{JudgeExtensions, Judges};
use verdict_otlp::trace::TraceId;

use crate::cli::command::Failure;
use crate::config::Config;
use crate::telemetry::Telemetry;

/// Judges, and the runtime that drives their connections.
pub(super) struct JudgeSession {
    runtime: Runtime,
    judges: Judges,
    names: Vec<String>,
    pub(super) asker: Arc<Asker>,
}

impl JudgeSession {
    /// Each question goes to all the judges `names`.
    ///
    /// # Errors
    /// A judge is not defined, or cannot be used as it is configured.
    pub(super) fn new(config: &Config, names: &[String]) -> Result<JudgeSession, Failure> {
        if let Some(name) = names.iter().find(|name| !config.judges.contains_key(*name)) {
            let known: Vec<&str> = config.judges.keys().map(String::as_str).collect();
            let known = if known.is_empty() {
                "none are defined".to_owned()
            } else {
                format!("defined are {}", known.join(", "))
            };
            return Err(Failure::Usage(format!(
                "judge '{name}' is not defined under 'judges' of the configuration (--config); {known}"
            )));
        }
        let judges = Judges::new(
            &config.judges,
            &config.judging,
            &Telemetry::new().judge,
            &JudgeExtensions::default(),
        )
        .map_err(|e| Failure::Usage(e.to_string()))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::Run(format!("no runtime: {e}")))?;
        let asker = config.verdict.evaluation.settings().map_err(|e| Failure::Usage(e.to_string()))?.asker;
        Ok(JudgeSession { runtime, judges, names: names.to_vec(), asker })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// A text as a judge may read it: redacted and sanitized. Only the parts of a prompt that come from
    /// outside are cleaned: in mode `allow_list` the question itself would be redacted.
    pub(super) fn clean(&self, text: &str) -> String {
        self.asker.clean(text)
    }

    /// Whether a question fits into the context windows of the judges.
    pub(super) fn fits(&self, question: &Question) -> bool {
        self.names.iter().all(|name| self.judges.fits(name, question))
    }

    /// Asks all questions concurrently; the answers are in their order.
    pub(super) fn ask(&self, metric: &'static str, questions: Vec<Question>) -> Vec<Answer> {
        self.ask_about(&Arc::default(), metric, questions)
    }

    /// As [`JudgeSession::ask`], with content of these services, which may be withheld from a judge.
    pub(super) fn ask_about(
        &self,
        services: &Arc<[Text]>,
        metric: &'static str,
        questions: Vec<Question>,
    ) -> Vec<Answer> {
        // One command counts as one trace for budgets.
        let trace = TraceId([0; 16]);
        let asks: Vec<Ask> = questions
            .into_iter()
            .map(|question| {
                let (judges, services) = (self.names.clone(), Arc::clone(services));
                Ask { id: 0, at: 0, metric, question, judges, services }
            })
            .collect();
        let answers = || self.runtime.block_on(join_all(asks.iter().map(|ask| self.judges.ask(trace, ask))));
        // The caller may be inside another runtime, in which `block_on` would panic.
        std::thread::scope(|scope| scope.spawn(answers).join()).unwrap_or_default()
    }
}
