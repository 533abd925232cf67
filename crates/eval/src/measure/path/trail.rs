//! The calls of an agent as a walk through its task's automaton.
//!
//! In: a task, a trace's calls in order (start time, then position in the message, then id). Out: the
//! walk, each harmful call with its state and reason, and whether the walk is indeterminate.

use serde_json::Value;

use super::alphabet::ObservedCall;
use super::argument::PromptCaptures;
use super::automaton::{StateId, Transition};
use super::task::{FailedCalls, Task};
use super::walk::{Token, Walk};
use crate::recognise::{AgentTrace, Call};

verdict_otlp::labelled_enum! {
    /// Why a call is harmful, as in `verdict.path.harmful_call.label`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum HarmReason {
        /// The symbol is not allowed in the state.
        NotAllowedHere = "not_allowed_here",
        /// The function is known, its arguments match no symbol.
        OtherArguments = "other_arguments",
        /// Its function is not in the alphabet.
        OtherFunction = "other_function",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HarmfulCall {
    /// Index into [`AgentTrace::calls`].
    pub call: usize,
    /// The state the run was in.
    pub state: StateId,
    pub reason: HarmReason,
}

/// The recorded part of a run.
#[derive(Debug)]
pub struct Trail {
    pub walk: Walk,
    /// Harmful calls, in order.
    pub harmful: Vec<HarmfulCall>,
    /// The token and transition of each call that is not ignored, by its index into
    /// [`AgentTrace::calls`].
    pub steps: Vec<(usize, Token, Transition)>,
    /// The arguments of a call were not recorded, so the state after it is unknown.
    pub indeterminate: bool,
}

impl Trail {
    /// Follows these calls of `trace`, up to the first whose effect is unknown.
    pub fn follow(task: &Task, trace: &AgentTrace, calls: &[usize], captured: &PromptCaptures) -> Trail {
        let walk = Walk::new(&task.automaton);
        let mut trail = Trail { walk, harmful: Vec::new(), steps: Vec::new(), indeterminate: false };
        for (i, call) in calls.iter().filter_map(|&i| Some((i, trace.calls.get(i)?))) {
            trail.push_call(task, i, call, captured);
            if trail.indeterminate {
                break;
            }
        }
        trail
    }

    fn push_call(&mut self, task: &Task, i: usize, call: &Call, captured: &PromptCaptures) {
        if call.too_large {
            self.indeterminate = true;
            return;
        }
        let written = call.arguments.as_ref().map(|text| Value::String(text.to_string()));
        let arguments = call.parsed.as_deref().or(written.as_ref());
        let (token, reason) = match task.alphabet.classify(&call.name, arguments, captured) {
            ObservedCall::Symbol(symbol) => (Token::Symbol(symbol), HarmReason::NotAllowedHere),
            ObservedCall::OtherArguments => (Token::Foreign(i as u32), HarmReason::OtherArguments),
            ObservedCall::OtherFunction => (Token::Foreign(i as u32), HarmReason::OtherFunction),
            ObservedCall::Ignored => return,
            ObservedCall::ArgumentsNotRecorded => {
                self.indeterminate = true;
                return;
            }
        };
        let state = self.walk.state();
        let step = match (call.failed, task.failed_calls) {
            (true, FailedCalls::Stay) => self.walk.push_failed(&task.automaton, token),
            _ => self.walk.push(&task.automaton, token),
        };
        self.steps.push((i, token, step));
        if step == Transition::Harmful {
            self.harmful.push(HarmfulCall { call: i, state, reason });
        }
    }
}
