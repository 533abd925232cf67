//! `path`: checks, scores, draws and learns task files, which define allowed paths of calls, and reports runs.
//!
//! In: task files, sequences of symbols, recorded traces. Out: problems with their locations, scores as
//! JSON, an automaton as DOT or SVG, a task file for review, distributions of scores.

mod check;
mod draw;
mod learn;
mod picture;
mod report;
mod score;
mod show;
mod source;

use clap::Subcommand;

use crate::cli::command::{CommandFailure, write_stdout};

pub(super) const LONG_ABOUT: &str = "\
Compare the calls of agents with the paths that their task allows.

A task file defines the tool calls of a task and the order in which they may occur: an automaton
written by a person, or learnt from good traces and reviewed. 'run' and 'eval' use task files that
the configuration names under verdict.metrics.path.tasks; these commands work on the files
themselves. config/tasks holds examples.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict path check config/tasks/*.yaml
  otel-verdict path score tasks.json sequences.json
  otel-verdict path show config/tasks/rover.yaml > rover.svg
  otel-verdict path learn recordings/ > draft.yaml
  otel-verdict path report -c config/paths.yaml recordings/
  otel-verdict help path score

Exit codes:
  0  done
  1  'report': a score regressed
  2  a task file or an input that cannot be used";

#[derive(Subcommand, Debug)]
pub(super) enum PathCommand {
    /// Check task files and print every problem
    #[command(long_about = check::LONG_ABOUT, after_long_help = check::EXAMPLES)]
    Check(check::PathCheckArgs),

    /// Score sequences of symbols against their tasks
    #[command(long_about = score::LONG_ABOUT, after_long_help = score::EXAMPLES)]
    Score(score::PathScoreArgs),

    /// Draw a task's automaton and the steps of a run
    #[command(long_about = show::LONG_ABOUT, after_long_help = show::EXAMPLES)]
    Show(show::PathShowArgs),

    /// Infer a task from recorded runs that passed, for review
    #[command(long_about = learn::LONG_ABOUT, after_long_help = learn::EXAMPLES)]
    Learn(learn::PathLearnArgs),

    /// Print the JSON schema of task files, for editors
    Schema,

    /// Report distributions of path scores over recorded runs; a gate against an earlier report
    #[command(long_about = report::LONG_ABOUT, after_long_help = report::EXAMPLES)]
    Report(report::PathReportArgs),
}

pub(super) fn path(command: &PathCommand) -> Result<(), CommandFailure> {
    match command {
        PathCommand::Check(args) => check::check(args),
        PathCommand::Score(args) => score::score(args),
        PathCommand::Show(args) => show::show(args),
        PathCommand::Learn(args) => learn::learn(args),
        PathCommand::Schema => {
            let text = serde_json::to_string_pretty(&verdict_eval::path::schema()).unwrap_or_default();
            write_stdout(format!("{text}\n").as_bytes())
        }
        PathCommand::Report(args) => report::report(args),
    }
}
