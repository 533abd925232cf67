//! Decisions before the act: whether a call that an agent is about to make is allowed where its run is.
//!
//! In: an open trace, calls that were asked about and allowed and whose spans have not arrived, and a proposed
//! call. Out: for each task that applies, whether it is allowed, and which calls would be. The position of a
//! run is computed once and kept until spans arrive; a question adds one step to a copy of it.

use std::hash::BuildHasher as _;
use std::sync::LazyLock;

use foldhash::quality::RandomState;
use serde::Serialize;
use serde_json::Value;

use super::automaton::{Symbol, Transition};
use super::harm_reason::HarmReason;
use super::matching::{calls_of, fits_named};
use super::prompt_pattern::PromptCaptures;
use super::settings::TaskSet;
use super::task::{PromptPattern, Task};
use super::trail::{Trail, TrailCall};
use crate::measure::Memo;
use crate::recognise::AgentTrace;

/// Most calls listed as allowed by one task.
const MOST_NEXT: usize = 50;

/// Hashes calls, for the time of the process: positions are computed again when spans arrive.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::default);

verdict_otlp::labelled_enum! {
    /// The answer to a question.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum PathDecision {
        /// Every task that applies allows the call.
        Allowed = "allowed",
        /// It cannot be told: no task applies, or a part of the run is not known.
        Unknown = "unknown",
        /// A task does not allow the call.
        Denied = "denied",
    }
}

impl Serialize for PathDecision {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A call that an agent is about to make.
#[derive(Clone, Debug)]
pub struct ProposedCall {
    pub name: String,
    pub arguments: Value,
    /// Its id, as in the request of the model.
    pub id: Option<String>,
    /// When it was proposed, in nanoseconds since 1970.
    pub time: u64,
}

/// What the caller says about the run. It takes the place of spans that have not arrived.
#[derive(Clone, Debug, Default)]
pub struct RunHints {
    pub agent: Option<String>,
    pub service: Option<String>,
    pub prompt: Option<String>,
    /// The only task to ask.
    pub task: Option<String>,
}

/// A call that was allowed and whose span has not arrived.
#[derive(Clone, Debug)]
pub struct PendingCall {
    call: ProposedCall,
    key: u64,
    /// Equal calls before it that had been recorded or were pending.
    before: usize,
}

/// The position of every agent's run in an open trace.
#[derive(Debug, Default)]
pub struct PathPositions {
    agents: Vec<AgentPosition>,
}

#[derive(Debug)]
struct AgentPosition {
    name: Option<String>,
    /// The end of its last span, in nanoseconds since 1970.
    last: u64,
    /// By the index of the task.
    runs: Vec<(usize, Trail, PromptCaptures)>,
    /// The id and the key of each call that was made.
    made: Vec<(Option<String>, u64)>,
}

/// The answer for one task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskDecision {
    pub task: String,
    pub decision: PathDecision,
    /// The state that the run is in before the call.
    pub state: String,
    /// Why the call is not allowed, as in the label of `path.harmful_call`, or why this is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The rule on amounts or times that does not allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The calls that would be allowed.
    pub next: Vec<NextCall>,
    /// Functions that the task does not name are allowed as well.
    pub others: bool,
}

/// A call that is allowed where the run is.
#[derive(Clone, Debug, Serialize)]
pub struct NextCall {
    pub symbol: String,
    pub function: String,
    /// What is left of the amounts that a rule limits, by argument.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub left: serde_json::Map<String, Value>,
}

/// The answer for all tasks that apply.
#[derive(Clone, Debug, Serialize)]
pub struct PathAnswer {
    pub decision: PathDecision,
    pub tasks: Vec<TaskDecision>,
}

