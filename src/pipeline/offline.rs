//! The stages of the pipeline for recorded requests.
//!
//! In: recorded requests. Out: evaluated traces. The caller provides the runtime. [`RecordingEvaluation::finish`]
//! evaluates at the end of the input, [`RecordingEvaluation::follow`] while it is read.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{self, StreamExt as _};
use verdict_eval::metrics::RULES_JUDGE;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::questions::Ask;
use verdict_eval::{Annotated, EvaluatedTrace, Evaluator, JudgeResults, OUTCOME_QUESTION};
use verdict_judge::Judges;
use verdict_otlp::Signal;
use verdict_otlp::logs::{self, GenAiRecord};
use verdict_otlp::request::{self, Group, Interner, Rejected};
use verdict_otlp::trace::{AttachedLog, CloseReason, ClosedTrace, Idx, PriorVerdict, Span};
use verdict_telemetry::JudgeMetrics;

use super::ask_judges::{QuestionAnswerer, ask_all};
use super::components::judges;
use super::error::Error;
use super::runtime_config::RuntimeConfig;
use super::select;
use crate::assemble::{Assembler, Close};
use crate::config::Config;
use crate::extensions::Extensions;
use crate::receive::{Offer, Refused};

mod closing;
mod follow;

use closing::RecordingClock;
pub use closing::{Closing, Position, TraceEnds};

/// Maximum number of traces with questions that are evaluated at the same time: enough that judges are not idle during
/// the last questions of one trace. The recognised forms of all of them are in memory.
const CONCURRENT_TRACES: usize = 8;

/// Collects recorded requests, and evaluates the traces in them ([`RecordingEvaluation::finish`]).
pub struct RecordingEvaluation {
    stages: Arc<Stages>,
    assembler: Assembler,
    parser: Arc<RequestParser>,
    clock: RecordingClock,
    /// The configured times, for [`RecordingEvaluation::follow`].
    close: Close,
}

/// The stages after the assembler.
struct Stages {
    evaluator: Evaluator,
    unix_nanos: u64,
    judges: Option<Judges>,
    annotates: bool,
}

/// Reads recorded requests, on any thread.
#[derive(Debug)]
pub struct RequestParser {
    envelopes: Interner,
    prefix: String,
}

/// The spans and log records of a recorded request.
#[derive(Debug, Default)]
pub struct ParsedRequest {
    groups: Vec<Group>,
    logs: Vec<GenAiRecord>,
    /// The malformed spans, which are left out.
    pub rejected: Rejected,
    /// The position after the request.
    end: Position,
}

impl RequestParser {
    /// Parses a request. `end` is the position after it. Requests of metrics are ignored.
    ///
    /// # Errors
    /// The bytes are not a request of this signal.
    pub fn parse(&self, offer: &Offer, end: Position) -> Result<ParsedRequest, Refused> {
        let malformed = |error: verdict_otlp::Malformed| Refused::Malformed(error.to_string());
        let mut parsed = ParsedRequest { end, ..ParsedRequest::default() };
        match offer.signal {
            Signal::Traces => {
                let split = request::split(&offer.body, &self.prefix, &self.envelopes).map_err(malformed)?;
                (parsed.groups, parsed.rejected) = (split.groups, split.rejected);
            }
            Signal::Logs => parsed.logs = logs::find(&offer.body).map_err(malformed)?.gen_ai,
            Signal::Metrics => {}
        }
        Ok(parsed)
    }
}

/// The result of evaluating one trace.
pub struct EvaluatedRecording {
    /// The recognised trace, measurements and verdicts.
    pub trace: EvaluatedTrace,
    /// The annotated spans and the evaluation events.
    pub annotated: Annotated,
    /// The metrics for which judges were asked about a span.
    pub asked: Vec<AskedMetric>,
    /// The verdict on the trace before these spans, which are late.
    pub prior_verdict: Option<PriorVerdict>,
}

/// The outcome of a metric for which judges were asked about a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskedMetric {
    pub metric: &'static str,
    pub outcome: AskOutcome,
}

/// The origin of a measurement for which judges were asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskOutcome {
    /// A judge's valid answer.
    Judge,
    /// No judge gave a valid answer, and the rules' result applies.
    Rules,
    Unmeasured(Unmeasured),
}

impl RecordingEvaluation {
    /// Like [`RecordingEvaluation::with_extensions`], with the built-in metrics and judges alone.
    ///
    /// # Errors
    /// Like [`RecordingEvaluation::with_extensions`].
    pub fn new(config: &Config, unix_nanos: u64) -> Result<RecordingEvaluation, Error> {
        RecordingEvaluation::with_extensions(config, &Extensions::default(), unix_nanos)
    }

