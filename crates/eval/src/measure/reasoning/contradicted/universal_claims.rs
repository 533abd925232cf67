//! Statements about all things of a list: "all flights are refundable", where one of them is not.
//!
//! Principle: one counterexample refutes a statement about all. "All" are the rows that the answer names, or if it
//! names none, the whole list; then the request must have no condition that could select some of them, and the answer
//! must count no other number of things.

use super::exchange::{Exchange, ExchangeFindings};
use super::predicates::is_state_key;
use super::sources::{ResultSource, names_of};
use crate::measure::language::WordClass;
use crate::measure::numbers;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{FieldValue, Record, RecordField};

// A question about all things, or whether something holds of them; "are there" asks for some.
regex!(ASKS_OF_ALL, r"^ (?:is|are|was|were|do|does|has|have) (?:all|both|each|every) ");
regex!(
    ASKS_WHETHER,
    r"^ (?:is|are|was|were|do|does|has|have) (?:the|my|our|your|these|those|all|both|they) "
);
/// Verbs after the name of the things.
const VERBS: [&str; 11] =
    ["is", "are", "was", "were", "has", "have", "include", "includes", "come", "comes", "remains"];
/// "All pods are running", where the state of one of them is another.
pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let is_plain = |clause: &&Clause<'_>| {
        let is_whole = subject(clause, exchange.asked()).is_some() && !clause.modal;
        is_whole && !clause.negated
    };
    let claims: Vec<&Clause<'_>> = exchange.clauses.iter().filter(is_plain).collect();
    for source in exchange.sources.structured.iter().filter(|_| !claims.is_empty()) {
        let Some(parsed) = &source.parsed.0 else { continue };
        for list in 0..parsed.lists.len() {
            if !exchange.spends(parsed.records.len() / 8 + claims.len()) {
                return;
            }
            let state_of = |record: &Record| {
                let is_state = |name: &[String]| name.last().is_some_and(|word| is_state_key(word));
                let field = record.fields.iter().find(|field| is_state(&field.name))?;
                Some(words_of(&field.text()?.replace('_', " ")))
            };
            let rows = parsed.records.iter().enumerate().filter(|(_, record)| record.list == Some(list));
            let rows: Vec<(usize, &Record, String)> =
                rows.filter_map(|(at, record)| Some((at, record, state_of(record)?))).collect();
            for clause in &claims {
                let is_claimed = |state: &str| contains_words(&clause.words, state.trim());
                if !rows.iter().any(|(.., state)| is_claimed(state)) {
                    continue;
                }
                findings.examined = true;
                let row = |at: &(usize, &'_ Record, String)| is_claimed(&at.2);
                let holds: Vec<bool> = rows.iter().map(row).collect();
                let compared: Vec<TestedRow<'_>> = rows
                    .iter()
                    .zip(holds)
                    .map(|((at, record, _), holds)| TestedRow { source, at: *at, record, holds })
                    .collect();
                let other = exception(exchange, &compared, true, clause.sentence).and_then(|at| rows.get(at));
                if let Some((_, record, state)) = other {
                    let name = names_of(record).next().unwrap_or_default();
                    let returned = format!("{} for {name}", state.trim());
                    findings.contradicts(&returned, source.call, clause.sentence);
                    return;
                }
            }
        }
    }
}

/// A row for which a predicate holds or does not.
pub(super) struct TestedRow<'e> {
    pub source: &'e ResultSource<'e>,
    /// The index of the row among the records of the source.
    pub at: usize,
    pub record: &'e Record,
    pub holds: bool,
}

/// Whether a clause is about all things of a kind.
pub(super) fn is_of_all(clause: &Clause<'_>, asked: &str) -> bool {
    subject(clause, asked).is_some()
}

/// Whether a clause makes an exception, so that it may say the opposite of what it names.
pub(super) fn has_exception(clause: &Clause<'_>) -> bool {
    clause.classes.has(WordClass::Exception)
}

/// The noun of a clause about all things of a kind; empty if it has none. A place that the request names as well
/// selects none of what was looked up for it.
fn subject<'c>(clause: &'c Clause<'_>, asked: &str) -> Option<&'c str> {
    const DETERMINERS: [&str; 8] = ["of", "the", "these", "those", "them", "your", "our", "one"];
    // Most clauses have none of these words.
    if !clause.classes.has(WordClass::Quantifier) && !clause.negated {
        return None;
    }
    let words: Vec<&str> = clause.words.split_whitespace().collect();
    let from =
        usize::from(matches!(words.first(), Some(&"yes" | &"unfortunately" | &"and" | &"but" | &"so")));
    let rest = match words.get(from..)? {
        ["all" | "both" | "each" | "every", rest @ ..] if !clause.negated => rest,
        ["none" | "neither" | "no", rest @ ..] => rest,
        ["they", "are" | "have" | "were", "all" | "both", ..] if !clause.negated => return Some(""),
        _ => return None,
    };
    let is_plain = |word: &&&str| !DETERMINERS.contains(*word) && !is_number(word);
    let verb = rest.iter().position(|word| VERBS.contains(word))?;
    let whole = rest.get(..verb)?;
    let place =
        whole.iter().position(|word| matches!(*word, "in" | "on" | "at" | "from")).unwrap_or(whole.len());
    let (things, place) = whole.split_at_checked(place)?;
    if !place.iter().all(|word| DETERMINERS.contains(word) || contains_words(asked, word)) {
        return None;
    }
    let mut nouns = things.iter().filter(is_plain);
    match (nouns.next(), nouns.next()) {
        (noun, None) => Some(noun.copied().unwrap_or_default()),
        // A second word may select some of them.
        _ => None,
    }
}

