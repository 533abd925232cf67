//! Inability that a model claims without trying: "I cannot look up your bookings" although a tool for this was offered
//! and never called.
//!
//! Principle: an agent tries an offered tool before it claims that its action is impossible. The rule does not judge
//! whether the tool would have succeeded.
//!
//! In: a sentence of a model that states an inability. Out: the name of an offered tool that was not tried. It is one
//! of these:
//!
//! - a tool whose name or description shares the action and the object of the sentence. The run contains no call of
//!   it, no instruction limits it, and no lookup of the object returned a possible reason. For an object that the model
//!   calls the user's own ("your balance") and that the instructions name, a tool that reads the user's record fits;
//! - a tool that opens a row that a lookup returned, or that takes an identifier that a lookup returned;
//! - for a verb in no class of actions ("operate the pump"), a tool that sets the object to a number, if the user gave
//!   a number.

use foldhash::HashSet;
use serde_json::Value;

use super::excuse::{gives_reason, states_reason};
use super::policy::{Declined, MAX_BYTES, is_grounded};
use crate::measure::calls::call_index::CallIndex;
use crate::measure::dialogue::said_by_user;
use crate::measure::excerpt::clip;
use crate::measure::identifier::identifier_words;
use crate::measure::language::names::names_identifier;
use crate::measure::language::{Action, Language, WordClasses, classes};
use crate::measure::numbers::has_digit;
use crate::measure::records::{FieldValue, Record, RecordField, Structure};
use crate::measure::tool_purpose::{
    ToolObjects, ToolPurpose, are_alike, is_of_kind, offered_tools, opens, parameters, stems,
};
use crate::measure::{Context, agent_index};
use crate::recognise::{Part, SpanView, Text, ToolDefinition};

/// Classes of words for a condition. A sentence with one states what is missing, not that an action is impossible.
const CONDITIONS: WordClasses = classes!(Condition Sequence Already);
/// Maximum calls whose results are searched for rows and identifiers; the latest ones are.
const MAX_CALLS: usize = 16;
/// Minimum words that a row shares with the sentence.
const MIN_SHARED: usize = 2;
/// Maximum records of a result that are compared.
const MAX_RECORDS: usize = 64;
/// Words in keys of fields that may state a reason not to open a record.
const RESTRICTION_KEYS: [&str; 7] =
    ["access", "permission", "restriction", "restricted", "reason", "note", "message"];

/// The name of the offered tool that was not tried; `None` if there is none, or the claim has a reason.
pub(super) fn untried_tool<'t>(
    context: &Context<'t>,
    view: &SpanView,
    sentence: &str,
    declined: &Declined,
) -> Option<&'t str> {
    let trace = context.trace;
    let agent = trace.owner.get(context.at).copied().flatten()?;
    if declined.has_condition || Language::English.classes(sentence).has_any(CONDITIONS) {
        return None;
    }
    let lower = sentence.to_lowercase();
    let mentions_your = lower.split(|c: char| !c.is_alphanumeric()).any(|word| word == "your");
    let instructions = agent_index::instructions(trace, agent).map(|text| &**text).unwrap_or_default();
    if !context.memo.budget.spend(instructions.len() / 16) {
        return None;
    }
    let claim = InabilityClaim { context, view, agent, sentence, declined, instructions };
    if declined.is_unclassed {
        return claim.setting_tool();
    }
    claim.best_fitting_tool(mentions_your).or_else(|| claim.tool_for_returned_id())
}

/// A sentence that declines an action, with its model call and the instructions of its agent.
struct InabilityClaim<'c, 't> {
    context: &'c Context<'t>,
    view: &'c SpanView,
    agent: usize,
    sentence: &'c str,
    declined: &'c Declined,
    instructions: &'t str,
}

