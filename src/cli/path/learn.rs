//! `path learn`: a draft of a task file from recorded runs that passed.
//!
//! In: recorded traces. Out: a task file as YAML, notes for its review on standard error.

use std::path::PathBuf;

use clap::Args;
use verdict_eval::path::{MAX_RUNS, RecordedCall, TaskIdentity, has_failed, learn as infer};
use verdict_eval::trace::{Agent, AgentTrace, Call};

use crate::cli::command::{CommandFailure, ConfigFiles, write_stderr, write_stdout};
use crate::cli::judge::options::JudgeOptions;
use crate::cli::judge::run::JudgeRun;
use crate::cli::recording::{self, OtherFiles};

pub(super) const LONG_ABOUT: &str = "\
Infer a task from recorded runs that passed, for review.

Judges the traces as 'eval' would and takes the runs of agents in those that pass. Calls become
symbols with patterns that cover the recorded arguments, functions whose names say that they
only read become loops, and the rest becomes an automaton that accepts these runs and no other
order. Notes for the review, such as calls that undo each other and repeated writes, go to
standard error.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict path learn recordings/ > draft.yaml
  otel-verdict path learn --agent shop-agent --task refund good.jsonl > refund.yaml
  otel-verdict path learn --all hand-picked/ > draft.yaml && otel-verdict path show draft.yaml > draft.svg

Exit codes:
  0  a draft was written
  2  unreadable input, or no run to learn from";

#[derive(Args, Debug)]
pub(in crate::cli) struct PathLearnArgs {
    /// Recorded traces: files and folders, as for 'eval'; '-' is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The name of the task
    #[arg(short, long, value_name = "NAME", default_value = "learnt")]
    task: String,
    /// Only runs of this agent; otherwise those of each trace's outermost one
    #[arg(short, long, value_name = "NAME")]
    agent: Option<String>,
    /// Take every trace, whether or not it passes
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    config: ConfigFiles,
}

/// Runs with their agents and services.
#[derive(Default)]
struct Runs {
    calls: Vec<Vec<RecordedCall>>,
    agents: Vec<Option<String>>,
    services: Vec<Option<String>>,
    /// Traces that did not pass.
    left_out: usize,
}

pub(super) fn learn(args: &PathLearnArgs) -> Result<(), CommandFailure> {
    let mut runs = Runs::default();
    let config = args.config.load()?;
    let run = JudgeRun::start(&JudgeOptions::default(), &config, false)?;
    recording::evaluate_at_end(&config, &args.paths, OtherFiles::Skip, &run, |evaluated| {
        let evaluated = &evaluated.trace;
        match args.all || evaluated.summary.passed == Some(true) {
            true => runs.add_trace(&evaluated.trace, args.agent.as_deref()),
            false => runs.left_out += 1,
        }
    })?;
    let common_name = |names: &[Option<String>]| match names {
        [Some(first), rest @ ..] if rest.iter().all(|name| name.as_ref() == Some(first)) => {
            Some(first.clone())
        }
        _ => None,
    };
    let identity = TaskIdentity {
        task: args.task.clone(),
        agent: common_name(&runs.agents),
        service: common_name(&runs.services),
    };
    let Some(learnt) = infer(&runs.calls, &identity) else {
        let message = format!("no run with calls to learn from; {} traces did not pass", runs.left_out);
        return Err(CommandFailure::Usage(message));
    };
    write_stderr(&format!("learnt from {} runs; {} traces did not pass", runs.calls.len(), runs.left_out));
    learnt.notes.iter().for_each(|note| write_stderr(&format!("to review: {note}")));
    write_stdout(learnt.yaml.as_bytes())
}

impl Runs {
    fn add_trace(&mut self, trace: &AgentTrace, agent_name: Option<&str>) {
        let is_selected = |agent: &&Agent| match agent_name {
            Some(name) => agent.name.as_deref() == Some(name),
            None => agent.parent.is_none(),
        };
        for agent in trace.agents.iter().filter(is_selected) {
            let calls: Vec<RecordedCall> = agent
                .calls
                .iter()
                .filter_map(|i| trace.calls.get(*i))
                .map(|call| recorded_call(trace, call))
                .collect();
            if calls.is_empty() || self.calls.len() >= MAX_RUNS {
                continue;
            }
            let service = trace.views.get(agent.at).and_then(|r| r.service.as_ref());
            self.calls.push(calls);
            self.agents.push(agent.name.as_ref().map(ToString::to_string));
            self.services.push(service.map(ToString::to_string));
        }
    }
}

fn recorded_call(trace: &AgentTrace, call: &Call) -> RecordedCall {
    let arguments = call.parsed.as_deref().and_then(|parsed| parsed.as_object().cloned());
    RecordedCall { name: call.name.to_string(), arguments, failed: has_failed(trace, call) }
}
