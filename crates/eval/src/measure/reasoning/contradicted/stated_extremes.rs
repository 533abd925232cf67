//! Extremes whose column the stated value shows: "used the most energy on 14 February, with 1,356.1 kWh", and the field
//! is `v`.
//!
//! Principle: the value that a statement gives a thing together with a superlative shows the column that the
//! superlative is about. Another row of it must not have a better value. There is no finding where the request, the
//! instructions or the answer may exclude that row: all words and numbers of the request must occur in a call, a key or
//! another result, and the two rows must have the same states and flags, except a flag that only the answer mentions,
//! as a property of the named row. (`extremes` finds the column by its name.)
//!
//! In: the superlatives of an answer, and the lists and maps of numbers of results. Out: one contradiction.

use std::rc::Rc;

use super::exchange::{Exchange, ExchangeFindings};
use super::extremes::{PRICE, Superlative, limits_time, noun_group, superlative, superlatives_in};
use super::predicates::{assertion, is_state_key, stem};
use super::row_scope::compares;
use super::sources::{ResultSource, names_of};
use super::universal_claims::has_exception;
use crate::measure::currency;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{ClassifiedWord, Language, WordClasses, classes};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::statements::{Clause, contains_words};
use crate::measure::records::{FieldValue, Record, RecordField};
use crate::measure::vocabulary::{self, WordMeaning};
use crate::pattern::contains_ignoring_case;

/// Minimum and maximum rows of a series.
const MIN_ROWS: usize = 3;
const MAX_ROWS: usize = 200;
/// Longest request whose words are compared.
const MAX_REQUEST: usize = 300;
/// Maximum statements and columns that are compared.
const MAX_STATED: usize = 6;
const MAX_COLUMNS: usize = 12;
/// Shortest name of a row.
const MIN_NAME: usize = 2;
/// Maximum bytes of a text of a row: longer texts may contain a reason that excludes the row.
const MAX_TEXT: usize = 40;
/// Words before a superlative that belongs to one thing alone: not "second", "two", "at".
const BEFORE_SUPERLATIVE: [&str; 9] = ["the", "your", "its", "our", "is", "was", "has", "had", "with"];
/// Classes of words by which an answer may exclude rows.
const ANSWER_LIMITS: WordClasses =
    classes!(Condition Exception Comparison Restriction Alternative Neighbour Bound Negation);
/// Words of requests that exclude rows, without those for bounds, since the number of "at least" must occur in a call.
const REQUEST_LIMITS: WordClasses = classes!(Condition Exception Comparison Neighbour Negation);
/// Words of requests that need not occur in a call: words for dates, numbers and questions.
const UNCONDITIONAL: WordClasses = classes!(Month TimeUnit Number Which);

/// Words with which a request asks for an order or a number, or limits a number that must occur in a call.
const REQUEST_WORDS: [&str; 10] =
    ["rank", "list", "sort", "name", "tell", "much", "many", "better", "more", "top"];

/// One value of a thing.
struct Entry<'e> {
    /// Its names, as by [`separated_words`].
    names: Rc<[String]>,
    value: f64,
    /// Whether one of the names is a day.
    is_dated: bool,
    row: Option<&'e Record>,
}

/// The values of a column, or of a map of names to numbers.
struct Series<'e> {
    source: &'e ResultSource<'e>,
    column: Option<&'e RecordField>,
    entries: Vec<Entry<'e>>,
    /// Whether the rows have no other column of numbers that could be meant.
    is_only: bool,
}

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let stated: Vec<(&Clause<'_>, Superlative)> = exchange
        .clauses
        .iter()
        .filter(|clause| !clause.negated && !clause.modal && !compares(clause) && !has_exception(clause))
        .filter_map(|clause| {
            Some((clause, superlative(clause).filter(|(form, ..)| is_of_one(clause, form))?))
        })
        .take(MAX_STATED)
        .collect();
    if stated.is_empty()
        || exchange.task.len() > MAX_REQUEST
        || limits_time(exchange.task)
        || is_limited(exchange)
        || !exchange.spends(1 + 2 * exchange.sources.field_count())
    {
        return;
    }
    for series in series(exchange) {
        for (clause, superlative) in &stated {
            if !exchange.spends(series.entries.len() * (1 + exchange.answer.len() / 64)) {
                return;
            }
            if let Some(returned) = better_row(exchange, &series, clause, *superlative, findings) {
                findings.contradicts(&returned, series.source.call, clause.sentence);
                return;
            }
        }
    }
}

