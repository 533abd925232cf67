//! Krippendorff's alpha: agreement of any number of raters, with gaps, beyond chance.
//!
//! In: units (a trace, a span), each with its ratings. Out: 1 for perfect agreement, 0 for agreement by
//! chance, below 0 for systematic disagreement; `None` if no unit has two ratings, or all ratings are equal.
//! Definition: K. Krippendorff, *Computing Krippendorff's Alpha-Reliability* (2011), 1 - Do / De
//! over pairable values; paper 000, section 4.1.4 uses the interval metric.
//!
//! The ordinal difference of two values is the number of ratings between them, where those equal to either value count
//! half. This is the difference of their mean ranks, so ordinal alpha is interval alpha over ranks.

use super::correlation::ranks;

/// The level of measurement, which determines the difference of two ratings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The difference is 0 for equal ratings and 1 otherwise.
    Nominal,
    /// The difference is the number of ratings between the two.
    Ordinal,
    /// The difference is the squared distance.
    Interval,
}

/// Alpha over `units`; `None` if no unit has two ratings, or all ratings are equal.
pub fn alpha(units: &[Vec<f64>], level: Level) -> Option<f64> {
    // A unit with one rating forms no pair and is left out.
    let mut paired: Vec<Vec<f64>> = units.iter().filter(|unit| unit.len() > 1).cloned().collect();
    let first = *paired.first()?.first()?;
    if paired.iter().flatten().all(|v| *v == first) {
        return None;
    }
    if level == Level::Ordinal {
        let mut ranked = ranks(paired.iter().flatten().copied()).into_iter();
        paired.iter_mut().flatten().for_each(|v| *v = ranked.next().unwrap_or(*v));
    }
    let sum_of_differences =
        if level == Level::Nominal { count_unequal_pairs } else { sum_of_squared_differences };
    let all: Vec<f64> = paired.iter().flatten().copied().collect();
    let n = all.len() as f64;
    let observed: f64 = paired.iter().map(|u| sum_of_differences(u) / (u.len() - 1) as f64).sum();
    let expected = sum_of_differences(&all) / (n - 1.0);
    Some(1.0 - observed / expected).filter(|a| a.is_finite())
}

/// Squared differences summed over all ordered pairs.
fn sum_of_squared_differences(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    2.0 * n * values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>()
}

/// The number of ordered pairs whose values differ.
fn count_unequal_pairs(values: &[f64]) -> f64 {
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
        // Krippendorff's nominal example: articles a to e, twelve units, alpha .692.
        let one = [1, 1, 2, 2, 4, 3, 3, 3, 5, 4, 4, 1];
        let two = [2, 1, 2, 2, 2, 3, 3, 3, 5, 4, 4, 4];
        let units: Vec<Vec<f64>> =
            one.into_iter().zip(two).map(|(a, b)| vec![f64::from(a), f64::from(b)]).collect();
        let actual = alpha(&units, Level::Nominal).unwrap();
        assert!((actual - 0.692).abs() < 5e-4, "{actual}");
    }

    #[test]
    fn without_pairs_or_variation_there_is_no_alpha() {
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
