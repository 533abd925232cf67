//! Repeated actions with an effect each: a refund of the same amount for the same order, issued twice.
//!
//! Principle: each payment, message or order has an effect, so that an equal call that succeeds again causes a second
//! effect. The repetition is intended if the request counts or asks for several, or if another action is between the
//! two calls. If both results have the same identifier, there is only one effect. Results with different identifiers,
//! or a later list with two rows for the arguments, prove two effects, even if the first result was pending or timed
//! out; there is still no finding if a later call is about one of the two, or if the answer names both.
//!
//! The rule also reports an action on a record that an earlier result excludes, such as a refund after
//! `refundable: false`.
//!
//! In: the calls of an agent with their results. Out: one finding for each agent, on the model span that requested the
//! call.

use std::collections::hash_map::Entry;

use foldhash::HashMap;
use verdict_otlp::trace::Idx;
use verdict_otlp::work;

use super::arithmetic::is_unit;
use super::conduct::Conduct;
use super::linked_identifiers::{identifiers, shape};
use super::missing_announced_call::instructions;
use crate::measure::calls::attempts::quoted;
use crate::measure::defects::{Defect, clip};
use crate::measure::identifier::{NameWords, identifier_words};
use crate::measure::language::{
    Action, ClassifiedWord, ReadText, WordClass, WordClasses, classes, classes_in,
};
use crate::measure::records::{FieldValue, Record, RecordField, Structure};
use crate::measure::tool_purpose::{Purpose, ToolPurpose, action_of, purpose};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo, numbers, without_effect};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Call, Text};

/// Maximum calls of an agent that are compared.
const MAX_CALLS: usize = 200;
/// Maximum bytes of a text that is searched for identifiers, words and numbers.
const MAX_TEXT_BYTES: usize = 4_000;
/// Maximum arguments that the rows of a list are compared with.
const MAX_ARGUMENTS: usize = 16;
/// Minimum arguments of the call that a row must have.
const MIN_SHARED_ARGUMENTS: usize = 3;
/// The largest number of a request that may count calls.
const MAX_COUNT: f64 = 99.0;
/// Minimum letters of a verb that is searched for in the names of flags: "refundable".
const MIN_VERB_LETTERS: usize = 5;

/// Classes of words by which a request asks for several of a thing.
const SEVERAL: WordClasses = classes!(Quantifier Increment Repetition);
// A number above 1.
regex!(COUNT_ABOVE_ONE, r"\b(?:[2-9]|\d{2,})\b");
// States of records, of no language, for an equal earlier request or for one that is not carried out yet.
regex!(PENDING, r"(?i)\b(?:idempotent|pending|queued|accepted)\b");

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let succeeded = conduct.succeeded(MAX_CALLS).filter(|_| conduct.agent.calls.len() > 1);
    let actions: Vec<(usize, &Call)> = succeeded.filter(|(_, call)| conduct.is_action(call)).collect();
    repeated_call(conduct, &actions)
        .or_else(|| doubled_effect(conduct))
        .or_else(|| excluded_action(conduct, &actions))
}

/// The finding on the second of two equal calls with an effect each.
fn repeated_call(conduct: &Conduct<'_>, actions: &[(usize, &Call)]) -> Option<(Idx, Finding)> {
    let mut last_by_key: HashMap<&str, usize> = HashMap::default();
    let repeat = actions.iter().enumerate().find_map(|(nth, (i, call))| {
        let key = conduct.attempts.at(*i)?.key.as_deref()?;
        let previous = last_by_key.insert(key, nth)?;
        // Another action between the two may have undone the first one.
        (has_effect(conduct, call) && previous + 1 == nth)
            .then(|| actions.get(previous))
            .flatten()
            .map(|(_, first)| (*first, *call))
    });
    let (first, call) = repeat?;
    let [first_result, second_result] = [first, call].map(|call| call.result.as_deref().unwrap_or_default());
    let ids = |text: &str| identifiers(clip(text, MAX_TEXT_BYTES)).collect::<Vec<String>>();
    let argument_ids = ids(call.arguments.as_deref().unwrap_or_default());
    let first_ids = ids(first_result);
    let is_one_effect =
        ids(second_result).iter().any(|id| !argument_ids.contains(id) && first_ids.contains(id));
    // Different results without identifiers suggest that the call reads, or that the second call continues the first.
    let is_progress = first_result.trim() != second_result.trim() && first_ids.is_empty();
    let (task, memo) = (conduct.task(usize::MAX)?, conduct.memo);
    let is_repeated_request = |result: &str| reports_existing(result, task, memo) || PENDING.is_match(result);
    let is_intended = is_progress
        || COUNT_ABOVE_ONE.is_match(task)
        || names_several(task, task, memo)
        || is_repeated_request(first_result)
        || is_repeated_request(second_result);
    if is_one_effect || is_intended || call.llm.is_none() || call.arguments.is_none() {
        return None;
    }
    finding(conduct, first, call, "it succeeded twice with the same arguments, and each has an effect")
}

