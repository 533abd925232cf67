//! PC+HLR (002, section 4): similarity of the run to itself with each harmful call deleted or
//! replaced by a harmless one.
//!
//! A candidate keeps every progress step, deletes each harmful step or replaces it by a loop of that
//! state, and continues from the final state of the run on any golden path. Golden paths themselves are no
//! candidates, so PC+HLR can be below PC.

use std::rc::Rc;

use super::automaton::{Automaton, StateId};
use super::correctness::{add_golden_suffixes, code, codes, similarity};
use super::nearest::{EdgeLabel, NearestReference, ReferenceEdge, References};
use super::walk::{PathToken, Walk};
use crate::measure::work_budget::Allows;

/// PC+HLR; `None` if the path is too long to be compared, or the work budget is spent.
pub(crate) fn refined_correctness(automaton: &Automaton, walk: &Walk, allows: Allows<'_>) -> Option<f64> {
    if !allows(automaton.states().len() + walk.condensed().len()) {
        return None;
    }
    if let Some(nearest) = all_replaced(automaton, walk) {
        return Some(similarity(nearest, walk));
    }
    let mut references = References::new();
    let mut node = 0;
    let mut loops: Option<(StateId, Option<Rc<[bool]>>)> = None;
    for step in walk.condensed() {
        let mut incoming = Vec::with_capacity(2);
        if step.is_harmful {
            // The state is the same for consecutive harmful calls, so the set is reused.
            let set = match &loops {
                Some((state, set)) if *state == step.before => set.clone(),
                _ => loop_set(automaton, step.before),
            };
            loops = Some((step.before, set.clone()));
            // A call that can only be deleted leads to no further references. Without this a run of harmful
            // calls would cost its length squared.
            let Some(set) = set else { continue };
            incoming.push(ReferenceEdge { from: node, label: EdgeLabel::Nothing });
            incoming.push(ReferenceEdge { from: node, label: EdgeLabel::AnyOf(set) });
        } else {
            incoming.push(ReferenceEdge { from: node, label: EdgeLabel::One(code(step.token)) });
        }
        node = references.add_node(incoming);
    }
    add_golden_suffixes(automaton, walk.state(), &mut references, node);
    Some(similarity(references.nearest(&codes(walk), allows)?, walk))
}

/// The candidate that replaces every harmful step, if no other candidate can be nearer: searching the candidates of a
/// run of harmful calls would take time quadratic in its length.
///
/// Where no harmful step's token is one that replaces a harmful step or completes the golden path, a candidate has each
/// of these tokens only as often as the run has it as progress. With `m` steps of the run, `k` of them harmful, at
/// most `m - k` tokens of a candidate equal one of the run, so its distance is at least `k`, and one more for each
/// token above `m`. The normalized distance is then the least with distance `k` and length `m`. That candidate exists
/// if each harmful step has a loop that replaces it, and the golden path is completed by tokens that replace
/// harmful steps at the end of the run.
fn all_replaced(automaton: &Automaton, walk: &Walk) -> Option<NearestReference> {
    let mut harmful_symbols = vec![false; automaton.symbol_count()];
    let mut replacing_symbols = vec![false; automaton.symbol_count()];
    let mut last_state: Option<StateId> = None;
    let mut harmful_at_end = 0;
    for step in walk.condensed() {
        harmful_at_end = if step.is_harmful { harmful_at_end + 1 } else { 0 };
        if !step.is_harmful {
            continue;
        }
        if let PathToken::Symbol(symbol) = step.token {
            harmful_symbols[symbol.index()] = true;
        }
        if last_state != Some(step.before) {
            automaton.loops(step.before).next()?;
            automaton.loops(step.before).for_each(|symbol| replacing_symbols[symbol.index()] = true);
            last_state = Some(step.before);
        }
    }
    let can_complete = shortest_suffix(automaton, walk.state(), &mut replacing_symbols)? <= harmful_at_end;
    let mut symbols = harmful_symbols.iter().zip(&replacing_symbols);
    let are_disjoint = symbols.all(|(is_harmful, is_replacing)| !(*is_harmful && *is_replacing));
    (can_complete && are_disjoint)
        .then(|| NearestReference { distance: walk.harmful_count(), length: walk.condensed().len() })
}

/// The minimum number of tokens from a state to a final state. Marks all tokens on paths to final states.
fn shortest_suffix(automaton: &Automaton, from: StateId, marks: &mut [bool]) -> Option<usize> {
    let mut lengths: Vec<Option<usize>> = vec![None; automaton.states().len()];
    lengths[from.index()] = Some(0);
    let mut shortest = None;
    // The states are in topological order of the progress edges.
    for &state in automaton.states() {
        let Some(length) = lengths[state.index()] else { continue };
        if automaton.is_final(state) {
            shortest = Some(shortest.map_or(length, |best: usize| best.min(length)));
        }
        for (symbol, to) in automaton.progress(state) {
            marks[symbol.index()] = true;
            let target_length = &mut lengths[to.index()];
            *target_length = Some(target_length.map_or(length + 1, |best| best.min(length + 1)));
        }
    }
    shortest
}

/// The loops of a state as a set by code; `None` if it has none.
fn loop_set(automaton: &Automaton, state: StateId) -> Option<Rc<[bool]>> {
    let mut set = vec![false; automaton.symbol_count()];
    automaton.loops(state).for_each(|symbol| set[symbol.index()] = true);
    set.contains(&true).then(|| set.into())
}
