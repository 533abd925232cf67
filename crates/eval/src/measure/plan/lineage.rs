//! Statistics over lineages (004, "Evaluation metadata"): how long they are, how many passes and
//! revisions they took, how their last plans are laid out.
//!
//! In: [`Lineage`]s. Out: counts and spreads; nothing is carried out or asked.

use std::collections::BTreeMap;

use serde::Serialize;

use super::improve::{End, Lineage, Tag};

/// Smallest, mean and largest of a count.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Spread {
    /// Smallest.
    pub min: usize,
    /// Mean.
    pub mean: f64,
    /// Largest.
    pub max: usize,
}

impl Spread {
    fn of(counts: impl Iterator<Item = usize>) -> Spread {
        let (mut n, mut sum, mut min, mut max) = (0usize, 0usize, usize::MAX, 0);
        for count in counts {
            (n, sum) = (n + 1, sum + count);
            (min, max) = (min.min(count), max.max(count));
        }
        if n == 0 { Spread::default() } else { Spread { min, mean: sum as f64 / n as f64, max } }
    }
}

/// What lineages have in common.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Statistics {
    /// How many lineages.
    pub lineages: usize,
    /// Distinct plans of each.
    pub length: Spread,
    /// Passes that each took.
    pub passes: Spread,
    /// New plans in the first pass, the second, and so on; over the lineages that had that pass.
    pub revisions_per_pass: Vec<Spread>,
    /// Steps of the last plans.
    pub steps: Spread,
    /// Last plans by their number of hops; the paper's classes are 0, 1, 2 and 3 or more.
    pub hops: BTreeMap<usize, usize>,
    /// How often each tag led to a new plan.
    pub tags: BTreeMap<Tag, usize>,
    /// Why the loops ended.
    pub ends: BTreeMap<End, usize>,
}

/// The statistics of `lineages`.
pub fn statistics(lineages: &[Lineage]) -> Statistics {
    let last = || lineages.iter().filter_map(|l| l.revisions.last());
    let most = lineages.iter().map(|l| l.revisions_per_pass.len()).max().unwrap_or(0);
    let pass = |n: usize| Spread::of(lineages.iter().filter_map(|l| l.revisions_per_pass.get(n).copied()));
    Statistics {
        lineages: lineages.len(),
        length: Spread::of(lineages.iter().map(|l| l.revisions.len())),
        passes: Spread::of(lineages.iter().map(|l| l.passes)),
        revisions_per_pass: (0..most).map(pass).collect(),
        steps: Spread::of(last().map(|r| r.shape.steps)),
        hops: counted(last().map(|r| r.shape.hops)),
        tags: counted(lineages.iter().flat_map(|l| &l.revisions).flat_map(|r| &r.tags).map(|t| t.tag)),
        ends: counted(lineages.iter().map(|l| l.end)),
    }
}

fn counted<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}
