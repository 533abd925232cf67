//! Wrong superlatives: the answer calls one item of a list the cheapest, the largest or the earliest, and another one
//! is.
//!
//! Principle: an item that is called the cheapest or the largest of a list has the extreme value in the list. The
//! superlative determines the field. Another item refutes the statement only if it is as eligible as the named one: it
//! has the same flags, the same values where the request names values of the named item, and the same dates and times
//! if the request or the statement limits them.
//!
//! In: the clauses of an answer with a superlative, and the lists of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::predicates::assertion;
use super::sources::names_of;
use crate::measure::language::Language;
use crate::measure::language::names;
use crate::measure::language::names::month_pattern;
use crate::measure::numbers;
use crate::measure::reasoning::dates;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{FieldValue, KeyName, Record, RecordField};
use crate::pattern::{WordSearcher, contains_ignoring_case};

/// The known superlatives. If a superlative has no words of keys, the words after it name the field: "the least free
/// space".
const SUPERLATIVES: [Superlative; 31] = [
    ("cheapest", true, PRICE),
    ("lowest-priced", true, PRICE),
    ("least expensive", true, PRICE),
    ("most affordable", true, PRICE),
    ("most expensive", false, PRICE),
    ("priciest", false, PRICE),
    ("highest-priced", false, PRICE),
    ("fastest", true, DURATION),
    ("shortest", true, DURATION),
    ("longest", false, DURATION),
    ("heaviest", false, &["weight", "mass", "kg"]),
    ("lightest", true, &["weight", "mass", "kg"]),
    ("best-rated", false, &["rating", "score", "stars"]),
    ("highest-rated", false, &["rating", "score", "stars"]),
    ("worst-rated", true, &["rating", "score", "stars"]),
    ("warmest", false, &["temperature", "temp", "max"]),
    ("coldest", true, &["temperature", "temp", "min"]),
    ("tallest", false, &["height"]),
    ("latest", false, DATE),
    ("newest", false, DATE),
    ("most recent", false, DATE),
    ("earliest", true, DATE),
    ("oldest", true, DATE),
    ("lowest", true, &[]),
    ("smallest", true, &[]),
    ("fewest", true, &[]),
    ("least", true, &[]),
    ("highest", false, &[]),
    ("largest", false, &[]),
    ("biggest", false, &[]),
    ("most", false, &[]),
];
/// Words in keys of amounts for one thing.
pub(super) const PRICE: &[&str] = &["price", "cost", "fare", "amount", "rate", "fee", "rent"];
/// The words of superlatives of time, whose field is the only one with a date.
const DATE: &[&str] = &["date"];
/// Words in keys of durations.
const DURATION: &[&str] = &["duration", "minutes", "hours", "time", "seconds", "length"];
// Finds any superlative, also inside other words.
checked_static!(FORMS: WordSearcher = WordSearcher::new(&SUPERLATIVES.map(|(form, ..)| form)));
// Words before a number that an answer states as the highest or the lowest value of a series.
regex!(
    PEAK,
    r" (?:(?:peaked|peaking|topped out|maxed out) at (?:about |around )?|(?:peak|maximum|max|high|(?P<least>minimum|min|low)) (?:was |of |is |at |value of )+)"
);
/// The pattern of a date or a time in English.
fn time_pattern() -> String {
    let month = month_pattern(&[Language::English]);
    format!(
        r"(?:\d{{1,2}}(?::\d{{2}}| ?[ap]m\b)|\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}\.\d{{1,2}}\.|(?:{month})\.? \d|\d{{1,2}}(?:st|nd|rd|th)?\.? (?:of )?(?:{month}))"
    )
}
regex!(TIME_OF, &format!(r"(?i)\b{}", time_pattern()));
// A limit of time, or a span of it.
regex!(
    WITHIN_TIME,
    &format!(
        r"(?i)\b(?:by|before|until|till|after|within|between|earlier than|later than)\b[^.?!\n]{{0,16}}?\b(?:{time}|(?:mon|tues|wednes|thurs|fri|satur|sun)day|today|tomorrow|tonight|noon|days?\b|hours?\b|week|weekend)|\b(?:this|next|coming) \w",
        time = time_pattern()
    )
);
/// Number of words after a superlative that may name its field.
const MAX_FIELD_WORDS: usize = 4;

