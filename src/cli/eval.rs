//! `eval`: evaluates recorded traces offline, with the same stages as `run`.
//!
//! In: files, folders, standard input. Out: verdicts in one of several forms on standard output,
//! and an exit code for CI. A trace is complete when the input ends.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use verdict_eval::{Emit, EvaluatedTrace};

use super::input::{self, Origin};
use super::output::{Output, Printer, Totals};
use crate::cli::command::{ConfigFiles, Failure, write_stderr};
use crate::cli::judge::options::JudgeOptions;
use crate::cli::judge::run::JudgeRun;
use crate::cli::report;
use crate::config::Config;
use crate::extensions::Extensions;
use crate::pipeline::offline::{AskedMetric, Evaluated, Evaluation};
use crate::telemetry::ResultLabel;

pub(super) const LONG: &str = "\
Evaluate recorded traces. Without judges no network is used.

Reads OTLP requests as protobuf, JSON or JSON lines (also as the Collector's file exporter
writes them, also compressed) and detects the format from the content. Reads files, folders
(recursively, in order of names) and standard input ('-'). Logs that belong to spans are read as
well. All input forms one recording: spans of one trace may be spread over files. At the end of
the input every trace is closed and evaluated as 'run' evaluates it.

Where metrics name judges, their report follows on standard error: asked, answered, failed by
reason, tokens, cost.";

/// With the shape of `--output json`.
pub(super) fn examples() -> String {
    format!(
        "\
Examples:
  otel-verdict eval traces.jsonl
  otel-verdict eval recordings/ --output json | jq 'select(.result == \"fail\")'
  otel-verdict eval run.pb --fail-on fail && echo passed
  otel-verdict eval recordings/ --only fail --fail-on-rate 5%
  otel-verdict eval recordings/ --output junit > verdicts.xml
  otel-verdict eval recordings/ --output html > verdicts.html
  otel-verdict eval recordings/ -c judges.yaml --dry-run
  otel-verdict eval recordings/ -c judges.yaml --require-judged 0.95 --resume answers/
  curl -s https://example.test/trace.json | otel-verdict eval -

Output:
  tree      one tree a trace, for people
  json      one object a trace and line, in the shape below
  otlp      one ExportTraceServiceRequest a trace as JSON and line, annotated
  junit     one XML document with a test case a trace, for CI servers
  html      the live page as one file, for a browser; needs no server and no network
  markdown  totals and failing traces, for the summary of a CI job

The number of traces by result follows on standard error.

Exit codes:
  0  evaluated
  1  the condition of --fail-on or --fail-on-rate was met, or less was judged than
     --require-judged demands
  2  unreadable input, wrong configuration or usage

Shape of --output json (each object is printed on one line):
{}",
        report::SHAPE
    )
}

#[derive(Args, Debug)]
pub(super) struct Eval {
    /// Files and folders to read; '-' is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// What to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Exit with 1 if any trace has this result; 'unmeasured' includes 'fail'
    #[arg(long, value_enum, value_name = "RESULT")]
    fail_on: Option<FailOn>,
    /// Exit with 1 if a larger share than this of the traces with a verdict fails: 5% or 0.05
    #[arg(long, value_parser = rate, value_name = "SHARE")]
    fail_on_rate: Option<f64>,
    /// Print only traces with these results; totals and exit code count all
    #[arg(long, value_enum, value_delimiter = ',', value_name = "RESULT")]
    only: Vec<Only>,
    #[command(flatten)]
    judges: JudgeOptions,
    #[command(flatten)]
    config: ConfigFiles,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum FailOn {
    /// A trace that fails
    Fail,
    /// A trace that fails, or without any measurement
    Unmeasured,
}

impl FailOn {
    fn met(self, totals: Totals) -> bool {
        let unmeasured = self == FailOn::Unmeasured && totals.of(ResultLabel::Unmeasured) > 0;
        unmeasured || totals.of(ResultLabel::Fail) > 0
    }
}

/// A result that `--only` selects.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum Only {
    /// Traces that pass
    Pass,
    /// Traces that fail
    Fail,
    /// Traces without any measurement
    Unmeasured,
}

impl From<Only> for ResultLabel {
    fn from(only: Only) -> ResultLabel {
        match only {
            Only::Pass => ResultLabel::Pass,
            Only::Fail => ResultLabel::Fail,
            Only::Unmeasured => ResultLabel::Unmeasured,
        }
    }
}

/// A share as a number from 0 to 1 or as a percentage.
fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / unit);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "a share from 0 to 1, or 0% to 100%".to_owned())
}

