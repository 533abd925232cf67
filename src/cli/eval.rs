//! `eval`: recorded traces judged offline, by the same stages as `run`.
//!
//! In: files, folders, standard input. Out: annotated trees, JSON, or OTLP on standard output,
//! and an exit code for CI. A trace counts as complete when the input ends.

use std::cell::Cell;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::input::{self, Origin};
use crate::cli::config_files::ConfigFiles;
use crate::cli::failure::Failure;
use crate::cli::report;
use crate::cli::terminal::write_stderr;
use crate::config::Config;
use crate::export::config::Color;
use crate::export::console;
use crate::export::console::Style;
use verdict_eval::annotate::Emit;

use crate::pipeline::offline::{Evaluated, Evaluation};
use verdict_eval::evaluate::Judged;
use verdict_eval::recognise::Recogniser;
use verdict_otlp::Signal;
use verdict_otlp::json;
use verdict_otlp::trace::Envelope;

pub(super) const LONG: &str = "\
Judge recorded traces, without any network.

Reads OTLP requests as protobuf, JSON or JSON lines (also as the Collector's file exporter writes
them, also compressed), sees the format from the content, and takes files, folders (recursively, in
order of names) and standard input ('-'). Logs that belong to spans are read as well. All input
forms one recording: spans of one trace may be spread over files. When it ends, every trace is
closed and judged as 'run' would judge it.";

/// With the shape of `--output json`.
pub(super) fn examples() -> String {
    format!(
        "\
Examples:
  otel-verdict eval traces.jsonl
  otel-verdict eval recordings/ --output json | jq 'select(.result == \"fail\")'
  otel-verdict eval run.pb --fail-on fail && echo passed
  curl -s https://example.test/trace.json | otel-verdict eval -

Output:
  tree  one tree a trace, for people
  json  one object a trace and line, in the shape below
  otlp  one ExportTraceServiceRequest a trace as JSON and line, annotated

Exit codes:
  0  judged
  1  what --fail-on names was met
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
    /// Exit with 1 if any trace ends so; 'unmeasured' includes 'fail'
    #[arg(long, value_enum, value_name = "RESULT")]
    fail_on: Option<FailOn>,
    #[command(flatten)]
    config: ConfigFiles,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq)]
enum Output {
    /// Annotated trees, for people
    #[default]
    Tree,
    /// One JSON object a trace
    Json,
    /// One annotated ExportTraceServiceRequest a trace, as JSON
    Otlp,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum FailOn {
    /// A trace that fails
    Fail,
    /// A trace that fails, or in which nothing could be measured
    Unmeasured,
}

impl FailOn {
    fn met(self, passed: Option<bool>) -> bool {
        match passed {
            Some(passed) => !passed,
            None => self == FailOn::Unmeasured,
        }
    }
}

pub(super) fn eval(args: &Eval) -> Result<(), Failure> {
    let mut config = args.config.load()?;
    // What is printed here are the annotated spans, wherever `run` would write verdicts.
    if !config.verdict.evaluation.emit.contains(&Emit::Attributes) {
        config.verdict.evaluation.emit.push(Emit::Attributes);
    }
    let mut printer = Printer::new(args.output, &config)?;
    let (mut seen, mut met, mut broken) = (0usize, false, None);
    each(&config, &input::find(&args.paths)?, |evaluated| {
        seen += 1;
        met |= args.fail_on.is_some_and(|fail_on| fail_on.met(evaluated.judged.note.passed));
        if broken.is_none() {
            broken = printer.print(&evaluated).err();
        }
    })?;
    if let Some(error) = broken.or_else(|| printer.out.flush().err()) {
        return Err(crate::cli::terminal::stdout_failure(&error));
    }
    if seen == 0 {
        return Err(Failure::Usage("the input holds no spans".to_owned()));
    }
    if met { Err(Failure::ThresholdMet) } else { Ok(()) }
}

/// Reads all of `origins` as one recording and judges it; `each` hears of one trace at a time.
pub(super) fn each(
    config: &Config,
    origins: &[Origin],
    mut each: impl FnMut(Evaluated),
) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let mut evaluation =
        Evaluation::new(config, nanos).map_err(|why| Failure::Usage(format!("verdict.{why}")))?;
    read_all(origins, &mut evaluation)?;
    let progress = Progress::new(evaluation.traces() as u64, "judging");
    evaluation.finish(|evaluated| {
        progress.step(1);
        // Logs of a trace whose spans are elsewhere.
        if !evaluated.judged.trace.tree.is_empty() {
            each(evaluated);
        }
    });
    progress.done();
    Ok(())
}

