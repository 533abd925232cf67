//! Results of calls that say that nothing was changed: `UPDATE 0`, `{"matched": 0, "modified": 0}`.
//!
//! Principle: a result that consists of counts and flags, and whose counts are all 0, reports that nothing was done. A
//! count of failures or attempts says the same; another count says what happened instead ("upserted": 1). A result that
//! describes a thing as well may have such keys for the state of the thing. A result whose state is that of a refusal
//! (`status: rejected`) reports the same, unless the call asked for this state, or was the request that may be
//! rejected. A flag that the action was not accepted, or not done, reports the same if the result has a reason: without
//! a reason it may be the state of the thing (an invitation that nobody accepted yet); where the result has nothing but
//! flags and reasons, any participle says what was not done.

use serde_json::Value;

use crate::measure::Memo;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, ReadText, WordClass, names};
use crate::measure::records::{FieldValue, Record, RecordField, Records, Structure};
use crate::measure::tool_purpose::action_of;
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Call, Text};

/// Longer results describe more than an effect.
const MAX_BYTES: usize = 400;
/// Longer results are not read for a flag, nor more records of one or arguments of its call.
const MAX_DENIAL: usize = 2_000;
const MAX_KEYS: usize = 16;
/// Longer values are no state.
const MAX_STATE: usize = 40;

// The report of a database, or a sentence with such a count.
regex!(
    NONE_IN_TEXT,
    r"(?i)^\W*(?:(?:update|delete|insert 0|merge) 0\W*$|(?:query )?(?:ok|done|success)?\W*0 (?:rows?|records?|documents?|entries|items?|messages?|e-?mails?|files?|changes?)(?: were| was)? (?:affected|updated|changed|modified|deleted|removed|inserted|added|created|sent|delivered|matched|made)\b)"
);

// In a text, another count of what was done: "0 rows updated, 1 row inserted".
regex!(COUNTED_IN_TEXT, r"(?i)\b[1-9]\d* (?:\w+ ){0,3}?(?:were |was )?(?P<done>\w+ed)\b");

// Results of programs are English in any language of their users: these are words of protocols.

/// Words of keys that count failures or attempts, or measure something else.
const COUNT_NO_EFFECT: [&str; 25] = [
    "failed",
    "failures",
    "failure",
    "errors",
    "error",
    "rejected",
    "skipped",
    "denied",
    "invalid",
    "code",
    "http",
    "status",
    "requested",
    "attempted",
    "attempts",
    "retries",
    "took",
    "time",
    "duration",
    "elapsed",
    "ms",
    "seconds",
    "version",
    "conflicts",
    "warnings",
];

/// Words of keys that count what was done.
const COUNT_EFFECTS: [&str; 17] = [
    "matched",
    "modified",
    "affected",
    "updated",
    "changed",
    "inserted",
    "created",
    "added",
    "deleted",
    "removed",
    "sent",
    "delivered",
    "cancelled",
    "canceled",
    "refunded",
    "succeeded",
    "rowcount",
];

/// States of what was refused.
const REFUSED: [&str; 4] = ["rejected", "declined", "denied", "refused"];

/// Flags of a trial, without the signs between their words.
const TRIALS: [&str; 3] = ["dryrun", "simulated", "simulation"];

/// Words of a state that waits for a decision: one of each, `pending_approval`, `AWAITING_REVIEW`, `approval required`.
const WAITING: [&str; 8] =
    ["pending", "awaiting", "awaits", "waiting", "required", "requires", "needed", "needs"];
const DECISIONS: [&str; 8] = [
    "approval",
    "authorization",
    "authorisation",
    "confirmation",
    "review",
    "signature",
    "consent",
    "verification",
];
/// States of a place in a queue.
const WAITLISTED: [&str; 2] = ["waitlisted", "waitlist"];

/// Words of flags that say whether what was asked for was done.
const DONE: [&str; 6] = ["accepted", "success", "successful", "succeeded", "applied", "ok"];
/// Keys of the reason why not, besides words for reasons.
const REASONS: [&str; 8] = ["code", "error", "errors", "message", "detail", "details", "retry", "hint"];
/// Longer values are no answer to an invitation or a question.
const MAX_ANSWER: usize = 12;

/// Whether the result of a call reports that it had no effect.
pub(crate) fn reports_none(call: &Call, memo: &Memo) -> bool {
    denies(call, memo) || is_trial(call, memo)
}

