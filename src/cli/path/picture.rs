//! The content of a drawing: states in layers, edges with their symbols, and a walk.
//!
//! In: a task and the steps of a run, if any. Out: a [`Picture`], which `draw` writes as DOT or SVG.

use std::collections::BTreeMap;

use verdict_eval::path::{Automaton, StateId, Task, Transition};

pub(super) struct DrawnState {
    pub name: String,
    pub is_final: bool,
    /// Length of the longest path of progress from the initial state.
    pub layer: usize,
    /// Symbols that change nothing.
    pub loops: Vec<String>,
    /// Steps of the walk that did not leave this state; true for harmful steps.
    pub stays: Vec<(String, bool)>,
    /// Whether the walk entered this state.
    pub is_visited: bool,
    /// Whether the walk ended in this state.
    pub is_end: bool,
}

/// Edges from one state to another.
pub(super) struct DrawnEdge {
    pub from: usize,
    pub to: usize,
    pub symbols: Vec<String>,
    /// Steps of the walk over this edge.
    pub walked: Vec<String>,
}

pub(super) struct Picture {
    pub title: String,
    pub states: Vec<DrawnState>,
    pub edges: Vec<DrawnEdge>,
}

impl Picture {
    /// The picture of `task`, with the calls of a run and their moves.
    pub(super) fn new(task: &Task, walk: Option<&[(String, Transition)]>) -> Picture {
        let automaton = &task.automaton;
        let indices: BTreeMap<StateId, usize> =
            automaton.states().iter().enumerate().map(|(i, state)| (*state, i)).collect();
        let index = |state: StateId| indices.get(&state).copied().unwrap_or(0);
        let states = states(automaton, &index);
        let mut picture = Picture { title: task.name.clone(), states, edges: Vec::new() };
        let mut edges: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
        for &state in automaton.states() {
            for (symbol, to) in automaton.progress(state) {
                let name = automaton.symbol_name(symbol).to_owned();
                edges.entry((index(state), index(to))).or_default().push(name);
            }
        }
        let edge = |((from, to), symbols)| DrawnEdge { from, to, symbols, walked: Vec::new() };
        picture.edges = edges.into_iter().map(edge).collect();
        if let Some(walk) = walk {
            picture.walk(index(automaton.initial()), walk, &index);
        }
        picture
    }

    fn walk(&mut self, initial: usize, steps: &[(String, Transition)], index: &dyn Fn(StateId) -> usize) {
        let mut current = initial;
        self.visit(current);
        for (n, (name, step)) in steps.iter().enumerate() {
            let label = format!("{}: {name}", n + 1);
            match step {
                Transition::Progress(to) => {
                    let to = index(*to);
                    if let Some(edge) = self.edges.iter_mut().find(|w| w.from == current && w.to == to) {
                        edge.walked.push(label);
                    }
                    current = to;
                    self.visit(current);
                }
                Transition::Loop | Transition::Harmful => {
                    if let Some(state) = self.states.get_mut(current) {
                        state.stays.push((label, *step == Transition::Harmful));
                    }
                }
            }
        }
        if let Some(last) = self.states.get_mut(current) {
            last.is_end = true;
        }
    }

    fn visit(&mut self, index: usize) {
        if let Some(state) = self.states.get_mut(index) {
            state.is_visited = true;
        }
    }
}

fn states(automaton: &Automaton, index: &dyn Fn(StateId) -> usize) -> Vec<DrawnState> {
    let mut layers = vec![0usize; automaton.states().len()];
    for (i, &state) in automaton.states().iter().enumerate() {
        for (_, to) in automaton.progress(state) {
            let next = layers[i] + 1;
            let layer = &mut layers[index(to)];
            *layer = next.max(*layer);
        }
    }
    let drawn_state = |(&state, layer): (&StateId, usize)| DrawnState {
        name: automaton.state_name(state).to_owned(),
        is_final: automaton.is_final(state),
        layer,
        loops: automaton.loops(state).map(|s| automaton.symbol_name(s).to_owned()).collect(),
        stays: Vec::new(),
        is_visited: false,
        is_end: false,
    };
    automaton.states().iter().zip(layers).map(drawn_state).collect()
}