/// Whether words of the request exclude rows. "Whether" is not a condition in "tell me whether".
fn is_limited(exchange: &Exchange<'_>) -> bool {
    let places = Language::English.places(exchange.task, exchange.memo);
    let limits = |place: &ClassifiedWord| {
        let word = exchange.task.get(place.at.clone()).unwrap_or_default();
        place.classes.has_any(REQUEST_LIMITS) && !word.eq_ignore_ascii_case("whether")
    };
    places.iter().any(limits)
}

/// Whether a superlative is that of one thing: "the most alarms", not "most of them", "at most", "the second highest".
fn is_of_one(clause: &Clause<'_>, form: &str) -> bool {
    let Some((before, after)) = clause.words.split_once(&format!(" {form} ")) else { return false };
    let previous = before.split(' ').next_back().unwrap_or_default();
    let is_after_of = after.starts_with("of ") || after.starts_with("recent");
    let is_start = before.trim().is_empty();
    let needs_article = matches!(form, "most" | "least" | "fewest");
    !is_after_of && (BEFORE_SUPERLATIVE.contains(&previous) || is_start && !needs_article)
}

/// The columns of lists, and the maps of names to numbers.
fn series<'e>(exchange: &'e Exchange<'_>) -> Vec<Series<'e>> {
    let mut series_list = Vec::new();
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        series_list.extend(parsed.records.iter().filter_map(|record| map_of(source, record)));
        for rows in parsed.rows_by_list().iter().filter(|rows| (MIN_ROWS..=MAX_ROWS).contains(&rows.len())) {
            let Some(first) = rows.first() else { continue };
            let columns = first.fields.iter().filter(|field| field.number().is_some()).take(MAX_COLUMNS);
            let columns: Vec<&RecordField> =
                columns.filter(|column| rows.iter().all(|row| number_in(row, column).is_some())).collect();
            let row_names: Vec<RowNames> = rows.iter().map(|row| names(row)).collect();
            for column in &columns {
                let entries = rows.iter().zip(&row_names).filter_map(|(row, (names, is_dated))| {
                    let (names, is_dated) = (Rc::clone(names), *is_dated);
                    Some(Entry { names, value: number_in(row, column)?, is_dated, row: Some(row) })
                });
                let is_only = columns.len() == 1;
                series_list.push(Series {
                    source,
                    column: Some(column),
                    entries: entries.collect(),
                    is_only,
                });
            }
        }
    }
    series_list
}

/// A record as a map of names to numbers, if all of its fields are numbers and none is the total of the others.
fn map_of<'e>(source: &'e ResultSource<'e>, record: &'e Record) -> Option<Series<'e>> {
    let fields = &record.fields;
    let is_map = (MIN_ROWS..=MAX_ROWS).contains(&fields.len())
        && record.list.is_none()
        && !record.key.is_empty()
        && fields.iter().all(|field| field.number().is_some());
    let sum: f64 = fields.iter().filter_map(RecordField::number).sum();
    let is_total = |field: &RecordField| {
        let is_named_in = field.name.iter().any(|word| vocabulary::has_meaning(word, WordMeaning::Total));
        is_named_in || field.number().is_some_and(|n| (2.0 * n - sum).abs() < 1e-6)
    };
    if !is_map || fields.iter().any(is_total) {
        return None;
    }
    let entry = |field: &RecordField| {
        Some(Entry {
            names: [field.name.join(" ")].into(),
            value: field.number()?,
            is_dated: false,
            row: None,
        })
    };
    let entries = fields.iter().filter_map(entry).collect();
    Some(Series { source, column: None, entries, is_only: true })
}

