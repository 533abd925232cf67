//! Common parts of commands: the options `--config` and `--output`, results on standard output, failures.
//!
//! In: options, files of text, a command's result. Out: the configuration, the printed result, and the exit
//! code of a failure.

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;
use verdict_config::Invalid;

use super::input;
use crate::config::Config;

/// The command ran and failed.
const EXIT_FAILED: u8 = 1;
/// Wrong usage, configuration or input. clap exits with the same code.
const EXIT_INVALID: u8 = 2;

/// Largest text file that a command reads: millions of steps or sequences.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// The reason why a command ends early; [`CommandFailure::exit_code`] is its exit code.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandFailure {
    #[error("the configuration cannot be used:\n{0}")]
    Config(Invalid),
    #[error("{0}")]
    Input(#[from] input::Unreadable),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Run(String),
    /// The condition of `--fail-on` was met, which the output already states.
    #[error("")]
    ThresholdMet,
    /// The reader of standard output closed it: no failure.
    #[error("")]
    ClosedPipe,
}

impl CommandFailure {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            CommandFailure::Config(_) | CommandFailure::Input(_) | CommandFailure::Usage(_) => EXIT_INVALID,
            CommandFailure::Run(_) | CommandFailure::ThresholdMet => EXIT_FAILED,
            CommandFailure::ClosedPipe => 0,
        }
    }

    /// A failed write to standard output.
    pub(super) fn stdout(error: &std::io::Error) -> CommandFailure {
        match error.kind() {
            ErrorKind::BrokenPipe => CommandFailure::ClosedPipe,
            _ => CommandFailure::Run(format!("standard output: {error}")),
        }
    }

    /// A file that cannot be read or has the wrong form.
    pub(super) fn file(path: &Path, error: impl std::fmt::Display) -> CommandFailure {
        CommandFailure::Usage(format!("{}: {error}", path.display()))
    }

    /// Failed work, without further context.
    pub(super) fn run(error: impl std::fmt::Display) -> CommandFailure {
        CommandFailure::Run(error.to_string())
    }
}

/// The option `--config`.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct ConfigFiles {
    /// Configuration file (YAML); may be given several times
    ///
    /// Later files override earlier ones key by key: maps merge, lists and scalars replace.
    /// Without any, the defaults apply. `config/reference.yaml` shows every key.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
}

impl ConfigFiles {
    pub(super) fn load(&self) -> Result<Config, CommandFailure> {
        crate::config::load(&self.files).map_err(CommandFailure::Config)
    }
}

/// The option `--output` of commands that print figures.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum FiguresFormat {
    /// A table for people
    #[default]
    Table,
    /// One JSON object
    Json,
}

impl FiguresFormat {
    /// Prints `result` as JSON, or the text that `table` renders.
    pub(super) fn print(
        self,
        result: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> Result<(), CommandFailure> {
        let text = match self {
            FiguresFormat::Table => table(),
            FiguresFormat::Json => to_json(result)?,
        };
        write_stdout(text.as_bytes())
    }
}

/// Indented JSON that ends with a newline.
pub(super) fn to_json(value: &impl Serialize) -> Result<String, CommandFailure> {
    Ok(serde_json::to_string_pretty(value).map_err(CommandFailure::run)? + "\n")
}

/// The text of a file; `-` is standard input.
pub(super) fn read_text(path: &Path) -> Result<String, CommandFailure> {
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().lock().take(MAX_TEXT_BYTES).read_to_string(&mut text).map(|_| text),
        false => crate::bounded_file::read_bounded(path, MAX_TEXT_BYTES),
    };
    read.map_err(|e| CommandFailure::file(path, e))
}

/// One worker per core and at least two, because a blocking disk can occupy one.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CommandFailure> {
    let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    built.map_err(|e| CommandFailure::Run(format!("cannot start the runtime: {e}")))
}

/// Writes a command's result to standard output.
pub(super) fn write_stdout(bytes: &[u8]) -> Result<(), CommandFailure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| CommandFailure::stdout(&e))
}

/// Writes a file that an option names.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), CommandFailure> {
    std::fs::write(path, text).map_err(|e| CommandFailure::Run(format!("{}: {e}", path.display())))
}

/// Writes a line to standard error. A closed standard error does not stop the command.
pub(super) fn write_stderr(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
