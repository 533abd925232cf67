//! Contradicted flags and states: `available: false` and "is in stock", `status: shipped` and "has not shipped".
//!
//! Principle: a flag or a state is reported as it is in the result. A flag is named by its key; a state is a value
//! with a known meaning. A clause asserts a predicate if it has the words of the predicate and a verb, and is neither
//! a condition nor a possibility. "Yes" and "no" at the beginning assert or deny the predicate in the question. One
//! row refutes a statement about all rows ([`super::universal_claims`]).
//!
//! In: the clauses of an answer, and the flags and states of results. Out: contradictions.

use super::clause_subject;
use super::exchange::{Exchange, ExchangeFindings};
use super::predicates::{Assertion, Predicate, assertion, has_state_key, with_consequences};
use super::sources::{ResultSource, names_of};
use super::universal_claims::{self, TestedRow};
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, Language};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{FieldValue, Record, RecordField};
use crate::measure::tool_purpose::action_of;
use crate::pattern::contains_ignoring_case;

/// Maximum predicates of the results of one run that are compared.
const MAX_PREDICATES: usize = 64;
/// Keys of flags that describe the response and not the thing.
const RESPONSE_FLAGS: [&str; 16] = [
    "ok",
    "success",
    "successful",
    "error",
    "errors",
    "found",
    "truncated",
    "cached",
    "valid",
    "exists",
    "more",
    "next",
    "partial",
    "complete",
    "done",
    "result",
];
/// Minimum bytes of a word by which an answer may name a thing with a longer name.
const MIN_WORD: usize = 4;

/// A predicate that a result asserts or denies of a record.
struct StateFact<'a> {
    predicate: Predicate,
    holds: bool,
    source: &'a ResultSource<'a>,
    record: &'a Record,
    field: &'a RecordField,
    /// The index of the record in the source.
    at: usize,
}

/// Whether the predicate is claimed to be true, whether it is claimed of all things, the sentence of the claim, and its
/// clause; no clause for "yes" and "no".
type Claim<'e, 'a> = (bool, bool, &'a str, Option<&'e Clause<'a>>);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let Some(language) = exchange.language else { return };
    // Most results have neither flags nor states.
    let may_have = |source: &&ResultSource<'_>| {
        let has_flags = source.parsed.0.as_ref().is_some_and(|parsed| parsed.has_flags);
        has_flags || source.may_have_key(has_state_key)
    };
    let source_facts =
        |source| ResultSource::records(source).flat_map(move |(at, record)| facts_of(source, at, record));
    let facts: Vec<StateFact<'_>> =
        exchange.sources.structured.iter().filter(may_have).flat_map(source_facts).collect();
    let mut predicates: Vec<&Predicate> = Vec::new();
    if !exchange.spends(facts.len()) {
        return;
    }
    for fact in &facts {
        if !predicates.contains(&&fact.predicate) && predicates.len() < MAX_PREDICATES {
            predicates.push(&fact.predicate);
        }
    }
    for predicate in predicates {
        if !exchange.spends(facts.len() / 8 + exchange.clauses.len()) {
            return;
        }
        let facts: Vec<&StateFact<'_>> = facts.iter().filter(|fact| fact.predicate == *predicate).collect();
        let is_asked = predicate.is_in(exchange.task_words(), language);
        let claims: Vec<Claim<'_, '_>> = exchange
            .clauses
            .iter()
            // "There are not enough seats available" is about an amount and not about a state.
            .filter(|clause| !clause.has("enough") && !universal_claims::has_exception(clause))
            .filter_map(|clause| {
                let claimed = predicate.claimed(clause, language)?;
                let is_universal = universal_claims::is_of_all(clause, exchange.task_words());
                // In other languages than English, the subject of a clause is not known.
                let is_meant = is_universal
                    || is_asked
                    || match language {
                        Language::English => clause_subject::is_of_results(exchange, clause, predicate),
                        _ => facts.iter().any(|fact| is_named(fact, &clause.words)),
                    };
                is_meant.then_some((claimed, is_universal, clause.sentence, Some(clause)))
            })
            .collect();
        let claims = match claims.is_empty() {
            true => yes_or_no_claim(predicate, exchange).into_iter().collect(),
            false => claims,
        };
        let is_mixed =
            claims.iter().any(|(claimed, ..)| *claimed) && claims.iter().any(|(claimed, ..)| !claimed);
        for (claimed, is_universal, sentence, clause) in claims {
            // Each fact is compared with the names in the sentence.
            if !exchange.spends(1 + facts.len()) {
                return;
            }
            findings.examined = true;
            let exception = || {
                (is_universal && !is_mixed).then(|| exception(exchange, &facts, claimed, sentence)).flatten()
            };
            if let Some(fact) = refuting_fact(exchange, &facts, predicate, claimed, sentence, is_mixed)
                .filter(|fact| clause.is_none_or(|clause| !is_of_later_clause(fact, clause)))
                .or_else(exception)
            {
                let returned = format!("{}: {}", fact.field.name.join(" "), fact.field.shown());
                findings.contradicts(&returned, fact.source.call, sentence);
                break;
            }
        }
    }
}

