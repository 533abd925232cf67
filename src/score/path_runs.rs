//! Distributions of path scores over runs, their Pareto front, and a comparison with an earlier report.
//!
//! In: one run at a time, with its task, agent, model and version, and the scores that were measured. Out: for
//! each group of runs the mean, deviation, quantiles and interval of each score; the groups that no other group
//! of the same task dominates; and the scores that fell since an earlier report. Unmeasured scores are counted
//! and left out of the figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bootstrap::quantile;

/// The 97.5 % quantile of the normal distribution.
const NORMAL_QUANTILE: f64 = 1.959_963_984_540_054;

/// The key by which runs are grouped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct RunKey {
    pub task: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A part of a [`RunKey`] besides the task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Dimension {
    Agent,
    Model,
    Version,
}

impl RunKey {
    /// The key without the parts that are not in `dimensions`.
    #[must_use]
    pub fn only(&self, dimensions: &[Dimension]) -> RunKey {
        let part = |dimension: Dimension, value: &Option<String>| {
            value.clone().filter(|_| dimensions.contains(&dimension))
        };
        RunKey {
            task: self.task.clone(),
            agent: part(Dimension::Agent, &self.agent),
            model: part(Dimension::Model, &self.model),
            version: part(Dimension::Version, &self.version),
        }
    }
}

/// The distribution of a score over the runs of a group.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Distribution {
    pub measured: usize,
    pub unmeasured: usize,
    pub mean: f64,
    /// Standard deviation; 0 for one run.
    pub sd: f64,
    pub p10: f64,
    pub p50: f64,
    pub p90: f64,
    /// The 95 % interval of the mean; for a share, Wilson's interval. `None` for one run, except for a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
}

/// A group of runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunGroup {
    #[serde(flatten)]
    pub key: RunKey,
    pub runs: usize,
    /// Whether no other group of the task is at least as good in every mean and better in one.
    pub pareto: bool,
    /// Distributions by the name of the score.
    pub scores: BTreeMap<String, Distribution>,
}

/// Groups of runs, as the report is stored.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PathReport {
    pub groups: Vec<RunGroup>,
}

/// A score that is worse than in an earlier report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Regression {
    #[serde(flatten)]
    pub key: RunKey,
    pub score: String,
    pub before: f64,
    pub now: f64,
}

/// Collects runs by group.
#[derive(Debug, Default)]
pub struct PathRuns {
    groups: BTreeMap<RunKey, CollectedGroup>,
}

#[derive(Debug, Default)]
struct CollectedGroup {
    runs: usize,
    /// For each score name: its values, and the number of runs without a value.
    values: BTreeMap<String, (Vec<f64>, usize)>,
}

/// The score whose values are 0 and 1.
pub const ACCEPTING: &str = "accepting";
/// The score of which a lower value is better.
const HARM_RATE: &str = "harm_rate";

impl PathRuns {
    /// Adds a run; `None` is an unmeasured score.
    pub fn add<'s>(&mut self, key: RunKey, scores: impl IntoIterator<Item = (&'s str, Option<f64>)>) {
        let group = self.groups.entry(key).or_default();
        group.runs += 1;
        for (name, value) in scores {
            let (values, unmeasured) = group.values.entry(name.to_owned()).or_default();
            match value {
                Some(value) => values.push(value),
                None => *unmeasured += 1,
            }
        }
    }

    pub fn report(self) -> PathReport {
        let group = |(key, collected): (RunKey, CollectedGroup)| {
            let distribution = |(name, (values, unmeasured)): (String, (Vec<f64>, usize))| {
                let summary = Distribution::from_values(&name, values, unmeasured);
                (name, summary)
            };
            let scores = collected.values.into_iter().map(distribution).collect();
            RunGroup { key, runs: collected.runs, pareto: false, scores }
        };
        let mut groups: Vec<RunGroup> = self.groups.into_iter().map(group).collect();
        let is_on_front: Vec<bool> = groups
            .iter()
            .map(|candidate| {
                !groups
                    .iter()
                    .any(|other| other.key.task == candidate.key.task && dominates(other, candidate))
            })
            .collect();
        groups.iter_mut().zip(is_on_front).for_each(|(group, pareto)| group.pareto = pareto);
        PathReport { groups }
    }
}

/// Whether `a` is at least as good as `b` in every mean that both have, and better in one.
fn dominates(a: &RunGroup, b: &RunGroup) -> bool {
    let means = || {
        let shared = a
            .scores
            .iter()
            .filter_map(|(name, distribution)| Some((name, distribution, b.scores.get(name)?)));
        let measured =
            shared.filter(|(_, distribution, other)| distribution.measured > 0 && other.measured > 0);
        measured.map(|(name, distribution, other)| {
            (goodness(name, distribution.mean), goodness(name, other.mean))
        })
    };
    means().all(|(a, b)| a >= b) && means().any(|(a, b)| a > b)
}

