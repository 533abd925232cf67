//! `score labels`: verdicts and scores against labels of one's own.
//!
//! In: traces and labels. Out: the benchmark's tables over the labels' categories, and each
//! metric's precision, recall, F1, F2, accuracy and agreement with people's scores.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::files;
use super::report::{self, Gathered};
use super::table::{Table, figure, maybe};
use super::tables::{self, interval};
use crate::cli::config_files::ConfigFiles;
use crate::cli::failure::Failure;
use crate::cli::format::Output;
use crate::cli::terminal::{write_stderr, write_stdout};
use crate::cli::{eval, input};
use crate::score::agreement::Agreement;
use crate::score::bootstrap::Interval;
use crate::score::counts::Confusion;
use crate::score::labels::{Expected, Labels, SHAPE, TraceLabels};
use crate::score::metrics;
use crate::score::metrics::Point;
use crate::score::report::draw::Row;
use crate::score::trail::benchmark::Intervals;
use crate::score::trail::{Benchmark, Case};

pub(super) const LONG: &str = "\
Score against labels of your own.

Judges every trace and compares with what people say of its spans: where errors are and of which
category, whether each metric fails where it should, and how scores agree. A metric is held only
against labels that name it or a category it looks for.";

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

/// Traces and what people say of them.
#[derive(Args, Debug)]
pub(super) struct Against {
    /// Recorded traces: files and folders, as 'eval' reads them
    #[arg(long, value_name = "PATH", required = true)]
    traces: Vec<PathBuf>,
    /// A file of labels, or a folder of files of labels or of TRAIL annotations
    #[arg(long, value_name = "PATH")]
    labels: PathBuf,
    /// Write a page for people here: figures, heat map, curves, trees; no network needed
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// What to print
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Output,
    #[command(flatten)]
    config: ConfigFiles,
}

impl Against {
    /// Every labelled trace, judged. A label whose trace is missing is told of.
    pub(super) fn judge(&self) -> Result<Gathered, Failure> {
        let mut labels = read(&self.labels)?;
        let config = self.config.load()?;
        let mut gathered = Gathered::default();
        eval::each(&config, &input::find(&self.traces)?, |evaluated| {
            if let Some(labels) = labels.remove(&evaluated.judged.trace.tree.id.to_string()) {
                let marks = labels.annotations();
                gathered.add(&evaluated, labels, &marks);
            }
        })?;
        if let Some(first) = labels.keys().next() {
            write_stderr(&format!("{} labelled traces are not in the input, first {first}", labels.len()));
        }
        if gathered.judged.is_empty() {
            return Err(Failure::Usage("no trace of the input has labels".to_owned()));
        }
        Ok(gathered)
    }

    /// Writes the page, where one is wanted.
    pub(super) fn report(
        &self,
        gathered: Gathered,
        tables: Vec<String>,
        rows: Vec<Row>,
    ) -> Result<(), Failure> {
        let Some(path) = &self.report else { return Ok(()) };
        report::write(path, &gathered.report("otel-verdict: labels".to_owned(), tables, rows))
    }
}

fn read(path: &Path) -> Result<BTreeMap<String, TraceLabels>, Failure> {
    let mut out = BTreeMap::new();
    for (name, bytes) in files::json(path)? {
        let fault = |e: serde_json::Error| Failure::Usage(format!("{}: {e}", name.display()));
        let trail = serde_json::from_slice::<Value>(&bytes).is_ok_and(|v| v.get("traces").is_none());
        if trail {
            let stem = name.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
            if let Some(annotations) = crate::score::trail::Annotations::read(&bytes) {
                let id = annotations.trace.clone().unwrap_or(stem);
                out.insert(id.clone(), TraceLabels::of_trail(&id, &annotations));
            }
        } else {
            let labels: Labels = serde_json::from_slice(&bytes).map_err(fault)?;
            out.extend(labels.traces.into_iter().map(|t| (t.trace_id.trim().to_lowercase(), t)));
        }
    }
    if out.is_empty() {
        return Err(Failure::Usage(format!("{}: no labels here", path.display())));
    }
    Ok(out)
}

