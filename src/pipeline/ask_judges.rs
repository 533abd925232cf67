//! Sends a trace's questions to judges and collects the answers, until all are answered or a timeout is reached.
//!
//! In: an assessed trace, and a function that answers a question. Out: the judges' measurements. Rendering
//! questions and reading answers process untrusted content: if they panic, the rules' measurements remain.

use std::future::{Future, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::JoinSet;
use verdict_eval::metrics::{Measurement, Unmeasured};
use verdict_eval::questions::{Answer, Ask, Questions, RunOutcome, Usage};
use verdict_eval::{Assessment, Evaluator, JudgeResults};
use verdict_judge::Judges;
use verdict_otlp::trace::TraceId;

use crate::logging::join_error_reason;

/// Maximum number of questions of one trace in flight. It exceeds every judge's default concurrency, so that one trace
/// alone can use all of it; the prompts take at most a few megabytes.
const MAX_IN_FLIGHT: usize = 64;

/// Answers questions: the configured judges, or those of a test.
pub(super) trait QuestionAnswerer: Send + Sync + std::fmt::Debug {
    /// Answers one question. If that fails, the answer contains the reason.
    fn ask(self: Arc<Self>, trace: TraceId, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send>>;
}

impl QuestionAnswerer for Judges {
    fn ask(self: Arc<Self>, trace: TraceId, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        Box::pin(async move { Judges::ask(&self, trace, &ask).await })
    }
}

/// The result of asking judges about a trace.
#[derive(Default)]
pub(super) struct AskResult {
    pub measurements: Vec<Measurement>,
    /// The outcome of the run as judges state it, if they were asked and answered.
    pub outcome: Option<RunOutcome>,
    pub usage: Usage,
    /// Whether the time limit ended before every question was answered.
    pub timed_out: bool,
}

impl AskResult {
    pub(super) fn into_results(self) -> JudgeResults {
        let AskResult { measurements, outcome, usage, .. } = self;
        JudgeResults { measurements, outcome, usage: Some(usage) }
    }
}

/// Asks every question about a trace. Metrics whose questions are not answered when `time_limit` ends are unmeasured
/// (timeout). Dropping the future cancels the questions in flight.
pub(super) async fn ask_all<F>(
    evaluator: &Evaluator,
    assessment: &Assessment,
    ask: impl Fn(Ask) -> F,
    time_limit: impl Future<Output = ()>,
) -> AskResult
where
    F: Future<Output = Answer> + Send + 'static,
{
    let mut result = AskResult::default();
    let Some(mut questions) = catch_panic(|| evaluator.questions(assessment)) else { return result };
    tokio::pin!(time_limit);
    let complete = ask_questions(&mut questions, &ask, &mut time_limit, &mut result.usage).await;
    if let Some(complete) = complete {
        result.timed_out = !complete;
        let measurements = catch_panic(|| questions.finish(Unmeasured::Timeout));
        result.measurements = measurements.unwrap_or_default();
    }
    if complete == Some(true) {
        ask_outcome(evaluator, assessment, &ask, &mut time_limit, &mut result).await;
    }
    result
}

/// Asks for the outcome of the run, which is the last question about a trace, if it is configured. Without an answer
/// the result has no outcome.
async fn ask_outcome<F>(
    evaluator: &Evaluator,
    assessment: &Assessment,
    ask: &impl Fn(Ask) -> F,
    time_limit: impl Future<Output = ()>,
    result: &mut AskResult,
) where
    F: Future<Output = Answer> + Send + 'static,
{
    let question = catch_panic(|| evaluator.outcome_question(assessment, &result.measurements)).flatten();
    let Some(question) = question else { return };
    tokio::select! {
        biased;
        () = time_limit => result.timed_out = true,
        answer = ask(question.ask.clone()) => {
            result.usage += answer.usage;
            result.outcome = catch_panic(|| question.read(&answer)).flatten();
        }
    }
}

/// Asks the questions about an open trace that do not depend on later spans, so that their answers are in
/// the judges' cache when it closes. Returns their usage.
pub(super) async fn ask_early<F>(
    evaluator: &Evaluator,
    assessment: &Assessment,
    ask: impl Fn(Ask) -> F,
) -> Usage
where
    F: Future<Output = Answer> + Send + 'static,
{
    let mut usage = Usage::default();
    if let Some(mut questions) = catch_panic(|| evaluator.early_questions(assessment)) {
        ask_questions(&mut questions, ask, pending(), &mut usage).await;
    }
    usage
}

/// Asks until every question is answered, and returns `Some(true)`; `Some(false)` if `time_limit` ended first, `None`
/// if a metric panicked.
async fn ask_questions<F>(
    questions: &mut Questions<'_>,
    ask: impl Fn(Ask) -> F,
    time_limit: impl Future<Output = ()>,
    usage: &mut Usage,
) -> Option<bool>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let mut in_flight: JoinSet<(usize, Answer)> = JoinSet::new();
    tokio::pin!(time_limit);
    loop {
        // Nothing is asked once `time_limit` has ended.
        tokio::select! {
            biased;
            () = &mut time_limit => return Some(false),
            () = ready(()) => {}
        }
        while in_flight.len() < MAX_IN_FLIGHT
            && let Some(next) = catch_panic(|| questions.next_question())?
        {
            let id = next.id;
            let answer = ask(next);
            in_flight.spawn(async move { (id, answer.await) });
            // A question about a large trace may take milliseconds to prepare.
            tokio::task::yield_now().await;
        }
        let joined = tokio::select! {
            joined = in_flight.join_next() => joined,
            () = &mut time_limit => return Some(false),
        };
        match joined {
            Some(Ok((id, answer))) => {
                *usage += answer.usage;
                catch_panic(|| questions.answer(id, answer))?;
            }
            // The metric stays unmeasured.
            Some(Err(error)) => {
                tracing::error!(
                    error = join_error_reason(&error),
                    "a question to a judge panicked; its metric is unmeasured. This is a bug"
                )
            }
            None => return Some(true),
        }
    }
}

/// Runs work on untrusted content; `None` if it panicked.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(work)).ok();
    if result.is_none() {
        tracing::error!(
            "preparing a question or reading an answer panicked; judges' measurements of the trace are missing. This is a bug"
        );
    }
    result
}
