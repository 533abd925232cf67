//! The calls of an agent as a walk through its task's automaton.
//!
//! In: a task, a trace's calls in order. Out: the walk, the registers of the rules on amounts and times, each
//! harmful call with its state and reason, and the reason why the walk is indeterminate, if it is. Calls can be added
//! one by one: the effect of a call depends only on the calls before it.

use std::mem::size_of;

use serde_json::Value;

use super::alphabet::ObservedCall;
use super::automaton::{StateId, Transition};
use super::limits::{LimitCheck, LimitedCall, Registers};
use super::prompt_pattern::PromptCaptures;
use super::task::{FailedCalls, Task};
use super::walk::{PathToken, Walk};
use crate::measure::calls::error_signs;
use crate::measure::harm_reason::HarmReason;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Memo, Unmeasured};
use crate::recognise::{AgentTrace, Call, Content, is_broken_json};

/// A call that the task does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HarmfulCall {
    /// Index into [`AgentTrace::calls`].
    pub call: usize,
    /// The state of the run at the call.
    pub state: StateId,
    pub reason: HarmReason,
    /// Index into [`Task::limits`], if a rule on amounts or times forbids the call.
    pub limit: Option<usize>,
}

/// The parts of a call that the walk uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkedCall<'a> {
    /// Index into [`AgentTrace::calls`], or a number that the caller gives the call.
    pub index: usize,
    pub name: &'a str,
    /// The arguments, or the reason why they are not known.
    pub arguments: Result<&'a Value, Unmeasured>,
    pub failed: bool,
    /// In nanoseconds since 1970; 0 if unknown.
    pub start: u64,
    /// As `start`.
    pub end: u64,
}

/// The recorded part of a run.
#[derive(Clone, Debug)]
pub struct RunWalk {
    pub walk: Walk,
    /// The registers of the task's rules on amounts and times.
    pub(super) registers: Registers,
    /// Harmful calls, in order.
    pub harmful_calls: Vec<HarmfulCall>,
    /// The token and transition of each call that is not ignored, by its index into
    /// [`AgentTrace::calls`].
    pub steps: Vec<(usize, PathToken, Transition)>,
    /// The reason why the effect of a call, and so the state after it, is unknown. The walk ends before that call.
    pub indeterminate: Option<Unmeasured>,
}

impl RunWalk {
    /// Follows these calls of `trace`, up to the first call whose effect is unknown.
    pub fn follow(task: &Task, trace: &AgentTrace, calls: &[usize], captures: &PromptCaptures) -> RunWalk {
        RunWalk::follow_with(&Memo::new(), task, trace, calls, captures)
    }

    /// As [`RunWalk::follow`]; errors found in results are cached in `memo`.
    pub(super) fn follow_with(
        memo: &Memo,
        task: &Task,
        trace: &AgentTrace,
        calls: &[usize],
        captures: &PromptCaptures,
    ) -> RunWalk {
        let mut run_walk = RunWalk::begin(task);
        for (index, call) in calls.iter().filter_map(|&i| Some((i, trace.calls.get(i)?))) {
            let text = call.arguments.as_deref().unwrap_or_default();
            if !memo.budget.spend(1 + text.len() / BYTES_PER_STEP) {
                run_walk.indeterminate = Some(Unmeasured::Limit);
                break;
            }
            let unparsed = call.arguments.as_ref().filter(|_| call.parsed.is_none());
            let unparsed = unparsed.map(|text| Value::String(text.to_string()));
            let span = call.tool.and_then(|tool| trace.tree.spans.get(tool));
            let end = span.map_or(0, |span| span.end).max(call.start);
            run_walk.push(
                task,
                captures,
                WalkedCall {
                    index,
                    name: &call.name,
                    arguments: arguments(call, unparsed.as_ref()),
                    failed: error_signs::call_error(trace, memo, call).is_some(),
                    start: call.start,
                    end,
                },
            );
            if run_walk.indeterminate.is_some() {
                break;
            }
        }
        run_walk
    }

    /// The walk of a run without calls.
    pub(super) fn begin(task: &Task) -> RunWalk {
        RunWalk {
            walk: Walk::new(&task.automaton),
            registers: Registers::new(&task.limits),
            harmful_calls: Vec::new(),
            steps: Vec::new(),
            indeterminate: None,
        }
    }

