//! Tool calls as attempts: normalised arguments, and how the call ended.
//!
//! In: the calls of a trace. Out: one [`Attempt`] per call, and the failing calls that were repeated
//! unchanged (001, table 2, tool abuse).
//! Repeats are counted per call and outcome, through successes of tools that only read. Not every retry is a
//! repeat: a transient error allows one, an action that succeeded in between may have changed the state that
//! the second call reads, another error is progress, and a retry that succeeds is correct.

use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use serde_json::Value;
use verdict_otlp::trace::Idx;

use crate::measure::Memo;
use crate::measure::calls::error_signs::reported_by;
use crate::measure::defects::Defect;
use crate::measure::error_kind::{cause_excerpt, cause_of_call};
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::recognise::{AgentTrace, Call};

/// Failing calls that are allowed if the error is transient (rate limit, outage, timeout): the call and
/// one retry.
const MAX_TRANSIENT_FAILURES: usize = 2;
/// From this number of unchanged failing calls, the last one is no retry.
pub(crate) const MIN_REPEATED_FAILURES: usize = 3;
/// Maximum bytes that are reserved for the normalised arguments, which are rarely longer than the original ones.
const MAX_RESERVED_BYTES: usize = 4 << 10;

/// The outcome of a call.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum CallOutcome {
    Failed {
        /// The text of the error, clipped.
        error_text: String,
        cause: Defect,
    },
    Succeeded,
    /// Neither an error nor a result is recorded.
    Unknown,
}

/// A call in a form that can be compared.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attempt {
    /// Tool name and arguments, normalised; `None` when the arguments are not recorded.
    pub key: Option<String>,
    pub outcome: CallOutcome,
    /// Whether the tool only controls the run ([`ControlTools`](crate::recognise::ControlTools)): the call then has no
    /// effect and no result of its own.
    pub is_control: bool,
}

impl Attempt {
    pub(crate) fn failed(&self) -> bool {
        matches!(self.outcome, CallOutcome::Failed { .. })
    }

    /// Whether the call failed with an error that may disappear with time.
    fn is_transient(&self) -> bool {
        use Defect::{RateLimited, RetryAnnounced, ServiceDown, TimedOut};
        let CallOutcome::Failed { cause, .. } = self.outcome else { return false };
        matches!(cause, RateLimited | ServiceDown | TimedOut | RetryAnnounced)
    }
}

/// A failing call that repeats a failed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FailedRepeat {
    /// The call (index into [`AgentTrace::calls`]).
    pub call: usize,
    /// The first call with the same key.
    pub first: usize,
    /// The number of this call among the equal failing calls: 2 for the first repetition.
    pub nth: usize,
}

/// All attempts of a trace.
#[derive(Debug, Default)]
pub(crate) struct CallAttempts {
    /// `attempts[i]` belongs to `trace.calls[i]`.
    pub attempts: Vec<Attempt>,
    /// Unchanged repetitions of failed calls, in order of the calls.
    pub repeats: Vec<FailedRepeat>,
    /// The last repetition of each failed call, by the index of that repetition.
    last_repeats: HashMap<usize, FailedRepeat>,
    /// By the span of an agent, its first call that did not fail.
    first_not_failed: RefCell<HashMap<Idx, Option<usize>>>,
}

impl CallAttempts {
    /// The attempts of the trace, computed once.
    pub(crate) fn get(trace: &AgentTrace, memo: &Memo) -> Rc<CallAttempts> {
        memo.trace(|| CallAttempts::from_trace(trace, memo))
    }

    fn from_trace(trace: &AgentTrace, memo: &Memo) -> CallAttempts {
        let attempts: Vec<Attempt> = trace.calls.iter().map(|call| attempt(trace, memo, call)).collect();
        let mut repeats = Vec::new();
        for agent in &trace.agents {
            append_failing_repeats(trace, memo, &attempts, &agent.calls, &mut repeats);
        }
        repeats.sort_by_key(|r: &FailedRepeat| r.call);
        let by_first: HashMap<usize, FailedRepeat> = repeats.iter().map(|r| (r.first, *r)).collect();
        let last_repeats = by_first.into_values().map(|r| (r.call, r)).collect();
        CallAttempts { attempts, repeats, last_repeats, first_not_failed: RefCell::default() }
    }