/// Whether the result of a call reports that its action was refused, or changed nothing.
pub(crate) fn denies(call: &Call, memo: &Memo) -> bool {
    call.result.as_ref().is_some_and(|result| {
        counts_nothing(result, memo) || is_refused(call, result, memo) || is_denied(call, result, memo)
    })
}

/// Whether a flag in the result of a call says that it was only a trial: `dry_run: true`.
pub(crate) fn is_trial(call: &Call, memo: &Memo) -> bool {
    // Other rules read the structure of most results, so that a search for the words of a flag costs more.
    let result = call.result.as_ref().filter(|text| text.len() <= MAX_DENIAL);
    let structure = result.and_then(|result| Structure::cached(result, memo));
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
    let top_level_records = parsed.records.iter().take(MAX_KEYS).filter(|record| record.list.is_none());
    let is_trial = |field: &RecordField| {
        field.value == FieldValue::Bool(true) && TRIALS.contains(&&*field.name.concat())
    };
    top_level_records.flat_map(|record| &record.fields).any(is_trial)
}

/// Whether a flag in the result of a call says, together with a reason, that its action was not accepted or not done.
fn is_denied(call: &Call, result: &Text, memo: &Memo) -> bool {
    if result.len() > MAX_DENIAL || !result.contains("false") {
        return false;
    }
    let structure = Structure::cached(result, memo);
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
    let action = identifier_words(&call.name).iter().find_map(|word| action_of(word));
    let is_done = |word: &String| DONE.contains(&word.as_str());
    // A switch is off after `disable`.
    let is_own = |word: &String| {
        action.is_some_and(|call_action| call_action != Action::Update)
            && word.ends_with("ed")
            && action_of(word) == action
    };
    let is_passed = |name: &[String]| {
        let keys = call.parsed.as_deref().and_then(serde_json::Value::as_object).into_iter().flatten();
        keys.take(MAX_KEYS).any(|(key, _)| identifier_words(key) == name)
    };
    let top_level_records = || parsed.records.iter().take(MAX_KEYS).filter(|record| record.list.is_none());
    // A flag of a part does not deny an action that was done, unless the flag is named for the action itself.
    let says_done = |record: &Record| {
        record.fields.iter().any(|field| {
            field.value == FieldValue::Bool(true)
                && field.name.iter().any(|word| DONE.contains(&word.as_str()))
        })
    };
    let is_answered = top_level_records().any(says_done);
    let is_reason = |word: &String| REASONS.contains(&word.as_str()) || names::is_of(word, WordClass::Reason);
    // A result of flags and reasons describes no thing: a participle is what was not done, `posted`.
    let mut fields = parsed.records.iter().flat_map(|record| &record.fields);
    // The result of an action that ends something is a false flag: `subscribed: false`.
    let makes = action.is_some_and(|call_action| {
        use Action::{Add, Book, Create, Notify, Order, Pay, Refund, Schedule, Send, Submit, Transfer};
        matches!(
            call_action,
            Add | Book | Create | Notify | Order | Pay | Refund | Schedule | Send | Submit | Transfer
        )
    });
    let says_true = top_level_records()
        .any(|record| record.fields.iter().any(|field| field.value == FieldValue::Bool(true)));
    let is_pure = makes
        && !says_true
        && fields.all(|field| matches!(field.value, FieldValue::Bool(_)) || field.name.iter().any(is_reason));
    top_level_records().any(|record| {
        let mut flags = record.fields.iter().filter(|field| field.value == FieldValue::Bool(false));
        flags.any(|flag| {
            flag.name.iter().any(|word| {
                is_own(word) || (is_done(word) || is_pure && word.ends_with("ed")) && !is_answered
            }) && flag.name.len() <= 2
                && !is_passed(&flag.name)
        }) && record.fields.iter().any(|field| field.name.iter().any(is_reason))
    })
}

/// Whether the state in the result of a call says that it was refused.
fn is_refused(call: &Call, result: &Text, memo: &Memo) -> bool {
    let may_be = |state: &&str| contains_ignoring_case(result, state);
    if result.len() > MAX_BYTES || !REFUSED.iter().chain(&["not_"]).any(may_be) {
        return false;
    }
    let structure = Structure::cached(result, memo);
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
    let mut states = states(parsed).map(|(_, state)| state);
    let is_asked = |state: &str| asks_for(call, state, memo);
    let takes_effect = |word: &String| {
        use Action::{Add, Book, Cancel, Delete, Order, Pay, Refund, Schedule, Transfer, Update};
        let effects = [Add, Book, Cancel, Delete, Order, Pay, Refund, Schedule, Transfer, Update];
        action_of(word).is_some_and(|action| effects.contains(&action))
    };
    // `not_posted`
    let is_undone = |state: &str| state.starts_with("not_") && state.ends_with("ed");
    states.any(|state| (REFUSED.contains(&state) || is_undone(state)) && !is_asked(state))
        && identifier_words(&call.name).first().is_some_and(takes_effect)
}