pub(super) fn eval(args: &Eval) -> Result<(), Failure> {
    let mut config = args.config.load()?;
    // The output is annotated spans, also where `run` would write verdicts elsewhere.
    if !config.verdict.evaluation.emit.contains(&Emit::Attributes) {
        config.verdict.evaluation.emit.push(Emit::Attributes);
    }
    let only = args.only.iter().map(|&only| only.into()).collect();
    let mut printer = Printer::new(args.output, only, &config)?;
    let run = JudgeRun::start(&args.judges, &config, false)?;
    let mut traces = 0usize;
    each(&config, &args.paths, OtherFiles::Skip, &run, |evaluated| {
        traces += 1;
        if !run.is_dry() {
            printer.print(&evaluated);
        }
    })?;
    printer.finish()?;
    if traces == 0 {
        return Err(Failure::Usage("the input contains no spans".to_owned()));
    }
    let totals = printer.totals;
    if !run.is_dry() {
        write_stderr(&totals.to_string());
    }
    run.finish()?;
    let exceeded = args.fail_on_rate.zip(totals.fail_rate()).is_some_and(|(most, rate)| rate > most);
    let met = args.fail_on.is_some_and(|fail_on| fail_on.met(totals));
    if met || exceeded { Err(Failure::ThresholdMet) } else { Ok(()) }
}

/// The treatment of files in folders that contain JSON but no telemetry.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum OtherFiles {
    /// They are counted on standard error.
    Skip,
    /// The first one is an error.
    Refuse,
}

/// Reads `paths` as one recording, evaluates it with the judges of `run`, and calls `each` with one trace at a time.
pub(super) fn each(
    config: &Config,
    paths: &[PathBuf],
    other: OtherFiles,
    run: &JudgeRun,
    mut each: impl FnMut(Evaluated),
) -> Result<(), Failure> {
    let mut evaluation = read(config, paths, other, run)?;
    let progress = Progress::new(evaluation.traces() as u64, "evaluating");
    let work = evaluation.finish(|evaluated| {
        progress.step(1);
        run.add(&evaluated.asked);
        // A trace of log records alone has no spans.
        if !evaluated.trace.trace.tree.is_empty() {
            each(evaluated);
        }
    });
    run.block_on(progress.follow(run, work));
    Ok(())
}

/// As [`each`], with every trace evaluated `runs` times; `each` gets the number of the run, from 0.
pub(super) fn repeat(
    config: &Config,
    paths: &[PathBuf],
    runs: u32,
    run: &JudgeRun,
    mut each: impl FnMut(u32, EvaluatedTrace),
) -> Result<(), Failure> {
    let mut evaluation = read(config, paths, OtherFiles::Skip, run)?;
    let progress = Progress::new(evaluation.traces() as u64 * u64::from(runs), "evaluating");
    let work = evaluation.repeat(runs, |number, evaluated, asked: Vec<AskedMetric>| {
        progress.step(1);
        run.add(&asked);
        each(number, evaluated);
    });
    run.block_on(progress.follow(run, work));
    Ok(())
}

fn read(
    config: &Config,
    paths: &[PathBuf],
    other: OtherFiles,
    run: &JudgeRun,
) -> Result<Evaluation, Failure> {
    let origins = input::find(paths)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let evaluation = Evaluation::with_judges(config, &Extensions::default(), nanos, run.judges().cloned());
    let mut evaluation = evaluation.map_err(|why| Failure::Usage(why.to_string()))?;
    let progress = Progress::new(origins.iter().map(Origin::size).sum(), "reading");
    let mut skipped: Vec<String> = Vec::new();
    for origin in &origins {
        let mut refused = None;
        let telemetry = input::read(origin, &mut |recorded| match evaluation.add(&recorded.offer) {
            Ok(rejected) if rejected.count > 0 => write_stderr(&format!("{}: {rejected}", recorded.origin)),
            Ok(_) => {}
            Err(why) => refused = refused.take().or(Some(format!("{}: {why}", recorded.origin))),
        })?;
        if let Some(why) = refused {
            return Err(Failure::Usage(why));
        }
        if !telemetry {
            skipped.push(origin.name());
        }
        progress.step(origin.size());
    }
    drop(progress);
    if let Some(first) = skipped.first() {
        let count = skipped.len();
        let found = format!("files in folders that contain JSON but no telemetry: {count}, first {first}");
        if other == OtherFiles::Refuse {
            return Err(Failure::Usage(found));
        }
        write_stderr(&format!("{found}; skipped"));
    }
    Ok(evaluation)
}

/// Shorter work shows no progress bar.
const DELAY: Duration = Duration::from_millis(800);

/// How often the progress bar shows the state of questions.
const REFRESH: Duration = Duration::from_millis(500);

/// A progress bar on standard error, only on a terminal and only for work that takes longer than [`DELAY`].
struct Progress(ProgressBar);

impl Progress {
    fn new(len: u64, message: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(message);
        Progress(bar)
    }

    /// Does `work`, and shows the results of questions to judges meanwhile.
    async fn follow(&self, run: &JudgeRun, work: impl Future<Output = ()>) {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = &mut work => return,
                () = tokio::time::sleep(REFRESH) => {
                    let told = run.progress();
                    if !told.is_empty() {
                        self.0.set_message(format!("evaluating: {told}"));
                        self.step(0);
                    }
                }
            }
        }
    }

    fn step(&self, by: u64) {
        if self.0.is_hidden() && self.0.elapsed() > DELAY {
            // Stays hidden if standard error is not a terminal.
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.0.inc(by);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
