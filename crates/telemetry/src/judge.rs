//! Self-metrics of judges.

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::declared as d;
use crate::histogram::{Buckets, latency_family};

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

verdict_otlp::labelled_enum! {
    /// The outcome of one question to one judge, for one sample.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum QuestionOutcome {
        Answered = "answered",
        /// Answered from the cache.
        Cached = "cached",
        /// Answered together with the same question of another span, which was pending.
        Shared = "shared",
        /// Answered from a recording.
        Replayed = "replayed",
        /// The budget is spent.
        Budget = "budget",
        Timeout = "timeout",
        /// The judge failed, or its answer could not be used.
        Failed = "failed",
        /// The configuration keeps content of the service from this judge.
        Withheld = "withheld",
    }
}

verdict_otlp::labelled_enum! {
    /// The result of a question to a cascade.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum CascadeResult {
        /// The answer of the first judge applies.
        Kept = "kept",
        /// The second judge is asked by a rule of `stakes`: the severity of a finding, or the subject of the question.
        Stakes = "stakes",
        /// The second judge is asked because the first contradicts the rules.
        Disagreement = "disagreement",
        /// The second judge is asked because the first is not sure.
        Unsure = "unsure",
        /// The second judge is asked because the first has not answered.
        NoAnswer = "no_answer",
    }
}

crate::registered! { registry =>
    /// Metrics of all judges, labelled with the judge's name. There are none without `judges`. Clones
    /// share their values.
    #[derive(Clone, Debug)]
    pub struct JudgeMetrics {
        questions: Family<Labels<2>, Counter> = d::JUDGE_QUESTIONS.register_new(registry),
        requests: Family<Labels<2>, Counter> = d::JUDGE_REQUESTS.register_new(registry),
        unusable: Family<Labels<2>, Counter> = d::JUDGE_UNUSABLE.register_new(registry),
        tokens: Family<Labels<2>, Counter> = d::JUDGE_TOKENS.register_new(registry),
        cost: Family<Labels<1>, Counter<f64, AtomicU64>> = d::JUDGE_COST.register_new(registry),
        in_flight: Family<Labels<1>, Gauge> = d::JUDGE_IN_FLIGHT.register_new(registry),
        waiting: Family<Labels<1>, Gauge> = d::JUDGE_WAITING.register_new(registry),
        breaker: Family<Labels<1>, Gauge> = d::JUDGE_BREAKER.register_new(registry),
        durations: Family<Labels<1>, Histogram, Buckets> =
            d::JUDGE_DURATION.register(registry, latency_family()),
        cascade_questions: Family<Labels<2>, Counter> = d::CASCADE_QUESTIONS.register_new(registry),
        cascade_compared: Family<Labels<2>, Counter> = d::CASCADE_COMPARED.register_new(registry),
        cascade_tokens: Family<Labels<1>, Counter> = d::CASCADE_AVOIDED_TOKENS.register_new(registry),
        cascade_cost: Family<Labels<1>, Counter<f64, AtomicU64>> = d::CASCADE_AVOIDED_COST.register_new(registry),
        /// Failed reads and writes of cached and recorded answers.
        pub disk_errors: Counter = d::JUDGE_DISK_ERRORS.register_new(registry),
    }
}

/// Metrics that no registry exposes.
impl Default for JudgeMetrics {
    fn default() -> JudgeMetrics {
        JudgeMetrics::register(&mut Registry::default())
    }
}

impl JudgeMetrics {
    /// The cells of one judge.
    pub fn cells_for(&self, judge: &str) -> JudgeCells {
        let name: Cow<'static, str> = Cow::Owned(judge.to_owned());
        let by_judge = |metric: &d::Declared| metric.label_pairs([name.clone()]);
        let by_label = |metric: &d::Declared, label| metric.label_pairs([name.clone(), Cow::Borrowed(label)]);
        JudgeCells {
            outcomes: QuestionOutcome::ALL.map(|outcome| {
                self.questions.get_or_create_owned(&by_label(&d::JUDGE_QUESTIONS, outcome.as_str()))
            }),
            tokens: ["input", "cached", "output"]
                .map(|kind| self.tokens.get_or_create_owned(&by_label(&d::JUDGE_TOKENS, kind))),
            cost: self.cost.get_or_create_owned(&by_judge(&d::JUDGE_COST)),
            in_flight: self.in_flight.get_or_create_owned(&by_judge(&d::JUDGE_IN_FLIGHT)),
            waiting: self.waiting.get_or_create_owned(&by_judge(&d::JUDGE_WAITING)),
            breaker: self.breaker.get_or_create_owned(&by_judge(&d::JUDGE_BREAKER)),
            duration: self.durations.get_or_create_owned(&by_judge(&d::JUDGE_DURATION)),
            requests: self.requests.clone(),
            unusable: self.unusable.clone(),
            name,
        }
    }

