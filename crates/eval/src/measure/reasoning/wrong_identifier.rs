//! Calls about another thing than the one that the request names.
//!
//! Principle: an identifier is copied, never composed. A call with an identifier that no message, instruction or result
//! contains is about another thing if the request names an identifier of the same shape, or if an earlier result has an
//! identifier that differs from it only by one character or by two swapped ones. An action for an address that no text
//! contains is about another recipient. Another call with the expected identifier corrects the first one. Identifiers
//! that resemble no other one are examined by `invented_identifier`.
//!
//! In: the calls of a trace with the origins of their arguments. Out: one finding for each agent, on the model span
//! that requested the call.

use foldhash::HashMap;
use verdict_otlp::trace::Idx;

use super::linked_identifiers::{identifiers, shape};
use crate::measure::calls::attempts::{CallAttempts, quoted};
use crate::measure::defects::Defect;
use crate::measure::provenance::{KnownTexts, Provenance, have_wording};
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo, agent_index};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Agent, AgentTrace, Call};

/// Maximum bytes of a request: a longer one contains other texts.
const MAX_TASK: usize = 4000;
/// Maximum calls of an agent that are compared.
const MAX_CALLS: usize = 200;
/// Maximum identifiers of one call that are searched for in earlier results.
const MAX_PASSED: usize = 8;
/// Minimum digits of an identifier that may be copied wrongly: shorter identifiers are similar by chance.
const MIN_DIGITS: usize = 4;

/// Findings by model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(Idx, Finding)> {
    let agents = trace.agents.iter().enumerate();
    agents.filter_map(|(i, agent)| check_agent(trace, memo, i, agent)).collect()
}

/// The finding on the agent `i`, with the model span that requested the call.
fn check_agent(trace: &AgentTrace, memo: &Memo, i: usize, agent: &Agent) -> Option<(Idx, Finding)> {
    let task = agent_index::task(trace, i).filter(|t| !agent.calls.is_empty() && t.len() <= MAX_TASK)?;
    let task_identifiers: Vec<String> = identifiers(task).collect();
    let calls = || agent.calls.iter().take(MAX_CALLS).filter_map(|call| trace.calls.get(*call));
    let bytes: usize = calls().filter_map(|call| call.arguments.as_ref()).map(|text| text.len()).sum();
    if !memo.budget.spend(task.len() / 16 + (1 + task_identifiers.len()) * (agent.calls.len() + bytes / 16)) {
        return None;
    }
    let has = |call: &Call, id: &str| call.arguments.as_deref().is_none_or(|a| contains_ignoring_case(a, id));
    let unpassed: Vec<String> =
        task_identifiers.into_iter().filter(|id| !calls().any(|call| has(call, id))).collect();
    // The origins of the arguments are expensive, so they are computed only where a finding is possible.
    let has_address = |call: &Call| call.arguments.as_deref().is_some_and(|text| text.contains('@'));
    let miscopied = || {
        let passed = || calls().filter_map(|call| call.arguments.as_deref());
        passed().any(|text| identifiers(text).next().is_some()).then_some(())?;
        let results = ResultIdentifiers::read(trace, memo, agent)?;
        calls().find_map(|call| results.miscopied(memo, call, task))
    };
    let miscopied =
        if unpassed.is_empty() && !calls().any(has_address) { Some(miscopied()?) } else { miscopied() };
    let provenance = Provenance::cached(trace, memo);
    calls().find_map(|call| {
        let value = &provenance.invented(trace, call)?.value;
        let expected = unpassed.iter().find(|id| shape(id) == shape(value)).map(String::as_str);
        let expected_in_result =
            || miscopied.as_ref().filter(|(at, _)| *at == call.at).map(|(_, expected)| expected.as_str());
        let expected = expected.or_else(expected_in_result);
        let is_sent =
            || purpose(trace, memo, call) == Purpose::Action && may_reach(trace, memo, agent, call, value);
        let expected = expected.or_else(|| {
            (value.contains('@') && is_sent()).then_some("an address of the request or of a result")
        })?;
        let rationale = format!(
            "{expected} was expected; {} has {value}, which no message or result contains",
            call.name.trim()
        );
        let finding = Defect::ContradictsRequest.finding(rationale, quoted(call)).citing_at(trace, call.at);
        Some((call.llm?, finding))
    })
}

