//! `path check`: problems of task files.
//!
//! In: task files. Out: every problem with its location, warnings, and counts on standard error.

use std::path::PathBuf;

use clap::Args;

use crate::cli::command::{CommandFailure, write_stderr};

pub(super) const LONG_ABOUT: &str = "\
Check task files and print every problem.

All problems are printed at once, one per line, as FILE:LINE:COLUMN: KEY: PROBLEM. A task is refused
for undefined or duplicate symbols and states, an edge listed under a state that it does not
leave, two edges for one symbol out of one state, unreachable states, states without a path to a
final state, no golden path, and cycles of progress. Patterns that match the same call cause a
warning: the first pattern applies.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict path check config/tasks/*.yaml
  otel-verdict path check tasks.json && echo good

Exit codes:
  0  the tasks can be used
  2  they cannot";

#[derive(Args, Debug)]
pub(in crate::cli) struct PathCheckArgs {
    /// Task files (YAML or JSON)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn check(args: &PathCheckArgs) -> Result<(), CommandFailure> {
    let loaded = super::source::load_tasks(&args.files)?;
    for warning in &loaded.warnings {
        write_stderr(&format!("warning: {warning}"));
    }
    let automata = loaded.tasks.iter().map(|task| &task.automaton);
    let states: usize = automata.clone().map(|a| a.states().len()).sum();
    let golden = automata.map(|a| a.golden_path_count()).fold(0, u64::saturating_add);
    let count = |n: u64, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    write_stderr(&format!(
        "{} can be used: {}, {}, {}",
        count(loaded.tasks.len() as u64, "task"),
        count(states as u64, "state"),
        count(golden, "golden path"),
        count(loaded.warnings.len() as u64, "warning")
    ));
    Ok(())
}
