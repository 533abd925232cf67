//! One command's judges: opened once, shared by everything that asks, reported at the end.
//!
//! In: the options and the configuration. Out: [`Judges`] on one runtime, progress, the report, the exit code. The
//! connections of a judge belong to the runtime that opened them, and the folder of cached answers to one instance:
//! both are therefore shared.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tokio::runtime::{Handle, Runtime};
use verdict_judge::{BatchMode, JudgeExtensions, Judges};

use super::options::JudgeOptions;
use super::report::{Outcomes, RunReport};
use crate::cli::command::{
    CommandFailure, FiguresFormat, runtime, to_json, write_file, write_stderr, write_stdout,
};
use crate::config::Config;
use crate::logging;
use crate::pipeline::offline::AskedMetric;
use crate::telemetry::Telemetry;

/// The judges of one command, and the runtime that drives their connections.
pub(in crate::cli) struct JudgeRun {
    runtime: Runtime,
    judges: Option<Judges>,
    outcomes: Arc<Mutex<Outcomes>>,
    options: JudgeOptions,
    started: Instant,
}

impl JudgeRun {
    /// Starts logging, and opens the judges if a metric names one, or if the command itself asks questions
    /// (`has_own_questions`).
    ///
    /// # Errors
    /// A judge cannot be used as it is configured.
    pub(in crate::cli) fn start(
        options: &JudgeOptions,
        config: &Config,
        has_own_questions: bool,
    ) -> Result<JudgeRun, CommandFailure> {
        let needs_judges = has_own_questions || config.verdict.evaluation.named_judges().next().is_some();
        JudgeRun::new(options, config, needs_judges)
    }

    fn new(options: &JudgeOptions, config: &Config, needs_judges: bool) -> Result<JudgeRun, CommandFailure> {
        match logging::init(&config.service.log_level, config.service.log_format) {
            Ok(()) | Err(logging::Error::AlreadyInitialised) => {}
            Err(error) => return Err(CommandFailure::Usage(error.to_string())),
        }
        let mut judging = config.judging.clone();
        if let Some(folder) = &options.resume {
            judging.cache.directory = Some(folder.clone());
        }
        let batch = BatchMode { patience: options.patience, dry_run: options.dry_run };
        let (metrics, extensions) = (Telemetry::new().judge.clone(), JudgeExtensions::default());
        let open = || Judges::for_batch(&config.judges, &judging, &metrics, &extensions, batch);
        let judges = needs_judges.then(open).transpose().map_err(|e| CommandFailure::Usage(e.to_string()))?;
        if options.require_judged.is_some() && judges.is_none() {
            let message = "--require-judged: no metric names a judge (verdict.metrics.judges)";
            return Err(CommandFailure::Usage(message.to_owned()));
        }
        let runtime = runtime()?;
        let (outcomes, options, started) = (Arc::default(), options.clone(), Instant::now());
        Ok(JudgeRun { runtime, judges, outcomes, options, started })
    }

    /// For a command whose results need no judge: none is asked, even if the configuration names some.
    ///
    /// # Errors
    /// The settings of logs cannot be used.
    pub(in crate::cli) fn without_judges(config: &Config) -> Result<JudgeRun, CommandFailure> {
        JudgeRun::new(&JudgeOptions::default(), config, false)
    }

    pub(in crate::cli) fn judges(&self) -> Option<&Judges> {
        self.judges.as_ref()
    }

    pub(in crate::cli) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    pub(in crate::cli) fn outcomes(&self) -> &Arc<Mutex<Outcomes>> {
        &self.outcomes
    }

    pub(in crate::cli) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Whether questions are only counted, so that there are no results.
    pub(in crate::cli) fn is_dry(&self) -> bool {
        self.options.dry_run
    }

    /// Adds the metrics of a trace that asked judges.
    pub(in crate::cli) fn add(&self, asked: &[AskedMetric]) {
        let mut outcomes = lock(&self.outcomes);
        asked.iter().for_each(|metric| outcomes.add(metric));
    }

    /// The state of the questions in a few words, for a progress bar; empty without questions.
    pub(in crate::cli) fn progress(&self) -> String {
        let reports = self.judges.as_ref().map(Judges::report).unwrap_or_default();
        let with_answer: u64 = reports.iter().map(|r| r.with_answer()).sum();
        let failed: u64 = reports.iter().flat_map(|r| r.failed.values()).sum();
        let usd: f64 = reports.iter().map(|r| r.cost_usd).sum();
        let planned: u64 = reports.iter().filter_map(|r| r.planned.map(|p| p.questions)).sum();
        match (with_answer + failed, planned) {
            (0, 0) => String::new(),
            (0, planned) => format!("{planned} questions"),
            (_, _) if failed == 0 => format!("{with_answer} answers, {usd:.2} USD"),
            _ => format!("{with_answer} answers, {failed} failed, {usd:.2} USD"),
        }
    }

    fn report(&self) -> Option<RunReport> {
        let judges = self.judges.as_ref()?;
        let seconds = self.started.elapsed().as_secs_f64();
        let report = RunReport::new(seconds, judges.report(), lock(&self.outcomes).clone(), self.is_dry());
        let report = RunReport { cascades: judges.cascades(), ..report };
        (!report.is_empty()).then_some(report)
    }

    /// Prints a result, with the report as `judges` in JSON, then ends as [`JudgeRun::finish`] does. A dry run
    /// prints its plan instead.
    ///
    /// # Errors
    /// Like [`JudgeRun::finish`], or standard output cannot be written.
    pub(in crate::cli) fn print(
        &self,
        output: FiguresFormat,
        result: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> Result<(), CommandFailure> {
        if !self.is_dry() {
            let mut value = serde_json::to_value(result).map_err(CommandFailure::run)?;
            if let (Some(object), Some(report)) = (value.as_object_mut(), self.report()) {
                object
                    .insert("judges".to_owned(), serde_json::to_value(report).map_err(CommandFailure::run)?);
            }
            output.print(&value, table)?;
        }
        self.finish()
    }

    /// Prints the report: a dry run's on standard output, another one on standard error.
    ///
    /// # Errors
    /// Less was judged than `--require-judged` demands, or the file of `--judge-report` cannot be written.
    pub(in crate::cli) fn finish(&self) -> Result<(), CommandFailure> {
        let report = self.report();
        match &report {
            Some(report) if self.is_dry() => write_stdout(report.text().as_bytes())?,
            Some(report) => write_stderr(report.text().trim_end()),
            None if self.is_dry() => {
                write_stdout(b"no questions: no metric asks a judge about this input\n")?
            }
            None => {}
        }
        if let Some(path) = &self.options.judge_report {
            write_file(path, &to_json(&report)?)?;
        }
        let Some(required) = self.options.require_judged.filter(|_| !self.is_dry()) else { return Ok(()) };
        let shortfall =
            report.map_or(Some("no question was sent to a judge".to_owned()), |r| r.shortfall(required));
        shortfall.map_or(Ok(()), |message| Err(CommandFailure::Run(message)))
    }
}

/// Waits until the answers are in the cache on disk, from which `--resume` reads them.
impl Drop for JudgeRun {
    fn drop(&mut self) {
        if let Some(judges) = &self.judges {
            self.runtime.block_on(judges.cache_written());
        }
    }
}

/// A poisoned lock is used further: a panic leaves every single count valid.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
