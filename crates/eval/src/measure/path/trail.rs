//! The calls of an agent as a walk through its task's automaton.
//!
//! In: a task, a trace's calls in order (start time, then place in the message, then id). Out: the
//! walk, each harmful call with the state it was made in and why it was not allowed, and how far
//! anybody can tell.

use serde_json::Value;

use super::alphabet::Seen;
use super::argument::Captured;
use super::automaton::{Move, StateId};
use super::task::{FailedCalls, Task};
use super::walk::{Token, Walk};
use crate::recognise::{AgentTrace, Call};

/// Why a call was harmful.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It is known, and not allowed in the state the run was in.
    NotAllowedHere,
    /// Its function is known, its arguments are not what any symbol has.
    OtherArguments,
    /// Its function is not in the alphabet.
    OtherFunction,
}

impl Why {
    /// As in `verdict.path.harmful_call.label`.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::NotAllowedHere => "not_allowed_here",
            Why::OtherArguments => "other_arguments",
            Why::OtherFunction => "other_function",
        }
    }
}

/// A harmful call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Harm {
    /// Its place in [`AgentTrace::calls`].
    pub call: usize,
    /// The state the run was in.
    pub state: StateId,
    /// Why.
    pub why: Why,
}

/// A run as far as it is known.
#[derive(Debug)]
pub struct Trail {
    /// The walk.
    pub walk: Walk,
    /// Harmful calls, in order.
    pub harmful: Vec<Harm>,
    /// What each call that counts did, by its place in [`AgentTrace::calls`].
    pub steps: Vec<(usize, Token, Move)>,
    /// The arguments of a call were not recorded: where the run went from there, nobody can tell.
    pub lost: bool,
}

impl Trail {
    /// One that has not begun.
    pub fn new(task: &Task) -> Trail {
        Trail { walk: Walk::new(&task.automaton), harmful: Vec::new(), steps: Vec::new(), lost: false }
    }

    /// Of these calls of `trace`.
    pub fn follow(task: &Task, trace: &AgentTrace, calls: &[usize], captured: &Captured) -> Trail {
        let mut trail = Trail::new(task);
        for &i in calls {
            let Some(call) = trace.calls.get(i) else { continue };
            trail.take(task, i, call, captured);
            if trail.lost {
                break;
            }
        }
        trail
    }

    /// Takes the next call; says at once where it is harmful.
    pub fn take(&mut self, task: &Task, i: usize, call: &Call, captured: &Captured) -> Option<Harm> {
        let written = call.arguments.as_ref().map(|text| Value::String(text.to_string()));
        let arguments = call.parsed.as_deref().or(written.as_ref());
        let (token, why) = match task.alphabet.see(&call.name, arguments, captured) {
            Seen::Symbol(symbol) => (Token::Symbol(symbol), Why::NotAllowedHere),
            Seen::OtherArguments => (Token::Foreign(i as u32), Why::OtherArguments),
            Seen::OtherFunction => (Token::Foreign(i as u32), Why::OtherFunction),
            Seen::Ignored => return None,
            Seen::Untold => {
                self.lost = true;
                return None;
            }
        };
        let state = self.walk.state();
        let step = match (call.failed, task.failed_calls) {
            (true, FailedCalls::Stay) => self.walk.push_failed(&task.automaton, token),
            _ => self.walk.push(&task.automaton, token),
        };
        self.steps.push((i, token, step));
        let harm = (step == Move::Harmful).then_some(Harm { call: i, state, why });
        self.harmful.extend(harm);
        harm
    }
}
