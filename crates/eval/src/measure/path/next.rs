//! Decisions before the act: whether a call that an agent is about to make is allowed where its run is.
//!
//! In: an open trace, calls that were asked about and allowed and whose spans have not arrived, and a proposed
//! call. Out: for each task that applies, whether it is allowed, and which calls would be. The position of a
//! run is computed once and kept until spans arrive; a question adds one step to a copy of it.
//!
//! The time of a proposed call is read from the clock of this process, the times of spans are those of senders.
//! Where a difference of up to [`CLOCK_TOLERANCE`] would change the answer, it is unknown.

use std::borrow::Cow;
use std::hash::BuildHasher as _;
use std::mem::size_of;
use std::sync::LazyLock;

use foldhash::quality::RandomState;
use foldhash::{HashMap, HashSet};
use serde::Serialize;
use serde_json::Value;
use verdict_otlp::work;

use super::automaton::{Symbol, Transition};
use super::limits::PathLimit;
use super::matching::{calls_of, fits_named, matching_steps};
use super::prompt_pattern::PromptCaptures;
use super::run_walk::{RunWalk, WalkedCall};
use super::settings::TaskSet;
use super::task::{PromptPattern, Task};
use crate::measure::harm_reason::HarmReason;
use crate::measure::{Memo, Unmeasured};
use crate::recognise::AgentTrace;

/// Most calls listed as allowed by one task.
const MOST_NEXT: usize = 50;

/// The difference between the clocks of senders and of this process that must not change an answer, in
/// nanoseconds: NTP keeps a clock within much less, and a clock that is off by more is off by any amount.
const CLOCK_TOLERANCE: u64 = 5_000_000_000;

/// The reason for an answer that depends on whose clock is right.
const CLOCKS: &str = "clocks";

/// Bytes of a JSON value besides its texts, at most: with its key and hash in an object.
const VALUE_BYTES: usize = 150;

/// Hashes calls, for the time of the process: positions are computed again when spans arrive.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::default);

verdict_otlp::labelled_enum! {
    /// The answer to a question.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum PathDecision {
        /// Every task that applies allows the call.
        Allowed = "allowed",
        /// Unknown: no task applies, or a part of the run is not known.
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
    name: String,
    arguments: Value,
    id: Option<String>,
    /// In nanoseconds since 1970, by the clock of this process.
    time: u64,
    /// A hash of the name and the arguments: they are read once, however many calls are compared with it.
    key: u64,
}

impl ProposedCall {
    /// A call that is proposed at `time`, in nanoseconds since 1970. `id` is that of the model's request.
    pub fn new(name: String, arguments: Value, id: Option<String>, time: u64) -> ProposedCall {
        let key = call_key(&name, &arguments);
        ProposedCall { name, arguments, id, time, key }
    }
}

/// The caller's statements about the run, in place of spans that have not arrived.
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
    name: String,
    /// `None` where no task reads them.
    arguments: Option<Value>,
    id: Option<String>,
    time: u64,
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
    runs: Vec<(usize, RunWalk, PromptCaptures)>,
    /// Hashes of the ids of calls that were made.
    ids: HashSet<u64>,
    /// Number of calls that were made, by key.
    call_counts: HashMap<u64, usize>,
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
    /// The rest of the amounts that a rule limits, by argument.
    #[serde(rename = "left", skip_serializing_if = "serde_json::Map::is_empty")]
    pub remaining_amounts: serde_json::Map<String, Value>,
}

/// The answer for all tasks that apply.
#[derive(Clone, Debug, Serialize)]
pub struct PathAnswer {
    pub decision: PathDecision,
    pub tasks: Vec<TaskDecision>,
}

