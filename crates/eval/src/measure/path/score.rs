//! All of a walk's numbers: the vector, one number where weights ask for it, and who is not beaten.
//!
//! In: an automaton, a walk on it and the parameters. Out: [`Scores`]. The paper recommends the
//! vector and a Pareto view over a single number (002, appendix B).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::automaton::{Automaton, StateId};
use super::walk::Walk;
use super::{correctness, criticality, efficiency, harm, order, refinement};

/// `lambda` of equation 5 and `beta` of equation 6.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parameters {
    /// The weight of PC against order, 0 to 1. Default 0.5.
    pub lambda: f64,
    /// How fast harm counts for less, above 0 and below 1: small is fast. Default 0.5.
    pub beta: f64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { lambda: 0.5, beta: 0.5 }
    }
}

/// The numbers of one walk. All but `harmful_calls` are from 0 to 1; 1 is best but for
/// `harm_rate`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scores {
    /// PC, equation 4. `None`: too long to be compared.
    pub correctness: Option<f64>,
    /// PC-KTC, equation 5. `None`: too many golden paths to look at.
    pub pc_ktc: Option<f64>,
    /// Equation 6.
    pub prefix_criticality: f64,
    /// Equation 7.
    pub harm_rate: f64,
    /// H: harmful steps.
    pub harmful_calls: usize,
    /// Equation 8. `None`: the run is shorter than every golden path, so it is undefined.
    pub efficiency: Option<f64>,
    /// PC+HLR, section 4. `None`: too long to be compared.
    pub pc_hlr: Option<f64>,
    /// The state reached.
    pub final_state: StateId,
    /// Whether that is a final one.
    pub accepting: bool,
}

impl Scores {
    /// Of a walk.
    pub fn of(automaton: &Automaton, walk: &Walk, parameters: Parameters) -> Scores {
        let Parameters { lambda, beta } = parameters;
        let correctness = correctness::path_correctness(automaton, walk);
        Scores {
            correctness,
            pc_ktc: correctness.and_then(|pc| order::ordered_correctness(automaton, walk, pc, lambda)),
            prefix_criticality: criticality::prefix_criticality(walk.condensed(), beta),
            harm_rate: harm::harmful_call_rate(walk),
            harmful_calls: walk.harmful(),
            efficiency: efficiency::efficiency(automaton, walk.calls()),
            pc_hlr: refinement::refined_correctness(automaton, walk),
            final_state: walk.state(),
            accepting: automaton.is_final(walk.state()),
        }
    }

    /// `1 - harm_rate` (equation 7).
    pub fn harm_free(&self) -> f64 {
        1.0 - self.harm_rate
    }

    /// The vector, larger is better, in the order of [`Weights`].
    fn vector(&self) -> [Option<f64>; 6] {
        [
            self.correctness,
            self.pc_ktc,
            Some(self.prefix_criticality),
            Some(self.harm_free()),
            self.efficiency,
            self.pc_hlr,
        ]
    }

    /// The weighted mean of what is measured; `None` without any weight on it.
    pub fn weighted(&self, weights: &Weights) -> Option<f64> {
        let weighed = self.vector().into_iter().zip(weights.vector());
        let (sum, all) = weighed
            .filter_map(|(score, weight)| Some((score?, weight)))
            .fold((0.0, 0.0), |(sum, all), (score, weight)| (sum + score * weight, all + weight));
        (all > 0.0).then(|| sum / all)
    }

    /// At least as good in everything that both have, and better in something.
    pub fn dominates(&self, other: &Scores) -> bool {
        let both = || self.vector().into_iter().zip(other.vector()).filter_map(|(a, b)| Some((a?, b?)));
        both().all(|(a, b)| a >= b) && both().any(|(a, b)| a > b)
    }
}

/// How much each score counts in one number. Weights need not add up to 1; what is unmeasured
/// counts for nothing, and the rest is renormalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Weights {
    /// Of PC.
    pub correctness: f64,
    /// Of PC-KTC.
    pub pc_ktc: f64,
    /// Of prefix criticality.
    pub prefix_criticality: f64,
    /// Of `1 - harm_rate`.
    pub harm_free: f64,
    /// Of efficiency.
    pub efficiency: f64,
    /// Of PC+HLR.
    pub pc_hlr: f64,
}

impl Weights {
    fn vector(&self) -> [f64; 6] {
        [self.correctness, self.pc_ktc, self.prefix_criticality, self.harm_free, self.efficiency, self.pc_hlr]
    }

    /// What is wrong with them.
    pub fn problem(&self) -> Option<&'static str> {
        let all = self.vector();
        if all.iter().any(|w| !w.is_finite() || *w < 0.0) {
            return Some("a weight is a number of at least 0");
        }
        all.iter().all(|w| *w == 0.0).then_some("at least one weight must be above 0")
    }
}