/// All that is told.
struct Scored {
    figures: Benchmark,
    intervals: Intervals,
    metrics: Vec<(&'static str, Confusion, [Option<Interval>; 3])>,
    /// Failing traces as said and as expected.
    traces: Confusion,
    agreements: BTreeMap<String, Agreement>,
}

pub(super) fn labels(args: &Against) -> Result<(), Failure> {
    let gathered = args.judge()?;
    let pairs = gathered.pairs();
    let cases: Vec<Case> = pairs.iter().map(|(t, l)| Case::new(&l.annotations(), &t.errors)).collect();
    let mut traces = Confusion::default();
    for (trace, labels) in &pairs {
        if let (Some(passed), Some(expected)) = (trace.passed, labels.expected) {
            traces.count(!passed, expected == Expected::Fail);
        }
    }
    let row = |(metric, points): (&'static str, Vec<Point>)| {
        (metric, metrics::confusion(&points), metrics::intervals(&points))
    };
    let result = Scored {
        figures: Benchmark::of(&cases),
        intervals: Intervals::of(&cases),
        metrics: metrics::points(&pairs).into_iter().map(row).collect(),
        traces,
        agreements: metrics::agreements(&pairs),
    };
    let text = tables(&result);
    args.report(gathered, text.clone(), vec![report::row("this run", &result.figures)])?;
    match args.output {
        Output::Table => write_stdout(text.join("\n").as_bytes()),
        Output::Json => write_stdout(format!("{:#}\n", json(&result)).as_bytes()),
    }
}

fn tables(s: &Scored) -> Vec<String> {
    let mut parts = tables::figures(&s.figures, &s.intervals);
    let mut t = Table::new(["metric: failing", "cases", "should", "P", "R", "F1", "F2", "accuracy"]);
    let traces = ("trace verdict", s.traces, [None; 3]);
    for (metric, c, [p, r, f]) in s.metrics.iter().copied().chain((s.traces.total() > 0).then_some(traces)) {
        let of = c.tally();
        let shares = [figure(of.precision(), p), figure(of.recall(), r), figure(of.f1(), f)];
        let more = [figure(of.f(2.0), None), figure(c.accuracy(), None)];
        let counts = [metric.to_owned(), c.total().to_string(), of.gold.to_string()];
        t.row(counts.into_iter().chain(shares).chain(more));
    }
    parts.push(t.render());
    if !s.agreements.is_empty() {
        parts.push(agreements(&s.agreements));
    }
    parts
}

fn agreements(of: &BTreeMap<String, Agreement>) -> String {
    let head = ["score, ours : theirs", "pairs", "exact", "by one", "bucketed", "Pearson", "Spearman"];
    let mut t =
        Table::new([head[0], head[1], head[2], head[3], head[4], head[5], head[6], "NMAE", "kappa", "alpha"]);
    for (metric, a) in of {
        let shares = [a.exact, a.off_by_one, a.bucketed].map(|f| figure(f, None));
        let rest = [a.pearson, a.spearman, Some(a.nmae), a.kappa, a.alpha].map(maybe);
        t.row([metric.clone(), a.pairs.to_string()].into_iter().chain(shares).chain(rest));
    }
    t.render()
}

fn json(s: &Scored) -> Value {
    let mut out = tables::benchmark_json(&s.figures, &s.intervals);
    let metrics = s.metrics.iter().map(|(metric, c, ends)| {
        let mut figures = confusion(c);
        let [p, r, f] = ends.map(interval);
        figures["intervals_95"] = json!({ "precision": p, "recall": r, "f1": f });
        ((*metric).to_owned(), figures)
    });
    out["metrics"] = Value::Object(metrics.collect());
    out["trace_verdict"] = confusion(&s.traces);
    let agreements = s.agreements.iter().map(|(metric, a)| {
        let figures = json!({
            "pairs": a.pairs, "exact": a.exact, "off_by_one": a.off_by_one, "bucketed": a.bucketed,
            "pearson": a.pearson, "spearman": a.spearman, "nmae": a.nmae, "kappa": a.kappa,
            "alpha_interval": a.alpha,
        });
        (metric.clone(), figures)
    });
    out["agreement"] = Value::Object(agreements.collect());
    out
}

/// A confusion and its shares.
pub(super) fn confusion(c: &Confusion) -> Value {
    let t = c.tally();
    json!({
        "tp": c.tp, "fp": c.fp, "fn": c.fn_, "tn": c.tn, "precision": t.precision(), "recall": t.recall(),
        "f1": t.f1(), "f2": t.f(2.0), "accuracy": c.accuracy(),
    })
}
