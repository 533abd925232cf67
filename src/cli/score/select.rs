//! Options that select the traces and findings to score.
//!
//! In: `--ids`, `--split`, `--seed`, `--flagged`, `--all-findings`. Out: the chosen traces of an annotated set, and the
//! findings that are predictions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::{Args, ValueEnum};

use crate::cli::command::{CommandFailure, read_text, write_stderr};
use crate::score::split::{self, Half};
use crate::score::trail::placement::{FindingPlacement, Predicted};

/// Which annotated traces are scored.
#[derive(Args, Debug, Default)]
pub(super) struct Selection {
    /// Score these traces only: a file of trace ids, or ids separated by commas
    #[arg(long, value_name = "FILE|LIST")]
    ids: Option<String>,
    /// Score this half of the annotated traces only; the halves depend on the trace ids and the seed
    #[arg(long, value_enum)]
    split: Option<DatasetSplit>,
    /// Seed of --split
    #[arg(long, value_name = "N", default_value_t = 0, requires = "split")]
    seed: u64,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum DatasetSplit {
    /// The half for development
    Dev,
    /// The half for figures
    Test,
}

impl Selection {
    /// Removes the traces that are not chosen, by their ids. `--ids` applies before `--split`.
    ///
    /// # Errors
    /// The file of ids cannot be read, or no trace is left.
    pub(super) fn retain<T>(&self, traces: &mut BTreeMap<String, T>) -> Result<(), CommandFailure> {
        if let Some(ids) = &self.ids {
            let chosen = read_ids(ids)?;
            let unknown: Vec<&String> = chosen.iter().filter(|id| !traces.contains_key(*id)).collect();
            if let Some(first) = unknown.first() {
                write_stderr(&format!("{} ids of --ids are not annotated, first {first}", unknown.len()));
            }
            traces.retain(|id, _| chosen.contains(id));
        }
        if let Some(split) = self.split {
            let half = match split {
                DatasetSplit::Dev => Half::Dev,
                DatasetSplit::Test => Half::Test,
            };
            let chosen = split::half(traces.keys().map(String::as_str), half, self.seed);
            traces.retain(|id, _| chosen.contains(id));
        }
        match traces.is_empty() {
            true => Err(CommandFailure::Usage("--ids and --split leave no annotated trace".to_owned())),
            false => Ok(()),
        }
    }
}

fn read_ids(argument: &str) -> Result<BTreeSet<String>, CommandFailure> {
    let path = Path::new(argument);
    let text = if path.is_file() { read_text(path)? } else { argument.to_owned() };
    let separated = text.split(|c: char| c.is_whitespace() || c == ',').filter(|id| !id.is_empty());
    Ok(separated.map(str::to_lowercase).collect())
}

/// Which findings are predictions.
#[derive(Args, Debug, Default)]
pub(super) struct PredictionArgs {
    /// Predict the findings of failing measurements (default): what the product reports
    #[arg(long, conflicts_with = "all_findings")]
    flagged: bool,
    /// Predict the findings of passing measurements as well
    #[arg(long)]
    all_findings: bool,
    /// Where a finding counts: the first occurrence in a trace, at the model call that caused it, as
    /// annotators mark errors; or every finding, at the span that it names
    #[arg(long, value_enum, default_value_t)]
    placement: FindingPlacement,
}

impl PredictionArgs {
    pub(super) fn predicted(&self) -> Predicted {
        Predicted { all: self.all_findings, placement: self.placement }
    }
}
