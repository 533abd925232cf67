//! States as predicates: the assertions of flags and of words for states, and the statements that they refute.
//!
//! A word asserts a predicate or its opposite ("sold out" is the opposite of "available"). A state of a process also
//! asserts other predicates: a delivered thing has been shipped, and a thing in processing has not.

use std::sync::LazyLock;

use foldhash::HashMap;

use crate::measure::identifier::identifier_words;
use crate::measure::reasoning::statements::{Clause, contains_words};
use crate::measure::records::{KeyFact, KeyName};

/// A predicate, and whether it is true.
pub(super) type Assertion = (&'static str, bool);

/// Predicates with whether they are true, and the words for that: keys of flags, values of fields, or words of answers.
pub(super) const WORDS: [(&str, bool, &[&str]); 26] = [
    ("available", true, &["available", "in stock", "stock available"]),
    ("available", false, &["unavailable", "out of stock", "sold out", "discontinued"]),
    ("open", true, &["open", "reopened", "unresolved"]),
    ("open", false, &["closed", "resolved"]),
    (
        "pending",
        true,
        &[
            "pending",
            "processing",
            "being processed",
            "in progress",
            "queued",
            "on hold",
            "preparing",
            "in preparation",
            "being prepared",
            "awaiting payment",
            "payment pending",
            "pending payment",
            "backorder",
            "on backorder",
            "backordered",
            "back-ordered",
        ],
    ),
    (
        "shipped",
        true,
        &["shipped", "dispatched", "in transit", "out for delivery", "on its way", "on the way"],
    ),
    ("delivered", true, &["delivered"]),
    ("cancelled", true, &["cancelled", "canceled"]),
    ("active", true, &["active", "enabled", "running", "online", "switched on"]),
    (
        "active",
        false,
        &["inactive", "disabled", "suspended", "stopped", "offline", "deactivated", "switched off"],
    ),
    ("paid", true, &["paid", "settled"]),
    ("paid", false, &["unpaid", "overdue", "outstanding"]),
    ("approved", true, &["approved", "accepted", "granted"]),
    ("approved", false, &["rejected", "declined", "denied"]),
    ("passed", true, &["passed", "succeeded", "successful"]),
    ("passed", false, &["failed", "failing", "unsuccessful"]),
    ("free", true, &["free", "vacant", "unoccupied"]),
    ("free", false, &["taken", "booked", "occupied", "reserved", "fully booked", "on loan"]),
    ("confirmed", true, &["confirmed"]),
    ("confirmed", false, &["unconfirmed", "waitlisted", "tentative", "provisional"]),
    ("valid", true, &["valid"]),
    ("valid", false, &["invalid", "expired"]),
    ("blocked", true, &["blocked", "locked", "frozen"]),
    ("blocked", false, &["unblocked", "unlocked"]),
    ("encrypted", true, &["encrypted"]),
    ("encrypted", false, &["unencrypted"]),
];

// By word or phrase, its assertion.
static ASSERTIONS: LazyLock<HashMap<&'static str, Assertion>> = LazyLock::new(|| {
    let rows = WORDS.iter().rev();
    let forms = rows
        .flat_map(|(predicate, holds, forms)| forms.iter().map(move |form| (*form, (*predicate, *holds))));
    forms.collect()
});

/// Maximum bytes of a word in a key that is compared as a whole and not by its stem.
const MAX_SHORT_WORD: usize = 3;
/// Maximum bytes of a word or phrase in [`WORDS`].
const MAX_FORM: usize = 16;

/// The assertions that follow from an assertion.
const CONSEQUENCES: [(Assertion, &[Assertion]); 7] = [
    (("pending", true), &[("shipped", false), ("delivered", false), ("cancelled", false)]),
    (("shipped", true), &[("pending", false), ("delivered", false), ("cancelled", false)]),
    (("delivered", true), &[("pending", false), ("shipped", true), ("cancelled", false)]),
    (("cancelled", true), &[("delivered", false), ("pending", false), ("active", false)]),
    (("confirmed", true), &[("cancelled", false)]),
    (("free", true), &[("available", true)]),
    (("free", false), &[("available", false)]),
];

