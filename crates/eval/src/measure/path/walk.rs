//! Follows a run through an automaton, call by call (002, section 2.2): condensation and the harm mask.
//!
//! In: tokens, one at a time. Out: the transition of each token, and at any time the condensed
//! path: progress and harmful steps without loops.

use std::mem::size_of;

use super::automaton::{Automaton, StateId, Symbol, Transition};

/// A call on a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathToken {
    /// A symbol of the alphabet.
    Symbol(Symbol),
    /// A call outside the alphabet, numbered by the caller.
    Foreign(u32),
}

/// A step of the condensed path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CondensedStep {
    pub token: PathToken,
    /// Whether the automaton has no edge for the token, or a rule on amounts or times forbids the call.
    pub is_harmful: bool,
    /// The state before the step, which a harmful step does not change.
    pub before: StateId,
}

/// A run so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walk {
    state: StateId,
    /// The number of calls, loops included.
    call_count: usize,
    condensed: Vec<CondensedStep>,
    /// The number of harmful steps.
    harmful_count: usize,
}

impl Walk {
    /// A walk without calls.
    pub fn new(automaton: &Automaton) -> Walk {
        Walk { state: automaton.initial(), call_count: 0, condensed: Vec::new(), harmful_count: 0 }
    }

    /// Adds the next call. `automaton` must be the one passed to [`Walk::new`].
    pub fn push(&mut self, automaton: &Automaton, token: PathToken) -> Transition {
        let step = self.transition(automaton, token);
        self.call_count += 1;
        match step {
            Transition::Loop => return step,
            Transition::Progress(_) => self.push_condensed(token, false),
            Transition::Harmful => self.push_condensed(token, true),
        }
        if let Transition::Progress(to) = step {
            self.state = to;
        }
        step
    }

    /// Adds a failed call, which does not advance the state. It counts as a loop if the automaton has an edge for it,
    /// and otherwise as a harmful call.
    pub fn push_failed(&mut self, automaton: &Automaton, token: PathToken) -> Transition {
        match self.transition(automaton, token) {
            Transition::Harmful => self.push(automaton, token),
            Transition::Progress(_) | Transition::Loop => {
                self.call_count += 1;
                Transition::Loop
            }
        }
    }

    /// Whether the automaton has an edge for `token` in the current state.
    pub(super) fn allows(&self, automaton: &Automaton, token: PathToken) -> bool {
        self.transition(automaton, token) != Transition::Harmful
    }

    /// Adds a call that a rule on amounts or times forbids.
    pub(super) fn push_forbidden(&mut self, token: PathToken) -> Transition {
        self.call_count += 1;
        self.push_condensed(token, true);
        Transition::Harmful
    }

    fn transition(&self, automaton: &Automaton, token: PathToken) -> Transition {
        match token {
            PathToken::Symbol(symbol) => automaton.step(self.state, symbol),
            PathToken::Foreign(_) => Transition::Harmful,
        }
    }

    fn push_condensed(&mut self, token: PathToken, is_harmful: bool) {
        self.condensed.push(CondensedStep { token, is_harmful, before: self.state });
        self.harmful_count += usize::from(is_harmful);
    }

    /// Removes the condensed path, on which further steps do not depend.
    pub(super) fn forget_steps(&mut self) {
        self.condensed = Vec::new();
    }

    pub(super) fn bytes(&self) -> usize {
        self.condensed.len() * size_of::<CondensedStep>()
    }

    pub fn state(&self) -> StateId {
        self.state
    }

    /// Calls so far, loops included: `n` of equation 8.
    pub fn calls(&self) -> usize {
        self.call_count
    }

    /// The condensed path so far.
    pub fn condensed(&self) -> &[CondensedStep] {
        &self.condensed
    }

    /// Harmful steps so far: `H` of section 3.
    pub fn harmful_count(&self) -> usize {
        self.harmful_count
    }
}
