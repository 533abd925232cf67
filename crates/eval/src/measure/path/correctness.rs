//! Path correctness (002, equation 4): how near the condensed path comes to a golden one.

use super::automaton::{Automaton, StateId, Symbol};
use super::distance::{Code, FOREIGN, normalised};
use super::nearest::{Edge, Label, Nearest, References};
use super::walk::{Token, Walk};

/// Equation 4; `None` where the path is too long to be compared.
pub fn path_correctness(automaton: &Automaton, walk: &Walk) -> Option<f64> {
    let mut references = References::new();
    golden_from(automaton, automaton.initial(), &mut references, 0);
    Some(similarity(references.nearest(&codes(walk))?, walk))
}

/// `1 - NLD` of the condensed path and a reference.
pub(super) fn similarity(nearest: Nearest, walk: &Walk) -> f64 {
    1.0 - normalised(nearest.distance, walk.condensed().len(), nearest.length)
}

/// The condensed path as numbers.
pub(super) fn codes(walk: &Walk) -> Vec<Code> {
    walk.condensed().iter().map(|kept| code(kept.token)).collect()
}

pub(super) fn code(token: Token) -> Code {
    match token {
        Token::Symbol(symbol) => symbol.index() as Code,
        Token::Foreign(_) => FOREIGN,
    }
}

/// Adds every golden way on from `state`, which `node` stands for.
pub(super) fn golden_from(automaton: &Automaton, state: StateId, references: &mut References, node: usize) {
    let mut into: Vec<Vec<Edge>> = vec![Vec::new(); automaton.states().len()];
    let mut reached = vec![false; into.len()];
    reached[state.index()] = true;
    for &at in automaton.states() {
        if !reached[at.index()] {
            continue;
        }
        let own = std::mem::take(&mut into[at.index()]);
        let node = if at == state { node } else { references.node(own) };
        if automaton.is_final(at) {
            references.end(node);
        }
        for (symbol, to) in automaton.progress(at) {
            reached[to.index()] = true;
            into[to.index()].push(Edge { from: node, label: label(symbol) });
        }
    }
}

pub(super) fn label(symbol: Symbol) -> Label {
    Label::One(symbol.index() as Code)
}
