//! Every tool call as an attempt: its arguments made comparable, and how it ended.
//!
//! In: the calls of a trace. Out: one [`Attempt`] a call, and the failing calls that were made
//! again unchanged (001, table 2, tool abuse).
//! A retry is no fault by itself: a transient outage deserves one, a success between two calls may
//! have changed the state that the second one meets, and a retry that succeeds was right.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use serde_json::Value;
use verdict_otlp::trace::Idx;

use crate::measure::Memo;
use crate::measure::defects::{Defect, QUOTE_BYTES};
use crate::measure::error_detection::signs::reported;
use crate::measure::error_kind::{cause, cause_excerpt};
use crate::recognise::{AgentTrace, Call};

/// How often a call may be made in vain before the next is a fault, when the error says that
/// waiting may help (rate limit, outage, timeout): once more.
const TRANSIENT_TRIES: usize = 2;

/// How a call ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum CallOutcome {
    /// In an error: its text, and whether waiting may help.
    Failed {
        /// What it said, clipped.
        error_text: String,
        /// What caused it.
        cause: Defect,
    },
    /// With a result.
    Succeeded,
    /// Nothing tells.
    Unknown,
}

/// A call made comparable.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attempt {
    /// Tool name and arguments, normalised; `None` when the arguments are not recorded.
    pub key: Option<Rc<str>>,
    pub outcome: CallOutcome,
    /// The tool only controls the run ([`ControlTools`](crate::recognise::ControlTools)): the call finds out and changes nothing.
    pub is_control: bool,
}

impl Attempt {
    /// Ended in an error.
    pub(crate) fn failed(&self) -> bool {
        matches!(self.outcome, CallOutcome::Failed { .. })
    }

    /// Waiting may help.
    pub(crate) fn transient(&self) -> bool {
        matches!(
            self.outcome,
            CallOutcome::Failed {
                cause: Defect::RateLimited | Defect::ServiceDown | Defect::TimedOut | Defect::RetryAnnounced,
                ..
            }
        )
    }
}

/// A failing call that repeats a failed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Repeat {
    /// The call (index into [`AgentTrace::calls`]).
    pub call: usize,
    /// The first of its kind.
    pub first: usize,
    /// 2 for the first repetition.
    pub nth: usize,
}

/// All attempts of a trace: `of[i]` belongs to `trace.calls[i]`.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// One a call.
    pub of: Vec<Attempt>,
    /// Unchanged repetitions of failed calls, in order of the calls.
    pub repeats: Vec<Repeat>,
    /// The last repetition of each failed call, by the call that makes it.
    ends: HashMap<usize, Repeat>,
}

impl Attempts {
    /// Those of the trace, computed once.
    pub(crate) fn get(trace: &AgentTrace, memo: &Memo) -> Rc<Attempts> {
        memo.trace(|| Attempts::of_trace(trace, memo))
    }

    fn of_trace(trace: &AgentTrace, memo: &Memo) -> Attempts {
        let mut keys: HashMap<String, Rc<str>> = HashMap::new();
        let of: Vec<Attempt> = trace.calls.iter().map(|call| attempt(trace, memo, call, &mut keys)).collect();
        let mut repeats = Vec::new();
        for agent in &trace.agents {
            failing_repeats(trace, &of, &agent.calls, &mut repeats);
        }
        repeats.sort_by_key(|r: &Repeat| r.call);
        let last: HashMap<usize, Repeat> = repeats.iter().map(|r| (r.first, *r)).collect();
        let ends = last.into_values().map(|r| (r.call, r)).collect();
        Attempts { of, repeats, ends }
    }

    /// The repetition that call `i` is, where it is the last of its kind.
    pub(crate) fn ending(&self, i: usize) -> Option<&Repeat> {
        self.ends.get(&i)
    }

    /// The attempt of call `i`.
    pub(crate) fn at(&self, i: usize) -> Option<&Attempt> {
        self.of.get(i)
    }
}

