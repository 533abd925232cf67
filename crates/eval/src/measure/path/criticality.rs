//! Prefix criticality (002, equation 6): early harm weighs more.

use super::walk::Kept;

/// `1 - c(beta, N) * sum of m_k beta^k`; 1 for an empty path (decisions.md).
pub fn prefix_criticality(condensed: &[Kept], beta: f64) -> f64 {
    if !condensed.iter().any(|step| step.harmful) {
        return 1.0;
    }
    // The normaliser is summed alongside rather than taken as (1 - beta^N) / (1 - beta): the same
    // number, without cancellation where beta is near 1.
    let (mut weight, mut all, mut harm) = (1.0, 0.0, 0.0);
    for step in condensed {
        all += weight;
        if step.harmful {
            harm += weight;
        }
        weight *= beta;
    }
    (1.0 - harm / all).clamp(0.0, 1.0)
}