    /// The cells of one cascade.
    pub fn cascade_cells(&self, cascade: &str) -> CascadeCells {
        let name: Cow<'static, str> = Cow::Owned(cascade.to_owned());
        let by_cascade = |metric: &d::Declared| metric.label_pairs([name.clone()]);
        let by_label = |metric: &d::Declared, label| metric.label_pairs([name.clone(), Cow::Borrowed(label)]);
        CascadeCells {
            questions: CascadeResult::ALL.map(|result| {
                self.cascade_questions.get_or_create_owned(&by_label(&d::CASCADE_QUESTIONS, result.as_str()))
            }),
            compared: ["differed", "agreed"].map(|result| {
                self.cascade_compared.get_or_create_owned(&by_label(&d::CASCADE_COMPARED, result))
            }),
            tokens: self.cascade_tokens.get_or_create_owned(&by_cascade(&d::CASCADE_AVOIDED_TOKENS)),
            cost: self.cascade_cost.get_or_create_owned(&by_cascade(&d::CASCADE_AVOIDED_COST)),
        }
    }
}

/// The cells of one cascade.
#[derive(Clone, Debug)]
pub struct CascadeCells {
    questions: [Counter; CascadeResult::ALL.len()],
    /// Indexed by whether both judges agreed.
    compared: [Counter; 2],
    tokens: Counter,
    cost: Counter<f64, AtomicU64>,
}

impl CascadeCells {
    /// Counts a question to the cascade.
    pub fn count_question(&self, result: CascadeResult) {
        self.questions[result as usize].inc();
    }

    /// Counts a question that both judges answered.
    pub fn count_comparison(&self, agreed: bool) {
        self.compared[usize::from(agreed)].inc();
    }

    /// Counts the tokens and the cost that a question to the second judge would have taken.
    pub fn add_avoided(&self, tokens: u64, usd: f64) {
        self.tokens.inc_by(tokens);
        self.cost.inc_by(usd);
    }
}

/// The cells of one judge.
#[derive(Clone, Debug)]
pub struct JudgeCells {
    name: Cow<'static, str>,
    outcomes: [Counter; QuestionOutcome::ALL.len()],
    /// Tokens of prompts that the server had not cached, of cached prompts, and of answers.
    tokens: [Counter; 3],
    cost: Counter<f64, AtomicU64>,
    pub in_flight: Gauge,
    /// Questions that wait for the request limiter.
    pub waiting: Gauge,
    /// 0 closed, 1 half open, 2 open.
    pub breaker: Gauge,
    duration: Histogram,
    requests: Family<Labels<2>, Counter>,
    unusable: Family<Labels<2>, Counter>,
}

impl JudgeCells {
    /// Counts a question.
    pub fn count_question(&self, outcome: QuestionOutcome) {
        self.outcomes[outcome as usize].inc();
    }

    /// Counts a request that has ended; `status` is one of a fixed set of words.
    pub fn count_request(&self, status: &'static str, took: Duration) {
        let labels = [self.name.clone(), Cow::Borrowed(status)];
        self.requests.get_or_create(&d::JUDGE_REQUESTS.label_pairs(labels)).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts an answer that could not be used; `fault` is one of a fixed set of words.
    pub fn count_unusable(&self, fault: &'static str) {
        let labels = [self.name.clone(), Cow::Borrowed(fault)];
        self.unusable.get_or_create(&d::JUDGE_UNUSABLE.label_pairs(labels)).inc();
    }

    /// Counts tokens and their cost. The first count is of prompt tokens that the server had not cached, the
    /// second of prompt tokens that it had cached, the third of tokens of answers.
    pub fn add_usage(&self, tokens: [u64; 3], usd: f64) {
        for (counter, tokens) in self.tokens.iter().zip(tokens) {
            counter.inc_by(tokens);
        }
        self.cost.inc_by(usd);
    }
}
