//! `validate` and `print-config`: the configuration as text.
//!
//! In: configuration files. Out: problems, or the effective configuration as YAML, or its JSON schema.

use clap::Args;

use crate::cli::command::{CommandFailure, ConfigFiles, to_json, write_stderr, write_stdout};
use crate::config::Config;

pub(super) const VALIDATE_LONG_ABOUT: &str = "\
Check a configuration and print every problem.

Reads only the given files and opens no socket, folder or other file, so that it can run
anywhere, in CI for example. All problems are printed at once, one per line, as FILE:LINE:COLUMN:
KEY: PROBLEM. A variable that is not set and has no default is a problem; files named by
${file:PATH} are assumed to exist. Settings that are valid and rarely meant are printed as warnings.";

pub(super) const VALIDATE_EXAMPLES: &str = "\
Examples:
  otel-verdict validate --config otel-verdict.yaml
  otel-verdict validate --config base.yaml --config production.yaml

Exit codes:
  0  the configuration can be used
  2  it cannot";

pub(super) const PRINT_LONG_ABOUT: &str = "\
Print the effective configuration as YAML: the defaults, overridden by the given files.

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
pub(super) struct PrintConfigArgs {
    #[command(flatten)]
    config: ConfigFiles,
    /// Print the JSON schema of the configuration instead, for editors
    #[arg(long, conflicts_with = "files")]
    schema: bool,
}

pub(super) fn validate(files: &ConfigFiles) -> Result<(), CommandFailure> {
    let config = crate::config::check(&files.files).map_err(CommandFailure::Config)?;
    config.warnings().iter().for_each(|warning| write_stderr(&format!("warning: {warning}")));
    write_stderr("the configuration can be used");
    Ok(())
}

pub(super) fn print(args: &PrintConfigArgs) -> Result<(), CommandFailure> {
    let text = if args.schema {
        to_json(&Config::schema())?
    } else {
        args.config.load()?.to_yaml().map_err(CommandFailure::run)?
    };
    write_stdout(text.as_bytes())
}
