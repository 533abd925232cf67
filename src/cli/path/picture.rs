//! What there is to draw of a task: states in layers, edges with their symbols, and a walk.
//!
//! In: a task and the steps of a run, if any. Out: a [`Picture`], which `draw` writes as DOT or SVG.

use std::collections::BTreeMap;

use verdict_eval::measure::path::{Automaton, Move, StateId, Task};

/// A state.
pub(super) struct Place {
    pub name: String,
    pub is_final: bool,
    /// The longest way of progress from the initial state.
    pub layer: usize,
    /// Symbols that change nothing.
    pub loops: Vec<String>,
    /// What the walk did here without progress: what, and whether it was harmful.
    pub stays: Vec<(String, bool)>,
    /// The walk came here.
    pub visited: bool,
    /// The walk ended here.
    pub ended: bool,
}

/// Edges from one state to another.
pub(super) struct Way {
    pub from: usize,
    pub to: usize,
    pub symbols: Vec<String>,
    /// What the walk did to go this way; empty where it did not.
    pub walked: Vec<String>,
}

/// See the module.
pub(super) struct Picture {
    pub title: String,
    pub places: Vec<Place>,
    pub ways: Vec<Way>,
}

impl Picture {
    /// Of `task`, with the steps of a run: what was called, and what it did.
    pub fn new(task: &Task, walk: Option<&[(String, Move)]>) -> Picture {
        let automaton = &task.automaton;
        let mut picture = Picture { title: task.name.clone(), places: places(automaton), ways: Vec::new() };
        let place = index(automaton);
        let mut ways: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
        for &state in automaton.states() {
            for (symbol, to) in automaton.progress(state) {
                let name = automaton.symbol_name(symbol).to_owned();
                ways.entry((place(state), place(to))).or_default().push(name);
            }
        }
        let of = |((from, to), symbols)| Way { from, to, symbols, walked: Vec::new() };
        picture.ways = ways.into_iter().map(of).collect();
        if let Some(walk) = walk {
            picture.walk(place(automaton.initial()), walk, &place);
        }
        picture
    }

    fn walk(&mut self, initial: usize, steps: &[(String, Move)], place: &dyn Fn(StateId) -> usize) {
        let mut at = initial;
        self.visit(at);
        for (n, (name, step)) in steps.iter().enumerate() {
            let label = format!("{}: {name}", n + 1);
            match step {
                Move::Progress(to) => {
                    let to = place(*to);
                    if let Some(way) = self.ways.iter_mut().find(|w| w.from == at && w.to == to) {
                        way.walked.push(label);
                    }
                    at = to;
                    self.visit(at);
                }
                Move::Loop | Move::Harmful => {
                    if let Some(place) = self.places.get_mut(at) {
                        place.stays.push((label, *step == Move::Harmful));
                    }
                }
            }
        }
        if let Some(last) = self.places.get_mut(at) {
            last.ended = true;
        }
    }

    fn visit(&mut self, at: usize) {
        if let Some(place) = self.places.get_mut(at) {
            place.visited = true;
        }
    }
}

fn index(automaton: &Automaton) -> impl Fn(StateId) -> usize + '_ {
    let places: BTreeMap<StateId, usize> =
        automaton.states().iter().enumerate().map(|(i, state)| (*state, i)).collect();
    move |state| places.get(&state).copied().unwrap_or(0)
}

fn places(automaton: &Automaton) -> Vec<Place> {
    let place = index(automaton);
    let mut layers = vec![0usize; automaton.states().len()];
    for (i, &state) in automaton.states().iter().enumerate() {
        for (_, to) in automaton.progress(state) {
            let next = layers[i] + 1;
            let layer = &mut layers[place(to)];
            *layer = next.max(*layer);
        }
    }
    let of = |(&state, layer): (&StateId, usize)| Place {
        name: automaton.state_name(state).to_owned(),
        is_final: automaton.is_final(state),
        layer,
        loops: automaton.loops(state).map(|s| automaton.symbol_name(s).to_owned()).collect(),
        stays: Vec::new(),
        visited: false,
        ended: false,
    };
    automaton.states().iter().zip(layers).map(of).collect()
}
