//! Decides before a call is made whether it is allowed at the position of the run.
//!
//! In: an open trace, the pending calls (allowed earlier, without a span yet), and a proposed call. Out: for each task
//! that applies, whether the proposed call is allowed, and which calls would be. The position of a run is computed once
//! and kept until spans arrive; a question adds one step to a copy of it.
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
use super::matching::{calls_of, has_required_names, matching_steps};
use super::prompt_pattern::PromptCaptures;
use super::run_walk::{RunWalk, WalkedCall};
use super::settings::TaskSet;
use super::task::{PromptPattern, Task};
use crate::measure::harm_reason::HarmReason;
use crate::measure::{Memo, Unmeasured};
use crate::recognise::AgentTrace;

/// Maximum number of allowed calls that are listed for one task.
const MAX_NEXT: usize = 50;

/// The difference between the clocks of senders and of this process that is tolerated, in nanoseconds: a clock that is
/// synchronised by NTP differs by much less, and one that is not can differ by any amount.
const CLOCK_TOLERANCE: u64 = 5_000_000_000;

/// The reason of an answer that is unknown since it depends on the difference of clocks.
const CLOCKS: &str = "clocks";

/// Maximum number of bytes of a JSON value in addition to its texts, with its key and hash in an object.
const VALUE_BYTES: usize = 150;

/// Hashes ids and calls. The hashes are valid only in this process, as are the positions that contain them.
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
    /// A hash of the name and the arguments, by which calls are compared.
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
    /// The only task by which the call is decided.
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
    /// The number of equal calls that were recorded or pending when this call was allowed.
    equal_before: usize,
}

/// The position of every agent's run in an open trace.
#[derive(Debug, Default)]
pub struct PathPositions {
    agents: Vec<AgentPosition>,
}

/// The position of the run of one agent.
#[derive(Debug)]
struct AgentPosition {
    name: Option<String>,
    /// The end of its last span, in nanoseconds since 1970.
    last_end: u64,
    /// For each task that applies: its index, the walk, and the captures of the prompt.
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
    /// The state of the run before the call.
    pub state: String,
    /// The reason why the call is not allowed, as in the label of `path.harmful_call`, or why the decision is
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The rule on amounts or times that does not allow the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The calls that would be allowed.
    pub next: Vec<NextCall>,
    /// Whether functions that the task does not name are allowed as well.
    pub others: bool,
}