/// Words that are after the noun phrase of a superlative.
const NOUN_GROUP_ENDS: [&str; 26] = [
    "this", // "the highest rate this season"
    "these", "is", "are", "was", "were", "has", "have", "costs", "from", "to", "in", "at", "for", "of",
    "with", "on", "that", "which", "you", "we", "i", "and", "there", "it", "near",
];
/// Maximum statements of one answer that are compared.
const MAX_STATED: usize = 8;
/// Maximum fields that are searched for a word of a condition.
const MAX_COMPARED: usize = 400;

/// A superlative, whether it means the smallest value, and words of the keys that it is about.
pub(super) type Superlative = (&'static str, bool, &'static [&'static str]);

/// The superlative of a clause.
pub(super) fn superlative(clause: &Clause<'_>) -> Option<Superlative> {
    let form = superlatives_in(&clause.words).next()?;
    SUPERLATIVES.into_iter().find(|(superlative, ..)| *superlative == form)
}

/// The superlatives of a text, given by its words.
pub(super) fn superlatives_in(words: &str) -> impl Iterator<Item = &'static str> {
    let may_have = FORMS.find(words).is_some();
    let forms = SUPERLATIVES.into_iter().map(|(form, ..)| form);
    forms.filter(move |form| may_have && contains_words(words, form))
}

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    // Other items may have the same value: "one of the cheapest".
    let is_of_several =
        |clause: &Clause<'_>| ["some of", "one of", "among the"].iter().any(|w| clause.has(w));
    let stated = exchange.clauses.iter().filter(|clause| !clause.negated);
    let stated = stated.filter_map(|clause| Some((clause, superlative(clause)?)));
    let stated: Vec<(&Clause<'_>, Superlative)> =
        stated.filter(|(clause, _)| !is_of_several(clause)).take(MAX_STATED).collect();
    if stated.is_empty() && !exchange.clauses.iter().any(|clause| PEAK.is_match(&clause.words)) {
        return;
    }
    let answer = words_of(exchange.answer);
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        for list in 0..parsed.lists.len() {
            if !exchange.spends(parsed.records.len() / 8) {
                return;
            }
            let rows: Vec<&Record> =
                parsed.records.iter().filter(|record| record.list == Some(list)).collect();
            if rows.len() < 2 {
                continue;
            }
            // Each statement is compared with the names of each item.
            if !exchange.spends(stated.len() * rows.len()) {
                return;
            }
            let passed_numbers = source.call.arguments.as_deref().map(numbers::all).unwrap_or_default();
            let conditions = numbers::all(exchange.task).into_iter().map(|n| n.value);
            // All items of the result meet the conditions that the call passed.
            let conditions: Vec<f64> =
                conditions.filter(|n| passed_numbers.iter().all(|a| a.value != *n)).collect();
            let passed = source.call.arguments.as_deref().unwrap_or_default();
            let wrong = wrong_extreme(exchange, &stated, &rows, (&conditions, passed), &answer, findings)
                .or_else(|| wrong_peak(exchange, &rows, findings));
            if let Some((returned, sentence)) = wrong {
                findings.contradicts(&returned, source.call, sentence);
                return;
            }
        }
    }
}

