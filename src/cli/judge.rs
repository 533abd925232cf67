//! Judges for commands that ask questions of their own, without a trace.
//!
//! In: the configuration and the names of judges in it. Out: answers. Limits, retries, budgets and
//! recordings are the judges', as in the pipeline, and so is what `verdict.redact` takes out of a
//! text before one reads it.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};

use crate::cli::failure::Failure;
use crate::config::Config;
use crate::telemetry::Telemetry;
use verdict_eval::measure::ask::Asker;
use verdict_eval::measure::question_rounds::Ask;
use verdict_eval::measure::{Answer, Question};
use verdict_judge::Judges;
use verdict_otlp::trace::TraceId;

/// Judges, and what drives their connections.
pub(super) struct Bench {
    runtime: Runtime,
    judges: Judges,
    names: Vec<String>,
    asker: Arc<Asker>,
}

impl Bench {
    /// The judges called `names`: each question goes to all of them.
    ///
    /// # Errors
    /// There is none of such a name, or it cannot be used as it is configured.
    pub(super) fn new(config: &Config, names: &[String]) -> Result<Bench, Failure> {
        if let Some(name) = names.iter().find(|name| !config.judges.contains_key(*name)) {
            let known: Vec<&str> = config.judges.keys().map(String::as_str).collect();
            let known = if known.is_empty() {
                "none is".to_owned()
            } else {
                format!("there are {}", known.join(", "))
            };
            return Err(Failure::Usage(format!(
                "there is no judge '{name}' under 'judges' of the configuration; {known}. Give it with --config"
            )));
        }
        let judges = Judges::new(&config.judges, &config.judging, &Telemetry::new().judge)
            .map_err(|e| Failure::Usage(e.to_string()))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::Run(format!("no runtime: {e}")))?;
        let asker = config.verdict.evaluation.settings().map_err(Failure::Usage)?.asker;
        Ok(Bench { runtime, judges, names: names.to_vec(), asker })
    }

    /// A text as a judge may read it: without what `verdict.redact` names, and harmless. Whoever
    /// writes a prompt cleans what goes into it; our own words around that are not cleaned, which in
    /// mode `allow_list` would take them out.
    pub(super) fn clean(&self, text: &str) -> String {
        self.asker.clean(text)
    }

    /// Answers in the order of the questions, asked side by side.
    pub(super) fn ask(&self, metric: &'static str, questions: Vec<Question>) -> Vec<Answer> {
        // All that one command asks is one account.
        let trace = TraceId([0; 16]);
        let asks: Vec<Ask> = questions
            .into_iter()
            .map(|question| {
                let (judges, services) = (self.names.clone(), Arc::default());
                Ask { ticket: 0, at: 0, metric, question, judges, services }
            })
            .collect();
        self.runtime.block_on(join_all(asks.iter().map(|ask| self.judges.ask(trace, ask))))
    }
}
