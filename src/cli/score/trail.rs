//! `score trail`: predictions for the TRAIL benchmark, and how right they are.
//!
//! In: traces, gold annotations, or predictions that somebody else made. Out: the benchmark's
//! figures as tables or JSON, and the predictions in its shape.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::super::judge::JudgeSession;
use super::files::{self, Folder as Files};
use super::scored::Scored;
use super::{report, tables};
use crate::cli::config_files::ConfigFiles;
use crate::cli::failure::Failure;
use crate::cli::format::Output;
use crate::cli::terminal::{write_stderr, write_stdout};
use crate::cli::{eval, input};
use crate::score::counts::Confusion;
use crate::score::labels::TraceLabels;
use crate::score::trail::benchmark::Intervals;
use crate::score::trail::ratings::Roots;
use crate::score::trail::{Annotations, Benchmark, Case, Ratings, find, mapper, ratings};
use verdict_eval::measure::Measurement;

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
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --report report.html
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
    /// Let this judge of the configuration name the category of findings that have none; it sees
    /// metric, score and rationale, and judges nothing again
    #[arg(long, value_name = "JUDGE", conflicts_with = "from")]
    mapper: Option<String>,
    /// Others' predictions, set beside ours in the report's heat map; may be given several times
    #[arg(long, value_name = "DIR")]
    beside: Vec<PathBuf>,
    /// Write a page for people here: figures, heat map, curves, annotated trees; no network needed
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
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
    let others = report::beside(&args.beside)?;
    let run = match &args.from {
        Some(folder) => Run { predicted: files::read(folder)?, ..Run::default() },
        None => judge(args, &gold)?,
    };
    if let Some(folder) = &args.predictions {
        files::write(folder, &run.predicted)?;
    }
    let missing = gold.keys().filter(|name| !run.predicted.contains_key(*name)).count();
    if missing > 0 {
        write_stderr(&format!(
            "{missing} of {} annotated traces have no prediction; counted as empty",
            gold.len()
        ));
    }
    let scored = score(&gold, &run, &others);
    if let Some(path) = &args.report {
        report::write(path, &report::trail(run.gathered, &scored, tables::all(&scored)))?;
    }
    match args.output {
        Output::Table => write_stdout(tables::all(&scored).join("\n").as_bytes()),
        Output::Json => write_stdout(format!("{:#}\n", tables::json(&scored)).as_bytes()),
    }
}

/// What judging brought, by the gold file's name.
#[derive(Default)]
struct Run {
    predicted: Files,
    roots: BTreeMap<String, Roots>,
    gathered: report::Gathered,
}

fn score(gold: &Files, run: &Run, others: &[(String, Files)]) -> Scored {
    let cases = cases(gold, &run.predicted);
    let ours = |name: &String| run.predicted.get(name).map(|p| p.ratings).unwrap_or_default();
    let rated: Vec<(Ratings, Ratings)> = gold.iter().map(|(name, gold)| (ours(name), gold.ratings)).collect();
    Scored {
        figures: Benchmark::of(&cases),
        intervals: Intervals::of(&cases),
        ratings: ratings::correlate(&rated),
        roots: (!run.roots.is_empty()).then(|| compare(&run.roots, gold)),
        beside: others
            .iter()
            .map(|(name, predicted)| (name.clone(), Benchmark::of(&self::cases(gold, predicted))))
            .collect(),
    }
}

/// Every annotated trace; one without a prediction has an empty one.
fn cases(gold: &Files, predicted: &Files) -> Vec<Case> {
    let none = Annotations::default();
    let of = |name: &String| &predicted.get(name).unwrap_or(&none).errors;
    gold.iter().map(|(name, gold)| Case::new(&gold.errors, of(name))).collect()
}

fn compare(roots: &BTreeMap<String, Roots>, gold: &Files) -> [(&'static str, Confusion); 2] {
    let against = |of: fn(&Roots) -> Option<bool>| {
        let overall = |name: &String| gold.get(name).and_then(|g| g.ratings.overall);
        ratings::verdicts(roots.iter().map(|(name, r)| (of(r), overall(name))))
    };
    [("existential", against(|r| r.existential)), ("outcome_relevant", against(|r| r.outcome_relevant))]
}

fn judge(args: &Trail, gold: &Files) -> Result<Run, Failure> {
    let config = args.config.load()?;
    // A gold file is named after its trace; where it is not, it may say which one it is about.
    let mut by_trace: BTreeMap<&str, &String> = BTreeMap::new();
    for (name, annotations) in gold {
        by_trace.extend(annotations.trace.as_deref().map(|trace| (trace, name)));
        by_trace.insert(name, name);
    }
    let mapper = args
        .mapper
        .as_ref()
        .map(|name| JudgeSession::new(&config, std::slice::from_ref(name)))
        .transpose()?;
    let mut run = Run::default();
    let mut strange = 0;
    eval::each(&config, &input::find(&args.traces)?, |mut evaluated| {
        if let Some(judges) = &mapper {
            name_categories(judges, &mut evaluated.judged.measurements);
        }
        let (trace, measurements) = (&evaluated.judged.trace, &evaluated.judged.measurements);
        let id = trace.tree.id.to_string();
        let Some((name, gold)) = by_trace.get(id.as_str()).and_then(|name| gold.get_key_value(*name)) else {
            strange += 1;
            return;
        };
        let found = find::found(trace, measurements);
        let prediction = Annotations {
            trace: Some(id.clone()),
            errors: found.iter().map(|f| f.annotation(trace)).collect(),
            ratings: ratings::rate(trace, measurements, &found),
        };
        run.predicted.insert(name.clone(), prediction);
        run.roots.insert(name.clone(), Roots::of(trace, measurements));
        if args.report.is_some() {
            run.gathered.add(&evaluated, TraceLabels::of_trail(&id, gold), &gold.errors);
        }
    })?;
    if strange > 0 {
        write_stderr(&format!("{strange} traces have no annotations and are not scored"));
    }
    Ok(run)
}

fn name_categories(judges: &JudgeSession, measurements: &mut [Measurement]) {
    let (asked, questions): (Vec<_>, Vec<_>) =
        mapper::questions(measurements, |text| judges.clean(text)).into_iter().unzip();
    let answers = judges.ask("score.category", questions);
    mapper::label(measurements, &asked, &answers);
}
