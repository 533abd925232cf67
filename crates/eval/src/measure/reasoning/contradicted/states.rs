//! Flags and states: `available: false` against "is in stock", `status: shipped` against "has not shipped".
//!
//! A flag is named by its key; a state is a field's value with a known meaning. An answer's clause asserts a
//! predicate if it has its words and a verb, and is neither a condition nor a possibility. "Yes" and "no" at
//! the beginning assert what the question asks.

use super::exchange::{Exchange, Outcome};
use super::predicates::{Assertion, WORDS, assertion, with_consequences};
use super::sources::{Source, names_of};
use crate::measure::reasoning::records::{Field, Record, Scalar};
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};

/// Most predicates of the results of one run.
const MAX_PREDICATES: usize = 64;
/// Keys of flags that describe the response and not the thing.
const ENVELOPE: [&str; 16] = [
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
/// Keys whose values are states.
const STATE_KEYS: [&str; 10] = [
    "status",
    "state",
    "stage",
    "phase",
    "condition",
    "availability",
    "outcome",
    "progress",
    "conclusion",
    "stock",
];
const VERBS: [&str; 22] = [
    "is",
    "are",
    "was",
    "were",
    "been",
    "has",
    "have",
    "had",
    "it's",
    "that's",
    "isn't",
    "aren't",
    "wasn't",
    "weren't",
    "hasn't",
    "haven't",
    "includes",
    "include",
    "including",
    "comes",
    "remains",
    "got",
];
/// States that are verbs themselves: "the pipeline passed".
const FINITE: [&str; 7] = ["passed", "failed", "succeeded", "shipped", "expired", "booked", "closed"];

/// A predicate that a result asserts of a record.
struct Fact<'a> {
    predicate: Predicate,
    holds: bool,
    source: &'a Source<'a>,
    record: &'a Record,
    field: &'a Field,
    /// No later call may have changed it.
    current: bool,
}

#[derive(Clone, PartialEq)]
enum Predicate {
    Known(&'static str),
    /// The words of a flag's key.
    Key(Vec<String>),
}

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut Outcome) {
    let facts: Vec<Fact<'_>> =
        exchange.sources.records().flat_map(|(s, now, r)| facts_of(s, now, r)).collect();
    let mut predicates: Vec<&Predicate> = Vec::new();
    for fact in &facts {
        if !predicates.contains(&&fact.predicate) && predicates.len() < MAX_PREDICATES {
            predicates.push(&fact.predicate);
        }
    }
    for predicate in predicates {
        let facts: Vec<&Fact<'_>> = facts.iter().filter(|fact| fact.predicate == *predicate).collect();
        let claims: Vec<(bool, &str)> = exchange
            .clauses
            .iter()
            .filter_map(|clause| Some((predicate.claimed(clause)?, clause.sentence)))
            .collect();
        let claims = match claims.is_empty() {
            true => predicate.answered(exchange).into_iter().collect(),
            false => claims,
        };
        for (claimed, sentence) in claims {
            outcome.examined = true;
            if let Some(fact) = refuted(exchange, &facts, predicate, claimed, sentence) {
                let returned = format!("{}: {}", fact.field.name.join(" "), fact.field.shown);
                outcome.contradicts(
                    &returned,
                    fact.source.call.name.trim(),
                    Some(fact.source.call.at),
                    sentence,
                );
                break;
            }
        }
    }
}

/// The fact that refutes a claim, if none supports it.
fn refuted<'f, 'a>(
    exchange: &Exchange<'_>,
    facts: &[&'f Fact<'a>],
    predicate: &Predicate,
    claimed: bool,
    sentence: &str,
) -> Option<&'f Fact<'a>> {
    let words = words_of(sentence);
    let named = |fact: &&&Fact<'_>| names_of(fact.record).any(|name| contains_words(&words, &name));
    let about: Vec<&&Fact<'_>> = facts.iter().filter(named).collect();
    if about.is_empty() && predicate.is_ambiguous() && !predicate.is_in(&exchange.asked) {
        return None;
    }
    let is_general = || facts.iter().all(|fact| fact.holds != claimed);
    let supported = match about.is_empty() {
        false => about.iter().any(|fact| fact.holds == claimed),
        true => !is_general(),
    };
    let told = |text: &str| predicate.is_in(&words_of(text));
    let mentioned = exchange.sources.prose.iter().any(|text| predicate.is_in(text))
        || exchange
            .sources
            .told
            .iter()
            .any(|text| !text.contains('?') && text.len() < 400 && told(text) && claimed)
        || exchange.sources.structured.iter().any(|source| predicate.is_done_by(&source.call.name));
    if supported || mentioned {
        return None;
    }
    let is_meant =
        |fact: &&'f Fact<'a>| about.is_empty() || about.iter().any(|named| std::ptr::eq(**named, *fact));
    let found = facts.iter().copied().find(|fact| is_meant(fact) && fact.current && fact.holds != claimed);
    found.filter(|fact| !names_other(&words, fact))
}

/// Whether the sentence names a thing by an identifier that the result does not have.
fn names_other(words: &str, fact: &Fact<'_>) -> bool {
    let result = fact.source.call.result.as_deref().unwrap_or_default();
    let arguments = fact.source.call.arguments.as_deref().unwrap_or_default();
    let mut named = words.split(' ').filter(|word| {
        word.len() >= 4
            && word.bytes().filter(u8::is_ascii_digit).count() >= 3
            && !word.contains([':', '.', ','])
    });
    let has = |word: &str| {
        [result, arguments].iter().any(|text| super::sources::contains_ignoring_case(text, word))
    };
    named.clone().next().is_some() && !named.any(has)
}