/// The description of the better item and the sentence, for the first statement that another item refutes.
fn wrong_extreme<'a>(
    exchange: &Exchange<'a>,
    stated: &[(&Clause<'a>, Superlative)],
    rows: &[&Record],
    (conditions, passed): (&[f64], &str),
    answer: &str,
    findings: &mut ExchangeFindings,
) -> Option<(String, &'a str)> {
    for &(clause, (form, is_minimum, topic_words)) in stated {
        let Some(field) = field_of(form, topic_words, &clause.words, rows) else { continue };
        // The name of the item may be in another clause of the sentence: "The Ridge, at 74.50, is the cheapest".
        let words = words_of(clause.sentence);
        let text = if clause.words.trim().split(' ').count() > 5 { &clause.words } else { &words };
        let mut named = rows.iter().filter(|row| names_of(row).any(|name| contains_words(text, &name)));
        let (Some(item), None) = (named.next(), named.next()) else { continue };
        // The sentence may name several items: "Luma and Arca have the lowest rate".
        let is_plural = || ["have", "are", "were", "had"].iter().any(|verb| clause.has(verb));
        let names_several = || {
            let is_named = |row: &&&Record| names_of(row).any(|name| contains_words(&words, &name));
            rows.iter().filter(is_named).count() > 1
        };
        if is_plural() && names_several() {
            continue;
        }
        let value = |row: &Record| row.fields.iter().find(|f| f.name == field).and_then(value_of);
        // The words after the superlative may select items: "the latest paid invoice".
        let after = clause.words.split(&format!(" {form} ")).nth(1).unwrap_or_default();
        let is_verb = |word: &&str| matches!(*word, "is" | "are" | "was" | "were");
        let selecting_words: Vec<&str> = after.split(' ').take(2).take_while(|word| !is_verb(word)).collect();
        let has_selected_texts = |row: &Record| {
            let texts =
                item.fields.iter().filter(|f| f.text().is_some_and(|text| selecting_words.contains(&text)));
            texts.into_iter().all(|f| row.fields.contains(f))
        };
        let Some(item_value) = value(item) else { continue };
        // A condition that neither the items nor the arguments have may exclude the other items.
        let has_condition = |text: &&str| has_other_condition(text, form, rows, passed);
        if [&*clause.words, exchange.task_words()].iter().any(has_condition) {
            continue;
        }
        findings.examined = true;
        let is_timed = limits_time(exchange.task) || limits_time(clause.sentence);
        let is_more_extreme = |other: f64| if is_minimum { other < item_value } else { other > item_value };
        let is_better = |row: &&&Record| {
            value(row).is_some_and(is_more_extreme)
                && has_selected_texts(row)
                && is_as_eligible(exchange, conditions, &field, row, item)
                && (!is_timed || has_same_times(row, item))
        };
        // If the answer lists several items, the superlative is about the listed ones.
        let is_listed = |row: &Record| names_of(row).any(|name| contains_words(answer, &name));
        let lists_several = || rows.iter().filter(|row| is_listed(row)).nth(1).is_some();
        let better = rows.iter().find(is_better).filter(|row| is_listed(row) || !lists_several());
        if let Some(better) = better {
            let name = names_of(better).next().unwrap_or_default();
            let name = name.get(..).unwrap_or_default();
            let shown = |row: &Record| {
                let cell = row.fields.iter().find(|f| f.name == field);
                cell.map(|f| f.number().map_or_else(|| f.shown().to_owned(), |n| n.to_string()))
                    .unwrap_or_default()
            };
            let returned = format!(
                "{} {} for {name}, and {} for the item that the answer names",
                field.join(" "),
                shown(better),
                shown(item)
            );
            return Some((returned, clause.sentence));
        }
    }
    None
}

/// The description of the actual extreme and the sentence, if the answer states another number of a series as its
/// highest or lowest. A series has values of one thing at several times: where each row has a name, the number may be
/// the peak of the thing with that name.
fn wrong_peak<'a>(
    exchange: &Exchange<'a>,
    rows: &[&Record],
    findings: &mut ExchangeFindings,
) -> Option<(String, &'a str)> {
    let is_name = |field: &RecordField| {
        let is_time = || TIME_OF.is_match(field.shown()) || field.shown().split(' ').any(is_calendar_name);
        field.text().is_some_and(|text| text.contains(char::is_alphabetic)) && !is_time()
    };
    let has_own_name = |row: &&Record| {
        row.fields.iter().any(|field| is_name(field) && rows.iter().any(|row| !row.fields.contains(field)))
    };
    let stating = exchange.clauses.iter().filter(|clause| !clause.negated && !clause.modal);
    for clause in stating.take(MAX_STATED) {
        let Some(peak) = PEAK.captures(&clause.words) else { continue };
        let is_minimum = peak.name("least").is_some();
        let end = peak.get(0).map_or(0, |all| all.end());
        let after_peak = clause.words.get(end..).unwrap_or_default();
        let Some(stated) = numbers::all(after_peak).into_iter().next().filter(|n| n.start == 0) else {
            continue;
        };
        // The request may be about a part of the series.
        if limits_time(exchange.task) && !limits_time(clause.sentence) || !exchange.spends(rows.len()) {
            continue;
        }
        let first = rows.first()?;
        let values = |name: &KeyName| -> Vec<f64> {
            let number_in =
                |row: &&Record| row.fields.iter().find(|f| f.name == *name).and_then(RecordField::number);
            rows.iter().filter_map(number_in).collect()
        };
        let columns = first.fields.iter().filter(|field| field.number().is_some());
        let candidates = columns.map(|field| (field, values(&field.name)));
        let is_shown = |value: f64| (value - stated.value).abs() < 1e-9;
        let mut candidates = candidates
            .filter(|(_, series)| series.len() == rows.len() && series.iter().any(|v| is_shown(*v)));
        let (Some((field, series)), None) = (candidates.next(), candidates.next()) else { continue };
        if !exchange.spends(rows.len() * rows.len() / 8) || rows.iter().all(has_own_name) {
            continue;
        }
        findings.examined = true;
        let more_extreme = |extreme: f64, v: &f64| if is_minimum { extreme.min(*v) } else { extreme.max(*v) };
        let extreme = series.iter().fold(stated.value, more_extreme);
        if !is_shown(extreme) {
            let returned = format!("{} {extreme} beside {}", field.name.join(" "), stated.value);
            return Some((returned, clause.sentence));
        }
    }
    None
}