fn finding(conduct: &Conduct<'_>, first: &Call, call: &Call, reason: &str) -> Option<(Idx, Finding)> {
    let rationale = format!("one call of {} was expected; {reason}", call.name.trim());
    let finding = Defect::RepeatedCall.finding(rationale, quoted(call));
    Some((call.llm?, finding.citing_at(conduct.trace, first.at).citing_at(conduct.trace, call.at)))
}

/// Whether each call of a tool has an effect of its own.
fn has_effect(conduct: &Conduct<'_>, call: &Call) -> bool {
    use Action::{Book, Order, Pay, Refund, Send};
    // Only the first verb counts: "order" in `update_order` is a noun.
    let purpose = ToolPurpose::for_call(conduct.trace, conduct.memo, call);
    let mut verbs = purpose.actions.iter().skip_while(|action| **action == Action::Execute);
    verbs.next().is_some_and(|action| matches!(action, Book | Order | Pay | Refund | Send))
        || purpose.actions.first() == Some(&Action::Create)
            && purpose.actions.iter().any(|action| matches!(action, Book | Order | Pay | Refund))
}

/// Whether a call may create something with an identifier of its own.
fn may_create(conduct: &Conduct<'_>, call: &Call) -> bool {
    use Action::{Add, Create, Notify, Schedule, Submit, Transfer};
    let purpose = ToolPurpose::for_call(conduct.trace, conduct.memo, call);
    let first = purpose.actions.first();
    let creates = |action: &Action| matches!(action, Add | Create | Notify | Schedule | Submit | Transfer);
    has_effect(conduct, call) || first.is_some_and(creates)
}

/// The finding on the second of two equal calls after which there are two things: their results have one identifier
/// each, or a later list has both.
fn doubled_effect(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { memo, attempts, agent, .. } = *conduct;
    let is_query = |call: &Call| purpose(conduct.trace, memo, call) == Purpose::Query;
    let calls: Vec<(usize, &Call)> = conduct.calls(MAX_CALLS).filter(|(_, call)| !is_query(call)).collect();
    let pairs = calls.windows(2).filter_map(|pair| {
        let [(first_index, first), (index, call)] = pair else { return None };
        let key = |i: usize| attempts.at(i)?.key.as_deref();
        let is_repeated =
            key(*first_index).is_some() && key(*first_index) == key(*index) && attempts.has_succeeded(*index);
        (is_repeated && call.parsed.is_some() && may_create(conduct, call)).then_some((
            *first_index,
            *first,
            *call,
        ))
    });
    let mut repetition: Option<RequestedRepetition> = None;
    for (first_index, first, call) in pairs {
        if !memo.budget.spend(1) {
            return None;
        }
        let arguments = call.arguments.as_deref().unwrap_or_default();
        let have_both_succeeded =
            attempts.has_succeeded(first_index) && !without_effect::reports_no_effect(first, memo);
        let both_created = have_both_succeeded.then(|| distinct_ids(memo, first, call)).flatten();
        let Some([a, b]) = both_created.or_else(|| listed_twice(conduct, call)) else { continue };
        let task = conduct.task(usize::MAX).map(|task| &**task).unwrap_or_default();
        let repetition = match &repetition {
            Some(repetition) => repetition,
            None => repetition.insert(RequestedRepetition::read(&conduct.user_messages(), task, memo)?),
        };
        let is_existing = call.result.as_deref().is_some_and(|text| reports_existing(text, task, memo));
        if is_existing || repetition.is_requested(arguments, memo)? {
            continue;
        }
        let later = calls.iter().filter(|(_, later)| later.start > call.start);
        let later: Vec<&Text> = later.filter_map(|(_, later)| later.arguments.as_ref()).collect();
        let bytes: usize = later.iter().copied().chain(&agent.answer).map(|text| text.len()).sum();
        if !memo.budget.spend(1 + bytes / BYTES_PER_STEP) {
            return None;
        }
        let has = |text: &Text, id: &str| contains_ignoring_case(text, id);
        let is_one_used_later = later.iter().any(|text| has(text, &a) || has(text, &b));
        let are_both_in_answer = agent.answer.as_ref().is_some_and(|text| has(text, &a) && has(text, &b));
        if !is_one_used_later && !are_both_in_answer {
            return finding(conduct, first, call, &format!("there are two effects now, {a} and {b}"));
        }
    }
    None
}