    /// The position of the run without the calls before it, which suffices to decide the next call.
    pub(super) fn without_history(mut self) -> RunWalk {
        (self.harmful_calls, self.steps) = (Vec::new(), Vec::new());
        self.walk.forget_steps();
        self
    }

    /// The memory of the walk, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let steps = self.harmful_calls.len() * size_of::<HarmfulCall>()
            + self.steps.len() * size_of::<(usize, PathToken, Transition)>();
        size_of::<RunWalk>() + steps + self.walk.bytes() + self.registers.bytes()
    }

    /// Whether the run may end here.
    pub(super) fn accepts(&self, task: &Task) -> bool {
        task.automaton.is_final(self.walk.state()) && self.registers.unanswered(&task.limits).is_none()
    }

    /// Adds the next call.
    pub(super) fn push(&mut self, task: &Task, captures: &PromptCaptures, call: WalkedCall<'_>) {
        let foreign = PathToken::Foreign(u32::try_from(call.index).unwrap_or(u32::MAX));
        let recorded_arguments = call.arguments.ok();
        let (token, reason) = match task.alphabet.classify(call.name, recorded_arguments, captures) {
            ObservedCall::Symbol(symbol) => (PathToken::Symbol(symbol), HarmReason::NotAllowedHere),
            ObservedCall::OtherArguments => (foreign, HarmReason::OtherArguments),
            ObservedCall::OtherFunction => (foreign, HarmReason::OtherFunction),
            ObservedCall::Ignored => return,
            ObservedCall::ArgumentsNotRecorded => {
                self.indeterminate = Some(call.arguments.err().unwrap_or(Unmeasured::NoContent));
                return;
            }
        };
        let state = self.walk.state();
        let keeps_state = call.failed && task.failed_calls == FailedCalls::Stay;
        let limited_call = match token {
            PathToken::Symbol(symbol) => {
                Some(LimitedCall { symbol, arguments: recorded_arguments, start: call.start, end: call.end })
            }
            PathToken::Foreign(_) => None,
        };
        let check = limited_call.map_or(LimitCheck::Kept, |call| self.registers.check(&task.limits, call));
        let is_allowed = self.walk.allows(&task.automaton, token);
        let (step, reason, limit) = match check {
            // A call that the automaton does not allow is harmful with any amount.
            LimitCheck::Unknown if is_allowed => {
                self.indeterminate = Some(call.arguments.err().unwrap_or(Unmeasured::NoContent));
                return;
            }
            LimitCheck::Broken(limit, reason) if is_allowed => {
                (self.walk.push_forbidden(token), reason, Some(limit))
            }
            _ if keeps_state => (self.walk.push_failed(&task.automaton, token), reason, None),
            _ => (self.walk.push(&task.automaton, token), reason, None),
        };
        self.steps.push((call.index, token, step));
        if step == Transition::Harmful {
            self.harmful_calls.push(HarmfulCall { call: call.index, state, reason, limit });
        } else if let Some(limited_call) = limited_call.filter(|_| !keeps_state) {
            self.registers.push(&task.limits, limited_call);
        }
    }
}

/// Whether a call failed: by a sign on its span or in its message, or because its result is an error report.
pub fn has_failed(trace: &AgentTrace, call: &Call) -> bool {
    error_signs::call_error(trace, &Memo::new(), call).is_some()
}

/// The arguments of a call, or the reason why they are not known. `unparsed` is their text, if it is not JSON.
fn arguments<'a>(call: &'a Call, unparsed: Option<&'a Value>) -> Result<&'a Value, Unmeasured> {
    match (call.parsed.as_deref(), unparsed) {
        (Some(parsed), _) => Ok(parsed),
        _ if call.too_large => Err(Unmeasured::Limit),
        // The text was cut off, at a length that no other text of the trace shows.
        (None, Some(Value::String(text))) if is_broken_json(text) => Err(Unmeasured::Truncated),
        (None, Some(text)) => Ok(text),
        (None, None) => Err(match call.arguments_content {
            Content::Redacted => Unmeasured::Hidden,
            Content::Truncated => Unmeasured::Truncated,
            Content::Present | Content::Absent => Unmeasured::NoContent,
        }),
    }
}
