//! Sums over the traces of the history: results over time, categories, agents, tools, and failures of the same kind.
//!
//! In: rows and minutes. Out: [`Overview`], the same for the live page and for a file.

use std::collections::BTreeMap;

use serde::Serialize;

use super::history::VerdictCounts;
use super::model::{TraceRow, UsageCount};
use crate::telemetry::ResultLabel;

/// Maximum number of entries of each table.
const MAX_ENTRIES: usize = 20;

/// Sums over the traces that are shown.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Overview {
    /// Traces by result.
    pub traces: BTreeMap<&'static str, u64>,
    /// The duration of one bar of `timeline`, in seconds.
    pub step: u64,
    pub timeline: Vec<Bar>,
    /// Failing traces by category, the most frequent first.
    pub categories: Vec<(&'static str, u64)>,
    /// Failing traces by metric.
    pub metrics: Vec<(String, u64)>,
    /// Runs by agent, the most failures first.
    pub agents: Vec<UsageCount>,
    /// Calls by tool.
    pub tools: Vec<UsageCount>,
    pub services: Vec<UsageCount>,
    /// Failures that occurred more than once.
    pub recurring: Vec<RecurringFailure>,
    pub judge_cost_usd: f64,
    pub tokens: u64,
    pub cost_usd: f64,
}

/// The results of one interval.
#[derive(Debug, Serialize)]
pub(crate) struct Bar {
    /// The start of the interval, in seconds since 1970.
    pub at: u64,
    #[serde(flatten)]
    pub counts: VerdictCounts,
}

/// Failures with one signature.
#[derive(Debug, Serialize)]
pub(crate) struct RecurringFailure {
    pub signature: String,
    pub count: u64,
    /// The latest trace with the failure, from which the fields below are.
    pub trace_id: String,
    pub judged_at: u64,
    pub agent: Option<String>,
    pub metrics: Vec<String>,
    pub categories: Vec<&'static str>,
}

impl Overview {
    /// The overview without a timeline. `rows` must be sorted, the latest trace first.
    pub(crate) fn from_rows<'r>(rows: impl Iterator<Item = &'r TraceRow>) -> Overview {
        let mut overview = Overview::default();
        let (mut categories, mut metrics) = (BTreeMap::new(), BTreeMap::new());
        let [mut agents, mut tools, mut services] = [const { BTreeMap::<&str, (u64, u64)>::new() }; 3];
        let mut recurring: BTreeMap<&str, RecurringFailure> = BTreeMap::new();
        for row in rows {
            let failed = row.result == ResultLabel::Fail.as_str();
            *overview.traces.entry(row.result).or_default() += 1;
            overview.tokens = overview.tokens.saturating_add(row.tokens.unwrap_or(0));
            overview.cost_usd += row.cost_usd.unwrap_or(0.0);
            overview.judge_cost_usd += row.judge_cost_usd.unwrap_or(0.0);
            add_usage(&mut agents, &row.agents);
            add_usage(&mut tools, &row.tools);
            if let Some(service) = &row.service {
                let (count, failures) = services.entry(service).or_default();
                *count += 1;
                *failures += u64::from(failed);
            }
            if !failed {
                continue;
            }
            row.categories.iter().for_each(|&category| *categories.entry(category).or_default() += 1);
            row.failed_metrics.iter().for_each(|metric| *metrics.entry(metric).or_default() += 1);
            if let Some(signature) = &row.signature {
                let new_failure = || RecurringFailure {
                    signature: signature.clone(),
                    count: 0,
                    trace_id: row.trace_id.clone(),
                    judged_at: row.judged_at,
                    agent: row.agent.clone(),
                    metrics: row.failed_metrics.clone(),
                    categories: row.categories.clone(),
                };
                recurring.entry(signature).or_insert_with(new_failure).count += 1;
            }
        }
        overview.categories = most_frequent(categories);
        overview.metrics =
            most_frequent(metrics).into_iter().map(|(metric, count)| (metric.clone(), count)).collect();
        [overview.agents, overview.tools, overview.services] = [agents, tools, services].map(usage_counts);
        overview.recurring = recurring.into_values().filter(|failure| failure.count > 1).collect();
        overview.recurring.sort_by_key(|failure| std::cmp::Reverse((failure.count, failure.judged_at)));
        overview.recurring.truncate(MAX_ENTRIES);
        overview
    }

    /// Adds the timeline of the live page: the minutes in which traces were evaluated.
    pub(crate) fn with_minutes(mut self, timeline: Vec<(u64, VerdictCounts)>) -> Overview {
        self.step = 60;
        self.timeline =
            timeline.into_iter().map(|(minute, counts)| Bar { at: minute * 60, counts }).collect();
        self
    }

    /// Adds the timeline of a file: its traces by start time, in at most about 60 bars.
    pub(crate) fn with_start_times<'r>(
        mut self,
        rows: impl Iterator<Item = &'r TraceRow> + Clone,
    ) -> Overview {
        /// Possible durations of a bar in seconds: from a second to four weeks.
        const STEPS: [u64; 12] =
            [1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600, 86_400, 7 * 86_400, 28 * 86_400];
        let rows = rows.filter(|row| row.start > 0);
        let starts = rows.clone().map(|row| row.start / 1_000);
        let (first, last) = (starts.clone().min().unwrap_or(0), starts.max().unwrap_or(0));
        let fits = |step: &&u64| (last - first) / **step < 60;
        let step = STEPS.iter().find(fits).copied().unwrap_or((last - first) / 60 + 1);
        let mut bars: BTreeMap<u64, VerdictCounts> = BTreeMap::new();
        for row in rows {
            let result = ResultLabel::ALL.into_iter().find(|label| label.as_str() == row.result);
            let bar = bars.entry(row.start / 1_000 / step * step).or_default();
            bar.count(result.unwrap_or(ResultLabel::Unmeasured), &row.categories);
        }
        self.step = step;
        self.timeline = bars.into_iter().map(|(at, counts)| Bar { at, counts }).collect();
        self
    }
}

fn add_usage<'r>(totals: &mut BTreeMap<&'r str, (u64, u64)>, counts: &'r [UsageCount]) {
    for usage in counts {
        let (count, failed) = totals.entry(&usage.name).or_default();
        *count += usage.count;
        *failed += usage.failed;
    }
}

/// At most [`MAX_ENTRIES`] entries, those with the most failures first.
fn usage_counts(all: BTreeMap<&str, (u64, u64)>) -> Vec<UsageCount> {
    let usage =
        |(name, (count, failed)): (&str, (u64, u64))| UsageCount { name: name.to_owned(), count, failed };
    let mut all: Vec<UsageCount> = all.into_iter().map(usage).collect();
    all.sort_by_key(|usage| std::cmp::Reverse((usage.failed, usage.count)));
    all.truncate(MAX_ENTRIES);
    all
}

/// At most [`MAX_ENTRIES`] keys, those with the highest counts first.
fn most_frequent<K: Ord>(all: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut all: Vec<(K, u64)> = all.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.truncate(MAX_ENTRIES);
    all
}
