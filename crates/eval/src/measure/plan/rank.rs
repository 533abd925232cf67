//! Rank correlation (Spearman), with ties.
//!
//! In: two series of scores of the same things. Out: the correlation of their ranks, -1 to 1.

/// Ranks from 1, equals sharing the mean of their places.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    let at = |i: &usize| values.get(*i).copied().unwrap_or(f64::NAN);
    order.sort_by(|a, b| at(a).total_cmp(&at(b)));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let mut to = from + 1;
        while to < order.len() && order.get(to).map(at) == order.get(from).map(at) {
            to += 1;
        }
        let shared = (from + 1 + to) as f64 / 2.0;
        for i in order.get(from..to).unwrap_or(&[]) {
            if let Some(rank) = ranks.get_mut(*i) {
                *rank = shared;
            }
        }
        from = to;
    }
    ranks
}

/// Pearson's correlation of the ranks; `None` for fewer than two things, or where one series has no
/// variation: there is nothing to rank then.
pub(crate) fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() || a.len() < 2 {
        return None;
    }
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() + 1) as f64 / 2.0;
    let (mut both, mut one, mut other) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(&b) {
        both += (x - mean) * (y - mean);
        one += (x - mean).powi(2);
        other += (y - mean).powi(2);
    }
    (one > 0.0 && other > 0.0).then(|| (both / (one * other).sqrt()).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_alike_are_one_and_reversed_ones_minus_one() {
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 90.0]), Some(1.0));
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
    }

    #[test]
    fn without_ties_the_usual_formula_holds() {
        // 1 - 6 sum(d^2) / (n (n^2 - 1)) with d = 0, 1, 1, 2, 2.
        let rho = spearman(&[1.0, 2.0, 3.0, 4.0, 5.0], &[1.0, 3.0, 2.0, 6.0, 2.5]).unwrap();
        assert!((rho - (1.0 - 6.0 * 10.0 / 120.0)).abs() < 1e-12 || (rho - 0.6).abs() < 1e-12, "{rho}");
    }

    #[test]
    fn equals_share_their_rank_and_no_variation_is_no_correlation() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [2.5, 1.0, 2.5]);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        assert_eq!(spearman(&[1.0, 2.0], &[1.0]), None);
    }
}
