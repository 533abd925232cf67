//! Recordings: reads the files that a command names, and evaluates the traces in them.
//!
//! In: paths, a configuration, the judges of the command. Out: evaluated traces, one at a time:
//! [`evaluate_while_reading`] evaluates them while it reads, [`evaluate_at_end`] and [`evaluate_repeatedly`] at the end
//! of the input.

use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;
use verdict_eval::EvaluatedTrace;

use super::input::{self, InputFile, RecordedRequest};
use crate::cli::command::{CommandFailure, write_stderr};
use crate::cli::judge::run::JudgeRun;
use crate::clock::unix_nanos;
use crate::config::Config;
use crate::extensions::Extensions;
use crate::pipeline::offline::{
    AskedMetric, Closing, EvaluatedRecording, ParsedRequest, Position, RecordingEvaluation, RequestParser,
    TraceEnds,
};

/// Maximum number of requests that were read and wait to be assembled, so that the reader continues while a large
/// request is assembled.
const READ_AHEAD: usize = 4;

/// The treatment of files in folders that contain JSON but no telemetry.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum OtherFiles {
    /// Other files are skipped, and their number is written to standard error.
    Skip,
    /// The first other file is an error.
    Refuse,
}

/// Reads `paths` as one recording, evaluates it with the judges of `run`, and calls `on_trace` with one trace at a
/// time.
pub(super) fn evaluate_at_end(
    config: &Config,
    paths: &[PathBuf],
    other: OtherFiles,
    run: &JudgeRun,
    mut on_trace: impl FnMut(EvaluatedRecording),
) -> Result<(), CommandFailure> {
    let mut evaluation = read(config, paths, other, run)?;
    let progress = WorkProgress::new(evaluation.traces() as u64, "evaluating");
    let work = evaluation.finish(|evaluated| {
        progress.step(1);
        run.add(&evaluated.asked);
        // A trace of log records alone has no spans.
        if !evaluated.trace.trace.tree.is_empty() {
            on_trace(evaluated);
        }
    });
    run.block_on(progress.show_during(run, work));
    Ok(())
}

/// Like [`evaluate_at_end`], with every trace evaluated `runs` times; `on_trace` receives the number of the run, from
/// 0.
pub(super) fn evaluate_repeatedly(
    config: &Config,
    paths: &[PathBuf],
    runs: u32,
    run: &JudgeRun,
    mut on_trace: impl FnMut(u32, EvaluatedTrace),
) -> Result<(), CommandFailure> {
    let mut evaluation = read(config, paths, OtherFiles::Skip, run)?;
    let progress = WorkProgress::new(evaluation.traces() as u64 * u64::from(runs), "evaluating");
    let work = evaluation.repeat(runs, |number, evaluated, asked: Vec<AskedMetric>| {
        progress.step(1);
        run.add(&asked);
        on_trace(number, evaluated);
    });
    run.block_on(progress.show_during(run, work));
    Ok(())
}

/// Reads `paths` as one recording, evaluates each trace when it closes, with annotated spans if `annotate`, and calls
/// `on_trace` with one trace at a time.
pub(super) fn evaluate_while_reading(
    config: &Config,
    paths: &[PathBuf],
    annotate: bool,
    run: &JudgeRun,
    mut on_trace: impl FnMut(EvaluatedRecording),
) -> Result<(), CommandFailure> {
    let inputs = input::files(paths)?;
    let evaluation = start_evaluation(config, run)?;
    let mut evaluation = if annotate { evaluation } else { evaluation.without_annotations() };
    let closing = closing(&inputs);
    let progress = WorkProgress::new(total_bytes(&inputs), "evaluating");
    let (sender, requests) = mpsc::channel(READ_AHEAD);
    let parser = evaluation.parser();
    std::thread::scope(|scope| {
        // The sender is dropped at the end of the input, or at the first error.
        let reader = scope.spawn(|| {
            let sender = sender;
            // The receiver is only dropped after a panic.
            parse_requests(&inputs, OtherFiles::Skip, &parser, &progress, &mut |parsed| {
                _ = sender.blocking_send(parsed);
            })
        });
        let work = evaluation.follow(closing, requests, |evaluated| {
            run.add(&evaluated.asked);
            on_trace(evaluated);
        });
        run.block_on(progress.show_during(run, async { _ = work.await }));
        reader.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
    })
}

