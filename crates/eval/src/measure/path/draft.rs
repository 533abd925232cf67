//! An automaton before validation: names, edges and their locations in the file.
//!
//! A loader, a policy or a learner creates a [`Draft`]. Only `check` converts it to an
//! [`Automaton`](super::Automaton).

use verdict_config::{Step, nearest};

/// The location of a value in a document; empty if there is no document.
pub(crate) type DocumentPath = Vec<Step>;

/// A problem of a task file with its location.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskProblem {
    pub(crate) location: DocumentPath,
    /// The problem and how to solve it.
    pub message: String,
}

impl TaskProblem {
    pub(crate) fn new(location: &[Step], message: impl Into<String>) -> TaskProblem {
        TaskProblem { location: location.to_vec(), message: message.into() }
    }

    /// A problem about the unknown name `word`, with the most similar of the `known` names as a hint.
    pub(super) fn unknown<'n>(
        location: &[Step],
        message: String,
        word: &str,
        known: impl Iterator<Item = &'n str>,
    ) -> TaskProblem {
        let hint = nearest(word, known).map(|hint| format!("; did you mean '{hint}'?"));
        TaskProblem::new(location, message + &hint.unwrap_or_default())
    }
}

/// A key as a step of a [`DocumentPath`].
pub(super) fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}

/// A state as the source defines it.
#[derive(Clone, Debug, Default)]
pub struct DraftState {
    pub name: String,
    /// Whether a run may end in this state.
    pub is_final: bool,
    /// Outgoing edges, loops included.
    pub edges: Vec<DraftEdge>,
    pub(crate) location: DocumentPath,
}

/// Edges from one state to another.
#[derive(Clone, Debug, Default)]
pub struct DraftEdge {
    /// The symbols, each an edge.
    pub symbols: Vec<String>,
    /// The source state, if the edge names it.
    pub from: Option<String>,
    /// The target state; the name of the source is a loop.
    pub to: String,
    pub(crate) location: DocumentPath,
    /// The location of each symbol, if they have their own.
    pub(crate) symbol_locations: Vec<DocumentPath>,
}

/// An automaton as the source defines it.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// States, the initial one first.
    pub states: Vec<DraftState>,
    /// The alphabet's symbols, in its order.
    pub symbols: Vec<String>,
    pub(crate) location: DocumentPath,
}

impl Draft {
    /// A draft with these symbols and without states.
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