/// The fact that refutes a claim, if no fact or text supports the claim.
fn refuting_fact<'f, 'a>(
    exchange: &Exchange<'_>,
    facts: &[&'f StateFact<'a>],
    predicate: &Predicate,
    claimed: bool,
    sentence: &str,
    is_mixed: bool,
) -> Option<&'f StateFact<'a>> {
    let language = exchange.language?;
    let words = words_of(sentence);
    let named = |fact: &&&StateFact<'_>| is_named(fact, &words);
    let named_facts: Vec<&&StateFact<'_>> = facts.iter().filter(named).collect();
    if named_facts.is_empty() && predicate.is_ambiguous() && !predicate.is_in(exchange.task_words(), language)
    {
        return None;
    }
    // An answer with both claims is about several things or times: "It is closed now. It is open again on Monday."
    if named_facts.is_empty() && is_mixed {
        return None;
    }
    let refute_all = || facts.iter().all(|fact| fact.holds != claimed);
    // An answer may name a thing by a part of its name.
    let is_named_in_part =
        |fact: &&&StateFact<'_>| fact.holds == claimed && is_named_in_part(exchange, fact, &words);
    let is_supported = match named_facts.is_empty() {
        false => {
            named_facts.iter().any(|fact| fact.holds == claimed)
                || facts.iter().any(|fact| is_named_in_part(&fact))
        }
        true => !refute_all(),
    };
    let is_stated = |text: &str| predicate.is_in(&words_of(text), language);
    let is_mentioned = exchange.sources.prose.iter().any(|text| predicate.is_in(text, language))
        || exchange
            .sources
            .from_user
            .iter()
            .any(|text| !text.contains('?') && text.len() < 400 && is_stated(text) && claimed)
        || exchange.sources.structured.iter().any(|source| predicate.is_done_by(&source.call.name, language))
        || is_in_field(exchange, predicate, claimed);
    if is_supported || is_mentioned {
        return None;
    }
    let is_meant = |fact: &&'f StateFact<'a>| {
        named_facts.is_empty() || named_facts.iter().any(|named| std::ptr::eq(**named, *fact))
    };
    // A later query does not change a flag.
    let is_unchanged = |fact: &StateFact<'_>| {
        fact.source.is_current(fact.at)
            || matches!(predicate, Predicate::Key(words) if fact.source.is_only_queried(fact.at, words))
    };
    let refuting = facts
        .iter()
        .copied()
        .find(|fact| is_meant(fact) && fact.holds != claimed && is_unchanged(fact))
        .filter(|fact| !fact.source.may_be_set_later(fact.field));
    refuting.filter(|fact| !names_only_other_things(&words, fact) && !is_of_other_time(&words, fact))
}

/// Whether the words have a name of the record.
fn is_named(fact: &StateFact<'_>, words: &str) -> bool {
    names_of(fact.record).any(|name| contains_words(words, &name))
}

/// Whether the record has the time at which its state begins or ends (`available_from` beside `available`), and the
/// words have a number of that time: "it is available again from 6 pm".
fn is_of_other_time(words: &str, fact: &StateFact<'_>) -> bool {
    let is_time = |field: &&RecordField| {
        let has_words = fact.field.name.iter().all(|word| field.name.contains(word));
        field.name.len() > fact.field.name.len() && has_words && dates::all(field.shown()).next().is_some()
    };
    words.contains(|c: char| c.is_ascii_digit()) && fact.record.fields.iter().any(|field| is_time(&field))
}

/// Whether only a later clause of the sentence names the record: "The shed is locked, and the barn will be, too".
fn is_of_later_clause(fact: &StateFact<'_>, clause: &Clause<'_>) -> bool {
    let words = words_of(clause.sentence);
    let end = words.find(clause.words.trim()).map(|at| at + clause.words.trim().len());
    let Some((before, after)) = end.and_then(|end| words.split_at_checked(end)) else { return false };
    let is_named = |words: &str| names_of(fact.record).any(|name| contains_words(words, &name));
    is_named(after) && !is_named(before)
}

/// Whether the words have a word of one of the record's names that no other record of the source has.
fn is_named_in_part(exchange: &Exchange<'_>, fact: &StateFact<'_>, words: &str) -> bool {
    let records = fact.source.parsed.0.iter().flat_map(|parsed| &parsed.records);
    let others = || records.clone().filter(|record| !std::ptr::eq(*record, fact.record));
    let has = |record: &Record, word: &str| names_of(record).any(|name| contains_words(&name, word));
    names_of(fact.record).any(|name| {
        let mut shared_words =
            name.split(' ').filter(|word| word.len() >= MIN_WORD && contains_words(words, word));
        shared_words
            .any(|word| exchange.spends(others().count()) && !others().any(|record| has(record, word)))
    })
}