    /// The first of `calls`, the calls of the agent with span `agent_span`, that did not fail and does more than
    /// control the run.
    pub(crate) fn first_not_failed(&self, agent_span: Idx, calls: &[usize]) -> Option<usize> {
        let has_not_failed = |i: &&usize| self.at(**i).is_some_and(|a| !a.is_control && !a.failed());
        *self
            .first_not_failed
            .borrow_mut()
            .entry(agent_span)
            .or_insert_with(|| calls.iter().find(has_not_failed).copied())
    }

    /// The repetition that is call `i`, if it is the last one of its failed call.
    pub(crate) fn last_repeat(&self, i: usize) -> Option<&FailedRepeat> {
        self.last_repeats.get(&i)
    }

    /// The attempt of call `i`.
    pub(crate) fn at(&self, i: usize) -> Option<&Attempt> {
        self.attempts.get(i)
    }

    /// Whether call `i` succeeded, and does more than control the run.
    pub(crate) fn has_succeeded(&self, i: usize) -> bool {
        self.at(i).is_some_and(|a| !a.is_control && a.outcome == CallOutcome::Succeeded)
    }
}

/// The attempt of one call.
fn attempt(trace: &AgentTrace, memo: &Memo, call: &Call) -> Attempt {
    let name = call.name.trim().to_ascii_lowercase();
    Attempt {
        key: call_key(&name, call),
        outcome: outcome(trace, memo, call),
        is_control: trace.control_tools.is_control(&name),
    }
}

/// How a call ended, by the mark of failure and the text of its result.
fn outcome(trace: &AgentTrace, memo: &Memo, call: &Call) -> CallOutcome {
    let error_text = match (&call.result, call.failed) {
        (Some(result), true) if !result.trim().is_empty() => Some(cause_excerpt(result).to_owned()),
        (_, true) => Some(cause_excerpt(span_error_text(trace, call).unwrap_or_default()).to_owned()),
        (Some(_), false) => reported_by(trace, memo, call),
        (None, false) => return CallOutcome::Unknown,
    };
    match error_text {
        Some(error_text) => CallOutcome::Failed { cause: cause_of_call(call, &error_text), error_text },
        None => CallOutcome::Succeeded,
    }
}

/// The text of the error that the tool's span records.
fn span_error_text<'a>(trace: &'a AgentTrace, call: &Call) -> Option<&'a str> {
    let signs = &trace.views.get(call.tool?)?.errors;
    signs.iter().find_map(|sign| sign.message.as_deref().or(sign.error_type.as_deref()))
}

/// The name, and the normalised arguments: keys sorted, white space collapsed, nulls removed. `None` if the arguments
/// are not recorded.
fn call_key(name: &str, call: &Call) -> Option<String> {
    let capacity = call.arguments.as_ref().map_or(0, |raw| raw.len().min(MAX_RESERVED_BYTES));
    let mut out = String::with_capacity(name.len() + 1 + capacity);
    out.push_str(name);
    out.push(' ');
    match (&call.parsed, &call.arguments) {
        (Some(value), _) => write_normalised(value, &mut out),
        (None, Some(raw)) => push_collapsed(raw, &mut out),
        // The result shows that content is recorded, so the tool was called without arguments.
        (None, None) if call.result.is_some() && !call.arguments_content.is_partial() => {}
        (None, None) => return None,
    }
    Some(out)
}

/// Appends a value as JSON without nulls, with sorted keys.
fn write_normalised(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().filter(|(_, v)| !v.is_null()).collect();
            entries.sort_by_key(|(k, _)| *k);
            out.push('{');
            for (key, value) in entries {
                out.push_str(key);
                out.push(':');
                write_normalised(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_normalised(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::String(text) => push_collapsed(text, out),
        other => _ = write!(out, "{other}"),
    }
}

/// Appends a text without leading and trailing white space, each other run of white space as one space.
fn push_collapsed(text: &str, out: &mut String) {
    let is_other_space = |byte: u8| matches!(byte, b'\t'..=b'\r');
    // The fold has no branches, so that the compiler can vectorise it.
    let has_other_space = text.bytes().fold(false, |any, byte| any | is_other_space(byte));
    let is_collapsed = text.is_ascii() && !has_other_space && !text.contains("  ");
    if is_collapsed && !text.starts_with(' ') && !text.ends_with(' ') {
        return out.push_str(text);
    }
    for (i, word) in text.split_whitespace().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        out.push_str(word);
    }
}

/// The failed calls so far with one key and the same error.
struct FailureRun<'a> {
    first: usize,
    last: usize,
    failures: usize,
    /// The number of successful calls of the agent before the last failure that may have changed a state.
    changes: usize,
    error_text: &'a str,
}

