//! The lookups that excuse a statement of inability.
//!
//! In: the sentence, and the lookups of its agent before it. Out: the call or the retrieval that shows the lack, or
//! whether a lookup about the same subject was made. A call shows a lack if it found nothing or failed for a reason
//! other than the model, and is the last call or asked for the thing that the sentence names. A retrieval always
//! excuses the statement: it returns the nearest passages, which need not contain the answer.

use verdict_otlp::trace::{Idx, Kind};

use super::policy::Declined;
use crate::measure::calls::attempts::{CallAttempts, CallOutcome};
use crate::measure::calls::empty_result::is_nothing;
use crate::measure::failure_origin::is_external_failure;
use crate::measure::language::{WordClasses, classes, classes_in};
use crate::measure::numbers::has_digit;
use crate::measure::provenance::Provenance;
use crate::measure::records::{FieldValue, Records, Structure};
use crate::measure::tool_purpose::{Purpose, purpose, stems};
use crate::measure::{Context, Memo, without_effect};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Agent, Call};

/// Maximum calls that are read; the latest ones are.
const MAX_CALLS: usize = 32;
/// Maximum bytes of a result that may state that nothing was found.
const MAX_BYTES: usize = 1500;
/// Maximum words of a sentence that are compared with the arguments of calls.
const MAX_NAMES: usize = 8;

/// Words in keys of fields that contain a state, or a note or a rule about it.
pub(super) const STATE_KEYS: [&str; 18] = [
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
/// Classes of words that state a reason within a sentence. A number may state one as well.
const REASONS: WordClasses = classes!(Reason Already Sequence Restriction Condition);

/// The span of the lookup, if it has one, and the reason why it excuses the statement, as a suffix of a rationale.
pub(super) type Excuse = (Option<Idx>, &'static str);

/// The latest calls of the agent before the span, latest first, without those that only control the run.
fn latest_calls<'a>(
    context: &'a Context<'_>,
    agent: &'a Agent,
    attempts: &'a CallAttempts,
) -> impl Iterator<Item = (usize, &'a Call)> + Clone {
    let start = context.trace.tree.spans.get(context.at).map_or(0, |span| span.start);
    let call = |i: &usize| Some((*i, context.trace.calls.get(*i)?));
    let earlier_count = agent.calls.partition_point(|i| call(i).is_some_and(|(_, call)| call.start <= start));
    let earlier_calls = agent.calls.get(..earlier_count).unwrap_or_default().iter().rev().filter_map(call);
    earlier_calls.filter(|(i, _)| attempts.at(*i).is_some_and(|attempt| !attempt.is_control)).take(MAX_CALLS)
}

fn agent<'a>(context: &'a Context<'_>) -> Option<&'a Agent> {
    context.trace.agents.get(context.trace.owner.get(context.at).copied().flatten()?)
}

/// The excuse for the statement of inability in `sentence`; `None` if no lookup shows the lack.
pub(super) fn excuse(context: &Context<'_>, sentence: &str) -> Option<Excuse> {
    let agent = agent(context)?;
    let attempts = CallAttempts::get(context.trace, context.memo);
    let mut latest_calls = latest_calls(context, agent, &attempts).peekable();
    let Some(&(_, last)) = latest_calls.peek() else { return retrieval(context).map(after_retrieval) };
    // `first_not_failed` is computed once for each agent.
    let first_not_failed = attempts.first_not_failed(agent.at, &agent.calls);
    if first_not_failed.is_none_or(|first_not_failed| latest_calls.clone().all(|(i, _)| i < first_not_failed))
    {
        return Some((last.tool, ", and every call before it had failed: the failure is theirs"));
    }
    let names: Vec<&str> = words_with_digits(sentence).take(MAX_NAMES).collect();
    let asks_for = |call: &Call| {
        let arguments = call.arguments.as_deref().unwrap_or_default();
        names.iter().any(|word| contains_ignoring_case(arguments, word))
    };
    let has_found =
        latest_calls.clone().any(|(i, call)| asks_for(call) && !shows_lack(context, &attempts, i, call));
    let mut candidates =
        latest_calls.enumerate().filter(|(nth, (_, call))| *nth == 0 || !has_found && asks_for(call));
    let call_excuse = candidates.find(|(_, (i, call))| shows_lack(context, &attempts, *i, call));
    let call_excuse = call_excuse.map(|(_, (_, call))| {
        (call.tool, ", after a call that failed or found nothing: that there is nothing is its answer")
    });
    call_excuse.or_else(|| retrieval(context).map(after_retrieval))
}

/// The excuse by a retrieval of passages.
fn after_retrieval(span_index: Idx) -> Excuse {
    (Some(span_index), ", after passages were retrieved: that they lack it may be so")
}

/// The agent's last retrieval of passages before the span.
fn retrieval(context: &Context<'_>) -> Option<Idx> {
    let trace = context.trace;
    if !context.memo.budget.spend(1 + context.at / 16) {
        return None;
    }
    let owner = trace.owner.get(context.at).copied().flatten();
    let is_retrieval = |span_index: &Idx| {
        let view = trace.views.get(*span_index);
        view.is_some_and(|view| view.kind == Kind::Retriever && view.result.is_some())
    };
    (0..context.at).rev().find(|span_index| {
        is_retrieval(span_index) && trace.owner.get(*span_index).copied().flatten() == owner
    })
}

/// Whether the agent looked anything up before the span.
pub(super) fn has_made_lookup(context: &Context<'_>) -> bool {
    let attempts = CallAttempts::get(context.trace, context.memo);
    let has_called =
        agent(context).is_some_and(|agent| latest_calls(context, agent, &attempts).next().is_some());
    has_called || retrieval(context).is_some()
}

/// Whether a successful lookup was about the object of the declined action: its result may give the reason.
pub(super) fn is_looked_up(context: &Context<'_>, sentence: &str, declined: &Declined) -> bool {
    has_looked_up(context, sentence, declined, |_| true)
}

/// Whether the object of the declined action was looked up and the result or the sentence may give a reason. A record
/// that allows the action gives none.
pub(super) fn gives_reason(context: &Context<'_>, sentence: &str, declined: &Declined) -> bool {
    let states_reason = states_reason(context, sentence);
    has_looked_up(context, sentence, declined, |call| states_reason || may_forbid(call, context.memo))
}

/// Whether a sentence may give the reason why an action is impossible.
pub(super) fn states_reason(context: &Context<'_>, sentence: &str) -> bool {
    let classes = classes_in(sentence, None, context.memo);
    has_digit(sentence) || classes.is_none_or(|classes| classes.has_any(REASONS))
}

/// Whether a result may give the reason why an action is impossible: it has a flag that is false, a state or a note,
/// or it is text without structure.
fn may_forbid(call: &Call, memo: &Memo) -> bool {
    let Some(result) = &call.result else { return true };
    let structure = Structure::cached(result, memo);
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return true };
    let is_of_state = |word: &String| STATE_KEYS.contains(&word.as_str());
    parsed.records.iter().flat_map(|record| &record.fields).any(|field| match &field.value {
        FieldValue::Bool(flag) => !flag,
        FieldValue::Text(_) => field.name.iter().any(is_of_state),
        FieldValue::Number(_) => false,
    })
}

