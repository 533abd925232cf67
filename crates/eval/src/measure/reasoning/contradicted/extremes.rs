//! Extremes: the answer calls one item of a list the cheapest, the largest or the earliest, and another one is.
//!
//! Principle: a thing that is called the cheapest, the largest or the first of a list is that one by the list's own
//! values. Of things that the request excludes, or that differ in what it asks for, nothing is said.
//!
//! The superlative names the field. Another item refutes it only if it is as eligible as the named one: it has
//! the same flags, the same values where the request names those of the named item, and the same dates and times where
//! the request or the statement limits them.

use aho_corasick::AhoCorasick;

use super::exchange::{Exchange, ExchangeFindings};
use super::predicates::assertion;
use super::sources::names_of;
use crate::measure::numbers;
use crate::measure::reasoning::dates;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{FieldValue, KeyName, Record, RecordField};
use crate::pattern::contains_ignoring_case;

/// Superlatives, whether they mean the smallest value, and the fields that they are about; none: the field is named
/// after the superlative ("the least free space").
const SUPERLATIVES: [Superlative; 31] = [
    ("cheapest", true, PRICE),
    ("lowest-priced", true, PRICE),
    ("least expensive", true, PRICE),
    ("most affordable", true, PRICE),
    ("most expensive", false, PRICE),
    ("priciest", false, PRICE),
    ("highest-priced", false, PRICE),
    ("fastest", true, LASTS),
    ("shortest", true, LASTS),
    ("longest", false, LASTS),
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
const PRICE: &[&str] = &["price", "cost", "fare", "amount", "rate", "fee"];
/// The only field that is a date.
const DATE: &[&str] = &["date"];
const LASTS: &[&str] = &["duration", "minutes", "hours", "time", "seconds", "length"];
// Finds any superlative, also inside of other words.
checked_static!(FORMS: AhoCorasick = AhoCorasick::new(SUPERLATIVES.map(|(form, ..)| form)));
// Words before a number that is called the highest or the lowest one.
regex!(
    PEAK,
    r" (?:(?:peaked|peaking|topped out|maxed out) at (?:about |around )?|(?:peak|maximum|max|high|(?P<least>minimum|min|low)) (?:was |of |is |at |value of )+)"
);
// A date or a time.
const TIME: &str = r"(?:\d{1,2}(?::\d{2}| ?[ap]m\b)|\d{4}-\d{2}-\d{2}|\d{1,2}\.\d{1,2}\.|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d|\d{1,2}(?:st|nd|rd|th)?\.? (?:of )?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))";
regex!(TIME_OF, &format!(r"(?i)\b{TIME}"));
// A limit of time, or a span of it.
regex!(
    WITHIN_TIME,
    &format!(
        r"(?i)\b(?:by|before|until|till|after|within|between|earlier than|later than)\b[^.?!\n]{{0,16}}?\b(?:{TIME}|(?:mon|tues|wednes|thurs|fri|satur|sun)day|today|tomorrow|tonight|noon|days?\b|hours?\b|week|weekend)|\b(?:this|next|coming) \w"
    )
);
/// Words after a superlative that can name its field.
const NAMED_WITHIN: usize = 4;

/// Words that end a group of words with a noun.
const ENDS: [&str; 26] = [
    "this", // "the highest rate this season"
    "these", "is", "are", "was", "were", "has", "have", "costs", "from", "to", "in", "at", "for", "of",
    "with", "on", "that", "which", "you", "we", "i", "and", "there", "it", "near",
];
/// Most statements of one answer, and fields in which a condition is looked for.
const MAX_STATED: usize = 8;
const MAX_COMPARED: usize = 400;

/// A superlative, whether it means the smallest value, and the fields that it is about.
type Superlative = (&'static str, bool, &'static [&'static str]);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let superlative = |clause: &Clause<'_>| {
        let may_have = FORMS.is_match(&clause.words);
        SUPERLATIVES.into_iter().find(|(form, ..)| may_have && contains_words(&clause.words, form))
    };
    // Several items of a kind: others may be as good.
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
            let applied = source.call.arguments.as_deref().map(numbers::all).unwrap_or_default();
            let conditions = numbers::all(exchange.task).into_iter().map(|n| n.value);
            // The tool has applied the arguments of the call to all items.
            let conditions: Vec<f64> = conditions.filter(|n| applied.iter().all(|a| a.value != *n)).collect();
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

fn wrong_extreme<'a>(
    exchange: &Exchange<'a>,
    stated: &[(&Clause<'a>, Superlative)],
    rows: &[&Record],
    (conditions, passed): (&[f64], &str),
    answer: &str,
    findings: &mut ExchangeFindings,
) -> Option<(String, &'a str)> {
    for &(clause, (form, least, topic_words)) in stated {
        let Some(field) = field_of(form, topic_words, &clause.words, rows) else { continue };
        // The item may be named next to the clause: "The Ridge, at 74.50, is the cheapest".
        let words = words_of(clause.sentence);
        let text = if clause.words.trim().split(' ').count() > 5 { &clause.words } else { &words };
        let mut named = rows.iter().filter(|row| names_of(row).any(|name| contains_words(text, &name)));
        let (Some(item), None) = (named.next(), named.next()) else { continue };
        // "Luma and Arca have the lowest rate": another clause names others of them.
        let is_plural = || ["have", "are", "were", "had"].iter().any(|verb| clause.has(verb));
        let others = || {
            let is_named = |row: &&&Record| names_of(row).any(|name| contains_words(&words, &name));
            rows.iter().filter(is_named).count() > 1
        };
        if is_plural() && others() {
            continue;
        }
        let value = |row: &Record| row.fields.iter().find(|f| f.name == field).and_then(value_of);
        // The words after the superlative may select some: "the latest paid invoice".
        let after = clause.words.split(&format!(" {form} ")).nth(1).unwrap_or_default();
        let is_verb = |word: &&str| matches!(*word, "is" | "are" | "was" | "were");
        let selects: Vec<&str> = after.split(' ').take(2).take_while(|word| !is_verb(word)).collect();
        let is_alike = |row: &Record| {
            let texts = item.fields.iter().filter(|f| f.text().is_some_and(|text| selects.contains(&text)));
            texts.into_iter().all(|f| row.fields.contains(f))
        };
        let Some(item_value) = value(item) else { continue };
        // A condition that no item states by its name, and that the call was not given, may be what the others lack.
        let has_other = |text: &&str| has_other_condition(text, form, rows, passed);
        if [&*clause.words, exchange.task_words()].iter().any(has_other) {
            continue;
        }
        findings.examined = true;
        let is_timed = limits_time(exchange.task) || limits_time(clause.sentence);
        let beats = |other: f64| if least { other < item_value } else { other > item_value };
        let is_better = |row: &&&Record| {
            value(row).is_some_and(beats)
                && is_alike(row)
                && as_eligible(exchange, conditions, &field, row, item)
                && (!is_timed || same_times(row, item))
        };
        // Of several items that the answer lists, it is the first one among these: others do not meet what was asked
        // for.
        let is_listed = |row: &Record| names_of(row).any(|name| contains_words(answer, &name));
        let lists = || rows.iter().filter(|row| is_listed(row)).nth(1).is_some();
        let better = rows.iter().find(is_better).filter(|row| is_listed(row) || !lists());
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

/// A number that the answer calls the highest or the lowest one of a series, which has it, and a higher or lower one.
fn wrong_peak<'a>(
    exchange: &Exchange<'a>,
    rows: &[&Record],
    findings: &mut ExchangeFindings,
) -> Option<(String, &'a str)> {
    let stating = exchange.clauses.iter().filter(|clause| !clause.negated && !clause.modal);
    for clause in stating.take(MAX_STATED) {
        let Some(found) = PEAK.captures(&clause.words) else { continue };
        let least = found.name("least").is_some();
        let end = found.get(0).map_or(0, |all| all.end());
        let written = clause.words.get(end..).unwrap_or_default();
        let Some(stated) = numbers::all(written).into_iter().next().filter(|n| n.start == 0) else {
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
        findings.examined = true;
        let best = |best: f64, v: &f64| if least { best.min(*v) } else { best.max(*v) };
        let extreme = series.iter().fold(stated.value, best);
        if !is_shown(extreme) {
            let returned = format!("{} {extreme} beside {}", field.name.join(" "), stated.value);
            return Some((returned, clause.sentence));
        }
    }
    None
}

/// Whether a word between the superlative and its noun ("the cheapest direct flight") is in no field of the items, nor
/// in the words that the call was given.
fn has_other_condition(words: &str, form: &str, rows: &[&Record], passed: &str) -> bool {
    let Some((_, after)) = words.split_once(&format!(" {form} ")) else { return false };
    let group: Vec<&str> =
        after.split(' ').take_while(|w| !w.is_empty() && !ENDS.contains(w)).take(NAMED_WITHIN).collect();
    let conditions = group.split_last().map_or(&[][..], |(_, before)| before);
    let has = |word: &str| {
        let fields = rows.iter().flat_map(|row| &row.fields).take(MAX_COMPARED);
        fields.into_iter().any(|field| {
            field.name.iter().any(|name| name == word) || contains_words(&words_of(field.shown()), word)
        })
    };
    conditions.iter().any(|word| !contains_ignoring_case(passed, word) && !has(word))
}

/// A number, or the day of a date.
fn value_of(field: &RecordField) -> Option<f64> {
    let date = || dates::all(field.shown()).next().filter(|date| date.at.start == 0);
    field.number().or_else(|| Some(date()?.day as f64))
}

/// The field that a superlative is about.
fn field_of(form: &str, topic_words: &[&str], words: &str, rows: &[&Record]) -> Option<KeyName> {
    if topic_words == DATE {
        let is_date = |field: &&RecordField| field.number().is_none() && value_of(field).is_some();
        let mut dates = rows.first()?.fields.iter().filter(is_date);
        return dates.next().filter(|_| dates.next().is_none()).map(|field| field.name.clone());
    }
    let numeric =
        || rows.first().into_iter().flat_map(|row| &row.fields).filter(|field| field.number().is_some());
    let only = |named: &[&str]| {
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
    let after = words.split(&format!(" {form} ")).nth(1).unwrap_or_default().split(' ').take(NAMED_WITHIN);
    // "The cheapest per hour", of which the results have `per_hour`.
    only(topic_words).or_else(|| only(&after.filter(|word| !word.is_empty()).collect::<Vec<&str>>()))
}

/// Whether the state of another item is the opposite of the named one's, or it is cancelled: it cannot be chosen.
fn is_out_of_choice(other: Option<&FieldValue>, state: &str) -> bool {
    let Some(FieldValue::Text(other)) = other else { return false };
    match (assertion(other), assertion(state)) {
        (Some(other), Some(state)) => {
            other.0 == state.0 && other.1 != state.1 || other == ("cancelled", true)
        }
        _ => false,
    }
}

/// Whether a text has a limit of time, by which some of the items may be out of the question: "by Wednesday".
pub(super) fn limits_time(text: &str) -> bool {
    WITHIN_TIME.is_match(text)
}

/// Whether two items have the same dates and times.
fn same_times(other: &Record, named: &Record) -> bool {
    let is_time = |f: &&RecordField| f.text().is_some() && TIME_OF.is_match(f.shown());
    named.fields.iter().filter(is_time).all(|field| other.fields.contains(field))
}

/// Whether an item meets what the request and the named item show of its conditions.
fn as_eligible(
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
            other == Some(&field.value) || !is_out_of_choice(other, text) && !is_asked()
        }
        // None of a thing, where the named item has some, or the other way round: no stops, no stock.
        FieldValue::Number(number) => match value(field) {
            Some(FieldValue::Number(other)) if field.name != *compared => (*number == 0.0) == (*other == 0.0),
            _ => true,
        },
    });
    let has = |record: &Record, number: f64| record.fields.iter().any(|f| f.number() == Some(number));
    agrees && conditions.iter().all(|n| has(other, *n) && has(named, *n))
}
