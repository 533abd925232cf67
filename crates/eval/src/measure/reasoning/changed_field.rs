//! Bookings and orders with another value in a field than the user gave and the lookup before had: `checkout: 8 May` in
//! the search, as requested, and `checkout: 7 May` in the booking.
//!
//! Principle: if a lookup passed a number or a day of the request in a field, or returned it in that field, the action
//! after the lookup has the same value in this field. There is a finding if the action has another value there that
//! neither the user nor the answer mentions, and that no earlier call passed. The requested value is then known to be
//! possible, so that the other value is no substitute. A value that only a result has counts if the result has both
//! values in this field. Only actions that create something are compared, since an update changes the value that the
//! user names. A request with words for a change or an alternative leaves the value to the agent.
//!
//! In: the messages of the user, the calls of an agent and its answer. Out: one finding for each agent, on the model
//! span that requested the call.

use serde_json::Value;
use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::dates_and_times::{Day, days};
use crate::measure::Finding;
use crate::measure::defects::Defect;
use crate::measure::language::{Action, WordClasses, classes, classes_in};
use crate::measure::numbers;
use crate::measure::tool_purpose::ToolPurpose;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;
use crate::recognise::Call;

/// Maximum bytes of the user's messages, and of the answer: longer texts are about several things.
const MAX_USER_BYTES: usize = 600;
const MAX_ANSWER_BYTES: usize = 2_000;
/// Maximum calls of an agent that are compared.
const MAX_CALLS: usize = 40;
/// Maximum fields of a call that are compared.
const MAX_FIELDS: usize = 16;
/// Maximum bytes of a result that is read.
const MAX_RESULT_BYTES: usize = 8_000;
/// The smallest number that is compared: smaller numbers may be written in words or belong to something else.
const MIN_NUMBER: f64 = 20.0;
/// Classes of words of a request that leaves a value to the agent.
const CHANGE: WordClasses = classes!(Increment Quantifier Alternative Exception Contrast Approximation);

/// A value of a field that is compared.
#[derive(Clone, Copy, PartialEq)]
enum FieldValue {
    Number(f64),
    Day(Day),
}

impl FieldValue {
    /// Reads a value of JSON; `None` for a small number, or a text that does not begin with a single day.
    fn read(value: &Value) -> Option<FieldValue> {
        if let Some(number) = value.as_f64() {
            return (number >= MIN_NUMBER).then_some(FieldValue::Number(number));
        }
        let text = value.as_str().filter(|text| text.len() <= "2026-05-08T00:00:00+00:00".len())?;
        match days(text).as_slice() {
            [day] if text.starts_with(|c: char| c.is_ascii_digit()) => Some(FieldValue::Day(*day)),
            _ => None,
        }
    }

    fn is_in(self, text: &str) -> bool {
        match self {
            FieldValue::Number(number) => numbers::all(text)
                .iter()
                .any(|n| !n.in_identifier && n.possible_values().any(|v| v == number)),
            FieldValue::Day(day) => days(text).iter().any(|other| other.may_equal(day)),
        }
    }