/// Whether a word is the name of a weekday or a month.
fn is_calendar_name(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    names::weekday_of(&word).or_else(|| names::month_of(&word)).is_some()
}

/// The words after a superlative up to its noun: "electric", "boat".
pub(super) fn noun_group<'w>(words: &'w str, form: &str) -> Vec<&'w str> {
    let Some((_, after)) = words.split_once(&format!(" {form} ")) else { return Vec::new() };
    after
        .split(' ')
        .take_while(|w| !w.is_empty() && !NOUN_GROUP_ENDS.contains(w))
        .take(MAX_FIELD_WORDS)
        .collect()
}

/// Whether a word between the superlative and its noun ("the cheapest direct flight") is in no field of the items and
/// not in the arguments of the call.
fn has_other_condition(words: &str, form: &str, rows: &[&Record], passed: &str) -> bool {
    let group = noun_group(words, form);
    let conditions = group.split_last().map_or(&[][..], |(_, before)| before);
    let has = |word: &str| {
        let fields = rows.iter().flat_map(|row| &row.fields).take(MAX_COMPARED);
        fields.into_iter().any(|field| {
            field.name.iter().any(|name| name == word) || contains_words(&words_of(field.shown()), word)
        })
    };
    conditions.iter().any(|word| !contains_ignoring_case(passed, word) && !has(word))
}

/// The number of a field, or the day number of its date.
fn value_of(field: &RecordField) -> Option<f64> {
    let date = || dates::all(field.shown()).next().filter(|date| date.at.start == 0);
    field.number().or_else(|| Some(date()?.day as f64))
}