/// The parts of the user's messages that may ask for several calls.
struct RequestedRepetition {
    /// Whether a word asks for several calls.
    by_word: bool,
    /// The numbers that may count calls.
    counts: Vec<f64>,
}

impl RequestedRepetition {
    /// Reads the user's messages; `None` beyond the work budget.
    fn read(user_texts: &[Text], task: &str, memo: &Memo) -> Option<RequestedRepetition> {
        let mut repetition = RequestedRepetition { by_word: false, counts: Vec::new() };
        for text in user_texts {
            let text = clip(text, MAX_TEXT_BYTES);
            memo.budget.spend(1 + text.len() / BYTES_PER_STEP).then_some(())?;
            work::count(text.len());
            repetition.by_word |= names_several(text, task, memo);
            if repetition.by_word {
                break;
            }
            let counts = numbers::all(text).into_iter().filter(|n| is_count(text, n)).map(|n| n.value);
            repetition.counts.extend(counts);
            repetition.counts.sort_unstable_by(f64::total_cmp);
            repetition.counts.dedup();
        }
        Some(repetition)
    }

    /// Whether the user may ask for more than one call with these arguments: by a word, or by a number that is not
    /// passed as an argument. `None` beyond the work budget.
    fn is_requested(&self, arguments: &str, memo: &Memo) -> Option<bool> {
        if self.by_word || self.counts.is_empty() {
            return Some(self.by_word);
        }
        let arguments = clip(arguments, MAX_TEXT_BYTES);
        memo.budget.spend(1 + arguments.len() / BYTES_PER_STEP).then_some(())?;
        let mut passed: Vec<f64> = Vec::new();
        numbers::scan(arguments, |n| passed.extend(n.possible_values()));
        memo.budget.spend(self.counts.len() * passed.len() / BYTES_PER_STEP).then_some(())?;
        Some(self.counts.iter().any(|count| !passed.contains(count)))
    }
}

/// Whether a number may count calls, and is not an amount with a unit or a time of day.
fn is_count(text: &str, n: &numbers::Number) -> bool {
    let after = text.get(n.end..).unwrap_or_default();
    let word = after.trim_start().split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    let is_amount = || {
        after.starts_with(':')
            || matches!(word, "am" | "pm" | "AM" | "PM" | "h" | "min")
            || is_unit(word)
            || is_unit(&format!("{word}s"))
    };
    !n.in_identifier && !n.fractional && (2.0..=MAX_COUNT).contains(&n.value) && !is_amount()
}

/// Whether a word of the user may ask for several of a thing. True for an unsupported language.
fn names_several(text: &str, task: &str, memo: &Memo) -> bool {
    let analysed = ReadText::new(text, Some(task), memo);
    let is_unsupported = !analysed.is_known() && analysed.languages().next().is_none();
    let mut classified = analysed.languages().map(|language| language.places(text, memo));
    let may_name_several = |word: &ClassifiedWord| {
        word.classes.has_any(SEVERAL) || word.value > 1 && word.classes.has(WordClass::Number)
    };
    is_unsupported || classified.any(|words| words.iter().any(may_name_several))
}