    /// An evaluation with the verdict section of `config`, and the metrics and judges of `extensions`. `unix_nanos` is
    /// the observed time of events.
    ///
    /// # Errors
    /// The conventions in `verdict.recognise` contradict each other, or a task file, an added metric or a
    /// judge that a metric names cannot be used.
    pub fn with_extensions(
        config: &Config,
        extensions: &Extensions,
        unix_nanos: u64,
    ) -> Result<RecordingEvaluation, Error> {
        let judges = judges(config, extensions, None, &JudgeMetrics::default())?;
        RecordingEvaluation::with_judges(config, extensions, unix_nanos, judges)
    }

    /// Like [`RecordingEvaluation::with_extensions`], with `judges` instead of new ones.
    ///
    /// # Errors
    /// Like [`RecordingEvaluation::with_extensions`].
    pub fn with_judges(
        config: &Config,
        extensions: &Extensions,
        unix_nanos: u64,
        judges: Option<Judges>,
    ) -> Result<RecordingEvaluation, Error> {
        // By default the end of the recording closes every trace: neither times nor late spans apply.
        let close = unlimited(Close { remember: 0, ..Close::default() });
        let verdict = &config.verdict;
        let evaluator = RuntimeConfig::new(verdict, extensions, None)?.evaluator.without_stop();
        let prefix = verdict.evaluation.prefix.clone();
        Ok(RecordingEvaluation {
            stages: Arc::new(Stages { evaluator, unix_nanos, judges, annotates: true }),
            assembler: Assembler::new(close),
            parser: Arc::new(RequestParser { envelopes: Interner::default(), prefix }),
            clock: RecordingClock::new(),
            close: verdict.close.clone(),
        })
    }

    /// Leaves [`EvaluatedRecording::annotated`] empty.
    #[must_use]
    pub fn without_annotations(mut self) -> RecordingEvaluation {
        if let Some(stages) = Arc::get_mut(&mut self.stages) {
            stages.annotates = false;
        }
        self
    }

    /// The parser of requests for [`RecordingEvaluation::follow`] and [`RecordingEvaluation::assemble`].
    pub fn parser(&self) -> Arc<RequestParser> {
        Arc::clone(&self.parser)
    }

    /// Adds a recorded request and returns the malformed spans, which are left out. Requests of metrics are
    /// ignored.
    ///
    /// # Errors
    /// The bytes are not a request of this signal.
    pub fn add(&mut self, offer: &Offer) -> Result<Rejected, Refused> {
        let mut parsed = self.parser.parse(offer, Position::default())?;
        let rejected = std::mem::take(&mut parsed.rejected);
        self.assemble(parsed);
        Ok(rejected)
    }

    /// Adds a request that [`RecordingEvaluation::parser`] has read.
    pub fn assemble(&mut self, parsed: ParsedRequest) {
        let now = self.clock.now();
        for group in parsed.groups {
            let service = |span: &Span| select::service(&span.envelope).map(str::to_owned);
            self.assembler.add(group.trace, group.spans, group.size, service, now);
        }
        for GenAiRecord { trace, span, bytes } in parsed.logs {
            self.assembler.attach(trace, AttachedLog { span, record: bytes }, now);
        }
    }

    /// The number of open traces.
    pub fn traces(&self) -> usize {
        self.assembler.traces()
    }

    /// Evaluates every trace, and calls `each` with the results in order of arrival and then id. Without judges one
    /// trace is evaluated at a time, otherwise a few at the same time. If metrics name judges, the caller must run on a
    /// Tokio runtime.
    pub async fn finish(&mut self, mut each: impl FnMut(EvaluatedRecording)) {
        let closed = self.assembler.close_all(CloseReason::EndOfInput);
        let stages = &*self.stages;
        let max_concurrent = if stages.asks_judges() { CONCURRENT_TRACES } else { 1 };
        let evaluated = stream::iter(closed).map(|closed| Box::pin(stages.evaluate(closed)));
        let mut evaluated = evaluated.buffered(max_concurrent);
        while let Some(evaluated) = evaluated.next().await {
            each(evaluated);
        }
    }

