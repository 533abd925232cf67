//! The command line: one file a command, and what they share.
//!
//! In: arguments. Out: an exit code; results on standard output, everything else on standard
//! error. Exit codes are the same everywhere: 0 done, 1 it did not go well (or `--fail-on` was
//! met), 2 wrong usage, wrong configuration or unreadable input.

mod compare;
mod consistency;
mod demo;
mod eval;
mod input;
mod judge;
mod plan;
mod path;
mod replay;
mod report;
mod run;
mod score;
mod settings;
mod watch;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::Config;
use verdict_config::Invalid;

/// Did not go well.
const FAILED: u8 = 1;
/// Wrong usage, configuration or input. Also what clap exits with.
const WRONG: u8 = 2;

/// Verdicts on AI agents inside the OpenTelemetry pipeline.
///
/// Takes OTLP traces of AI agents, judges what each model call, tool call and agent did, and
/// sends the same spans on with `verdict.*` attributes. No span is lost and none is changed.
#[derive(Debug, Parser)]
#[command(
    name = "otel-verdict",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Start with 'otel-verdict demo'.",
    after_long_help = SHARED
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const SHARED: &str = "\
Exit codes:
  0  done
  1  it did not go well, or what --fail-on names was met
  2  wrong usage, wrong configuration, or unreadable input

Environment:
  NO_COLOR    no colour, wherever set
  Any variable that the configuration names as ${env:NAME} or ${env:NAME:-default}

Start with 'otel-verdict demo'; then 'otel-verdict run', and point an agent's OTLP exporter at
127.0.0.1:4317 (gRPC) or 127.0.0.1:4318 (HTTP).";

#[derive(Debug, Subcommand)]
enum Command {
    /// Receive OTLP, judge, and send on
    #[command(long_about = run::LONG, after_long_help = run::EXAMPLES)]
    Run(run::Run),

    /// Judge recorded traces, without any network
    #[command(long_about = eval::LONG, after_long_help = eval::examples())]
    Eval(eval::Eval),

    /// Ask judges again and again, and tell how much they agree with themselves
    #[command(long_about = consistency::LONG, after_long_help = consistency::EXAMPLES)]
    Consistency(consistency::Repeat),

    /// Hold the verdicts against what people found
    #[command(long_about = score::LONG, after_long_help = score::EXAMPLES)]
    Score(score::Score),

    /// Compare two or three answers to one query, with a judge
    #[command(long_about = compare::LONG, after_long_help = compare::EXAMPLES)]
    Compare(compare::Compare),

    /// Check, score and improve plans that are in files
    #[command(long_about = plan::LONG, after_long_help = plan::EXAMPLES)]
    Plan(plan::Plan),

    /// Send recorded requests to an OTLP endpoint, as they came
    #[command(long_about = replay::LONG, after_long_help = replay::EXAMPLES)]
    Replay(replay::Replay),

    /// Show everything in one process, on shipped traces
    #[command(long_about = demo::LONG, after_long_help = demo::EXAMPLES)]
    Demo,

    /// Hold the calls of agents against the paths that their task allows
    #[command(subcommand, long_about = path::LONG, after_long_help = path::EXAMPLES)]
    Path(path::PathCommand),

    /// Check a configuration and print everything that is wrong with it
    #[command(long_about = settings::VALIDATE, after_long_help = settings::VALIDATE_EXAMPLES)]
    Validate(ConfigFiles),

    /// Print the configuration in force, or its JSON schema
    #[command(long_about = settings::PRINT, after_long_help = settings::PRINT_EXAMPLES)]
    PrintConfig(settings::PrintConfig),

    /// Print a completion script for a shell
    #[command(long_about = COMPLETIONS, after_long_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

const COMPLETIONS: &str = "Print a completion script for a shell to standard output.";
const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  otel-verdict completions bash > ~/.local/share/bash-completion/completions/otel-verdict
  otel-verdict completions zsh > ~/.zfunc/_otel-verdict
  otel-verdict completions fish > ~/.config/fish/completions/otel-verdict.fish";

/// Which configuration holds; the same for every command.
#[derive(Args, Clone, Debug, Default)]
struct ConfigFiles {
    /// Configuration file (YAML); may be given several times
    ///
    /// Later files override earlier ones key by key: maps merge, lists and scalars replace.
    /// Without any, the defaults hold. `config/reference.yaml` shows every key.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl ConfigFiles {
    fn load(&self) -> Result<Config, Failure> {
        crate::config::load(&self.files).map_err(Failure::Config)
    }
}

/// Why a command ends with something other than 0.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the configuration cannot be used:\n{0}")]
    Config(Invalid),
    #[error("{0}")]
    Input(#[from] input::Unreadable),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Run(String),
    /// What `--fail-on` names; the output has said it already.
    #[error("")]
    Met,
    /// Whoever read our output has had enough: no failure.
    #[error("")]
    Hungup,
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Failure::Config(_) | Failure::Input(_) | Failure::Usage(_) => WRONG,
            Failure::Run(_) | Failure::Met => FAILED,
            Failure::Hungup => 0,
        }
    }
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Met | Failure::Hungup) {
                tell(&format!("error: {failure}"));
            }
            ExitCode::from(failure.code())
        }
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Eval(args) => eval::eval(&args),
        Command::Consistency(args) => consistency::consistency(&args),
        Command::Score(args) => score::score(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Demo => demo::demo(),
        Command::Path(command) => path::path(&command),
        Command::Validate(files) => settings::validate(&files),
        Command::PrintConfig(args) => settings::print(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "otel-verdict", &mut script);
            put(&script)
        }
    }
}

/// Writes a command's result to standard output.
fn put(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| output(&e))
}

/// What a fault of standard output means.
fn output(error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::Hungup,
        _ => Failure::Run(format!("standard output: {error}")),
    }
}

/// Tells people something; a closed standard error is no reason to stop.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_long_help_with_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "{} has no examples", command.get_name());
            assert!(command.get_long_about().is_some(), "{} has no long text", command.get_name());
        }
    }
}
