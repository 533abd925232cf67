//! Judges for commands that ask their own questions, without a trace.
//!
//! In: the configuration and the names of judges in it. Out: answers. Limits, retries, budgets, recordings
//! and redaction are those of the pipeline.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use tokio::runtime::Handle;
use verdict_eval::Asker;
use verdict_eval::metrics::Settings;
use verdict_eval::questions::{Answer, Ask, Question, QuestionContext};
use verdict_eval::trace::Text;
use verdict_judge::Judges;
use verdict_otlp::trace::TraceId;

use super::report::Outcomes;
use super::run::{JudgeRun, lock};
use crate::cli::command::CommandFailure;
use crate::config::Config;

/// Some judges of a command, which answer its own questions.
pub(in crate::cli) struct JudgeSession {
    runtime: Handle,
    judges: Judges,
    names: Vec<String>,
    outcomes: Arc<Mutex<Outcomes>>,
    pub(in crate::cli) asker: Arc<Asker>,
}

impl JudgeSession {
    /// Each question goes to all the judges `names`. `run` must have been started with `has_own_questions`,
    /// and must outlive the session.
    ///
    /// # Errors
    /// A judge is not defined.
    pub(in crate::cli) fn new(
        run: &JudgeRun,
        config: &Config,
        names: &[String],
    ) -> Result<JudgeSession, CommandFailure> {
        if let Some(name) = names.iter().find(|name| !config.has_judge(name)) {
            let defined_judges: Vec<&str> = config.judge_names().collect();
            let hint = if defined_judges.is_empty() {
                "none are defined".to_owned()
            } else {
                format!("defined are {}", defined_judges.join(", "))
            };
            return Err(CommandFailure::Usage(format!(
                "judge '{name}' is not defined under 'judges' of the configuration (--config); {hint}"
            )));
        }
        let judges = run.judges().cloned();
        let judges = judges.ok_or_else(|| CommandFailure::Usage("no judge is configured".to_owned()))?;
        let settings =
            Settings::new(&config.verdict.evaluation).map_err(|e| CommandFailure::Usage(e.to_string()))?;
        let (runtime, outcomes) = (run.handle().clone(), Arc::clone(run.outcomes()));
        Ok(JudgeSession { runtime, judges, names: names.to_vec(), outcomes, asker: settings.asker })
    }

    pub(in crate::cli) fn names(&self) -> &[String] {
        &self.names
    }

    /// A text as a judge may read it: redacted and sanitized. Only the parts of a prompt that come from
    /// outside are cleaned: in mode `allow_list` the question itself would be redacted.
    pub(in crate::cli) fn clean(&self, text: &str) -> String {
        self.asker.clean(text)
    }

    /// Whether a question fits into the context windows of the judges.
    pub(in crate::cli) fn fits(&self, question: &Question) -> bool {
        self.names.iter().all(|name| self.judges.fits(name, question))
    }

    /// Asks all questions concurrently; the answers are in their order.
    pub(in crate::cli) fn ask(&self, metric: &'static str, questions: Vec<Question>) -> Vec<Answer> {
        self.ask_about(&Arc::default(), metric, questions)
    }

    /// Asks one judge of the configuration.
    pub(in crate::cli) fn ask_judge(
        &self,
        name: &str,
        metric: &'static str,
        question: Question,
    ) -> Option<Answer> {
        let session = JudgeSession {
            runtime: self.runtime.clone(),
            judges: self.judges.clone(),
            names: vec![name.to_owned()],
            outcomes: Arc::clone(&self.outcomes),
            asker: Arc::clone(&self.asker),
        };
        session.ask(metric, vec![question]).pop()
    }

    /// Like [`JudgeSession::ask`], with content of these services, which may be withheld from a judge.
    pub(in crate::cli) fn ask_about(
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
                Ask { id: 0, at: 0, metric, question, judges, services, context: QuestionContext::default() }
            })
            .collect();
        let answers = || self.runtime.block_on(join_all(asks.iter().map(|ask| self.judges.ask(trace, ask))));
        // The caller may be inside another runtime, in which `block_on` would panic.
        let answers = std::thread::scope(|scope| scope.spawn(answers).join()).unwrap_or_default();
        let mut outcomes = lock(&self.outcomes);
        answers
            .iter()
            .for_each(|answer| outcomes.add_question(metric, answer.opinions.as_ref().err().copied()));
        drop(outcomes);
        answers
    }
}
