//! Finds the best one-to-one matching of two sets.
//!
//! In: a weight for each pair. Out: a matching of maximum total weight, by the Hungarian method with
//! potentials (Kuhn 1955, Munkres 1957), in O(n^2 m) for n rows of m columns.

/// For each row its matched column. Pairs of weight 0 or less are never matched.
/// Rows of `weights` must be equally long.
pub(crate) fn maximum_matching(weights: &[Vec<f64>]) -> Vec<Option<usize>> {
    let rows = weights.len();
    let columns = weights.first().map_or(0, Vec::len);
    // One extra column of weight 0 for each row, so that a row may stay unmatched.
    let width = columns + rows;
    let cost = |row: usize, column: usize| {
        let weight = weights.get(row).and_then(|r| r.get(column)).copied().unwrap_or(0.0);
        if weight.is_finite() { -weight.max(0.0) } else { 0.0 }
    };
    // Row 0 and column 0 are sentinels of the method.
    let mut row_potentials = vec![0.0f64; rows + 1];
    let mut column_potentials = vec![0.0f64; width + 1];
    // For each column, the row that it is matched with; 0 if there is none.
    let mut row_of_column = vec![0usize; width + 1];
    for row in 1..=rows {
        // For each column, the column before it on the alternating path of least cost, and that cost.
        let mut previous_column = vec![0usize; width + 1];
        let mut least_cost = vec![f64::INFINITY; width + 1];
        let mut is_done = vec![false; width + 1];
        let mut column = 0;
        row_of_column[0] = row;
        loop {
            is_done[column] = true;
            let current_row = row_of_column[column];
            let (mut step, mut next) = (f64::INFINITY, 0);
            for j in 1..=width {
                if is_done[j] {
                    continue;
                }
                let reduced =
                    cost(current_row - 1, j - 1) - row_potentials[current_row] - column_potentials[j];
                if reduced < least_cost[j] {
                    least_cost[j] = reduced;
                    previous_column[j] = column;
                }
                if least_cost[j] < step {
                    step = least_cost[j];
                    next = j;
                }
            }
            for j in 0..=width {
                if is_done[j] {
                    row_potentials[row_of_column[j]] += step;
                    column_potentials[j] -= step;
                } else {
                    least_cost[j] -= step;
                }
            }
            column = next;
            if row_of_column[column] == 0 {
                break;
            }
        }
        while column != 0 {
            row_of_column[column] = row_of_column[previous_column[column]];
            column = previous_column[column];
        }
    }
    let mut matched = vec![None; rows];
    for (j, row) in row_of_column.iter().enumerate().skip(1) {
        let Some(slot) = row.checked_sub(1).and_then(|r| matched.get_mut(r)) else { continue };
        *slot = Some(j - 1).filter(|c| *c < columns && cost(*row - 1, *c) < 0.0);
    }
    matched
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn total(weights: &[Vec<f64>], matched: &[Option<usize>]) -> f64 {
        matched.iter().enumerate().filter_map(|(r, c)| Some(weights[r][(*c)?])).sum()
    }

    /// The greatest total of all matchings, tried one by one.
    fn greatest(weights: &[Vec<f64>], row: usize, used: &mut Vec<bool>) -> f64 {
        if row == weights.len() {
            return 0.0;
        }
        let mut best = greatest(weights, row + 1, used);
        for column in 0..weights[row].len() {
            if !used[column] {
                used[column] = true;
                best = best.max(weights[row][column] + greatest(weights, row + 1, used));
                used[column] = false;
            }
        }
        best
    }

    #[test]
    fn best_matching_differs_from_greedy_choice() {
        let weights = vec![vec![0.9, 0.8], vec![0.8, 0.0]];
        assert_eq!(maximum_matching(&weights), [Some(1), Some(0)]);
        assert_eq!(maximum_matching(&[]), []);
        assert_eq!(maximum_matching(&[vec![], vec![]]), [None, None]);
        assert_eq!(maximum_matching(&[vec![0.0, f64::NAN]]), [None]);
    }

    proptest! {
        #[test]
        fn matching_has_the_greatest_total(
            (rows, columns) in (0usize..5, 0usize..6),
            seed in prop::collection::vec(0u8..8, 30),
        ) {
            let weights: Vec<Vec<f64>> = (0..rows)
                .map(|r| (0..columns).map(|c| f64::from(seed[r * 6 + c]) / 7.0).collect())
                .collect();
            let matched = maximum_matching(&weights);
            prop_assert_eq!(matched.len(), rows);
            let mut columns_used: Vec<usize> = matched.iter().copied().flatten().collect();
            columns_used.sort_unstable();
            columns_used.dedup();
            prop_assert_eq!(columns_used.len(), matched.iter().flatten().count(), "one to one");
            let expected = greatest(&weights, 0, &mut vec![false; columns]);
            prop_assert!((total(&weights, &matched) - expected).abs() < 1e-9);
        }
    }
}