/// Whether a result may report that the thing already existed. True for an unsupported language.
fn reports_existing(result: &str, task: &str, memo: &Memo) -> bool {
    let classes = classes_in(clip(result, MAX_TEXT_BYTES), Some(task), memo);
    classes.is_none_or(|classes| classes.has(WordClass::Already))
}

/// The different identifiers of the same shape that two results have in the same field.
fn distinct_ids(memo: &Memo, first: &Call, call: &Call) -> Option<[String; 2]> {
    let read_structure = |call: &Call| {
        let result = call.result.as_ref().filter(|text| text.len() <= MAX_TEXT_BYTES)?;
        Structure::cached(result, memo)
    };
    let (one, two) = (read_structure(first)?, read_structure(call)?);
    let arguments = call.arguments.as_deref().unwrap_or_default();
    let fields = |structure: &'_ Structure| {
        let records =
            structure.0.iter().flat_map(|parsed| &parsed.records).filter(|record| record.list.is_none());
        records.flat_map(|record| &record.fields).filter_map(identifying_field).collect::<Vec<_>>()
    };
    let (earlier_fields, later_fields) = (fields(&one), fields(&two));
    memo.budget.spend(1 + earlier_fields.len() * later_fields.len() / 4).then_some(())?;
    later_fields.into_iter().find_map(|(name, id)| {
        let (_, before) = earlier_fields.iter().find(|(other, _)| *other == name)?;
        let is_new = *before != id && shape(before) == shape(&id) && !contains_ignoring_case(arguments, &id);
        is_new.then(|| [before.clone(), id])
    })
}

/// The name and the value in lower case of a field that identifies a created thing; `None` for the identifier of a
/// request or of its log.
fn identifying_field(field: &RecordField) -> Option<(Vec<String>, String)> {
    let is_of_request = |word: &String| {
        matches!(
            word.as_str(),
            "request" | "trace" | "correlation" | "span" | "log" | "audit" | "idempotency"
        )
    };
    let shown = field.shown();
    // A short value is an identifier if its key ends in "id".
    let is_named_id = field.name.last().is_some_and(|word| word == "id")
        && shown.bytes().any(|byte| byte.is_ascii_digit())
        && !shown.contains(char::is_whitespace);
    let id = identifiers(shown).next().filter(|id| id.len() == shown.len());
    let id = id.or_else(|| is_named_id.then(|| shown.to_lowercase()))?;
    (!field.name.iter().any(is_of_request)).then(|| (field.name.to_vec(), id))
}

/// The identifiers of the only two rows of a later lookup that have the arguments of the call.
fn listed_twice(conduct: &Conduct<'_>, call: &Call) -> Option<[String; 2]> {
    let Conduct { trace, memo, .. } = *conduct;
    let passed = call.parsed.as_deref()?.as_object()?;
    let passed: Vec<(Vec<String>, String)> = passed
        .iter()
        .filter_map(|(key, value)| {
            let shown = value.as_str().map(str::to_owned).or_else(|| Some(value.as_f64()?.to_string()))?;
            Some((identifier_words(key), shown))
        })
        .take(MAX_ARGUMENTS)
        .collect();
    let later = conduct.calls(MAX_CALLS).map(|(_, other)| other);
    let later =
        later.filter(|other| other.start > call.start && purpose(trace, memo, other) == Purpose::Query);
    let results = later.filter_map(|other| other.result.as_ref()).take_while(|_| !memo.budget.is_exceeded());
    results.into_iter().find_map(|result| {
        let structure = Structure::cached(result, memo)?;
        let parsed = structure.0.as_ref()?;
        if !memo.budget.spend(1 + parsed.records.len() * passed.len() / 4) {
            return None;
        }
        let is_row = |row: &&Record| {
            let shared = row.fields.iter().filter_map(|field| {
                let (_, value) = passed.iter().find(|(key, _)| **field.name == **key)?;
                Some(match field.number() {
                    Some(number) => value.parse() == Ok(number),
                    None => field.shown().eq_ignore_ascii_case(value),
                })
            });
            let shared: Vec<bool> = shared.collect();
            row.list.is_some()
                && shared.len() >= MIN_SHARED_ARGUMENTS
                && shared.into_iter().all(|is_shared| is_shared)
        };
        let mut ids = parsed
            .records
            .iter()
            .filter(is_row)
            .filter_map(|row| row.fields.iter().find_map(identifying_field).map(|(_, id)| id));
        let (one, two) = (ids.next()?, ids.next()?);
        // More than two rows must have another reason.
        (one != two && ids.next().is_none()).then_some([one, two])
    })
}

