//! PC+HLR (002, section 4): path correctness against what the run would have been, had it deleted
//! each harmful call or made a harmless one in its place.
//!
//! A candidate keeps every progress step, deletes each harmful one or puts a loop of that state
//! there, and goes on from the state reached as any golden path does. Candidates are these alone,
//! without the golden paths themselves (decisions.md), so PC+HLR can be below PC.

use std::rc::Rc;

use super::automaton::{Automaton, StateId};
use super::correctness::{code, codes, golden_from, similarity};
use super::nearest::{Edge, Label, References};
use super::walk::Walk;

/// Section 4; `None` where the path is too long to be compared.
pub fn refined_correctness(automaton: &Automaton, walk: &Walk) -> Option<f64> {
    let mut references = References::new();
    let mut node = 0;
    let mut loops: Option<(StateId, Option<Rc<[bool]>>)> = None;
    for kept in walk.condensed() {
        let mut into = Vec::with_capacity(2);
        if kept.harmful {
            // The state stays the same over a row of harmful calls: one set serves all.
            let set = match &loops {
                Some((state, set)) if *state == kept.before => set.clone(),
                _ => harmless(automaton, kept.before),
            };
            into.push(Edge { from: node, label: Label::Nothing });
            into.extend(set.iter().map(|set| Edge { from: node, label: Label::AnyOf(Rc::clone(set)) }));
            loops = Some((kept.before, set));
        } else {
            into.push(Edge { from: node, label: Label::One(code(kept.token)) });
        }
        node = references.node(into);
    }
    golden_from(automaton, walk.state(), &mut references, node);
    Some(similarity(references.nearest(&codes(walk))?, walk))
}

/// The loops of a state as a set by code; `None` where it has none.
fn harmless(automaton: &Automaton, state: StateId) -> Option<Rc<[bool]>> {
    let mut set = vec![false; automaton.symbols()];
    automaton.loops(state).for_each(|symbol| set[symbol.index()] = true);
    set.contains(&true).then(|| set.into())
}
