//! The lookups that a statement of inability rests on.
//!
//! In: the sentence, and what its agent looked up before it. Out: the call or the retrieval that shows the lack, or
//! that a lookup about the same thing was made. A call shows it if it found nothing or failed through no fault of the
//! model, and is the last one, or asked for what the sentence names. Retrieved passages are the nearest ones, whether
//! or not they have the answer.

use verdict_otlp::trace::{Idx, Kind};

use super::policy::Declined;
use crate::measure::calls::attempts::{CallAttempts, CallOutcome};
use crate::measure::calls::empty_result::is_nothing;
use crate::measure::failure_origin::is_of_others;
use crate::measure::language::{WordClasses, classes, classes_in};
use crate::measure::numbers::has_digit;
use crate::measure::provenance::Provenance;
use crate::measure::records::{FieldValue, Records, Structure};
use crate::measure::tool_purpose::{Purpose, purpose, stems};
use crate::measure::{Context, Memo, without_effect};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Agent, Call};

/// Most calls, the latest ones, that are read.
const MAX_CALLS: usize = 32;
/// Maximum bytes of a result that says that there is nothing.
const MAX_BYTES: usize = 1500;
/// Most words of a sentence that name something.
const MAX_NAMED: usize = 8;

/// Words of keys of a state, or of what is to be known about it.
const STATES: [&str; 18] = [
    "status",
    "state",
    "stage",
    "phase",
    "reason",
    "note",
    "notes",
    "message",
    "policy",
    "rule",
    "rules",
    "terms",
    "restriction",
    "at",
    "until",
    "deadline",
    "expires",
    "closed",
];
/// Words of a reason within a sentence, besides figures that may be one.
const REASONS: WordClasses = classes!(Reason Already Sequence Restriction Condition);

/// The span that a lack comes from, if it has one, and why it excuses the statement of it.
pub(super) type Excuse = (Option<Idx>, &'static str);

/// The latest calls of the agent before the span, latest first, without those that only control the run.
fn latest<'a>(
    context: &'a Context<'_>,
    agent: &'a Agent,
    attempts: &'a CallAttempts,
) -> impl Iterator<Item = (usize, &'a Call)> + Clone {
    let start = context.trace.tree.spans.get(context.at).map_or(0, |span| span.start);
    let call = |i: &usize| Some((*i, context.trace.calls.get(*i)?));
    let started = agent.calls.partition_point(|i| call(i).is_some_and(|(_, call)| call.start <= start));
    let earlier_calls = agent.calls.get(..started).unwrap_or_default().iter().rev().filter_map(call);
    earlier_calls.filter(|(i, _)| attempts.at(*i).is_some_and(|attempt| !attempt.is_control)).take(MAX_CALLS)
}

fn agent<'a>(context: &'a Context<'_>) -> Option<&'a Agent> {
    context.trace.agents.get(context.trace.owner.get(context.at).copied().flatten()?)
}

/// The excuse for the statement of inability in `sentence`.
pub(super) fn excuse(context: &Context<'_>, sentence: &str) -> Option<Excuse> {
    let agent = agent(context)?;
    let attempts = CallAttempts::get(context.trace, context.memo);
    let mut latest_calls = latest(context, agent, &attempts).peekable();
    let Some(&(_, last)) = latest_calls.peek() else { return retrieval(context).map(after_retrieval) };
    // The first call that did not fail is found once for each agent.
    let first = attempts.first_unfailed(agent.at, &agent.calls);
    if first.is_none_or(|first| latest_calls.clone().all(|(i, _)| i < first)) {
        return Some((last.tool, ", and every call before it had failed: the failure is theirs"));
    }
    let named: Vec<&str> = numbered(sentence).take(MAX_NAMED).collect();
    let asks_for = |call: &Call| {
        let arguments = call.arguments.as_deref().unwrap_or_default();
        named.iter().any(|word| contains_ignoring_case(arguments, word))
    };
    let found =
        latest_calls.clone().any(|(i, call)| asks_for(call) && !shows_lack(context, &attempts, i, call));
    let mut showing =
        latest_calls.enumerate().filter(|(nth, (_, call))| *nth == 0 || !found && asks_for(call));
    let shown = showing.find(|(_, (i, call))| shows_lack(context, &attempts, *i, call));
    let shown = shown.map(|(_, (_, call))| {
        (call.tool, ", after a call that failed or found nothing: that there is nothing is its answer")
    });
    shown.or_else(|| retrieval(context).map(after_retrieval))
}

fn after_retrieval(at: Idx) -> Excuse {
    (Some(at), ", after passages were retrieved: that they lack it may be so")
}