/// Whether an action may have reached an address: it did not fail, and no lookup before it found somebody by the
/// address.
fn may_reach(trace: &AgentTrace, memo: &Memo, agent: &Agent, action: &Call, address: &str) -> bool {
    let attempts = CallAttempts::get(trace, memo);
    let calls = || agent.calls.iter().take(MAX_CALLS).filter_map(|i| Some((*i, trace.calls.get(*i)?)));
    let finds = |(i, call): (usize, &Call)| {
        call.start < action.start
            && purpose(trace, memo, call) == Purpose::Query
            && attempts.has_succeeded(i)
            && call.arguments.as_deref().is_some_and(|text| contains_ignoring_case(text, address))
    };
    let bytes: usize = calls().filter_map(|(_, call)| call.arguments.as_ref()).map(|text| text.len()).sum();
    memo.budget.spend(1 + bytes / BYTES_PER_STEP)
        && calls().any(|(i, call)| call.at == action.at && attempts.has_succeeded(i))
        && !calls().any(finds)
}

/// The identifiers of the results of an agent's calls.
struct ResultIdentifiers<'t> {
    trace: &'t AgentTrace,
    calls: Vec<&'t Call>,
    /// By identifier, the start of the first call whose result has it.
    first_start: HashMap<String, u64>,
    /// By shape, the identifiers in the order of the results.
    by_shape: HashMap<String, Vec<String>>,
}