/// The number of a row in a column.
fn number_in(row: &Record, column: &RecordField) -> Option<f64> {
    row.fields.iter().find(|field| field.name == column.name)?.number()
}

/// The names of a row, and whether one is a day.
type RowNames = (Rc<[String]>, bool);

/// The names of a row: its texts, and its date in words.
fn names(row: &Record) -> RowNames {
    let dates = row.fields.iter().filter(|field| field.is_text()).flat_map(|field| {
        dates::all(field.shown()).filter(|date| date.at.start == 0).flat_map(|date| date.forms_without_year())
    });
    let dates: Vec<String> = dates.filter(|form| form.contains(char::is_alphabetic)).collect();
    let is_dated = !dates.is_empty();
    let numbers: Vec<&str> =
        row.fields.iter().filter(|field| field.number().is_some()).map(|f| f.shown()).collect();
    let names = names_of(row).filter(|name| !numbers.contains(&name.as_str()));
    let names = names.chain(dates).map(|name| separated_words(&name)).filter(|name| name.len() >= MIN_NAME);
    (names.collect(), is_dated)
}

/// The words of a text in lower case, separated by single spaces. Parts of a word with a hyphen are separate words.
fn separated_words(text: &str) -> String {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
}

/// The description of the best row that refutes the superlative of a clause.
fn better_row(
    exchange: &Exchange<'_>,
    series: &Series<'_>,
    clause: &Clause<'_>,
    (form, is_minimum, topic): Superlative,
    findings: &mut ExchangeFindings,
) -> Option<String> {
    let sentence = separated_words(clause.sentence);
    let is_named_in =
        |entry: &&Entry<'_>, words: &str| entry.names.iter().any(|name| contains_words(words, name));
    let mut named_entries = series.entries.iter().filter(|entry| is_named_in(entry, &sentence));
    let (Some(named), None) = (named_entries.next(), named_entries.next()) else { return None };
    // If the request names some of the rows, only these are compared. The first and the last day are the ends of a
    // period.
    let request_words = separated_words(exchange.task);
    let last = series.entries.len().saturating_sub(1);
    let is_end = |at: usize, entry: &Entry<'_>| entry.is_dated && (at == 0 || at == last);
    let mut entries = series.entries.iter().enumerate();
    if entries.any(|(at, entry)| !is_end(at, entry) && is_named_in(&entry, &request_words)) {
        return None;
    }
    let value_position = position_of_value(exchange, series, clause, named, topic)
        .filter(|_| form != "most" || series.is_only)?;
    findings.examined = true;
    let is_better =
        |entry: &&Entry<'_>| if is_minimum { entry.value < named.value } else { entry.value > named.value };
    let best = series.entries.iter().filter(is_better).filter(|entry| match (entry.row, named.row) {
        (Some(better), Some(row)) => is_as_eligible(exchange, series, (better, row), value_position),
        _ => true,
    });
    let best = best
        .min_by(|a, b| if is_minimum { a.value.total_cmp(&b.value) } else { b.value.total_cmp(&a.value) })?;
    let before = exchange.answer.get(..value_position).unwrap_or_default();
    let is_limited = exchange.language?.classes(before).has_any(ANSWER_LIMITS)
        || is_contrasted(exchange, best)
        || !is_request_covered(exchange, series, form);
    let name = best.names.first()?;
    let column = series.column.map(|column| column.name.join(" ") + " ").unwrap_or_default();
    (!is_limited)
        .then(|| format!("{column}{} for {name}, and {} for what the answer names", best.value, named.value))
}

