//! Inability that is claimed without trying: "I cannot look up your bookings" where a tool that does so was
//! offered and never called.
//!
//! Principle: an agent tries an offered tool before it claims that its action is impossible. The rule does not judge
//! whether the tool would have succeeded.
//!
//! In: a sentence of a model that states an inability. Out: an offered tool whose name or description shares the
//! action and the object, if the run has no call of it, no instruction limits the action, and no lookup of the object
//! may give a reason; or an offered tool that opens the document or page that a lookup returned. A thing that the
//! speaker calls the user's own ("your balance") and that the instructions name is expected in the user's record.

use foldhash::HashSet;

use super::excuse::gives_reason;
use super::policy::{Declined, MAX_BYTES, is_grounded};
use crate::measure::calls::call_index::CallIndex;
use crate::measure::excerpt::clip;
use crate::measure::identifier::identifier_words;
use crate::measure::language::Action;
use crate::measure::records::Structure;
use crate::measure::tool_purpose::{ToolObjects, ToolPurpose, are_alike, offered_tools, stems};
use crate::measure::{Context, agent_index};
use crate::recognise::{Part, SpanView, Text};

/// Objects of tools that read the record of a user.
const USER_RECORDS: [&str; 11] = [
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
/// Words of a condition. A sentence with one states what is missing, not that an action is impossible.
const CONDITIONS: [&str; 6] = ["without", "until", "unless", "before", "if", "yet"];

/// Verbs of tools that open a document or page that a lookup returned.
const OPEN_VERBS: [&str; 8] = ["open", "read", "fetch", "get", "view", "visit", "load", "download"];
/// Maximum calls whose results are searched for a document to open; the latest ones are.
const MAX_CALLS: usize = 16;
/// Minimum words that a row shares with the sentence.
const MIN_SHARED: usize = 2;

/// The name of the offered tool that was not tried; `None` if there is none, or the claim has a reason.
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
    let candidates = offered_tools(trace, agent).filter_map(|tool| {
        let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
        let ToolObjects(objects) = ToolObjects::new(&tool.name, tool.description.as_deref());
        let is_close = |action: &Action| are_close(declined.action, *action);
        let has_action = match declined.is_information() {
            true => purpose.is_query(),
            false => !purpose.is_query() && purpose.actions.iter().any(is_close),
        };
        let in_record =
            mentions_your && declined.is_information() && USER_RECORDS.iter().any(|r| objects.contains(*r));
        let name_matches = stems(&tool.name).filter(|word| declined.objects.contains(word)).count();
        let shared = name_matches + objects.intersection(&declined.objects).count();
        let match_count = if shared == 0 && in_record && is_known() { 1 } else { shared };
        (has_action && match_count > 0).then_some((match_count, &*tool.name))
    });
    let candidates: Vec<(usize, &str)> = candidates.collect();
    let Some(best_count) = candidates.iter().map(|(match_count, _)| *match_count).max() else {
        let lead = declined.is_information().then(|| unopened(context, agent, declined)).flatten();
        return lead.filter(|_| !is_grounded(declined, instructions, context.memo));
    };
    let mut best =
        candidates.into_iter().filter(|(match_count, _)| *match_count == best_count).map(|(_, name)| name);
    let tool = best.clone().next()?;
    let parts = || view.input.iter().flat_map(|m| &m.parts);
    let in_prompt = |name: &str| parts().any(|part| matches!(part, Part::Call(call) if &*call.name == name));
    // A call of any of the tools that match equally well is a try.
    if best.any(|name| calls.first_start.contains_key(&Text::from(name)) || in_prompt(name)) {
        return None;
    }
    (!is_grounded(declined, instructions, context.memo) && !gives_reason(context, sentence, declined))
        .then_some(tool)
}

/// The uncalled tool that opens a row of a lookup: `open_doc` for a row with a `doc_id` that shares [`MIN_SHARED`]
/// words with the object of the declined action, if no call has the identifier of the row as an argument.
fn unopened<'t>(context: &Context<'t>, agent: usize, declined: &Declined) -> Option<&'t str> {
    let trace = context.trace;
    let calls = &trace.agents.get(agent)?.calls;
    let latest_calls = || calls.iter().rev().take(MAX_CALLS).filter_map(|i| trace.calls.get(*i));
    let call_index = CallIndex::cached(trace, context.memo);
    let open_tools =
        offered_tools(trace, agent).filter(|tool| !call_index.first_start.contains_key(&tool.name));
    let open_tools = open_tools.filter_map(|tool| {
        let words = identifier_words(&tool.name);
        let [verb, object] = words.as_slice() else { return None };
        OPEN_VERBS.contains(&verb.as_str()).then(|| (tool, object.clone()))
    });
    let open_tools: Vec<_> = open_tools.collect();
    let results = latest_calls().filter(|_| !open_tools.is_empty()).filter_map(|call| call.result.as_ref());
    for result in results {
        let structure = Structure::cached(result, context.memo)?;
        let Some(parsed) = &structure.0 else { continue };
        if !context.memo.budget.spend(1 + result.len() / 4) {
            return None;
        }
        for record in parsed.records.iter().filter(|record| record.list.is_some()) {
            let key_field = |object: &str| {
                record.fields.iter().find(|field| {
                    let name: Vec<&str> = field.name.iter().map(String::as_str).collect();
                    name == [object, "id"] || name == ["id"] || has_url(object) && name == ["url"]
                })
            };
            let record_stems: HashSet<String> =
                record.fields.iter().flat_map(|field| stems(field.shown()).collect::<Vec<_>>()).collect();
            let is_about =
                declined.objects.iter().filter(|word| record_stems.contains(*word)).count() >= MIN_SHARED;
            let lead = open_tools
                .iter()
                .filter(|_| is_about)
                .find_map(|(tool, object)| Some((*tool, key_field(object)?)));
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

/// Whether an object of a tool is opened by its URL.
fn has_url(object: &str) -> bool {
    matches!(object, "page" | "url" | "link" | "site" | "website" | "webpage")
}

/// Whether a tool's action is the declined one. Only changes and deletions also match similar actions.
fn are_close(declined: Action, tool_action: Action) -> bool {
    declined == tool_action
        || matches!(tool_action, Action::Update | Action::Delete | Action::Cancel)
            && are_alike(declined, tool_action)
}