/// Appends the repetitions among the `calls` of one agent to `out`.
fn append_failing_repeats(
    trace: &AgentTrace,
    memo: &Memo,
    attempts: &[Attempt],
    calls: &[usize],
    out: &mut Vec<FailedRepeat>,
) {
    let mut runs: HashMap<&str, FailureRun<'_>> = HashMap::new();
    let mut changes = 0;
    for &i in calls {
        let (Some(attempt), Some(call)) = (attempts.get(i), trace.calls.get(i)) else { continue };
        let Some(key) = attempt.key.as_deref().filter(|_| !attempt.is_control) else { continue };
        let CallOutcome::Failed { error_text, .. } = &attempt.outcome else {
            if attempt.outcome == CallOutcome::Succeeded {
                runs.remove(key);
                // A lookup changes nothing, so that the failed call would fail again.
                changes += usize::from(!runs.is_empty() && purpose(trace, memo, call) == Purpose::Action);
            }
            continue;
        };
        let new_run = || FailureRun { first: i, last: i, failures: 0, changes, error_text };
        let run = runs.entry(key).or_insert_with(new_run);
        let is_same_request = run.last != i
            && call.llm.is_some()
            && trace.calls.get(run.last).is_some_and(|previous| previous.llm == call.llm);
        // A different error, or a change since the last failure, starts a new count.
        if run.changes != changes || !same_error(run.error_text, error_text) {
            *run = new_run();
        }
        run.last = i;
        // Both calls were requested in one model call, before either had failed.
        if is_same_request {
            continue;
        }
        run.failures += 1;
        let max_failures = if attempt.is_transient() { MAX_TRANSIENT_FAILURES } else { 1 };
        if run.failures > max_failures {
            out.push(FailedRepeat { call: i, first: run.first, nth: run.failures });
        }
    }
}

/// Whether two errors are equal apart from case, white space and digits, as in times and request ids.
fn same_error(one: &str, two: &str) -> bool {
    let is_compared = |c: &char| !c.is_numeric() && !c.is_whitespace();
    let letters =
        |text: &'_ str| -> String { text.chars().filter(is_compared).flat_map(char::to_lowercase).collect() };
    one == two || letters(one) == letters(two)
}

/// The model call that requested call `i`: the one that `recognise` linked, else the agent's last model call that
/// started before it.
pub(crate) fn author(trace: &AgentTrace, i: usize) -> Option<Idx> {
    let call = trace.calls.get(i)?;
    if call.llm.is_some() {
        return call.llm;
    }
    let agent = trace.agents.get(call.agent?)?;
    let has_started = |llm: &Idx| trace.tree.spans.get(*llm).is_some_and(|s| s.start <= call.start);
    let started_count = agent.llms.partition_point(has_started);
    started_count.checked_sub(1).and_then(|n| agent.llms.get(n)).copied()
}