impl PathPositions {
    /// The positions in an open trace.
    pub(crate) fn new(trace: &AgentTrace, tasks: &TaskSet, memo: &Memo) -> PathPositions {
        let mut last = vec![0; trace.agents.len()];
        for (owner, span) in trace.owner.iter().zip(&trace.tree.spans) {
            work::count(1);
            if let Some(last) = owner.and_then(|owner| last.get_mut(owner)) {
                *last = span.end.max(span.start).max(*last);
            }
        }
        let position = |i: usize| {
            // A request without a tool span and without a result is a proposal, too.
            let is_made = |call: &usize| {
                trace.calls.get(*call).is_some_and(|call| call.tool.is_some() || call.result.is_some())
            };
            let mut made_calls = Vec::new();
            let mut runs = Vec::new();
            for (n, task) in tasks.tasks().iter().enumerate() {
                memo.budget.spend(matching_steps(task, trace, i));
                if let Some((mut calls, captured)) = calls_of(task, trace, i) {
                    calls.retain(is_made);
                    let run_walk = RunWalk::follow_with(memo, task, trace, &calls, &captured);
                    runs.push((n, run_walk.without_history(), captured));
                    made_calls = calls;
                }
            }
            let (mut ids, mut call_counts) = (HashSet::default(), HashMap::default());
            for call in made_calls.iter().filter_map(|&call| trace.calls.get(call)) {
                let arguments = call.parsed.as_deref().unwrap_or(&Value::Null);
                *call_counts.entry(call_key(&call.name, arguments)).or_default() += 1;
                ids.extend(call.id.as_ref().map(|id| id_key(id)));
            }
            let agent = trace.agents.get(i)?;
            Some(AgentPosition {
                name: agent.name.as_ref().map(ToString::to_string),
                last: last.get(i).copied().unwrap_or(0),
                ids,
                call_counts,
                runs,
            })
        };
        PathPositions { agents: (0..trace.agents.len()).filter_map(position).collect() }
    }

    /// The memory that they take, at most.
    pub fn bytes(&self) -> usize {
        let agent_bytes = |agent: &AgentPosition| {
            let captured = |captures: &PromptCaptures| -> usize {
                let texts =
                    captures.iter().map(|(name, c)| name.len() + c.text.as_ref().map_or(0, String::len));
                texts.map(|bytes| bytes + VALUE_BYTES).sum()
            };
            let runs = agent.runs.iter().map(|(_, run_walk, captures)| run_walk.bytes() + captured(captures));
            // A table of hashes has twice as many places as entries, and a byte for each.
            let hashes = agent.ids.len() * 2 * 9 + agent.call_counts.len() * 2 * 17;
            size_of::<AgentPosition>()
                + agent.name.as_ref().map_or(0, String::len)
                + hashes
                + runs.sum::<usize>()
        };
        self.agents.iter().map(agent_bytes).sum()
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
    pub fn remove_arrived(&self, hints: &RunHints, pending: &mut Vec<PendingCall>) {
        let Some(agent) = self.agent(hints) else { return };
        pending.retain(|waiting| match &waiting.id {
            Some(id) if agent.ids.contains(&id_key(id)) => false,
            // A framework may record no id.
            _ => agent.made_as(waiting.key) <= waiting.before,
        });
    }

    /// The call as one that was allowed. Its arguments are kept only if one of the tasks reads them.
    pub fn pending(
        &self,
        tasks: &TaskSet,
        hints: &RunHints,
        pending: &[PendingCall],
        call: ProposedCall,
    ) -> PendingCall {
        let ProposedCall { name, arguments, id, time, key } = call;
        let arguments = tasks.tasks().iter().any(|task| task.reads_arguments(&name)).then_some(arguments);
        let waiting = pending.iter().filter(|other| other.key == key).count();
        let before = waiting + self.agent(hints).map_or(0, |agent| agent.made_as(key));
        PendingCall { name, arguments, id, time, key, before }
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
            let run = agent.and_then(|agent| agent.runs.iter().find(|(task_index, ..)| *task_index == n));
            let run = match run {
                Some((_, run_walk, captured)) => {
                    TaskPosition { task, walk: Cow::Borrowed(run_walk), captured: Cow::Borrowed(captured) }
                }
                None => match hinted(task, hints) {
                    Some(captured) => TaskPosition {
                        task,
                        walk: Cow::Owned(RunWalk::begin(task)),
                        captured: Cow::Owned(captured),
                    },
                    None => continue,
                },
            };
            out.push(run.decide(pending, call));
        }
        let worst = out.iter().map(|task| task.decision).max();
        PathAnswer { decision: worst.unwrap_or(PathDecision::Unknown), tasks: out }
    }
}

