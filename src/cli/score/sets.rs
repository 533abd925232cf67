//! `--set NAME TRACES LABELS`: several labelled sets in one command.
//!
//! In: names and paths. Out: each evaluated trace that has labels, with the number of its set.

use std::path::{Path, PathBuf};

use clap::Args;

use super::labels;
use crate::cli::command::{CommandFailure, ConfigFiles, FiguresFormat, write_stderr};
use crate::cli::judge::options::JudgeOptions;
use crate::cli::judge::run::JudgeRun;
use crate::cli::recording::{self, OtherFiles};
use crate::pipeline::offline::EvaluatedRecording;
use crate::score::labels::TraceLabels;

#[derive(Args, Debug)]
pub(in crate::cli) struct Sets {
    /// A labelled set: its name, its traces as 'eval' reads them, and its labels; may be given several times
    #[arg(long = "set", num_args = 3, value_names = ["NAME", "TRACES", "LABELS"], required = true)]
    sets: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: FiguresFormat,
    #[command(flatten)]
    judges: JudgeOptions,
    #[command(flatten)]
    config: ConfigFiles,
}

impl Sets {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.sets.iter().step_by(3).map(String::as_str)
    }

    /// Evaluates every labelled trace; `on_trace` gets the number of its set. Returns the judges, for the output.
    pub(super) fn evaluate(
        &self,
        mut on_trace: impl FnMut(usize, &EvaluatedRecording, &TraceLabels),
    ) -> Result<JudgeRun, CommandFailure> {
        let config = self.config.load()?;
        let run = JudgeRun::start(&self.judges, &config, false)?;
        for (number, set) in self.sets.chunks_exact(3).enumerate() {
            let [name, traces, labels_path] = set else { continue };
            let mut labels = labels::read_labels(Path::new(labels_path))?;
            let labelled_traces = labels.len();
            recording::evaluate_at_end(
                &config,
                &[PathBuf::from(traces)],
                OtherFiles::Skip,
                &run,
                |evaluated| {
                    if let Some(labels) = labels.remove(&evaluated.trace.trace.tree.id.to_string()) {
                        on_trace(number, &evaluated, &labels);
                    }
                },
            )?;
            if labels.len() == labelled_traces {
                return Err(CommandFailure::Usage(format!("set {name}: no trace of {traces} has labels")));
            }
            if let Some(first) = labels.keys().next() {
                let missing = labels.len();
                write_stderr(&format!(
                    "set {name}: {missing} labelled traces are not in the input, first {first}"
                ));
            }
        }
        Ok(run)
    }
}
