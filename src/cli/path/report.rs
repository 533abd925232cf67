//! `path report`: distributions of path scores over recorded runs, and a gate against an earlier report.
//!
//! In: recorded traces, and the tasks of the configuration. Out: a table, JSON, or a page; exit code 1 if a
//! score is worse than in the earlier report.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use verdict_eval::metrics::{About, Measurement, MetricSpec, Value};
use verdict_eval::trace::AgentTrace;
use verdict_eval::{EvaluatedTrace, metrics};
use verdict_otlp::attribute_values::values;

use crate::cli::command::{CommandFailure, ConfigFiles, read_text, to_json, write_stderr, write_stdout};
use crate::cli::judge::run::JudgeRun;
use crate::cli::recording::{self, OtherFiles};
use crate::cli::table::TextTable;
use crate::score::path_runs::{ACCEPTING, Dimension, Distribution, PathReport, PathRuns, Regression, RunKey};
use crate::score::report::ReportContent as Page;

pub(super) const LONG_ABOUT: &str = "\
Report the distributions of path scores over recorded runs, and compare them with an earlier report.

Evaluates the traces as 'eval' would, with the tasks of the configuration. Runs are grouped by task,
agent, model (of the first model call) and version (service.version). For each score the report has
the mean with its 95 % interval, the standard deviation and the 10 %, 50 % and 90 % quantiles;
unmeasured scores are counted and left out. A group is on the Pareto front if no other group of its
task is at least as good in every mean and better in one.

With --against a score regresses if its mean is worse than in the earlier report (--format json) by
more than --tolerance and, where both reports have two runs or more, by more than chance explains.
Groups are compared by --match, so by default over all models and versions of an agent.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict path report -c config/paths.yaml recordings/
  otel-verdict path report -c config/paths.yaml --format json recordings/ > baseline.json
  otel-verdict path report -c config/paths.yaml --against baseline.json --tolerance 0.02 recordings/
  otel-verdict path report -c config/paths.yaml --format html recordings/ > paths.html

Exit codes:
  0  reported, and no score regressed
  1  a score regressed
  2  unreadable input, or no run that a task applies to";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ReportFormat {
    Table,
    Json,
    Html,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct PathReportArgs {
    /// Recorded traces: files and folders, as for 'eval'; '-' is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The format of the report on standard output
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: ReportFormat,
    /// Group by these besides the task
    #[arg(long, value_name = "PARTS", value_delimiter = ',', default_value = "agent,model,version")]
    by: Vec<Dimension>,
    /// An earlier report (JSON): exit code 1 if a score regressed since
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Compare groups by these besides the task
    #[arg(long, value_name = "PARTS", value_delimiter = ',', default_value = "agent", requires = "against")]
    r#match: Vec<Dimension>,
    /// By how much a mean may be worse
    #[arg(long, value_name = "NUMBER", default_value_t = 0.05, requires = "against")]
    tolerance: f64,
    #[command(flatten)]
    config: ConfigFiles,
}

