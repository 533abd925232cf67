//! `verdict.evaluators`: metrics that programs behind HTTP endpoints answer.
//!
//! In: the configuration's YAML. Out: a [`CustomMetric`] for each, whose row has the configured name and scale.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex, PoisonError};

use verdict_config::{Problem, Size, settings};

use super::metric::RemoteMetric;
use super::protocol::RequestedScale;
use super::subject::Subject;
use crate::measure::custom_metric::CustomMetric;
use crate::measure::sections::{Override, RULES_NAME, Scored};
use crate::measure::table::{About, MetricSpec, Need, Requires, Scale};

/// The evaluators by the name of their metric, which is its attribute key.
pub type Evaluators = BTreeMap<String, EvaluatorConfig>;

/// Smallest `max_bytes`, which suffices for metadata and the ends of a few texts.
const MIN_BYTES: u64 = 4 << 10;
/// Largest `max_bytes`: 64 questions about one trace are in memory together.
const MAX_BYTES: u64 = 4 << 20;
/// Largest number of labels of a metric.
const MAX_LABELS: usize = 32;
/// Maximum bytes of a label, which is the value of an attribute.
const MAX_LABEL_BYTES: usize = 64;

settings! {
    /// A metric that evaluators answer: programs behind HTTP endpoints, which `judges` configures with the dialect
    /// `evaluator`.
    pub struct EvaluatorConfig {
        /// Default true. If false, the metric is neither measured nor written.
        enabled: bool = true,
        /// No default. Who answers: names of `judges` of dialect `evaluator`. Several answers are combined as those of
        /// judges.
        judges: Vec<String>,
        /// Default `step`. What is evaluated: `model` or `tool`, calls of this kind; `step`, both; `agent`, the run of
        /// each agent with all beneath it; `trace`, the whole trace, measured on its root.
        subject: Subject = Subject::Step,
        /// Default `[1, 5]`. Lowest and highest score, which is the best; answers lie between them. Not with `labels`.
        scores: Option<[u8; 2]>,
        /// Default none. The labels, from good to bad, for a metric without scores.
        labels: Vec<String>,
        /// Default three quarters of the way from the lowest to the highest score. A score below it fails.
        threshold: Option<f64>,
        /// No default. The labels that count as failed.
        fail_labels: Vec<String>,
        /// Default false. It measures how the result came about, and not the result: such a failure does not count
        /// where the policy `outcome_relevant` finds that the run recovered from it.
        process: bool = false,
        /// Default none. Exceptions by kind, agent, service or model; the first match applies.
        overrides: Vec<Override>,
        /// Default 96KiB. Largest size of a request, 4KiB to 4MiB. If a run is longer, the longest texts are cut in the
        /// middle, then spans in its middle are left out and counted.
        max_bytes: Size = Size(96 << 10),
    }
}

impl RequestedScale {
    /// The scale in requests to the evaluator.
    pub fn from_config(config: &EvaluatorConfig) -> RequestedScale {
        let [min, max] = config.range();
        match config.labels.is_empty() {
            true => RequestedScale::Score { min, max },
            false => RequestedScale::Label { labels: config.labels.clone() },
        }
    }
}

impl EvaluatorConfig {
    fn range(&self) -> [u8; 2] {
        self.scores.unwrap_or([1, 5])
    }

    /// The metric `name`.
    pub(crate) fn metric(&self, name: &str) -> CustomMetric {
        let row = self.row(name);
        let max_bytes = usize::try_from(self.max_bytes.0).unwrap_or(usize::MAX);
        CustomMetric::new(row, self.settings(row), RemoteMetric { subject: self.subject, max_bytes })
    }

    fn settings(&self, row: &MetricSpec) -> Scored {
        Scored {
            enabled: self.enabled,
            threshold: row.threshold.unwrap_or_default(),
            judges: self.judges.clone(),
            overrides: self.overrides.clone(),
        }
    }

