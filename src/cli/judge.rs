//! Judges for commands that ask questions of their own, without a trace.
//!
//! In: the configuration and the name of a judge in it. Out: answers. Limits, retries, budgets and
//! recordings are the judge's, as in the pipeline.

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};

use super::Failure;
use crate::config::Config;
use crate::judge::{Judges, Whose};
use crate::measure::rounds::Ask;
use crate::measure::{Answer, Question};
use crate::telemetry::Telemetry;
use crate::trace::TraceId;

/// One judge, and what drives its connections.
pub(super) struct Bench {
    runtime: Runtime,
    judges: Judges,
    name: String,
}

impl Bench {
    /// The judge called `name`.
    ///
    /// # Errors
    /// There is none of that name, or it cannot be used as it is configured.
    pub(super) fn new(config: &Config, name: &str) -> Result<Bench, Failure> {
        if !config.judges.contains_key(name) {
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
        Ok(Bench { runtime, judges, name: name.to_owned() })
    }

    /// Answers in the order of the questions, asked side by side.
    pub(super) fn ask(&self, metric: &'static str, questions: Vec<Question>) -> Vec<Answer> {
        // All that one command asks is one account.
        let whose = Whose { trace: TraceId([0; 16]), service: None };
        let asks: Vec<Ask> = questions
            .into_iter()
            .map(|question| Ask { ticket: 0, at: 0, metric, question, judges: vec![self.name.clone()] })
            .collect();
        self.runtime.block_on(join_all(asks.iter().map(|ask| self.judges.ask(&whose, ask))))
    }
}
