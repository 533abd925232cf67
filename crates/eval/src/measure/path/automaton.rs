//! The automaton of a task (002, section 2.2): deterministic, trimmed, its progress edges acyclic.
//!
//! In: a [`Draft`](super::draft::Draft) that passed `check`. Out: the transition of a symbol in a
//! state, and the golden paths: the words of the subgraph of progress edges that end in a final
//! state. Golden paths are not listed; their number can be exponential in the number of states.

/// A state, by its index in the automaton.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StateId(pub(super) u32);

/// A symbol, by its index in the alphabet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symbol(pub(super) u32);

impl StateId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Symbol {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A state with its outgoing edges.
#[derive(Clone, Debug)]
pub(super) struct AutomatonState {
    pub name: Box<str>,
    /// Whether a run may end in this state.
    pub is_final: bool,
    /// By symbol, ascending.
    pub edges: Vec<(Symbol, StateId)>,
}

/// A checked automaton.
#[derive(Clone, Debug)]
pub struct Automaton {
    pub(super) states: Vec<AutomatonState>,
    pub(super) symbols: Vec<Box<str>>,
    /// States in topological order of progress edges; the initial state comes first.
    pub(super) order: Vec<StateId>,
    golden_path_lengths: Vec<usize>,
    golden_path_count: u64,
}

/// The effect of a symbol in a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transition {
    Progress(StateId),
    /// The call leads to the same state: a read, or a write that changes nothing.
    Loop,
    /// The state has no such edge: the call is harmful, and leaves the state unchanged.
    Harmful,
}

impl Automaton {
    /// Builds the automaton from checked states. `order` is a topological order of the progress edges.
    pub(super) fn from_checked(
        states: Vec<AutomatonState>,
        symbols: Vec<Box<str>>,
        order: Vec<StateId>,
    ) -> Automaton {
        let (golden_path_lengths, golden_path_count) = (Vec::new(), 0);
        let mut automaton = Automaton { states, symbols, order, golden_path_lengths, golden_path_count };
        automaton.golden_path_lengths = automaton.find_lengths();
        automaton.golden_path_count = automaton.count_golden_paths();
        automaton
    }

    pub fn initial(&self) -> StateId {
        self.order.first().copied().unwrap_or_default()
    }

    /// The effect of `symbol` in `state`.
    pub fn step(&self, state: StateId, symbol: Symbol) -> Transition {
        let edges = self.edges(state);
        match edges.binary_search_by_key(&symbol, |(s, _)| *s).ok().and_then(|i| edges.get(i)) {
            Some((_, to)) if *to == state => Transition::Loop,
            Some((_, to)) => Transition::Progress(*to),
            None => Transition::Harmful,
        }
    }

    pub(super) fn edges(&self, state: StateId) -> &[(Symbol, StateId)] {
        self.states.get(state.index()).map_or(&[], |s| &s.edges)
    }

    /// Edges to other states.
    pub fn progress(&self, state: StateId) -> impl Iterator<Item = (Symbol, StateId)> + '_ {
        self.edges(state).iter().copied().filter(move |(_, to)| *to != state)
    }

    pub fn loops(&self, state: StateId) -> impl Iterator<Item = Symbol> + '_ {
        self.edges(state).iter().filter(move |(_, to)| *to == state).map(|(symbol, _)| *symbol)
    }

    /// Whether a run may end in `state`.
    pub fn is_final(&self, state: StateId) -> bool {
        self.states.get(state.index()).is_some_and(|s| s.is_final)
    }

    pub fn state_name(&self, state: StateId) -> &str {
        self.states.get(state.index()).map_or("", |s| &s.name)
    }

    pub fn symbol_name(&self, symbol: Symbol) -> &str {
        self.symbols.get(symbol.index()).map_or("", |s| s)
    }

    pub fn symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.iter().position(|s| &**s == name).map(|i| Symbol(i as u32))
    }

    /// All states in topological order, the initial one first.
    pub fn states(&self) -> &[StateId] {
        &self.order
    }

    /// The number of symbols of the alphabet.
    pub fn symbol_count(&self) -> usize {
        self.symbols.len()
    }

    /// The lengths of golden paths, ascending, each once.
    pub fn golden_path_lengths(&self) -> &[usize] {
        &self.golden_path_lengths
    }

    /// The number of golden paths, saturating at `u64::MAX`.
    pub fn golden_path_count(&self) -> u64 {
        self.golden_path_count
    }

    /// The lengths of paths to final states, computed with a bit set for each state.
    fn find_lengths(&self) -> Vec<usize> {
        let words = self.states.len() / 64 + 1;
        let mut reached = vec![Vec::new(); self.states.len()];
        if let Some(first) = reached.get_mut(self.initial().index()) {
            *first = vec![0u64; words];
            first[0] = 1;
        }
        let mut final_lengths = vec![0u64; words];
        for &state in &self.order {
            let lengths = std::mem::take(&mut reached[state.index()]);
            if self.is_final(state) {
                final_lengths.iter_mut().zip(&lengths).for_each(|(word, lengths)| *word |= lengths);
            }
            for (_, to) in self.progress(state) {
                let next = &mut reached[to.index()];
                next.resize(words, 0);
                let mut carry = 0;
                for (word, from) in next.iter_mut().zip(&lengths) {
                    *word |= from << 1 | carry;
                    carry = from >> 63;
                }
            }
        }
        (0..words * 64).filter(|&n| final_lengths[n / 64] >> (n % 64) & 1 == 1).collect()
    }

    /// The number of golden paths, at most the largest integer.
    fn count_golden_paths(&self) -> u64 {
        let mut count = vec![0u64; self.states.len()];
        for &state in self.order.iter().rev() {
            let next_counts = self.progress(state).map(|(_, to)| count[to.index()]);
            count[state.index()] = next_counts.fold(u64::from(self.is_final(state)), u64::saturating_add);
        }
        count.get(self.initial().index()).copied().unwrap_or(0)
    }
}