/// The finding on an action on a record whose flag for it is false in an earlier result. `None` beyond the work budget.
fn excluded_action(conduct: &Conduct<'_>, actions: &[(usize, &Call)]) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, .. } = *conduct;
    let mut flagged: HashMap<String, Vec<FlaggedRecord<'_>>> = HashMap::default();
    for (_, call) in actions {
        let Some(arguments) =
            call.arguments.as_deref().filter(|text| text.contains(|c: char| c.is_ascii_digit()))
        else {
            continue;
        };
        let words = NameWords::cached(&call.name, memo);
        let verb = words.iter().find(|word| action_of(word).is_some());
        let Some(verb) = verb.filter(|verb| verb.len() >= MIN_VERB_LETTERS) else { continue };
        let records = match flagged.entry(verb.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(flagged_records(verb, conduct)?),
        };
        let earlier = records.iter().filter(|record| record.call.start < call.start);
        let steps =
            earlier.clone().map(|record| 1 + record.ids.len() * (1 + arguments.len() / BYTES_PER_STEP));
        memo.budget.spend(1 + records.len() + steps.sum::<usize>()).then_some(())?;
        let is_in =
            |part: &str| contains_ignoring_case(arguments, part) || contains_ignoring_case(&call.name, part);
        let mut call_flags = earlier.filter_map(|record| {
            let flag = record.flags.iter().find(|flag| flag.object_words.iter().all(|part| is_in(part)))?;
            record.ids.iter().any(|id| contains_ignoring_case(arguments, id)).then_some(flag)
        });
        // The latest flag applies.
        let Some(flag) = call_flags.next_back().filter(|flag| !flag.is_allowed) else { continue };
        // The instructions may make exceptions.
        let prompt = call.llm.and_then(|llm| trace.views.get(llm)).into_iter().flat_map(instructions);
        let prompt: Vec<&str> = prompt.collect();
        let bytes: usize = prompt.iter().map(|text| text.len()).sum();
        memo.budget.spend(1 + bytes / BYTES_PER_STEP).then_some(())?;
        if let Some(llm) = call.llm
            && !prompt.iter().any(|text| contains_ignoring_case(text, verb))
        {
            let rationale = format!(
                "no call of {} was expected on it, since an earlier result has {}: false",
                call.name.trim(),
                flag.name
            );
            let finding = Defect::ContradictsResult.finding(rationale, quoted(call));
            return Some((llm, finding.citing_at(trace, call.at)));
        }
    }
    None
}

/// A record in the result of a call, with its flags for an action.
struct FlaggedRecord<'t> {
    call: &'t Call,
    flags: Vec<PermissionFlag>,
    /// The identifiers of the record, in lower case.
    ids: Vec<String>,
}

/// A flag for whether an action is possible: "refundable", "can_refund".
struct PermissionFlag {
    name: String,
    is_allowed: bool,
    /// The other words of the name, which the call must have as well: "address" in "can_update_address".
    object_words: Vec<String>,
}

