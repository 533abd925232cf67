//! Things that the calls of an action omit: "living room, office and bathroom", and no call for the office.
//!
//! Principle: if several calls of one action pass one thing each, other things that a text lists together with them
//! need a call as well. A thing that the request joins to a passed thing by a comma or a conjunction has to be in a
//! call, a result or the answer. Each item of a list in the answer that is claimed as done has to be in a call.
//! [`joined`] compares pairs of which a call passes one thing only.
//!
//! In: the request of an outermost agent, its successful actions, and its answer. Out: one finding, on the model span
//! that wrote the answer.

mod joined;
mod listed;

use std::cell::OnceCell;
use std::collections::BTreeMap;

use serde_json::Value;
use verdict_otlp::trace::Idx;

use listed::{MAX_CALLS, MAX_TASK_BYTES, MAX_THING_BYTES, listed_thing, words_with_signs};

use super::conduct::Conduct;
use super::omitted_list_item::may_exclude;
use super::statements::contains_words;
use crate::measure::calls::attempts::{CallAttempts, CallOutcome};
use crate::measure::conversation::is_code_runner;
use crate::measure::defects::Defect;
use crate::measure::excerpt::lowercase;
use crate::measure::language::{Language, ReadText, WordClass};
use crate::measure::tool_purpose::{Purpose, action_of, purpose};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{AgentTrace, Call, Content};

/// Maximum bytes of an answer, for the same reason.
const MAX_ANSWER_BYTES: usize = 4_000;
/// Maximum bytes of the arguments and results of these calls.
const MAX_BYTES: usize = 64 << 10;
/// Minimum characters of a word that names a thing.
const MIN_THING_CHARS: usize = 4;
/// Bytes at the end of a word in which its forms may differ.
const ENDING_BYTES: usize = 2;
/// Minimum calls of one action that pass different things.
const MIN_CALLS: usize = 2;
/// Maximum things of a list.
const MAX_LISTED: usize = 20;

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    if conduct.agent.parent.is_some() {
        return None;
    }
    omitted_of_several(conduct).or_else(|| {
        let agent = conduct.agent;
        let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
        let calls = &conduct.trace.calls;
        let is_examined = !conduct.trace.incomplete
            && answer.len() <= MAX_ANSWER_BYTES
            && (1..=MAX_CALLS).contains(&calls.len());
        let (tool, thing) = joined::omitted(conduct, answer).filter(|_| is_examined)?;
        Some((agent.answer_at?, finding_on_request(tool, &thing, answer)))
    })
}

/// The finding on a thing that the request names beside others.
fn finding_on_request(tool: &str, thing: &str, answer: &str) -> Finding {
    let rationale = format!(
        "a call of {tool} for \"{thing}\", or the reason why there is none, was expected, since the request names it \
         beside the others"
    );
    Defect::PartUnanswered.finding(rationale, answer)
}

/// The finding on an agent with calls for several things.
fn omitted_of_several(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, attempts, agent, .. } = *conduct;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    let is_examined = !trace.incomplete
        && answer.len() <= MAX_ANSWER_BYTES
        && (MIN_CALLS..=MAX_CALLS).contains(&trace.calls.len())
        && !trace.calls.iter().any(|call| call.arguments.is_none() || is_code_runner(&call.name, memo));
    if !is_examined {
        return None;
    }
    let passed = passed_things(trace, memo, attempts);
    if passed.is_empty() {
        return None;
    }
    let arguments = trace.calls.iter().filter_map(|call| call.arguments.as_deref());
    let results = trace.calls.iter().filter_map(|call| call.result.as_deref());
    let bytes: usize = arguments.clone().chain(results.clone()).map(str::len).sum();
    if bytes > MAX_BYTES || !memo.budget.spend(bytes / BYTES_PER_STEP + answer.len() / 4) {
        return None;
    }
    let texts: Vec<&str> = arguments.clone().chain(results).chain([answer]).collect();
    let at = agent.answer_at?;
    let task = conduct.task(MAX_TASK_BYTES);
    let lower = task.map(|task| lowercase(task)).unwrap_or_default();
    let task_words_and_language = OnceCell::new();
    let omitted_thing = passed.iter().find_map(|(tool, things)| {
        let is_known = |thing: &str| {
            let stem =
                thing.get(..thing.floor_char_boundary(MIN_THING_CHARS.max(thing.len() - ENDING_BYTES)));
            stem.is_none_or(|stem| texts.iter().any(|text| contains_ignoring_case(text, stem)))
        };
        memo.budget.spend(things.len() * texts.len()).then_some(())?;
        // Most requests name none of the things, and need not be split into words.
        things.iter().filter(|thing| may_be_named(thing, &lower)).nth(MIN_CALLS - 1)?;
        let (task_words, language) = task_words_and_language.get_or_init(|| {
            let language = task.and_then(|task| Language::detected(task, None, memo));
            (task.map(|task| words_with_signs(task)).unwrap_or_default(), language)
        });
        Some((tool, joined_things(task_words, things, *language).into_iter().find(|thing| !is_known(thing))?))
    });
    let omitted_thing = omitted_thing.filter(|_| task.is_some_and(|task| !may_exclude(task, memo)));
    if let Some((tool, thing)) = omitted_thing {
        return Some((at, finding_on_request(tool, &thing, answer)));
    }
    let calls: Vec<&str> = arguments.collect();
    let (tool, thing) = passed
        .iter()
        .find_map(|(tool, things)| Some((tool, claimed_thing(answer, things, &calls, memo)?)))?;
    let rationale =
        format!("a call of {tool} for {thing} was expected, since the answer lists it among what was done");
    Some((at, Defect::FalseClaim.finding(rationale, thing)))
}

