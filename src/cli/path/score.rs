//! `path score`: sequences of symbols, scored against their tasks.
//!
//! In: task files and `{"vectors": [{prompt_id, name, sequence}]}`. Out: the same vectors with their
//! metrics as JSON on standard output; unmeasured metrics are null.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use verdict_eval::path::{PathScores, PathToken, Task, Walk};

use super::source;
use crate::cli::command::{CommandFailure, read_text, write_stdout};

pub(super) const LONG_ABOUT: &str = "\
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
pub(in crate::cli) struct PathScoreArgs {
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

pub(super) fn score(args: &PathScoreArgs) -> Result<(), CommandFailure> {
    let loaded = source::load_tasks(std::slice::from_ref(&args.tasks))?;
    let text = read_text(&args.sequences)?;
    let sequences: Sequences =
        serde_json::from_str(&text).map_err(|e| CommandFailure::file(&args.sequences, e))?;
    let vectors = vectors(&loaded.tasks, &sequences.vectors, args.more)
        .map_err(|message| CommandFailure::file(&args.sequences, message))?;
    write_stdout(format!("{}\n", json!({ "vectors": vectors })).as_bytes())
}

fn vectors(tasks: &[Task], sequences: &[Sequence], with_more_metrics: bool) -> Result<Vec<Value>, String> {
    let by_name: HashMap<&str, &Task> = tasks.iter().map(|task| (task.name.as_str(), task)).collect();
    let mut scored = Vec::with_capacity(sequences.len());
    for (i, sequence) in sequences.iter().enumerate() {
        let task = by_name.get(sequence.prompt_id.as_str());
        let task = task.ok_or_else(|| format!("vectors[{i}]: no task is named '{}'", sequence.prompt_id))?;
        let (walk, _) = source::walk_symbols(task, &sequence.sequence);
        scored.push((*task, sequence, PathScores::compute(&task.automaton, &walk, task.parameters), walk));
    }
    let vector = |(task, sequence, scores, walk): &(&Task, &Sequence, PathScores, Walk)| {
        let mut metrics = metrics(task, sequence, scores, walk);
        if with_more_metrics {
            let mut others = scored.iter().filter(|(_, other, ..)| other.prompt_id == sequence.prompt_id);
            let dominated = others.any(|(.., better, _)| better.dominates(scores));
            metrics["harm_free"] = scores.harm_free().into();
            metrics["weighted"] = task.weights.and_then(|weights| scores.weighted(&weights)).into();
            metrics["pareto"] = (!dominated).into();
        }
        json!({ "prompt_id": sequence.prompt_id, "name": sequence.name, "metrics": metrics })
    };
    Ok(scored.iter().map(vector).collect())
}

fn metrics(task: &Task, sequence: &Sequence, scores: &PathScores, walk: &Walk) -> Value {
    let name = |token| match token {
        PathToken::Symbol(symbol) => task.automaton.symbol_name(symbol),
        PathToken::Foreign(i) => sequence.sequence.get(i as usize).map_or("", String::as_str),
    };
    let condensed = walk.condensed();
    json!({
        "condensed": condensed.iter().map(|call| name(call.token)).collect::<Vec<_>>(),
        "harm_mask": condensed.iter().map(|call| u8::from(call.is_harmful)).collect::<Vec<_>>(),
        "final_state": task.automaton.state_name(scores.final_state),
        "accepting": scores.is_accepting,
        "path_correctness": scores.correctness,
        "pc_ktc": scores.pc_ktc,
        "prefix_criticality": scores.prefix_criticality,
        "harmful_call_rate": scores.harm_rate,
        "harmful_call_count": scores.harmful_calls,
        "efficiency": scores.efficiency,
        "pc_hlr": scores.pc_hlr,
    })
}