/// A call that is allowed at the position of the run.
#[derive(Clone, Debug, Serialize)]
pub struct NextCall {
    pub symbol: String,
    pub function: String,
    /// The remaining amount of each argument that a rule limits.
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
        let mut last_ends = vec![0; trace.agents.len()];
        for (owner, span) in trace.owner.iter().zip(&trace.tree.spans) {
            work::count(1);
            if let Some(last_end) = owner.and_then(|owner| last_ends.get_mut(owner)) {
                *last_end = span.end.max(span.start).max(*last_end);
            }
        }
        let position = |i: usize| {
            // A request without a tool span and without a result has not been executed yet.
            let is_made = |call: &usize| {
                trace.calls.get(*call).is_some_and(|call| call.tool.is_some() || call.result.is_some())
            };
            let mut made_calls = Vec::new();
            let mut runs = Vec::new();
            for (n, task) in tasks.tasks().iter().enumerate() {
                memo.budget.spend(matching_steps(task, trace, i));
                if let Some((mut calls, captures)) = calls_of(task, trace, i) {
                    calls.retain(is_made);
                    let run_walk = RunWalk::follow_with(memo, task, trace, &calls, &captures);
                    runs.push((n, run_walk.without_history(), captures));
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
                last_end: last_ends.get(i).copied().unwrap_or(0),
                ids,
                call_counts,
                runs,
            })
        };
        PathPositions { agents: (0..trace.agents.len()).filter_map(position).collect() }
    }

    /// The maximum memory of the positions, in bytes.
    pub fn bytes(&self) -> usize {
        let agent_bytes = |agent: &AgentPosition| {
            let capture_bytes = |captures: &PromptCaptures| -> usize {
                let texts =
                    captures.iter().map(|(name, c)| name.len() + c.text.as_ref().map_or(0, String::len));
                texts.map(|bytes| bytes + VALUE_BYTES).sum()
            };
            let runs =
                agent.runs.iter().map(|(_, run_walk, captures)| run_walk.bytes() + capture_bytes(captures));
            // A hash table has up to twice as many slots as entries, and a byte of metadata for each slot.
            let hashes = agent.ids.len() * 2 * 9 + agent.call_counts.len() * 2 * 17;
            size_of::<AgentPosition>()
                + agent.name.as_ref().map_or(0, String::len)
                + hashes
                + runs.sum::<usize>()
        };
        self.agents.iter().map(agent_bytes).sum()
    }

    /// The agent that the hints refer to: the agent of this name, or without a name the agent with the latest span
    /// among those that a task applies to.
    fn agent(&self, hints: &RunHints) -> Option<&AgentPosition> {
        let is_candidate = |agent: &&AgentPosition| match &hints.agent {
            Some(name) => agent.name.as_ref() == Some(name),
            None => !agent.runs.is_empty(),
        };
        self.agents.iter().filter(is_candidate).max_by_key(|agent| agent.last_end)
    }

    /// Removes the pending calls whose spans have arrived.
    pub fn remove_arrived(&self, hints: &RunHints, pending: &mut Vec<PendingCall>) {
        let Some(agent) = self.agent(hints) else { return };
        pending.retain(|pending_call| match &pending_call.id {
            Some(id) if agent.ids.contains(&id_key(id)) => false,
            // A framework may record no id.
            _ => agent.call_count(pending_call.key) <= pending_call.equal_before,
        });
    }

    /// Converts an allowed call to a pending one. Its arguments are kept only if one of the tasks reads them.
    pub fn pending(
        &self,
        tasks: &TaskSet,
        hints: &RunHints,
        pending: &[PendingCall],
        call: ProposedCall,
    ) -> PendingCall {
        let ProposedCall { name, arguments, id, time, key } = call;
        let arguments = tasks.tasks().iter().any(|task| task.reads_arguments(&name)).then_some(arguments);
        let equal_pending = pending.iter().filter(|other| other.key == key).count();
        let equal_before = equal_pending + self.agent(hints).map_or(0, |agent| agent.call_count(key));
        PendingCall { name, arguments, id, time, key, equal_before }
    }

    /// Whether every task that applies allows `call` after the pending calls.
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
            let position = match run {
                Some((_, run_walk, captures)) => {
                    TaskPosition { task, walk: Cow::Borrowed(run_walk), captures: Cow::Borrowed(captures) }
                }
                None => match hinted_captures(task, hints) {
                    Some(captures) => TaskPosition {
                        task,
                        walk: Cow::Owned(RunWalk::begin(task)),
                        captures: Cow::Owned(captures),
                    },
                    None => continue,
                },
            };
            out.push(position.decide(pending, call));
        }
        let worst = out.iter().map(|task| task.decision).max();
        PathAnswer { decision: worst.unwrap_or(PathDecision::Unknown), tasks: out }
    }
}

impl AgentPosition {
    /// The number of calls with this key that were made.
    fn call_count(&self, key: u64) -> usize {
        self.call_counts.get(&key).copied().unwrap_or(0)
    }
}

impl PendingCall {
    /// Whether `call` is the same question again. The key is compared as well, since a gateway may reuse ids.
    pub fn repeats_call(&self, call: &ProposedCall) -> bool {
        call.id.is_some() && self.id == call.id && self.key == call.key
    }

    /// The maximum memory of the call, in bytes.
    pub fn bytes(&self) -> usize {
        let arguments = self.arguments.as_ref().map_or(0, value_bytes);
        size_of::<PendingCall>() + self.name.len() + self.id.as_ref().map_or(0, String::len) + arguments
    }
}

/// The position of a run in the automaton of a task.
struct TaskPosition<'a> {
    task: &'a Task,
    walk: Cow<'a, RunWalk>,
    captures: Cow<'a, PromptCaptures>,
}

