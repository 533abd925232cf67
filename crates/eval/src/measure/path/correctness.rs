//! Path correctness (002, equation 4): similarity of the condensed path and the nearest golden one.

use super::automaton::{Automaton, StateId, Symbol};
use super::distance::{Code, FOREIGN, normalized};
use super::nearest::{EdgeLabel, NearestReference, ReferenceEdge, References};
use super::walk::{PathToken, Walk};
use crate::measure::work_budget::Allows;

/// The path correctness; `None` if the path is too long to be compared, or the work budget is spent.
pub(crate) fn path_correctness(automaton: &Automaton, walk: &Walk, allows: Allows<'_>) -> Option<f64> {
    let mut references = References::new();
    if !allows(automaton.states().len()) {
        return None;
    }
    add_golden_suffixes(automaton, automaton.initial(), &mut references, 0);
    Some(similarity(references.nearest(&codes(walk), allows)?, walk))
}

/// `1 - NLD` of the condensed path and a reference.
pub(super) fn similarity(nearest: NearestReference, walk: &Walk) -> f64 {
    1.0 - normalized(nearest.distance, walk.condensed().len(), nearest.length)
}

/// The condensed path as numbers.
pub(super) fn codes(walk: &Walk) -> Vec<Code> {
    walk.condensed().iter().map(|step| code(step.token)).collect()
}

pub(super) fn code(token: PathToken) -> Code {
    match token {
        PathToken::Symbol(symbol) => symbol.index() as Code,
        PathToken::Foreign(_) => FOREIGN,
    }
}

/// Adds every golden path from `state`, which corresponds to `node`.
pub(super) fn add_golden_suffixes(
    automaton: &Automaton,
    state: StateId,
    references: &mut References,
    node: usize,
) {
    let mut incoming: Vec<Vec<ReferenceEdge>> = vec![Vec::new(); automaton.states().len()];
    let mut reached = vec![false; incoming.len()];
    reached[state.index()] = true;
    for &current in automaton.states() {
        if !reached[current.index()] {
            continue;
        }
        let node_edges = std::mem::take(&mut incoming[current.index()]);
        let node = if current == state { node } else { references.add_node(node_edges) };
        if automaton.is_final(current) {
            references.mark_end(node);
        }
        for (symbol, to) in automaton.progress(current) {
            reached[to.index()] = true;
            incoming[to.index()].push(ReferenceEdge { from: node, label: edge_label(symbol) });
        }
    }
}

pub(super) fn edge_label(symbol: Symbol) -> EdgeLabel {
    EdgeLabel::One(symbol.index() as Code)
}
