//! Levenshtein distance of two paths, and its normalized form (002, equation 3).
//!
//! Computed 64 cells at a time (Myers 1999, in the block form of Hyyro 2003), so that a path of
//! 10,000 calls against a golden path as long costs milliseconds.

use foldhash::HashMap;

/// A token as a number.
pub(super) type Code = u32;

/// The code of every token outside the alphabet. It is not equal to any token, including itself.
pub(super) const FOREIGN: Code = Code::MAX;

/// `2 LD / (|x| + |y| + LD)` for words of the lengths `one` and `other`: a metric, from 0 (equal) to 1 (exactly one of
/// the words is empty). 0 for two empty words, which the paper leaves undefined.
pub(super) fn normalized(distance: usize, one: usize, other: usize) -> f64 {
    match one + other + distance {
        0 => 0.0,
        sum => (2 * distance) as f64 / sum as f64,
    }
}

/// Insertions, deletions and substitutions from one word to the other.
pub(super) fn levenshtein(one: &[Code], other: &[Code]) -> usize {
    let (mut pattern, mut text) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    while let ([a, rest @ ..], [b, other @ ..]) = (pattern, text) {
        if a != b || *a == FOREIGN {
            break;
        }
        (pattern, text) = (rest, other);
    }
    while let ([rest @ .., a], [other @ .., b]) = (pattern, text) {
        if a != b || *a == FOREIGN {
            break;
        }
        (pattern, text) = (rest, other);
    }
    if pattern.is_empty() {
        return text.len();
    }
    bit_parallel_distance(pattern, text)
}

/// The distance of two words that are not empty. The symbols of `pattern` are the rows of the matrix; the vertical
/// differences of the current column are two bit vectors, +1 and -1.
fn bit_parallel_distance(pattern: &[Code], text: &[Code]) -> usize {
    let words = pattern.len().div_ceil(64);
    let mut equal: HashMap<Code, Vec<u64>> = HashMap::default();
    for (i, &code) in pattern.iter().enumerate().filter(|(_, code)| **code != FOREIGN) {
        equal.entry(code).or_insert_with(|| vec![0; words])[i / 64] |= 1 << (i % 64);
    }
    let no_rows = vec![0u64; words];
    let mut differences = vec![(u64::MAX, 0u64); words];
    let last_bit = (pattern.len() - 1) % 64;
    let mut distance = pattern.len();
    for code in text {
        let equal = equal.get(code).unwrap_or(&no_rows);
        // The row above the matrix grows by one with each column.
        let (mut up, mut down) = (1u64, 0u64);
        let mut bottom = (0u64, 0u64);
        for ((plus, minus), equal) in differences.iter_mut().zip(equal) {
            let vertical = equal | *minus;
            let equal = equal | down;
            let horizontal = ((equal & *plus).wrapping_add(*plus) ^ *plus) | equal;
            let rises = *minus | !(horizontal | *plus);
            let falls = *plus & horizontal;
            bottom = (rises, falls);
            let (shifted_up, shifted_down) = (rises << 1 | up, falls << 1 | down);
            (up, down) = (rises >> 63, falls >> 63);
            *plus = shifted_down | !(vertical | shifted_up);
            *minus = shifted_up & vertical;
        }
        distance += (bottom.0 >> last_bit & 1) as usize;
        distance -= (bottom.1 >> last_bit & 1) as usize;
    }
    distance
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn textbook_distance(one: &[Code], other: &[Code]) -> usize {
        let mut row: Vec<usize> = (0..=other.len()).collect();
        for (i, a) in one.iter().enumerate() {
            let mut diagonal = std::mem::replace(&mut row[0], i + 1);
            for (j, b) in other.iter().enumerate() {
                let is_match = a == b && *a != FOREIGN;
                let next = (diagonal + usize::from(!is_match)).min(row[j] + 1).min(row[j + 1] + 1);
                diagonal = std::mem::replace(&mut row[j + 1], next);
            }
        }
        row[other.len()]
    }

    fn word(max_length: usize) -> impl Strategy<Value = Vec<Code>> {
        prop::collection::vec(prop_oneof![8 => 0u32..5, 1 => Just(FOREIGN)], 0..=max_length)
    }

    fn normalized_distance(one: &[Code], other: &[Code]) -> f64 {
        normalized(levenshtein(one, other), one.len(), other.len())
    }

    proptest! {
        #[test]
        fn distance_equals_the_textbook_algorithm(one in word(200), other in word(200)) {
            prop_assert_eq!(levenshtein(&one, &other), textbook_distance(&one, &other));
        }

        /// Appendix C: NLD is a metric. Words of symbols only: foreign tokens differ from themselves.
        #[test]
        fn normalized_distance_is_a_metric(
            x in prop::collection::vec(0u32..4, 0..12),
            y in prop::collection::vec(0u32..4, 0..12),
            z in prop::collection::vec(0u32..4, 0..12),
        ) {
            let (xy, yz, xz) = (normalized_distance(&x, &y), normalized_distance(&y, &z), normalized_distance(&x, &z));
            prop_assert!((0.0..=1.0).contains(&xy));
            prop_assert_eq!(xy == 0.0, x == y);
            prop_assert_eq!(xy, normalized_distance(&y, &x));
            prop_assert!(xz <= xy + yz + 1e-12);
            // The triangle inequality of the similarity.
            prop_assert!(1.0 - xz >= (1.0 - xy) + (1.0 - yz) - 1.0 - 1e-12);
            prop_assert_eq!(xy == 1.0, x.is_empty() != y.is_empty());
        }
    }

    #[test]
    fn pairs_of_the_paper_have_their_published_similarity() {
        let word = |text: &str| text.bytes().map(Code::from).collect::<Vec<_>>();
        let similarity = |one: &str, other: &str| 1.0 - normalized_distance(&word(one), &word(other));
        for (one, other, expected) in [
            ("ABXC", "ABC", 0.75),
            ("ABXC", "ABBC", 7.0 / 9.0),
            ("ABD", "ABC", 5.0 / 7.0),
            ("", "XYZ", 0.0),
            ("", "", 1.0),
            ("ABC", "ABC", 1.0),
        ] {
            assert!(
                (similarity(one, other) - expected).abs() < 1e-12,
                "{one} {other}: {}",
                similarity(one, other)
            );
        }
        // The monotonicity of appendix C is false: an edit can bring words closer.
        assert!(similarity("ABC", "ABC") > similarity("AB", "ABC"));
    }
}
