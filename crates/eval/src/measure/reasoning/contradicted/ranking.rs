//! Rankings by another field than the requested one: "which three have the best completion rate?", and the answer names
//! the ones with the most downloads.
//!
//! Principle: a request for the best or the most of a named field is answered by the rows with the best values of this
//! field. An answer that names the requested number of rows, but other rows, is a contradiction. It is compared only if
//! the request does not limit the rows by a value, and each row has the field.
//!
//! In: a request with a superlative, the only list with that field, and the sentence of the answer that names rows
//! of it. Out: one contradiction.

use aho_corasick::AhoCorasick;

use super::exchange::{Exchange, ExchangeFindings};
use super::extremes::limits_time;
use super::sources::names_of;
use crate::measure::language::{Language, WordClass, WordClasses, classes};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{Record, RecordField};

/// Superlatives, with whether they ask for the largest values; `None` if that depends on the field.
const SUPERLATIVES: [(&str, Option<bool>); 12] = [
    ("highest", Some(true)),
    ("most", Some(true)),
    ("largest", Some(true)),
    ("biggest", Some(true)),
    ("longest", Some(true)),
    ("lowest", Some(false)),
    ("least", Some(false)),
    ("fewest", Some(false)),
    ("smallest", Some(false)),
    ("shortest", Some(false)),
    ("best", None),
    ("worst", None),
];
// Finds any superlative, also inside other words.
checked_static!(
    FORMS: AhoCorasick = AhoCorasick::builder().ascii_case_insensitive(true).build(SUPERLATIVES.map(|(form, _)| form))
);
/// Words in keys of fields whose larger values are better.
const LARGER_IS_BETTER: [&str; 16] = [
    "completion",
    "rating",
    "score",
    "accuracy",
    "uptime",
    "conversion",
    "retention",
    "satisfaction",
    "revenue",
    "margin",
    "yield",
    "efficiency",
    "availability",
    "growth",
    "coverage",
    "profit",
];
/// Last words in keys of fields in which 1 may be the highest rank.
const RANK_WORDS: [&str; 7] = ["rank", "ranking", "priority", "place", "position", "severity", "tier"];
/// Number of words after a superlative that may name its field.
const MAX_FIELD_WORDS: usize = 4;
/// Maximum words of a clause that only names rows.
const MAX_SHORT_WORDS: usize = 8;
/// Maximum rows of a list.
const MAX_ROWS: usize = 100;
/// Maximum bytes of a request.
const MAX_REQUEST: usize = 300;
/// Classes of words by which a request or a clause is about some of the rows only.
const LIMITATION: WordClasses = classes!(Condition Exception Bound Restriction Contrast Comparison Neighbour);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    if exchange.task.len() > MAX_REQUEST || exchange.task.matches('?').count() != 1 {
        return;
    }
    // Most requests have no superlative, so that their words need not be read.
    if !FORMS.is_match(exchange.task) {
        return;
    }
    let request_words = exchange.task_words();
    let mut superlatives = SUPERLATIVES.iter().filter(|(form, _)| contains_words(request_words, form));
    let (Some((form, direction)), None) = (superlatives.next(), superlatives.next()) else { return };
    if limits_time(exchange.task) || Language::English.classes(exchange.task).has_any(LIMITATION) {
        return;
    }
    let Some((_, after)) = request_words.split_once(&format!(" {form} ")) else { return };
    let named_words: Vec<&str> = after.split_whitespace().take(MAX_FIELD_WORDS).collect();
    let mut candidates = exchange.sources.structured.iter().flat_map(|source| {
        let parsed = source.parsed.0.iter();
        parsed.flat_map(|parsed| (0..parsed.lists.len()).map(move |list| (parsed, list))).filter_map(
            move |(parsed, list)| {
                exchange.spends(parsed.records.len() / 8).then_some(())?;
                let rows: Vec<&Record> = parsed.records.iter().filter(|r| r.list == Some(list)).collect();
                (3..=MAX_ROWS).contains(&rows.len()).then_some((source, rows))
            },
        )
    });
    let candidates: Vec<_> = candidates
        .by_ref()
        .filter_map(|(source, rows)| Some((source, column(&rows, &named_words)?, rows)))
        .collect();
    let [(source, field, rows)] = candidates.as_slice() else { return };
    let Some(is_highest) = direction.or_else(|| {
        let is_good = field.name.iter().any(|word| LARGER_IS_BETTER.contains(&word.as_str()));
        is_good.then_some(*form == "best")
    }) else {
        return;
    };
    // "The highest rank" may be the lowest number.
    if field.name.last().is_some_and(|word| RANK_WORDS.contains(&word.as_str())) {
        return;
    }
    let values: Option<Vec<f64>> = rows.iter().map(|row| cell(row, field)).collect();
    let Some(values) = values.filter(|_| !may_be_limited(exchange, rows)) else { return };
    let Some((clause, chosen)) = exchange
        .clauses
        .iter()
        .find_map(|clause| Some((clause, chosen_rows(exchange, clause, rows, (form, is_highest))?)))
    else {
        return;
    };
    let count = requested_count(exchange).unwrap_or(chosen.len());
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    if is_highest {
        sorted.reverse();
    }
    let Some(last) = count.checked_sub(1).and_then(|at| sorted.get(at)).filter(|_| chosen.len() == count)
    else {
        return;
    };
    findings.examined = true;
    let is_among_best = |value: f64| if is_highest { value >= *last } else { value <= *last };
    let wrong = chosen.iter().filter_map(|at| values.get(*at)).find(|value| !is_among_best(**value));
    if let Some(value) = wrong {
        let returned = format!(
            "better ones by {}: {value} for one that it names, and {last} or better for {count}",
            field.name.join(" ")
        );
        findings.contradicts(&returned, source.call, clause.sentence);
    }
}