/// The byte position in the answer of the value of the column for the named row.
fn position_of_value(
    exchange: &Exchange<'_>,
    series: &Series<'_>,
    clause: &Clause<'_>,
    named: &Entry<'_>,
    topic: &[&str],
) -> Option<usize> {
    let is_topic =
        series.column.is_some_and(|column| column.name.iter().any(|word| topic.contains(&word.as_str())));
    let position_in = |text: &str| {
        let is_stated =
            |n: &Number| !n.in_identifier && n.possible_values().any(|value| value == named.value.abs());
        let is_money = |n: &Number| currency::is_beside(text, n.start..n.end) || has_currency_sign(text, n);
        let is_meant =
            |n: &Number| is_topic || series.is_only && topic.is_empty() || topic == PRICE && is_money(n);
        // The first amount is the one that the superlative is about.
        let mut candidates = numbers::all(text).into_iter();
        match topic == PRICE && !is_topic {
            true => candidates.find(|n| is_money(n)).filter(|n| is_stated(n)).map(|n| n.start),
            false => candidates.find(|n| is_stated(n) && is_meant(n)).map(|n| n.start),
        }
    };
    let offset = |part: &str| part.as_ptr().addr().checked_sub(exchange.answer.as_ptr().addr());
    if let Some(at) = position_in(clause.sentence) {
        return Some(offset(clause.sentence)? + at);
    }
    // The line of the row in a list or a table.
    let mut lines = exchange.answer.lines().filter(|line| {
        let words = separated_words(line);
        named.names.iter().any(|name| contains_words(&words, name))
    });
    let line = lines.find(|line| series.is_only && position_in(line).is_some())?;
    offset(line)
}

/// Whether the sign of a currency is directly before or after a number.
fn has_currency_sign(text: &str, n: &Number) -> bool {
    let before = text.get(..n.start).and_then(|before| before.chars().next_back());
    let after = text.get(n.end..).and_then(|after| after.chars().next());
    [before, after].into_iter().flatten().any(|c| "€$£¥₹".contains(c))
}

/// Whether the better row is as eligible as the named one by the flags, states and numbers of both.
fn is_as_eligible(
    exchange: &Exchange<'_>,
    series: &Series<'_>,
    (better, named): (&Record, &Record),
    value_position: usize,
) -> bool {
    let Some(column) = series.column else { return true };
    let rows: Vec<&Record> = series.entries.iter().filter_map(|entry| entry.row).collect();
    let value = |field: &RecordField| better.fields.iter().find(|f| f.name == field.name);
    let limits = || numbers::all(exchange.task).into_iter().map(|n| n.value);
    named.fields.iter().filter(|field| field.name != column.name).all(|field| {
        let Some(other) = value(field) else { return false };
        match (&field.value, &other.value) {
            (FieldValue::Bool(a), FieldValue::Bool(b)) => {
                a == b || is_property(exchange, field, value_position)
            }
            (FieldValue::Number(a), FieldValue::Number(b)) => {
                let is_price = field.name.iter().any(|word| PRICE.contains(&word.as_str()));
                let separates_rows = |n: f64| (*a >= n) != (*b >= n) || (*a > n) != (*b > n);
                (*a == 0.0) == (*b == 0.0) && (!is_price || a == b) && !limits().any(separates_rows)
            }
            (FieldValue::Text(a), FieldValue::Text(_)) => {
                let is_shared = rows
                    .iter()
                    .filter(|row| {
                        row.fields.iter().any(|f| {
                            f.name == field.name && f.value == field.value
                                || f.name == other.name && f.value == other.value
                        })
                    })
                    .count()
                    > 2;
                let is_state = field.name.iter().any(|word| is_state_key(word)) || assertion(a).is_some();
                let is_long = field.shown().len().max(other.shown().len()) > MAX_TEXT;
                field.value == other.value || !is_shared && !is_state && !is_long
            }
            _ => false,
        }
    }) && better.fields.len() == named.fields.len()
}