impl PathPositions {
    /// The positions in an open trace.
    pub(crate) fn of(trace: &AgentTrace, tasks: &TaskSet) -> PathPositions {
        let memo = Memo::new();
        let position = |i: usize| {
            // A request without a tool span and without a result is a proposal, too.
            let is_made = |call: &usize| {
                trace.calls.get(*call).is_some_and(|call| call.tool.is_some() || call.result.is_some())
            };
            let mut own = Vec::new();
            let mut runs = Vec::new();
            for (n, task) in tasks.tasks().iter().enumerate() {
                if let Some((mut calls, captured)) = calls_of(task, trace, i) {
                    calls.retain(is_made);
                    runs.push((n, Trail::follow_with(&memo, task, trace, &calls, &captured), captured));
                    own = calls;
                }
            }
            let made = own.iter().filter_map(|&call| {
                let call = trace.calls.get(call)?;
                let arguments = call.parsed.as_deref().unwrap_or(&Value::Null);
                Some((call.id.as_ref().map(ToString::to_string), call_key(&call.name, arguments)))
            });
            let agent = trace.agents.get(i)?;
            let ends = trace.owner.iter().zip(&trace.tree.spans).filter(|(owner, _)| **owner == Some(i));
            Some(AgentPosition {
                name: agent.name.as_ref().map(ToString::to_string),
                last: ends.map(|(_, span)| span.end.max(span.start)).max().unwrap_or(0),
                made: made.collect(),
                runs,
            })
        };
        PathPositions { agents: (0..trace.agents.len()).filter_map(position).collect() }
    }

    /// The agent whose run is asked about: the one with this name, else the one with the latest span among
    /// those that a task applies to.
    fn agent(&self, hints: &RunHints) -> Option<&AgentPosition> {
        let named = |agent: &&AgentPosition| match &hints.agent {
            Some(name) => agent.name.as_ref() == Some(name),
            None => !agent.runs.is_empty(),
        };
        self.agents.iter().filter(named).max_by_key(|agent| agent.last)
    }

    /// Removes the pending calls whose spans have arrived.
    pub fn settle(&self, hints: &RunHints, pending: &mut Vec<PendingCall>) {
        let Some(agent) = self.agent(hints) else { return };
        pending.retain(|waiting| match &waiting.call.id {
            Some(id) if agent.made.iter().any(|(made, _)| made.as_ref() == Some(id)) => false,
            // A framework may record no id.
            _ => agent.made_as(waiting.key) <= waiting.before,
        });
    }

    /// The call as one that was allowed.
    pub fn pending(&self, hints: &RunHints, pending: &[PendingCall], call: ProposedCall) -> PendingCall {
        let key = call_key(&call.name, &call.arguments);
        let waiting = pending.iter().filter(|other| other.key == key).count();
        let before = waiting + self.agent(hints).map_or(0, |agent| agent.made_as(key));
        PendingCall { call, key, before }
    }

    /// Whether every task that applies allows `call` after the pending ones.
    pub fn decide(
        &self,
        tasks: &TaskSet,
        hints: &RunHints,
        pending: &[PendingCall],
        call: &ProposedCall,
    ) -> PathAnswer {
        let agent = self.agent(hints);
        let mut out = Vec::new();
        for (n, task) in tasks.tasks().iter().enumerate() {
            if hints.task.as_ref().is_some_and(|name| *name != task.name) {
                continue;
            }
            let run = agent.and_then(|agent| agent.runs.iter().find(|(of, ..)| *of == n));
            let (mut trail, captured) = match run {
                Some((_, trail, captured)) => (trail.clone(), captured.clone()),
                None => match hinted(task, hints) {
                    Some(captured) => (Trail::begin(task), captured),
                    None => continue,
                },
            };
            for waiting in pending.iter().filter(|other| !other.is(call)) {
                trail.push_proposed(task, &captured, &waiting.call);
            }
            out.push(decide(task, trail, &captured, call));
        }
        let worst = out.iter().map(|task| task.decision).max();
        PathAnswer { decision: worst.unwrap_or(PathDecision::Unknown), tasks: out }
    }
}

impl AgentPosition {
    fn made_as(&self, key: u64) -> usize {
        self.made.iter().filter(|(_, made)| *made == key).count()
    }
}

impl PendingCall {
    /// Whether it is the same question again. Ids of a gateway's own requests may be used again.
    pub fn is(&self, call: &ProposedCall) -> bool {
        call.id.is_some() && self.call.id == call.id && self.key == call_key(&call.name, &call.arguments)
    }
}

