//! Wrong bounds of a series: "the freezer stayed below -70 °C", where one of the readings is above it.
//!
//! Principle: one value refutes a bound that is stated for a whole series. The series is the only list of a result
//! whose rows have one measured number each, or whose measured number the sentence names. Most values have to be
//! within the bound, or all have to be near it and some within it, so that both have the same unit. The sentence must
//! have no other number, which could select a part of the series. "No" to a question whether a bound was ever exceeded
//! states that all values are within it.
//!
//! In: the request, an answer, and the lists of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::sources::ResultSource;
use crate::measure::language::names::names_identifier;
use crate::measure::language::{Language, WordClasses, classes};
use crate::measure::numbers;
use crate::measure::records::{Record, RecordField};

// A verb about all values, the side of the bound, and the bound.
regex!(
    STATEMENT,
    r"(?i)\b(?:(?:stay|stayed|stays|remained|remains|kept|keeps|always|throughout) (?:[a-z]+ ){0,2}?(?P<side>below|under|above|over)|never (?P<never>exceeded|exceeds|rose above|went above|went over|fell below|dropped below|went below)) (?P<n>[-\u2212]?\d[\d.,]*)"
);
// A question whether any value exceeds a bound.
regex!(
    QUESTION,
    r"(?i)\b(?:ever|at any (?:time|point|moment)|any (?:reading|value|measurement)s?)\b(?: [a-z]+){0,4}? (?:(?P<above>above|over|exceed|exceeded|exceeding|warmer than|hotter than|higher than|greater than|more than|louder than|faster than)|below|under|colder than|cooler than|lower than|less than|fewer than|slower than) (?P<n>[-\x{2212}]?\d[\d.,]*)"
);
/// Classes of words by which a statement is not about all values.
const LIMITATION: WordClasses =
    classes!(Condition Exception Restriction Modal Probability Approximation Contrast);
/// Maximum distance of values from a bound with the same unit, as a share of the bound.
const MAX_RELATIVE_DISTANCE: f64 = 0.5;
/// Minimum rows of a series.
const MIN_ROWS: usize = 3;
/// Last words in keys of positions and times, which are not measurements. Identifiers are not measurements either.
const NOT_MEASURED: [&str; 11] =
    ["n", "index", "hour", "minute", "second", "day", "week", "month", "year", "timestamp", "time"];

/// A bound that is stated for all values, whether it is an upper bound, and the sentence.
type StatedBound<'a> = (f64, bool, &'a str);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let stated = exchange.has_digits.then(|| stated_bound(exchange)).flatten();
    let Some((bound, is_upper, sentence)) = stated.or_else(|| denied_bound(exchange)) else { return };
    // With words such as "except", "only" or "about", the statement is not about all values.
    if Language::English.places(sentence, exchange.memo).all().has_any(LIMITATION) {
        return;
    }
    let is_within = |value: f64| if is_upper { value <= bound } else { value >= bound };
    let words = sentence.to_lowercase();
    let mut series = exchange.sources.structured.iter().flat_map(|source| series_of(source, &words));
    let (Some((source, values)), None) = (series.next(), series.next()) else { return };
    if !exchange.spends(values.len()) {
        return;
    }
    findings.examined = true;
    let numbers = || values.iter().filter_map(|field| field.number());
    let exceeding = values.iter().filter(|field| field.number().is_some_and(|value| !is_within(value)));
    let exceeding: Vec<&&RecordField> = exceeding.collect();
    let are_near = || {
        let is_near = |value: f64| (value - bound).abs() <= MAX_RELATIVE_DISTANCE * bound.abs();
        exceeding.len() < values.len() && numbers().all(is_near)
    };
    if let Some(field) = exceeding.first().filter(|_| exceeding.len() * 2 < values.len() || are_near()) {
        let returned = format!("{} {} among the values", field.name.join(" "), field.shown());
        findings.contradicts(&returned, source.call, sentence);
    }
}

/// The bound that the answer states for all values; `None` if the sentence has another number.
fn stated_bound<'a>(exchange: &Exchange<'a>) -> Option<StatedBound<'a>> {
    let statement = STATEMENT.captures(&exchange.prose)?;
    let sentence = exchange.sentence_at(statement.get(0)?.start());
    let bound = signed_number(statement.name("n")?.as_str())?;
    let is_other = |n: &numbers::Number| !n.in_identifier && (n.value - bound.abs()).abs() > 1e-9;
    if numbers::all(sentence).iter().any(is_other) {
        return None;
    }
    // "Never fell below" and "stayed above" are the same bound.
    let is_upper_side =
        |text: &str| text.to_lowercase().contains("below") || text.eq_ignore_ascii_case("under");
    let is_upper = match (statement.name("side"), statement.name("never")) {
        (Some(side), _) => is_upper_side(side.as_str()),
        (None, never) => !is_upper_side(never?.as_str()),
    };
    Some((bound, is_upper, sentence))
}

/// The bound of a question that the answer denies.
fn denied_bound<'a>(exchange: &Exchange<'a>) -> Option<StatedBound<'a>> {
    let (is_affirmative, sentence) = exchange.yes_or_no().filter(|(is_affirmative, _)| !is_affirmative)?;
    let question = QUESTION.captures(exchange.task)?;
    let bound = signed_number(question.name("n")?.as_str())?;
    let request_numbers = numbers::all(exchange.task);
    let is_other = |n: &numbers::Number| !n.in_identifier && (n.value - bound.abs()).abs() > 1e-9;
    (!is_affirmative && !request_numbers.iter().any(is_other)).then_some((
        bound,
        question.name("above").is_some(),
        sentence,
    ))
}

/// The number of a text with its sign.
fn signed_number(text: &str) -> Option<f64> {
    let number = numbers::all(text).first()?.value.abs();
    Some(if text.starts_with(['-', '\u{2212}']) { -number } else { number })
}

/// The series of a result: for each list, the only measured number of its rows, or the one that the words name.
fn series_of<'s>(
    source: &'s ResultSource<'s>,
    words: &str,
) -> Vec<(&'s ResultSource<'s>, Vec<&'s RecordField>)> {
    let Some(parsed) = &source.parsed.0 else { return Vec::new() };
    let list_values = |list: usize| {
        let rows = parsed.records.iter().filter(|record| record.list == Some(list));
        let values: Option<Vec<&RecordField>> = rows.map(|row| measured_field(row, words)).collect();
        let values = values.filter(|values| values.len() >= MIN_ROWS)?;
        let name = &values.first()?.name;
        values.iter().all(|field| field.name == *name).then_some((source, values))
    };
    (0..parsed.lists.len()).filter_map(list_values).collect()
}

/// The only measured number of a row; of several, the only one that the words name.
fn measured_field<'r>(row: &'r Record, words: &str) -> Option<&'r RecordField> {
    let is_value = |field: &&RecordField| {
        field.number().is_some()
            && !field
                .name
                .last()
                .is_some_and(|word| NOT_MEASURED.contains(&word.as_str()) || names_identifier(word))
    };
    let is_named =
        |field: &&&RecordField| field.name.iter().any(|word| word.len() > 2 && words.contains(word.as_str()));
    let values: Vec<&RecordField> = row.fields.iter().filter(is_value).collect();
    let named_values: Vec<&&RecordField> = values.iter().filter(is_named).collect();
    match (values.as_slice(), named_values.as_slice()) {
        ([only], _) => Some(*only),
        (_, [only]) => Some(**only),
        _ => None,
    }
}
