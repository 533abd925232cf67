//! `score trail`: predictions for the TRAIL benchmark and their scores.
//!
//! In: traces and gold annotations, or predictions of another tool. Out: the benchmark's figures as tables
//! or JSON, and the predictions in the benchmark's shape.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use verdict_eval::Measurement;

use super::files::{self, Folder as Files};
use super::report::{self, LabelledTraces};
use super::tables::{self, TrailScores};
use crate::cli::command::{ConfigFiles, Failure, Output, write_stderr};
use crate::cli::eval;
use crate::cli::judge::JudgeSession;
use crate::score::counts::Confusion;
use crate::score::labels::TraceLabels;
use crate::score::trail::ratings::{self, RootVerdicts};
use crate::score::trail::{Annotations, Benchmark, Ratings, TraceMarks, find, mapper};

pub(super) const LONG: &str = "\
Score against the annotations of the TRAIL benchmark.

Judges every trace, maps findings to the benchmark's categories and spans, and counts by exactly
the definitions of its protocol: location and joint precision, recall and F1 over all traces,
weighted category F1, and the benchmark's own per-trace means. The gold folder contains one JSON
file per trace, named after the trace's id; a trace without a prediction counts as one with an
empty prediction.

The benchmark's location accuracy is recall: flagging every span nearly maximizes it. Read it
together with precision.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score trail --traces gaia/traces --gold gaia/gold
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --predictions out/
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --report report.html
  otel-verdict score trail --from someones-predictions/ --gold gaia/gold --output json";

#[derive(Args, Debug)]
pub(in crate::cli) struct Trail {
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
    /// Judge of the configuration that assigns a category to findings without one; it receives
    /// metric, score and rationale, and does not judge again
    #[arg(long, value_name = "JUDGE", conflicts_with = "from")]
    mapper: Option<String>,
    /// Other predictions for the report's heat map and a table; may be given several times
    #[arg(long, value_name = "DIR")]
    beside: Vec<PathBuf>,
    /// Write an HTML page with figures, heat map, curves and annotated trees here; it loads nothing
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
        return Err(Failure::file(&args.gold, "no annotations (*.json) here"));
    }
    let others: Vec<(&PathBuf, Files)> = args
        .beside
        .iter()
        .map(|folder| Ok((folder, files::read(folder)?)))
        .collect::<Result<_, Failure>>()?;
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
    let scores = score(&gold, &run, &others);
    if let Some(path) = &args.report {
        let ours = report::row("this run", &scores.figures);
        let others = scores.others.iter().map(|(name, figures)| report::row(name, figures));
        let rows = std::iter::once(ours).chain(others).collect();
        run.traces.write(path, "TRAIL", tables::all(&scores), rows)?;
    }
    args.output.print(&scores, || tables::all(&scores).join("\n"))
}

/// Predictions and root verdicts by the gold file's name.
#[derive(Default)]
struct Run {
    predicted: Files,
    roots: BTreeMap<String, RootVerdicts>,
    traces: LabelledTraces,
}

fn score(gold: &Files, run: &Run, others: &[(&PathBuf, Files)]) -> TrailScores {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let others = others.iter().map(|(path, predicted)| (name(path), benchmark(gold, predicted)));
    let ours = |name: &String| run.predicted.get(name).map(|p| p.ratings).unwrap_or_default();
    let rated: Vec<(Ratings, Ratings)> = gold.iter().map(|(name, gold)| (ours(name), gold.ratings)).collect();
    TrailScores {
        figures: benchmark(gold, &run.predicted),
        ratings: ratings::correlate(&rated),
        roots: (!run.roots.is_empty()).then(|| compare(&run.roots, gold)),
        others: others.collect(),
    }
}

/// Figures of all annotated traces; an absent prediction is an empty one.
fn benchmark(gold: &Files, predicted: &Files) -> Benchmark {
    let errors = |name: &String| predicted.get(name).map_or(&[][..], |prediction| &prediction.errors);
    let marks = gold.iter().map(|(name, gold)| TraceMarks::new(&gold.errors, errors(name)));
    Benchmark::of(&marks.collect::<Vec<_>>())
}

fn compare(roots: &BTreeMap<String, RootVerdicts>, gold: &Files) -> [(&'static str, Confusion); 2] {
    let against = |of: fn(&RootVerdicts) -> Option<bool>| {
        let overall = |name: &String| gold.get(name).and_then(|g| g.ratings.overall());
        ratings::verdicts(roots.iter().map(|(name, r)| (of(r), overall(name))))
    };
    [("existential", against(|r| r.existential)), ("outcome_relevant", against(|r| r.outcome_relevant))]
}

fn judge(args: &Trail, gold: &Files) -> Result<Run, Failure> {
    let config = args.config.load()?;
    // A gold file is named after its trace or contains the trace id.
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
    let mut not_annotated = 0;
    eval::each(&config, &args.traces, |mut evaluated| {
        if let Some(judge) = &mapper {
            name_categories(judge, &mut evaluated.trace.measurements);
        }
        let (trace, measurements) = (&evaluated.trace.trace, &evaluated.trace.measurements);
        let id = trace.tree.id.to_string();
        let Some((name, gold)) = by_trace.get(id.as_str()).and_then(|name| gold.get_key_value(*name)) else {
            not_annotated += 1;
            return;
        };
        let findings = find::located_findings(trace, measurements);
        let prediction = Annotations {
            trace: Some(id.clone()),
            errors: findings.iter().map(|f| f.annotation(trace)).collect(),
            ratings: ratings::rate(trace, measurements, &findings),
        };
        run.predicted.insert(name.clone(), prediction);
        run.roots.insert(name.clone(), RootVerdicts::of(trace, measurements));
        if args.report.is_some() {
            run.traces.add(&evaluated, TraceLabels::of_trail(&id, gold), &gold.errors);
        }
    })?;
    if not_annotated > 0 {
        write_stderr(&format!("{not_annotated} traces have no annotations and are not scored"));
    }
    Ok(run)
}

fn name_categories(judge: &JudgeSession, measurements: &mut [Measurement]) {
    let (asked, questions): (Vec<_>, Vec<_>) =
        mapper::questions(measurements, |text| judge.clean(text)).into_iter().unzip();
    let answers = judge.ask("score.category", questions);
    mapper::label(measurements, &asked, &answers);
}
