//! Krippendorff's alpha: agreement of any number of raters, with gaps, beyond chance.
//!
//! In: units (a trace, a span), each with its ratings. Out: 1 for perfect agreement, 0 for agreement by
//! chance, below 0 for systematic disagreement; `None` if no unit has two ratings, or all ratings are equal.
//! Definition: K. Krippendorff, *Computing Krippendorff's Alpha-Reliability* (2011), 1 - Do / De
//! over pairable values; paper 000, section 4.1.4 uses the interval metric.
//!
//! The ordinal difference of two values is the number of ratings between them, ends counted half,
//! which is the difference of their mean ranks: so ordinal alpha is interval alpha over ranks.

use super::correlation::ranks;

/// The difference function of two ratings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Ratings are equal or not.
    Nominal,
    /// By how many ratings are between them.
    Ordinal,
    /// By their squared distance.
    Interval,
}

/// Alpha over `units`.
pub fn alpha(units: &[Vec<f64>], level: Level) -> Option<f64> {
    // The only value of a unit forms no pair and is left out.
    let mut paired: Vec<Vec<f64>> = units.iter().filter(|unit| unit.len() > 1).cloned().collect();
    let first = *paired.first()?.first()?;
    if paired.iter().flatten().all(|v| *v == first) {
        return None;
    }
    if level == Level::Ordinal {
        let mut ranked = ranks(paired.iter().flatten().copied()).into_iter();
        paired.iter_mut().flatten().for_each(|v| *v = ranked.next().unwrap_or(*v));
    }
    let difference = if level == Level::Nominal { unequal } else { squares };
    let all: Vec<f64> = paired.iter().flatten().copied().collect();
    let n = all.len() as f64;
    let observed: f64 = paired.iter().map(|u| difference(u) / (u.len() - 1) as f64).sum();
    let expected = difference(&all) / (n - 1.0);
    Some(1.0 - observed / expected).filter(|a| a.is_finite())
}

/// Squared differences summed over all ordered pairs.
fn squares(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    2.0 * n * values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>()
}

/// Ordered pairs whose values differ.
fn unequal(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    n * n
        - sorted.chunk_by(|a, b| a == b).map(|equal_values| (equal_values.len() as f64).powi(2)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Krippendorff's own example: four observers, twelve units, gaps.
    fn observers() -> Vec<Vec<f64>> {
        let rows = [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
            [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
        ];
        (0..12)
            .map(|unit| rows.iter().map(|row| row[unit]).filter(|v| *v > 0).map(f64::from).collect())
            .collect()
    }

    #[test]
    fn krippendorffs_example_with_four_observers() {
        for (level, expected) in [(Level::Nominal, 0.743), (Level::Ordinal, 0.815), (Level::Interval, 0.849)]
        {
            let actual = alpha(&observers(), level).unwrap();
            assert!((actual - expected).abs() < 5e-4, "{level:?}: {actual}");
        }
    }

    #[test]
    fn krippendorffs_example_with_two_observers() {
        // His nominal example: articles a to e, twelve units, alpha .692.
        let one = [1, 1, 2, 2, 4, 3, 3, 3, 5, 4, 4, 1];
        let two = [2, 1, 2, 2, 2, 3, 3, 3, 5, 4, 4, 4];
        let units: Vec<Vec<f64>> =
            one.into_iter().zip(two).map(|(a, b)| vec![f64::from(a), f64::from(b)]).collect();
        let actual = alpha(&units, Level::Nominal).unwrap();
        assert!((actual - 0.692).abs() < 5e-4, "{actual}");
    }

    #[test]
    fn without_pairs_or_variation_there_is_none() {
        for level in [Level::Nominal, Level::Ordinal, Level::Interval] {
            assert_eq!(alpha(&[], level), None);
            assert_eq!(alpha(&[vec![1.0], vec![2.0]], level), None);
            assert_eq!(alpha(&[vec![0.1, 0.1, 0.1], vec![0.1, 0.1]], level), None);
        }
    }

    #[test]
    fn perfect_agreement_is_1_and_shuffled_ratings_below() {
        let agreed = [vec![1.0, 1.0], vec![3.0, 3.0], vec![2.0, 2.0]];
        let crossed = [vec![1.0, 3.0], vec![3.0, 1.0]];
        for level in [Level::Nominal, Level::Ordinal, Level::Interval] {
            assert_eq!(alpha(&agreed, level), Some(1.0));
            assert!(alpha(&crossed, level).unwrap() < 0.0);
        }
    }
}