/// What a record asserts by its flags and states.
fn facts_of<'a>(source: &'a Source<'a>, current: bool, record: &'a Record) -> Vec<Fact<'a>> {
    let mut out = Vec::new();
    let mut add = |predicate: Predicate, holds: bool, field: &'a Field| {
        out.push(Fact { predicate, holds, source, record, field, current });
    };
    for field in &record.fields {
        match &field.value {
            Scalar::Bool(value) => {
                let words: Vec<String> = flag_words(field);
                if words.is_empty()
                    || words.len() == 1 && words.iter().any(|w| ENVELOPE.contains(&w.as_str()))
                {
                    continue;
                }
                match assertion(&words.join(" ")) {
                    Some((predicate, positive)) => with_consequences((predicate, positive == *value))
                        .for_each(|(predicate, holds)| add(Predicate::Known(predicate), holds, field)),
                    None => add(Predicate::Key(words), *value, field),
                }
            }
            Scalar::Text(text) if field.name.iter().any(|word| STATE_KEYS.contains(&word.as_str())) => {
                let words = text.replace(['_', '-'], " ");
                let known = assertion(&words);
                known.into_iter().flat_map(with_consequences).for_each(|(predicate, holds): Assertion| {
                    add(Predicate::Known(predicate), holds, field);
                });
            }
            _ => {}
        }
    }
    out
}

/// The words of a flag's key without its verb: `is_blocked`, `hasGiftWrap`.
fn flag_words(field: &Field) -> Vec<String> {
    let verb = |word: &&String| ["is", "has", "was", "are", "can", "have", "flag"].contains(&word.as_str());
    field.name.iter().filter(|word| !verb(word)).cloned().collect()
}

impl Predicate {
    /// Whether its words have other meanings ("shipping is free").
    fn is_ambiguous(&self) -> bool {
        matches!(self, Predicate::Known("free" | "open" | "valid" | "passed" | "active" | "approved"))
    }

    /// Whether the clause asserts this predicate or its opposite.
    fn claimed(&self, clause: &Clause<'_>) -> Option<bool> {
        if clause.modal {
            return None;
        }
        let has_verb = || VERBS.iter().any(|verb| clause.has(verb));
        match self {
            Predicate::Known(name) => {
                let forms = WORDS.iter().filter(|(known, ..)| known == name);
                let mut found =
                    forms.flat_map(|(_, positive, forms)| forms.iter().map(move |f| (*positive, *f)));
                let (positive, form) = found.find(|(_, form)| clause.has(form))?;
                let asserts = FINITE.contains(&form) || has_verb() && follows_verb(clause, form);
                asserts.then_some(positive != clause.negated)
            }
            Predicate::Key(words) => {
                let plain = words.iter().all(|word| clause_has_stem(clause, word));
                let opposite = || {
                    let key = words.concat();
                    ["un", "non-", "non", "in"].iter().any(|prefix| clause.has(&format!("{prefix}{key}")))
                };
                let is_opposite = opposite();
                let asserts = (plain || is_opposite) && (has_verb() || clause.negated);
                asserts.then_some(!(clause.negated ^ is_opposite))
            }
        }
    }

    /// What "yes" or "no" asserts if the request asks whether this predicate holds.
    fn answered<'a>(&self, exchange: &Exchange<'a>) -> Option<(bool, &'a str)> {
        let (yes, sentence) = exchange.yes_or_no()?;
        Some((self.asked_as(&exchange.asked)? == yes, sentence))
    }

    fn asked_as(&self, asked: &str) -> Option<bool> {
        match self {
            Predicate::Known(name) => {
                let forms = WORDS.iter().filter(|(known, ..)| known == name);
                let mut found =
                    forms.filter(|(.., forms)| forms.iter().any(|form| contains_words(asked, form)));
                found.next().map(|(_, positive, _)| *positive)
            }
            Predicate::Key(_) => self.is_in(asked).then_some(true),
        }
    }

    /// Whether a text has the words of this predicate or its opposite.
    fn is_in(&self, words: &str) -> bool {
        match self {
            Predicate::Known(name) => {
                let mut forms =
                    WORDS.iter().filter(|(known, ..)| known == name).flat_map(|(.., forms)| forms.iter());
                forms.any(|form| contains_words(words, form))
            }
            Predicate::Key(key) => key.iter().all(|word| words.contains(&format!(" {}", stem(word)))),
        }
    }

    /// Whether a tool's name says that it brings this state about.
    fn is_done_by(&self, tool: &str) -> bool {
        let tool = crate::measure::identifier::identifier_words(tool);
        let starts = |word: &str| {
            tool.iter()
                .any(|t| t.len() >= 4 && (t.starts_with(stem(word)) || stem(word).starts_with(t.as_str())))
        };
        match self {
            Predicate::Known(name) => {
                let mut forms =
                    WORDS.iter().filter(|(known, ..)| known == name).flat_map(|(.., forms)| forms.iter());
                forms.any(|form| !form.contains(' ') && starts(form))
            }
            Predicate::Key(_) => false,
        }
    }
}

/// Whether the words stand at most a few words behind a verb.
fn follows_verb(clause: &Clause<'_>, form: &str) -> bool {
    let Some(at) = clause.words.find(&format!(" {form} ")) else { return false };
    let before = clause.words.get(..at).unwrap_or_default();
    before.split(' ').rev().take(5).any(|word| VERBS.contains(&word))
}

fn stem(word: &str) -> &str {
    let end = word
        .char_indices()
        .nth(4.max(word.chars().count().saturating_sub(3)))
        .map_or(word.len(), |(at, _)| at);
    word.get(..end).unwrap_or(word)
}

fn clause_has_stem(clause: &Clause<'_>, word: &str) -> bool {
    clause.words.contains(&format!(" {}", stem(word)))
}