/// The records with flags for an action in the results of an agent's calls, in order; `None` beyond the work budget.
fn flagged_records<'t>(verb: &str, conduct: &Conduct<'t>) -> Option<Vec<FlaggedRecord<'t>>> {
    let (mut all, memo) = (Vec::new(), conduct.memo);
    for (_, call) in conduct.calls(MAX_CALLS) {
        let Some(result) = &call.result else { continue };
        memo.budget.spend(1 + result.len() / BYTES_PER_STEP).then_some(())?;
        work::count(result.len());
        if !contains_ignoring_case(result, verb) {
            continue;
        }
        let structure = Structure::cached(result, memo)?;
        let Structure(Some(parsed)) = &*structure else { continue };
        let fields: usize = parsed.records.iter().map(|record| record.fields.len()).sum();
        memo.budget.spend(1 + fields).then_some(())?;
        for record in parsed.records.iter().filter(|_| parsed.has_flags) {
            let flags: Vec<PermissionFlag> = flags(record, verb).collect();
            if !flags.is_empty() {
                all.push(FlaggedRecord { call, flags, ids: ids(record) });
            }
        }
    }
    Some(all)
}

/// The flags of a record for whether the action is possible. The words of their names are identifiers in code.
fn flags<'r>(record: &'r Record, verb: &'r str) -> impl Iterator<Item = PermissionFlag> + 'r {
    let root = verb.trim_end_matches('e');
    let means_possible = |word: &String| matches!(word.as_str(), "can" | "eligible" | "allowed" | "may");
    let is_filler = move |word: &String| {
        word.starts_with(root) || means_possible(word) || matches!(word.as_str(), "be" | "is" | "for")
    };
    record.fields.iter().filter_map(move |field| {
        let FieldValue::Bool(is_allowed) = field.value else { return None };
        let words = &field.name;
        let named = words.iter().find(|word| word.starts_with(root))?;
        let is_negated = words.iter().any(|word| matches!(word.as_str(), "not" | "non" | "no"));
        let is_ability =
            words.iter().any(means_possible) || named.ends_with("able") || named.ends_with("ible");
        (is_ability && !is_negated).then(|| PermissionFlag {
            name: words.join(" "),
            is_allowed,
            object_words: words.iter().filter(|word| !is_filler(word)).cloned().collect(),
        })
    })
}

