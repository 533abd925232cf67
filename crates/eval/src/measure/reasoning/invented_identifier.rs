//! Identifiers without a source: a hold released by "HLD-5093", where the results list HLD-4471 and HLD-4480.
//!
//! Principle: an identifier is copied, never composed. An action that passes an identifier which no text before it has
//! is about a thing that nobody named. Two signs show that the identifier has to be that of an existing thing: an
//! earlier result has the argument's field with an identifier of the same shape; or a lookup of such things was offered
//! and never called, or any lookup before the first result. The result of the action is no source of its identifier,
//! unless the action may have created the thing. A lookup by an unknown identifier changes nothing and is not reported.
//!
//! In: the actions of an agent with the texts before them. Out: one finding for each agent, on the model span that
//! requested the call.

use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::linked_identifiers::{identifiers, shape};
use crate::measure::Finding;
use crate::measure::defects::Defect;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, names};
use crate::measure::provenance::{self, KnownText, KnownTexts, Origin, Provenance, have_wording};
use crate::measure::tool_purpose::{
    Purpose, ToolObjects, ToolPurpose, action_of, offered_tools, purpose, stems,
};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Call;

/// Maximum calls of an agent that are examined: each identifier is searched for in all texts before its call.
const MAX_CALLS: usize = 32;
/// Maximum values of one call that are examined.
const MAX_VALUES: usize = 8;
/// Minimum digits of an identifier without letters.
const MIN_DIGITS: usize = 6;

/// Words of keys for identifiers that a client chooses for its own requests. Keys are identifiers in code.
const OF_CLIENT: [&str; 9] = [
    "request",
    "idempotency",
    "correlation",
    "session",
    "trace",
    "client",
    "transaction",
    "message",
    "external",
];

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let calls = conduct.succeeded(MAX_CALLS).filter(|(_, call)| call.llm.is_some());
    let may_act = |call: &Call| purpose(conduct.trace, conduct.memo, call) != Purpose::Query;
    calls.filter(|(_, call)| may_act(call)).find_map(|(_, call)| {
        let known = KnownTexts::cached(conduct.trace, conduct.memo);
        let known = known.before(conduct.trace, call)?;
        let values = provenance::values(call).take(MAX_VALUES);
        let passed = values
            .filter_map(|(name, value)| Some(PassedIdentifier { call, name, id: code_of(name, &value)? }));
        let mut invented = passed.filter(|passed| passed.is_invented(conduct, known));
        invented.find_map(|passed| {
            let expected =
                passed.listed(conduct, known).or_else(|| passed.uncalled_lookup(conduct, known))?;
            let rationale = format!(
                "{expected} was expected; {} has {} for '{}', which no message or result contains",
                call.name.trim(),
                passed.id,
                passed.name
            );
            conduct.finding(Defect::ContradictsRequest, rationale, call)
        })
    })
}

/// The value of an argument in lower case, if it is an identifier.
fn code_of(name: &str, value: &str) -> Option<String> {
    let value = value.trim_start_matches('#');
    let code = value.to_ascii_lowercase();
    let is_number = || {
        code.len() >= MIN_DIGITS
            && code.bytes().all(|byte| byte.is_ascii_digit())
            && identifier_words(name).last().is_some_and(|word| names::names_identifier(word))
    };
    let is_code = identifiers(value).next().as_ref() == Some(&code) || is_number();
    is_code.then_some(code)
}

/// An identifier that an action passes.
struct PassedIdentifier<'t> {
    call: &'t Call,
    /// The name of the argument.
    name: &'t str,
    id: String,
}

