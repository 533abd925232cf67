//! An automaton as somebody wrote it: names, edges and where each stands. Nothing is checked yet.
//!
//! In: what a loader read, a policy compiled to, or a learner inferred. Out: a [`Draft`], which
//! only `check` turns into an [`Automaton`](super::Automaton).

use verdict_config::Step;

/// The way through a document to something in it; empty where there is no document.
pub(crate) type Place = Vec<Step>;

/// What is wrong with a task, and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    pub(crate) place: Place,
    /// In plain words, with a way out.
    pub message: String,
}

impl Fault {
    pub(crate) fn new(place: &[Step], message: impl Into<String>) -> Fault {
        Fault { place: place.to_vec(), message: message.into() }
    }
}

/// A state as written.
#[derive(Clone, Debug, Default)]
pub struct DraftState {
    /// Its name.
    pub name: String,
    /// Whether a run may end here.
    pub is_final: bool,
    /// What leads out of it, loops among them.
    pub edges: Vec<DraftEdge>,
    pub(crate) place: Place,
}

/// Edges that lead to one state.
#[derive(Clone, Debug, Default)]
pub struct DraftEdge {
    /// The symbols, each an edge.
    pub symbols: Vec<String>,
    /// The state that the edge itself says it leaves, where it says so.
    pub from: Option<String>,
    /// The state that it leads to; the state's own name is a loop.
    pub to: String,
    pub(crate) place: Place,
    /// Where each symbol stands, where they stand apart.
    pub(crate) each: Vec<Place>,
}

/// An automaton as written. The first state is the initial one.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// States, the initial one first.
    pub states: Vec<DraftState>,
    /// The alphabet's symbols, in its order.
    pub symbols: Vec<String>,
    pub(crate) place: Place,
}

impl Draft {
    /// One with these symbols and no states.
    pub fn new<S: Into<String>>(symbols: impl IntoIterator<Item = S>) -> Draft {
        Draft { symbols: symbols.into_iter().map(Into::into).collect(), ..Draft::default() }
    }

    /// Adds a state.
    #[must_use]
    pub fn state(mut self, name: &str, is_final: bool) -> Draft {
        self.states.push(DraftState { name: name.to_owned(), is_final, ..DraftState::default() });
        self
    }

    /// Adds an edge out of the state that was added last.
    #[must_use]
    pub fn edge(mut self, symbols: &[&str], to: &str) -> Draft {
        if let Some(state) = self.states.last_mut() {
            let symbols = symbols.iter().map(|s| (*s).to_owned()).collect();
            state.edges.push(DraftEdge { symbols, to: to.to_owned(), ..DraftEdge::default() });
        }
        self
    }
}
