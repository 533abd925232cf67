//! PC-KTC (002, equation 5): path correctness combined with the order of the matched tokens.
//!
//! The order of matched tokens depends on a golden path as a whole, so golden paths are enumerated.
//! Paths whose tokens come first in the run are visited first. The enumeration ends when no path can
//! be better, since PC is an upper bound.

use foldhash::{HashMap, HashMapExt};

use super::automaton::{Automaton, StateId};
use super::correctness::codes;
use super::distance::{Code, FOREIGN, levenshtein, normalized};
use super::walk::Walk;
use crate::measure::work_budget::Allows;

/// The value of tau+ for fewer than two matches, which have no order: the middle of the scale.
const UNORDERED: f64 = 0.5;
/// Maximum number of golden paths that are compared.
const MAX_PATHS: usize = 20_000;
/// Limit on the work, in words of 64 cells: about a second.
const MAX_WORDS: usize = 1 << 28;
/// Words that count as one step of the work budget.
const WORDS_PER_STEP: usize = 8;

/// PC-KTC with the parameter `lambda`; `pc` is PC. `None` if the limits were reached, or the work budget was spent,
/// before the best golden path was certain.
pub(crate) fn ordered_correctness(
    automaton: &Automaton,
    walk: &Walk,
    pc: f64,
    lambda: f64,
    allows: Allows<'_>,
) -> Option<f64> {
    let path = codes(walk);
    let mut best = f64::NEG_INFINITY;
    let upper_bound = lambda * pc + (1.0 - lambda);
    let (mut visited, mut words) = (0usize, 0usize);
    let is_complete = visit_golden_paths(automaton, &path, &mut |golden| {
        visited += 1;
        words += path.len() + golden.len();
        if !allows(path.len() + golden.len()) {
            return false;
        }
        let order = (1.0 - lambda) * tau_plus(&path, golden);
        // The distance is the most expensive part: it is skipped if even its lower bound does not improve the result.
        let least_distance = normalized(path.len().abs_diff(golden.len()), path.len(), golden.len());
        if lambda * pc.min(1.0 - least_distance) + order > best {
            let compared_words = path.len().saturating_mul(golden.len() / 64 + 1);
            words += compared_words;
            if !allows(compared_words / WORDS_PER_STEP) {
                return false;
            }
            let distance = levenshtein(&path, golden);
            let similarity = 1.0 - normalized(distance, path.len(), golden.len());
            best = best.max(lambda * similarity + order);
        }
        best < upper_bound && visited < MAX_PATHS && words < MAX_WORDS
    });
    (is_complete || best >= upper_bound).then_some(best.min(1.0))
}

/// Kendall's tau of the positions of the matched tokens in `golden`, scaled to 0..1. The nth occurrence of a
/// token in `path` is matched with its nth occurrence in `golden`.
pub(super) fn tau_plus(path: &[Code], golden: &[Code]) -> f64 {
    let mut positions: HashMap<Code, (usize, Vec<usize>)> = HashMap::with_capacity(golden.len());
    for (position, code) in golden.iter().enumerate() {
        positions.entry(*code).or_default().1.push(position);
    }
    let mut ranks = Vec::with_capacity(path.len().min(golden.len()));
    for code in path.iter().filter(|code| **code != FOREIGN) {
        if let Some((used, positions)) = positions.get_mut(code)
            && let Some(position) = positions.get(*used)
        {
            ranks.push(*position);
            *used += 1;
        }
    }
    let n = ranks.len() as f64;
    if ranks.len() < 2 {
        return UNORDERED;
    }
    // tau = 1 - 4 D / (n (n - 1)) with D pairs out of order; there are no ties.
    1.0 - 2.0 * inversions(&ranks, golden.len()) as f64 / (n * (n - 1.0))
}

/// The number of pairs out of order, counted with a Fenwick tree.
fn inversions(ranks: &[usize], positions: usize) -> u64 {
    let mut tree = vec![0u64; positions + 1];
    let mut inversions = 0;
    for (earlier_count, &rank) in ranks.iter().enumerate() {
        let (mut i, mut smaller) = (rank, 0);
        while i > 0 {
            smaller += tree[i];
            i &= i - 1;
        }
        inversions += earlier_count as u64 - smaller;
        let mut i = rank + 1;
        while i <= positions {
            tree[i] += 1;
            i += i & i.wrapping_neg();
        }
    }
    inversions
}

/// Calls `visit` on golden paths until it returns false; true if all were visited.
fn visit_golden_paths(automaton: &Automaton, path: &[Code], visit: &mut dyn FnMut(&[Code]) -> bool) -> bool {
    let mut first_position: HashMap<Code, usize> = HashMap::with_capacity(path.len());
    for (position, code) in path.iter().enumerate() {
        first_position.entry(*code).or_insert(position);
    }
    // Edges are popped from the end, so tokens that the run made first are sorted last.
    let next_edges = |state: StateId| {
        let mut edges: Vec<(Code, StateId)> =
            automaton.progress(state).map(|(symbol, to)| (symbol.index() as Code, to)).collect();
        edges.sort_by_key(|(code, _)| {
            std::cmp::Reverse(first_position.get(code).copied().unwrap_or(usize::MAX))
        });
        edges
    };
    let mut golden = Vec::new();
    if automaton.is_final(automaton.initial()) && !visit(&golden) {
        return false;
    }
    let mut stack = vec![next_edges(automaton.initial())];
    while let Some(top) = stack.last_mut() {
        let Some((code, to)) = top.pop() else {
            stack.pop();
            golden.pop();
            continue;
        };
        golden.push(code);
        if automaton.is_final(to) && !visit(&golden) {
            return false;
        }
        stack.push(next_edges(to));
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repeated_tokens_are_matched_by_occurrence() {
        assert_eq!(tau_plus(&[1, 2, 1], &[1, 1, 2]), 1.0 - 2.0 / 6.0);
        assert_eq!(tau_plus(&[1], &[1, 2]), 0.5);
        assert_eq!(tau_plus(&[], &[]), 0.5);
        assert_eq!(tau_plus(&[3, 2, 1], &[1, 2, 3]), 0.0);
        assert_eq!(tau_plus(&[1, FOREIGN, 2], &[1, 2]), 1.0);
    }

    proptest! {
        #[test]
        fn inversions_equal_the_pairs_out_of_order(ranks in prop::collection::hash_set(0usize..60, 0..40)) {
            let ranks: Vec<usize> = ranks.into_iter().collect();
            let plain = ranks.iter().enumerate()
                .map(|(i, a)| ranks.iter().skip(i + 1).filter(|b| a > *b).count() as u64)
                .sum::<u64>();
            prop_assert_eq!(inversions(&ranks, 60), plain);
        }
    }
}