/// The number of a row in the column of `column`.
fn cell(row: &Record, column: &RecordField) -> Option<f64> {
    row.fields.iter().find(|field| field.name == column.name)?.number()
}

/// The only numeric column all of whose words are among the words after the superlative.
fn column<'r>(rows: &[&'r Record], named_words: &[&str]) -> Option<&'r RecordField> {
    let is_named = |word: &String| {
        let is_same_word = |asked_word: &&str| {
            *asked_word == word
                || asked_word.strip_suffix('s') == Some(word)
                || word.strip_suffix('s') == Some(asked_word)
        };
        word.len() > 2 && named_words.iter().any(is_same_word)
    };
    let mut columns =
        rows.first()?.fields.iter().filter(|f| f.number().is_some() && f.name.iter().all(is_named));
    columns.next().filter(|_| columns.next().is_none())
}

/// Whether the request may be about some of the rows only: it names a value of the rows, or a number other than the
/// requested count. True beyond the work budget.
fn may_be_limited(exchange: &Exchange<'_>, rows: &[&Record]) -> bool {
    let request_words = exchange.task_words();
    let expected_count = requested_count(exchange);
    let has_number = |n: &Number| !n.in_identifier && expected_count != Some(n.value as usize);
    let mut values = rows.iter().flat_map(|row| &row.fields).filter_map(RecordField::text);
    let is_named = |text: &str| {
        words_of(text).split_whitespace().any(|word| word.len() > 2 && contains_words(request_words, word))
    };
    !exchange.spends(rows.iter().map(|row| row.fields.len()).sum())
        || numbers::all(exchange.task).iter().any(has_number)
        || values.any(is_named)
}

/// The number of rows that the request asks for.
fn requested_count(exchange: &Exchange<'_>) -> Option<usize> {
    let places = Language::English.places(exchange.task, exchange.memo);
    let mut spelled =
        places.iter().filter(|place| place.classes.has(WordClass::Number)).map(|p| usize::from(p.value));
    let figures = numbers::all(exchange.task);
    let mut figures = figures.iter().filter(|n| !n.in_identifier && !n.fractional).map(|n| n.value as usize);
    spelled.next().or_else(|| figures.next())
}

/// The indices of the rows that a clause names as the answer, by their names or by whole numbers that identify rows.
fn chosen_rows(
    exchange: &Exchange<'_>,
    clause: &Clause<'_>,
    rows: &[&Record],
    (form, is_highest): (&str, bool),
) -> Option<Vec<usize>> {
    let steps = rows.len() + clause.sentence.len() / 8;
    if clause.negated || clause.classes.has_any(LIMITATION) || !exchange.spends(steps) {
        return None;
    }
    // Only the part of the sentence with the superlative is about these rows.
    let has_superlative = |part: &&str| {
        let words = words_of(part);
        SUPERLATIVES.iter().any(|(form, _)| contains_words(&words, form))
    };
    let part = clause.sentence.split(';').find(has_superlative).unwrap_or(clause.sentence);
    let words = words_of(part);
    // The clause has to have a superlative of the requested direction, or be a short first clause without one.
    let mut superlatives = SUPERLATIVES.iter().filter(|(form, _)| contains_words(&words, form));
    let is_short = clause.first && words.split_whitespace().count() <= MAX_SHORT_WORDS;
    let is_answer = match (superlatives.next(), superlatives.next()) {
        (Some((superlative, direction)), None) => {
            *superlative == form || direction.is_some_and(|highest| highest == is_highest)
        }
        (None, _) => is_short,
        _ => false,
    };
    is_answer.then_some(())?;
    let is_named = |row: &&Record| {
        names_of(row).any(|name| name.contains(char::is_alphabetic) && contains_words(&words, &name))
    };
    let named_rows: Vec<usize> =
        rows.iter().enumerate().filter(|(_, row)| is_named(row)).map(|(at, _)| at).collect();
    if !named_rows.is_empty() {
        return Some(named_rows);
    }
    let stated = numbers::all(&words);
    let is_whole = |n: &&Number| !n.in_identifier && !n.fractional;
    if stated.is_empty() || stated.iter().filter(is_whole).count() != stated.len() {
        return None;
    }
    // A column of different whole numbers identifies the rows.
    let first = rows.first()?;
    let mut columns = first.fields.iter().filter_map(|column| {
        let values: Option<Vec<f64>> = rows.iter().map(|row| cell(row, column)).collect();
        let values = values.filter(|values| values.iter().all(|v| v.fract() == 0.0))?;
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let is_unique = sorted.windows(2).all(|pair| pair.first() != pair.last());
        let row_of = |n: &Number| values.iter().position(|v| *v == n.value);
        let row_indices: Option<Vec<usize>> = stated.iter().map(row_of).collect();
        row_indices.filter(|_| is_unique)
    });
    columns.next().filter(|_| columns.next().is_none())
}
