//! Counters by attributes of traces: service, agent, model, tool, signature.
//!
//! Names come from senders, so the number of combinations is limited: the first combinations have their own counters,
//! and the others share one whose labels have the value [`OTHER`]. Names are shortened. Each combination is looked up
//! once per trace; its counters of metrics are stored in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use verdict_telemetry::declared as d;
use verdict_telemetry::histogram::Buckets;

use super::traces::ResultLabel;

/// Buckets with a width of a fifth. Scores of a scale from 1 to 5 have steps of a quarter, so each has its own bucket.
fn score_buckets() -> Histogram {
    Histogram::new([0.2, 0.4, 0.6, 0.8, 1.0])
}

/// The value of every label of a combination beyond the limit.
const OTHER: &str = "other";
/// Longest value of a label, in bytes.
const MAX_LABEL_BYTES: usize = 64;

type Labels<const N: usize> = [(&'static str, String); N];
type ResultCounters = [Counter; ResultLabel::ALL.len()];
type UsdCounter = Counter<f64, AtomicU64>;

/// Values of the label `kind` of tokens.
const TOKEN_KINDS: [&str; 6] = ["input", "output", "cached", "cache_write", "reasoning", "unspecified"];

/// Tokens of model calls, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    pub input: u64,
    pub output: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub reasoning: u64,
    /// Tokens of calls that record only a total.
    pub unspecified: u64,
}

/// The counters, and the limit on combinations.
#[derive(Debug)]
pub struct AgentMetrics {
    limit: AtomicUsize,
    counts_scores: AtomicBool,
    traces: Family<Labels<4>, Counter>,
    versions: ResultFamily,
    measurements: Family<Labels<5>, Counter>,
    scores: Family<Labels<3>, Histogram, Buckets>,
    findings: Family<Labels<5>, Counter>,
    tokens: Family<Labels<4>, Counter>,
    cost: Family<Labels<3>, UsdCounter>,
    tools: ResultFamily,
    signatures: Family<Labels<3>, Counter>,
    runs: LimitedCells<3, RunCells>,
    scored: LimitedCells<3, Histogram>,
    failures: LimitedCells<3, Counter>,
}

impl AgentMetrics {
    pub(super) fn register(registry: &mut Registry) -> AgentMetrics {
        AgentMetrics {
            limit: AtomicUsize::new(0),
            counts_scores: AtomicBool::new(false),
            traces: d::AGENT_TRACES.register_new(registry),
            versions: ResultFamily::register(&d::AGENT_VERSIONS, registry),
            measurements: d::AGENT_MEASUREMENTS.register_new(registry),
            scores: d::AGENT_SCORES.register(registry, Family::new_with_constructor(Buckets(score_buckets))),
            findings: d::AGENT_FINDINGS.register_new(registry),
            tokens: d::AGENT_TOKENS.register_new(registry),
            cost: d::AGENT_COST.register_new(registry),
            tools: ResultFamily::register(&d::AGENT_TOOL_CALLS, registry),
            signatures: d::AGENT_FAILURES.register_new(registry),
            runs: LimitedCells::default(),
            scored: LimitedCells::default(),
            failures: LimitedCells::default(),
        }
    }

    /// Sets the most combinations with counters of their own; 0 for no counters. Combinations that have some keep
    /// them.
    pub fn set_limit(&self, combinations: usize) {
        self.limit.store(combinations, Ordering::Relaxed);
    }

    /// Counts scores as well, from now on.
    pub fn count_scores(&self) {
        self.counts_scores.store(true, Ordering::Relaxed);
    }

    /// Whether scores are counted.
    pub fn counts_scores(&self) -> bool {
        self.counts_scores.load(Ordering::Relaxed)
    }

    /// Counts a score from 0 to 1 of one metric in one of an agent's runs.
    pub fn count_score(&self, run: &RunCells, metric: &'static str, score: f64) {
        let [_, agent, model] = &run.labels;
        let limit = self.limit.load(Ordering::Relaxed);
        let cell = self.scored.get([agent.as_str(), model.as_str(), metric], limit, |values| {
            self.scores.get_or_create_owned(&d::AGENT_SCORES.label_pairs(values))
        });
        cell.observe(score);
    }

    /// Whether anything is counted.
    pub fn is_enabled(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    /// The counters of an agent's runs.
    pub fn run(&self, service: &str, agent: &str, model: &str) -> Arc<RunCells> {
        self.runs.get(
            [service, agent, model],
            self.limit.load(Ordering::Relaxed),
            |[service, agent, model]| {
                let counter = |result: ResultLabel| {
                    let values = [service.clone(), agent.clone(), model.clone(), result.as_str().to_owned()];
                    self.traces.get_or_create_owned(&d::AGENT_TRACES.label_pairs(values))
                };
                RunCells {
                    traces: ResultLabel::ALL.map(counter),
                    tokens: TOKEN_KINDS.map(|kind| {
                        let values = [service.clone(), agent.clone(), model.clone(), kind.to_owned()];
                        self.tokens.get_or_create_owned(&d::AGENT_TOKENS.label_pairs(values))
                    }),
                    cost: self.cost.get_or_create_owned(&d::AGENT_COST.label_pairs([
                        service.clone(),
                        agent.clone(),
                        model.clone(),
                    ])),
                    measurements: Mutex::default(),
                    labels: [service, agent, model],
                }
            },
        )
    }

    /// Counts measurements of one metric in one of an agent's runs, by result.
    pub fn count_measurements(
        &self,
        run: &RunCells,
        metric: &'static str,
        counts: [u64; ResultLabel::ALL.len()],
    ) {
        let mut cells = run.measurements.lock().unwrap_or_else(PoisonError::into_inner);
        let cells = cells.entry(metric).or_insert_with(|| {
            ResultLabel::ALL.map(|result| {
                let [service, agent, model] = run.labels.clone();
                let values = [service, agent, model, metric.to_owned(), result.as_str().to_owned()];
                self.measurements.get_or_create_owned(&d::AGENT_MEASUREMENTS.label_pairs(values))
            })
        });
        for (cell, count) in cells.iter().zip(counts).filter(|(_, count)| *count > 0) {
            cell.inc_by(count);
        }
    }

    /// Counts a finding of a failing measurement. `category` and `severity` are each one of a fixed set.
    pub fn count_finding(&self, run: &RunCells, metric: &'static str, category: &str, severity: &str) {
        let [service, agent, _] = run.labels.clone();
        let values = [service, agent, metric.to_owned(), category.to_owned(), severity.to_owned()];
        self.findings.get_or_create_owned(&d::AGENT_FINDINGS.label_pairs(values)).inc();
    }

    /// Counts a call of a tool.
    pub fn count_tool_call(&self, service: &str, agent: &str, tool: &str, result: ResultLabel) {
        self.tools.count([service, agent, tool], self.limit.load(Ordering::Relaxed), result);
    }

    /// Counts the verdict of a trace by the version of its outermost agent.
    pub fn count_version(&self, service: &str, agent: &str, version: &str, result: ResultLabel) {
        self.versions.count([service, agent, version], self.limit.load(Ordering::Relaxed), result);
    }

    /// Counts a failing trace by the signature of its worst failure.
    pub fn count_failure(&self, service: &str, agent: &str, signature: &str) {
        let limit = self.limit.load(Ordering::Relaxed);
        let cell = self.failures.get([service, agent, signature], limit, |values| {
            self.signatures.get_or_create_owned(&d::AGENT_FAILURES.label_pairs(values))
        });
        cell.inc();
    }
}

/// Counters by three labels and a result.
#[derive(Debug)]
struct ResultFamily {
    declared: &'static d::Declared,
    family: Family<Labels<4>, Counter>,
    cells: LimitedCells<3, ResultCounters>,
}

impl ResultFamily {
    fn register(declared: &'static d::Declared, registry: &mut Registry) -> ResultFamily {
        ResultFamily { declared, family: declared.register_new(registry), cells: LimitedCells::default() }
    }

    fn count(&self, labels: [&str; 3], limit: usize, result: ResultLabel) {
        let cells = self.cells.get(labels, limit, |[a, b, c]| {
            ResultLabel::ALL.map(|result| {
                let values = [a.clone(), b.clone(), c.clone(), result.as_str().to_owned()];
                self.family.get_or_create_owned(&self.declared.label_pairs(values))
            })
        });
        cells[result as usize].inc();
    }
}

/// The counters of one combination of service, agent and model.
#[derive(Debug)]
pub struct RunCells {
    labels: [String; 3],
    traces: ResultCounters,
    tokens: [Counter; TOKEN_KINDS.len()],
    cost: UsdCounter,
    measurements: Mutex<HashMap<&'static str, ResultCounters>>,
}

impl RunCells {
    /// Counts the verdict of a trace whose outermost agent has these labels.
    pub fn count_trace(&self, result: ResultLabel) {
        self.traces[result as usize].inc();
    }

    pub fn count_tokens(&self, counts: TokenCounts) {
        let TokenCounts { input, output, cached, cache_write, reasoning, unspecified } = counts;
        let counts = [input, output, cached, cache_write, reasoning, unspecified];
        for (cell, count) in self.tokens.iter().zip(counts) {
            cell.inc_by(count);
        }
    }

    /// Counts a cost in USD, as instrumentations recorded it.
    pub fn count_cost(&self, usd: f64) {
        // A counter must not decrease, and the number comes from a sender.
        if usd.is_finite() && usd > 0.0 {
            self.cost.inc_by(usd);
        }
    }
}

/// Counters by the values of labels, for a limited number of combinations.
#[derive(Debug)]
struct LimitedCells<const N: usize, T>(RwLock<HashMap<[String; N], Arc<T>>>);

impl<const N: usize, T> Default for LimitedCells<N, T> {
    fn default() -> Self {
        LimitedCells(RwLock::default())
    }
}

impl<const N: usize, T> LimitedCells<N, T> {
    /// The value for these labels, made by `new` if there is none, or the one for [`OTHER`] beyond the limit.
    fn get(&self, labels: [&str; N], limit: usize, new: impl Fn([String; N]) -> T) -> Arc<T> {
        let labels = labels.map(shortened);
        if let Some(value) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&labels) {
            return Arc::clone(value);
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let labels = if all.len() < limit || all.contains_key(&labels) {
            labels
        } else {
            [(); N].map(|()| OTHER.to_owned())
        };
        Arc::clone(all.entry(labels).or_insert_with_key(|labels| Arc::new(new(labels.clone()))))
    }
}

/// A name of a trace as the value of a label.
fn shortened(name: &str) -> String {
    let end = name.floor_char_boundary(MAX_LABEL_BYTES);
    name.get(..end).unwrap_or_default().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_beyond_the_limit_share_the_counter_of_other() {
        let metrics = AgentMetrics::register(&mut Registry::default());
        assert!(!metrics.is_enabled());
        metrics.set_limit(2);
        for agent in ["a", "b", "c", "d", "a"] {
            metrics.run("shop", agent, "m").count_trace(ResultLabel::Fail);
        }
        let count = |service, agent, model| {
            metrics.run(service, agent, model).traces[ResultLabel::Fail as usize].get()
        };
        assert_eq!([count("shop", "a", "m"), count("shop", "b", "m"), count(OTHER, OTHER, OTHER)], [2, 1, 2]);
        assert_eq!(metrics.runs.0.read().unwrap().len(), 3);
    }

    #[test]
    fn versions_and_tools_are_counted_by_result_up_to_the_limit() {
        let mut registry = Registry::default();
        let metrics = AgentMetrics::register(&mut registry);
        metrics.set_limit(2);
        for version in ["1.0", "1.1", "1.2", "1.3"] {
            metrics.count_version("shop", "a", version, ResultLabel::Fail);
        }
        metrics.count_tool_call("shop", "a", "find", ResultLabel::Pass);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        let line = |labels: &str| page.lines().any(|line| line.contains(labels));
        assert!(
            line(r#"agent_versions_total{service="shop",agent="a",version="1.1",result="fail"} 1"#),
            "{page}"
        );
        assert!(line(r#"version="other",result="fail"} 2"#) && !line("1.2"), "{page}");
        assert!(
            line(r#"agent_versions_total{service="shop",agent="a",version="1.1",result="pass"} 0"#),
            "{page}"
        );
        assert!(line(r#"tool="find",result="pass"} 1"#), "{page}");
    }

    #[test]
    fn scores_beyond_the_limit_are_those_of_other() {
        let mut registry = Registry::default();
        let metrics = AgentMetrics::register(&mut registry);
        metrics.set_limit(2);
        let run = metrics.run("shop", "a", "m");
        for (metric, score) in
            [("completeness", 0.5), ("completeness", 1.0), ("tool_abuse", 0.1), ("tokens", 0.1)]
        {
            metrics.count_score(&run, metric, score);
        }
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        let counts: Vec<&str> = page.lines().filter(|line| line.starts_with("agent_scores_count")).collect();
        assert_eq!(counts.len(), 3, "{page}");
        let has_series = |labels: &str| counts.iter().any(|line| line.contains(labels));
        assert!(has_series(r#"agent="a",model="m",metric="completeness"} 2"#), "{counts:?}");
        assert!(has_series(r#"agent="other",model="other",metric="other"} 1"#), "{counts:?}");
    }

    #[test]
    fn labels_are_short_and_costs_only_grow() {
        let metrics = AgentMetrics::register(&mut Registry::default());
        metrics.set_limit(10);
        let run = metrics.run(&"é".repeat(1000), "a\nb", "");
        assert!(run.labels[0].len() <= MAX_LABEL_BYTES && run.labels[1] == "a b", "{:?}", run.labels);
        for usd in [0.5, -1.0, f64::NAN, f64::INFINITY] {
            run.count_cost(usd);
        }
        assert!((run.cost.get() - 0.5).abs() < 1e-12);
    }
}