/// Whether the agent made a successful lookup about the object of the declined action for which `explains` is true.
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
        words_with_digits(sentence).take(MAX_NAMES).any(|word| contains_ignoring_case(arguments, word))
            || stems(&call.name.replace(['_', '-'], " ")).any(|word| declined.objects.contains(&word))
    };
    latest_calls(context, agent, &attempts).any(|(i, call)| {
        attempts.at(i).is_some_and(|attempt| attempt.outcome == CallOutcome::Succeeded)
            && is_about(call)
            && explains(call)
            && purpose(context.trace, context.memo, call) != Purpose::Action
    })
}

/// The words of a sentence that have at least two digits: such words are identifiers.
fn words_with_digits(sentence: &str) -> impl Iterator<Item = &str> {
    let words = sentence.split(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_')));
    let words = words.map(|word| word.trim_matches(['-', '_']));
    words.filter(|word| word.len() > 2 && word.bytes().filter(u8::is_ascii_digit).count() > 1)
}

/// Whether a call shows a lack for which the model is not at fault: it failed, found nothing, or had no effect.
fn shows_lack(context: &Context<'_>, attempts: &CallAttempts, i: usize, call: &Call) -> bool {
    let Some(attempt) = attempts.at(i) else { return false };
    match attempt.failed() {
        true => is_external_failure(context.trace, context.memo, attempt, call),
        false => {
            (is_empty(call, context.memo) || without_effect::reports_no_effect(call, context.memo))
                && Provenance::cached(context.trace, context.memo).invented(context.trace, call).is_none()
        }
    }
}

/// Whether the result of a lookup states that nothing was found: an empty result, an empty list, `found: false`.
pub(super) fn is_empty(call: &Call, memo: &Memo) -> bool {
    let Some(result) = call.result.as_ref().filter(|text| text.len() <= MAX_BYTES) else { return false };
    let states_lack = |records: &Records| {
        let flags = records.records.iter().flat_map(|record| &record.fields);
        let mut flags =
            flags.filter(|field| field.name.iter().any(|word| word == "found" || word == "exists"));
        let lists = &records.lists;
        !lists.is_empty() && lists.iter().all(|list| list.len == 0)
            || flags.any(|field| field.value == FieldValue::Bool(false))
    };
    is_nothing(result)
        || Structure::cached(result, memo).is_some_and(|parsed| parsed.0.as_ref().is_some_and(states_lack))
}
