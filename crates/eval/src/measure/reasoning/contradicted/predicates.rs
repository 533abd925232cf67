//! States as predicates: the assertions of flags and of words for states, and the statements that they refute.
//!
//! A word asserts a predicate or its opposite: "sold out" asserts the opposite of "available". A state of a process
//! also asserts other predicates: a delivered thing has been shipped, and a pending thing has not.

use std::sync::LazyLock;

use foldhash::{HashMap, HashSet};

use crate::measure::identifier::identifier_words;
use crate::measure::language::{Language, WordClass};
use crate::measure::reasoning::statements::{Clause, contains_words};
use crate::measure::records::{KeyFact, KeyName};

/// The words of states in all languages.
const STATES: &str = include_str!("../../language/data/states.txt");

/// A predicate, and whether it is asserted (`true`) or its opposite (`false`).
pub(super) type Assertion = (&'static str, bool);

/// The words of one language that assert a predicate or its opposite.
struct StateRow {
    assertion: Assertion,
    language: &'static str,
    /// The words and phrases in all their inflected forms.
    forms: Vec<String>,
}

/// The words of the data file.
#[derive(Default)]
struct StateWords {
    rows: Vec<StateRow>,
    /// By word or phrase, its assertion as the value of a field or as the key of a flag.
    assertions: HashMap<String, Assertion>,
    /// Words of keys whose values are states.
    keys: HashSet<&'static str>,
    /// By language, the verbs before a state.
    verbs: HashMap<&'static str, Vec<&'static str>>,
    /// By language, the words for states that are finite verbs, and thus assert a state without another verb.
    finite: HashMap<&'static str, Vec<&'static str>>,
}

/// The words of [`STATES`]. A line has a predicate or a keyword, a sign, a language, and words between `|`.
static WORDS: LazyLock<StateWords> = LazyLock::new(|| {
    let mut out = StateWords::default();
    for line in STATES.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.splitn(4, ' ');
        let mut part = || parts.next().unwrap_or_default();
        let (predicate, sign, language, words) = (part(), part(), part(), part());
        match predicate {
            "key" => out.keys.extend(words.split('|')),
            "verb" => out.verbs.entry(language).or_default().extend(words.split('|')),
            "finite" => out.finite.entry(language).or_default().extend(words.split('|')),
            _ => {
                let assertion = (predicate, sign == "+");
                for word in words.split('|').flat_map(|word| inflected(word, language)) {
                    let word = word.trim_start_matches('.').to_owned();
                    out.assertions.entry(word).or_insert(assertion);
                }
                let text_words = words.split('|').filter(|word| !word.starts_with('.'));
                let forms = text_words.flat_map(|word| inflected(word, language)).collect();
                out.rows.push(StateRow { assertion, language, forms });
            }
        }
    }
    out
});

/// A word of the data file with each ending of gender and number.
fn inflected(word: &'static str, language: &str) -> impl Iterator<Item = String> {
    let endings: &[&str] = match (word.strip_suffix('~'), language) {
        (None, _) => &[""],
        (_, "fr") => &["", "e", "s", "es"],
        (_, "it") => &["o", "a", "i", "e"],
        _ => &["o", "a", "os", "as"],
    };
    let stem = word.trim_end_matches('~');
    endings.iter().map(move |ending| format!("{stem}{ending}"))
}

/// The words for a predicate and for its opposite, each with whether it asserts the predicate, in one language.
fn forms(predicate: &str, language: Language) -> impl Iterator<Item = (bool, &'static str)> {
    let rows = WORDS.rows.iter().filter(move |row| row.assertion.0 == predicate);
    let rows = rows.filter(move |row| row.language == language.as_str());
    rows.flat_map(|row| row.forms.iter().map(move |form| (row.assertion.1, form.as_str())))
}

/// As [`forms`], in English and in another language: keys of results and names of tools are in either.
fn all_forms(predicate: &str, language: Language) -> impl Iterator<Item = (bool, &'static str)> {
    let other = Some(language).filter(|language| *language != Language::English);
    let languages = [Some(Language::English), other].into_iter().flatten();
    languages.flat_map(move |language| forms(predicate, language))
}

/// The English words that assert the opposite.
pub(super) fn opposite_words((predicate, holds): Assertion) -> impl Iterator<Item = &'static str> {
    forms(predicate, Language::English).filter(move |(positive, _)| *positive != holds).map(|(_, form)| form)
}

/// Maximum bytes of a word in a key that is compared as a whole and not by its stem.
const MAX_SHORT_WORD: usize = 3;
/// Maximum bytes of the words for a state.
const MAX_FORM: usize = 24;

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
    (words.len() <= MAX_FORM).then(|| WORDS.assertions.get(words).copied()).flatten()
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
pub(in crate::measure::reasoning) fn has_state_key(name: &KeyName) -> bool {
    name.has_fact(KeyFact::State, |words| words.iter().any(|word| is_state_key(word)))
}