/// The values of a record that may be identifiers, in lower case.
fn ids(record: &Record) -> Vec<String> {
    let is_id =
        |shown: &&str| shown.len() >= 4 && shown.bytes().any(|b| b.is_ascii_digit()) && !shown.contains(' ');
    record.fields.iter().map(|field| field.shown()).filter(is_id).map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::calls::attempts::CallAttempts;
    use crate::measure::reasoning::conduct::apply_rule;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    fn rationales(task: &str, calls: &[(&str, &str, &str)]) -> Vec<String> {
        let script = Script::new(task).system("You help customers.");
        let script = calls.iter().fold(script, |script, (tool, arguments, result)| {
            script.calls("", &[(*tool, *arguments)]).returns(result)
        });
        let trace = script.answers("Done.").build();
        let findings = findings_of(check, &trace);
        findings.into_iter().map(|(_, finding)| finding.rationale).collect()
    }

    #[test]
    fn effect_that_is_caused_twice_is_found() {
        let refund = ("issue_refund", r#"{"order":"W-1","amount":40}"#, r#"{"ok":true}"#);
        let mail = ("send_email", r#"{"to":"ana@x.example","text":"We are late."}"#, "sent");
        assert_eq!(rationales("Refund order W-1.", &[refund, refund]).len(), 1);
        assert_eq!(rationales("Tell Ana that we are late.", &[mail, mail]).len(), 1);
        assert!(rationales("Refund order W-1.", &[refund]).is_empty());
        assert!(rationales("Send Ana the mail twice.", &[mail, mail]).is_empty(), "meant");
        let booked = ("book_court", r#"{"day":"Monday"}"#, r#"{"ok":true}"#);
        let cancelled = ("cancel_court", r#"{"day":"Monday"}"#, r#"{"ok":true}"#);
        assert!(rationales("Book the court.", &[booked, cancelled, booked]).is_empty(), "undone");
        let booking = ("book_court", r#"{"day":"Monday"}"#, r#"{"booking":"BK-2291"}"#);
        assert!(rationales("Book the court.", &[booking, booking]).is_empty(), "one booking");
        let already_refunded = ("issue_refund", r#"{"order":"W-1"}"#, "already refunded");
        assert!(rationales("Refund order W-1.", &[refund, already_refunded]).is_empty());
        let failed = ("issue_refund", r#"{"order":"W-1","amount":40}"#, "Error: timeout");
        assert!(rationales("Refund order W-1.", &[failed, refund]).is_empty());
        let updated = ("update_order", r#"{"order":"W-1","gift":"wrap"}"#, "ok");
        assert!(rationales("Wrap W-1 as a gift.", &[updated, updated]).is_empty());
        let added = ("add_label", r#"{"issue":"7"}"#, "ok");
        assert!(rationales("Label it.", &[added, added]).is_empty());
    }

    /// The work of finding nothing in these calls.
    fn work_of(task: &str, calls: &[(&str, &str, &str)]) -> u64 {
        let script = calls.iter().fold(Script::new(task).system("You help."), |script, call| {
            script.calls("", &[(call.0, call.1)]).returns(call.2)
        });
        let (trace, memo) = (script.answers("Done.").build(), Memo::new());
        let attempts = CallAttempts::get(&trace, &memo);
        let before = work::counted();
        assert!(apply_rule(("tested", check), &trace, &memo, &attempts).is_empty());
        work::counted() - before
    }

    #[test]
    fn results_are_searched_once_for_each_verb() {
        let result = format!("{} W-1 can be refunded.", "The order is on its way. ".repeat(100));
        let arguments: Vec<String> = (0..60).map(|n| format!(r#"{{"order":"W-{n}77"}}"#)).collect();
        let looked = arguments.iter().map(|passed| ("get_order", passed.as_str(), result.as_str()));
        let refunded = arguments.iter().map(|passed| ("refund_order", passed.as_str(), "ok"));
        let calls: Vec<_> = looked.chain(refunded).collect();
        let (work, bytes) = (work_of("Refund all.", &calls), 60 * result.len() as u64);
        assert!(work <= 2 * bytes, "{work} of {bytes} bytes");
    }

    #[test]
    fn what_the_user_said_is_read_once_for_all_pairs() {
        let task = format!("Book the court twice. {}", "I play on Monday. ".repeat(200));
        let results: Vec<String> = (0..120).map(|n| format!(r#"{{"booking":"BK-22{n}"}}"#)).collect();
        let calls: Vec<_> =
            results.iter().map(|result| ("book_court", r#"{"day":"Monday"}"#, result.as_str())).collect();
        let work = work_of(&task, &calls);
        assert!(work <= 4 * task.len() as u64, "{work} of {} bytes", task.len());
    }

    #[test]
    fn action_that_a_result_excludes_is_found() {
        let booking = |flag: &str, value: bool| format!(r#"{{"booking":"BK-22","{flag}":{value}}}"#);
        let run = |result: &str, tool: &str, id: &str| {
            let arguments = format!(r#"{{"booking":"{id}"}}"#);
            rationales(
                "Refund BK-22.",
                &[("get_booking", "{}", result), (tool, &arguments, r#"{"ok":true}"#)],
            )
            .len()
        };
        assert_eq!(run(&booking("refundable", false), "refund_booking", "BK-22"), 1);
        assert_eq!(run(&booking("can_cancel", false), "cancel_booking", "BK-22"), 1);
        assert_eq!(run(&booking("refundable", true), "refund_booking", "BK-22"), 0);
        assert_eq!(run(&booking("refundable", false), "cancel_booking", "BK-22"), 0);
        assert_eq!(run(&booking("refundable", false), "refund_booking", "BK-23"), 0);
        assert_eq!(run(&booking("refunded", false), "refund_booking", "BK-22"), 0);
        let ruled = Script::new("Refund BK-22.").system("Refund within a day of booking, whatever the fare.");
        let ruled = ruled.calls("", &[("get_booking", "{}")]).returns(&booking("refundable", false));
        let ruled = ruled.calls("", &[("refund_booking", r#"{"booking":"BK-22"}"#)]).returns("ok");
        let trace = ruled.answers("Done.").build();
        assert!(findings_of(check, &trace).is_empty());
    }
}