/// The assertion of these words as the value of a field or in an answer; `None` if they are not a known state.
pub(super) fn assertion(words: &str) -> Option<Assertion> {
    (words.len() <= MAX_FORM).then(|| ASSERTIONS.get(words).copied()).flatten()
}

/// An assertion and its consequences.
pub(super) fn with_consequences(first: Assertion) -> impl Iterator<Item = Assertion> {
    let consequences = CONSEQUENCES
        .iter()
        .filter(move |(premise, _)| *premise == first)
        .flat_map(|(_, consequences)| consequences.iter().copied());
    std::iter::once(first).chain(consequences)
}

/// Whether a word of a key is one for a state.
pub(super) fn has_state_key(name: &KeyName) -> bool {
    name.has_fact(KeyFact::State, |words| words.iter().any(|word| is_state_key(word)))
}

/// Whether values of a key with this word are states.
pub(super) fn is_state_key(word: &str) -> bool {
    matches!(
        word,
        "status"
            | "state"
            | "stage"
            | "phase"
            | "condition"
            | "availability"
            | "outcome"
            | "progress"
            | "conclusion"
            | "stock"
    )
}

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
/// Maximum words from a verb to the words for a state.
const MAX_TO_VERB: usize = 5;
/// Words for states that are finite verbs: "the pipeline passed".
const FINITE: [&str; 7] = ["passed", "failed", "succeeded", "shipped", "expired", "booked", "closed"];

/// A property of a thing that a flag or a state asserts or denies.
#[derive(Clone, PartialEq)]
pub(super) enum Predicate {
    /// A predicate of [`WORDS`].
    Known(&'static str),
    /// The words of a flag's key.
    Key(Vec<String>),
}

impl Predicate {
    /// Whether words of the predicate have other meanings ("shipping is free").
    pub(super) fn is_ambiguous(&self) -> bool {
        matches!(self, Predicate::Known("free" | "open" | "valid" | "passed" | "active" | "approved"))
    }

    /// Whether the clause claims this predicate (`true`) or its opposite (`false`); `None` if it claims neither.
    pub(super) fn claimed(&self, clause: &Clause<'_>) -> Option<bool> {
        if clause.modal {
            return None;
        }
        let has_verb = || VERBS.iter().any(|verb| clause.has(verb));
        match self {
            Predicate::Known(name) => {
                let forms = WORDS.iter().filter(|(predicate, ..)| predicate == name);
                let mut forms =
                    forms.flat_map(|(_, positive, forms)| forms.iter().map(move |f| (*positive, *f)));
                let (positive, form) = forms.find(|(_, form)| clause.has(form))?;
                let asserts = FINITE.contains(&form) || has_verb() && follows_verb(clause, form);
                asserts.then_some(positive != clause.negated)
            }
            Predicate::Key(words) => {
                let has_key = words.iter().all(|word| clause_has_stem(clause, word));
                let opposite = || {
                    let key = words.concat();
                    ["un", "non-", "non", "in"].iter().any(|prefix| clause.has(&format!("{prefix}{key}")))
                };
                let is_opposite = opposite();
                if has_key && let Some(complement) = complement(clause, words) {
                    return Some(is_positive(complement)? != clause.negated);
                }
                let asserts = (has_key || is_opposite) && (has_verb() || clause.negated);
                asserts.then_some(!(clause.negated ^ is_opposite))
            }
        }
    }

    /// Whether a question asks for the predicate (`true`) or for its opposite (`false`); `None` without words for
    /// either.
    pub(super) fn asked_as(&self, asked: &str) -> Option<bool> {
        match self {
            Predicate::Known(name) => {
                let forms = WORDS.iter().filter(|(predicate, ..)| predicate == name);
                let mut forms =
                    forms.filter(|(.., forms)| forms.iter().any(|form| contains_words(asked, form)));
                forms.next().map(|(_, positive, _)| *positive)
            }
            Predicate::Key(_) => self.is_in(asked).then_some(true),
        }
    }

    /// Whether a text has the words of this predicate or its opposite.
    pub(super) fn is_in(&self, words: &str) -> bool {
        match self {
            Predicate::Known(name) => {
                let mut forms = WORDS
                    .iter()
                    .filter(|(predicate, ..)| predicate == name)
                    .flat_map(|(.., forms)| forms.iter());
                forms.any(|form| contains_words(words, form))
            }
            Predicate::Key(key) => key.iter().all(|word| words.contains(&format!(" {}", stem(word)))),
        }
    }