/// The state in the result of a call by which its action still waits: for somebody's decision, or for a place.
pub(crate) fn awaited(call: &Call, memo: &Memo) -> Option<String> {
    let waits = |text: &&Text| {
        let words = WAITING.iter().chain(&WAITLISTED);
        text.len() <= MAX_DENIAL && words.into_iter().any(|word| contains_ignoring_case(text, word))
    };
    let structure = Structure::cached(call.result.as_ref().filter(waits)?, memo)?;
    let mut states =
        states(structure.0.as_ref()?).filter(|(name, _)| name.len() == 1).map(|(_, state)| state);
    let state = states.find(|state| {
        let words = identifier_words(state);
        let has = |terms: &[&str]| words.iter().any(|word| terms.contains(&word.as_str()));
        has(&WAITLISTED) || has(&WAITING) && has(&DECISIONS)
    });
    state.filter(|state| state.len() <= MAX_STATE).map(str::to_owned)
}

/// The states of the thing that a result is about.
fn states(parsed: &Records) -> impl Iterator<Item = (&[String], &str)> {
    let is_state = |word: &String| matches!(word.as_str(), "status" | "state" | "result" | "outcome");
    // The outermost records come first.
    let top_level_records = parsed.records.iter().take(2).filter(|record| record.list.is_none());
    let fields = top_level_records.flat_map(|record| &record.fields);
    let states = fields.filter(move |field| field.name.last().is_some_and(is_state));
    states.filter_map(|field| Some((&**field.name, field.text()?)))
}

/// Whether the arguments of a call ask for the state of a refusal: by its word, or by a "no".
fn asks_for(call: &Call, state: &str, memo: &Memo) -> bool {
    let stem = if state == "denied" { "deny" } else { state.trim_end_matches("ed") };
    let arguments = call.parsed.as_deref().and_then(Value::as_object);
    let is_no = |value: &Value| match value {
        Value::Bool(value) => !value,
        Value::String(text) => {
            text == "n" || text.len() <= MAX_ANSWER && ReadText::new(text, None, memo).withdraws()
        }
        _ => false,
    };
    let has = |text: &str| contains_ignoring_case(text, stem) || contains_ignoring_case(text, state);
    call.arguments.as_deref().is_some_and(has)
        || arguments.is_some_and(|arguments| arguments.values().any(is_no))
}

