//! Builds a prefix tree of runs and merges its equivalent states.
//!
//! In: paths over symbols, and the role of each symbol. Out: the minimal acyclic automaton that
//! accepts exactly these paths without reads, with loops for reads in every state in which they are no progress.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};

/// The role of a symbol in paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SymbolRole {
    /// Every occurrence is progress.
    Progress,
    /// A read that every good run has: the first occurrence is progress, later ones are loops.
    RequiredRead,
    /// Every occurrence is a loop.
    Read,
}

/// A state, with its progress edges by symbol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(in super::super) struct MergedState {
    pub edges: BTreeMap<usize, usize>,
    /// Whether a run may end in this state.
    pub is_final: bool,
    /// The symbols that lead to the same state.
    pub loops: Vec<usize>,
}

/// States, the initial one first.
#[derive(Debug)]
pub(in super::super) struct MergedAutomaton {
    pub states: Vec<MergedState>,
}

/// The automaton of `paths`; `roles` are those of the symbols, by index.
pub(super) fn merge(paths: &[Vec<usize>], roles: &[SymbolRole]) -> MergedAutomaton {
    let mut states = renumbered(&minimise(&prefix_tree(paths, roles)));
    let reads: Vec<usize> =
        roles.iter().enumerate().filter(|(_, role)| **role != SymbolRole::Progress).map(|(i, _)| i).collect();
    for (state, earlier_symbols) in symbols_before(&states).into_iter().enumerate() {
        // A required read is no loop before its first occurrence.
        let loops = reads.iter().copied().filter(|read| {
            let is_required = roles.get(*read) == Some(&SymbolRole::RequiredRead);
            !states[state].edges.contains_key(read) && (!is_required || earlier_symbols.contains(read))
        });
        states[state].loops = loops.collect();
    }
    MergedAutomaton { states }
}

/// The occurrences of symbols in a path that are progress.
fn progress_symbols(path: &[usize], roles: &[SymbolRole]) -> Vec<usize> {
    let mut required_reads = Vec::new();
    let is_progress = |symbol: &usize| match roles.get(*symbol) {
        Some(SymbolRole::Progress) => true,
        Some(SymbolRole::RequiredRead) if !required_reads.contains(symbol) => {
            required_reads.push(*symbol);
            true
        }
        _ => false,
    };
    path.iter().copied().filter(is_progress).collect()
}

/// The prefix tree. Every edge leads to a later state.
fn prefix_tree(paths: &[Vec<usize>], roles: &[SymbolRole]) -> Vec<MergedState> {
    let mut states = vec![MergedState::default()];
    for path in paths {
        let mut state = 0;
        for symbol in progress_symbols(path, roles) {
            let new_state = states.len();
            let next = *states[state].edges.entry(symbol).or_insert(new_state);
            if next == new_state {
                states.push(MergedState::default());
            }
            state = next;
        }
        states[state].is_final = true;
    }
    states
}

/// Merges states with equal suffixes, from the leaves up, so that targets are merged first.
fn minimise(prefix_tree: &[MergedState]) -> Vec<MergedState> {
    let mut indexes: HashMap<MergedState, usize> = HashMap::new();
    let mut merged: Vec<MergedState> = Vec::new();
    let mut merged_index = vec![0; prefix_tree.len()];
    for (i, state) in prefix_tree.iter().enumerate().rev() {
        let edges = state.edges.iter().map(|(symbol, to)| (*symbol, merged_index[*to])).collect();
        let state = MergedState { edges, ..state.clone() };
        merged_index[i] = *indexes.entry(state).or_insert_with_key(|state| {
            merged.push(state.clone());
            merged.len() - 1
        });
    }
    // The root was merged last; it becomes the first state.
    let last = merged.len() - 1;
    merged.swap(0, last);
    let swapped_index = |index: usize| match index {
        0 => last,
        index if index == last => 0,
        index => index,
    };
    for state in &mut merged {
        state.edges.values_mut().for_each(|to| *to = swapped_index(*to));
    }
    merged
}

/// States in breadth-first order.
fn renumbered(states: &[MergedState]) -> Vec<MergedState> {
    let mut order = vec![0];
    let mut number: HashMap<usize, usize> = HashMap::from_iter([(0, 0)]);
    let mut next = 0;
    while let Some(&state) = order.get(next) {
        next += 1;
        for &to in states[state].edges.values() {
            if let std::collections::hash_map::Entry::Vacant(entry) = number.entry(to) {
                entry.insert(order.len());
                order.push(to);
            }
        }
    }
    let renumber = |index: usize| {
        let state = &states[index];
        let edges = state.edges.iter().map(|(symbol, to)| (*symbol, number[to])).collect();
        MergedState { edges, ..state.clone() }
    };
    order.into_iter().map(renumber).collect()
}

/// For each state the symbols on every path to it.
fn symbols_before(states: &[MergedState]) -> Vec<Vec<usize>> {
    let mut before: Vec<Option<Vec<usize>>> = vec![None; states.len()];
    let mut incoming = vec![0usize; states.len()];
    states.iter().flat_map(|s| s.edges.values()).for_each(|to| incoming[*to] += 1);
    let mut ready = vec![0];
    before[0] = Some(Vec::new());
    while let Some(state) = ready.pop() {
        let state_symbols = before[state].clone().unwrap_or_default();
        for (symbol, &to) in &states[state].edges {
            let mut extended = state_symbols.clone();
            extended.push(*symbol);
            before[to] = Some(match before[to].take() {
                None => extended,
                Some(other) => other.into_iter().filter(|s| extended.contains(s)).collect(),
            });
            incoming[to] -= 1;
            if incoming[to] == 0 {
                ready.push(to);
            }
        }
    }
    before.into_iter().map(Option::unwrap_or_default).collect()
}
