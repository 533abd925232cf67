//! What asking judges tells of itself.

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

/// What became of a question to one judge, as one sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The judge answered.
    Answered,
    /// It had been answered before.
    Cached,
    /// It was being asked already, for another span.
    Shared,
    /// Out of a recording.
    Replayed,
    /// Nothing was left to spend.
    Budget,
    /// No attempt ended in time.
    Timeout,
    /// The judge failed, or what it said could not be used.
    Failed,
    /// This judge may not see this service.
    Withheld,
}

impl Fate {
    /// All of them.
    pub const ALL: [Fate; 8] = [
        Fate::Answered,
        Fate::Cached,
        Fate::Shared,
        Fate::Replayed,
        Fate::Budget,
        Fate::Timeout,
        Fate::Failed,
        Fate::Withheld,
    ];

    /// As in the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Answered => "answered",
            Fate::Cached => "cached",
            Fate::Shared => "shared",
            Fate::Replayed => "replayed",
            Fate::Budget => "budget",
            Fate::Timeout => "timeout",
            Fate::Failed => "failed",
            Fate::Withheld => "withheld",
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
    /// Reads and writes of kept and recorded answers that failed.
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

    /// The cells of one judge.
    pub fn of(&self, judge: &str) -> JudgeCells {
        let name: Cow<'static, str> = Cow::Owned(judge.to_owned());
        let one = |metric: &d::Declared| metric.with([name.clone()]);
        let fates = Fate::ALL.map(|fate| {
            let labels = [name.clone(), Cow::Borrowed(fate.as_str())];
            self.questions.get_or_create_owned(&d::JUDGE_QUESTIONS.with(labels))
        });
        let tokens = ["input", "cached", "output"].map(|kind| {
            let labels = [name.clone(), Cow::Borrowed(kind)];
            self.tokens.get_or_create_owned(&d::JUDGE_TOKENS.with(labels))
        });
        let duration = self.durations.as_ref();
        JudgeCells {
            fates,
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

/// Counters of one judge.
#[derive(Clone, Debug)]
pub struct JudgeCells {
    name: Cow<'static, str>,
    fates: [Counter; Fate::ALL.len()],
    tokens: [Counter; 3],
    cost: Counter<f64, AtomicU64>,
    /// Requests under way.
    pub in_flight: Gauge,
    /// Questions that wait for a place.
    pub waiting: Gauge,
    /// 0 closed, 1 half open, 2 open.
    pub breaker: Gauge,
    duration: Option<Histogram>,
    requests: Family<Labels<2>, Counter>,
    unusable: Family<Labels<2>, Counter>,
}

impl JudgeCells {
    /// A question is done with.
    pub fn question(&self, fate: Fate) {
        self.fates[fate as usize].inc();
    }

    /// A request ended with `status`, one of a fixed set of words.
    pub fn request(&self, status: &'static str, took: Duration) {
        let labels = [self.name.clone(), Cow::Borrowed(status)];
        self.requests.get_or_create(&d::JUDGE_REQUESTS.with(labels)).inc();
        if let Some(duration) = &self.duration {
            duration.observe(took.as_secs_f64());
        }
    }

    /// An answer came that could not be used, for one of a fixed set of reasons.
    pub fn unusable(&self, fault: &'static str) {
        let labels = [self.name.clone(), Cow::Borrowed(fault)];
        self.unusable.get_or_create(&d::JUDGE_UNUSABLE.with(labels)).inc();
    }

    /// Tokens of prompts (new to the server, and known to it), of answers, and what they cost.
    pub fn spent(&self, tokens: [u64; 3], usd: f64) {
        for (counter, tokens) in self.tokens.iter().zip(tokens) {
            counter.inc_by(tokens);
        }
        self.cost.inc_by(usd);
    }
}
