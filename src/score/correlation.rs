//! Correlation of two lists of numbers.
//!
//! In: pairs. Out: Pearson's r of the values, or of their ranks (Spearman's rho, ties at their
//! mean rank), from -1 to 1. `None` if either side is constant: the coefficient is undefined, not 0.

/// Pearson's product-moment correlation.
pub fn pearson(pairs: &[(f64, f64)]) -> Option<f64> {
    let n = pairs.len() as f64;
    let (left_mean, right_mean) = pairs.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x / n, b + y / n));
    let (mut covariance, mut left_squares, mut right_squares) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        covariance += (x - left_mean) * (y - right_mean);
        left_squares += (x - left_mean) * (x - left_mean);
        right_squares += (y - right_mean) * (y - right_mean);
    }
    both_sides_vary(pairs)
        .then(|| (covariance / (left_squares * right_squares).sqrt()).clamp(-1.0, 1.0))
        .filter(|r| r.is_finite())
}

/// Spearman's rank correlation.
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let left = ranks(pairs.iter().map(|(x, _)| *x));
    let right = ranks(pairs.iter().map(|(_, y)| *y));
    pearson(&left.into_iter().zip(right).collect::<Vec<_>>())
}

/// Whether both sides have different values. The variance is no criterion, because rounding can make that of constant
/// values positive.
fn both_sides_vary(pairs: &[(f64, f64)]) -> bool {
    let Some((x, y)) = pairs.first() else { return false };
    pairs.iter().any(|(other, _)| other != x) && pairs.iter().any(|(_, other)| other != y)
}

/// The rank of each value, from 1; equal values share the mean of theirs.
pub fn ranks(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = values.into_iter().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut ranks = vec![0.0; order.len()];
    let mut below = 0;
    for tied in order.chunk_by(|a, b| a.1 == b.1) {
        let rank = below as f64 + (tied.len() + 1) as f64 / 2.0;
        tied.iter().for_each(|(i, _)| ranks[*i] = rank);
        below += tied.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 5e-4)
    }

    #[test]
    fn pearson_of_anscombes_first_quartet() {
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let pairs: Vec<_> = x.into_iter().zip(y).collect();
        assert!(close(pearson(&pairs), 0.8164), "{:?}", pearson(&pairs));
    }

    #[test]
    fn spearman_of_a_worked_example() {
        // The worked example of rank correlation that encyclopaedias give: rho = -29/165.
        let pairs = [
            (106.0, 7.0),
            (100.0, 27.0),
            (86.0, 2.0),
            (101.0, 50.0),
            (99.0, 28.0),
            (103.0, 29.0),
            (97.0, 20.0),
            (113.0, 12.0),
            (112.0, 6.0),
            (110.0, 17.0),
        ];
        assert!(close(spearman(&pairs), -29.0 / 165.0), "{:?}", spearman(&pairs));
    }

    #[test]
    fn ties_share_their_mean_rank() {
        assert_eq!(ranks([3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
    }

    #[test]
    fn a_constant_side_has_no_correlation() {
        assert_eq!(pearson(&[(0.1, 5.0), (0.2, 5.0), (0.3, 5.0)]), None);
        assert_eq!(spearman(&[(1.0, 2.0)]), None);
        assert_eq!(pearson(&[]), None);
    }
}
