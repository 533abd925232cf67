//! Statistics over lineages (004, "Evaluation metadata"): length, passes, revisions, and the shapes
//! of the last plans.
//!
//! In: [`Lineage`]s. Out: counts, and spreads of counts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::improve::{Lineage, StopReason, Tag};

/// Smallest, mean and largest of a count.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Spread {
    pub min: usize,
    pub mean: f64,
    pub max: usize,
}

impl Spread {
    fn from_counts(counts: impl Iterator<Item = usize>) -> Spread {
        let counts: Vec<usize> = counts.collect();
        let mean = counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64;
        let (min, max) = (counts.iter().min().copied(), counts.iter().max().copied());
        Spread { min: min.unwrap_or(0), mean, max: max.unwrap_or(0) }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LineageStatistics {
    pub lineages: usize,
    pub length: Spread,
    pub passes: Spread,
    /// New plans in the first pass, the second, and so on; over the lineages that had that pass.
    pub revisions_per_pass: Vec<Spread>,
    /// Steps of the last plans.
    pub steps: Spread,
    /// Last plans by their number of hops; the paper's classes are 0, 1, 2 and 3 or more.
    pub hops: BTreeMap<usize, usize>,
    /// How often each tag led to a new plan.
    pub tags: BTreeMap<Tag, usize>,
    pub ends: BTreeMap<StopReason, usize>,
}

pub fn statistics(lineages: &[Lineage]) -> LineageStatistics {
    let last = || lineages.iter().filter_map(|l| l.revisions.last());
    let max_passes = lineages.iter().map(|l| l.revisions_per_pass.len()).max().unwrap_or(0);
    let pass =
        |n: usize| Spread::from_counts(lineages.iter().filter_map(|l| l.revisions_per_pass.get(n).copied()));
    LineageStatistics {
        lineages: lineages.len(),
        length: Spread::from_counts(lineages.iter().map(|l| l.revisions.len())),
        passes: Spread::from_counts(lineages.iter().map(|l| l.passes)),
        revisions_per_pass: (0..max_passes).map(pass).collect(),
        steps: Spread::from_counts(last().map(|r| r.shape.steps)),
        hops: count_by_value(last().map(|r| r.shape.hops)),
        tags: count_by_value(lineages.iter().flat_map(|l| &l.revisions).flat_map(|r| &r.tags).map(|t| t.tag)),
        ends: count_by_value(lineages.iter().map(|l| l.end)),
    }
}

fn count_by_value<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}
