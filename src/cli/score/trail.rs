//! `score trail`: predictions for the TRAIL benchmark and their scores.
//!
//! In: traces and gold annotations, or predictions of another tool. Out: the benchmark's figures as tables
//! or JSON, and the predictions in the benchmark's shape. [`super::predict`] makes the predictions.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use verdict_judge::EVALUATOR;

use super::files::{self, AnnotationFiles};
use super::predict::{Predictions, Predictor, ask_whole_traces};
use super::report;
use super::select::{PredictionArgs, Selection};
use super::trail_tables::{self, Caught, TrailScores};
use crate::cli::command::{CommandFailure, ConfigFiles, FiguresFormat, write_stderr};
use crate::cli::judge::options::JudgeOptions;
use crate::cli::judge::run::JudgeRun;
use crate::cli::judge::session::JudgeSession;
use crate::config::Config;
use crate::score::counts::Confusion;
use crate::score::trail::caught::CaughtErrors;
use crate::score::trail::ratings;
use crate::score::trail::{Benchmark, Ratings, TraceErrors};

pub(super) const LONG_ABOUT: &str = "\
Score against the annotations of the TRAIL benchmark.

Judges every trace, maps the findings of failing measurements (with --all-findings those of passing
ones as well) to the benchmark's categories and spans, and counts by the definitions of its
protocol: location and joint precision, recall and F1 over all traces (micro) and as means of the
traces, and weighted category F1; which errors each metric caught and localised; and whether root
verdicts agree with the annotators' overall scores. Traces are read as OTLP or as the benchmark
publishes them. The gold folder contains one JSON file per trace, named after the trace's id.

Paper 001 calls precision localization (joint) accuracy, the benchmark's own script the mean recall
of the traces: flagging every span nearly maximizes the second. Read both.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score trail --traces gaia/traces --gold gaia/gold
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --split test --seed 1
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --report report.html
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --mapper main -c judges.yaml
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --monolithic main -c judges.yaml
  otel-verdict score trail --traces T --gold G -c config/benchmarks/trail-001.yaml --report table4.html
  otel-verdict score trail --from someones-predictions/ --gold gaia/gold --output json";

#[derive(Args, Debug)]
pub(in crate::cli) struct TrailArgs {
    /// Recorded traces: files and folders, as 'eval' reads them; every file must contain telemetry
    #[arg(long, value_name = "PATH", required_unless_present = "from")]
    traces: Vec<PathBuf>,
    /// Folder of the annotators' files, one a trace
    #[arg(long, value_name = "DIR")]
    gold: PathBuf,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    findings: PredictionArgs,
    /// Write predictions here, one file a trace, in the benchmark's shape
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    predictions: Option<PathBuf>,
    /// Score the predictions in this folder instead of judging
    #[arg(long, value_name = "DIR", conflicts_with = "traces")]
    from: Option<PathBuf>,
    /// Judge of the configuration that assigns a category to each flagged span, from its failing
    /// metrics, scores and rationales; the judges of the metrics are then not shown the categories.
    /// With verdict.ask.categories: false by default the judge of the metrics
    #[arg(long, value_name = "JUDGE", conflicts_with_all = ["from", "all_findings"])]
    mapper: Option<String>,
    /// Judge that reads each whole trace in one question instead of the metrics: the baseline.
    /// Traces beyond its max_prompt_tokens are excluded
    #[arg(long, value_name = "JUDGE", conflicts_with_all = ["from", "mapper", "adjudicator", "all_findings"])]
    monolithic: Option<String>,
    /// Show the judge of --monolithic the agents of the run, their callers, tools and turns before the record
    #[arg(long, requires = "monolithic")]
    control_flow: bool,
    /// Judge that decides which findings identify an annotated error, for the tables of caught and
    /// localised errors; without one categories and spans decide
    #[arg(long, value_name = "JUDGE", conflicts_with = "from")]
    adjudicator: Option<String>,
    /// Other predictions for the report's heat map and a table; may be given several times
    #[arg(long = "beside", value_name = "DIR")]
    compared: Vec<PathBuf>,
    /// Write an HTML page with figures, heat map, curves and annotated trees here; it loads nothing
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: FiguresFormat,
    #[command(flatten)]
    judges: JudgeOptions,
    #[command(flatten)]
    config: ConfigFiles,
}