pub(super) fn report(args: &PathReportArgs) -> Result<(), CommandFailure> {
    if args.tolerance.is_nan() || args.tolerance < 0.0 {
        return Err(CommandFailure::Usage(format!(
            "--tolerance {}: give a number of at least 0",
            args.tolerance
        )));
    }
    let earlier = args.against.as_deref().map(|file| {
        let unusable =
            |error: serde_json::Error| CommandFailure::Usage(format!("{}: {error}", file.display()));
        serde_json::from_str::<PathReport>(&read_text(file)?).map_err(unusable)
    });
    let earlier = earlier.transpose()?;
    let mut runs = PathRuns::default();
    let config = args.config.load()?;
    let run = JudgeRun::without_judges(&config)?;
    recording::evaluate_at_end(&config, &args.paths, OtherFiles::Skip, &run, |evaluated| {
        add_runs(&evaluated.trace, &args.by, &mut runs);
    })?;
    let report = runs.report();
    if report.groups.is_empty() {
        let message = "no task of the configuration (verdict.metrics.path.tasks) applies to a run";
        return Err(CommandFailure::Usage(message.to_owned()));
    }
    let regressions = earlier.as_ref().map(|earlier| {
        for key in report.missing(earlier, &args.r#match) {
            write_stderr(&format!("{}: no run any more", title(&key)));
        }
        report.regressions(earlier, &args.r#match, args.tolerance)
    });
    write_stdout(render(args.format, &report, regressions.as_deref())?.as_bytes())?;
    match regressions {
        Some(regressions) if !regressions.is_empty() => Err(CommandFailure::ThresholdMet),
        _ => Ok(()),
    }
}

fn render(
    format: ReportFormat,
    report: &PathReport,
    regressions: Option<&[Regression]>,
) -> Result<String, CommandFailure> {
    match format {
        ReportFormat::Json => {
            let mut out = json!(report);
            if let Some(regressions) = regressions {
                out["regressions"] = json!(regressions);
            }
            Ok(to_json(&out)? + "\n")
        }
        ReportFormat::Table => Ok(tables(report, regressions).join("\n")),
        ReportFormat::Html => {
            let page = Page {
                title: "Path report".to_owned(),
                tables: tables(report, regressions),
                ..Page::default()
            };
            Ok(page.html())
        }
    }
}

/// Adds the runs of a trace, one for each agent and task.
fn add_runs(evaluated: &EvaluatedTrace, dimensions: &[Dimension], runs: &mut PathRuns) {
    let trace = &evaluated.trace;
    let is_of_run = |row: &MetricSpec| row.section() == Some("path") && row.about == About::Agent;
    let is_score = |m: &&Measurement| metrics::spec(m.metric).is_some_and(is_of_run);
    let mut scores: Vec<&Measurement> = evaluated.measurements.iter().filter(is_score).collect();
    scores.sort_by(|a, b| (a.at, &a.judge).cmp(&(b.at, &b.judge)));
    for run in scores.chunk_by(|a, b| a.at == b.at && a.judge == b.judge) {
        let Some(first) = run.first() else { continue };
        let value = |m: &Measurement| match &m.outcome.as_ref().ok()?.value {
            Value::Score(score) | Value::Number(score) => Some(*score),
            Value::Label(label) => Some(f64::from(*label == ACCEPTING)),
        };
        let scores_by_name = run.iter().map(|m| (m.metric.trim_start_matches("path."), value(m)));
        runs.add(run_key(trace, first).only(dimensions), scores_by_name);
    }
}

fn run_key(trace: &AgentTrace, m: &Measurement) -> RunKey {
    let agent = trace.agents.iter().find(|agent| agent.at == m.at);
    let model = agent.and_then(|agent| {
        let views = agent.llms.iter().filter_map(|llm| trace.views.get(*llm));
        views.filter_map(|view| view.model.as_ref()).next()
    });
    let span = trace.tree.spans.get(m.at);
    RunKey {
        task: m.judge.strip_prefix("task/").unwrap_or(&m.judge).to_owned(),
        agent: agent.and_then(|agent| agent.name.as_ref()).map(ToString::to_string),
        model: model.map(ToString::to_string),
        version: span.and_then(|span| values(span, "service.version").next()),
    }
}

fn title(key: &RunKey) -> String {
    let parts = [Some(&key.task), key.agent.as_ref(), key.model.as_ref(), key.version.as_ref()];
    parts.into_iter().flatten().cloned().collect::<Vec<_>>().join(" · ")
}

/// A table for each group, and one of the regressions.
fn tables(report: &PathReport, regressions: Option<&[Regression]>) -> Vec<String> {
    let number = |value: f64| format!("{value:.3}");
    let row = |(name, distribution): (&String, &Distribution)| {
        let interval =
            distribution.interval.map_or_else(String::new, |(low, high)| format!("{low:.3}–{high:.3}"));
        let measured = distribution.measured > 0;
        let shown = |value: f64| if measured { number(value) } else { "-".to_owned() };
        [
            name.clone(),
            distribution.measured.to_string(),
            distribution.unmeasured.to_string(),
            shown(distribution.mean),
            interval,
            shown(distribution.sd),
            shown(distribution.p10),
            shown(distribution.p50),
            shown(distribution.p90),
        ]
    };
    let mut out: Vec<String> = Vec::new();
    for group in &report.groups {
        let front = if group.pareto { ", on the Pareto front" } else { "" };
        let plural = if group.runs == 1 { "" } else { "s" };
        let head = ["score", "measured", "unmeasured", "mean", "95 %", "sd", "p10", "p50", "p90"];
        let mut table = TextTable::new(head);
        group.scores.iter().for_each(|score| table.add_row(row(score)));
        out.push(format!("{}: {} run{plural}{front}\n{}", title(&group.key), group.runs, table.render()));
    }
    match regressions {
        None => {}
        Some([]) => out.push("no score regressed\n".to_owned()),
        Some(regressions) => {
            let mut table = TextTable::new(["regressed", "score", "before", "now"]);
            for Regression { key, score, before, now } in regressions {
                table.add_row([title(key), score.clone(), number(*before), number(*now)]);
            }
            out.push(table.render());
        }
    }
    out
}
