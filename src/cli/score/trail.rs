//! `score trail`: predictions for the TRAIL benchmark, and how right they are.
//!
//! In: traces, gold annotations, or predictions that somebody else made. Out: the benchmark's
//! figures as tables or JSON, and the predictions in its shape.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::super::{ConfigFiles, Failure, eval, input, put, tell};
use super::{Output, files, tables};
use crate::score::counts::Confusion;
use crate::score::trail::benchmark::Intervals;
use crate::score::trail::ratings::{Correlated, Roots};
use crate::score::trail::{Annotations, Benchmark, Case, Ratings, find, ratings};

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
    let (predicted, roots) = match &args.from {
        Some(folder) => (files::read(folder)?, BTreeMap::new()),
        None => judge(args, &gold)?,
    };
    if let Some(folder) = &args.predictions {
        files::write(folder, &predicted)?;
    }
    let none = Annotations::default();
    let of = |name: &String| predicted.get(name).unwrap_or(&none);
    let cases: Vec<Case> =
        gold.iter().map(|(name, gold)| Case::new(&gold.errors, &of(name).errors)).collect();
    let rated: Vec<(Ratings, Ratings)> =
        gold.iter().map(|(name, gold)| (of(name).ratings, gold.ratings)).collect();
    let missing = gold.keys().filter(|name| !predicted.contains_key(*name)).count();
    if missing > 0 {
        tell(&format!("{missing} of {} annotated traces have no prediction; counted as empty", gold.len()));
    }
    let result = Scored {
        figures: Benchmark::of(&cases),
        intervals: Intervals::of(&cases),
        ratings: ratings::correlate(&rated),
        roots: (!roots.is_empty()).then(|| compare(&roots, &gold)),
    };
    match args.output {
        Output::Table => put(tables::table(&result).as_bytes()),
        Output::Json => put(format!("{:#}\n", tables::json(&result)).as_bytes()),
    }
}

/// All that is told of a run.
pub(super) struct Scored {
    pub(super) figures: Benchmark,
    pub(super) intervals: Intervals,
    pub(super) ratings: [Correlated; 5],
    /// By policy; `None` for somebody else's predictions, which carry no verdict.
    pub(super) roots: Option<[(&'static str, Confusion); 2]>,
}

fn compare(
    roots: &BTreeMap<String, Roots>,
    gold: &BTreeMap<String, Annotations>,
) -> [(&'static str, Confusion); 2] {
    let against = |of: fn(&Roots) -> Option<bool>| {
        ratings::verdicts(
            roots.iter().map(|(name, r)| (of(r), gold.get(name).and_then(|g| g.ratings.overall))),
        )
    };
    [("existential", against(|r| r.existential)), ("outcome_relevant", against(|r| r.outcome_relevant))]
}

type Predicted = (BTreeMap<String, Annotations>, BTreeMap<String, Roots>);

/// Predictions by the gold file's name.
fn judge(args: &Trail, gold: &BTreeMap<String, Annotations>) -> Result<Predicted, Failure> {
    let config = args.config.load()?;
    // A gold file is named after its trace; where it is not, it may say which one it is about.
    let by_trace: BTreeMap<&str, &str> = gold
        .iter()
        .flat_map(|(name, a)| {
            [Some((name.as_str(), name.as_str())), a.trace.as_deref().map(|t| (t, name.as_str()))]
        })
        .flatten()
        .collect();
    let (mut predicted, mut roots) = (BTreeMap::new(), BTreeMap::new());
    let mut strange = 0;
    eval::each(&config, &input::find(&args.traces)?, |evaluated| {
        let (scene, measurements) = (&evaluated.judged.scene, &evaluated.judged.measurements);
        let id = scene.tree.id.to_string();
        let Some(name) = by_trace.get(id.as_str()) else {
            strange += 1;
            return;
        };
        let found = find::found(scene, measurements);
        let prediction = Annotations {
            trace: Some(id.clone()),
            errors: found.iter().map(|f| f.annotation(scene)).collect(),
            ratings: ratings::rate(scene, measurements, &found),
        };
        predicted.insert((*name).to_owned(), prediction);
        roots.insert((*name).to_owned(), Roots::of(scene, measurements));
    })?;
    if strange > 0 {
        tell(&format!("{strange} traces have no annotations and are not scored"));
    }
    Ok((predicted, roots))
}
