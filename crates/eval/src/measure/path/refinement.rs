//! PC+HLR (002, section 4): similarity of the run to itself with each harmful call deleted or
//! replaced by a harmless one.
//!
//! A candidate keeps every progress step, deletes each harmful one or replaces it by a loop of that
//! state, and continues from the state reached on any golden path. Golden paths themselves are no
//! candidates (decisions.md), so PC+HLR can be below PC.

use std::rc::Rc;

use super::automaton::{Automaton, StateId};
use super::correctness::{add_golden_suffixes, code, codes, similarity};
use super::nearest::{Edge, Label, References};
use super::walk::Walk;
use crate::measure::work_budget::Allows;

/// Section 4; `None` if the path is too long to be compared, or the work is not allowed.
pub(crate) fn refined_correctness(automaton: &Automaton, walk: &Walk, allows: Allows<'_>) -> Option<f64> {
    if !allows(automaton.states().len() + walk.condensed().len()) {
        return None;
    }
    let mut references = References::new();
    let mut node = 0;
    let mut loops: Option<(StateId, Option<Rc<[bool]>>)> = None;
    for step in walk.condensed() {
        let mut incoming = Vec::with_capacity(2);
        if step.harmful {
            // The state is the same for consecutive harmful calls, so the set is reused.
            let set = match &loops {
                Some((state, set)) if *state == step.before => set.clone(),
                _ => loop_set(automaton, step.before),
            };
            loops = Some((step.before, set.clone()));
            // A call that can only be deleted leads to no further references. Without this a run of harmful
            // calls would cost its length squared.
            let Some(set) = set else { continue };
            incoming.push(Edge { from: node, label: Label::Nothing });
            incoming.push(Edge { from: node, label: Label::AnyOf(set) });
        } else {
            incoming.push(Edge { from: node, label: Label::One(code(step.token)) });
        }
        node = references.node(incoming);
    }
    add_golden_suffixes(automaton, walk.state(), &mut references, node);
    Some(similarity(references.nearest(&codes(walk), allows)?, walk))
}

/// The loops of a state as a set by code; `None` if it has none.
fn loop_set(automaton: &Automaton, state: StateId) -> Option<Rc<[bool]>> {
    let mut set = vec![false; automaton.symbols()];
    automaton.loops(state).for_each(|symbol| set[symbol.index()] = true);
    set.contains(&true).then(|| set.into())
}
