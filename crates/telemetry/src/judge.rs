//! Self-metrics of judges.

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::declared as d;
use super::histogram::{Buckets, latency_family};

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// The end of one question to one judge, for one sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuestionOutcome {
    Answered,
    /// Answered from the cache.
    Cached,
    /// Answered together with the same question of another span, which was pending.
    Shared,
    /// Answered from a recording.
    Replayed,
    /// The budget is spent.
    Budget,
    Timeout,
    /// The judge failed, or its answer could not be used.
    Failed,
    /// This judge may not see content of the service.
    Withheld,
}

impl QuestionOutcome {
    pub const ALL: [QuestionOutcome; 8] = [
        QuestionOutcome::Answered,
        QuestionOutcome::Cached,
        QuestionOutcome::Shared,
        QuestionOutcome::Replayed,
        QuestionOutcome::Budget,
        QuestionOutcome::Timeout,
        QuestionOutcome::Failed,
        QuestionOutcome::Withheld,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            QuestionOutcome::Answered => "answered",
            QuestionOutcome::Cached => "cached",
            QuestionOutcome::Shared => "shared",
            QuestionOutcome::Replayed => "replayed",
            QuestionOutcome::Budget => "budget",
            QuestionOutcome::Timeout => "timeout",
            QuestionOutcome::Failed => "failed",
            QuestionOutcome::Withheld => "withheld",
        }
    }
}

/// Counters of judges, by name; there are none without `judges`.
#[derive(Clone, Debug, Default)]
pub struct JudgeMetrics {
    questions: Family<Labels<2>, Counter>,
    requests: Family<Labels<2>, Counter>,
    unusable: Family<Labels<2>, Counter>,
    tokens: Family<Labels<2>, Counter>,
    cost: Family<Labels<1>, Counter<f64, AtomicU64>>,
    in_flight: Family<Labels<1>, Gauge>,
    waiting: Family<Labels<1>, Gauge>,
    breaker: Family<Labels<1>, Gauge>,
    durations: Option<Family<Labels<1>, Histogram, Buckets>>,
    /// Failed reads and writes of cached and recorded answers.
    pub disk_errors: Counter,
}

impl JudgeMetrics {
    /// Registers every cell.
    pub fn register(registry: &mut Registry) -> JudgeMetrics {
        let durations = latency_family();
        let cells = JudgeMetrics { durations: Some(durations.clone()), ..JudgeMetrics::default() };
        d::JUDGE_QUESTIONS.register(registry, cells.questions.clone());
        d::JUDGE_REQUESTS.register(registry, cells.requests.clone());
        d::JUDGE_UNUSABLE.register(registry, cells.unusable.clone());
        d::JUDGE_TOKENS.register(registry, cells.tokens.clone());
        d::JUDGE_COST.register(registry, cells.cost.clone());
        d::JUDGE_IN_FLIGHT.register(registry, cells.in_flight.clone());
        d::JUDGE_WAITING.register(registry, cells.waiting.clone());
        d::JUDGE_BREAKER.register(registry, cells.breaker.clone());
        d::JUDGE_DURATION.register(registry, durations);
        d::JUDGE_DISK_ERRORS.register(registry, cells.disk_errors.clone());
        cells
    }

    pub fn of(&self, judge: &str) -> JudgeCells {
        let name: Cow<'static, str> = Cow::Owned(judge.to_owned());
        let one = |metric: &d::Declared| metric.with([name.clone()]);
        let outcomes = QuestionOutcome::ALL.map(|outcome| {
            let labels = [name.clone(), Cow::Borrowed(outcome.as_str())];
            self.questions.get_or_create_owned(&d::JUDGE_QUESTIONS.with(labels))
        });
        let tokens = ["input", "cached", "output"].map(|kind| {
            let labels = [name.clone(), Cow::Borrowed(kind)];
            self.tokens.get_or_create_owned(&d::JUDGE_TOKENS.with(labels))
        });
        let duration = self.durations.as_ref();
        JudgeCells {
            outcomes,
            tokens,
            cost: self.cost.get_or_create_owned(&one(&d::JUDGE_COST)),
            in_flight: self.in_flight.get_or_create_owned(&one(&d::JUDGE_IN_FLIGHT)),
            waiting: self.waiting.get_or_create_owned(&one(&d::JUDGE_WAITING)),
            breaker: self.breaker.get_or_create_owned(&one(&d::JUDGE_BREAKER)),
            duration: duration.map(|family| family.get_or_create_owned(&one(&d::JUDGE_DURATION))),
            requests: self.requests.clone(),
            unusable: self.unusable.clone(),
            name,
        }
    }
}

#[derive(Clone, Debug)]
pub struct JudgeCells {
    name: Cow<'static, str>,
    outcomes: [Counter; QuestionOutcome::ALL.len()],
    tokens: [Counter; 3],
    cost: Counter<f64, AtomicU64>,
    /// Requests under way.
    pub in_flight: Gauge,
    /// Questions that wait for the request limiter.
    pub waiting: Gauge,
    /// 0 closed, 1 half open, 2 open.
    pub breaker: Gauge,
    duration: Option<Histogram>,
    requests: Family<Labels<2>, Counter>,
    unusable: Family<Labels<2>, Counter>,
}

impl JudgeCells {
    pub fn question(&self, outcome: QuestionOutcome) {
        self.outcomes[outcome as usize].inc();
    }

    /// A request ended; `status` is one of a fixed set of words.
    pub fn request(&self, status: &'static str, took: Duration) {
        let labels = [self.name.clone(), Cow::Borrowed(status)];
        self.requests.get_or_create(&d::JUDGE_REQUESTS.with(labels)).inc();
        if let Some(duration) = &self.duration {
            duration.observe(took.as_secs_f64());
        }
    }

    /// An answer could not be used; `fault` is one of a fixed set of words.
    pub fn unusable(&self, fault: &'static str) {
        let labels = [self.name.clone(), Cow::Borrowed(fault)];
        self.unusable.get_or_create(&d::JUDGE_UNUSABLE.with(labels)).inc();
    }

    /// Tokens of prompts (not cached, cached by the server) and of answers, and what they cost.
    pub fn spent(&self, tokens: [u64; 3], usd: f64) {
        for (counter, tokens) in self.tokens.iter().zip(tokens) {
            counter.inc_by(tokens);
        }
        self.cost.inc_by(usd);
    }
}
