//! The command line: one file or folder per command; `command`, `input`, `recording` and `judge` are shared.
//!
//! In: arguments. Out: an exit code, results on standard output, messages on standard error. Every command
//! has the same exit codes: 0 done, 1 failed (or the condition of `--fail-on` or `--require-judged` was met), 2 wrong
//! usage, wrong configuration or unreadable input.
//!
//! | file | content |
//! |---|---|
//! | `run`, `health`, `replay`, `demo` | the processor and its state; requests sent to one |
//! | `eval`, `consistency`, `compare` | evaluation of recordings; agreement of judges with themselves; answers compared |
//! | `path`, `plan`, `score` | task files; plans; verdicts compared with labels |
//! | `judge` | `judge check`, and the judges of other commands |
//! | `print_config` | `validate` and `print-config` |
//! | `input`, `recording`, `watch` | files that a command reads; changes of configuration files |
//! | `output`, `report`, `table` | what a command prints |
//! | `command` | options, results and failures that commands share |

mod command;
mod compare;
mod consistency;
mod demo;
mod eval;
mod health;
mod input;
mod judge;
mod output;
mod path;
mod plan;
mod recording;
mod replay;
mod report;
mod run;
mod score;
mod print_config;
mod table;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use command::{CommandFailure, ConfigFiles, write_stderr, write_stdout};

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
    after_long_help = SHARED_HELP
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const SHARED_HELP: &str = "\
Exit codes:
  0  done
  1  failed, the condition of --fail-on was met, or less was judged than --require-judged demands
  2  wrong usage, wrong configuration, or unreadable input

Environment:
  NO_COLOR    no colour, wherever set
  Any variable that the configuration names as ${env:NAME} or ${env:NAME:-default}

Start with 'otel-verdict demo'; then 'otel-verdict run', and point an agent's OTLP exporter at
127.0.0.1:4317 (gRPC) or 127.0.0.1:4318 (HTTP).";

#[derive(Debug, Subcommand)]
enum Command {
    /// Receive OTLP, judge, and send on
    #[command(long_about = run::LONG_ABOUT, after_long_help = run::EXAMPLES)]
    Run(run::RunArgs),

    /// Judge recorded traces
    #[command(long_about = eval::LONG_ABOUT, after_long_help = eval::examples())]
    Eval(eval::EvalArgs),

    /// Ask judges repeatedly and measure how much they agree with themselves
    #[command(long_about = consistency::LONG_ABOUT, after_long_help = consistency::EXAMPLES)]
    Consistency(consistency::ConsistencyArgs),

    /// Compare verdicts with annotations and labels
    #[command(subcommand, long_about = score::LONG_ABOUT, after_long_help = score::EXAMPLES)]
    Score(score::ScoreCommand),

    /// Compare two or three answers to one query, with a judge
    #[command(long_about = compare::LONG_ABOUT, after_long_help = compare::EXAMPLES)]
    Compare(compare::CompareArgs),

    /// Ask every configured judge one question
    #[command(subcommand, long_about = judge::check::LONG_ABOUT, after_long_help = judge::check::EXAMPLES)]
    Judge(judge::check::JudgeCommand),

    /// Check, score and improve plans in files
    #[command(subcommand, long_about = plan::LONG_ABOUT, after_long_help = plan::EXAMPLES)]
    Plan(plan::PlanCommand),

    /// Send recorded requests unchanged to an OTLP endpoint
    #[command(long_about = replay::LONG_ABOUT, after_long_help = replay::EXAMPLES)]
    Replay(replay::ReplayArgs),

    /// Run sender, processor and receiver in one process on shipped traces
    #[command(long_about = demo::LONG_ABOUT, after_long_help = demo::EXAMPLES)]
    Demo(demo::DemoArgs),

    /// Compare the calls of agents with the paths that their task allows
    #[command(subcommand, long_about = path::LONG_ABOUT, after_long_help = path::EXAMPLES)]
    Path(path::PathCommand),

    /// Check a configuration and print every problem
    #[command(long_about = print_config::VALIDATE_LONG_ABOUT, after_long_help = print_config::VALIDATE_EXAMPLES)]
    Validate(ConfigFiles),

    /// Print the effective configuration, or its JSON schema
    #[command(long_about = print_config::PRINT_LONG_ABOUT, after_long_help = print_config::PRINT_EXAMPLES)]
    PrintConfig(print_config::PrintConfigArgs),

    /// Ask a running process whether it is ready
    #[command(long_about = health::LONG_ABOUT, after_long_help = health::EXAMPLES)]
    Health(health::HealthArgs),

    /// Print a completion script for a shell
    #[command(long_about = COMPLETIONS_LONG_ABOUT, after_long_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

const COMPLETIONS_LONG_ABOUT: &str = "Print a completion script for a shell to standard output.";
const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  otel-verdict completions bash > ~/.local/share/bash-completion/completions/otel-verdict
  otel-verdict completions zsh > ~/.zfunc/_otel-verdict
  otel-verdict completions fish > ~/.config/fish/completions/otel-verdict.fish";

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, CommandFailure::ThresholdMet | CommandFailure::ClosedPipe) {
                write_stderr(&format!("error: {failure}"));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(command: Command) -> Result<(), CommandFailure> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Eval(args) => eval::eval(&args),
        Command::Consistency(args) => consistency::consistency(&args),
        Command::Score(command) => score::score(&command),
        Command::Compare(args) => compare::compare(&args),
        Command::Judge(command) => judge::check::judge(&command),
        Command::Plan(command) => plan::plan(&command),
        Command::Replay(args) => replay::replay(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Path(command) => path::path(&command),
        Command::Validate(files) => print_config::validate(&files),
        Command::PrintConfig(args) => print_config::print(&args),
        Command::Health(args) => health::health(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "otel-verdict", &mut script);
            write_stdout(&script)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_command_definitions() {
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
