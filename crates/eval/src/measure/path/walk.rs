//! A run through an automaton, call by call (002, section 2.2): condensation and the harm mask.
//!
//! In: tokens as they come. Out: after each whether it made progress, changed nothing or was
//! harmful, at once; and at any time the condensed path: loops dropped, progress and harmful steps
//! kept.

use super::automaton::{Automaton, Move, StateId, Symbol};

/// What a call is on a path. Tokens outside the alphabet equal only themselves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Token {
    /// A symbol of the alphabet.
    Symbol(Symbol),
    /// A call outside of it, numbered by whoever reads the calls.
    Foreign(u32),
}

/// A step of the condensed path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// What was called.
    pub token: Token,
    /// The automaton has no such edge.
    pub harmful: bool,
    /// The state before it. A harmful step leaves the state as it is.
    pub before: StateId,
}

/// A run so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walk {
    state: StateId,
    calls: usize,
    kept: Vec<Kept>,
    harmful: usize,
}

impl Walk {
    /// One that has not begun.
    pub fn new(automaton: &Automaton) -> Walk {
        Walk { state: automaton.initial(), calls: 0, kept: Vec::new(), harmful: 0 }
    }

    /// Takes the next call. The automaton is the one that the walk began on.
    pub fn push(&mut self, automaton: &Automaton, token: Token) -> Move {
        let step = self.look(automaton, token);
        self.calls += 1;
        match step {
            Move::Loop => return step,
            Move::Progress(_) => self.keep(token, false),
            Move::Harmful => self.keep(token, true),
        }
        if let Move::Progress(to) = step {
            self.state = to;
        }
        step
    }

    /// Takes a call that failed: it does not advance. Where the automaton has an edge for it, it
    /// was allowed and changed nothing, which is a loop; else it is as harmful as one that did not
    /// fail (decisions.md).
    pub fn push_failed(&mut self, automaton: &Automaton, token: Token) -> Move {
        match self.look(automaton, token) {
            Move::Harmful => self.push(automaton, token),
            Move::Progress(_) | Move::Loop => {
                self.calls += 1;
                Move::Loop
            }
        }
    }

    fn look(&self, automaton: &Automaton, token: Token) -> Move {
        match token {
            Token::Symbol(symbol) => automaton.step(self.state, symbol),
            Token::Foreign(_) => Move::Harmful,
        }
    }

    fn keep(&mut self, token: Token, harmful: bool) {
        self.kept.push(Kept { token, harmful, before: self.state });
        self.harmful += usize::from(harmful);
    }

    /// The state it is in.
    pub fn state(&self) -> StateId {
        self.state
    }

    /// Calls so far, loops among them: `n` of equation 8.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// The condensed path so far.
    pub fn condensed(&self) -> &[Kept] {
        &self.kept
    }

    /// Harmful steps so far: `H` of section 3.
    pub fn harmful(&self) -> usize {
        self.harmful
    }
}
