//! Harmful-call rate (002, equation 7): the share of harmful steps on the condensed path.

use super::walk::Walk;

/// `H / N`; 0 for an empty path.
pub fn harmful_call_rate(walk: &Walk) -> f64 {
    match walk.condensed().len() {
        0 => 0.0,
        steps => walk.harmful() as f64 / steps as f64,
    }
}
