//! Validates automata.
//!
//! In: a [`Draft`]. Out: an [`Automaton`] and warnings, or [`TaskProblem`]s with their locations.
//! Rejected: a name that is defined twice or not at all, an edge listed under a state that it does
//! not leave, two targets for one symbol in one state, no final state, a state that is unreachable
//! or cannot reach a final one, and a cycle of progress edges (002, assumptions of appendix B): there
//! would be no golden paths or infinitely many.

use foldhash::{HashMap, HashMapExt};
use verdict_config::Step;

use super::automaton::{Automaton, AutomatonState, StateId, Symbol};
use super::draft::{DocumentPath, Draft, DraftEdge, DraftState, TaskProblem};

/// Maximum number of states: the sets of path lengths take one bit for each pair of states.
pub(super) const MAX_STATES: usize = 20_000;
/// Maximum number of states that one message names.
const MAX_NAMED: usize = 8;

/// A valid automaton with its warnings.
#[derive(Debug)]
pub struct CheckedAutomaton {
    pub automaton: Automaton,
    /// Problems that do not make it invalid.
    pub warnings: Vec<TaskProblem>,
}

/// Validates `draft`.
///
/// # Errors
/// Every problem that does not follow from another.
pub fn check(draft: &Draft) -> Result<CheckedAutomaton, Vec<TaskProblem>> {
    let mut linker = Linker { draft, problems: Vec::new(), warnings: Vec::new() };
    if draft.states.len() > MAX_STATES {
        return Err(vec![TaskProblem::new(&draft.location, format!("more than {MAX_STATES} states"))]);
    }
    let edges = linker.link();
    let Linker { mut problems, warnings, .. } = linker;
    if !problems.is_empty() {
        return Err(problems);
    }
    let order = check_graph(draft, &edges, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let states = draft.states.iter().zip(edges).map(|(state, edges)| AutomatonState {
        name: state.name.as_str().into(),
        is_final: state.is_final,
        edges,
    });
    let symbols = draft.symbols.iter().map(|s| s.as_str().into()).collect();
    Ok(CheckedAutomaton { automaton: Automaton::from_checked(states.collect(), symbols, order), warnings })
}

/// Resolves the names of states and symbols to their indexes.
struct Linker<'d> {
    draft: &'d Draft,
    problems: Vec<TaskProblem>,
    warnings: Vec<TaskProblem>,
}

/// For each state its edges, ascending by symbol.
type Edges = Vec<Vec<(Symbol, StateId)>>;

impl Linker<'_> {
    /// Resolves the names of states and symbols in the draft; adds a fault for each that cannot be resolved.
    fn link(&mut self) -> Edges {
        let draft = self.draft;
        let mut states: HashMap<&str, StateId> = HashMap::with_capacity(draft.states.len());
        for (i, state) in draft.states.iter().enumerate() {
            if states.insert(&state.name, StateId(i as u32)).is_some() {
                self.add_fault(&state.location, format!("a second state '{}'", state.name));
            }
        }
        let mut symbols: HashMap<&str, Symbol> = HashMap::with_capacity(draft.symbols.len());
        for (i, symbol) in draft.symbols.iter().enumerate() {
            if symbols.insert(symbol, Symbol(i as u32)).is_some() {
                self.add_fault(&draft.location, format!("the alphabet has '{symbol}' twice"));
            }
        }
        draft.states.iter().map(|state| self.link_state(state, &states, &symbols)).collect()
    }

    /// The edges of a state.
    fn link_state(
        &mut self,
        state: &DraftState,
        states: &HashMap<&str, StateId>,
        symbols: &HashMap<&str, Symbol>,
    ) -> Vec<(Symbol, StateId)> {
        let mut edges: Vec<(Symbol, StateId)> = Vec::new();
        for edge in &state.edges {
            if let Some(from) = edge.from.as_ref().filter(|from| **from != state.name) {
                let message = format!("this edge is listed under state '{}' but leaves '{from}'", state.name);
                self.add_fault(&edge.location, message);
                continue;
            }
            let Some(&to) = states.get(edge.to.as_str()) else {
                let message = format!("no state is named '{}'", edge.to);
                let known = states.keys().copied();
                self.problems.push(TaskProblem::unknown(&edge.location, message, &edge.to, known));
                continue;
            };
            if edge.symbols.is_empty() {
                self.add_warning(&edge.location, format!("an edge to '{}' without a symbol", edge.to));
            }
            for (i, name) in edge.symbols.iter().enumerate() {
                let location = symbol_location(edge, i);
                match symbols.get(name.as_str()) {
                    None => {
                        let message = format!("'{name}' is not in the alphabet");
                        let known = symbols.keys().copied();
                        self.problems.push(TaskProblem::unknown(location, message, name, known));
                    }
                    Some(&symbol) => self.link_edge(&mut edges, (symbol, to), state, name, location),
                }
            }
        }
        edges.sort_unstable();
        edges
    }

    /// Adds an edge to the edges of a state, unless they have another one with its symbol.
    fn link_edge(
        &mut self,
        edges: &mut Vec<(Symbol, StateId)>,
        (symbol, to): (Symbol, StateId),
        state: &DraftState,
        name: &str,
        location: &[Step],
    ) {
        match edges.iter().find(|(s, _)| *s == symbol) {
            None => edges.push((symbol, to)),
            Some((_, target)) if *target == to => {
                self.add_warning(location, format!("'{name}' is given twice in state '{}'", state.name));
            }
            Some((_, other)) => {
                let name_of = |id: &StateId| self.draft.states.get(id.index()).map_or("", |s| &s.name);
                let message = format!(
                    "'{name}' leads from state '{}' both to '{}' and to '{}': an automaton must be deterministic",
                    state.name,
                    name_of(other),
                    name_of(&to)
                );
                self.add_fault(location, message);
            }
        }
    }

    fn add_fault(&mut self, location: &[Step], message: String) {
        self.problems.push(TaskProblem::new(location, message));
    }

    fn add_warning(&mut self, location: &[Step], message: String) {
        self.warnings.push(TaskProblem::new(location, message));
    }
}