pub(super) fn trail(args: &TrailArgs) -> Result<(), CommandFailure> {
    let mut gold = files::read_annotations(&args.gold)?;
    if gold.is_empty() {
        return Err(CommandFailure::file(&args.gold, "no annotations (*.json) here"));
    }
    args.selection.retain(&mut gold)?;
    let others: Vec<(&PathBuf, AnnotationFiles)> = args
        .compared
        .iter()
        .map(|folder| Ok((folder, files::read_annotations(folder)?)))
        .collect::<Result<_, CommandFailure>>()?;
    let config = args.config.load()?;
    let mapper = mapper(args, &config)?;
    let has_own_questions =
        [&mapper, &args.adjudicator, &args.monolithic].iter().any(|judge| judge.is_some());
    let judges = JudgeRun::start(&args.judges, &config, has_own_questions)?;
    let predictions = match &args.from {
        Some(folder) => Predictions { predicted: files::read_annotations(folder)?, ..Predictions::default() },
        None => predict(args, config, &mapper, &judges, &gold)?,
    };
    if judges.is_dry() {
        return judges.finish();
    }
    if let Some(folder) = &args.predictions {
        files::write_predictions(folder, &predictions.predicted)?;
    }
    exclude_unjudged(args, &mut gold, &predictions)?;
    let scores = score(args, &mapper, &gold, &predictions, &others);
    if let Some(path) = &args.report {
        let ours = report::row("this run", &scores.figures);
        let others = scores.others.iter().map(|(name, figures)| report::row(name, figures));
        let rows = std::iter::once(ours).chain(others).collect();
        predictions.traces.write(path, "TRAIL", trail_tables::all(&scores), rows)?;
    }
    judges.print(args.output, &scores, || trail_tables::all(&scores).join("\n"))
}

/// Leaves annotated traces without a prediction out of the figures where they were not judged: those that
/// are not in the input, and those that do not fit a judge's window. In a folder of predictions an absent file is an
/// empty prediction, as in the reference script.
fn exclude_unjudged(
    args: &TrailArgs,
    gold: &mut AnnotationFiles,
    predictions: &Predictions,
) -> Result<(), CommandFailure> {
    let annotated = gold.len();
    let excluded =
        |name: &String| predictions.notes.baseline.as_ref().is_some_and(|b| b.excluded.contains(name));
    let missing =
        gold.keys().filter(|name| !predictions.predicted.contains_key(*name) && !excluded(name)).count();
    if args.from.is_some() {
        if missing > 0 {
            write_stderr(&format!(
                "{missing} of {annotated} annotated traces have no prediction; counted as empty"
            ));
        }
        return Ok(());
    }
    if missing > 0 {
        write_stderr(&format!(
            "{missing} of {annotated} annotated traces are not in the input and not scored"
        ));
    }
    if predictions.notes.not_annotated > 0 {
        write_stderr(&format!(
            "{} traces have no annotations and are not scored",
            predictions.notes.not_annotated
        ));
    }
    gold.retain(|name, _| predictions.predicted.contains_key(name));
    match (gold.is_empty(), predictions.notes.baseline.is_some()) {
        (false, _) => Ok(()),
        (true, true) => Err(CommandFailure::Run("no trace fits the judge's context window".to_owned())),
        (true, false) => Err(CommandFailure::Usage("no trace of the input is annotated".to_owned())),
    }
}

/// The judge that assigns categories: the one of the command line; where the judges of the metrics are not shown the
/// categories, the one judge of the metrics, since without a category nothing is a prediction.
fn mapper(args: &TrailArgs, config: &Config) -> Result<Option<String>, CommandFailure> {
    let evaluation = &config.verdict.evaluation;
    let has_categories = evaluation.ask.categories || args.from.is_some() || args.monolithic.is_some();
    if args.mapper.is_some() || has_categories {
        return Ok(args.mapper.clone());
    }
    let metric_judges: BTreeSet<&str> = evaluation.named_judges().map(|(_, name)| name).collect();
    let assigns = |name: &&str| config.judges.get(*name).is_none_or(|judge| judge.dialect != EVALUATOR);
    let is_remote = !metric_judges.is_empty() && !metric_judges.iter().any(assigns);
    let metric_judges: BTreeSet<&str> = metric_judges.into_iter().filter(assigns).collect();
    let usage =
        |message: &str| Err(CommandFailure::Usage(format!("verdict.ask.categories is false: {message}")));
    match metric_judges.into_iter().collect::<Vec<_>>()[..] {
        _ if args.findings.predicted().all => {
            usage("findings have no category, so --all-findings predicts nothing")
        }
        [] if is_remote => {
            usage("remote evaluators assign none to what has none; name a judge with --mapper")
        }
        [] => Ok(None),
        [only] => Ok(Some(only.to_owned())),
        _ => usage("name the judge that assigns them with --mapper"),
    }
}