fn counts_nothing(result: &Text, memo: &Memo) -> bool {
    if result.len() > MAX_BYTES || !result.contains('0') {
        return false;
    }
    if !result.trim_start().starts_with(['{', '[']) {
        let happened = |found: regex::Captures<'_>| {
            found.name("done").is_some_and(|word| !COUNT_NO_EFFECT.contains(&&*word.as_str().to_lowercase()))
        };
        return NONE_IN_TEXT.is_match(result) && !COUNTED_IN_TEXT.captures_iter(result).any(happened);
    }
    let structure = Structure::cached(result, memo);
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
    let fields = || parsed.records.iter().flat_map(|record| &record.fields);
    // A text next to the counts is a state or a message: one without figures names no thing.
    let is_thing = |text: &str| text.bytes().any(|b| b.is_ascii_digit());
    let is_id = |name: &[String]| name.last().is_some_and(|word| word == "id");
    let describes = fields().any(|field| is_id(&field.name) || field.text().is_some_and(is_thing));
    let mut counts =
        fields().filter(|field| field.name.iter().any(|word| COUNT_EFFECTS.contains(&&**word))).peekable();
    let is_zero = |field: &RecordField| field.number().is_none_or(|number| number == 0.0);
    let counts_no_effect =
        |field: &RecordField| field.name.iter().any(|word| COUNT_NO_EFFECT.contains(&&**word));
    !describes
        && counts.peek().is_some()
        && counts.all(|field| field.value == FieldValue::Number(0.0))
        && fields().all(|field| is_zero(field) || counts_no_effect(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    #[test]
    fn counts_that_are_all_zero_report_no_effect() {
        for (result, is_none) in [
            (r#"{"matched":0,"modified":0}"#, true),
            (r#"{"acknowledged":true,"result":{"rows_affected":0}}"#, true),
            (r#"{"sent":0,"failed":1}"#, true),
            ("UPDATE 0", true),
            ("Query OK, 0 rows affected", true),
            ("0 messages were sent.", true),
            (r#"{"deleted":0,"requested":3,"took_ms":12}"#, true),
            ("0 rows updated, 2 rows skipped", true),
            (r#"{"updated":0,"unchanged":1}"#, false),
            (r#"{"matched":0,"modified":0,"upserted":1}"#, false),
            (r#"{"sent":0,"queued":2}"#, false),
            ("0 rows updated, 1 row inserted.", false),
            (r#"{"matched":1,"modified":0}"#, false),
            (r#"{"updated":0,"created":1}"#, false),
            (r#"{"id":"T-17","state":"open","deleted":0}"#, false),
            (r#"{"id":17,"deleted":false}"#, false),
            (r#"{"errors":0,"status":"ok"}"#, false),
            ("UPDATE 1", false),
            ("Done: 10 rows affected", false),
            ("0 errors", false),
        ] {
            assert_eq!(counts_nothing(&result.into(), &Memo::new()), is_none, "{result}");
        }
    }

    #[test]
    fn flag_beside_a_reason_reports_no_effect() {
        let denied = |tool: &str, arguments: &str, result: &str| {
            let run =
                Script::new("task").calls("", &[(tool, arguments)]).returns(result).answers("done").build();
            reports_none(&run.calls[0], &Memo::new())
        };
        for (tool, result, is_none) in [
            (
                "cancel_plan",
                r#"{"http":200,"data":{"state":"active","change":{"accepted":false,"code":"DUES"}}}"#,
                true,
            ),
            ("refund_fee", r#"{"refunded":false,"reason":"past the limit"}"#, true),
            ("send_invite", r#"{"invite":"I-7","accepted":false}"#, false),
            ("pay_invoice", r#"{"posted":false,"code":"E_SUSPENDED"}"#, true),
            ("pay_invoice", r#"{"posted":false}"#, false),
            ("pay_invoice", r#"{"result":"not_posted","note":"suspended"}"#, true),
            ("roll_out", r#"{"dry_run":true,"plan":"v2 -> v1"}"#, true),
            ("roll_out", r#"{"dry_run":false,"plan":"v2 -> v1"}"#, false),
            ("pay_invoice", r#"{"id":"I-7","posted":false,"message":"Will be posted at noon."}"#, false),
            ("create_task", r#"{"id":7,"title":"Call Ana","completed":false}"#, false),
            ("update_member", r#"{"id":7,"active":false,"message":"saved"}"#, false),
            ("book_room", r#"{"booked":true,"breakfast":false,"message":"ok"}"#, false),
        ] {
            assert_eq!(denied(tool, "{}", result), is_none, "{tool} {result}");
        }
    }

    #[test]
    fn state_of_a_refusal_reports_no_effect() {
        let none = |tool: &str, arguments: &str, result: &str| {
            let run =
                Script::new("task").calls("", &[(tool, arguments)]).returns(result).answers("done").build();
            reports_none(&run.calls[0], &Memo::new())
        };
        assert!(none(
            "reserve_car",
            r#"{"quote":"Q-771"}"#,
            r#"{"status":"rejected","reason":"quote expired"}"#
        ));
        assert!(none("pay_invoice", "{}", r#"{"payment":{"state":"declined"}}"#));
        assert!(!none("update_claim", r#"{"state":"rejected"}"#, r#"{"id":"C-7","state":"rejected"}"#));
        assert!(!none(
            "update_rsvp",
            r#"{"event":"EV-1","answer":"no"}"#,
            r#"{"event":"EV-1","status":"declined"}"#
        ));
        assert!(!none("update_request", r#"{"action":"deny"}"#, r#"{"state":"denied"}"#));
        assert!(none("update_rsvp", r#"{"event":"EV-1","answer":"yes"}"#, r#"{"status":"declined"}"#));
        assert!(!none("submit_claim", "{}", r#"{"id":"C-7","state":"rejected"}"#));
        assert!(!none("book_room", "{}", r#"{"state":"booked","earlier":[{"state":"rejected"}]}"#));
        assert!(!none("book_room", "{}", "The first request was rejected, then it was booked."));
    }
}
