//! Statements about all things of a list: "all flights are refundable", where one of them is not.
//!
//! Principle: one counterexample refutes a statement about all. "All" means the rows that the answer names. If it
//! names none, it means the whole list, provided that the request has no condition that could select some rows, and
//! the answer counts no other number of things.
//!
//! In: the clauses of an answer, and the lists of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::predicates::{is_state_key, is_verb};
use super::sources::{ResultSource, names_of};
use crate::measure::language::{Language, WordClass};
use crate::measure::numbers;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{FieldValue, Record, RecordField};

// A question about all things.
regex!(ASKS_OF_ALL, r"^ (?:is|are|was|were|do|does|has|have) (?:all|both|each|every) ");
// A question whether something applies to the things, unlike "are there", which asks for some of them.
regex!(
    ASKS_WHETHER,
    r"^ (?:is|are|was|were|do|does|has|have) (?:the|my|our|your|these|those|all|both|they) "
);

/// Adds a finding for a claim such as "all pods are running", where a pod has another state.
pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let is_plain = |clause: &&Clause<'_>| {
        let is_of_all = claimed_noun(clause, exchange.task_words()).is_some() && !clause.modal;
        is_of_all && !clause.negated
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
                let holds: Vec<bool> = rows.iter().map(|(.., state)| is_claimed(state)).collect();
                let compared: Vec<TestedRow<'_>> = rows
                    .iter()
                    .zip(holds)
                    .map(|((at, record, _), holds)| TestedRow { source, at: *at, record, holds })
                    .collect();
                let other =
                    counterexample(exchange, &compared, true, clause.sentence).and_then(|at| rows.get(at));
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

/// A row, with whether a predicate holds for it.
pub(super) struct TestedRow<'e> {
    pub source: &'e ResultSource<'e>,
    /// The index of the row among the records of the source.
    pub at: usize,
    pub record: &'e Record,
    pub holds: bool,
}

/// Whether a clause is about all things of a kind.
pub(super) fn is_of_all(clause: &Clause<'_>, request_words: &str) -> bool {
    claimed_noun(clause, request_words).is_some()
}

/// Whether a clause makes an exception, so that it may state the opposite for the things that it names.
pub(super) fn has_exception(clause: &Clause<'_>) -> bool {
    clause.classes.has(WordClass::Exception)
}

/// The noun of a clause about all things of a kind, or an empty text without a noun; `None` for another clause. A place
/// after the noun is allowed if the request names it as well.
fn claimed_noun<'c>(clause: &'c Clause<'_>, request_words: &str) -> Option<&'c str> {
    const DETERMINERS: [&str; 8] = ["of", "the", "these", "those", "them", "your", "our", "one"];
    // Most clauses have no such word, and need not be split.
    if !clause.classes.has(WordClass::Quantifier) && !clause.negated {
        return None;
    }
    let words: Vec<&str> = clause.words.split_whitespace().collect();
    let from =
        usize::from(matches!(words.first(), Some(&"yes" | &"unfortunately" | &"and" | &"but" | &"so")));
    let after = match words.get(from..)? {
        ["all" | "both" | "each" | "every", after @ ..] if !clause.negated => after,
        ["none" | "neither" | "no", after @ ..] => after,
        ["they", "are" | "have" | "were", "all" | "both", ..] if !clause.negated => return Some(""),
        _ => return None,
    };
    let is_plain = |word: &&&str| !DETERMINERS.contains(*word) && !is_number(word);
    let verb = after.iter().position(|word| is_verb(word, Language::English))?;
    let phrase = after.get(..verb)?;
    let place =
        phrase.iter().position(|word| matches!(*word, "in" | "on" | "at" | "from")).unwrap_or(phrase.len());
    let (things, place) = phrase.split_at_checked(place)?;
    if !place.iter().all(|word| DETERMINERS.contains(word) || contains_words(request_words, word)) {
        return None;
    }
    let mut nouns = things.iter().filter(is_plain);
    match (nouns.next(), nouns.next()) {
        (noun, None) => Some(noun.copied().unwrap_or_default()),
        // A second word may select some of them.
        _ => None,
    }
}

/// Whether a word is a count, in digits or spelled.
fn is_number(word: &str) -> bool {
    word.parse::<usize>().is_ok() || (2..=20).any(|n| numbers::is_spelled(n, word))
}

/// Whether a request asks whether something applies to all things.
pub(super) fn asks_of_all(request_words: &str) -> bool {
    ASKS_OF_ALL.is_match(request_words)
}

/// The index of a row for which a claim about all rows does not hold; `None` beyond the work budget.
pub(super) fn counterexample(
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
    // An answer with the state of a row that refutes the claim has stated the exception.
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
    let is_about_all_rows =
        named.iter().all(|mentioned| !mentioned) && means_whole_list(exchange, rows, len, sentence);
    let differs =
        |(row, named): &(&TestedRow<'_>, &bool)| row.holds != claimed && (is_about_all_rows || **named);
    let is_current = |row: &TestedRow<'_>| row.source.is_current(row.at);
    rows.iter().zip(&named).position(|pair| differs(&pair) && is_current(pair.0))
}

/// Whether "all" means the whole list.
fn means_whole_list(exchange: &Exchange<'_>, rows: &[TestedRow<'_>], len: usize, sentence: &str) -> bool {
    let request_words = exchange.task_words();
    let fields = || rows.iter().flat_map(|row| &row.record.fields);
    // A value or a flag of rows that the request names may be a condition.
    let selects = fields()
        .filter_map(RecordField::text)
        .any(|text| text.len() > 2 && contains_words(request_words, text))
        || numbers::has_digit(exchange.task)
        || !ASKS_WHETHER.is_match(request_words)
            && fields().filter(|field| matches!(field.value, FieldValue::Bool(_))).any(|flag| {
                flag.name.last().is_some_and(|word| word.len() > 3 && contains_words(request_words, word))
            });
    // The noun may mean only the rows of one kind.
    let noun = exchange
        .clauses
        .iter()
        .filter(|c| std::ptr::eq(c.sentence, sentence))
        .find_map(|c| claimed_noun(c, request_words));
    let noun = noun.unwrap_or_default().trim_end_matches('s');
    let mentions_noun = |row: &&TestedRow<'_>| {
        row.record.fields.iter().filter_map(RecordField::text).any(|t| t.contains(noun))
    };
    let rows_with_noun = rows.iter().filter(mentions_noun).count();
    let is_about_some_rows = noun.len() > 2 && (1..len).contains(&rows_with_noun);
    // The answer may count only some of the rows.
    let is_other = |word: &str| match word.parse::<usize>() {
        Ok(n) => n != len,
        Err(_) => (2..=20).any(|n| n != len && numbers::is_spelled(n, word)),
    };
    let counts_other_number =
        || exchange.clauses.iter().flat_map(|clause| clause.words.split_whitespace()).any(is_other);
    !selects && !is_about_some_rows && !counts_other_number()
}