impl PassedIdentifier<'_> {
    /// Whether no text before the action has the identifier, which is not that of a new thing.
    fn is_invented(&self, conduct: &Conduct<'_>, known: &[KnownText]) -> bool {
        let Conduct { trace, memo, .. } = *conduct;
        !have_wording(known.iter(), memo, |text| contains_ignoring_case(text, &self.id))
            && !self.may_be_new()
            && Provenance::cached(trace, memo).arguments(trace, self.call).iter().any(|argument| {
                argument.origin == Origin::Model && argument.value.to_ascii_lowercase().ends_with(&self.id)
            })
    }

    /// Whether the action may create the thing, and thus choose its identifier: the argument does not name another
    /// kind of thing than the tool, or it names the request itself.
    fn may_be_new(&self) -> bool {
        let tool_words = identifier_words(&self.call.name);
        let mut things = self.things();
        if self.things().any(|thing| OF_CLIENT.contains(&thing.as_str())) {
            return true;
        }
        if things.next().is_some() && !self.things().any(|thing| tool_words.contains(&thing)) {
            return false;
        }
        let is_repeated =
            || self.call.result.as_deref().is_some_and(|result| contains_ignoring_case(result, &self.id));
        match tool_words.iter().find_map(|word| action_of(word)) {
            Some(Action::Create | Action::Add | Action::Save) => true,
            Some(Action::Cancel | Action::Delete | Action::Refund | Action::Return | Action::Update) => false,
            _ => is_repeated(),
        }
    }

    /// The words of the argument's name for the kind of thing: "vehicle" of `vehicle_id`.
    fn things(&self) -> impl Iterator<Item = String> + use<> {
        identifier_words(self.name).into_iter().filter(|word| !names::names_identifier(word))
    }

    /// A description of the expected identifier: an earlier result has one of the same shape in a field with the name
    /// of the argument.
    fn listed(&self, conduct: &Conduct<'_>, known: &[KnownText]) -> Option<String> {
        let key = self.name.to_ascii_lowercase();
        let (quoted, escaped) = (format!("\"{key}\""), format!("\"{key}\\\""));
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let passed_shape = shape(&self.id);
        let results = known.iter().filter(|known| known.origin == Origin::Result);
        let mut listed = results.filter_map(|known| {
            let text = &known.text;
            let is_within_budget = conduct.memo.budget.spend(1 + text.len());
            let has_field = is_within_budget
                && (contains_ignoring_case(text, &quoted) || contains_ignoring_case(text, &escaped));
            let mut tokens = text.split(|c| !is_part(c)).filter(|_| has_field);
            tokens.find(|token| token.len() == self.id.len() && shape(token) == passed_shape)
        });
        listed.next().map(|id| format!("an identifier of a result, such as {id},"))
    }

    /// A description of the expected identifier: a lookup of such things was offered and never called. Before the first
    /// result any lookup counts. Instructions that were not recorded may have the identifier.
    fn uncalled_lookup(&self, conduct: &Conduct<'_>, known: &[KnownText]) -> Option<String> {
        let Conduct { trace, memo, agent_index, .. } = *conduct;
        known.iter().any(|known| known.origin == Origin::System).then_some(())?;
        let things: Vec<String> = self.things().flat_map(|thing| stems(&thing).collect::<Vec<_>>()).collect();
        let tool_objects = ToolObjects::for_call(trace, memo, self.call);
        let has_result = known.iter().any(|known| known.origin == Origin::Result);
        let is_called = |name: &str| trace.calls.iter().any(|call| call.name.trim() == name.trim());
        let mut lookups = offered_tools(trace, agent_index).filter(|tool| {
            let description = tool.description.as_deref();
            if is_called(&tool.name) || !ToolPurpose::new(&tool.name, description).is_query() {
                return false;
            }
            if !has_result {
                return true;
            }
            let objects = ToolObjects::new(&tool.name, description).0;
            match things.as_slice() {
                [] => objects.intersection(&tool_objects.0).next().is_some(),
                things => things.iter().any(|thing| objects.contains(thing)),
            }
        });
        lookups.next().map(|tool| format!("an identifier that {} returns", tool.name.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    const DONE: &str = r#"{"ok":true}"#;

    fn count(script: Script, call: (&str, &str), result: &str) -> usize {
        let run = script.calls("", &[call]).returns(result).answers("Done.");
        findings_of(check, &run.build()).len()
    }

    #[test]
    fn identifier_that_an_uncalled_lookup_returns_is_found() {
        let run = |tool: &str, arguments: &str, offered: &[&str]| {
            let script = Script::new("Book the oldest van for a brake inspection on Thursday.")
                .system("You book workshop visits for a fleet.")
                .tools(offered);
            count(script, (tool, arguments), DONE)
        };
        const VAN: &str = r#"{"vehicle_id":"KEL-VAN-03","day":"Thursday"}"#;
        let fleet = &["list_vehicles", "workshop_slots", "book_service"];
        assert_eq!(run("book_service", VAN, fleet), 1);
        assert_eq!(
            run("book_service", VAN, &["workshop_slots", "book_service"]),
            0,
            "nothing lists vehicles"
        );
        assert_eq!(run("add_vehicle", VAN, &["list_vehicles", "add_vehicle"]), 0, "a new vehicle");
        assert_eq!(run("list_services", VAN, fleet), 0, "a lookup changes nothing");
        let request = r#"{"request_id":"KEL-VAN-03"}"#;
        assert_eq!(run("book_service", request, fleet), 0, "an identifier of the request itself");
        let unknown = Script::new("Book the oldest van.").tools(fleet);
        assert_eq!(
            count(unknown, ("book_service", VAN), DONE),
            0,
            "instructions that were not recorded may name it"
        );
        let listed = Script::new("Book the oldest van.").system("You book visits.").tools(fleet);
        let listed =
            listed.calls("", &[("list_vehicles", "{}")]).returns("KEL VAN 03, 2014; KEL VAN 04, 2019");
        assert_eq!(count(listed, ("book_service", VAN), DONE), 0);
    }

    #[test]
    fn thing_of_another_kind_than_the_action_creates_has_to_be_known() {
        let run = |arguments: &str| {
            let script = Script::new("Pay invoice HL-5530.").calls("", &[("get_vendor", "{}")]);
            let script = script.returns(
                r#"[{"type":"text","text":"{\"beneficiary_id\":\"BNF-11874\",\"card\":\"30114007712\"}"}]"#,
            );
            count(script, ("create_payment", arguments), r#"{"payment_id":"PAY-77120"}"#)
        };
        assert_eq!(run(r#"{"beneficiary_id":"BNF-20931"}"#), 1);
        assert_eq!(run(r#"{"beneficiary_id":"bnf-11874"}"#), 0, "in another case");
        assert_eq!(
            run(r#"{"beneficiary_id":"BNF-11874","payment_id":"PAY-77120"}"#),
            0,
            "of the new payment"
        );
        assert_eq!(run(r#"{"card":"30114009981"}"#), 0, "a number that its name does not call an identifier");
        assert_eq!(run(r#"{"beneficiary_id":"BNF-11874","amount":"20931"}"#), 0, "an amount");
    }

    #[test]
    fn identifier_in_the_field_of_a_result_that_no_text_contains_is_found() {
        let run = |tool: &str, arguments: &str, outcome: &str| {
            let script = Script::new("Drop the older one of the two tents from my rental.");
            let script = script.calls("", &[("list_items", "{}")]).returns(
                r#"{"items":[{"item_id":"TN-4410","year":2019},{"item_id":"TN-4893","year":2023}],"shop":"SH-77120"}"#,
            );
            let script = script.calls("", &[(tool, arguments)]).returns(outcome);
            findings_of(check, &script.answers("The older tent is off your rental.").build()).len()
        };
        let done = r#"{"ok":true}"#;
        assert_eq!(run("remove_item", r#"{"item_id":"TN-4411"}"#, done), 1);
        assert_eq!(run("remove_item", r#"{"item_id":"TN-7005","note":"older"}"#, done), 1);
        assert_eq!(run("remove_item", r#"{"item_id":"TN-4410"}"#, done), 0, "copied");
        assert_eq!(run("remove_item", r#"{"item_id":"tn-4410"}"#, done), 0, "in another case");
        assert_eq!(run("add_item", r#"{"item_id":"TN-4894"}"#, done), 0, "a new thing");
        assert_eq!(run("get_item", r#"{"item_id":"TN-4411"}"#, done), 0, "a lookup changes nothing");
        assert_eq!(run("remove_item", r#"{"item_id":"X-1"}"#, done), 0, "of another form");
        assert_eq!(run("remove_item", r#"{"trace_key":"TN-4411"}"#, done), 0, "of another field");
        assert_eq!(
            run("remove_item", r#"{"item_id":"TN-4411"}"#, r#"{"error":"no such item"}"#),
            0,
            "nothing changed"
        );
        let repeated = r#"{"item_id":"TN-4411","year":2021}"#;
        assert_eq!(run("remove_item", r#"{"item_id":"TN-4411"}"#, repeated), 1, "only its result has it");
        assert_eq!(run("discard_item", r#"{"item_id":"TN-4411"}"#, repeated), 1);
        assert_eq!(run("update_item", r#"{"item_id":"TN-4411","late":true}"#, repeated), 1);
        for tool in ["add_item", "register_item", "book_item", "order_item", "submit_item", "issue_item"] {
            assert_eq!(run(tool, r#"{"item_id":"TN-4411"}"#, repeated), 0, "{tool} may have created it");
        }
    }

    #[test]
    fn identifier_that_an_earlier_result_or_message_has_is_not_reported() {
        let listed = || {
            let script = Script::new("Which tents have I rented?").calls("", &[("list_items", "{}")]);
            script.returns(r#"{"items":[{"item_id":"TN-4410"},{"item_id":"TN-4893"}]}"#)
        };
        let run = |script: Script| {
            let script = script.calls("", &[("remove_item", r#"{"item_id":"TN-4411"}"#)]);
            let run = script.returns(r#"{"item_id":"TN-4411","state":"removed"}"#).answers("Removed.");
            findings_of(check, &run.build()).len()
        };
        assert_eq!(run(listed()), 1);
        let looked = listed().calls("", &[("find_item", r#"{"size":3}"#)]);
        assert_eq!(run(looked.returns(r#"{"hit":{"item_id":"TN-4411"}}"#)), 0);
        assert_eq!(run(listed().answers("TN-4410 and TN-4893.").user("Take TN-4411 off as well.")), 0);
    }
}
