//! `eval`: evaluates recorded traces offline, with the same stages as `run`.
//!
//! In: files, folders, standard input. Out: verdicts in one of several forms on standard output,
//! and an exit code for CI.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use verdict_eval::config::Emit;

use super::output::{EvalFormat, Printer, Totals};
use super::recording::{self, OtherFiles};
use crate::cli::command::{CommandFailure, ConfigFiles, write_stderr};
use crate::cli::judge::options::JudgeOptions;
use crate::cli::judge::run::JudgeRun;
use crate::cli::report;
use crate::pipeline::offline::EvaluatedRecording;
use crate::telemetry::ResultLabel;

pub(super) const LONG_ABOUT: &str = "\
Evaluate recorded traces. Without judges no network is used.

Reads OTLP requests as protobuf, JSON or JSON lines (also as the Collector's file exporter
writes them, also compressed) and detects the format from the content. Reads files, folders
(recursively, in order of names) and standard input ('-'). Logs that belong to spans are read as
well. All input forms one recording: spans of one trace may be spread over files.

Traces are evaluated, as 'run' evaluates them, while the recording is read: only those that are
open are in memory. Files are read twice, and a trace closes after its last span. Standard input
and pipes are read once, and their traces close by the times of their spans and 'verdict.close';
spans that come later revise the verdict, as in 'run'. With --whole every trace closes at the end
of the input, in order of trace ids, and the whole recording is in memory.

Where metrics name judges, their report follows on standard error: asked, answered, failed by
reason, tokens, cost.";

/// The text after the options of `--help`, which includes the shape of `--output json`.
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
pub(super) struct EvalArgs {
    /// Files and folders to read; '-' is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: EvalFormat,
    /// Exit with 1 if any trace has this result; 'unmeasured' includes 'fail'
    #[arg(long, value_enum, value_name = "RESULT")]
    fail_on: Option<FailOn>,
    /// Exit with 1 if a larger share than this of the traces with a verdict fails: 5% or 0.05
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    fail_on_rate: Option<f64>,
    /// Print only traces with these results; totals and exit code count all
    #[arg(long, value_enum, value_delimiter = ',', value_name = "RESULT")]
    only: Vec<SelectedResult>,
    /// Evaluate at the end of the input, with the whole recording in memory
    #[arg(long)]
    whole: bool,
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
    fn is_met(self, totals: Totals) -> bool {
        let unmeasured = self == FailOn::Unmeasured && totals.count(ResultLabel::Unmeasured) > 0;
        unmeasured || totals.count(ResultLabel::Fail) > 0
    }
}

/// A result that `--only` selects.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum SelectedResult {
    /// Traces that pass
    Pass,
    /// Traces that fail
    Fail,
    /// Traces without any measurement
    Unmeasured,
}

impl From<SelectedResult> for ResultLabel {
    fn from(selected: SelectedResult) -> ResultLabel {
        match selected {
            SelectedResult::Pass => ResultLabel::Pass,
            SelectedResult::Fail => ResultLabel::Fail,
            SelectedResult::Unmeasured => ResultLabel::Unmeasured,
        }
    }
}

/// A share as a number from 0 to 1 or as a percentage.
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / unit);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "a share from 0 to 1, or 0% to 100%".to_owned())
}

pub(super) fn eval(args: &EvalArgs) -> Result<(), CommandFailure> {
    let mut config = args.config.load()?;
    // The output is annotated spans, also where `run` would write verdicts elsewhere.
    if !config.verdict.evaluation.emit.contains(&Emit::Attributes) {
        config.verdict.evaluation.emit.push(Emit::Attributes);
    }
    let only = args.only.iter().map(|&only| only.into()).collect();
    let mut printer = Printer::new(args.output, only, &config)?;
    let run = JudgeRun::start(&args.judges, &config, false)?;
    let mut traces = 0usize;
    let print = |evaluated: EvaluatedRecording| {
        traces += 1;
        if !run.is_dry() {
            printer.print(&evaluated);
        }
    };
    match args.whole {
        true => recording::evaluate_at_end(&config, &args.paths, OtherFiles::Skip, &run, print)?,
        false => {
            recording::evaluate_while_reading(&config, &args.paths, args.output.shows_spans(), &run, print)?
        }
    }
    printer.finish()?;
    if traces == 0 {
        return Err(CommandFailure::Usage("the input contains no spans".to_owned()));
    }
    let totals = printer.totals;
    if !run.is_dry() {
        write_stderr(&totals.to_string());
    }
    run.finish()?;
    let is_rate_exceeded =
        args.fail_on_rate.zip(totals.fail_rate()).is_some_and(|(max_rate, rate)| rate > max_rate);
    let is_met = args.fail_on.is_some_and(|fail_on| fail_on.is_met(totals));
    if is_met || is_rate_exceeded { Err(CommandFailure::ThresholdMet) } else { Ok(()) }
}