fn symbol_location(edge: &DraftEdge, i: usize) -> &DocumentPath {
    edge.symbol_locations.get(i).unwrap_or(&edge.location)
}

/// Checks reachability; returns the states in topological order.
fn check_graph(draft: &Draft, edges: &Edges, problems: &mut Vec<TaskProblem>) -> Vec<StateId> {
    if !draft.states.iter().any(|s| s.is_final) {
        let reason = if draft.states.is_empty() { "there are no states" } else { "no state is final" };
        problems.push(TaskProblem::new(&draft.location, format!("no golden path: {reason}")));
        return Vec::new();
    }
    let reached = reachable(edges.len(), [0], |i| edges[i].iter().map(|(_, to)| to.index()));
    let mut predecessors: Vec<Vec<usize>> = vec![Vec::new(); edges.len()];
    for (from, outgoing) in edges.iter().enumerate() {
        outgoing.iter().for_each(|(_, to)| predecessors[to.index()].push(from));
    }
    let finals = (0..edges.len()).filter(|&i| draft.states[i].is_final);
    let can_finish = reachable(edges.len(), finals, |i| predecessors[i].iter().copied());
    if !can_finish.first().copied().unwrap_or(false) {
        let name = &draft.states[0].name;
        let message = format!("no golden path: no final state can be reached from the first one, '{name}'");
        problems.push(TaskProblem::new(&draft.states[0].location, message));
        return Vec::new();
    }
    for (i, state) in draft.states.iter().enumerate() {
        if !reached[i] {
            let message = format!("state '{}' cannot be reached", state.name);
            problems.push(TaskProblem::new(&state.location, message));
        } else if !can_finish[i] {
            let message = format!("state '{}' is dead: no final state can be reached from it", state.name);
            problems.push(TaskProblem::new(&state.location, message));
        }
    }
    topological_order(draft, edges, problems)
}

/// For each of the nodes `0..len`, whether it can be reached from a node in `from` by the edges that `next` returns.
fn reachable<I: Iterator<Item = usize>>(
    len: usize,
    from: impl IntoIterator<Item = usize>,
    next: impl Fn(usize) -> I,
) -> Vec<bool> {
    let mut is_reached = vec![false; len];
    let mut stack: Vec<usize> = from.into_iter().filter(|i| *i < len).collect();
    while let Some(i) = stack.pop() {
        if !std::mem::replace(&mut is_reached[i], true) {
            stack.extend(next(i).filter(|&to| !is_reached[to]));
        }
    }
    is_reached
}

/// The states in topological order of the progress edges, by Kahn's algorithm. If states are missing from the order,
/// they contain a cycle, which is reported.
fn topological_order(draft: &Draft, edges: &Edges, problems: &mut Vec<TaskProblem>) -> Vec<StateId> {
    let progress = |i: usize| edges[i].iter().map(|(_, to)| to.index()).filter(move |to| *to != i);
    let mut incoming = vec![0usize; edges.len()];
    (0..edges.len()).flat_map(progress).for_each(|to| incoming[to] += 1);
    // Only the initial state has no incoming edges, unless there is a cycle.
    let mut ready: Vec<usize> = (0..edges.len()).rev().filter(|&i| incoming[i] == 0).collect();
    let mut order = Vec::with_capacity(edges.len());
    while let Some(i) = ready.pop() {
        order.push(StateId(i as u32));
        for to in progress(i) {
            incoming[to] -= 1;
            if incoming[to] == 0 {
                ready.push(to);
            }
        }
    }
    if order.len() < edges.len() && problems.is_empty() {
        let cycle = find_cycle(&incoming, progress);
        let names: Vec<&str> = cycle.iter().map(|&i| draft.states[i].name.as_str()).collect();
        let shown = names.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join("' -> '");
        let rest = if names.len() > MAX_NAMED { "' -> ..." } else { "'" };
        let message = format!(
            "progress edges form a cycle: '{shown}{rest}; a call that may be repeated without limit is a loop \
             of one state, and one that may be made n times needs n states"
        );
        let location = cycle.first().map_or(&draft.location, |&i| &draft.states[i].location);
        problems.push(TaskProblem::new(location, message));
    }
    order
}

/// A cycle among the states that still have incoming edges; its first state is repeated at the end.
fn find_cycle<I: Iterator<Item = usize>>(incoming: &[usize], progress: impl Fn(usize) -> I) -> Vec<usize> {
    let Some(first) = incoming.iter().position(|&n| n > 0) else { return Vec::new() };
    // Every remaining state has a remaining predecessor, so walking backwards finds a cycle.
    let mut predecessor = vec![None; incoming.len()];
    for i in (0..incoming.len()).filter(|&i| incoming[i] > 0) {
        progress(i).for_each(|to| predecessor[to] = Some(i));
    }
    let mut position = vec![usize::MAX; incoming.len()];
    let (mut state, mut path) = (first, Vec::new());
    while position[state] == usize::MAX {
        position[state] = path.len();
        path.push(state);
        match predecessor[state] {
            Some(previous) => state = previous,
            None => return path,
        }
    }
    let mut cycle: Vec<usize> = path.split_off(position[state]);
    cycle.push(state);
    cycle.reverse();
    cycle
}
