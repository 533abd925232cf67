//! `path score`: sequences of symbols, scored against their tasks.
//!
//! In: task files and `{"vectors": [{prompt_id, name, sequence}]}`. Out: the same vectors with their
//! metrics as JSON on standard output; what is unmeasured is null.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use verdict_eval::path::{PathScores, Task, Token, Walk};

use crate::cli::command::{Failure, read_text, write_stdout};

pub(super) const LONG: &str = "\
Score sequences of symbols against their tasks.

Reads {\"vectors\": [{\"prompt_id\": TASK, \"name\": NAME, \"sequence\": [SYMBOL, ...]}]}; other keys are
ignored. A symbol that is not in the task's alphabet is a harmful call. Prints the same vectors
with their metrics, unmeasured ones as null.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict path score tasks.json sequences.json
  otel-verdict path score --more tasks.json - < sequences.json | jq '.vectors[] | select(.metrics.pareto)'

Output:
  {\"vectors\": [{\"prompt_id\": \"...\", \"name\": \"...\", \"metrics\": {
    \"condensed\": [\"A\"], \"harm_mask\": [0], \"final_state\": \"G1\", \"accepting\": false,
    \"path_correctness\": 0.5, \"pc_ktc\": 0.5, \"prefix_criticality\": 1.0, \"harmful_call_rate\": 0.0,
    \"harmful_call_count\": 0, \"efficiency\": null, \"pc_hlr\": 1.0}}]}

  With --more also: harm_free; weighted, where the task has weights; and pareto, which is true where
  no other sequence of the same task is at least as good in everything and better in something.

Exit codes:
  0  scored
  2  a task or a sequence that cannot be used";

#[derive(Args, Debug)]
pub(in crate::cli) struct Score {
    /// A task file (YAML or JSON)
    #[arg(value_name = "TASKS")]
    tasks: PathBuf,
    /// Sequences (JSON); '-' is standard input
    #[arg(value_name = "SEQUENCES")]
    sequences: PathBuf,
    /// Also print harm_free, weighted and pareto
    #[arg(long)]
    more: bool,
}

#[derive(Deserialize)]
struct Sequences {
    vectors: Vec<Sequence>,
}

#[derive(Deserialize)]
struct Sequence {
    prompt_id: String,
    name: String,
    sequence: Vec<String>,
}

#[derive(Serialize)]
struct Results<'a> {
    vectors: Vec<Scored<'a>>,
}

#[derive(Serialize)]
struct Scored<'a> {
    prompt_id: &'a str,
    name: &'a str,
    metrics: Metrics<'a>,
}

#[derive(Serialize)]
struct Metrics<'a> {
    condensed: Vec<&'a str>,
    harm_mask: Vec<u8>,
    final_state: &'a str,
    accepting: bool,
    path_correctness: Option<f64>,
    pc_ktc: Option<f64>,
    prefix_criticality: f64,
    harmful_call_rate: f64,
    harmful_call_count: usize,
    efficiency: Option<f64>,
    pc_hlr: Option<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    more: Option<More>,
}

#[derive(Serialize)]
struct More {
    harm_free: f64,
    weighted: Option<f64>,
    pareto: bool,
}

pub(super) fn score(args: &Score) -> Result<(), Failure> {
    let loaded = super::source::tasks(std::slice::from_ref(&args.tasks))?;
    let text = read_text(&args.sequences)?;
    let sequences: Sequences = serde_json::from_str(&text).map_err(|e| Failure::file(&args.sequences, e))?;
    let results = results(&loaded.tasks, &sequences.vectors, args.more)
        .map_err(|why| Failure::file(&args.sequences, why))?;
    let mut out = serde_json::to_vec(&results).map_err(Failure::run)?;
    out.push(b'\n');
    write_stdout(&out)
}

fn results<'a>(tasks: &'a [Task], sequences: &'a [Sequence], more: bool) -> Result<Results<'a>, String> {
    let by_name: HashMap<&str, &Task> = tasks.iter().map(|task| (task.name.as_str(), task)).collect();
    let mut all: Vec<(&str, PathScores)> = Vec::with_capacity(sequences.len());
    let mut vectors = Vec::with_capacity(sequences.len());
    for (i, sequence) in sequences.iter().enumerate() {
        let Some(task) = by_name.get(sequence.prompt_id.as_str()) else {
            return Err(format!("vectors[{i}]: no task is named '{}'", sequence.prompt_id));
        };
        let (scores, metrics) = one(task, sequence);
        all.push((&sequence.prompt_id, scores));
        vectors.push(Scored { prompt_id: &sequence.prompt_id, name: &sequence.name, metrics });
    }
    if more {
        for (scored, (id, scores)) in vectors.iter_mut().zip(&all) {
            let beaten = all.iter().any(|(other, better)| other == id && better.dominates(scores));
            let weights = by_name.get(id).and_then(|task| task.weights);
            scored.metrics.more = Some(More {
                harm_free: scores.harm_free(),
                weighted: weights.and_then(|weights| scores.weighted(&weights)),
                pareto: !beaten,
            });
        }
    }
    Ok(Results { vectors })
}

fn one<'a>(task: &'a Task, sequence: &'a Sequence) -> (PathScores, Metrics<'a>) {
    let automaton = &task.automaton;
    let mut walk = Walk::new(automaton);
    for (i, symbol) in sequence.sequence.iter().enumerate() {
        let token = automaton.symbol(symbol).map_or(Token::Foreign(i as u32), Token::Symbol);
        walk.push(automaton, token);
    }
    let scores = PathScores::of(automaton, &walk, task.parameters);
    let name = |token| match token {
        Token::Symbol(symbol) => automaton.symbol_name(symbol),
        Token::Foreign(i) => sequence.sequence.get(i as usize).map_or("", String::as_str),
    };
    let metrics = Metrics {
        condensed: walk.condensed().iter().map(|kept| name(kept.token)).collect(),
        harm_mask: walk.condensed().iter().map(|kept| u8::from(kept.harmful)).collect(),
        final_state: automaton.state_name(scores.final_state),
        accepting: scores.accepting,
        path_correctness: scores.correctness,
        pc_ktc: scores.pc_ktc,
        prefix_criticality: scores.prefix_criticality,
        harmful_call_rate: scores.harm_rate,
        harmful_call_count: scores.harmful_calls,
        efficiency: scores.efficiency,
        pc_hlr: scores.pc_hlr,
        more: None,
    };
    (scores, metrics)
}