    fn shown(self) -> String {
        match self {
            FieldValue::Number(number) => number.to_string(),
            FieldValue::Day(day) => day.shown(),
        }
    }
}

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent, .. } = *conduct;
    let answer = agent.answer.as_deref().filter(|text| text.len() <= MAX_ANSWER_BYTES)?;
    if !(2..=MAX_CALLS).contains(&agent.calls.len()) {
        return None;
    }
    let calls: Vec<&Call> = conduct.succeeded(MAX_CALLS).map(|(_, call)| call).collect();
    let creates = |call: &Call| {
        let first = ToolPurpose::for_call(trace, memo, call).actions.first().copied();
        call.llm.is_some()
            && conduct.is_action(call)
            && matches!(first, Some(Action::Book | Action::Order | Action::Create | Action::Schedule))
    };
    let actions: Vec<&Call> = calls.iter().copied().filter(|call| creates(call)).collect();
    if actions.is_empty() || actions.len() == calls.len() {
        return None;
    }
    let user_texts = conduct.user_messages();
    let bytes: usize = user_texts.iter().map(|text| text.len()).sum();
    if bytes > MAX_USER_BYTES || !memo.budget.spend(1 + (bytes + answer.len()) / 4) {
        return None;
    }
    let is_mentioned =
        |value: FieldValue| value.is_in(answer) || user_texts.iter().any(|text| value.is_in(text));
    let differing = actions.iter().find_map(|action| {
        fields(action).find_map(|(key, passed)| {
            let earlier = || calls.iter().copied().filter(|call| call.start < action.start && !creates(call));
            let texts = || earlier().flat_map(|call| [&call.arguments, &call.result]).flatten();
            let bytes: usize = texts().map(|text| text.len()).sum();
            memo.budget.spend(1 + 2 * bytes / BYTES_PER_STEP).then_some(())?;
            let passed_before = || earlier().flat_map(fields).filter(|(other, _)| *other == key);
            let is_requested = |value: &FieldValue| user_texts.iter().any(|text| value.is_in(text));
            let is_other = |value: &FieldValue| {
                *value != passed && are_comparable(*value, passed) && is_requested(value)
            };
            let expected = passed_before()
                .map(|(_, value)| value)
                .find(is_other)
                .filter(|_| !texts().any(|text| passed.is_in(text)))
                .or_else(|| earlier().find_map(|call| requested_option(call, key, passed, is_requested)))?;
            // Another action may have the requested value, and a value that was looked up is a choice.
            let is_used = actions.iter().flat_map(|call| fields(call)).any(|(_, value)| value == expected);
            let is_looked_up = passed_before().any(|(_, value)| value == passed);
            (!is_used && !is_looked_up && !is_mentioned(passed)).then_some((*action, key, passed, expected))
        })
    });
    let (action, key, passed, expected) = differing?;
    // The words of the request are read last, since most runs have no such field.
    if user_texts.iter().any(|text| classes_in(text, None, memo).is_none_or(|all| all.has_any(CHANGE))) {
        return None;
    }
    let rationale = format!(
        "{key}: {} was expected, as the user said and an earlier call had it; {} has {}",
        expected.shown(),
        action.name.trim(),
        passed.shown()
    );
    conduct.finding(Defect::ContradictsRequest, rationale, action)
}

/// Whether two values may belong to the same field: two numbers, or two days that are not far apart.
fn are_comparable(one: FieldValue, other: FieldValue) -> bool {
    const MAX_DAYS: i64 = 31;
    match (one, other) {
        (FieldValue::Day(a), FieldValue::Day(b)) => a.days_until(b).abs() <= MAX_DAYS,
        (FieldValue::Number(_), FieldValue::Number(_)) => true,
        _ => false,
    }
}

/// The fields of a call's arguments with a value that is compared.
fn fields(call: &Call) -> impl Iterator<Item = (&str, FieldValue)> {
    let members = call.parsed.as_deref().and_then(Value::as_object).into_iter().flatten().take(MAX_FIELDS);
    members.filter_map(|(key, value)| Some((key.as_str(), FieldValue::read(value)?)))
}