impl TaskPosition<'_> {
    /// The decision on `call` after the pending calls; unknown if it depends on the difference of clocks.
    fn decide(&self, pending: &[PendingCall], call: &ProposedCall) -> TaskDecision {
        let mut decision = self.decide_at(pending, call, |time| time);
        if !self.task.limits.iter().any(PathLimit::compares_times) {
            return decision;
        }
        let later = self.decide_at(pending, call, |time| time.saturating_add(CLOCK_TOLERANCE));
        let earlier = self.decide_at(pending, call, |time| time.saturating_sub(CLOCK_TOLERANCE).max(1));
        if [&later, &earlier].iter().any(|other| other.decision != decision.decision) {
            decision.decision = PathDecision::Unknown;
            decision.reason = Some(CLOCKS);
            decision.rule = decision.rule.or(later.rule).or(earlier.rule);
        }
        decision
    }

    /// The decision if `sender_time` converts a time of this process to the time of the senders' clocks.
    fn decide_at(
        &self,
        pending: &[PendingCall],
        call: &ProposedCall,
        sender_time: impl Fn(u64) -> u64,
    ) -> TaskDecision {
        let TaskPosition { task, captures, .. } = self;
        let mut run_walk = RunWalk::clone(&self.walk);
        // No call of the trace has this index.
        let index = u32::MAX as usize;
        let walked_call = |name, arguments, time| {
            let time = sender_time(time);
            WalkedCall { index, name, arguments, failed: false, start: time, end: time }
        };
        for pending_call in pending.iter().filter(|other| !other.repeats_call(call)) {
            let arguments = pending_call.arguments.as_ref().ok_or(Unmeasured::NoContent);
            run_walk.push(task, captures, walked_call(&pending_call.name, arguments, pending_call.time));
        }
        let state = run_walk.walk.state();
        let next = next_calls(task, &run_walk);
        let harmful_before = run_walk.harmful_calls.len();
        let indeterminate_before = run_walk.indeterminate.take();
        if indeterminate_before.is_none() {
            run_walk.push(task, captures, walked_call(&call.name, Ok(&call.arguments), call.time));
        }
        let harm = run_walk.harmful_calls.get(harmful_before);
        let (decision, reason) = match (indeterminate_before.or(run_walk.indeterminate), harm) {
            (Some(reason), _) => (PathDecision::Unknown, Some(reason.as_str())),
            (None, Some(harm)) => (PathDecision::Denied, Some(HarmReason::as_str(harm.reason))),
            (None, None) => (PathDecision::Allowed, None),
        };
        let rule = harm.and_then(|harm| task.limits.get(harm.limit?)).map(|limit| limit.text.clone());
        TaskDecision {
            task: task.name.clone(),
            decision,
            state: task.automaton.state_name(state).to_owned(),
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
    next.take(MAX_NEXT).collect()
}

/// The captures of the prompt if the hints meet the conditions of a task; attributes of spans are not known.
fn hinted_captures(task: &Task, hints: &RunHints) -> Option<PromptCaptures> {
    let is_named = hints.task.as_ref() == Some(&task.name);
    let matching = &task.matching;
    if !is_named && !has_required_names(matching, hints.service.as_deref(), hints.agent.as_deref()) {
        return None;
    }
    if !is_named && !matching.attribute.is_empty() {
        return None;
    }
    match (&matching.prompt, &hints.prompt) {
        (None, _) => Some(PromptCaptures::default()),
        (Some(PromptPattern::Matches(pattern)), Some(prompt)) => pattern.captures(prompt),
        (Some(PromptPattern::Exactly(text)), Some(prompt)) => {
            (text.trim() == prompt.trim()).then(PromptCaptures::default)
        }
        // A task that the hints name applies; without the prompt its captures accept any value.
        (Some(PromptPattern::Matches(pattern)), None) if is_named => Some(pattern.any_captures()),
        (Some(PromptPattern::Exactly(_)), None) if is_named => Some(PromptCaptures::default()),
        (Some(_), None) => None,
    }
}

/// The maximum memory of a JSON value, in bytes. The depth of arguments is bounded by their parser.
fn value_bytes(value: &Value) -> usize {
    let inner_bytes = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_bytes).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + value_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_BYTES + inner_bytes
}

fn id_key(id: &str) -> u64 {
    KEYS.hash_one(id)
}

/// A hash of the name and arguments of a call.
fn call_key(name: &str, arguments: &Value) -> u64 {
    let mut text = String::from(name);
    text.push('\0');
    write_sorted(arguments, &mut text);
    KEYS.hash_one(text)
}

/// Appends the value as text, with sorted keys and with integers as floats of the same value. The depth of arguments is
/// bounded by their parser.
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
