//! `score labels`: verdicts and scores compared with the user's labels.
//!
//! In: traces and labels. Out: the benchmark's tables over the labels' categories, and each
//! metric's precision, recall, F1, F2, accuracy and agreement with the labelled scores.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use verdict_eval::metrics::CHECKLIST;

use super::predict::settings;
use super::report::{self, LabelledTraces};
use super::select::{PredictionArgs, Selection};
use super::{baseline, files, tables};
use crate::cli::command::{CommandFailure, ConfigFiles, FiguresFormat, write_stderr};
use crate::cli::judge::options::JudgeOptions;
use crate::cli::judge::run::JudgeRun;
use crate::cli::judge::session::JudgeSession;
use crate::cli::recording::{self, OtherFiles};
use crate::cli::table::{TextTable, figure, optional_figure, shares};
use crate::score::agreement::Agreement;
use crate::score::bootstrap::ShareIntervals;
use crate::score::completion::CompletionAgreement;
use crate::score::counts::Confusion;
use crate::score::labels::{Expected, LabelFile, SHAPE, TraceLabels};
use crate::score::metrics::{self, ScoredTrace};
use crate::score::report::draw::EvaluatorRow;
use crate::score::trail::placement::Predicted;
use crate::score::trail::{Annotations, Benchmark, TraceErrors};

pub(super) const LONG_ABOUT: &str = "\
Score against your labels.

Judges every trace and compares with the labels of its spans: location and category of errors,
failures of each metric, and agreement of scores: exact, by one and by two points, in the same of
three buckets (worst, between, best), and 2-pt, both an error (the worst bucket) or both not. A
metric is compared only with labels that name it or a category that it detects. Where labels are
of whole traces only, so is the comparison.

With labelled outcomes ('expected'), whether tasks were completed is compared as well: by the
checklist, by the verdict of the trace, and with --baseline by a judge that sees the task and the
final answer alone: accuracy, precision, recall, specificity and Cohen's kappa, with a completed
task as positive.";

pub(super) fn examples() -> String {
    format!(
        "\
Examples:
  otel-verdict score labels --traces recordings/ --labels labels.json
  otel-verdict score labels --traces gaia/traces --labels gaia/gold     # TRAIL's files are labels too

Shape of a file of labels:
{SHAPE}"
    )
}

#[derive(Args, Debug)]
pub(in crate::cli) struct ScoreLabelsArgs {
    /// Recorded traces: files and folders, as 'eval' reads them
    #[arg(long, value_name = "PATH", required = true)]
    traces: Vec<PathBuf>,
    /// A file of labels, or a folder of files of labels or of TRAIL annotations
    #[arg(long, value_name = "PATH")]
    labels: PathBuf,
    /// Write an HTML page with figures, heat map, curves and trees here; it loads nothing
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: FiguresFormat,
    #[command(flatten)]
    judges: JudgeOptions,
    #[command(flatten)]
    config: ConfigFiles,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct LabelsArgs {
    #[command(flatten)]
    labelled: ScoreLabelsArgs,
    #[command(flatten)]
    findings: PredictionArgs,
    /// Also ask this judge, by its name under 'judges', whether each task was completed, from the task and the final
    /// answer alone; may be given several times
    #[arg(long, value_name = "NAME")]
    baseline: Vec<String>,
}

impl ScoreLabelsArgs {
    /// Judges every labelled trace. Labels of missing traces are counted on standard error.
    pub(super) fn judge(
        &self,
        predicted: Predicted,
        has_own_questions: bool,
    ) -> Result<(LabelledTraces, JudgeRun), CommandFailure> {
        let mut labels = read_labels(&self.labels)?;
        self.selection.retain(&mut labels)?;
        let config = self.config.load()?;
        let settings = settings(&config)?;
        let run = JudgeRun::start(&self.judges, &config, has_own_questions)?;
        let mut judged = LabelledTraces::default();
        recording::evaluate_at_end(&config, &self.traces, OtherFiles::Skip, &run, |evaluated| {
            if let Some(labels) = labels.remove(&evaluated.trace.trace.tree.id.to_string()) {
                let annotations = labels.annotations();
                judged.add(&evaluated, labels, &annotations, &settings, predicted);
            }
        })?;
        if let Some(first) = labels.keys().next() {
            write_stderr(&format!("{} labelled traces are not in the input, first {first}", labels.len()));
        }
        if judged.labelled.is_empty() {
            return Err(CommandFailure::Usage("no trace of the input has labels".to_owned()));
        }
        Ok((judged, run))
    }

