//! Inability that is claimed without trying: "I cannot look up your bookings" where a tool that does so was
//! offered and never called.
//!
//! Principle: an agent tries an offered tool before it claims that its action is impossible. The rule does not judge
//! whether the tool would have succeeded.
//!
//! In: a sentence of a model that states an inability. Out: the tool, if one was offered whose name or description
//! shares the action and the object, no call of it is in the run, no instruction limits it, and what it is about was
//! not looked up with a result that may say why; or a tool that opens what a lookup pointed to, or that takes an
//! identifier which a lookup returned. A verb of no class of actions ("operate the pump") may be the setting of what
//! comes after it: a tool that sets it to a number that the user gave was not tried. A thing that the speaker calls
//! the user's own ("your balance"), and that the instructions name, is searched in the user's record.

use foldhash::HashSet;
use serde_json::Value;

use super::excuse::{gives_reason, states_reason};
use super::policy::{Declined, MAX_BYTES, is_grounded};
use crate::measure::calls::call_index::CallIndex;
use crate::measure::dialogue::said_by_user;
use crate::measure::excerpt::clip;
use crate::measure::identifier::identifier_words;
use crate::measure::language::Action;
use crate::measure::numbers::has_digit;
use crate::measure::records::{FieldValue, Record, RecordField, Structure};
use crate::measure::tool_purpose::{
    ToolObjects, ToolPurpose, are_alike, names_one_thing, offered_tools, opens, parameters, stems,
};
use crate::measure::{Context, agent_index};
use crate::recognise::{Part, SpanView, Text, ToolDefinition};

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

/// Maximum calls whose results are searched for a thing to open; the latest ones are.
const MAX_CALLS: usize = 16;
/// Minimum words that a row shares with the sentence.
const MIN_SHARED: usize = 2;
/// Most records of a result that are compared.
const MAX_RECORDS: usize = 64;
/// Words of keys of what may forbid to open a thing.
const FORBIDS: [&str; 7] = ["access", "permission", "restriction", "restricted", "reason", "note", "message"];

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
    let attempt = Attempt { context, view, agent, sentence, declined, instructions };
    if declined.is_unclassed {
        return attempt.unset();
    }
    attempt.best_fit(mentions_your).or_else(|| attempt.pointed_to())
}

/// A sentence that declines something, and what the speaker could have tried.
struct Attempt<'c, 't> {
    context: &'c Context<'t>,
    view: &'c SpanView,
    agent: usize,
    sentence: &'c str,
    declined: &'c Declined,
    instructions: &'t str,
}

