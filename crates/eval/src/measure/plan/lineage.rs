//! Statistics over lineages (004, "Evaluation metadata"): length, passes, revisions, and the shapes
//! of the last plans.
//!
//! In: [`Lineage`]s. Out: counts, and spreads of counts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::improve::{Lineage, StopReason, Tag};

/// Minimum, mean and maximum of a count.
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

/// The statistics of several lineages.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LineageStatistics {
    /// The number of lineages.
    pub lineages: usize,
    /// The number of plans per lineage.
    pub length: Spread,
    /// The number of passes per lineage.
    pub passes: Spread,
    /// The number of new plans in the first pass, the second, and so on, over the lineages with that pass.
    pub revisions_per_pass: Vec<Spread>,
    /// The number of steps of the last plans.
    pub steps: Spread,
    /// The number of last plans by hops; the paper's classes are 0, 1, 2 and 3 or more.
    pub hops: BTreeMap<usize, usize>,
    /// The number of new plans that each tag led to.
    pub tags: BTreeMap<Tag, usize>,
    /// The number of lineages by stop reason.
    pub ends: BTreeMap<StopReason, usize>,
}

/// The statistics of `lineages`.
pub fn statistics(lineages: &[Lineage]) -> LineageStatistics {
    let last_revisions = || lineages.iter().filter_map(|l| l.revisions.last());
    let max_passes = lineages.iter().map(|l| l.revisions_per_pass.len()).max().unwrap_or(0);
    let pass =
        |n: usize| Spread::from_counts(lineages.iter().filter_map(|l| l.revisions_per_pass.get(n).copied()));
    LineageStatistics {
        lineages: lineages.len(),
        length: Spread::from_counts(lineages.iter().map(|l| l.revisions.len())),
        passes: Spread::from_counts(lineages.iter().map(|l| l.passes)),
        revisions_per_pass: (0..max_passes).map(pass).collect(),
        steps: Spread::from_counts(last_revisions().map(|r| r.shape.steps)),
        hops: count_by_value(last_revisions().map(|r| r.shape.hops)),
        tags: count_by_value(lineages.iter().flat_map(|l| &l.revisions).flat_map(|r| &r.tags).map(|t| t.tag)),
        ends: count_by_value(lineages.iter().map(|l| l.end)),
    }
}

/// The number of items of each value.
fn count_by_value<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}
