//! Actions for another day than the answer reports: "the dentist is in your calendar for 16 June", and `create_event`
//! has `2026-06-09`.
//!
//! Principle: an answer that reports the day of the request as the day of the action needs an action with this day.
//! There is a finding if the request and the answer name only this day, no action and no result of an action has it,
//! and the only action with a day has another day. A lookup for the right day is not an action. Only the day of the
//! thing itself is compared, not the day of its shipping or its end.
//!
//! In: the request, the calls and the answer of an agent, in English. Out: one finding for each agent, on the model
//! span that requested the call.

use serde_json::Value;
use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::dates_and_times::{Day, days, is_relative};
use crate::measure::Finding;
use crate::measure::defects::Defect;
use crate::measure::identifier::identifier_words;
use crate::measure::language::Language;
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::recognise::Call;

/// Maximum bytes of the request and of the answer: longer texts name several things.
const MAX_TASK_BYTES: usize = 400;
const MAX_ANSWER_BYTES: usize = 1_500;
/// Maximum bytes of the arguments and result of a call: longer texts are about several things.
const MAX_BYTES: usize = 2_000;
/// Maximum calls of an agent that are read.
const MAX_CALLS: usize = 40;
/// Maximum days between the requested and the passed day: a day further away belongs to another thing.
const MAX_DAYS: i64 = 60;

/// Words in names of arguments for the day of a thing.
const DAY_WORDS: [&str; 17] = [
    "date",
    "day",
    "datetime",
    "time",
    "timestamp",
    "start",
    "starts",
    "begin",
    "begins",
    "at",
    "on",
    "when",
    "from",
    "scheduled",
    "for",
    "new",
    "event",
];

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent, .. } = *conduct;
    let task = conduct.task(MAX_TASK_BYTES)?;
    let answer = agent.answer.as_deref().filter(|text| text.len() <= MAX_ANSWER_BYTES)?;
    let may_change = |call: &Call| call.llm.is_some() && purpose(trace, memo, call) != Purpose::Query;
    let mut actions =
        conduct.succeeded(MAX_CALLS).map(|(_, call)| call).filter(|call| may_change(call)).peekable();
    actions.peek()?;
    if !memo.budget.spend(1 + (task.len() + answer.len()) / 4) || is_relative(task) {
        return None;
    }
    let request_days = days(task);
    let [requested] = request_days.as_slice() else { return None };
    let answer_days = days(answer);
    if answer_days.is_empty() || !answer_days.iter().all(|day| day.may_equal(*requested)) {
        return None;
    }
    Language::detected(task, None, memo).filter(|language| *language == Language::English)?;
    let mut calls_with_days: Vec<(&Call, Vec<Day>)> = Vec::new();
    for call in actions {
        let texts = || [&call.arguments, &call.result].into_iter().flatten();
        let bytes: usize = texts().map(|text| text.len()).sum();
        (bytes <= MAX_BYTES && memo.budget.spend(1 + bytes / 4)).then_some(())?;
        if texts().flat_map(|text| days(text)).any(|day| day.may_equal(*requested)) {
            return None;
        }
        let passed = days_of_thing(call);
        if !passed.is_empty() {
            calls_with_days.push((call, passed));
        }
    }
    let [(call, passed)] = calls_with_days.as_slice() else { return None };
    let first = passed.iter().find(|day| requested.days_until(**day).abs() <= MAX_DAYS)?;
    let rationale = format!(
        "{} was expected, as the request and the answer say; {} has {}",
        requested.shown(),
        call.name.trim(),
        first.shown()
    );
    conduct.finding(Defect::ContradictsRequest, rationale, call)
}

/// The days of the thing that a call creates: days in arguments that are named for a day, or for the thing and a day
/// ("appointment_date"). Other arguments have days of something else: "ship_date" of an order, "expires" of a link.
fn days_of_thing(call: &Call) -> Vec<Day> {
    let tool = identifier_words(&call.name);
    let names_day = |key: &str| {
        let words = identifier_words(key);
        words.iter().all(|word| DAY_WORDS.contains(&word.as_str()) || tool.contains(word))
    };
    let Some(arguments) = call.parsed.as_deref().and_then(Value::as_object) else { return Vec::new() };
    let members = arguments.iter().filter(|(key, _)| names_day(key));
    members.flat_map(|(_, value)| days(&value.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::conduct::findings_of;
    use super::*;
    use crate::measure::testing::Script;

    fn is_found(task: &str, date: &str, answer: &str) -> bool {
        let (range, event) =
            (r#"{"from":"2026-06-16"}"#, format!(r#"{{"title":"Dentist","date":"{date}"}}"#));
        let run = Script::new(task).calls("", &[("list_events", range)]).returns("[]");
        let run = run.calls("", &[("create_event", &event)]).returns(r#"{"id":"ev-1"}"#);
        !findings_of(check, &run.answers(answer).build()).is_empty()
    }

    #[test]
    fn an_action_on_another_day_is_not_reported_as_the_one_of_the_request() {
        let call = |key: &str| {
            let arguments = format!(r#"{{"{key}":"2026-06-15"}}"#);
            let run = Script::new("").calls("", &[("create_order", &arguments)]).returns("ok");
            let trace = run.answers("Done.").build();
            days_of_thing(trace.calls.first().unwrap()).len()
        };
        assert_eq!(["date", "order_date", "startTime", "ship_date", "expires"].map(call), [1, 1, 1, 0, 0]);
        let task = "Please put the dentist into my calendar for June 16 2026.";
        assert!(is_found(task, "2026-06-09", "Done: the dentist is in your calendar for June 16."));
        for (task, date, answer) in [
            (task, "2026-06-16", "Done: the dentist is in your calendar for June 16."),
            (task, "2026-06-09", "Done: the dentist is in your calendar for June 9."),
            (task, "2026-06-09", "June 16 was taken, so the dentist is on June 9."),
            (
                "Remind me the day before the dentist on June 16 2026.",
                "2026-06-15",
                "I will remind you of June 16.",
            ),
            (
                "Please put the dentist of June 16 and the bill of June 30 in.",
                "2026-06-09",
                "Both are in, for June 16.",
            ),
        ] {
            assert!(!is_found(task, date, answer), "{answer}");
        }
    }
}
