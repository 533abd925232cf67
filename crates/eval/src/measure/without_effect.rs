//! Results of calls which report that nothing was changed: `UPDATE 0`, `{"matched": 0, "modified": 0}`.
//!
//! Principle: a result of counts and flags reports no effect if all counts of effects are 0. Counts of failures or
//! attempts may be greater; another count that is not 0 is an effect ("upserted": 1). A result that also describes an
//! object may have such keys for the state of the object, and reports nothing. A state of refusal (`status: rejected`)
//! reports no effect, unless the call asked for this state, or is a request that others may reject. A flag that the
//! action was not accepted or not done reports no effect if the result contains a reason: without a reason it may be
//! the state of the object (an invitation that nobody has accepted yet). In a result of flags and reasons alone, any
//! false flag with a participle (`posted`) reports no effect.

use serde_json::Value;

use crate::measure::Memo;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, ReadText, WordClass, names};
use crate::measure::records::{FieldValue, Record, RecordField, Records, Structure};
use crate::measure::tool_purpose::action_of;
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Call, Text};

/// Maximum bytes of a result that is read for counts or a state; longer results describe more than an effect.
const MAX_BYTES: usize = 400;
/// Maximum bytes of a result that is read for flags.
const MAX_FLAG_BYTES: usize = 2_000;
/// Maximum records of a result, and arguments of its call, that are read.
const MAX_KEYS: usize = 16;
/// Maximum bytes of a state.
const MAX_STATE_BYTES: usize = 40;

// The report of a database, or a sentence with a count of 0.
regex!(
    NONE_IN_TEXT,
    r"(?i)^\W*(?:(?:update|delete|insert 0|merge) 0\W*$|(?:query )?(?:ok|done|success)?\W*0 (?:rows?|records?|documents?|entries|items?|messages?|e-?mails?|files?|changes?)(?: were| was)? (?:affected|updated|changed|modified|deleted|removed|inserted|added|created|sent|delivered|matched|made)\b)"
);

// Another count of an effect in a text: "0 rows updated, 1 row inserted".
regex!(COUNTED_IN_TEXT, r"(?i)\b[1-9]\d* (?:\w+ ){0,3}?(?:were |was )?(?P<done>\w+ed)\b");

// Results of programs are English for users of any language: these are words of protocols.

