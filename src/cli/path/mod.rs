//! `path`: allowed paths of calls as task files - checked, scored, drawn, learnt.
//!
//! In: task files, sequences of symbols, recorded traces. Out: faults with their places, scores as
//! JSON, an automaton as DOT or SVG, a task file for a person to review.

mod check;
mod draw;
mod learn;
mod picture;
mod score;
mod show;

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::{ConfigFiles, Failure, eval, input};
use crate::pipeline::offline::Evaluated;
use verdict_config::{Source, read_bounded};
use verdict_eval::measure::path::load::{Loaded, load};

pub(super) const LONG: &str = "\
Hold the calls of agents against the paths that their task allows.

A task file says which tool calls a task is about, and in which order they may come: an automaton
written by a person, or learnt from good traces and reviewed. 'run' and 'eval' use task files that
the configuration names under verdict.metrics.path.tasks; these commands work on the files
themselves. config/tasks holds examples.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict path check config/tasks/*.yaml
  otel-verdict path score tasks.json sequences.json
  otel-verdict path show config/tasks/rover.yaml > rover.svg
  otel-verdict path learn recordings/ > draft.yaml
  otel-verdict help path score

Exit codes:
  0  done
  2  a task file or an input that cannot be used";

#[derive(Subcommand, Debug)]
pub(super) enum PathCommand {
    /// Check task files and print everything that is wrong with them
    #[command(long_about = check::LONG, after_long_help = check::EXAMPLES)]
    Check(check::Check),

    /// Score sequences of symbols against their tasks
    #[command(long_about = score::LONG, after_long_help = score::EXAMPLES)]
    Score(score::Score),

    /// Draw a task's automaton, and what a run did on it
    #[command(long_about = show::LONG, after_long_help = show::EXAMPLES)]
    Show(show::Show),

    /// Infer a task from recorded runs that passed, for a person to review
    #[command(long_about = learn::LONG, after_long_help = learn::EXAMPLES)]
    Learn(learn::Learn),
}

pub(super) fn path(command: &PathCommand) -> Result<(), Failure> {
    match command {
        PathCommand::Check(args) => check::check(args),
        PathCommand::Score(args) => score::score(args),
        PathCommand::Show(args) => show::show(args),
        PathCommand::Learn(args) => learn::learn(args),
    }
}

/// Largest task file: thousands of tasks.
pub(super) const MAX_TASKS_BYTES: u64 = 64 << 20;

fn tasks(files: &[PathBuf]) -> Result<Loaded, Failure> {
    let sources = files.iter().map(|file| source(file)).collect::<Result<Vec<_>, _>>()?;
    load(&sources).map_err(|faults| Failure::Usage(format!("the tasks cannot be used:\n{faults}")))
}

/// Reads and judges recorded traces; `each` hears of one at a time.
fn traces(paths: &[PathBuf], config: &ConfigFiles, each: &mut dyn FnMut(&Evaluated)) -> Result<(), Failure> {
    let config = config.load()?;
    eval::each(&config, &input::find(paths)?, |evaluated| each(&evaluated))
}

fn source(file: &Path) -> Result<Source, Failure> {
    let name = file.display().to_string();
    match read_bounded(file, MAX_TASKS_BYTES) {
        Ok(text) => Ok(Source { name, text }),
        Err(why) => Err(Failure::Usage(format!("{name}: {why}"))),
    }
}
