//! A prefix tree of runs with equivalent states merged.
//!
//! In: paths over symbols, and the role of each symbol. Out: the minimal acyclic automaton that
//! accepts exactly these paths without reads; reads are loops wherever they are no progress.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};

/// The role of a symbol in paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SymbolRole {
    /// Every occurrence is progress.
    Progress,
    /// The first occurrence is progress, since every good run has it; later ones are loops.
    Once,
    Read,
}

/// A state: its edges by symbol, and whether a run may end there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(in super::super) struct MergedState {
    pub edges: BTreeMap<usize, usize>,
    pub is_final: bool,
    pub loops: Vec<usize>,
}

/// States, the initial one first.
#[derive(Debug)]
pub(in super::super) struct MergedAutomaton {
    pub states: Vec<MergedState>,
}

pub(super) fn merge(paths: &[Vec<usize>], kinds: &[SymbolRole]) -> MergedAutomaton {
    let mut states = renumbered(&minimise(&tree(paths, kinds)));
    let reads: Vec<usize> =
        kinds.iter().enumerate().filter(|(_, k)| **k != SymbolRole::Progress).map(|(i, _)| i).collect();
    for (state, past) in symbols_before(&states).into_iter().enumerate() {
        // A mandatory read is no loop before its first occurrence.
        let loops = reads.iter().copied().filter(|read| {
            let once = kinds.get(*read) == Some(&SymbolRole::Once);
            !states[state].edges.contains_key(read) && (!once || past.contains(read))
        });
        states[state].loops = loops.collect();
    }
    MergedAutomaton { states }
}

/// The path without symbols that are no progress.
fn without_repeats(path: &[usize], kinds: &[SymbolRole]) -> Vec<usize> {
    let mut once = Vec::new();
    let counts = |symbol: &usize| match kinds.get(*symbol) {
        Some(SymbolRole::Progress) => true,
        Some(SymbolRole::Once) if !once.contains(symbol) => {
            once.push(*symbol);
            true
        }
        _ => false,
    };
    path.iter().copied().filter(counts).collect()
}

/// The prefix tree. Every edge leads to a later state.
fn tree(paths: &[Vec<usize>], kinds: &[SymbolRole]) -> Vec<MergedState> {
    let mut states = vec![MergedState::default()];
    for path in paths {
        let mut at = 0;
        for symbol in without_repeats(path, kinds) {
            let new = states.len();
            let next = *states[at].edges.entry(symbol).or_insert(new);
            if next == new {
                states.push(MergedState::default());
            }
            at = next;
        }
        states[at].is_final = true;
    }
    states
}

/// Merges states with equal suffixes, from the leaves up, so that targets are merged first.
fn minimise(tree: &[MergedState]) -> Vec<MergedState> {
    let mut indexes: HashMap<MergedState, usize> = HashMap::new();
    let mut merged: Vec<MergedState> = Vec::new();
    let mut merged_index = vec![0; tree.len()];
    for (i, state) in tree.iter().enumerate().rev() {
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
    let moved = |at: usize| match at {
        0 => last,
        at if at == last => 0,
        at => at,
    };
    for state in &mut merged {
        state.edges.values_mut().for_each(|to| *to = moved(*to));
    }
    merged
}

/// States in breadth-first order.
fn renumbered(states: &[MergedState]) -> Vec<MergedState> {
    let mut order = vec![0];
    let mut number: HashMap<usize, usize> = HashMap::from_iter([(0, 0)]);
    let mut next = 0;
    while let Some(&at) = order.get(next) {
        next += 1;
        for &to in states[at].edges.values() {
            if let std::collections::hash_map::Entry::Vacant(entry) = number.entry(to) {
                entry.insert(order.len());
                order.push(to);
            }
        }
    }
    let renumber = |at: usize| {
        let state = &states[at];
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
    while let Some(at) = ready.pop() {
        let symbols_at = before[at].clone().unwrap_or_default();
        for (symbol, &to) in &states[at].edges {
            let mut extended = symbols_at.clone();
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
