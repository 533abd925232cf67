//! Task files and recorded traces, as all path commands read them.

use std::path::{Path, PathBuf};

use verdict_config::{Source, read_bounded};
use verdict_eval::measure::path::load::{Loaded, load};

use crate::cli::config_files::ConfigFiles;
use crate::cli::failure::Failure;
use crate::cli::{eval, input};
use crate::pipeline::offline::Evaluated;

/// Largest task file: thousands of tasks.
pub(in crate::cli) const MAX_TASKS_BYTES: u64 = 64 << 20;

/// Reads task files.
pub(super) fn tasks(files: &[PathBuf]) -> Result<Loaded, Failure> {
    let sources = files.iter().map(|file| source(file)).collect::<Result<Vec<_>, _>>()?;
    load(&sources).map_err(|faults| Failure::Usage(format!("the tasks cannot be used:\n{faults}")))
}

/// Reads and evaluates recorded traces; `each` gets one at a time.
pub(super) fn traces(
    paths: &[PathBuf],
    config: &ConfigFiles,
    each: &mut dyn FnMut(&Evaluated),
) -> Result<(), Failure> {
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