/// The agent's last retrieval of passages before the span.
fn retrieval(context: &Context<'_>) -> Option<Idx> {
    let trace = context.trace;
    if !context.memo.budget.spend(1 + context.at / 16) {
        return None;
    }
    let owner = trace.owner.get(context.at).copied().flatten();
    let is_retrieval = |at: &Idx| {
        let view = trace.views.get(*at);
        view.is_some_and(|view| view.kind == Kind::Retriever && view.result.is_some())
    };
    (0..context.at).rev().find(|at| is_retrieval(at) && trace.owner.get(*at).copied().flatten() == owner)
}

/// Whether the agent looked anything up before the span.
pub(super) fn has_looked(context: &Context<'_>) -> bool {
    let attempts = CallAttempts::get(context.trace, context.memo);
    let called = agent(context).is_some_and(|agent| latest(context, agent, &attempts).next().is_some());
    called || retrieval(context).is_some()
}

/// Whether the thing that a sentence declines to act on was looked up: the result may say why.
pub(super) fn looked_up(context: &Context<'_>, sentence: &str, declined: &Declined) -> bool {
    has_looked_up(context, sentence, declined, |_| true)
}

/// Whether the thing was looked up, and the result or the sentence gives a reason. Without any, a record that allows
/// the action explains nothing.
pub(super) fn gives_reason(context: &Context<'_>, sentence: &str, declined: &Declined) -> bool {
    let classes = classes_in(sentence, None, context.memo);
    let says_why = has_digit(sentence) || classes.is_none_or(|classes| classes.has_any(REASONS));
    has_looked_up(context, sentence, declined, |call| says_why || may_forbid(call, context.memo))
}

/// Whether a result may say why something cannot be done: it has a flag that is false, a state or a note, or is a text.
fn may_forbid(call: &Call, memo: &Memo) -> bool {
    let Some(result) = &call.result else { return true };
    let structure = Structure::cached(result, memo);
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return true };
    let is_of_state = |word: &String| STATES.contains(&word.as_str());
    parsed.records.iter().flat_map(|record| &record.fields).any(|field| match &field.value {
        FieldValue::Bool(holds) => !holds,
        FieldValue::Text(_) => field.name.iter().any(is_of_state),
        FieldValue::Number(_) => false,
    })
}

fn has_looked_up(
    context: &Context<'_>,
    sentence: &str,
    declined: &Declined,
    explains: impl Fn(&Call) -> bool,
) -> bool {
    let Some(agent) = agent(context) else { return false };
    let attempts = CallAttempts::get(context.trace, context.memo);
    let is_about = |call: &Call| {
        let arguments = call.arguments.as_deref().unwrap_or_default();
        numbered(sentence).take(MAX_NAMED).any(|word| contains_ignoring_case(arguments, word))
            || stems(&call.name.replace(['_', '-'], " ")).any(|word| declined.objects.contains(&word))
    };
    latest(context, agent, &attempts).any(|(i, call)| {
        attempts.at(i).is_some_and(|attempt| attempt.outcome == CallOutcome::Succeeded)
            && is_about(call)
            && explains(call)
            && purpose(context.trace, context.memo, call) != Purpose::Action
    })
}

/// The words of a sentence with digits, which name one thing.
fn numbered(sentence: &str) -> impl Iterator<Item = &str> {
    let words = sentence.split(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_')));
    let words = words.map(|word| word.trim_matches(['-', '_']));
    words.filter(|word| word.len() > 2 && word.bytes().filter(u8::is_ascii_digit).count() > 1)
}

/// Whether a call that the model did not get wrong shows a lack: it failed, found nothing, or had no effect.
fn shows_lack(context: &Context<'_>, attempts: &CallAttempts, i: usize, call: &Call) -> bool {
    let Some(attempt) = attempts.at(i) else { return false };
    match attempt.failed() {
        true => is_of_others(context.trace, context.memo, attempt, call),
        false => {
            (is_empty(call, context.memo) || without_effect::reports_none(call, context.memo))
                && Provenance::cached(context.trace, context.memo).invented(context.trace, call).is_none()
        }
    }
}

/// Whether a lookup says that there is nothing: an empty result, an empty list, `found: false`.
fn is_empty(call: &Call, memo: &Memo) -> bool {
    let Some(result) = call.result.as_ref().filter(|text| text.len() <= MAX_BYTES) else { return false };
    let has_nothing = |records: &Records| {
        let flags = records.records.iter().flat_map(|record| &record.fields);
        let mut flags =
            flags.filter(|field| field.name.iter().any(|word| word == "found" || word == "exists"));
        let lists = &records.lists;
        !lists.is_empty() && lists.iter().all(|list| list.len == 0)
            || flags.any(|field| field.value == FieldValue::Bool(false))
    };
    is_nothing(result)
        || Structure::cached(result, memo).is_some_and(|parsed| parsed.0.as_ref().is_some_and(has_nothing))
}