impl Trail {
    fn push_proposed(&mut self, task: &Task, captured: &PromptCaptures, call: &ProposedCall) {
        let arguments = Ok(&call.arguments);
        let (name, start) = (call.name.as_str(), call.time);
        // No call of the trace has this number.
        let index = u32::MAX as usize;
        self.push(task, captured, TrailCall { index, name, arguments, failed: false, start, end: start });
    }
}

fn decide(task: &Task, mut trail: Trail, captured: &PromptCaptures, call: &ProposedCall) -> TaskDecision {
    let before = trail.walk.state();
    let next = next_calls(task, &trail);
    let harmful = trail.harmful.len();
    let unknown = trail.indeterminate.take();
    if unknown.is_none() {
        trail.push_proposed(task, captured, call);
    }
    let broken = trail.harmful.get(harmful);
    let (decision, reason) = match (unknown.or(trail.indeterminate), broken) {
        (Some(why), _) => (PathDecision::Unknown, Some(why.as_str())),
        (None, Some(harm)) => (PathDecision::Denied, Some(HarmReason::as_str(harm.reason))),
        (None, None) => (PathDecision::Allowed, None),
    };
    let rule = broken.and_then(|harm| task.limits.get(harm.limit?)).map(|limit| limit.text.clone());
    TaskDecision {
        task: task.name.clone(),
        decision,
        state: task.automaton.state_name(before).to_owned(),
        reason,
        rule,
        next,
        others: task.alphabet.ignores_unknown(),
    }
}

/// The calls that the automaton allows in the state of the run.
fn next_calls(task: &Task, trail: &Trail) -> Vec<NextCall> {
    let state = trail.walk.state();
    let definitions = task.alphabet.definitions().iter().enumerate();
    let next = definitions.filter_map(|(i, definition)| {
        let symbol = Symbol(i as u32);
        if task.automaton.step(state, symbol) == Transition::Harmful {
            return None;
        }
        let left = trail.registers.left(&task.limits, symbol);
        let left = left.into_iter().map(|(argument, amount)| (argument, amount.into()));
        Some(NextCall {
            symbol: definition.symbol.clone(),
            function: definition.function.clone(),
            left: left.collect(),
        })
    });
    next.take(MOST_NEXT).collect()
}

/// The captures of the prompt if the hints meet the conditions of a task; attributes of spans are not known.
fn hinted(task: &Task, hints: &RunHints) -> Option<PromptCaptures> {
    let named = hints.task.as_ref() == Some(&task.name);
    let matching = &task.matching;
    if !named && !fits_named(matching, hints.service.as_deref(), hints.agent.as_deref()) {
        return None;
    }
    if !named && !matching.attribute.is_empty() {
        return None;
    }
    match (&matching.prompt, &hints.prompt) {
        (None, _) => Some(PromptCaptures::default()),
        (Some(PromptPattern::Matches(pattern)), Some(prompt)) => pattern.captures(prompt),
        (Some(PromptPattern::Exactly(text)), Some(prompt)) => {
            (text.trim() == prompt.trim()).then(PromptCaptures::default)
        }
        // A task that is named applies; without the prompt it leaves captured values open.
        (Some(PromptPattern::Matches(pattern)), None) if named => Some(pattern.open_captures()),
        (Some(PromptPattern::Exactly(_)), None) if named => Some(PromptCaptures::default()),
        (Some(_), None) => None,
    }
}

/// A key of a call by its name and arguments.
fn call_key(name: &str, arguments: &Value) -> u64 {
    let mut text = String::from(name);
    text.push('\0');
    write_sorted(arguments, &mut text);
    KEYS.hash_one(text)
}

/// JSON with sorted keys; integers as floats of the same value. The depth of arguments is bounded by their
/// parser.
fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in entries {
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write_sorted(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_sorted(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Number(number) => match number.as_f64() {
            Some(float) => out.push_str(&float.to_string()),
            None => out.push_str(&number.to_string()),
        },
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests;
