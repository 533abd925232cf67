//! Cost per span with 1 to 1,000,000 open traces, and with 1 to 16 shards: `cargo bench --bench growth -- open`.
//!
//! In: requests of 64 small spans, two of each of 32 traces that stay open until they are idle. Measured: splitting,
//! assembling, closing all of them, evaluation with every rule, annotation.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use otel_verdict::assemble::{Assembler, Close};
use verdict_config::Period;
use verdict_eval::{Config, Evaluator};
use verdict_otlp::request::{self, Interner};

use crate::corpus::Corpus;

/// Traces of one request.
const TRACES_PER_REQUEST: u32 = 32;
/// Open traces, and shards.
pub const ROWS: [(u32, usize); 12] = [
    (1, 1),
    (10, 1),
    (100, 1),
    (1_000, 1),
    (10_000, 1),
    (100_000, 1),
    (1_000_000, 1),
    (10_000, 2),
    (10_000, 4),
    (10_000, 8),
    (10_000, 16),
    (100_000, 16),
];
/// After this time without spans a trace closes.
const IDLE: Duration = Duration::from_secs(60);

/// The prepared input of one measurement.
pub struct PreparedInput {
    evaluator: Evaluator,
    requests: Vec<Bytes>,
    shards: Vec<Assembler>,
    pub spans: usize,
}

impl PreparedInput {
    /// The input for `traces` that are open at once in `shards`. One trace is evaluated before, which initialises statics.
    pub fn new(traces: u32, shards: usize) -> PreparedInput {
        let evaluator = Evaluator::builder(&Config::default()).build().expect("the defaults are valid");
        let requests = requests(traces);
        let mut warm_up =
            PreparedInput { evaluator, requests: requests_of(1, u32::MAX), shards: assemblers(1), spans: 0 };
        warm_up.run();
        PreparedInput {
            evaluator: warm_up.evaluator,
            requests,
            shards: assemblers(shards),
            spans: traces as usize * 2,
        }
    }

    /// Receives everything, and closes what is idle.
    pub fn run(&mut self) {
        let envelopes = Interner::default();
        let now = Instant::now();
        for request in &self.requests {
            let split = request::split(request, "verdict.", &envelopes).expect("the corpus is well formed");
            for group in split.groups {
                // The number of a trace, which ends its id, in place of the pipeline's hash.
                let shard = usize::from(group.trace.0[15]) % self.shards.len();
                self.shards[shard].add(group.trace, group.spans, group.size, |_| None, now);
            }
            self.shards.iter_mut().for_each(|shard| assert!(shard.poll(now).is_empty(), "they stay open"));
        }
        let mut closed = 0;
        for shard in &mut self.shards {
            for trace in shard.poll(now + 2 * IDLE) {
                closed += trace.spans.len();
                let evaluated = self.evaluator.evaluate(trace, 0, &mut |_| ());
                black_box(self.evaluator.annotate(&evaluated));
            }
        }
        assert!(self.spans == 0 || closed == self.spans, "{closed} of {} spans closed", self.spans);
    }
}

fn assemblers(shards: usize) -> Vec<Assembler> {
    let times = Close { idle: Period(IDLE), ..Close::default() };
    (0..shards).map(|_| Assembler::new(times.clone())).collect()
}

fn requests_of(traces: u32, round: u32) -> Vec<Bytes> {
    Corpus::trace_beginnings(traces).with_new_trace_ids(round).requests
}

fn requests(traces: u32) -> Vec<Bytes> {
    let full = Corpus::trace_beginnings(TRACES_PER_REQUEST);
    let mut all: Vec<Bytes> =
        (0..traces / TRACES_PER_REQUEST).flat_map(|round| full.with_new_trace_ids(round).requests).collect();
    if !traces.is_multiple_of(TRACES_PER_REQUEST) {
        all.extend(requests_of(traces % TRACES_PER_REQUEST, u32::MAX - 1));
    }
    all
}
