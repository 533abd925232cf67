//! The same stages as a batch: recorded requests in, evaluated traces out. The caller provides the runtime.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::stream::{self, StreamExt as _};
use verdict_eval::metrics::RULES;
use verdict_eval::{Annotated, Ask, EvaluatedTrace, Evaluator, OUTCOME_QUESTION, Unmeasured};
use verdict_judge::Judges;
use verdict_otlp::Signal;
use verdict_otlp::logs::{self, GenAiRecord};
use verdict_otlp::request::{self, Interner, Rejected};
use verdict_otlp::trace::{Attached, CloseReason, ClosedTrace, Idx, Span};
use verdict_telemetry::JudgeMetrics;

use super::ask_judges::{Panel, ask_all};
use super::components::judges;
use super::error::Error;
use super::runtime_config::RuntimeConfig;
use super::select;
use crate::assemble::{Assembler, Close};
use crate::config::Config;
use crate::extensions::Extensions;
use crate::receive::{Offer, Refused};

/// Traces that are judged at the same time: enough that the last questions of one do not leave judges idle. Their
/// recognised forms are in memory together.
const CONCURRENT_TRACES: usize = 8;

/// Collects recorded requests; [`Evaluation::finish`] evaluates the traces in them.
pub struct Evaluation {
    evaluator: Evaluator,
    assembler: Assembler,
    envelopes: Interner,
    prefix: String,
    now: Instant,
    unix_nanos: u64,
    judges: Option<Judges>,
}

/// One trace's result.
pub struct Evaluated {
    /// The recognised trace, measurements and verdicts.
    pub trace: EvaluatedTrace,
    /// The annotated spans and the evaluation events.
    pub annotated: Annotated,
    /// Each metric of a span for which judges were asked.
    pub asked: Vec<AskedMetric>,
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

impl Evaluation {
    /// As [`Evaluation::with`], with the built-in metrics and judges alone.
    ///
    /// # Errors
    /// As [`Evaluation::with`].
    pub fn new(config: &Config, unix_nanos: u64) -> Result<Evaluation, Error> {
        Evaluation::with(config, &Extensions::default(), unix_nanos)
    }

    /// With the verdict section of `config`, and the metrics and judges of `extensions`. `unix_nanos` is the
    /// observed time of events.
    ///
    /// # Errors
    /// The conventions in `verdict.recognise` contradict each other, or a task file, an added metric or a
    /// judge that a metric names cannot be used.
    pub fn with(config: &Config, extensions: &Extensions, unix_nanos: u64) -> Result<Evaluation, Error> {
        let judges = judges(config, extensions, None, &JudgeMetrics::default())?;
        Evaluation::with_judges(config, extensions, unix_nanos, judges)
    }

    /// As [`Evaluation::with`], with these judges.
    ///
    /// # Errors
    /// As [`Evaluation::with`].
    pub fn with_judges(
        config: &Config,
        extensions: &Extensions,
        unix_nanos: u64,
        judges: Option<Judges>,
    ) -> Result<Evaluation, Error> {
        // The end of the recording closes every trace: neither times nor late spans apply.
        let close = Close {
            max_spans: usize::MAX,
            max_bytes: verdict_config::Size(u64::MAX),
            remember: 0,
            ..Close::default()
        };
        let verdict = &config.verdict;
        Ok(Evaluation {
            evaluator: RuntimeConfig::new(verdict, extensions, None)?.evaluator.without_stop(),
            assembler: Assembler::new(close),
            envelopes: Interner::default(),
            prefix: verdict.evaluation.prefix.clone(),
            now: Instant::now(),
            unix_nanos,
            judges,
        })
    }

    /// Adds a recorded request and returns the malformed spans, which are left out. Requests of metrics are
    /// ignored.
    ///
    /// # Errors
    /// The bytes are not a request of this signal.
    pub fn add(&mut self, offer: &Offer) -> Result<Rejected, Refused> {
        let malformed = |error: verdict_otlp::Malformed| Refused::Malformed(error.to_string());
        match offer.signal {
            Signal::Traces => {
                let split = request::split(&offer.body, &self.prefix, &self.envelopes).map_err(malformed)?;
                for group in split.groups {
                    let service = |span: &Span| select::service(&span.envelope).map(str::to_owned);
                    self.assembler.add(group.trace, group.spans, group.size, service, self.now);
                }
                Ok(split.rejected)
            }
            Signal::Logs => {
                for GenAiRecord { trace, span, bytes } in logs::find(&offer.body).map_err(malformed)?.gen_ai {
                    self.assembler.attach(trace, Attached { span, record: bytes }, self.now);
                }
                Ok(Rejected::default())
            }
            Signal::Metrics => Ok(Rejected::default()),
        }
    }

    /// Number of traces so far.
    pub fn traces(&self) -> usize {
        self.assembler.traces()
    }

    /// Evaluates every trace. `each` is called in order of arrival and then id. A few traces are judged at the same
    /// time; without judges only one recognised trace is in memory. If metrics name judges, this must run on a
    /// Tokio runtime.
    pub async fn finish(&mut self, mut each: impl FnMut(Evaluated)) {
        let closed = self.assembler.close_all(CloseReason::EndOfInput);
        let Some(judges) = self.judges.as_ref().filter(|_| self.evaluator.asks(CloseReason::EndOfInput))
        else {
            for closed in closed {
                let trace = self.evaluator.evaluate(closed, self.unix_nanos, &mut |_| ());
                let annotated = self.evaluator.annotate(&trace);
                each(Evaluated { trace, annotated, asked: Vec::new() });
            }
            return;
        };
        let judged = stream::iter(closed).map(|closed| Box::pin(self.judge(closed, judges, 0)));
        let mut judged = judged.buffered(CONCURRENT_TRACES);
        while let Some((trace, asked)) = judged.next().await {
            let annotated = self.evaluator.annotate(&trace);
            each(Evaluated { trace, annotated, asked });
        }
    }

