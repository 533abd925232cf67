//! The development and the test half of a set of traces (paper 000, section 4.1.1).
//!
//! In: trace ids and a seed. Out: the ids of one half. The ids are ordered by SHA-256 of the seed (eight bytes,
//! big-endian) and the id; the first half, rounded down, is for development. The same ids and seed give the
//! same halves everywhere.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

/// A half of the traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// For development: prompts and thresholds may be fitted to it.
    Dev,
    /// For the figures.
    Test,
}

/// The ids of a half.
pub fn half<'a>(ids: impl IntoIterator<Item = &'a str>, half: Half, seed: u64) -> BTreeSet<String> {
    let order = |id: &str| Sha256::new().chain_update(seed.to_be_bytes()).chain_update(id).finalize();
    let mut ids: Vec<&str> = ids.into_iter().collect();
    ids.sort_by_cached_key(|id| (order(id), *id));
    let (dev, test) = ids.split_at(ids.len() / 2);
    let chosen = if half == Half::Dev { dev } else { test };
    chosen.iter().map(|id| (*id).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_disjoint_complete_and_depend_on_the_seed_alone() {
        let ids: Vec<String> = (0..117).map(|i| format!("{i:032x}")).collect();
        let half_ids = |which, seed| half(ids.iter().map(String::as_str), which, seed);
        let (dev, test) = (half_ids(Half::Dev, 7), half_ids(Half::Test, 7));
        // The sizes of paper 000.
        assert_eq!((dev.len(), test.len()), (58, 59));
        assert!(dev.is_disjoint(&test));
        let backwards = half(ids.iter().rev().map(String::as_str), Half::Dev, 7);
        assert_eq!(backwards, dev);
        assert_ne!(half_ids(Half::Dev, 8), dev);
    }

    #[test]
    fn the_order_is_that_of_the_published_hash() {
        // SHA-256 of eight zero bytes and the id begins with d7, 33 and 4d for a, b and c.
        assert_eq!(half(["a", "b", "c"], Half::Dev, 0), BTreeSet::from(["b".to_owned()]));
    }
}
