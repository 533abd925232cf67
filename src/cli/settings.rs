//! `validate` and `print-config`: the configuration as text, in and out. Nothing is opened.

use clap::Args;

use crate::cli::config_files::ConfigFiles;
use crate::cli::failure::Failure;
use crate::cli::terminal::{write_stderr, write_stdout};
use crate::config::Config;

pub(super) const VALIDATE: &str = "\
Check a configuration and print everything that is wrong with it.

Reads text only: no socket, folder or other file is opened, so that it can run anywhere, in CI for
example. Every fault is printed at once, one a line, as FILE:LINE:COLUMN: KEY: WHAT. A variable
that is not set and has no default is a fault; what ${file:PATH} names is taken to be there.";

pub(super) const VALIDATE_EXAMPLES: &str = "\
Examples:
  otel-verdict validate --config otel-verdict.yaml
  otel-verdict validate --config base.yaml --config production.yaml

Exit codes:
  0  the configuration can be used
  2  it cannot";

pub(super) const PRINT: &str = "\
Print the configuration in force as YAML: the defaults, and over them every file given.

Secrets and the user part of URLs are shown as [redacted].";

pub(super) const PRINT_EXAMPLES: &str = "\
Examples:
  otel-verdict print-config
  otel-verdict print-config --config otel-verdict.yaml
  otel-verdict print-config --schema > otel-verdict.schema.json

Exit codes:
  0  printed
  2  the configuration cannot be used";

#[derive(Args, Debug)]
pub(super) struct PrintConfig {
    #[command(flatten)]
    config: ConfigFiles,
    /// Print the JSON schema of the configuration instead, for editors
    #[arg(long, conflicts_with = "files")]
    schema: bool,
}

pub(super) fn validate(files: &ConfigFiles) -> Result<(), Failure> {
    crate::config::check(&files.files).map_err(Failure::Config)?;
    write_stderr("the configuration can be used");
    Ok(())
}

pub(super) fn print(args: &PrintConfig) -> Result<(), Failure> {
    let text = if args.schema {
        serde_json::to_string_pretty(&Config::schema()).map_err(|e| Failure::Run(e.to_string()))? + "\n"
    } else {
        args.config.load()?.to_yaml().map_err(Failure::Run)?
    };
    write_stdout(text.as_bytes())
}
