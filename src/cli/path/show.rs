//! `path show`: a task's automaton as DOT or SVG, with the steps of a run.
//!
//! In: a task file; symbols or recorded traces for the run. Out: a drawing.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use verdict_eval::metrics::Unmeasured;
use verdict_eval::path::{PathToken, RunWalk, Task, Transition, calls_of};
use verdict_eval::trace::AgentTrace;

use super::picture::Picture;
use super::{draw, source};
use crate::cli::command::{CommandFailure, ConfigFiles, write_stderr, write_stdout};
use crate::cli::judge::options::JudgeOptions;
use crate::cli::judge::run::JudgeRun;
use crate::cli::recording::{self, OtherFiles};

pub(super) const LONG_ABOUT: &str = "\
Draw a task's automaton and the steps of a run.

Final states have two rings, calls without effect on the state are grey loops. With --walk or
--trace the steps of a run are numbered: green if allowed, red if harmful. Of a trace, the first
agent that the task matches is drawn.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict path show config/tasks/rover.yaml > rover.svg
  otel-verdict path show --format dot config/tasks/rover.yaml | dot -Tpng > rover.png
  otel-verdict path show config/tasks/refund.yaml --trace recording.jsonl > run.svg
  otel-verdict path show tasks.json --task crud_1 --walk A,B,B > run.svg

Exit codes:
  0  drawn
  2  a task or an input that cannot be used, or no run that the task is for";

#[derive(Args, Debug)]
pub(in crate::cli) struct PathShowArgs {
    /// A task file (YAML or JSON)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the task, if the file has several
    #[arg(short, long, value_name = "NAME")]
    task: Option<String>,
    /// The format of the drawing
    #[arg(short, long, value_enum, default_value_t)]
    format: DrawingFormat,
    /// A walk to draw on it: symbols, separated by commas
    #[arg(short, long, value_name = "SYMBOLS", value_delimiter = ',', conflicts_with = "trace")]
    walk: Option<Vec<String>>,
    /// Recorded traces to draw a run of: files and folders as for 'eval'
    #[arg(long, value_name = "PATH")]
    trace: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigFiles,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default)]
enum DrawingFormat {
    /// A drawing
    #[default]
    Svg,
    /// For Graphviz
    Dot,
}

pub(super) fn show(args: &PathShowArgs) -> Result<(), CommandFailure> {
    let loaded = source::load_tasks(std::slice::from_ref(&args.file))?;
    let task = select_task(&loaded.tasks, args.task.as_deref())?;
    let walk = match (&args.walk, args.trace.is_empty()) {
        (Some(symbols), _) => Some(symbol_steps(task, symbols)),
        (None, false) => Some(first_matching_run(task, args)?),
        (None, true) => None,
    };
    let picture = Picture::new(task, walk.as_deref());
    let text = match args.format {
        DrawingFormat::Svg => draw::svg::svg(&picture),
        DrawingFormat::Dot => draw::dot::dot(&picture),
    };
    write_stdout(text.as_bytes())
}

fn select_task<'t>(tasks: &'t [Task], name: Option<&str>) -> Result<&'t Task, CommandFailure> {
    match (name, tasks) {
        (Some(name), _) => tasks
            .iter()
            .find(|task| task.name == name)
            .ok_or_else(|| CommandFailure::Usage(format!("no task is named '{name}'"))),
        (None, [only]) => Ok(only),
        (None, _) => {
            let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).take(20).collect();
            Err(CommandFailure::Usage(format!("give --task, one of {}", names.join(", "))))
        }
    }
}

fn symbol_steps(task: &Task, symbols: &[String]) -> Vec<(String, Transition)> {
    let symbols: Vec<String> = symbols.iter().filter(|name| !name.is_empty()).cloned().collect();
    let (_, steps) = source::walk_symbols(task, &symbols);
    symbols.into_iter().zip(steps).collect()
}

/// The run of the first agent that the task matches.
fn first_matching_run(task: &Task, args: &PathShowArgs) -> Result<Vec<(String, Transition)>, CommandFailure> {
    let mut first_run = None;
    let config = args.config.load()?;
    let run = JudgeRun::start(&JudgeOptions::default(), &config, false)?;
    recording::evaluate_at_end(&config, &args.trace, OtherFiles::Skip, &run, |evaluated| {
        if first_run.is_none() {
            let trace = &evaluated.trace.trace;
            first_run = (0..trace.agents.len()).find_map(|i| agent_steps(task, trace, i));
        }
    })?;
    let (steps, indeterminate) = first_run.ok_or_else(|| {
        CommandFailure::Usage(format!("the task '{}' matches no agent in the traces", task.name))
    })?;
    if let Some(reason) = indeterminate {
        let reason = reason.as_str();
        write_stderr(&format!("the arguments of a call are not known ({reason}): the walk ends before it"));
    }
    Ok(steps)
}

/// Steps of a walk with the names of their calls.
type NamedSteps = Vec<(String, Transition)>;

fn agent_steps(
    task: &Task,
    trace: &AgentTrace,
    agent_index: usize,
) -> Option<(NamedSteps, Option<Unmeasured>)> {
    let (calls, captured) = calls_of(task, trace, agent_index)?;
    let run_walk = RunWalk::follow(task, trace, &calls, &captured);
    let steps = run_walk.steps.iter().map(|(call, token, step)| {
        let name = match token {
            PathToken::Symbol(symbol) => task.automaton.symbol_name(*symbol).to_owned(),
            PathToken::Foreign(_) => trace.calls.get(*call).map_or_else(String::new, |c| c.name.to_string()),
        };
        (name, *step)
    });
    Some((steps.collect(), run_walk.indeterminate))
}