/// By tool, the things that its successful actions pass one by one under the same key.
fn passed_things<'t>(
    trace: &'t AgentTrace,
    memo: &Memo,
    attempts: &CallAttempts,
) -> Vec<(&'t str, Vec<&'t str>)> {
    let mut values_by_key: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (i, call) in trace.calls.iter().enumerate() {
        let has_succeeded = attempts.at(i).is_some_and(|a| a.outcome == CallOutcome::Succeeded);
        if !has_succeeded || purpose(trace, memo, call) != Purpose::Action {
            continue;
        }
        for (key, value) in text_arguments(call) {
            let values = values_by_key.entry((call.name.trim(), key)).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    values_by_key
        .into_iter()
        .filter(|(_, values)| values.len() >= MIN_CALLS)
        .map(|((tool, _), values)| (tool, values))
        .collect()
}

/// The short texts among the arguments of a call, by key.
fn text_arguments(call: &Call) -> impl Iterator<Item = (&str, &str)> {
    let arguments = call.parsed.as_deref().and_then(Value::as_object).into_iter().flatten();
    arguments.filter_map(|(key, value)| {
        let text = value.as_str()?.trim();
        (!text.is_empty() && text.len() <= MAX_THING_BYTES && !text.contains('\n'))
            .then_some((key.as_str(), text))
    })
}

/// Whether a request in lower case may name a thing: it has the first run of letters and digits of the name.
fn may_be_named(thing: &str, request: &str) -> bool {
    let mut runs = thing.split(|c: char| !c.is_ascii_alphanumeric()).filter(|run| !run.is_empty());
    runs.next().is_none_or(|run| request.contains(&run.to_ascii_lowercase()))
}

/// The single words that a request joins to one of the things, if it names at least [`MIN_CALLS`] of the things.
fn joined_things(task_words: &str, things: &[&str], language: Option<Language>) -> Vec<String> {
    let plain = |thing: &&str| format!(" {} ", thing.to_lowercase().replace(['_', '-'], " "));
    let named: Vec<String> =
        things.iter().map(plain).filter(|thing| task_words.contains(thing.as_str())).collect();
    let words_after: Vec<Vec<&str>> = match named.len() >= MIN_CALLS {
        true => named
            .iter()
            .filter_map(|t| Some(task_words.split_once(t.as_str())?.1.split(' ').collect()))
            .collect(),
        false => Vec::new(),
    };
    // A word after one thing of the list may follow each of them: "to 21".
    let next_words: Vec<&str> = words_after.iter().filter_map(|words| words.first().copied()).collect();
    let is_end = |word: &str| word == "." || word == ",";
    let is_conjunction =
        |word: &str| language.is_some_and(|language| language.classes(word).has(WordClass::Conjunction));
    let is_joining = |word: &str| matches!(word, "," | "&" | "plus") || is_conjunction(word);
    let is_thing = |word: &str| {
        word.chars().count() >= MIN_THING_CHARS
            && word.chars().all(char::is_alphabetic)
            && action_of(word).is_none()
    };
    let joined = words_after.iter().filter_map(|words_after| {
        let mut words = words_after.iter().copied().skip_while(|word| is_joining(word)).peekable();
        let is_joined = words_after.first().is_some_and(|word| is_joining(word));
        // Skip an article.
        if words.peek().is_some_and(|word| word.chars().count() < MIN_THING_CHARS && !is_end(word)) {
            words.next();
        }
        let (word, next) = (words.next()?, words.next()?);
        let is_complete = is_end(next) || is_joining(next) || next_words.contains(&next);
        let is_known = named.iter().any(|thing| contains_words(thing, word));
        (is_joined && is_complete && is_thing(word) && !is_known).then(|| word.to_owned())
    });
    joined.collect()
}

/// The only item of a list in the answer that no call passes, if calls pass the other items and the text before the
/// list claims an action as done.
fn claimed_thing<'a>(answer: &'a str, things: &[&str], arguments: &[&str], memo: &Memo) -> Option<&'a str> {
    let lines = || answer.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines().position(|line| listed_thing(line).is_some())?;
    let listed: Vec<&str> = lines().skip(first).map_while(listed_thing).take(MAX_LISTED).collect();
    let lead = answer.get(..answer.find(listed.first()?)?)?;
    let is_passed = |thing: &str| things.iter().any(|other| other.eq_ignore_ascii_case(thing));
    let (done, missing): (Vec<&str>, Vec<&str>) = listed.iter().partition(|thing| is_passed(thing));
    let [thing] = missing.as_slice() else { return None };
    let is_in_a_call = arguments.iter().any(|text| contains_ignoring_case(text, &thing.to_lowercase()));
    let claims = || {
        let claims = ReadText::new(lead, None, memo).claims_of_done_action();
        claims.iter().any(|claim| !claim.action.is_work())
    };
    (done.len() >= MIN_CALLS && !is_in_a_call && claims()).then_some(*thing)
}