fn attempt(trace: &AgentTrace, memo: &Memo, call: &Call, keys: &mut HashMap<String, Rc<str>>) -> Attempt {
    let name = call.name.trim().to_ascii_lowercase();
    let key = arguments_key(call).map(|arguments| {
        let key = format!("{name} {arguments}");
        keys.entry(key).or_insert_with_key(|k| Rc::from(k.as_str())).clone()
    });
    Attempt { key, outcome: outcome(trace, memo, call), is_control: trace.control_tools.is_control(&name) }
}

fn outcome(trace: &AgentTrace, memo: &Memo, call: &Call) -> CallOutcome {
    let error_text = match (&call.result, call.failed) {
        (Some(result), true) if !result.trim().is_empty() => {
            Some(cause_excerpt(result, QUOTE_BYTES).to_owned())
        }
        (_, true) => Some(span_error_text(trace, call)),
        (Some(result), false) => reported(memo, result),
        (None, false) => return CallOutcome::Unknown,
    };
    match error_text {
        Some(error_text) => CallOutcome::Failed { cause: cause(&error_text), error_text },
        None => CallOutcome::Succeeded,
    }
}

/// What the tool span itself says of its error.
fn span_error_text(trace: &AgentTrace, call: &Call) -> String {
    let signs = call.tool.and_then(|at| trace.views.get(at)).map(|r| r.errors.as_slice());
    let error_text = signs.unwrap_or_default().iter().find_map(|e| e.message.as_ref().or(e.kind.as_ref()));
    error_text.map_or_else(String::new, |t| cause_excerpt(t, QUOTE_BYTES).to_owned())
}