/// Words of keys that count failures or attempts, or measure something else.
const NO_EFFECT_KEYS: [&str; 25] = [
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

/// Words of keys that count effects.
const EFFECT_KEYS: [&str; 17] = [
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

/// States of a refusal.
const REFUSED: [&str; 4] = ["rejected", "declined", "denied", "refused"];

/// Flags of a trial run, without separators between their words.
const TRIAL_FLAGS: [&str; 3] = ["dryrun", "simulated", "simulation"];

/// Words for waiting in a state that waits for a decision, together with a word of [`DECISIONS`]: `pending_approval`,
/// `AWAITING_REVIEW`, `approval required`.
const WAITING: [&str; 8] =
    ["pending", "awaiting", "awaits", "waiting", "required", "requires", "needed", "needs"];
/// Words for the decision in such a state.
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

/// Words of flags that report whether the action was done.
const DONE_FLAGS: [&str; 6] = ["accepted", "success", "successful", "succeeded", "applied", "ok"];
/// Keys for a reason, besides the words of [`WordClass::Reason`].
const REASON_KEYS: [&str; 8] = ["code", "error", "errors", "message", "detail", "details", "retry", "hint"];
/// Maximum bytes of an argument that may be an answer to an invitation or a question.
const MAX_ANSWER_BYTES: usize = 12;

/// Whether the result of a call reports that it had no effect.
pub(crate) fn reports_no_effect(call: &Call, memo: &Memo) -> bool {
    reports_not_done(call, memo) || is_trial(call, memo)
}

/// Whether the result of a call reports that its action was refused, or changed nothing.
pub(crate) fn reports_not_done(call: &Call, memo: &Memo) -> bool {
    call.result.as_ref().is_some_and(|result| {
        counts_nothing(result, memo) || is_refused(call, result, memo) || is_denied(call, result, memo)
    })
}

/// Whether a flag in the result of a call reports a trial run: `dry_run: true`.
pub(crate) fn is_trial(call: &Call, memo: &Memo) -> bool {
    // Other rules use the structure of most results, so that reading it costs less than a search for the flags.
    let result = call.result.as_ref().filter(|text| text.len() <= MAX_FLAG_BYTES);
    let structure = result.and_then(|result| Structure::cached(result, memo));
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
    let top_level_records = parsed.records.iter().take(MAX_KEYS).filter(|record| record.list.is_none());
    let is_trial = |field: &RecordField| {
        field.value == FieldValue::Bool(true) && TRIAL_FLAGS.contains(&&*field.name.concat())
    };
    top_level_records.flat_map(|record| &record.fields).any(is_trial)
}

/// Whether a flag in the result of a call reports, together with a reason, that its action was not accepted or not
/// done.
fn is_denied(call: &Call, result: &Text, memo: &Memo) -> bool {
    if result.len() > MAX_FLAG_BYTES || !result.contains("false") {
        return false;
    }
    let structure = Structure::cached(result, memo);
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
    let action = identifier_words(&call.name).iter().find_map(|word| action_of(word));
    let is_done = |word: &String| DONE_FLAGS.contains(&word.as_str());
    // The flag has the verb of the call. An update is excluded, since a flag may be off after `disable`.
    let is_flag_of_action = |word: &String| {
        action.is_some_and(|call_action| call_action != Action::Update)
            && word.ends_with("ed")
            && action_of(word) == action
    };
    let is_argument = |name: &[String]| {
        let keys = call.parsed.as_deref().and_then(serde_json::Value::as_object).into_iter().flatten();
        keys.take(MAX_KEYS).any(|(key, _)| identifier_words(key) == name)
    };
    let top_level_records = || parsed.records.iter().take(MAX_KEYS).filter(|record| record.list.is_none());
    // If another flag reports that the action was done, only a flag with the verb of the call denies it.
    let reports_done = |record: &Record| {
        record.fields.iter().any(|field| {
            field.value == FieldValue::Bool(true)
                && field.name.iter().any(|word| DONE_FLAGS.contains(&word.as_str()))
        })
    };
    let is_done_by_flag = top_level_records().any(reports_done);
    let is_reason =
        |word: &String| REASON_KEYS.contains(&word.as_str()) || names::is_of_class(word, WordClass::Reason);
    // A result of flags and reasons alone describes no object, so that a participle denies the action: `posted`.
    let mut fields = parsed.records.iter().flat_map(|record| &record.fields);
    // For an action that ends something, a false flag is the effect: `subscribed: false`.
    let has_positive_effect = action.is_some_and(|call_action| {
        use Action::{Add, Book, Create, Notify, Order, Pay, Refund, Schedule, Send, Submit, Transfer};
        matches!(
            call_action,
            Add | Book | Create | Notify | Order | Pay | Refund | Schedule | Send | Submit | Transfer
        )
    });
    let has_true_flag = top_level_records()
        .any(|record| record.fields.iter().any(|field| field.value == FieldValue::Bool(true)));
    let has_only_flags = has_positive_effect
        && !has_true_flag
        && fields.all(|field| matches!(field.value, FieldValue::Bool(_)) || field.name.iter().any(is_reason));
    top_level_records().any(|record| {
        let mut flags = record.fields.iter().filter(|field| field.value == FieldValue::Bool(false));
        flags.any(|flag| {
            flag.name.iter().any(|word| {
                is_flag_of_action(word)
                    || (is_done(word) || has_only_flags && word.ends_with("ed")) && !is_done_by_flag
            }) && flag.name.len() <= 2
                && !is_argument(&flag.name)
        }) && record.fields.iter().any(|field| field.name.iter().any(is_reason))
    })
}

/// Whether the state in the result of a call reports a refusal.
fn is_refused(call: &Call, result: &Text, memo: &Memo) -> bool {
    let may_have_state = |state: &&str| contains_ignoring_case(result, state);
    if result.len() > MAX_BYTES || !REFUSED.iter().chain(&["not_"]).any(may_have_state) {
        return false;
    }
    let structure = Structure::cached(result, memo);
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
    let mut states = states(parsed).map(|(_, state)| state);
    let is_requested = |state: &str| asks_for(call, state, memo);
    let has_effect = |word: &String| {
        use Action::{Add, Book, Cancel, Delete, Order, Pay, Refund, Schedule, Transfer, Update};
        let effects = [Add, Book, Cancel, Delete, Order, Pay, Refund, Schedule, Transfer, Update];
        action_of(word).is_some_and(|action| effects.contains(&action))
    };
    // A state such as `not_posted`.
    let is_undone = |state: &str| state.starts_with("not_") && state.ends_with("ed");
    states.any(|state| (REFUSED.contains(&state) || is_undone(state)) && !is_requested(state))
        && identifier_words(&call.name).first().is_some_and(has_effect)
}

/// The state in the result of a call if its action still waits for a decision, or for a place in a queue.
pub(crate) fn waiting_state(call: &Call, memo: &Memo) -> Option<String> {
    let may_wait = |text: &&Text| {
        let words = WAITING.iter().chain(&WAITLISTED);
        text.len() <= MAX_FLAG_BYTES && words.into_iter().any(|word| contains_ignoring_case(text, word))
    };
    let structure = Structure::cached(call.result.as_ref().filter(may_wait)?, memo)?;
    let mut states =
        states(structure.0.as_ref()?).filter(|(name, _)| name.len() == 1).map(|(_, state)| state);
    let state = states.find(|state| {
        let words = identifier_words(state);
        let has_any = |terms: &[&str]| words.iter().any(|word| terms.contains(&word.as_str()));
        has_any(&WAITLISTED) || has_any(&WAITING) && has_any(&DECISIONS)
    });
    state.filter(|state| state.len() <= MAX_STATE_BYTES).map(str::to_owned)
}

/// The states of the object of a result, with the words of their keys.
fn states(parsed: &Records) -> impl Iterator<Item = (&[String], &str)> {
    let is_state = |word: &String| matches!(word.as_str(), "status" | "state" | "result" | "outcome");
    // The outermost records are the first ones.
    let top_level_records = parsed.records.iter().take(2).filter(|record| record.list.is_none());
    let fields = top_level_records.flat_map(|record| &record.fields);
    let states = fields.filter(move |field| field.name.last().is_some_and(is_state));
    states.filter_map(|field| Some((&**field.name, field.text()?)))
}

/// Whether the arguments of a call ask for a state of refusal: by its word, or by a "no".
pub(crate) fn asks_for(call: &Call, state: &str, memo: &Memo) -> bool {
    let stem = if state == "denied" { "deny" } else { state.trim_end_matches("ed") };
    let arguments = call.parsed.as_deref().and_then(Value::as_object);
    let is_no = |value: &Value| match value {
        Value::Bool(value) => !value,
        Value::String(text) => {
            text == "n" || text.len() <= MAX_ANSWER_BYTES && ReadText::new(text, None, memo).withdraws()
        }
        _ => false,
    };
    let has_state = |text: &str| contains_ignoring_case(text, stem) || contains_ignoring_case(text, state);
    call.arguments.as_deref().is_some_and(has_state)
        || arguments.is_some_and(|arguments| arguments.values().any(is_no))
}

/// Whether all counts of effects in a result are 0.
fn counts_nothing(result: &Text, memo: &Memo) -> bool {
    if result.len() > MAX_BYTES || !result.contains('0') {
        return false;
    }
    if !result.trim_start().starts_with(['{', '[']) {
        let is_effect = |count: regex::Captures<'_>| {
            count.name("done").is_some_and(|word| !NO_EFFECT_KEYS.contains(&&*word.as_str().to_lowercase()))
        };
        return NONE_IN_TEXT.is_match(result) && !COUNTED_IN_TEXT.captures_iter(result).any(is_effect);
    }
    let structure = Structure::cached(result, memo);
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
    let fields = || parsed.records.iter().flat_map(|record| &record.fields);
    // A text next to the counts is a state or a message, unless it has digits and may identify an object.
    let may_identify = |text: &str| text.bytes().any(|b| b.is_ascii_digit());
    let is_id = |name: &[String]| name.last().is_some_and(|word| word == "id");
    let describes_object = fields().any(|field| is_id(&field.name) || field.text().is_some_and(may_identify));
    let mut counts =
        fields().filter(|field| field.name.iter().any(|word| EFFECT_KEYS.contains(&&**word))).peekable();
    let is_zero = |field: &RecordField| field.number().is_none_or(|number| number == 0.0);
    let is_no_effect = |field: &RecordField| field.name.iter().any(|word| NO_EFFECT_KEYS.contains(&&**word));
    !describes_object
        && counts.peek().is_some()
        && counts.all(|field| field.value == FieldValue::Number(0.0))
        && fields().all(|field| is_zero(field) || is_no_effect(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    #[test]
    fn counts_that_are_all_zero_report_no_effect() {
        for (result, expected) in [
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
            assert_eq!(counts_nothing(&result.into(), &Memo::new()), expected, "{result}");
        }
    }

    #[test]
    fn flag_with_a_reason_reports_no_effect() {
        let has_no_effect = |tool: &str, arguments: &str, result: &str| {
            let run =
                Script::new("task").calls("", &[(tool, arguments)]).returns(result).answers("done").build();
            reports_no_effect(&run.calls[0], &Memo::new())
        };
        for (tool, result, expected) in [
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
            assert_eq!(has_no_effect(tool, "{}", result), expected, "{tool} {result}");
        }
    }

    #[test]
    fn state_of_a_refusal_reports_no_effect() {
        let has_no_effect = |tool: &str, arguments: &str, result: &str| {
            let run =
                Script::new("task").calls("", &[(tool, arguments)]).returns(result).answers("done").build();
            reports_no_effect(&run.calls[0], &Memo::new())
        };
        assert!(has_no_effect(
            "reserve_car",
            r#"{"quote":"Q-771"}"#,
            r#"{"status":"rejected","reason":"quote expired"}"#
        ));
        assert!(has_no_effect("pay_invoice", "{}", r#"{"payment":{"state":"declined"}}"#));
        assert!(!has_no_effect(
            "update_claim",
            r#"{"state":"rejected"}"#,
            r#"{"id":"C-7","state":"rejected"}"#
        ));
        assert!(!has_no_effect(
            "update_rsvp",
            r#"{"event":"EV-1","answer":"no"}"#,
            r#"{"event":"EV-1","status":"declined"}"#
        ));
        assert!(!has_no_effect("update_request", r#"{"action":"deny"}"#, r#"{"state":"denied"}"#));
        assert!(has_no_effect(
            "update_rsvp",
            r#"{"event":"EV-1","answer":"yes"}"#,
            r#"{"status":"declined"}"#
        ));
        assert!(!has_no_effect("submit_claim", "{}", r#"{"id":"C-7","state":"rejected"}"#));
        assert!(!has_no_effect("book_room", "{}", r#"{"state":"booked","earlier":[{"state":"rejected"}]}"#));
        assert!(!has_no_effect("book_room", "{}", "The first request was rejected, then it was booked."));
    }
}