/// All of `origins`, read and not yet judged.
fn gather(config: &Config, origins: &[Origin]) -> Result<Evaluation, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let mut evaluation = Evaluation::new(config, nanos).map_err(Failure::Usage)?;
    read_all(origins, &mut evaluation)?;
    Ok(evaluation)
}

/// As [`each`], every trace `runs` times over; `each` hears the run, from 0.
pub(super) fn repeat(
    config: &Config,
    origins: &[Origin],
    runs: u32,
    mut each: impl FnMut(u32, Judged),
) -> Result<(), Failure> {
    let mut evaluation = gather(config, origins)?;
    let progress = Progress::new(evaluation.traces() as u64 * u64::from(runs), "judging");
    evaluation.repeat(runs, |run, judged| {
        progress.step(1);
        each(run, judged);
    });
    progress.done();
    Ok(())
}

fn read_all(origins: &[Origin], evaluation: &mut Evaluation) -> Result<(), Failure> {
    let progress = Progress::new(origins.iter().map(Origin::size).sum(), "reading");
    let mut strange = 0;
    for origin in origins {
        let mut refused = None;
        let known = input::read(origin, &mut |recorded| match evaluation.add(&recorded.offer) {
            Ok(rejected) if rejected.count > 0 => write_stderr(&format!("{}: {rejected}", recorded.origin)),
            Ok(_) => {}
            Err(why) => refused = refused.take().or(Some(format!("{}: {why}", recorded.origin))),
        })?;
        if let Some(why) = refused {
            return Err(Failure::Usage(why));
        }
        strange += usize::from(!known);
        progress.step(origin.size());
    }
    progress.done();
    if strange > 0 {
        write_stderr(&format!(
            "{strange} files in folders hold JSON, but no telemetry, and were passed over"
        ));
    }
    Ok(())
}

struct Printer {
    output: Output,
    out: BufWriter<std::io::StdoutLock<'static>>,
    recogniser: Recogniser,
    style: Style,
    first: bool,
}

impl Printer {
    fn new(output: Output, config: &Config) -> Result<Printer, Failure> {
        let recogniser = Recogniser::new(&config.verdict.evaluation.recognise)
            .map_err(|e| Failure::Usage(e.to_string()))?;
        let style = Style::detect(Color::Auto, &config.verdict.evaluation.prefix);
        Ok(Printer { output, out: BufWriter::new(std::io::stdout().lock()), recogniser, style, first: true })
    }

    fn print(&mut self, evaluated: &Evaluated) -> std::io::Result<()> {
        let Evaluated { judged, annotated } = evaluated;
        match self.output {
            Output::Tree => {
                let pieces: Vec<Bytes> = annotated.spans.iter().map(|piece| piece.bytes.clone()).collect();
                let kind_of = |span: &[u8], envelope: &Envelope| self.recogniser.kind(span, envelope);
                if !std::mem::take(&mut self.first) {
                    self.out.write_all(b"\n")?;
                }
                self.out.write_all(console::render(&pieces, &kind_of, &self.style).as_bytes())
            }
            Output::Json => {
                let object =
                    report::trace(&judged.trace, &judged.measurements, &judged.verdicts, &judged.note);
                serde_json::to_writer(&mut self.out, &object)?;
                self.out.write_all(b"\n")
            }
            Output::Otlp => {
                // Requests of one repeated field: joined, they are one request.
                let joined: Vec<u8> = annotated.spans.iter().flat_map(|p| p.bytes.iter().copied()).collect();
                let line = json::encode(Signal::Traces, &joined).map_err(std::io::Error::other)?;
                self.out.write_all(&line)?;
                if line.last() == Some(&b'\n') { Ok(()) } else { self.out.write_all(b"\n") }
            }
        }
    }
}

/// A bar on standard error, shown only to people and only once the work has taken a while.
struct Progress {
    bar: ProgressBar,
    since: Instant,
    shown: Cell<bool>,
}

/// Work that is done sooner needs no bar.
const PATIENCE: Duration = Duration::from_millis(800);

impl Progress {
    fn new(len: u64, what: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} [{wide_bar}] {percent}%");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Progress { bar, since: Instant::now(), shown: Cell::new(!std::io::stderr().is_terminal()) }
    }

    fn step(&self, by: u64) {
        if self.since.elapsed() > PATIENCE && !self.shown.replace(true) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(by);
    }

    fn done(&self) {
        self.bar.finish_and_clear();
    }
}
