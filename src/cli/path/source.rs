//! Task files as all path commands read them.
//!
//! In: paths. Out: the tasks of all files, or every problem in them.

use std::path::PathBuf;

use verdict_config::Source;
use verdict_eval::path::{LoadedTasks, PathToken, Task, Transition, Walk, load};

use crate::cli::command::{CommandFailure, read_text};

/// The walk of a run that is given as symbols, and the transition of each call.
pub(super) fn walk_symbols(task: &Task, symbols: &[String]) -> (Walk, Vec<Transition>) {
    let mut walk = Walk::new(&task.automaton);
    let step = |(i, name): (usize, &String)| {
        let token = task.automaton.symbol(name).map_or(PathToken::Foreign(i as u32), PathToken::Symbol);
        walk.push(&task.automaton, token)
    };
    let steps = symbols.iter().enumerate().map(step).collect();
    (walk, steps)
}

pub(super) fn load_tasks(files: &[PathBuf]) -> Result<LoadedTasks, CommandFailure> {
    let source = |file: &PathBuf| Ok(Source { name: file.display().to_string(), text: read_text(file)? });
    let sources = files.iter().map(source).collect::<Result<Vec<_>, CommandFailure>>()?;
    load(&sources).map_err(|problems| CommandFailure::Usage(format!("the tasks cannot be used:\n{problems}")))
}