    /// The row of the metric `name`, which only depends on the configuration.
    fn row(&self, name: &str) -> &'static MetricSpec {
        let [lowest, best] = self.range().map(f64::from);
        let threshold = self.threshold.unwrap_or(lowest + 0.75 * (best - lowest));
        let threshold = self.labels.is_empty().then_some(threshold);
        let EvaluatorConfig { subject, scores, labels, fail_labels, process, .. } = self;
        let key = format!("{name} {subject:?} {scores:?} {labels:?} {fail_labels:?} {process} {threshold:?}");
        interned(key, || {
            let [min, max] = self.range();
            let scale = match labels.is_empty() {
                true => Scale::Scores(min, max),
                false => Scale::Labels(leak_all(labels)),
            };
            let (about, need) = match subject {
                Subject::Model => (About::Model, Need::Agent),
                Subject::Tool => (About::Tool, Need::Agent),
                Subject::Step => (About::Call, Need::Agent),
                Subject::Agent => (About::Agent, Need::Subtree),
                Subject::Trace => (About::Run, Need::Trace),
            };
            MetricSpec {
                about,
                need,
                requires: Requires::OutputOrError,
                fail_labels: leak_all(fail_labels),
                process: *process,
                ..MetricSpec::custom(leak(name), scale, threshold)
            }
        })
    }

    /// The invalid values of the evaluator with this name.
    fn problems(&self, name: &str) -> Vec<Problem> {
        let mut out = Vec::new();
        let mut add_problem = |key: &str, message: String| out.push(Problem::new(key, message));
        if self.judges.is_empty() {
            add_problem(
                "judges",
                "names no judge of dialect evaluator, so that nothing would answer".to_owned(),
            );
        }
        if self.judges.iter().any(|judge| judge == RULES_NAME) {
            add_problem("judges", "the built-in rules do not know this metric".to_owned());
        }
        if !(MIN_BYTES..=MAX_BYTES).contains(&self.max_bytes.0) {
            add_problem("max_bytes", "must lie between 4KiB and 4MiB".to_owned());
        }
        if self.labels.is_empty() {
            let [lowest, best] = self.range();
            if lowest >= best {
                add_problem(
                    "scores",
                    format!("the lowest score, {lowest}, must be below the highest, {best}"),
                );
            }
            if !self.fail_labels.is_empty() {
                add_problem(
                    "fail_labels",
                    "a metric with scores has no labels; a threshold decides".to_owned(),
                );
            }
        } else {
            if self.scores.is_some() || self.threshold.is_some() {
                add_problem("labels", "a metric has either scores with a threshold or labels".to_owned());
            }
            self.label_problems(&mut add_problem);
        }
        // Problems of the row would be consequences of the problems found so far.
        let row = out.is_empty().then(|| self.row(name));
        out.extend(
            row.and_then(|row| row.problem(&self.settings(row))).map(|reason| Problem::new("", reason)),
        );
        out
    }

    /// Adds the problems of `labels` and `fail_labels`.
    fn label_problems(&self, add_problem: &mut impl FnMut(&str, String)) {
        let is_label_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_legal = |label: &str| {
            !label.is_empty() && label.len() <= MAX_LABEL_BYTES && label.chars().all(is_label_char)
        };
        if self.labels.len() > MAX_LABELS || !self.labels.iter().all(|label| is_legal(label)) {
            add_problem("labels", "expected up to 32 labels of up to 64 letters, digits, - and _".to_owned());
        }
        let repeated = self.labels.iter().enumerate().find(|(i, label)| self.labels[..*i].contains(label));
        if let Some((_, label)) = repeated {
            add_problem("labels", format!("'{label}' is listed twice"));
        }
        if let Some(unknown) = self.fail_labels.iter().find(|label| !self.labels.contains(label)) {
            add_problem("fail_labels", format!("'{unknown}' is not one of the labels"));
        } else if self.fail_labels.is_empty() || self.labels.iter().all(|l| self.fail_labels.contains(l)) {
            add_problem("fail_labels", "some labels must fail, and some must not".to_owned());
        }
    }
}

/// Invalid values of `verdict.evaluators`.
pub(crate) fn problems(evaluators: &Evaluators) -> Vec<Problem> {
    let evaluator_problems = |(name, config): (&String, &EvaluatorConfig)| {
        config.problems(name).into_iter().map(|problem| problem.in_section(name)).collect::<Vec<_>>()
    };
    evaluators.iter().flat_map(evaluator_problems).collect()
}

/// The rows of this process. Rows live as long as the process, as those of built-in metrics do: a reload of the same
/// configuration uses the same row, so that only different rows take memory, about a hundred bytes each.
static ROWS: LazyLock<Mutex<HashMap<String, &'static MetricSpec>>> = LazyLock::new(Mutex::default);

/// The row with this key, created at its first use.
fn interned(key: String, row: impl FnOnce() -> MetricSpec) -> &'static MetricSpec {
    // A poisoned lock is ignored: a panic cannot leave a row that is inserted in part.
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    rows.entry(key).or_insert_with(|| Box::leak(Box::new(row())))
}

/// A text that lives as long as the process, as part of a row.
fn leak(text: &str) -> &'static str {
    Box::leak(Box::from(text))
}

fn leak_all(texts: &[String]) -> &'static [&'static str] {
    let texts: Vec<&'static str> = texts.iter().map(|text| leak(text)).collect();
    Box::leak(texts.into_boxed_slice())
}
