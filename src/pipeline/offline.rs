//! The same stages without a network: recorded requests in, judged traces out.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;

use super::asking::{Panel, ask_all};
use super::select;
use crate::assemble::{Assembler, Close};
use crate::config::Config;
use crate::receive::{Offer, Refused};
use verdict_eval::annotate::Annotated;
use verdict_eval::evaluate::{Engine, Judged};
use verdict_judge::{JudgeError, Judges};
use verdict_otlp::Signal;
use verdict_otlp::logs;
use verdict_otlp::logs::GenAiRecord;
use verdict_otlp::request;
use verdict_otlp::request::{Interner, Rejected};
use verdict_otlp::trace::{Attached, Span};
use verdict_otlp::trace::{CloseReason, ClosedTrace};

/// Gathers recorded requests; [`Evaluation::finish`] judges what came together.
pub struct Evaluation {
    engine: Engine,
    assembler: Assembler,
    envelopes: Interner,
    prefix: String,
    now: Instant,
    unix_nanos: u64,
    judges: Option<Asking>,
}

/// Judges, and what drives their connections.
struct Asking {
    judges: Judges,
    runtime: Runtime,
}

impl Asking {
    fn new(config: &Config) -> Result<Option<Asking>, String> {
        if config.verdict.evaluation.metrics.named_judges().next().is_none() {
            return Ok(None);
        }
        let judges =
            Judges::new(&config.judges, &config.judging, &verdict_telemetry::JudgeMetrics::default());
        let judges = judges.map_err(|error: JudgeError| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start the runtime: {error}"))?;
        Ok(Some(Asking { judges, runtime }))
    }
}

/// One trace's result.
pub struct Evaluated {
    /// Readings, measurements and verdicts.
    pub judged: Judged,
    /// The annotated spans and the evaluation events.
    pub annotated: Annotated,
}

impl Evaluation {
    /// With the verdict section of `config`. `unix_nanos` is what events say as observed time.
    ///
    /// # Errors
    /// The user's additions to the map of conventions do not fit together, or a judge that a metric
    /// names cannot be used; says where.
    pub fn new(config: &Config, unix_nanos: u64) -> Result<Evaluation, String> {
        // Recordings end by themselves: neither time nor late spans have a meaning here.
        let close = Close {
            max_spans: usize::MAX,
            max_bytes: verdict_config::Size(u64::MAX),
            remember: 0,
            ..Close::default()
        };
        Ok(Evaluation {
            engine: Engine::new(
                &config.verdict.evaluation,
                super::tasks::read(&config.verdict.evaluation.metrics.path)?,
                true,
            )?,
            assembler: Assembler::new(close),
            envelopes: Interner::default(),
            prefix: config.verdict.evaluation.prefix.clone(),
            now: Instant::now(),
            unix_nanos,
            judges: Asking::new(config)?,
        })
    }

    /// What reads spans; for rendering.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Adds a recorded request. Metrics are no evidence and are left out.
    ///
    /// # Errors
    /// The bytes are no such request. Spans that are bad by themselves are left out and returned.
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

    /// Traces gathered so far.
    pub fn traces(&self) -> usize {
        self.assembler.traces()
    }

    /// Judges every trace, in order of arrival and then id; `each` hears of one at a time, so that
    /// only one is held in memory beyond its bytes.
    pub fn finish(&mut self, mut each: impl FnMut(Evaluated)) {
        let closed: Vec<ClosedTrace> = self.assembler.close_all(CloseReason::EndOfInput);
        for closing in closed {
            let judged = match &self.judges {
                Some(asking) if self.engine.asks(closing.reason) => self.hear(closing, asking, 0),
                _ => self.engine.judge(closing, self.unix_nanos, &mut |_| ()),
            };
            let annotated = self.engine.annotate(&judged);
            each(Evaluated { judged, annotated });
        }
    }

    /// As [`Evaluation::finish`], each trace several times over, with answers of judges that are
    /// independent of those of other runs. `each` hears the run too, from 0. Does nothing where no
    /// judge would be asked: rules answer the same every time.
    pub fn repeat(&mut self, runs: u32, mut each: impl FnMut(u32, Judged)) {
        let closed: Vec<ClosedTrace> = self.assembler.close_all(CloseReason::EndOfInput);
        let Some(asking) = self.judges.as_ref().filter(|_| self.engine.asks(CloseReason::EndOfInput)) else {
            return;
        };
        for closing in closed {
            (0..runs).for_each(|run| each(run, self.hear(closing.clone(), asking, run)));
        }
    }

    /// Judges a trace by rules and judges. Nobody waits for spans here, so that judges may take
    /// whatever time their own limits give them.
    fn hear(&self, closing: ClosedTrace, asking: &Asking, run: u32) -> Judged {
        let trace = closing.trace;
        let weighed = self.engine.weigh(closing, &mut |_| ());
        let panel: Arc<dyn Panel> = Arc::new(asking.judges.of_run(run));
        let ask = |ask| Arc::clone(&panel).ask(trace, ask);
        let all = ask_all(&self.engine, &weighed, ask, std::future::pending());
        let said = asking.runtime.block_on(all);
        self.engine.conclude(weighed, said.measurements, Some(said.usage), self.unix_nanos)
    }
}