impl<'t> ResultIdentifiers<'t> {
    /// Reads each result once; `None` beyond the work budget.
    fn read(trace: &'t AgentTrace, memo: &Memo, agent: &Agent) -> Option<ResultIdentifiers<'t>> {
        let calls = agent.calls.iter().take(MAX_CALLS).filter_map(|call| trace.calls.get(*call)).collect();
        let mut results =
            ResultIdentifiers { trace, calls, first_start: HashMap::default(), by_shape: HashMap::default() };
        for call in &results.calls {
            let Some(result) = &call.result else { continue };
            memo.budget.spend(1 + result.len() / 4).then_some(())?;
            for id in identifiers(result) {
                results
                    .first_start
                    .entry(id.clone())
                    .and_modify(|start| *start = call.start.min(*start))
                    .or_insert_with(|| {
                        results.by_shape.entry(shape(&id)).or_default().push(id);
                        call.start
                    });
            }
        }
        Some(results)
    }

    /// The identifier of an earlier result that nearly equals an identifier of the call and that no call passes, with
    /// the span of the call. The texts before the call are searched only if there is such an identifier.
    fn miscopied(&self, memo: &Memo, call: &Call, task: &str) -> Option<(Idx, String)> {
        let is_earlier = |id: &&String| self.is_earlier(id, call);
        // Identifiers of the call that no result has, and that are similar to none.
        let mut others: Vec<String> = Vec::new();
        for id in identifiers(call.arguments.as_deref()?).take(MAX_PASSED) {
            let similar = self.by_shape.get(&shape(&id)).map_or(&[][..], Vec::as_slice);
            memo.budget.spend(1 + task.len() / BYTES_PER_STEP + similar.len()).then_some(())?;
            if self.is_earlier(&id, call) || contains_ignoring_case(task, &id) {
                continue;
            }
            let nearest = similar
                .iter()
                .filter(is_earlier)
                .find(|other| is_nearly_equal(&id, other) && !self.is_passed(other));
            let Some(expected) = nearest else {
                others.push(id);
                continue;
            };
            // A finding is only about the first identifier without a source.
            for other in std::mem::take(&mut others) {
                if !self.is_known(memo, call, &other) {
                    return None;
                }
            }
            if !self.is_known(memo, call, &id) {
                return Some((call.at, expected.clone()));
            }
        }
        None
    }

    /// Whether the result of a call that began before another one has an identifier.
    fn is_earlier(&self, id: &str, call: &Call) -> bool {
        self.first_start.get(id).is_some_and(|start| *start < call.start)
    }

    /// Whether a text before a call contains an identifier; true beyond the work budget.
    fn is_known(&self, memo: &Memo, call: &Call, id: &str) -> bool {
        let known = KnownTexts::cached(self.trace, memo);
        known
            .before(self.trace, call)
            .is_none_or(|texts| have_wording(texts.iter(), memo, |text| contains_ignoring_case(text, id)))
    }

    /// Whether a call passes an identifier.
    fn is_passed(&self, id: &str) -> bool {
        let mut passed = self.calls.iter().filter_map(|call| call.arguments.as_deref());
        passed.any(|text| contains_ignoring_case(text, id))
    }
}

/// Whether two identifiers differ by two swapped characters, or by one character that is not the last. The last
/// character differs in consecutive identifiers.
fn is_nearly_equal(one: &str, other: &str) -> bool {
    if shape(one) != shape(other) || one.bytes().filter(u8::is_ascii_digit).count() < MIN_DIGITS {
        return false;
    }
    let differing: Vec<(usize, (char, char))> =
        one.chars().zip(other.chars()).enumerate().filter(|(_, (a, b))| a != b).collect();
    match differing.as_slice() {
        // A digit of a short run, such as a year, may differ although both identifiers are correct.
        [(at, _)] => at + 1 < one.chars().count() && digits_around(one, *at) > MIN_DIGITS,
        [(_, (a, b)), (_, (c, d))] => a == d && b == c,
        _ => false,
    }
}

/// The length of the run of digits around the character at `at`.
fn digits_around(id: &str, at: usize) -> usize {
    let (before, after) = id.split_at_checked(at).unwrap_or_default();
    let is_digit = |b: &u8| b.is_ascii_digit();
    before.bytes().rev().take_while(is_digit).count() + after.bytes().take_while(is_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn finding_count(task: &str, calls: &[&str]) -> usize {
        let script = calls.iter().fold(Script::new(task), |script, arguments| {
            script.calls("", &[("release_parcel", arguments)]).returns(r#"{"state":"released"}"#)
        });
        find(&script.answers("Released.").build(), &Memo::new()).len()
    }

    #[test]
    fn identifier_that_differs_from_the_one_of_the_request_is_found() {
        let task = "Please release parcel PX-7741 for the customer.";
        assert_eq!(finding_count(task, &[r#"{"parcel_id":"PX-7714"}"#]), 1);
        assert_eq!(finding_count(task, &[r#"{"parcel_id":"PX-7741"}"#]), 0);
        assert_eq!(finding_count(task, &[r#"{"parcel_id":"px7741"}"#]), 0);
        assert_eq!(finding_count(task, &[r#"{"parcel_id":"PX-7714"}"#, r#"{"parcel_id":"PX-7741"}"#]), 0);
    }

    #[test]
    fn identifier_of_another_form_or_origin_is_not_reported() {
        let task = "Please release parcel PX-7741 for the customer.";
        assert_eq!(finding_count(task, &[r#"{"request_id":"a8f3-11"}"#]), 0);
        let looked = Script::new(task).calls("", &[("find_parcel", r#"{"text":"customer"}"#)]);
        let looked = looked.returns(r#"{"parcel":"PX-8120"}"#);
        let run = looked.calls("", &[("release_parcel", r#"{"parcel_id":"PX-8120"}"#)]).returns("ok");
        assert!(find(&run.answers("Released.").build(), &Memo::new()).is_empty());
    }

    #[test]
    fn identifier_that_is_copied_wrongly_from_a_result_is_found() {
        let run = |passed: &[&str]| {
            let script = Script::new("Which orders has Ana Ruiz?").calls("", &[("get_customer", "{}")]);
            let script = script.returns(
                r#"{"customer_id":"C-88213","region":"R-40017","batch":"B-55010","report":"M-2025-07"}"#,
            );
            let call = |script: Script, id: &&str| {
                let arguments = format!(r#"{{"customer_id":"{id}"}}"#);
                script.calls("", &[("get_orders", &arguments)]).returns("[]")
            };
            let run = passed.iter().fold(script, call);
            find(&run.answers("None.").build(), &Memo::new()).len()
        };
        assert_eq!(run(&["C-88231"]), 1, "two digits changed places");
        assert_eq!(run(&["C-89213"]), 1, "one digit is another");
        assert_eq!(run(&["C-88213"]), 0);
        assert_eq!(run(&["C-88231", "C-88213"]), 0, "corrected");
        assert_eq!(run(&["B-55011"]), 0, "the next one");
        assert_eq!(run(&["C-71400"]), 0, "not alike");
        assert_eq!(run(&["M-2024-07"]), 0, "of another year");
        assert_eq!(run(&["Q-88231"]), 0, "alike by chance");
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