/// Whether any field has the claim as its value: `customs: pending` next to `status: in_transit`.
fn is_in_field(exchange: &Exchange<'_>, predicate: &Predicate, claimed: bool) -> bool {
    let Predicate::Known(name) = predicate else { return false };
    let mut texts =
        exchange.sources.records().flat_map(|(.., record)| &record.fields).filter_map(RecordField::text);
    texts.any(|text| assertion(&text.replace(['_', '-'], " ")) == Some((name, claimed)))
}

/// Whether the sentence names things only by identifiers that neither the result nor the arguments have.
fn names_only_other_things(words: &str, fact: &StateFact<'_>) -> bool {
    let result = fact.source.call.result.as_deref().unwrap_or_default();
    let arguments = fact.source.call.arguments.as_deref().unwrap_or_default();
    let dates: Vec<_> = dates::all(words).filter_map(|date| words.get(date.at)).collect();
    let is_in_date = |word: &str| dates.iter().any(|date| date.split(' ').any(|part| part == word));
    let mut identifiers = words.split(' ').filter(|word| !is_in_date(word)).filter(|word| {
        word.len() >= 4
            && word.bytes().filter(u8::is_ascii_digit).count() >= 3
            && !word.contains([':', '.', ','])
    });
    let has = |word: &str| [result, arguments].iter().any(|text| contains_ignoring_case(text, word));
    identifiers.clone().next().is_some() && !identifiers.any(has)
}

/// The predicates that a record asserts or denies by its flags and states.
fn facts_of<'a>(source: &'a ResultSource<'a>, at: usize, record: &'a Record) -> Vec<StateFact<'a>> {
    let mut out = Vec::new();
    let mut add = |predicate: Predicate, holds: bool, field: &'a RecordField| {
        out.push(StateFact { predicate, holds, source, record, field, at });
    };
    for field in &record.fields {
        match &field.value {
            FieldValue::Bool(value) => {
                let words: Vec<String> = flag_words(field);
                if words.is_empty()
                    || words.len() == 1 && words.iter().any(|w| RESPONSE_FLAGS.contains(&w.as_str()))
                {
                    continue;
                }
                match assertion(&words.join(" ")) {
                    Some((predicate, positive)) => with_consequences((predicate, positive == *value))
                        .for_each(|(predicate, holds)| add(Predicate::Known(predicate), holds, field)),
                    None => add(Predicate::Key(words), *value, field),
                }
            }
            FieldValue::Text(text) if has_state_key(&field.name) => {
                let words = text.replace(['_', '-'], " ");
                // The state may be a noun.
                let asserted = assertion(match words.as_str() {
                    "failure" => "failed",
                    "success" => "passed",
                    other => other,
                });
                asserted.into_iter().flat_map(with_consequences).for_each(|(predicate, holds): Assertion| {
                    add(Predicate::Known(predicate), holds, field);
                });
                // A pending thing is not approved. A pending booking is not confirmed either, but an order may be
                // confirmed while it is pending.
                if words == "pending" || words.starts_with("pending ") {
                    add(Predicate::Known("approved"), false, field);
                    if is_booking_tool(&source.call.name) {
                        add(Predicate::Known("confirmed"), false, field);
                    }
                }
            }
            _ => {}
        }
    }
    out
}

/// Whether a tool is about bookings.
fn is_booking_tool(tool: &str) -> bool {
    let actions = identifier_words(tool).into_iter().filter_map(|word| action_of(&word)).collect::<Vec<_>>();
    actions.iter().any(|action| matches!(action, Action::Book | Action::Schedule))
}

/// The words of a flag's key without its verb: `is_blocked`, `hasGiftWrap`.
fn flag_words(field: &RecordField) -> Vec<String> {
    let is_auxiliary_verb =
        |word: &&String| ["is", "has", "was", "are", "can", "have", "flag"].contains(&word.as_str());
    field.name.iter().filter(|word| !is_auxiliary_verb(word)).cloned().collect()
}

/// The claim of a "yes" or "no", if the request asks for this predicate.
fn yes_or_no_claim<'e, 'a>(predicate: &Predicate, exchange: &'e Exchange<'a>) -> Option<Claim<'e, 'a>> {
    let (is_affirmative, sentence) = exchange.yes_or_no()?;
    // "No" denies the predicate only of some things.
    let is_universal = is_affirmative && universal_claims::asks_of_all(exchange.task_words());
    Some((predicate.asked_as(exchange.task_words())? == is_affirmative, is_universal, sentence, None))
}

/// The fact of a row for which a claim about all rows does not hold.
fn exception<'f, 'a>(
    exchange: &Exchange<'_>,
    facts: &[&'f StateFact<'a>],
    claimed: bool,
    sentence: &str,
) -> Option<&'f StateFact<'a>> {
    let rows: Vec<TestedRow<'_>> = facts
        .iter()
        .map(|fact| TestedRow { source: fact.source, at: fact.at, record: fact.record, holds: fact.holds })
        .collect();
    let at = universal_claims::counterexample(exchange, &rows, claimed, sentence)?;
    facts.get(at).copied()
}