/// The requested number of a list in a result under this key, if the list also has the passed number.
fn requested_option(
    call: &Call,
    key: &str,
    passed: FieldValue,
    is_requested: impl Fn(&FieldValue) -> bool,
) -> Option<FieldValue> {
    let FieldValue::Number(_) = passed else { return None };
    let result = call.result.as_deref().filter(|text| text.len() <= MAX_RESULT_BYTES)?;
    if !contains_ignoring_case(result, &format!("\"{}\"", key.to_lowercase())) {
        return None;
    }
    let parsed: Value = serde_json::from_str(result).ok()?;
    let mut pending_values = vec![&parsed];
    while let Some(value) = pending_values.pop() {
        match value {
            Value::Object(members) => {
                let list = members.get(key).and_then(Value::as_array);
                let values: Vec<FieldValue> =
                    list.into_iter().flatten().filter_map(FieldValue::read).collect();
                let requested = values.iter().copied().find(|value| *value != passed && is_requested(value));
                if let Some(requested) = requested.filter(|_| values.contains(&passed)) {
                    return Some(requested);
                }
                pending_values.extend(members.values());
            }
            Value::Array(items) => pending_values.extend(items),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::conduct::findings_of;
    use super::*;
    use crate::measure::testing::Script;

    fn finding_count(task: &str, calls: &[(&str, &str, &str)], answer: &str) -> usize {
        let script = calls.iter().fold(Script::new(task), |script, (tool, arguments, result)| {
            script.calls("", &[(*tool, arguments)]).returns(result)
        });
        findings_of(check, &script.answers(answer).build()).len()
    }

    const TASK: &str = "Rent a van for me, pickup on 11 June, return on 15 June.";
    const SEARCH: (&str, &str, &str) = (
        "search_vans",
        r#"{"pickup":"2026-06-11","return":"2026-06-15"}"#,
        r#"[{"van":"V2","per_day":48},{"van":"V7","per_day":61}]"#,
    );

    #[test]
    fn other_value_in_a_field_that_a_lookup_had_is_found() {
        let book = |arguments: &'static str| ("book_van", arguments, r#"{"booking":"VB-71"}"#);
        let wrong = book(r#"{"van":"V2","pickup":"2026-06-11","return":"2026-06-14"}"#);
        assert_eq!(finding_count(TASK, &[SEARCH, wrong], "Van V2 is yours (VB-71), 48 a day."), 1);
        let oven = "Book the kiln at 940 degrees for my cups.";
        let modes = ("list_modes", "{}", r#"[{"mode":"glaze","celsius":[940,1060]}]"#);
        let booked = ("book_kiln", r#"{"mode":"glaze","celsius":1060}"#, r#"{"slot":"Fri"}"#);
        assert_eq!(finding_count(oven, &[modes, booked], "The kiln is booked for Friday."), 1);
        let desks = ("find_desks", r#"{"date":"2026-03-04"}"#, r#"["D-1","D-2"]"#);
        let reserved = ("reserve_desk", r#"{"desk":"D-2","date":"2026-03-05"}"#, r#"{"ok":true}"#);
        assert_eq!(
            finding_count("Reserve a desk on 4 March 2026 please.", &[desks, reserved], "Desk D-2 is yours."),
            1
        );
    }

    #[test]
    fn values_that_follow_the_request_or_are_explained_are_right() {
        let book = |arguments: &'static str| ("book_van", arguments, r#"{"booking":"VB-71"}"#);
        let right = book(r#"{"van":"V2","pickup":"2026-06-11","return":"2026-06-15"}"#);
        let wrong = book(r#"{"van":"V2","pickup":"2026-06-11","return":"2026-06-14"}"#);
        let answer = "Van V2 is yours (VB-71), 48 a day.";
        assert_eq!(finding_count(TASK, &[SEARCH, right], answer), 0);
        assert_eq!(
            finding_count(
                TASK,
                &[SEARCH, wrong],
                "Van V2 is yours until 14 June, as it is taken on the 15th."
            ),
            0
        );
        let rest = book(r#"{"van":"V7","pickup":"2026-06-14","return":"2026-06-15"}"#);
        assert_eq!(
            finding_count(TASK, &[SEARCH, wrong, rest], "V2 and then V7 are booked."),
            0,
            "in two parts"
        );
        let shorter =
            ("search_vans", r#"{"pickup":"2026-06-11","return":"2026-06-14"}"#, r#"[{"van":"V2"}]"#);
        assert_eq!(finding_count(TASK, &[SEARCH, shorter, wrong], answer), 0, "looked up");
        let until = (SEARCH.0, SEARCH.1, r#"[{"van":"V2","free_until":"2026-06-14"}]"#);
        assert_eq!(finding_count(TASK, &[until, wrong], answer), 0, "returned");
        assert_eq!(finding_count("A van from 11 to 15 June, or a day less.", &[SEARCH, wrong], answer), 0);
        let moved = ("update_booking", r#"{"booking":"VB-71","return":"2026-06-14"}"#, r#"{"ok":true}"#);
        let known = ("get_booking", r#"{"booking":"VB-71"}"#, r#"{"return":"2026-06-15"}"#);
        assert_eq!(
            finding_count("Return my van a day before 15 June.", &[known, moved], "Done."),
            0,
            "an update"
        );
        let oven = "Book the kiln at 940 degrees for my cups.";
        let modes = ("list_modes", "{}", r#"[{"mode":"glaze","celsius":[960,1060]}]"#);
        let booked = ("book_kiln", r#"{"mode":"glaze","celsius":960}"#, r#"{"slot":"Fri"}"#);
        assert_eq!(finding_count(oven, &[modes, booked], "Booked for Friday."), 0, "940 is not possible");
        let table = ("get_menu", "{}", r#"{"price":[25,40]}"#);
        let order = ("order_menu", r#"{"price":40,"guests":25}"#, r#"{"ok":true}"#);
        assert_eq!(
            finding_count("Order the menu for 25 guests.", &[table, order], "Ordered."),
            0,
            "another field"
        );
    }
}