impl<'t> InabilityClaim<'_, 't> {
    /// The tool whose name or description fits best, if it was not called.
    fn best_fitting_tool(&self, mentions_your: bool) -> Option<&'t str> {
        let InabilityClaim { context, agent, sentence, declined, instructions, .. } = *self;
        let is_known = || stems(clip(instructions, MAX_BYTES)).any(|word| declined.objects.contains(&word));
        let candidates = offered_tools(context.trace, agent).filter_map(|tool| {
            let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
            let ToolObjects(objects) = ToolObjects::new(&tool.name, tool.description.as_deref());
            let is_close = |tool_action: &Action| are_close(declined.action, *tool_action);
            let fits_action = match declined.is_information() {
                true => purpose.is_query(),
                false => !purpose.is_query() && purpose.actions.iter().any(is_close),
            };
            let is_in_record =
                mentions_your && declined.is_information() && is_of_kind("records", objects.iter());
            let name_count = stems(&tool.name).filter(|word| declined.objects.contains(word)).count();
            let shared_count = name_count + objects.intersection(&declined.objects).count();
            let fit = if shared_count == 0 && is_in_record && is_known() { 1 } else { shared_count };
            (fits_action && fit > 0).then_some((fit, &*tool.name))
        });
        let candidates: Vec<(usize, &str)> = candidates.collect();
        let Some(best_fit) = candidates.iter().map(|(fit, _)| *fit).max() else {
            let opener =
                declined.is_information().then(|| uncalled_opener(context, agent, declined)).flatten();
            return opener.filter(|_| !is_grounded(declined, instructions, context.memo));
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

    /// The uncalled tool whose name contains an object of the declined action, and which takes an identifier that a
    /// lookup returned and no call passes: `extract_clause`, which takes a `contract_id`.
    fn tool_for_returned_id(&self) -> Option<&'t str> {
        let InabilityClaim { context, agent, sentence, declined, instructions, .. } = *self;
        let trace = context.trace;
        if !declined.is_information() || states_reason(context, sentence) {
            return None;
        }
        let is_candidate = |tool: &&'t ToolDefinition| {
            let words = identifier_words(&tool.name);
            let is_opener = words.first().is_some_and(|verb| opens(verb));
            let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
            let mut objects = words.iter().skip(1).flat_map(|word| stems(word));
            (is_opener || purpose.is_query())
                && objects.any(|object| declined.objects.contains(&object))
                && !self.is_called(&tool.name)
        };
        let calls = &trace.agents.get(agent)?.calls;
        let latest_calls = || calls.iter().rev().take(MAX_CALLS).filter_map(|i| trace.calls.get(*i));
        let is_passed = |value: &str| {
            latest_calls().filter_map(|call| call.arguments.as_deref()).any(|text| text.contains(value))
        };
        let tool = offered_tools(trace, agent).filter(is_candidate).find(|tool| {
            let keys: Vec<Vec<String>> = parameters(tool).map(|(key, _)| identifier_words(key)).collect();
            let is_key = |field: &RecordField| {
                let is_identifier = field.name.last().is_some_and(|word| names_identifier(word));
                is_identifier && keys.iter().any(|key| key.as_slice() == &**field.name)
            };
            let has_unused_id = |record: &Record| {
                let may_forbid = |field: &RecordField| {
                    field.value == FieldValue::Bool(false)
                        || field.name.iter().any(|word| RESTRICTION_KEYS.contains(&word.as_str()))
                };
                let mut ids = record.fields.iter().filter(|field| is_key(field));
                !record.fields.iter().any(may_forbid) && ids.any(|field| !is_passed(field.shown()))
            };
            let results = latest_calls().filter(|call| !call.failed).filter_map(|call| call.result.as_ref());
            results.filter_map(|result| Structure::cached(result, context.memo)).any(|structure| {
                let records = structure.0.iter().flat_map(|parsed| &parsed.records).take(MAX_RECORDS);
                records.into_iter().any(has_unused_id)
            })
        })?;
        (!is_grounded(declined, instructions, context.memo)).then_some(&*tool.name)
    }

    /// For a verb in no class of actions, the uncalled tool that sets the object of the verb to a number, if a message
    /// of the user names the object and gives a number.
    fn setting_tool(&self) -> Option<&'t str> {
        let InabilityClaim { context, agent, sentence, declined, instructions, .. } = *self;
        let sets_number = |tool: &&'t ToolDefinition| {
            let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
            let takes_number = || parameters(tool).any(|(_, schema)| is_number(schema));
            purpose.actions.first() == Some(&Action::Update) && !purpose.is_query() && takes_number()
        };
        let messages = said_by_user(context.trace, context.memo, agent);
        let tool = offered_tools(context.trace, agent).filter(sets_number).find(|tool| {
            let words = identifier_words(&tool.name);
            let objects: Vec<String> = words.iter().skip(1).flat_map(|word| stems(word)).collect();
            let names_objects = |text: &Text| {
                let message_stems: HashSet<String> = stems(clip(text, MAX_BYTES)).collect();
                gives_value(text) && objects.iter().all(|object| message_stems.contains(object))
            };
            !objects.is_empty()
                && objects.iter().all(|object| declined.objects.contains(object))
                && !self.is_called(&tool.name)
                && messages.iter().any(names_objects)
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
fn uncalled_opener<'t>(context: &Context<'t>, agent: usize, declined: &Declined) -> Option<&'t str> {
    let trace = context.trace;
    let calls = &trace.agents.get(agent)?.calls;
    let latest_calls = || calls.iter().rev().take(MAX_CALLS).filter_map(|i| trace.calls.get(*i));
    let call_index = CallIndex::cached(trace, context.memo);
    let uncalled_tools =
        offered_tools(trace, agent).filter(|tool| !call_index.first_start.contains_key(&tool.name));
    let openers = uncalled_tools.filter_map(|tool| {
        let words = identifier_words(&tool.name);
        let [verb, object] = words.as_slice() else { return None };
        opens(verb).then(|| (tool, object.clone()))
    });
    let openers: Vec<_> = openers.collect();
    let results = latest_calls().filter(|_| !openers.is_empty()).filter_map(|call| call.result.as_ref());
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
            let opener = openers
                .iter()
                .filter(|_| is_about)
                .find_map(|(tool, object)| Some((*tool, key_field(object)?)));
            let is_passed = |id: &str| {
                latest_calls().filter_map(|call| call.arguments.as_deref()).any(|text| text.contains(id))
            };
            if let Some((tool, _)) = opener.filter(|(_, field)| !is_passed(field.shown())) {
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

    /// Whether the last text of a run, to which these tools with their parameters are offered, fails because a tool was
    /// not tried.
    fn fails_as_untried(script: Script, tools: &[(&str, &str)]) -> bool {
        let mut trace = script.build();
        let definition = |(name, parameters): &(&str, &str)| ToolDefinition {
            name: (*name).into(),
            description: None,
            parameters: Some(Arc::new(serde_json::from_str(parameters).unwrap())),
        };
        trace.agents[0].tools = tools.iter().map(definition).collect();
        let span_index = *trace.agents[0].llms.last().unwrap();
        let outcome = measure("avoidance", &trace, span_index).swap_remove(0).outcome;
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
            fails_as_untried(script, &[("read_tank", TANK), tool])
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
            let device_id_schema = r#"{"properties":{"device_id":{"type":"string"}}}"#;
            fails_as_untried(
                script.answers(answer),
                &[("search_devices", "{}"), ("read_warranty", device_id_schema)],
            )
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