    /// Whether a word is one for this predicate or its opposite.
    pub(super) fn has_word(&self, word: &str) -> bool {
        match self {
            Predicate::Known(name) => {
                let forms = WORDS.iter().filter(|(predicate, ..)| predicate == name);
                forms
                    .flat_map(|(.., forms)| forms.iter())
                    .any(|form| form.split(' ').any(|part| part == word))
            }
            Predicate::Key(key) => key.iter().any(|key_word| word.starts_with(stem(key_word))),
        }
    }

    /// Whether a tool is named for causing this state.
    pub(super) fn is_done_by(&self, tool: &str) -> bool {
        let tool = identifier_words(tool);
        let starts = |word: &str| {
            tool.iter()
                .any(|t| t.len() >= 4 && (t.starts_with(stem(word)) || stem(word).starts_with(t.as_str())))
        };
        match self {
            Predicate::Known(name) => {
                let mut forms = WORDS
                    .iter()
                    .filter(|(predicate, ..)| predicate == name)
                    .flat_map(|(.., forms)| forms.iter());
                forms.any(|form| !form.contains(' ') && starts(form))
            }
            Predicate::Key(_) => false,
        }
    }
}

/// The words after the verb of a clause whose subject has the words of a flag's key: " off " in "auto-renewal is off".
fn complement<'c>(clause: &'c Clause<'_>, key: &[String]) -> Option<&'c str> {
    let mut at = 0;
    let verb = clause.words.split_inclusive(' ').find_map(|word| {
        let start = at;
        at += word.len();
        is_verb(word.trim_end()).then_some((start, at))
    });
    let (start, end) = verb?;
    let subject = clause.words.get(..start)?;
    let is_subject = key.iter().all(|word| subject.contains(&format!(" {}", stem(word))));
    is_subject.then(|| clause.words.get(end - 1..)).flatten()
}

/// Whether a complement is positive (`true`) or negative (`false`); `None` if it is neither or both.
fn is_positive(complement: &str) -> Option<bool> {
    const PLAIN: [(bool, &[&str]); 2] = [(false, &["excluded"]), (true, &["included"])];
    // Only at the end, since "on" and "off" are prepositions before other words: "on the street".
    match complement.split_whitespace().next_back() {
        Some("on") => return Some(true),
        Some("off") => return Some(false),
        _ => {}
    }
    let known_forms = || WORDS.iter().map(|(_, positive, forms)| (*positive, *forms));
    let forms = || PLAIN.into_iter().chain(known_forms());
    let has_form = |wanted: bool| {
        let mut wanted_forms =
            forms().filter(|(positive, _)| *positive == wanted).flat_map(|(_, forms)| forms.iter());
        wanted_forms.any(|form| contains_words(complement, form))
    };
    match (has_form(true), has_form(false)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}

pub(super) fn is_verb(word: &str) -> bool {
    VERBS.contains(&word)
}

/// Whether the words are in a clause at most [`MAX_TO_VERB`] words after a verb.
pub(super) fn follows_verb(clause: &Clause<'_>, form: &str) -> bool {
    let Some(at) = clause.words.find(&format!(" {form} ")) else { return false };
    let before = clause.words.get(..at).unwrap_or_default();
    before.split(' ').rev().take(MAX_TO_VERB).any(|word| VERBS.contains(&word))
}

pub(super) fn stem(word: &str) -> &str {
    let end = word
        .char_indices()
        .nth(4.max(word.chars().count().saturating_sub(3)))
        .map_or(word.len(), |(at, _)| at);
    word.get(..end).unwrap_or(word)
}

fn clause_has_stem(clause: &Clause<'_>, word: &str) -> bool {
    // The stem of a short word is the beginning of many other words.
    match word.len() <= MAX_SHORT_WORD {
        true => clause.has(word),
        false => clause.words.contains(&format!(" {}", stem(word))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_word_is_looked_up() {
        let longest = WORDS.iter().flat_map(|(.., forms)| forms.iter()).map(|form| form.len()).max();
        assert_eq!(longest, Some(MAX_FORM));
    }
}