impl<'t> Attempt<'_, 't> {
    /// The tool whose name or description fits best, if it was not called.
    fn best_fit(&self, mentions_your: bool) -> Option<&'t str> {
        let Attempt { context, agent, sentence, declined, instructions, .. } = *self;
        let is_known = || stems(clip(instructions, MAX_BYTES)).any(|word| declined.objects.contains(&word));
        let candidates = offered_tools(context.trace, agent).filter_map(|tool| {
            let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
            let ToolObjects(objects) = ToolObjects::new(&tool.name, tool.description.as_deref());
            let is_close = |does: &Action| are_close(declined.action, *does);
            let does = match declined.is_information() {
                true => purpose.is_query(),
                false => !purpose.is_query() && purpose.actions.iter().any(is_close),
            };
            let in_record = mentions_your
                && declined.is_information()
                && USER_RECORDS.iter().any(|r| objects.contains(*r));
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
        // Of tools that fit equally well, a call of any was a try.
        if best.any(|name| self.is_called(name)) {
            return None;
        }
        (!is_grounded(declined, instructions, context.memo) && !gives_reason(context, sentence, declined))
            .then_some(tool)
    }

    fn is_called(&self, name: &str) -> bool {
        let calls = CallIndex::cached(self.context.trace, self.context.memo);
        let mut parts = self.view.input.iter().flat_map(|message| &message.parts);
        calls.first_start.contains_key(&Text::from(name))
            || parts.any(|part| matches!(part, Part::Call(call) if &*call.name == name))
    }

    /// The tool that takes an identifier which a lookup returned and no call passes, and that is named for what is said
    /// to be out of reach: `extract_clause`, which takes a `contract_id`.
    fn pointed_to(&self) -> Option<&'t str> {
        let Attempt { context, agent, sentence, declined, instructions, .. } = *self;
        let trace = context.trace;
        if !declined.is_information() || states_reason(context, sentence) {
            return None;
        }
        let is_open = |tool: &&'t ToolDefinition| {
            let words = identifier_words(&tool.name);
            let is_opener = words.first().is_some_and(|verb| opens(verb));
            let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
            let mut things = words.iter().skip(1).flat_map(|word| stems(word));
            (is_opener || purpose.is_query())
                && things.any(|thing| declined.objects.contains(&thing))
                && !self.is_called(&tool.name)
        };
        let calls = &trace.agents.get(agent)?.calls;
        let latest_calls = || calls.iter().rev().take(MAX_CALLS).filter_map(|i| trace.calls.get(*i));
        let is_passed = |value: &str| {
            latest_calls().filter_map(|call| call.arguments.as_deref()).any(|text| text.contains(value))
        };
        let tool = offered_tools(trace, agent).filter(is_open).find(|tool| {
            let keys: Vec<Vec<String>> = parameters(tool).map(|(key, _)| identifier_words(key)).collect();
            let is_key = |field: &RecordField| {
                let names_one = field.name.last().is_some_and(|word| names_one_thing(word));
                names_one && keys.iter().any(|key| key.as_slice() == &**field.name)
            };
            let points = |record: &Record| {
                let may_forbid = |field: &RecordField| {
                    field.value == FieldValue::Bool(false)
                        || field.name.iter().any(|word| FORBIDS.contains(&word.as_str()))
                };
                let mut ids = record.fields.iter().filter(|field| is_key(field));
                !record.fields.iter().any(may_forbid) && ids.any(|field| !is_passed(field.shown()))
            };
            let results = latest_calls().filter(|call| !call.failed).filter_map(|call| call.result.as_ref());
            results.filter_map(|result| Structure::cached(result, context.memo)).any(|structure| {
                let records = structure.0.iter().flat_map(|parsed| &parsed.records).take(MAX_RECORDS);
                records.into_iter().any(points)
            })
        })?;
        (!is_grounded(declined, instructions, context.memo)).then_some(&*tool.name)
    }

    /// The tool that sets what a verb of no class of actions has as its object, if the user names the same things and
    /// gives a number, and the tool takes one.
    fn unset(&self) -> Option<&'t str> {
        let Attempt { context, agent, sentence, declined, instructions, .. } = *self;
        let sets = |tool: &&'t ToolDefinition| {
            let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
            let takes_number = || parameters(tool).any(|(_, schema)| is_number(schema));
            purpose.actions.first() == Some(&Action::Update) && !purpose.is_query() && takes_number()
        };
        let messages = said_by_user(context.trace, context.memo, agent);
        let tool = offered_tools(context.trace, agent).filter(sets).find(|tool| {
            let words = identifier_words(&tool.name);
            let things: Vec<String> = words.iter().skip(1).flat_map(|word| stems(word)).collect();
            let names_things = |text: &Text| {
                let message_stems: HashSet<String> = stems(clip(text, MAX_BYTES)).collect();
                gives_value(text) && things.iter().all(|thing| message_stems.contains(thing))
            };
            !things.is_empty()
                && things.iter().all(|thing| declined.objects.contains(thing))
                && !self.is_called(&tool.name)
                && messages.iter().any(names_things)
        })?;
        (!is_grounded(declined, instructions, context.memo) && !gives_reason(context, sentence, declined))
            .then_some(&*tool.name)
    }
}

/// Whether a text gives a number to which something is to be set: "to 60%", "at 40 litres".
fn gives_value(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_value = |pair: &[&str]| {
        let [before, number] = pair else { return false };
        matches!(*before, "to" | "at" | "by") && has_digit(number)
    };
    words.windows(2).any(is_value)
}