impl AgentPosition {
    fn made_as(&self, key: u64) -> usize {
        self.call_counts.get(&key).copied().unwrap_or(0)
    }
}

impl PendingCall {
    /// Whether it is the same question again. Ids of a gateway's own requests may be used again.
    pub fn repeats_call(&self, call: &ProposedCall) -> bool {
        call.id.is_some() && self.id == call.id && self.key == call.key
    }

    /// The memory that it takes, at most.
    pub fn bytes(&self) -> usize {
        let arguments = self.arguments.as_ref().map_or(0, value_bytes);
        size_of::<PendingCall>() + self.name.len() + self.id.as_ref().map_or(0, String::len) + arguments
    }
}

/// Where the run of a task is.
struct TaskPosition<'a> {
    task: &'a Task,
    walk: Cow<'a, RunWalk>,
    captured: Cow<'a, PromptCaptures>,
}

impl TaskPosition<'_> {
    fn decide(&self, pending: &[PendingCall], call: &ProposedCall) -> TaskDecision {
        let mut decision = self.decide_at(pending, call, |time| time);
        if !self.task.limits.iter().any(PathLimit::compares_times) {
            return decision;
        }
        let fast = self.decide_at(pending, call, |time| time.saturating_add(CLOCK_TOLERANCE));
        let slow = self.decide_at(pending, call, |time| time.saturating_sub(CLOCK_TOLERANCE).max(1));
        if [&fast, &slow].iter().any(|other| other.decision != decision.decision) {
            decision.decision = PathDecision::Unknown;
            decision.reason = Some(CLOCKS);
            decision.rule = decision.rule.or(fast.rule).or(slow.rule);
        }
        decision
    }

    /// The decision if `clock` is what senders' clocks show at a time of this process.
    fn decide_at(
        &self,
        pending: &[PendingCall],
        call: &ProposedCall,
        clock: impl Fn(u64) -> u64,
    ) -> TaskDecision {
        let TaskPosition { task, captured, .. } = self;
        let mut run_walk = RunWalk::clone(&self.walk);
        // No call of the trace has this number.
        let index = u32::MAX as usize;
        let proposed = |name, arguments, time| {
            let time = clock(time);
            WalkedCall { index, name, arguments, failed: false, start: time, end: time }
        };
        for waiting in pending.iter().filter(|other| !other.repeats_call(call)) {
            let arguments = waiting.arguments.as_ref().ok_or(Unmeasured::NoContent);
            run_walk.push(task, captured, proposed(&waiting.name, arguments, waiting.time));
        }
        let before = run_walk.walk.state();
        let next = next_calls(task, &run_walk);
        let harmful = run_walk.harmful.len();
        let unknown = run_walk.indeterminate.take();
        if unknown.is_none() {
            run_walk.push(task, captured, proposed(&call.name, Ok(&call.arguments), call.time));
        }
        let broken = run_walk.harmful.get(harmful);
        let (decision, reason) = match (unknown.or(run_walk.indeterminate), broken) {
            (Some(reason), _) => (PathDecision::Unknown, Some(reason.as_str())),
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
}

/// The calls that the automaton allows in the state of the run.
fn next_calls(task: &Task, run_walk: &RunWalk) -> Vec<NextCall> {
    let state = run_walk.walk.state();
    let definitions = task.alphabet.definitions().iter().enumerate();
    let next = definitions.filter_map(|(i, definition)| {
        let symbol = Symbol(i as u32);
        if task.automaton.step(state, symbol) == Transition::Harmful {
            return None;
        }
        let remaining = run_walk.registers.remaining_amounts(&task.limits, symbol);
        let remaining = remaining.into_iter().map(|(argument, amount)| (argument, amount.into()));
        Some(NextCall {
            symbol: definition.symbol.clone(),
            function: definition.function.clone(),
            remaining_amounts: remaining.collect(),
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

/// The memory that a JSON value takes, at most. The depth of arguments is bounded by their parser.
fn value_bytes(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_bytes).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + value_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_BYTES + inside
}

fn id_key(id: &str) -> u64 {
    KEYS.hash_one(id)
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
