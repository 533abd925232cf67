//! Efficiency (002, equation 8): the longest golden length that the run could have had, over the
//! calls that it made.

use super::automaton::Automaton;

/// Undefined (`None`) where every golden path is longer than the run, and for a run without calls,
/// where the equation divides nothing by nothing.
pub fn efficiency(automaton: &Automaton, calls: usize) -> Option<f64> {
    let golden = automaton.golden_path_lengths();
    let longest = golden.partition_point(|&length| length <= calls).checked_sub(1)?;
    let length = *golden.get(longest)?;
    (calls > 0).then(|| length as f64 / calls as f64)
}
