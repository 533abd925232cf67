//! Rank correlation (Spearman), with ties.
//!
//! In: two series of scores of the same items. Out: the correlation of their ranks, -1 to 1.

/// Ranks from 1; equal values get the mean of their positions.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut lower_count = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let mean_rank = lower_count as f64 + (1 + equal.len()) as f64 / 2.0;
        equal.iter().for_each(|i| ranks[*i] = mean_rank);
        lower_count += equal.len();
    }
    ranks
}

/// Pearson's correlation of the ranks; `None` for fewer than two items, or if a series is constant.
pub(crate) fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() || a.len() < 2 {
        return None;
    }
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() + 1) as f64 / 2.0;
    let (mut covariance, mut variance_a, mut variance_b) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(&b) {
        covariance += (x - mean) * (y - mean);
        variance_a += (x - mean).powi(2);
        variance_b += (y - mean).powi(2);
    }
    let is_defined = variance_a > 0.0 && variance_b > 0.0;
    is_defined.then(|| (covariance / (variance_a * variance_b).sqrt()).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_order_gives_1_and_reverse_order_gives_minus_1() {
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 90.0]), Some(1.0));
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
    }

    #[test]
    fn ranks_without_ties_match_the_difference_formula() {
        // 1 - 6 sum(d^2) / (n (n^2 - 1)) with d = 0, 1, 1, 2, 2.
        let rho = spearman(&[1.0, 2.0, 3.0, 4.0, 5.0], &[1.0, 3.0, 2.0, 6.0, 2.5]).unwrap();
        assert!((rho - (1.0 - 6.0 * 10.0 / 120.0)).abs() < 1e-12 || (rho - 0.6).abs() < 1e-12, "{rho}");
    }

    #[test]
    fn ties_share_their_mean_rank_and_constant_series_has_no_correlation() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [2.5, 1.0, 2.5]);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        assert_eq!(spearman(&[1.0, 2.0], &[1.0]), None);
    }
}