/// The text by which a finding quotes a call: its recorded arguments, or the tool's name if there are none.
pub(crate) fn quoted(call: &Call) -> &str {
    let arguments = call.arguments.as_deref().map(str::trim).filter(|a| !a.is_empty());
    arguments.unwrap_or_else(|| call.name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::answer::final_answer;
    use crate::measure::testing::{Script, control_tools};

    const INVALID_URL_ERROR: &str = "Error: invalid url 'a.example': the scheme https:// is required";

    fn repeats(trace: &AgentTrace) -> Vec<usize> {
        CallAttempts::get(trace, &Memo::new()).repeats.iter().map(|r| r.nth).collect()
    }

    #[test]
    fn equal_failing_call_is_a_repeat_in_any_json_spelling() {
        let trace = Script::new("task")
            .calls("", &[("visit", r#"{"url":"a.example","n":1}"#)])
            .returns(INVALID_URL_ERROR)
            .calls("", &[("visit", r#"{ "n": 1, "url": " a.example" }"#)])
            .returns(INVALID_URL_ERROR)
            .calls("", &[("Visit", r#"{"url":"a.example","n":1,"x":null}"#)])
            .returns(INVALID_URL_ERROR)
            .build();
        assert_eq!(repeats(&trace), vec![2, 3]);
        assert_eq!(author(&trace, 1), trace.calls[1].llm);
    }

    #[test]
    fn final_answer_tools_of_the_configuration_are_control_tools() {
        let script_of_two_deliveries = || {
            Script::new("task")
                .calls("", &[("deliver_report", r#"{"text":"It is 836 m."}"#)])
                .returns(INVALID_URL_ERROR)
                .calls("", &[("deliver_report", r#"{"text":"It is 836 m."}"#)])
                .returns(INVALID_URL_ERROR)
                .build()
        };
        let mut trace = script_of_two_deliveries();
        let last = |trace: &AgentTrace| final_answer(&trace.control_tools, &trace.views[trace.calls[1].llm?]);
        assert_eq!((repeats(&trace), last(&trace)), (vec![2], None));
        let overrides = serde_json::from_str(r#"{ "final_answer_tools": ["deliver_report"] }"#).unwrap();
        trace.control_tools = control_tools(&overrides);
        assert_eq!((repeats(&trace), last(&trace).as_deref()), (vec![], Some("It is 836 m.")));
    }

    #[test]
    fn changed_arguments_or_an_intermediate_success_are_no_repeat() {
        let trace = Script::new("task")
            .calls("", &[("visit", r#"{"url":"a"}"#)])
            .returns(INVALID_URL_ERROR)
            .calls("", &[("visit", r#"{"url":"b"}"#)])
            .returns(INVALID_URL_ERROR)
            .calls("", &[("login", "{}")])
            .returns("welcome")
            .calls("", &[("visit", r#"{"url":"a"}"#)])
            .returns(INVALID_URL_ERROR)
            .build();
        assert!(repeats(&trace).is_empty());
    }

    #[test]
    fn repeats_are_counted_through_lookups_that_succeed() {
        let mut script = Script::new("task");
        for n in 0..3 {
            script = script
                .calls("", &[("charge_card", r#"{"order":"A-17"}"#)])
                .returns(&format!("Error: card declined (request {n})"))
                .calls("", &[("get_order", &format!(r#"{{"page":{n}}}"#))])
                .returns("order A-17: 3 items");
        }
        assert_eq!(repeats(&script.build()), vec![2, 3]);
    }

    #[test]
    fn call_with_another_error_each_time_is_no_repeat() {
        let mut script = Script::new("task");
        for error in ["Error: brush not found", "Error: canvas is locked", "Error: layer is missing"] {
            script = script.calls("", &[("paint", r#"{"layer":"sky"}"#)]).returns(error);
        }
        assert!(repeats(&script.build()).is_empty());
    }

    #[test]
    fn retry_that_succeeds_or_follows_a_transient_error_is_no_repeat() {
        let trace = Script::new("task")
            .calls("", &[("visit", "{}")])
            .raises("HTTP 503 Service Unavailable")
            .calls("", &[("visit", "{}")])
            .raises("HTTP 503 Service Unavailable")
            .calls("", &[("visit", "{}")])
            .returns("the page")
            .calls("", &[("run", r#"{"t":1}"#)])
            .returns("Error: bad")
            .calls("", &[("run", r#"{"t":1}"#)])
            .returns("fine")
            .build();
        assert!(repeats(&trace).is_empty());
    }

    #[test]
    fn third_call_after_transient_errors_is_a_repeat() {
        let mut script = Script::new("task");
        for _ in 0..4 {
            script = script.calls("", &[("visit", "{}")]).raises("HTTP 503 Service Unavailable");
        }
        assert_eq!(repeats(&script.build()), vec![3, 4]);
    }

    #[test]
    fn calls_of_one_model_call_do_not_repeat_each_other() {
        let trace = Script::new("task")
            .calls("", &[("visit", "{}"), ("visit", "{}")])
            .returns(INVALID_URL_ERROR)
            .returns(INVALID_URL_ERROR)
            .build();
        assert!(repeats(&trace).is_empty());
    }

    #[test]
    fn calls_without_content_are_no_repeats() {
        let trace = Script::new("task")
            .calls("", &[("visit", "{}")])
            .returns(INVALID_URL_ERROR)
            .calls("", &[("visit", "{}")])
            .returns(INVALID_URL_ERROR)
            .build_without_content();
        assert!(repeats(&trace).is_empty());
    }
}