/// When the traces of `inputs` close. Regular files are read twice. If an input cannot be read twice, traces close by
/// time, because every trace may continue in that input.
fn closing(inputs: &[InputFile]) -> Closing {
    if !inputs.iter().all(InputFile::is_regular) {
        return Closing::ByTime;
    }
    let progress = WorkProgress::new(total_bytes(inputs), "reading");
    let mut ends = TraceEnds::default();
    for (file, input) in (0..).zip(inputs) {
        progress.step(0);
        input::index(input, &progress.0, &mut |trace, offset| ends.note(trace, Position { file, offset }));
    }
    Closing::AfterLastSpans(ends)
}

fn total_bytes(inputs: &[InputFile]) -> u64 {
    inputs.iter().map(InputFile::size).sum()
}

fn start_evaluation(config: &Config, run: &JudgeRun) -> Result<RecordingEvaluation, CommandFailure> {
    RecordingEvaluation::with_judges(config, &Extensions::default(), unix_nanos(), run.judges().cloned())
        .map_err(|error| CommandFailure::Usage(error.to_string()))
}

/// Reads the whole recording.
fn read(
    config: &Config,
    paths: &[PathBuf],
    other: OtherFiles,
    run: &JudgeRun,
) -> Result<RecordingEvaluation, CommandFailure> {
    let inputs = input::files(paths)?;
    let mut evaluation = start_evaluation(config, run)?;
    let progress = WorkProgress::new(total_bytes(&inputs), "reading");
    let parser = evaluation.parser();
    parse_requests(&inputs, other, &parser, &progress, &mut |parsed| evaluation.assemble(parsed))?;
    Ok(evaluation)
}

/// Parses every request of `inputs` and calls `on_request` with it.
fn parse_requests(
    inputs: &[InputFile],
    other: OtherFiles,
    parser: &RequestParser,
    progress: &WorkProgress,
    on_request: &mut dyn FnMut(ParsedRequest),
) -> Result<(), CommandFailure> {
    let mut skipped: Vec<String> = Vec::new();
    for (file, input) in (0..).zip(inputs) {
        progress.step(0);
        let has_telemetry =
            input::read(input, &progress.0, &mut |RecordedRequest { offer, location, end }| {
                let parsed = parser
                    .parse(&offer, Position { file, offset: end })
                    .map_err(|error| error.to_string())?;
                if parsed.rejected.count > 0 {
                    write_stderr(&format!("{location}: {}", parsed.rejected));
                }
                on_request(parsed);
                Ok(())
            })?;
        if !has_telemetry {
            skipped.push(input.name());
        }
    }
    if let Some(first) = skipped.first() {
        let count = skipped.len();
        let message = format!("files in folders that contain JSON but no telemetry: {count}, first {first}");
        if other == OtherFiles::Refuse {
            return Err(CommandFailure::Usage(message));
        }
        write_stderr(&format!("{message}; skipped"));
    }
    Ok(())
}

/// Work that takes less time than this shows no progress bar.
const PROGRESS_DELAY: Duration = Duration::from_millis(800);

/// How often the progress bar shows the state of questions.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// A progress bar on standard error, only on a terminal and only for work that takes longer than [`PROGRESS_DELAY`].
struct WorkProgress(ProgressBar);

impl WorkProgress {
    fn new(len: u64, message: &'static str) -> WorkProgress {
        let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(message);
        WorkProgress(bar)
    }

    /// Runs `work`, and meanwhile shows the results of questions to judges.
    async fn show_during(&self, run: &JudgeRun, work: impl Future<Output = ()>) {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = &mut work => return,
                () = tokio::time::sleep(REFRESH_INTERVAL) => {
                    let line = run.progress();
                    if !line.is_empty() {
                        self.0.set_message(format!("evaluating: {line}"));
                    }
                    self.step(0);
                }
            }
        }
    }

    fn step(&self, amount: u64) {
        if self.0.is_hidden() && self.0.elapsed() > PROGRESS_DELAY {
            // Stays hidden if standard error is not a terminal.
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.0.inc(amount);
    }
}

impl Drop for WorkProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