/// The arguments in one spelling: keys sorted, space collapsed.
fn arguments_key(call: &Call) -> Option<String> {
    let mut out = String::new();
    match (&call.parsed, &call.arguments) {
        (Some(value), _) => write_value(value, &mut out),
        (None, Some(raw)) => collapse(raw, &mut out),
        // A tool without parameters is called without arguments; told from missing content by
        // the result being there.
        (None, None) if call.result.is_some() => {}
        (None, None) => return None,
    }
    Some(out)
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().filter(|(_, v)| !v.is_null()).collect();
            entries.sort_by_key(|(k, _)| *k);
            out.push('{');
            for (key, value) in entries {
                out.push_str(key);
                out.push(':');
                write_value(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_value(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::String(text) => collapse(text, out),
        other => out.push_str(&other.to_string()),
    }
}

fn collapse(text: &str, out: &mut String) {
    for (i, word) in text.split_whitespace().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        out.push_str(word);
    }
}

/// What is known of the calls of one key so far.
struct FailureRun {
    first: usize,
    last: usize,
    failures: usize,
    /// How many successes the agent had had when it last failed.
    successes: usize,
}

fn failing_repeats(trace: &AgentTrace, attempts: &[Attempt], calls: &[usize], out: &mut Vec<Repeat>) {
    let mut rows: HashMap<&str, FailureRun> = HashMap::new();
    let mut successes = 0;
    for &i in calls {
        let (Some(attempt), Some(call)) = (attempts.get(i), trace.calls.get(i)) else { continue };
        let Some(key) = attempt.key.as_deref().filter(|_| !attempt.is_control) else { continue };
        if !attempt.failed() {
            if attempt.outcome == CallOutcome::Succeeded {
                successes += 1;
                rows.remove(key);
            }
            continue;
        }
        let row = rows.entry(key).or_insert(FailureRun { first: i, last: i, failures: 0, successes });
        let together = row.last != i
            && call.llm.is_some()
            && trace.calls.get(row.last).is_some_and(|before| before.llm == call.llm);
        if row.successes != successes {
            *row = FailureRun { first: i, last: i, failures: 0, successes };
        }
        row.last = i;
        if together {
            continue; // asked for side by side, before either had failed
        }
        row.failures += 1;
        let allowed = if attempt.transient() { TRANSIENT_TRIES } else { 1 };
        if row.failures > allowed {
            out.push(Repeat { call: i, first: row.first, nth: row.failures });
        }
    }
}

/// The model span that asked for call `i`: the one that recognition linked, else the agent's last
/// model call before it.
pub(crate) fn author(trace: &AgentTrace, i: usize) -> Option<Idx> {
    let call = trace.calls.get(i)?;
    if call.llm.is_some() {
        return call.llm;
    }
    let agent = trace.agents.get(call.agent?)?;
    let before = |llm: &Idx| trace.tree.spans.get(*llm).is_some_and(|s| s.start <= call.start);
    let known = agent.llms.partition_point(before);
    known.checked_sub(1).and_then(|n| agent.llms.get(n)).copied()
}

/// The arguments as they were written, or the tool's name where there are none: what can be quoted
/// of a call.
pub(crate) fn quoted(call: &Call) -> &str {
    let arguments = call.arguments.as_deref().map(str::trim).filter(|a| !a.is_empty());
    arguments.unwrap_or_else(|| call.name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::answer::final_answer;
    use crate::measure::testing::{Script, control_tools};

    const BAD: &str = "Error: invalid url 'a.example': the scheme https:// is required";

    fn repeats(trace: &AgentTrace) -> Vec<usize> {
        Attempts::get(trace, &Memo::new()).repeats.iter().map(|r| r.nth).collect()
    }

    #[test]
    fn the_same_failing_call_again_is_a_repeat_however_its_json_is_spelt() {
        let trace = Script::new("task")
            .calls("", &[("visit", r#"{"url":"a.example","n":1}"#)])
            .returns(BAD)
            .calls("", &[("visit", r#"{ "n": 1, "url": " a.example" }"#)])
            .returns(BAD)
            .calls("", &[("Visit", r#"{"url":"a.example","n":1,"x":null}"#)])
            .returns(BAD)
            .build();
        assert_eq!(repeats(&trace), vec![2, 3]);
        assert_eq!(author(&trace, 1), trace.calls[1].llm);
    }

    #[test]
    fn rules_use_the_final_answer_tools_of_the_configuration() {
        let deliver = || {
            Script::new("task")
                .calls("", &[("deliver_report", r#"{"text":"It is 836 m."}"#)])
                .returns(BAD)
                .calls("", &[("deliver_report", r#"{"text":"It is 836 m."}"#)])
                .returns(BAD)
                .build()
        };
        let mut trace = deliver();
        let last = |trace: &AgentTrace| final_answer(&trace.control_tools, &trace.views[trace.calls[1].llm?]);
        assert_eq!((repeats(&trace), last(&trace)), (vec![2], None));
        let overrides = serde_json::from_str(r#"{ "final_answer_tools": ["deliver_report"] }"#).unwrap();
        trace.control_tools = control_tools(&overrides);
        assert_eq!((repeats(&trace), last(&trace).as_deref()), (vec![], Some("It is 836 m.")));
    }

    #[test]
    fn changed_arguments_or_a_success_between_make_it_no_repeat() {
        let trace = Script::new("task")
            .calls("", &[("visit", r#"{"url":"a"}"#)])
            .returns(BAD)
            .calls("", &[("visit", r#"{"url":"b"}"#)])
            .returns(BAD)
            .calls("", &[("login", "{}")])
            .returns("welcome")
            .calls("", &[("visit", r#"{"url":"a"}"#)])
            .returns(BAD)
            .build();
        assert!(repeats(&trace).is_empty());
    }

    #[test]
    fn a_retry_that_succeeds_or_follows_an_outage_is_no_repeat() {
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
    fn an_outage_does_not_excuse_endless_retries() {
        let mut script = Script::new("task");
        for _ in 0..4 {
            script = script.calls("", &[("visit", "{}")]).raises("HTTP 503 Service Unavailable");
        }
        assert_eq!(repeats(&script.build()), vec![3, 4]);
    }

    #[test]
    fn calls_side_by_side_do_not_repeat_each_other() {
        let trace = Script::new("task")
            .calls("", &[("visit", "{}"), ("visit", "{}")])
            .returns(BAD)
            .returns(BAD)
            .build();
        assert!(repeats(&trace).is_empty());
    }

    #[test]
    fn without_content_nothing_is_said_to_repeat() {
        let trace = Script::new("task")
            .calls("", &[("visit", "{}")])
            .returns(BAD)
            .calls("", &[("visit", "{}")])
            .returns(BAD)
            .build_without_content();
        assert!(repeats(&trace).is_empty());
    }
}
