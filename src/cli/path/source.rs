//! Task files as all path commands read them.
//!
//! In: paths. Out: the tasks of all files, or every fault in them.

use std::path::PathBuf;

use verdict_config::Source;
use verdict_eval::path::{LoadedTasks, load};

use crate::cli::command::{Failure, read_text};

pub(super) fn tasks(files: &[PathBuf]) -> Result<LoadedTasks, Failure> {
    let source = |file: &PathBuf| Ok(Source { name: file.display().to_string(), text: read_text(file)? });
    let sources = files.iter().map(source).collect::<Result<Vec<_>, Failure>>()?;
    load(&sources).map_err(|faults| Failure::Usage(format!("the tasks cannot be used:\n{faults}")))
}