fn is_number(word: &str) -> bool {
    word.parse::<usize>().is_ok() || (2..=20).any(|n| numbers::is_spelled(n, word))
}

pub(super) fn asks_of_all(asked: &str) -> bool {
    ASKS_OF_ALL.is_match(asked)
}

/// The row for which a claim about all does not hold.
pub(super) fn exception(
    exchange: &Exchange<'_>,
    rows: &[TestedRow<'_>],
    claimed: bool,
    sentence: &str,
) -> Option<usize> {
    let list = rows.first()?.record.list?;
    let source = rows.first()?.source;
    let is_one_list =
        rows.iter().all(|row| std::ptr::eq(row.source, source) && row.record.list == Some(list));
    let parsed = source.parsed.0.as_ref()?;
    let len = parsed.lists.get(list).map(|list| list.len)?;
    if !is_one_list || rows.len() != len || exchange.clauses.iter().any(has_exception) {
        return None;
    }
    let is_named = |row: &&TestedRow<'_>| {
        let mut names = names_of(row.record);
        names.any(|name| exchange.clauses.iter().any(|clause| clause.has(&name)))
    };
    // An answer that gives the state of a row has stated the exception.
    let is_told = |row: &TestedRow<'_>| {
        let states =
            row.record.fields.iter().filter(|f| f.name.last().is_some_and(|word| is_state_key(word)));
        let mut states = states.filter_map(RecordField::text).map(|text| text.replace('_', " "));
        row.holds != claimed && states.any(|state| exchange.clauses.iter().any(|clause| clause.has(&state)))
    };
    if rows.iter().any(is_told) {
        return None;
    }
    exchange.spends(rows.len() * exchange.clauses.len()).then_some(())?;
    let named: Vec<bool> = rows.iter().map(|row| is_named(&row)).collect();
    let is_whole = named.iter().all(|mentioned| !mentioned) && is_about_whole(exchange, rows, len, sentence);
    let differs = |(row, named): &(&TestedRow<'_>, &bool)| row.holds != claimed && (is_whole || **named);
    let is_current = |row: &TestedRow<'_>| row.source.is_current(row.at);
    rows.iter().zip(&named).position(|pair| differs(&pair) && is_current(pair.0))
}

/// Whether "all" means the whole list.
fn is_about_whole(exchange: &Exchange<'_>, rows: &[TestedRow<'_>], len: usize, sentence: &str) -> bool {
    let asked = exchange.asked();
    let fields = || rows.iter().flat_map(|row| &row.record.fields);
    // A value that some rows have and others have not may be a condition of the request.
    let selects =
        fields().filter_map(RecordField::text).any(|text| text.len() > 2 && contains_words(asked, text))
            || numbers::has_digit(exchange.task)
            || !ASKS_WHETHER.is_match(asked)
                && fields().filter(|field| matches!(field.value, FieldValue::Bool(_))).any(|flag| {
                    flag.name.last().is_some_and(|word| word.len() > 3 && contains_words(asked, word))
                });
    // The things may be some of the rows by their kind.
    let noun = exchange
        .clauses
        .iter()
        .filter(|c| std::ptr::eq(c.sentence, sentence))
        .find_map(|c| subject(c, asked));
    let noun = noun.unwrap_or_default().trim_end_matches('s');
    let mentions_noun = |row: &&TestedRow<'_>| {
        row.record.fields.iter().filter_map(RecordField::text).any(|t| t.contains(noun))
    };
    let kind = rows.iter().filter(mentions_noun).count();
    let is_part = noun.len() > 2 && (1..len).contains(&kind);
    // So may those that the answer counts.
    let is_other = |word: &str| match word.parse::<usize>() {
        Ok(n) => n != len,
        Err(_) => (2..=20).any(|n| n != len && numbers::is_spelled(n, word)),
    };
    let counts = || exchange.clauses.iter().flat_map(|clause| clause.words.split_whitespace()).any(is_other);
    !selects && !is_part && !counts()
}