/// The key of the field that a superlative is about; `None` if it is ambiguous.
fn field_of(form: &str, topic_words: &[&str], words: &str, rows: &[&Record]) -> Option<KeyName> {
    if topic_words == DATE {
        let is_date = |field: &&RecordField| field.number().is_none() && value_of(field).is_some();
        let mut dates = rows.first()?.fields.iter().filter(is_date);
        return dates.next().filter(|_| dates.next().is_none()).map(|field| field.name.clone());
    }
    let numeric =
        || rows.first().into_iter().flat_map(|row| &row.fields).filter(|field| field.number().is_some());
    let only_field_with = |named: &[&str]| {
        let is_meant = |field: &&RecordField| field.name.iter().any(|word| named.contains(&word.as_str()));
        let mut candidates = numeric().filter(is_meant);
        let first = candidates.next().filter(|_| candidates.next().is_none());
        // "Scrap rate" is `scrap_rate` rather than `scrap`.
        let longest_match = || {
            let is_whole =
                |field: &&RecordField| field.name.iter().all(|word| named.contains(&word.as_str()));
            let longest =
                numeric().filter(is_whole).map(|field| field.name.len()).max().filter(|len| *len > 1)?;
            let mut longest = numeric().filter(is_whole).filter(move |field| field.name.len() == longest);
            longest.next().filter(|_| longest.next().is_none())
        };
        first.or_else(longest_match).map(|field| field.name.clone())
    };
    let after = words.split(&format!(" {form} ")).nth(1).unwrap_or_default().split(' ').take(MAX_FIELD_WORDS);
    // The words after the superlative may name the field: "the cheapest per hour", and `per_hour`.
    only_field_with(topic_words)
        .or_else(|| only_field_with(&after.filter(|word| !word.is_empty()).collect::<Vec<&str>>()))
}

/// Whether another item is not a valid choice: its state is the opposite of the named item's, or it is cancelled.
fn is_unavailable(other: Option<&FieldValue>, state: &str) -> bool {
    let Some(FieldValue::Text(other)) = other else { return false };
    match (assertion(other), assertion(state)) {
        (Some(other), Some(state)) => {
            other.0 == state.0 && other.1 != state.1 || other == ("cancelled", true)
        }
        _ => false,
    }
}

/// Whether a text has a limit of time, which may exclude some of the items: "by Wednesday".
pub(super) fn limits_time(text: &str) -> bool {
    WITHIN_TIME.is_match(text)
}

/// Whether two items have the same dates and times.
fn has_same_times(other: &Record, named: &Record) -> bool {
    let is_time = |f: &&RecordField| f.is_text() && TIME_OF.is_match(f.shown());
    named.fields.iter().filter(is_time).all(|field| other.fields.contains(field))
}

/// Whether another item is as eligible as the named one by the conditions of the request.
fn is_as_eligible(
    exchange: &Exchange<'_>,
    conditions: &[f64],
    compared: &KeyName,
    other: &Record,
    named: &Record,
) -> bool {
    let value = |field: &RecordField| other.fields.iter().find(|f| f.name == field.name).map(|f| &f.value);
    let agrees = named.fields.iter().all(|field| match &field.value {
        FieldValue::Bool(_) => value(field) == Some(&field.value),
        FieldValue::Text(text) => {
            let is_asked =
                || text.split([' ', '_', '-']).any(|word| contains_words(exchange.task_words(), word));
            let other = value(field);
            other == Some(&field.value) || !is_unavailable(other, text) && !is_asked()
        }
        // A number is 0 for both or for neither: stops, stock.
        FieldValue::Number(number) => match value(field) {
            Some(FieldValue::Number(other)) if field.name != *compared => (*number == 0.0) == (*other == 0.0),
            _ => true,
        },
    });
    let has = |record: &Record, number: f64| record.fields.iter().any(|f| f.number() == Some(number));
    agrees && conditions.iter().all(|n| has(other, *n) && has(named, *n))
}
