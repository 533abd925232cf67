//! Bootstrap intervals: cases are resampled with replacement.
//!
//! In: the number of cases and a figure of any sample of them. Out: the percentile interval of that figure.
//! Whole cases (traces) are resampled, because errors within one trace are not independent. The fixed seed
//! makes reports reproducible.

use serde::{Serialize, Serializer};

/// Number of samples: 25 of them are outside each end of a 95 % interval.
pub const DRAWS: usize = 1000;
/// Arbitrary seed, fixed so that reports are reproducible.
const SEED: u64 = 0x5eed_0f7e_57ed;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        [self.low, self.high].serialize(to)
    }
}

/// Intervals of precision, recall and F1.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ShareIntervals {
    pub precision: Option<Interval>,
    pub recall: Option<Interval>,
    pub f1: Option<Interval>,
}

impl From<[Option<Interval>; 3]> for ShareIntervals {
    fn from([precision, recall, f1]: [Option<Interval>; 3]) -> ShareIntervals {
        ShareIntervals { precision, recall, f1 }
    }
}

/// The 95 % percentile intervals of the figures that `figures` computes from a sample of `cases` cases.
/// A figure that is undefined for a sample is NaN, which is left out. `None` for fewer than two cases
/// or fewer than two samples that define the figure.
pub fn intervals<const N: usize>(
    cases: usize,
    mut figures: impl FnMut(&[usize]) -> [f64; N],
) -> [Option<Interval>; N] {
    let mut values_of_figures: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(DRAWS));
    if cases < 2 {
        return [None; N];
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut sample = vec![0; cases];
    for _ in 0..DRAWS {
        sample.iter_mut().for_each(|case| *case = random.usize(..cases));
        for (values, figure) in values_of_figures.iter_mut().zip(figures(&sample)) {
            if figure.is_finite() {
                values.push(figure);
            }
        }
    }
    values_of_figures.map(percentile_interval)
}

fn percentile_interval(mut values: Vec<f64>) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    values.sort_by(f64::total_cmp);
    Some(Interval { low: quantile(&values, 0.025), high: quantile(&values, 0.975) })
}

/// The `q` quantile of sorted values, by linear interpolation between neighbours.
pub(super) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let (below, fraction) = (position.floor() as usize, position.fract());
    let low = sorted[below];
    let high = sorted.get(below + 1).copied().unwrap_or(low);
    low + (high - low) * fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: &[f64], sample: &[usize]) -> f64 {
        sample.iter().map(|&i| values[i]).sum::<f64>() / sample.len() as f64
    }

    #[test]
    fn the_interval_of_a_constant_has_width_0() {
        let [interval] = intervals(10, |sample| [mean(&[3.0; 10], sample)]);
        assert_eq!(interval, Some(Interval { low: 3.0, high: 3.0 }));
    }

    #[test]
    fn the_interval_of_a_mean_has_the_theoretical_width() {
        // Zeros and ones in equal parts: the half-width is near 1.96 * 0.5 / sqrt(400) = 0.049.
        let values: Vec<f64> = (0..400).map(|i| f64::from(i % 2)).collect();
        let [interval] = intervals(values.len(), |sample| [mean(&values, sample)]);
        let Interval { low, high } = interval.unwrap();
        assert!((low - 0.451).abs() < 0.01 && (high - 0.549).abs() < 0.01, "{low} {high}");
    }

    #[test]
    fn one_case_has_no_interval_and_results_are_reproducible() {
        assert_eq!(intervals(1, |_| [1.0]), [None]);
        assert_eq!(intervals(9, |_| [f64::NAN]), [None]);
        let values = [1.0, 5.0, 2.0, 8.0];
        let once = intervals(4, |sample| [mean(&values, sample)]);
        assert_eq!(once, intervals(4, |sample| [mean(&values, sample)]));
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
        assert_eq!(quantile(&[1.0, 2.0], 1.0), 2.0);
    }
}