    /// Evaluates each trace `runs` times, with judges' answers that are independent of those of other runs.
    /// `each` also receives the number of the run, from 0. Does nothing if no judge is asked: rules give the
    /// same measurements in every run.
    pub async fn repeat(&mut self, runs: u32, mut each: impl FnMut(u32, EvaluatedTrace, Vec<AskedMetric>)) {
        let closed: Vec<ClosedTrace> = self.assembler.close_all(CloseReason::EndOfInput);
        let Some(judges) = self.judges.as_ref().filter(|_| self.evaluator.asks(CloseReason::EndOfInput))
        else {
            return;
        };
        let this = &*self;
        let all = closed.iter().flat_map(|closed| (0..runs).map(move |run| (closed, run)));
        let judged = stream::iter(all).map(|(closed, run)| {
            Box::pin(async move {
                let (trace, asked) = this.judge(closed.clone(), judges, run).await;
                (run, trace, asked)
            })
        });
        let mut judged = judged.buffered(CONCURRENT_TRACES);
        while let Some((run, trace, asked)) = judged.next().await {
            each(run, trace, asked);
        }
    }

    /// Evaluates a trace by rules and judges. No span is delayed here, so only the judges' own limits apply.
    async fn judge(
        &self,
        closed: ClosedTrace,
        judges: &Judges,
        run: u32,
    ) -> (EvaluatedTrace, Vec<AskedMetric>) {
        let trace = closed.trace;
        let assessment = self.evaluator.assess(closed, &mut |_| ());
        let panel: Arc<dyn Panel> = Arc::new(judges.of_run(run));
        let asked: Mutex<BTreeSet<(Idx, &'static str)>> = Mutex::default();
        let ask = |ask: Ask| {
            asked.lock().unwrap_or_else(PoisonError::into_inner).insert((ask.at, ask.metric));
            Arc::clone(&panel).ask(trace, ask)
        };
        let judgements = ask_all(&self.evaluator, &assessment, ask, pending()).await;
        let evaluated = self.evaluator.decide(assessment, judgements.judged(), self.unix_nanos);
        let asked = asked.into_inner().unwrap_or_else(PoisonError::into_inner);
        let outcomes = asked.into_iter().map(|(at, metric)| outcome(&evaluated, at, metric)).collect();
        (evaluated, outcomes)
    }
}

/// The origin of a measurement for which judges were asked.
fn outcome(evaluated: &EvaluatedTrace, at: Idx, metric: &'static str) -> AskedMetric {
    let own = evaluated.measurements.iter().find(|m| m.at == at && m.metric == metric);
    let of_run = metric == OUTCOME_QUESTION && evaluated.verdicts.trace.outcome.is_some();
    let outcome = match own.map(|m| (&m.outcome, &*m.judge == RULES)) {
        _ if of_run => AskOutcome::Judge,
        Some((Ok(_), false)) => AskOutcome::Judge,
        Some((Ok(_), true)) => AskOutcome::Rules,
        // An evaluator answered that its metric does not apply.
        Some((Err(Unmeasured::NotApplicable), false)) => AskOutcome::Judge,
        Some((Err(why), _)) => AskOutcome::Unmeasured(*why),
        None => AskOutcome::Unmeasured(Unmeasured::JudgeError),
    };
    AskedMetric { metric, outcome }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wiremock::{Mock, MockServer, ResponseTemplate};

    use super::*;
    use crate::config::from_sources;
    use verdict_config::Source;
    use verdict_otlp::json;

    const TRACE: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{
        "traceId":"01010101010101010101010101010101","spanId":"0101010101010101","name":"chat",
        "startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[
        {"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},
        {"key":"gen_ai.input.messages","value":{"stringValue":"[{\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"content\":\"In one word: 2+2?\"}]}]"}},
        {"key":"gen_ai.output.messages","value":{"stringValue":"[{\"role\":\"assistant\",\"parts\":[{\"type\":\"text\",\"content\":\"Four.\"}]}]"}}]}]}]}]}"#;

    #[tokio::test]
    async fn judges_are_asked_on_the_runtime_of_the_caller() {
        let server = MockServer::start().await;
        Mock::given(wiremock::matchers::any()).respond_with(ResponseTemplate::new(400)).mount(&server).await;
        let text = format!(
            "verdict: {{ metrics: {{ judges: [rules], instruction_following: {{ judges: [main] }} }} }}\n\
             judges: {{ main: {{ endpoint: '{}/v1', model: m }} }}",
            server.uri()
        );
        let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
        let mut evaluation = Evaluation::new(&config, 0).unwrap();
        let body: Bytes = json::decode(Signal::Traces, TRACE.as_bytes()).unwrap();
        evaluation.add(&Offer { signal: Signal::Traces, body }).unwrap();
        let mut traces = 0;
        evaluation.finish(|_| traces += 1).await;
        assert_eq!(traces, 1);
        assert!(!server.received_requests().await.unwrap().is_empty());
    }
}
