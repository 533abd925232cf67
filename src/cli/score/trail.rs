//! `score trail`: predictions for the TRAIL benchmark, and how right they are.
//!
//! In: traces, gold annotations, or predictions that somebody else made. Out: the benchmark's
//! figures as tables or JSON, and the predictions in its shape.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::super::{ConfigFiles, Failure, eval, input, put, tell};
use super::{Output, files, tables};
use crate::score::trail::annotation::Ratings;
use crate::score::trail::benchmark::Intervals;
use crate::score::trail::{Annotations, Benchmark, Case, find};

pub(super) const LONG: &str = "\
Score against the annotations of the TRAIL benchmark.

Judges every trace, maps findings to the benchmark's categories and spans, and counts by exactly the
definitions of its protocol: location and joint precision, recall and F1 over all traces, weighted
category F1, and the benchmark's own per-trace means. The gold folder holds one JSON file a trace,
named after the trace's id; a trace without a prediction counts as one with an empty prediction.

The benchmark's location accuracy is recall: whoever flags every span nearly maxes it. Read
precision beside it.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score trail --traces gaia/traces --gold gaia/gold
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --predictions out/
  otel-verdict score trail --from someones-predictions/ --gold gaia/gold --output json";

#[derive(Args, Debug)]
pub(super) struct Trail {
    /// Recorded traces: files and folders, as 'eval' reads them
    #[arg(long, value_name = "PATH", required_unless_present = "from")]
    traces: Vec<PathBuf>,
    /// Folder of the annotators' files, one a trace
    #[arg(long, value_name = "DIR")]
    gold: PathBuf,
    /// Write predictions here, one file a trace, in the benchmark's shape
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    predictions: Option<PathBuf>,
    /// Score the predictions in this folder instead of judging
    #[arg(long, value_name = "DIR", conflicts_with = "traces")]
    from: Option<PathBuf>,
    /// What to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    config: ConfigFiles,
}

pub(super) fn trail(args: &Trail) -> Result<(), Failure> {
    let gold = files::read(&args.gold)?;
    if gold.is_empty() {
        return Err(Failure::Usage(format!("{}: no annotations (*.json) here", args.gold.display())));
    }
    let predicted = match &args.from {
        Some(folder) => files::read(folder)?,
        None => judge(args, &gold)?,
    };
    if let Some(folder) = &args.predictions {
        files::write(folder, &predicted)?;
    }
    let none = Annotations::default();
    let cases: Vec<Case> = gold
        .iter()
        .map(|(name, gold)| Case::new(&gold.errors, &predicted.get(name).unwrap_or(&none).errors))
        .collect();
    let missing = gold.keys().filter(|name| !predicted.contains_key(*name)).count();
    if missing > 0 {
        tell(&format!("{missing} of {} annotated traces have no prediction; counted as empty", gold.len()));
    }
    let (figures, intervals) = (Benchmark::of(&cases), Intervals::of(&cases));
    match args.output {
        Output::Table => put(tables::benchmark(&figures, &intervals).as_bytes()),
        Output::Json => put(format!("{:#}\n", tables::benchmark_json(&figures, &intervals)).as_bytes()),
    }
}

/// Predictions by the gold file's name.
fn judge(
    args: &Trail,
    gold: &BTreeMap<String, Annotations>,
) -> Result<BTreeMap<String, Annotations>, Failure> {
    let config = args.config.load()?;
    // A gold file is named after its trace; where it is not, it may say which one it is about.
    let by_trace: BTreeMap<&str, &str> = gold
        .iter()
        .flat_map(|(name, a)| {
            [Some((name.as_str(), name.as_str())), a.trace.as_deref().map(|t| (t, name.as_str()))]
        })
        .flatten()
        .collect();
    let mut predicted = BTreeMap::new();
    let mut strange = 0;
    eval::each(&config, &input::find(&args.traces)?, |evaluated| {
        let (scene, measurements) = (&evaluated.judged.scene, &evaluated.judged.measurements);
        let id = scene.tree.id.to_string();
        let Some(name) = by_trace.get(id.as_str()) else {
            strange += 1;
            return;
        };
        let errors = find::found(scene, measurements).iter().map(|f| f.annotation(scene)).collect();
        let prediction = Annotations { trace: Some(id.clone()), errors, ratings: Ratings::default() };
        predicted.insert((*name).to_owned(), prediction);
    })?;
    if strange > 0 {
        tell(&format!("{strange} traces have no annotations and are not scored"));
    }
    Ok(predicted)
}
