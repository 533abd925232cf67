//! Inability that is claimed without trying: "I cannot look up your bookings" where a tool that does so was
//! offered and never called.
//!
//! Principle: who has a tool for a thing tries the tool before claiming an inability: the claim is untested. Whether
//! the tool would have succeeded is not said.
//!
//! In: a sentence of a model that states an inability. Out: the tool, if one was offered whose name or
//! description shares the action and the object, no call of it is in the run, no instruction limits it, and what it is
//! about was not looked up with a result that may say why; or a tool that opens what a lookup pointed to.
//! A thing that the speaker calls the user's own ("your balance"), and that the instructions name, is searched in the
//! user's record.

use foldhash::HashSet;

use super::excuse::gives_reason;
use super::policy::{Declined, MAX_BYTES, is_grounded};
use crate::measure::calls::call_index::CallIndex;
use crate::measure::excerpt::clip;
use crate::measure::identifier::identifier_words;
use crate::measure::language::Action;
use crate::measure::records::Structure;
use crate::measure::tool_purpose::{ToolObjects, ToolPurpose, are_alike, offered, stems};
use crate::measure::{Context, agent_index};
use crate::recognise::{Part, SpanView, Text};

/// Who a user's record belongs to.
const RECORDS: [&str; 11] = [
    "user",
    "customer",
    "account",
    "profile",
    "client",
    "member",
    "guest",
    "patient",
    "subscriber",
    "passenger",
    "employee",
];
/// The sentence is about what is missing, not about what cannot be done.
const CONDITIONS: [&str; 6] = ["without", "until", "unless", "before", "if", "yet"];

/// Verbs of tools that open what a lookup names.
const OPENS: [&str; 8] = ["open", "read", "fetch", "get", "view", "visit", "load", "download"];
/// Most calls, the latest ones, whose results may point to something, and words that a row shares with the sentence.
const MAX_CALLS: usize = 16;
const MIN_SHARED: usize = 2;

/// The name of the tool that was not tried.
pub(super) fn untried<'t>(
    context: &Context<'t>,
    view: &SpanView,
    sentence: &str,
    declined: &Declined,
) -> Option<&'t str> {
    let trace = context.trace;
    let agent = trace.owner.get(context.at).copied().flatten()?;
    let lower = sentence.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    if words.clone().any(|word| CONDITIONS.contains(&word)) {
        return None;
    }
    let mentions_your = words.any(|word| word == "your");
    let instructions = agent_index::instructions(trace, agent).map(|text| &**text).unwrap_or_default();
    if !context.memo.budget.spend(instructions.len() / 16) {
        return None;
    }
    let is_known = || stems(clip(instructions, MAX_BYTES)).any(|word| declined.objects.contains(&word));
    let calls = CallIndex::cached(trace, context.memo);
    let candidates = offered(trace, agent).filter_map(|tool| {
        let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
        let ToolObjects(objects) = ToolObjects::new(&tool.name, tool.description.as_deref());
        let is_close = |does: &Action| are_close(declined.action, *does);
        let does = match declined.is_information() {
            true => purpose.is_query(),
            false => !purpose.is_query() && purpose.actions.iter().any(is_close),
        };
        let in_record =
            mentions_your && declined.is_information() && RECORDS.iter().any(|r| objects.contains(*r));
        let named = stems(&tool.name).filter(|word| declined.objects.contains(word)).count();
        let shared = named + objects.intersection(&declined.objects).count();
        let fit = if shared == 0 && in_record && is_known() { 1 } else { shared };
        (does && fit > 0).then_some((fit, &*tool.name))
    });
    let candidates: Vec<(usize, &str)> = candidates.collect();
    let Some(best_fit) = candidates.iter().map(|(fit, _)| *fit).max() else {
        let lead = declined.is_information().then(|| unopened(context, agent, declined)).flatten();
        return lead.filter(|_| !is_grounded(declined, instructions, context.memo));
    };
    let mut best = candidates.into_iter().filter(|(fit, _)| *fit == best_fit).map(|(_, name)| name);
    let tool = best.clone().next()?;
    let parts = || view.input.iter().flat_map(|m| &m.parts);
    let in_prompt = |name: &str| parts().any(|part| matches!(part, Part::Call(call) if &*call.name == name));
    // Of tools that fit equally well, a call of any was a try.
    if best.any(|name| calls.first.contains_key(&Text::from(name)) || in_prompt(name)) {
        return None;
    }
    (!is_grounded(declined, instructions, context.memo) && !gives_reason(context, sentence, declined))
        .then_some(tool)
}

/// The tool that opens what a lookup pointed to, if none was opened: `open_doc` after a row with a `doc_id` that has
/// two words of what is said to be out of reach, and no call with an identifier of the rows.
fn unopened<'t>(context: &Context<'t>, agent: usize, declined: &Declined) -> Option<&'t str> {
    let trace = context.trace;
    let calls = &trace.agents.get(agent)?.calls;
    let latest_calls = || calls.iter().rev().take(MAX_CALLS).filter_map(|i| trace.calls.get(*i));
    let call_index = CallIndex::cached(trace, context.memo);
    let opening = offered(trace, agent).filter(|tool| !call_index.first.contains_key(&tool.name));
    let opening = opening.filter_map(|tool| {
        let words = identifier_words(&tool.name);
        let [verb, thing] = words.as_slice() else { return None };
        OPENS.contains(&verb.as_str()).then(|| (tool, thing.clone()))
    });
    let opening: Vec<_> = opening.collect();
    let results = latest_calls().filter(|_| !opening.is_empty()).filter_map(|call| call.result.as_ref());
    for result in results {
        let structure = Structure::cached(result, context.memo)?;
        let Some(parsed) = &structure.0 else { continue };
        if !context.memo.budget.spend(1 + result.len() / 4) {
            return None;
        }
        for record in parsed.records.iter().filter(|record| record.list.is_some()) {
            let key_field = |thing: &str| {
                record.fields.iter().find(|field| {
                    let name: Vec<&str> = field.name.iter().map(String::as_str).collect();
                    name == [thing, "id"] || name == ["id"] || is_address(thing) && name == ["url"]
                })
            };
            let record_stems: HashSet<String> =
                record.fields.iter().flat_map(|field| stems(field.shown()).collect::<Vec<_>>()).collect();
            let is_about =
                declined.objects.iter().filter(|word| record_stems.contains(*word)).count() >= MIN_SHARED;
            let lead = opening
                .iter()
                .filter(|_| is_about)
                .find_map(|(tool, thing)| Some((*tool, key_field(thing)?)));
            let is_passed = |id: &str| {
                latest_calls().filter_map(|call| call.arguments.as_deref()).any(|text| text.contains(id))
            };
            if let Some((tool, _)) = lead.filter(|(_, field)| !is_passed(field.shown())) {
                return Some(&tool.name);
            }
        }
    }
    None
}

/// Whether a thing is opened by its address.
fn is_address(thing: &str) -> bool {
    matches!(thing, "page" | "url" | "link" | "site" | "website" | "webpage")
}

/// Whether the tool's action is the one that is said to be impossible, and not only of the same kind.
fn are_close(declined: Action, does: Action) -> bool {
    declined == does
        || matches!(does, Action::Update | Action::Delete | Action::Cancel) && are_alike(declined, does)
}