fn predict(
    args: &TrailArgs,
    mut config: Config,
    mapper: &Option<String>,
    judges: &JudgeRun,
    gold: &AnnotationFiles,
) -> Result<Predictions, CommandFailure> {
    let session = |config: &Config, name: &Option<String>| {
        let names = name.as_ref().map(std::slice::from_ref);
        names.map(|names| JudgeSession::new(judges, config, names)).transpose()
    };
    if let Some(judge) = session(&config, &args.monolithic)? {
        return ask_whole_traces(&config, gold, &args.traces, judges, (&judge, args.control_flow));
    }
    // The metrics of paper 001 are not exposed to the taxonomy.
    config.verdict.evaluation.ask.categories &= mapper.is_none();
    let predictor = Predictor {
        judges,
        gold,
        predicted: args.findings.predicted(),
        mapper: session(&config, mapper)?,
        adjudicator: session(&config, &args.adjudicator)?,
        report: args.report.is_some(),
        config: &config,
    };
    predictor.evaluate(&args.traces)
}

fn score(
    args: &TrailArgs,
    mapper: &Option<String>,
    gold: &AnnotationFiles,
    predictions: &Predictions,
    others: &[(&PathBuf, AnnotationFiles)],
) -> TrailScores {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let others = others.iter().map(|(path, predicted)| (name(path), benchmark(gold, predicted)));
    let ours = |name: &String| predictions.predicted.get(name).map(|p| p.ratings).unwrap_or_default();
    let rated: Vec<(Ratings, Ratings)> = gold.iter().map(|(name, gold)| (ours(name), gold.ratings)).collect();
    let judged = args.from.is_none() && args.monolithic.is_none();
    TrailScores {
        figures: benchmark(gold, &predictions.predicted),
        predictions: match (&args.from, &args.monolithic, mapper) {
            (Some(folder), ..) => format!("predictions in {}", folder.display()),
            (_, Some(judge), _) => format!("errors reported by judge '{judge}' on whole traces"),
            (_, _, Some(judge)) => format!("flagged spans with categories by judge '{judge}'"),
            _ if args.findings.predicted().all => "all findings (--all-findings)".to_owned(),
            _ => "findings of failing measurements (--flagged)".to_owned(),
        },
        ratings: ratings::correlate(&rated),
        roots: root_verdicts(predictions, gold),
        coverage: judged.then(|| predictions.coverage.clone()),
        caught: judged.then(|| Caught {
            adjudicator: args.adjudicator.clone().unwrap_or_else(|| "rules".to_owned()),
            tables: CaughtErrors::from_cases(&predictions.errors, &predictions.measured),
        }),
        notes: predictions.notes.clone(),
        others: others.collect(),
    }
}

/// Figures of all annotated traces; an absent prediction is an empty one.
fn benchmark(gold: &AnnotationFiles, predicted: &AnnotationFiles) -> Benchmark {
    let errors = |name: &String| predicted.get(name).map_or(&[][..], |prediction| &prediction.errors);
    let cases = gold.iter().map(|(name, gold)| TraceErrors::new(&gold.errors, errors(name)));
    Benchmark::from_cases(&cases.collect::<Vec<_>>())
}

/// The root verdicts under each policy compared with the annotators' overall scores.
fn root_verdicts(predictions: &Predictions, gold: &AnnotationFiles) -> Vec<(&'static str, Confusion)> {
    let Some(first) = predictions.roots.values().next() else { return Vec::new() };
    let policies = first.0.iter().enumerate().map(|(i, (policy, _))| {
        let verdicts = predictions.roots.iter().map(|(name, roots)| {
            let overall = gold.get(name).and_then(|gold| gold.ratings.overall());
            (roots.0.get(i).and_then(|(_, passed)| *passed), overall)
        });
        (*policy, ratings::verdicts(verdicts))
    });
    policies.collect()
}