    /// Writes the page if `--report` is given.
    pub(super) fn report(
        &self,
        judged: LabelledTraces,
        tables: Vec<String>,
        rows: Vec<EvaluatorRow>,
    ) -> Result<(), CommandFailure> {
        self.report.as_ref().map_or(Ok(()), |path| judged.write(path, "labels", tables, rows))
    }
}

/// The labels of a file or folder by trace id in hex.
pub(super) fn read_labels(path: &Path) -> Result<BTreeMap<String, TraceLabels>, CommandFailure> {
    let mut out = BTreeMap::new();
    for (file, bytes) in files::read_json_files(path)? {
        let is_trail = serde_json::from_slice::<Value>(&bytes).is_ok_and(|v| v.get("traces").is_none());
        if is_trail {
            if let Some(annotations) = Annotations::read(&bytes) {
                let id = annotations.trace.clone().unwrap_or_else(|| files::stem(&file));
                out.insert(id.clone(), TraceLabels::from_trail(&id, &annotations));
            }
        } else {
            let labels: LabelFile =
                serde_json::from_slice(&bytes).map_err(|e| CommandFailure::file(&file, e))?;
            out.extend(labels.traces.into_iter().map(|t| (t.trace_id.trim().to_lowercase(), t)));
        }
    }
    if out.is_empty() {
        return Err(CommandFailure::file(path, "no labels here"));
    }
    Ok(out)
}

/// The result of `score labels`.
#[derive(Serialize)]
struct LabelScores {
    /// `None` if no label names a span.
    #[serde(flatten)]
    figures: Option<Benchmark>,
    metrics: BTreeMap<&'static str, MetricCounts>,
    /// Verdicts of traces compared with the labelled verdicts; a failing trace is positive.
    trace_verdict: Confusion,
    /// Whether tasks were completed, by rater; a completed task is positive.
    completion: Vec<CompletionAgreement>,
    agreement: BTreeMap<String, Agreement>,
}

#[derive(Clone, Copy, Serialize)]
struct MetricCounts {
    #[serde(flatten)]
    counts: Confusion,
    intervals_95: ShareIntervals,
}

pub(super) fn labels(
    LabelsArgs { labelled: args, findings, baseline }: &LabelsArgs,
) -> Result<(), CommandFailure> {
    let (judged, run) = args.judge(findings.predicted(), !baseline.is_empty())?;
    let pairs = judged.pairs();
    let baseline_answers = match baseline.is_empty() {
        true => None,
        false => {
            let session = JudgeSession::new(&run, &args.config.load()?, baseline)?;
            let traces: Vec<_> = pairs.iter().map(|(trace, _)| *trace).collect();
            Some(baseline::ask(&traces, &session))
        }
    };
    if run.is_dry() {
        return run.finish();
    }
    let errors: Vec<TraceErrors> =
        pairs.iter().map(|(trace, labels)| TraceErrors::new(&labels.annotations(), &trace.errors)).collect();
    // Without labels of spans, figures of spans would be zeros.
    let has_span_labels = pairs.iter().any(|(_, labels)| !labels.spans.is_empty());
    let mut trace_verdict = Confusion::default();
    for (trace, labels) in &pairs {
        if let (Some(passed), Some(expected)) = (trace.passed, labels.expected) {
            trace_verdict.count(!passed, expected == Expected::Fail);
        }
    }
    let measurements = metrics::labelled_measurements(&pairs).into_iter().filter(|_| has_span_labels);
    let metrics = measurements.map(|(metric, points)| {
        let (counts, intervals_95) = (metrics::confusion(&points), metrics::intervals(&points));
        (metric, MetricCounts { counts, intervals_95 })
    });
    let scores = LabelScores {
        figures: has_span_labels.then(|| Benchmark::from_cases(&errors)),
        metrics: metrics.collect(),
        trace_verdict,
        completion: completion(&pairs, baseline_answers.as_deref()),
        agreement: metrics::agreements(&pairs),
    };
    let tables = tables(&scores);
    let rows = scores.figures.iter().map(|figures| report::row("this run", figures)).collect();
    args.report(judged, tables.clone(), rows)?;
    run.print(args.output, &scores, || tables.join("\n"))
}

/// The agreement of each rater of whole runs with the labels; raters without an answer are omitted.
fn completion(
    pairs: &[(&ScoredTrace, &TraceLabels)],
    baseline_answers: Option<&[Option<bool>]>,
) -> Vec<CompletionAgreement> {
    let mut raters = vec![
        CompletionAgreement::from_answers(CHECKLIST, pairs, |_, trace| trace.completed),
        CompletionAgreement::from_answers("trace verdict", pairs, |_, trace| trace.passed),
    ];
    raters.extend(baseline_answers.map(|answers| {
        CompletionAgreement::from_answers("plain judge", pairs, |i, _| answers.get(i).copied().flatten())
    }));
    raters.retain(|rater| rater.counts.total() > 0);
    raters
}

fn tables(scores: &LabelScores) -> Vec<String> {
    let mut tables: Vec<String> = scores.figures.iter().flat_map(tables::benchmark).collect();
    if tables.is_empty() {
        tables.push("no label names a span: only whole traces are compared\n".to_owned());
    }
    let mut t = TextTable::new(["metric: failing", "cases", "should", "P", "R", "F1", "F2", "accuracy"]);
    let trace = MetricCounts { counts: scores.trace_verdict, intervals_95: ShareIntervals::default() };
    let trace = (trace.counts.total() > 0).then_some(("trace verdict", trace));
    let metrics = scores.metrics.iter().map(|(metric, counts)| (*metric, *counts));
    for (metric, MetricCounts { counts, intervals_95 }) in metrics.chain(trace) {
        let tally = counts.tally();
        let cells = [metric.to_owned(), counts.total().to_string(), tally.gold.to_string()];
        let further_figures = [tally.f(2.0), counts.accuracy()].map(|f| figure(f, None));
        t.add_row(cells.into_iter().chain(shares(&tally, intervals_95)).chain(further_figures));
    }
    tables.push(t.render());
    if !scores.completion.is_empty() {
        let mut t = TextTable::new([
            "task completed",
            "cases",
            "unmeasured",
            "accuracy",
            "P",
            "R",
            "specificity",
            "kappa",
        ]);
        for CompletionAgreement { rater, counts, unmeasured } in &scores.completion {
            let tally = counts.tally();
            let shares =
                [counts.accuracy(), tally.precision(), tally.recall(), counts.specificity()].map(Some);
            let figures = shares.into_iter().chain([counts.kappa()]).map(optional_figure);
            let cells = [(*rater).to_owned(), counts.total().to_string(), unmeasured.to_string()];
            t.add_row(cells.into_iter().chain(figures));
        }
        tables.push(t.render());
    }
    if !scores.agreement.is_empty() {
        tables.push(agreements(&scores.agreement));
    }
    tables
}

fn agreements(by_metric: &BTreeMap<String, Agreement>) -> String {
    let mut t = TextTable::new([
        "score, ours : theirs",
        "pairs",
        "exact",
        "by one",
        "by two",
        "bucketed",
        "2-pt",
        "Pearson",
        "Spearman",
        "NMAE",
        "kappa",
        "alpha",
    ]);
    for (metric, a) in by_metric {
        let shares = [a.exact, a.off_by_one, a.off_by_two, a.bucketed, a.two_point].map(Some);
        let coefficients = [a.pearson, a.spearman, Some(a.nmae), a.kappa, a.alpha];
        let figures = shares.into_iter().chain(coefficients).map(optional_figure);
        t.add_row([metric.clone(), a.pairs.to_string()].into_iter().chain(figures));
    }
    t.render()
}
