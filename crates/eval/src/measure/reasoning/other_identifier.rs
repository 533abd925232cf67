//! Calls about another thing than the one that the request names.
//!
//! Principle: an identifier is copied, never composed. Where the request names one, and a call has one of the same
//! form that no message, instruction or result contains, the call is about another thing; an action that is sent to
//! an address that no text contains reaches somebody else. Another call with the right identifier corrects it.
//!
//! In: the calls of a trace with the origins of their arguments. Out: one finding for each agent, on the model span
//! that wrote the call.

use verdict_otlp::trace::Idx;

use super::claimed_actions::{identifiers, shape};
use crate::measure::agent::agent_index;
use crate::measure::agent::attempts::quoted;
use crate::measure::defects::Defect;
use crate::measure::provenance::Provenance;
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::{Finding, Memo};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Agent, AgentTrace, Call};

/// Most bytes of a request: a longer one contains other texts.
const MAX_TASK: usize = 4000;
/// Most calls of an agent that are compared.
const MAX_CALLS: usize = 200;

/// Findings by model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(Idx, Finding)> {
    let agents = trace.agents.iter().enumerate();
    agents.filter_map(|(i, agent)| of_agent(trace, memo, i, agent)).collect()
}

fn of_agent(trace: &AgentTrace, memo: &Memo, i: usize, agent: &Agent) -> Option<(Idx, Finding)> {
    let task = agent_index::task(trace, i).filter(|t| !agent.calls.is_empty() && t.len() <= MAX_TASK)?;
    let named: Vec<String> = identifiers(task).collect();
    let calls = || agent.calls.iter().take(MAX_CALLS).filter_map(|call| trace.calls.get(*call));
    let bytes: usize = calls().filter_map(|call| call.arguments.as_ref()).map(|text| text.len()).sum();
    if !memo.budget.spend(task.len() / 16 + (1 + named.len()) * (agent.calls.len() + bytes / 16)) {
        return None;
    }
    let has = |call: &Call, id: &str| call.arguments.as_deref().is_none_or(|a| contains_ignoring_case(a, id));
    let unused: Vec<String> = named.into_iter().filter(|id| !calls().any(|call| has(call, id))).collect();
    // The origin of all arguments is computed where a finding is possible only.
    let has_address = |call: &Call| call.arguments.as_deref().is_some_and(|text| text.contains('@'));
    if unused.is_empty() && !calls().any(has_address) {
        return None;
    }
    let provenance = Provenance::of(trace, memo);
    calls().find_map(|call| {
        let value = &provenance.invented(trace, call)?.value;
        let meant = unused.iter().find(|id| shape(id) == shape(value)).map(String::as_str);
        let is_sent = || value.contains('@') && purpose(trace, memo, call) == Purpose::Action;
        let meant = meant.or_else(|| is_sent().then_some("an address of the request or of a result"))?;
        let rationale = format!(
            "{meant} was expected; {} has {value}, which no message or result contains",
            call.name.trim()
        );
        let finding = Defect::ContradictsRequest.finding(rationale, quoted(call)).citing_at(trace, call.at);
        Some((call.llm?, finding))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn found(task: &str, calls: &[&str]) -> usize {
        let script = calls.iter().fold(Script::new(task), |script, arguments| {
            script.calls("", &[("release_parcel", arguments)]).returns(r#"{"state":"released"}"#)
        });
        find(&script.answers("Released.").build(), &Memo::new()).len()
    }

    #[test]
    fn identifier_that_differs_from_the_one_of_the_request_is_found() {
        let task = "Please release parcel PX-7741 for the customer.";
        assert_eq!(found(task, &[r#"{"parcel_id":"PX-7714"}"#]), 1);
        assert_eq!(found(task, &[r#"{"parcel_id":"PX-7741"}"#]), 0);
        assert_eq!(found(task, &[r#"{"parcel_id":"px7741"}"#]), 0);
        assert_eq!(found(task, &[r#"{"parcel_id":"PX-7714"}"#, r#"{"parcel_id":"PX-7741"}"#]), 0);
    }

    #[test]
    fn identifier_of_another_form_or_origin_is_none() {
        let task = "Please release parcel PX-7741 for the customer.";
        assert_eq!(found(task, &[r#"{"request_id":"a8f3-11"}"#]), 0);
        let looked = Script::new(task).calls("", &[("find_parcel", r#"{"text":"customer"}"#)]);
        let looked = looked.returns(r#"{"parcel":"PX-8120"}"#);
        let run = looked.calls("", &[("release_parcel", r#"{"parcel_id":"PX-8120"}"#)]).returns("ok");
        assert!(find(&run.answers("Released.").build(), &Memo::new()).is_empty());
    }

    #[test]
    fn address_that_no_text_contains_is_found() {
        let run = |task: &str, to: &str| {
            let sent = Script::new(task).calls("", &[("send_mail", &format!(r#"{{"to":"{to}"}}"#))]);
            find(&sent.returns("queued").answers("Sent.").build(), &Memo::new()).len()
        };
        assert_eq!(run("Tell Mira that we are late.", "mira@mail.example"), 1);
        assert_eq!(run("Tell mira@mail.example that we are late.", "mira@mail.example"), 0);
        assert_eq!(run("Tell Mira (mail.example) that we are late.", "mira@mail.example"), 0);
    }
}