    /// Evaluates each trace `runs` times, with judges' answers that are independent of those of other runs.
    /// `each` also receives the number of the run, from 0. Does nothing if no judge is asked: rules give the
    /// same measurements in every run.
    pub async fn repeat(&mut self, runs: u32, mut each: impl FnMut(u32, EvaluatedTrace, Vec<AskedMetric>)) {
        let closed: Vec<ClosedTrace> = self.assembler.close_all(CloseReason::EndOfInput);
        let stages = &*self.stages;
        if !stages.asks_judges() {
            return;
        }
        let traces_and_runs = closed.iter().flat_map(|closed| (0..runs).map(move |run| (closed, run)));
        let judged = stream::iter(traces_and_runs).map(|(closed, run)| {
            Box::pin(async move {
                let (trace, asked) = stages.judge(closed.clone(), run).await;
                (run, trace, asked)
            })
        });
        let mut judged = judged.buffered(CONCURRENT_TRACES);
        while let Some((run, trace, asked)) = judged.next().await {
            each(run, trace, asked);
        }
    }
}

impl Stages {
    /// Whether judges are asked about traces that have all their spans.
    fn asks_judges(&self) -> bool {
        self.judges.is_some() && self.evaluator.asks(CloseReason::EndOfInput)
    }

    /// Evaluates a trace, by rules alone if no judge is asked.
    async fn evaluate(&self, closed: ClosedTrace) -> EvaluatedRecording {
        if !self.asks_judges() {
            return self.evaluate_by_rules(closed);
        }
        let prior_verdict = closed.prior_verdict;
        let (trace, asked) = Box::pin(self.judge(closed, 0)).await;
        self.recording_of(trace, asked, prior_verdict)
    }

    fn evaluate_by_rules(&self, closed: ClosedTrace) -> EvaluatedRecording {
        let prior_verdict = closed.prior_verdict;
        let trace = self.evaluator.evaluate(closed, self.unix_nanos, &mut |_| ());
        self.recording_of(trace, Vec::new(), prior_verdict)
    }

    fn recording_of(
        &self,
        trace: EvaluatedTrace,
        asked: Vec<AskedMetric>,
        prior_verdict: Option<PriorVerdict>,
    ) -> EvaluatedRecording {
        let annotated = if self.annotates { self.evaluator.annotate(&trace) } else { Annotated::default() };
        EvaluatedRecording { trace, annotated, asked, prior_verdict }
    }

    /// Evaluates a trace by rules and judges. No span waits for the answers, so that only the judges' own limits apply.
    /// Without judges, the result of the rules applies.
    async fn judge(&self, closed: ClosedTrace, run: u32) -> (EvaluatedTrace, Vec<AskedMetric>) {
        let trace = closed.trace;
        let assessment = self.evaluator.assess(closed, &mut |_| ());
        let Some(judges) = &self.judges else {
            return (self.evaluator.decide(assessment, JudgeResults::default(), self.unix_nanos), Vec::new());
        };
        let answerer: Arc<dyn QuestionAnswerer> = Arc::new(judges.for_run(run));
        let asked: Mutex<BTreeSet<(Idx, &'static str)>> = Mutex::default();
        let ask = |ask: Ask| {
            asked.lock().unwrap_or_else(PoisonError::into_inner).insert((ask.at, ask.metric));
            Arc::clone(&answerer).ask(trace, ask)
        };
        let result = ask_all(&self.evaluator, &assessment, ask, pending()).await;
        let evaluated = self.evaluator.decide(assessment, result.into_results(), self.unix_nanos);
        let asked = asked.into_inner().unwrap_or_else(PoisonError::into_inner);
        let outcomes = asked.into_iter().map(|(at, metric)| asked_metric(&evaluated, at, metric)).collect();
        (evaluated, outcomes)
    }
}

/// Removes the limits on the size of a trace.
fn unlimited(close: Close) -> Close {
    Close { max_spans: usize::MAX, max_bytes: verdict_config::Size(u64::MAX), ..close }
}

/// The origin of a measurement for which judges were asked.
fn asked_metric(evaluated: &EvaluatedTrace, at: Idx, metric: &'static str) -> AskedMetric {
    let measurement = evaluated.measurements.iter().find(|m| m.at == at && m.metric == metric);
    let is_judged_outcome = metric == OUTCOME_QUESTION && evaluated.verdicts.trace.outcome.is_some();
    let outcome = match measurement.map(|m| (&m.outcome, &*m.judge == RULES_JUDGE)) {
        _ if is_judged_outcome => AskOutcome::Judge,
        Some((Ok(_), false)) => AskOutcome::Judge,
        Some((Ok(_), true)) => AskOutcome::Rules,
        // A remote evaluator answered that its metric does not apply.
        Some((Err(Unmeasured::NotApplicable), false)) => AskOutcome::Judge,
        Some((Err(reason), _)) => AskOutcome::Unmeasured(*reason),
        None => AskOutcome::Unmeasured(Unmeasured::JudgeError),
    };
    AskedMetric { metric, outcome }
}

#[cfg(test)]
mod tests;