fn is_number(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str).is_some_and(|name| matches!(name, "number" | "integer"))
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
        opens(verb).then(|| (tool, object.clone()))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::measure::sample::measure;
    use crate::measure::testing::Script;
    use crate::recognise::ToolDefinition;

    /// Whether the last text of a run fails for a tool that was not tried, with these tools and their parameters.
    fn fails(script: Script, tools: &[(&str, &str)]) -> bool {
        let mut trace = script.build();
        let definition = |(name, parameters): &(&str, &str)| ToolDefinition {
            name: (*name).into(),
            description: None,
            parameters: Some(Arc::new(serde_json::from_str(parameters).unwrap())),
        };
        trace.agents[0].tools = tools.iter().map(definition).collect();
        let at = *trace.agents[0].llms.last().unwrap();
        let outcome = measure("avoidance", &trace, at).swap_remove(0).outcome;
        outcome.is_ok_and(|measured| {
            measured.findings.iter().any(|f| f.rationale.contains("offered and never called"))
        })
    }

    const LEVEL: &str = r#"{"properties":{"tank":{"type":"string"},"litres":{"type":"number"}}}"#;
    const TANK: &str = r#"{"properties":{"tank":{"type":"string"}}}"#;

    #[test]
    fn setting_that_was_not_tried_fails() {
        let run = |task: &str, system: &str, answer: &str, tool: (&str, &str)| {
            let script = Script::new(task).system(system).calls("", &[("read_tank", r#"{"tank":"T2"}"#)]);
            let script = script.returns(r#"{"tank":"T2","pump":12.5}"#).answers(answer);
            fails(script, &[("read_tank", TANK), tool])
        };
        let pump = ("set_pump", LEVEL);
        let task = "Run the pump of T2 at 40 litres.";
        let answer = "The pump gives 12.5 litres. Unfortunately I'm not able to operate the pump; please do it by hand.";
        assert!(run(task, "", answer, pump));
        assert!(run(task, "", "Sorry, I cannot drive the pumps of the garden.", pump));
        for (task, system, answer, tool) in [
            (task, "", answer, ("set_pump", TANK)),
            (task, "", answer, ("read_pump", LEVEL)),
            (task, "", answer, ("set_lamp", LEVEL)),
            ("The pump hums at night, it gives 12 litres.", "", "I'm not able to diagnose the pump.", pump),
            (task, "", "I'm not able to diagnose the noise of the pump.", pump),
            ("Have the pump repaired.", "", "I'm not able to repair the pump myself.", pump),
            (task, "The pump must never be changed by agents.", answer, pump),
            (task, "", "I'm not able to operate the pump until the valve is open.", pump),
            (task, "", "You are not able to operate the pump by hand.", pump),
        ] {
            assert!(!run(task, system, answer, tool), "{task} {system} {answer}");
        }
    }

    #[test]
    fn tool_that_takes_what_a_lookup_returned_was_not_tried() {
        let run = |result: &str, answer: &str, calls: &[&str]| {
            let script = Script::new("What does the warranty of the Lindhag boiler cover?");
            let script = script.calls("", &[("search_devices", r#"{"name":"Lindhag"}"#)]).returns(result);
            let script = calls.iter().fold(script, |script, arguments| {
                script.calls("", &[("read_warranty", arguments)]).returns("Error: gone")
            });
            let takes = r#"{"properties":{"device_id":{"type":"string"}}}"#;
            fails(script.answers(answer), &[("search_devices", "{}"), ("read_warranty", takes)])
        };
        let found = r#"{"devices":[{"device_id":"D-7","name":"Lindhag boiler","status":"active"}]}"#;
        let answer = "I found the boiler. I don't have access to the warranty of the device.";
        assert!(run(found, answer, &[]));
        assert!(run(found, "I found it, and I have no access to the warranty of this device.", &[]));
        assert!(run(found, "I cannot look up the warranty of the device.", &[]));
        for (result, answer, calls) in [
            (found, answer, &[r#"{"device_id":"D-7"}"#][..]),
            (r#"{"devices":[]}"#, answer, &[]),
            (r#"{"devices":[{"name":"Lindhag boiler"}]}"#, answer, &[]),
            (r#"{"devices":[{"device_id":"D-7","access":"restricted"}]}"#, answer, &[]),
            (found, "I don't have access to the price list of the maker.", &[]),
            (found, "The warranty covers the tank.", &[]),
        ] {
            assert!(!run(result, answer, calls), "{result} {answer}");
        }
    }
}