/// The mean with its sign changed if a lower value is better, so that a greater result is always better.
fn goodness(name: &str, mean: f64) -> f64 {
    if name == HARM_RATE { -mean } else { mean }
}

impl Distribution {
    fn from_values(name: &str, mut values: Vec<f64>, unmeasured: usize) -> Distribution {
        let measured = values.len();
        if measured == 0 {
            return Distribution { unmeasured, ..Distribution::default() };
        }
        values.sort_by(f64::total_cmp);
        let n = measured as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let sd = if measured > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let interval = match name {
            ACCEPTING => Some(wilson(mean, n)),
            _ => (measured > 1).then(|| {
                let half = NORMAL_QUANTILE * sd / n.sqrt();
                ((mean - half).max(0.0), (mean + half).min(1.0))
            }),
        };
        let [p10, p50, p90] = [0.1, 0.5, 0.9].map(|q| quantile(&values, q));
        Distribution { measured, unmeasured, mean, sd, p10, p50, p90, interval }
    }
}

/// Wilson's 95 % score interval of a share of `n` runs.
fn wilson(share: f64, n: f64) -> (f64, f64) {
    let square = NORMAL_QUANTILE * NORMAL_QUANTILE / n;
    let middle = (share + square / 2.0) / (1.0 + square);
    let half = NORMAL_QUANTILE / (1.0 + square) * (share * (1.0 - share) / n + square / (4.0 * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

/// Number, mean and sum of squared deviations of a score, which can be pooled.
#[derive(Clone, Copy, Debug, Default)]
struct ScoreMoments {
    n: f64,
    mean: f64,
    squares: f64,
}

impl ScoreMoments {
    fn from_distribution(distribution: &Distribution) -> ScoreMoments {
        let n = distribution.measured as f64;
        let squares = distribution.sd.powi(2) * (n - 1.0).max(0.0);
        ScoreMoments { n, mean: distribution.mean, squares }
    }

    fn pooled(self, other: ScoreMoments) -> ScoreMoments {
        let n = self.n + other.n;
        if n <= 0.0 {
            return self;
        }
        let difference = other.mean - self.mean;
        ScoreMoments {
            n,
            mean: self.mean + difference * other.n / n,
            squares: self.squares + other.squares + difference * difference * self.n * other.n / n,
        }
    }

    /// The variance of the mean; `None` for fewer than two runs.
    fn variance_of_mean(self) -> Option<f64> {
        (self.n >= 2.0).then(|| self.squares / (self.n - 1.0) / self.n)
    }
}

impl PathReport {
    /// The moments of each score, with groups pooled that do not differ in `dimensions`.
    fn moments(&self, dimensions: &[Dimension]) -> BTreeMap<(RunKey, &str), ScoreMoments> {
        let mut moments: BTreeMap<(RunKey, &str), ScoreMoments> = BTreeMap::new();
        for group in &self.groups {
            for (name, distribution) in
                group.scores.iter().filter(|(_, distribution)| distribution.measured > 0)
            {
                let pooled = moments.entry((group.key.only(dimensions), name.as_str())).or_default();
                *pooled = pooled.pooled(ScoreMoments::from_distribution(distribution));
            }
        }
        moments
    }

    /// The scores that are worse than in `earlier` by more than `tolerance` and, where both have two runs or
    /// more, by more than chance explains (95 %). Groups are compared by `dimensions`; those that only one report has
    /// are left out.
    pub fn regressions(
        &self,
        earlier: &PathReport,
        dimensions: &[Dimension],
        tolerance: f64,
    ) -> Vec<Regression> {
        let now = self.moments(dimensions);
        let compare = |((key, score), before): ((RunKey, &str), ScoreMoments)| {
            let now = now.get(&(key.clone(), score))?;
            let drop = goodness(score, before.mean) - goodness(score, now.mean);
            let variance = before.variance_of_mean().zip(now.variance_of_mean()).map(|(a, b)| a + b);
            let is_chance = variance.is_some_and(|variance| drop <= NORMAL_QUANTILE * variance.sqrt());
            let regressed = drop > tolerance && !is_chance;
            let score = score.to_owned();
            regressed.then_some(Regression { key, score, before: before.mean, now: now.mean })
        };
        earlier.moments(dimensions).into_iter().filter_map(compare).collect()
    }

    /// The groups of `earlier` that have no run in this report.
    pub fn missing(&self, earlier: &PathReport, dimensions: &[Dimension]) -> Vec<RunKey> {
        let has = |key: &RunKey| self.groups.iter().any(|group| group.key.only(dimensions) == *key);
        let mut keys: Vec<RunKey> = earlier.groups.iter().map(|group| group.key.only(dimensions)).collect();
        keys.sort();
        keys.dedup();
        keys.retain(|key| !has(key));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_AGENT: [Dimension; 1] = [Dimension::Agent];

    fn key(model: &str, version: &str) -> RunKey {
        let some_string = |text: &str| Some(text.to_owned());
        RunKey {
            task: "refund".to_owned(),
            agent: some_string("shop"),
            model: some_string(model),
            version: some_string(version),
        }
    }

    fn report(runs: &[(&str, &str, f64, f64)]) -> PathReport {
        let mut all = PathRuns::default();
        for (model, version, correctness, harm_rate) in runs {
            let accepting = f64::from(*correctness == 1.0);
            let scores = [
                ("correctness", Some(*correctness)),
                ("harm_rate", Some(*harm_rate)),
                (ACCEPTING, Some(accepting)),
                ("efficiency", None),
            ];
            all.add(key(model, version), scores);
        }
        all.report()
    }

    #[test]
    fn distributions_have_quantiles_and_intervals() {
        let report = report(&[("a", "1", 1.0, 0.0), ("a", "1", 0.5, 0.25), ("a", "1", 0.0, 0.5)]);
        let [group] = &report.groups[..] else { panic!("{report:?}") };
        assert_eq!(group.runs, 3);
        let distribution = |name: &str| &group.scores[name];
        let correctness = distribution("correctness");
        assert_eq!((correctness.mean, correctness.sd, correctness.p50), (0.5, 0.5, 0.5));
        assert!((correctness.p10 - 0.1).abs() < 1e-12 && (correctness.p90 - 0.9).abs() < 1e-12);
        let (low, high) = correctness.interval.unwrap();
        assert_eq!((low, high), (0.0, 1.0), "0.5 +- 0.566 within the scale");
        // Wilson's interval of 1 of 3.
        let (low, high) = distribution(ACCEPTING).interval.unwrap();
        assert!((low - 0.0615).abs() < 1e-4 && (high - 0.7923).abs() < 1e-4, "{low} {high}");
        assert_eq!((distribution("efficiency").measured, distribution("efficiency").unmeasured), (0, 3));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<PathReport>(&text).unwrap(), report);
    }

    #[test]
    fn dominated_groups_are_not_on_the_front() {
        let report = report(&[("a", "1", 0.9, 0.1), ("b", "1", 0.8, 0.2), ("c", "1", 0.5, 0.0)]);
        let front: Vec<bool> = report.groups.iter().map(|group| group.pareto).collect();
        assert_eq!(front, [true, false, true], "c has less harm than a");
    }

    #[test]
    fn regression_exceeds_tolerance_and_chance() {
        let runs = |version: &'static str, values: &[f64]| {
            report(&values.iter().map(|value| ("a", version, *value, 1.0 - value)).collect::<Vec<_>>())
        };
        let before = runs("1", &[0.9, 0.92, 0.88, 0.9]);
        let worse = runs("2", &[0.7, 0.72, 0.68, 0.7]);
        let regressions = worse.regressions(&before, &BY_AGENT, 0.05);
        let names: Vec<&str> = regressions.iter().map(|regression| regression.score.as_str()).collect();
        assert_eq!(names, ["correctness", "harm_rate"], "pooled over versions, and harm rose");
        assert_eq!(regressions[0].key.version, None);
        assert!((regressions[0].before - 0.9).abs() < 1e-12 && (regressions[0].now - 0.7).abs() < 1e-12);
        assert!(worse.regressions(&before, &BY_AGENT, 0.25).is_empty(), "within the tolerance");
        assert!(before.regressions(&worse, &BY_AGENT, 0.05).is_empty(), "better");
        let noisy = runs("2", &[1.0, 0.2, 1.0, 0.9]);
        assert!(noisy.regressions(&before, &BY_AGENT, 0.05).is_empty(), "chance explains it");
        let one = runs("2", &[0.7]);
        assert_eq!(one.regressions(&before, &BY_AGENT, 0.05).len(), 2, "one run: the tolerance alone");
        let by_version = [Dimension::Version];
        assert!(worse.regressions(&before, &by_version, 0.05).is_empty(), "no version is in both");
        assert_eq!(worse.missing(&before, &by_version).len(), 1);
        assert!(worse.missing(&before, &BY_AGENT).is_empty());
    }
}