/// Whether values of a key with this word are states.
pub(super) fn is_state_key(word: &str) -> bool {
    WORDS.keys.contains(word)
}

/// Maximum words from a verb to the words for a state.
const MAX_TO_VERB: usize = 5;

/// A property of a thing that a flag or a state asserts or denies.
#[derive(Clone, PartialEq)]
pub(super) enum Predicate {
    /// A predicate of the data file.
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
    pub(super) fn claimed(&self, clause: &Clause<'_>, language: Language) -> Option<bool> {
        if clause.modal {
            return None;
        }
        let has_verb = || clause.words.split(' ').any(|word| is_verb(word, language));
        match self {
            Predicate::Known(name) => {
                let (positive, form) = forms(name, language).find(|(_, form)| clause.has(form))?;
                let finite = WORDS.finite.get(language.as_str());
                let is_finite = finite.is_some_and(|finite| finite.contains(&form));
                let asserts = is_finite || has_verb() && follows_verb(clause, form, language);
                let is_of_state =
                    || language == Language::English || is_negated_before(clause, form, language);
                (asserts && (!clause.negated || is_of_state())).then_some(positive != clause.negated)
            }
            Predicate::Key(_) if language != Language::English => None,
            Predicate::Key(words) => {
                let has_key = words.iter().all(|word| has_stem(clause, word));
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

    /// Whether an English question asks for the predicate (`true`) or for its opposite (`false`); `None` without words
    /// for either.
    pub(super) fn asked_as(&self, asked: &str) -> Option<bool> {
        match self {
            Predicate::Known(name) => {
                let mut forms = forms(name, Language::English);
                forms.find(|(_, form)| contains_words(asked, form)).map(|(positive, _)| positive)
            }
            Predicate::Key(_) => self.is_in(asked, Language::English).then_some(true),
        }
    }

    /// Whether a text has the words of this predicate or its opposite.
    pub(super) fn is_in(&self, words: &str, language: Language) -> bool {
        match self {
            Predicate::Known(name) => all_forms(name, language).any(|(_, form)| contains_words(words, form)),
            Predicate::Key(key) => key.iter().all(|word| words.contains(&format!(" {}", stem(word)))),
        }
    }

    /// Whether an English word is one for this predicate or its opposite.
    pub(super) fn has_word(&self, word: &str) -> bool {
        match self {
            Predicate::Known(name) => {
                forms(name, Language::English).any(|(_, form)| form.split(' ').any(|part| part == word))
            }
            Predicate::Key(key) => key.iter().any(|key_word| word.starts_with(stem(key_word))),
        }
    }

    /// Whether the name of a tool is that of an action that causes this state: `cancel_order`.
    pub(super) fn is_done_by(&self, tool: &str, language: Language) -> bool {
        let tool = identifier_words(tool);
        let has_stem_of = |word: &str| {
            tool.iter()
                .any(|t| t.len() >= 4 && (t.starts_with(stem(word)) || stem(word).starts_with(t.as_str())))
        };
        match self {
            Predicate::Known(name) => {
                all_forms(name, language).any(|(_, form)| !form.contains(' ') && has_stem_of(form))
            }
            Predicate::Key(_) => false,
        }
    }
}

/// Whether a negation is directly before the verb of a state, or between the two. Elsewhere it may negate another word:
/// "il monitor non rilevato è in riparazione".
fn is_negated_before(clause: &Clause<'_>, form: &str, language: Language) -> bool {
    let before = clause.words.split_once(&format!(" {form} ")).map_or("", |(before, _)| before);
    let words: Vec<&str> = before.split(' ').collect();
    let from = words.len().saturating_sub(MAX_TO_VERB);
    let is_first_verb = |at: &usize| words.get(*at).is_some_and(|word| is_verb(word, language));
    let verb = (from..words.len()).find(is_first_verb).unwrap_or(from);
    let nearest = words.get(verb.saturating_sub(1)..).unwrap_or_default();
    language.classes(&nearest.join(" ")).has(WordClass::Negation)
}

/// The words after the verb of a clause whose subject has the words of a flag's key: " off " in "auto-renewal is off".
fn complement<'c>(clause: &'c Clause<'_>, key: &[String]) -> Option<&'c str> {
    let mut at = 0;
    let verb = clause.words.split_inclusive(' ').find_map(|word| {
        let start = at;
        at += word.len();
        is_verb(word.trim_end(), Language::English).then_some((start, at))
    });
    let (start, end) = verb?;
    let subject = clause.words.get(..start)?;
    let is_subject = key.iter().all(|word| subject.contains(&format!(" {}", stem(word))));
    is_subject.then(|| clause.words.get(end - 1..)).flatten()
}

/// Whether a complement is positive (`true`) or negative (`false`); `None` if it is neither or both.
fn is_positive(complement: &str) -> Option<bool> {
    const FORMS_OF_COMPLEMENTS: [(bool, &str); 2] = [(false, "excluded"), (true, "included")];
    // Only at the end, since "on" and "off" are prepositions before other words: "on the street".
    match complement.split_whitespace().next_back() {
        Some("on") => return Some(true),
        Some("off") => return Some(false),
        _ => {}
    }
    let has_form = |wanted: bool| {
        let plain_forms =
            FORMS_OF_COMPLEMENTS.iter().filter(|(positive, _)| *positive == wanted).map(|(_, form)| *form);
        let rows = WORDS.rows.iter().filter(|row| row.language == Language::English.as_str());
        let rows = rows.filter(|row| row.assertion.1 == wanted);
        let mut wanted_forms = rows.flat_map(|row| row.forms.iter().map(String::as_str)).chain(plain_forms);
        wanted_forms.any(|form| contains_words(complement, form))
    };
    match (has_form(true), has_form(false)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}

/// Whether a word is a verb that may precede a state.
pub(super) fn is_verb(word: &str, language: Language) -> bool {
    WORDS.verbs.get(language.as_str()).is_some_and(|verbs| verbs.contains(&word))
}

/// Whether the form of a state is in a clause at most [`MAX_TO_VERB`] words after a verb.
pub(super) fn follows_verb(clause: &Clause<'_>, form: &str, language: Language) -> bool {
    let Some(at) = clause.words.find(&format!(" {form} ")) else { return false };
    let before = clause.words.get(..at).unwrap_or_default();
    before.split(' ').rev().take(MAX_TO_VERB).any(|word| is_verb(word, language))
}

/// The beginning of a word, without a possible ending: at least four characters.
pub(super) fn stem(word: &str) -> &str {
    let end = word
        .char_indices()
        .nth(4.max(word.chars().count().saturating_sub(3)))
        .map_or(word.len(), |(at, _)| at);
    word.get(..end).unwrap_or(word)
}

/// Whether a clause has a word with the same stem, or a short word itself.
fn has_stem(clause: &Clause<'_>, word: &str) -> bool {
    // The stem of a short word is the beginning of many other words.
    match word.len() <= MAX_SHORT_WORD {
        true => clause.has(word),
        false => clause.words.contains(&format!(" {}", stem(word))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Memo;
    use crate::measure::reasoning::statements::{Prose, clauses};

    #[test]
    fn maximum_bytes_are_those_of_the_longest_form() {
        assert_eq!(WORDS.assertions.keys().map(String::len).max(), Some(MAX_FORM));
    }

    /// The assertion of a sentence, or of the value of a field in languages without spaces.
    fn asserted(language: Language, text: &str) -> Option<Assertion> {
        if !language.is_spaced() {
            return assertion(text);
        }
        let memo = Memo::new();
        let clauses = clauses(text, &Prose::cached(text, &memo), language, &memo);
        let predicates = || WORDS.rows.iter().map(|row| row.assertion.0);
        clauses.iter().find_map(|clause| {
            predicates().find_map(|name| Some((name, Predicate::Known(name).claimed(clause, language)?)))
        })
    }

    #[test]
    fn states_are_recognised_in_example_sentences() {
        let mut sections: Vec<(Language, bool, usize)> = Vec::new();
        let mut wrong = Vec::new();
        for line in include_str!("../../language/sentences/states.txt").lines() {
            if let Some((code, sign)) = line.strip_prefix("= ").and_then(|heading| heading.split_once(' ')) {
                let language = Language::ALL.into_iter().find(|language| language.as_str() == code).unwrap();
                sections.push((language, sign == "+", 0));
                continue;
            }
            let (language, asserts, count) = sections.last_mut().unwrap();
            *count += 1;
            let (expected, text) = if *asserts { line.split_once(": ").unwrap() } else { ("", line) };
            let found = asserted(*language, text);
            let found = found
                .map_or_else(String::new, |(name, holds)| format!("{}{name}", if holds { "" } else { "-" }));
            if found != expected {
                wrong.push(format!("{}: {line}: {found:?}", language.as_str()));
            }
        }
        assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
        assert!(sections.len() == 16 && sections.iter().all(|(.., count)| *count >= 20), "{sections:?}");
    }

    #[test]
    fn no_word_asserts_a_predicate_and_its_opposite() {
        for row in &WORDS.rows {
            for form in &row.forms {
                let (name, holds) = assertion(form).unwrap();
                assert!(holds == row.assertion.1 || name != row.assertion.0, "{form}");
            }
        }
    }
}