/// Whether only the answer mentions a flag, and only after the value, as a property of the named row.
fn is_property(exchange: &Exchange<'_>, field: &RecordField, value_position: usize) -> bool {
    let words: Vec<&str> = field.name.iter().map(|word| stem(word)).collect();
    let has = |text: &str| words.iter().any(|word| contains_ignoring_case(text, word));
    let (before, after) = exchange.answer.split_at_checked(value_position).unwrap_or_default();
    let is_told = exchange.sources.unstructured().iter().any(|text| has(text));
    assertion(&field.name.join(" ")).is_none() && !has(before) && has(after) && !is_told
}

/// Whether the answer mentions the better row in a sentence that may contain the reason that excludes it.
fn is_contrasted(exchange: &Exchange<'_>, best: &Entry<'_>) -> bool {
    let mentions_row = |clause: &&Clause<'_>| {
        let words = separated_words(clause.sentence);
        best.names.iter().any(|name| contains_words(&words, name))
    };
    let contrast: WordClasses = classes!(Condition Exception Comparison Contrast Negation Restriction);
    exchange.clauses.iter().filter(mentions_row).any(|clause| {
        clause.negated
            || exchange.language.is_none_or(|language| language.classes(clause.sentence).has_any(contrast))
    })
}

/// Whether all words and numbers of the request occur in a call, a key or another result, so that the request has no
/// condition that only the model could apply.
fn is_request_covered(exchange: &Exchange<'_>, series: &Series<'_>, form: &str) -> bool {
    let calls = &exchange.sources.calls;
    if !exchange.spends_search() || !exchange.spends(exchange.sources.field_count()) {
        return false;
    }
    let passed = || calls.iter().filter_map(|call| call.arguments.as_deref());
    let keys = || {
        exchange.sources.records().flat_map(|(.., record)| {
            record.fields.iter().flat_map(|f| f.name.iter()).chain(record.key.iter())
        })
    };
    let others = || exchange.sources.structured.iter().filter(|source| !std::ptr::eq(*source, series.source));
    let lists =
        || series.source.parsed.0.iter().flat_map(|parsed| &parsed.lists).flat_map(|list| list.name.iter());
    // The noun of the superlative names the column.
    let request_words = exchange.task_words();
    let form = superlatives_in(request_words).next().unwrap_or(form);
    let noun = noun_group(request_words, form).pop().unwrap_or_default();
    // The verb before the superlative is no condition: "Which store sold the most?"
    let verb = request_words
        .split_once(&format!(" the {form} "))
        .and_then(|(before, _)| before.split(' ').next_back());
    let is_known = |word: &String| {
        // "Rated" and "rating" have the same stem.
        let word_stem = stem(word).trim_end_matches('e');
        let is_same = |other: &String| {
            other.starts_with(word_stem) || word_stem.starts_with(other.as_str()) && other.len() > 2
        };
        let is_row = |entry: &Entry<'_>| entry.names.iter().any(|name| contains_words(name, word));
        form.split([' ', '-']).any(|part| part == word)
            || word == noun
            || Some(word.as_str()) == verb
            || REQUEST_WORDS.contains(&word.as_str())
            || numbers::has_digit(word)
            || Language::English.classes(word).has_any(UNCONDITIONAL)
            || passed().any(|text| contains_ignoring_case(text, word_stem))
            || !series.entries.iter().any(is_row)
                && others().any(|source| {
                    source.call.result.as_deref().is_some_and(|text| contains_ignoring_case(text, word_stem))
                })
            || calls.iter().any(|call| identifier_words(&call.name).iter().any(is_same))
            || keys().chain(lists()).any(is_same)
    };
    let passed_numbers: Vec<f64> = passed()
        .flat_map(|text| numbers::all(&text.replace(['-', '/', 'T', '"'], " ")))
        .map(|n| n.value)
        .collect();
    let is_passed_number = |n: &Number| {
        n.possible_values().any(|value| passed_numbers.contains(&value))
            || n.value == series.entries.len() as f64
    };
    Language::English.content_words(exchange.task).iter().all(is_known)
        && numbers::all(exchange.task).iter().filter(|n| !n.in_identifier).all(is_passed_number)
}
