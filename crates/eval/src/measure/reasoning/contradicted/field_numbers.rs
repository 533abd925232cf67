//! Wrong numbers next to the name of a field: "you have 9 days remaining", and `remaining_days: 7`.
//!
//! Principle: if a field has one value in the results, a statement with one number and all words of the key gives this
//! value. It is a contradiction if no text has the number, it does not follow from the numbers of the results, and the
//! answer nowhere has the value of the field. A sentence that only states the field ("your total is 89.40") has to
//! give the value itself, even if the number follows from others, and of equal calls the value of the latest result.
//!
//! In: the clauses of an answer with one number, and the numeric fields of results. Out: one contradiction.

use std::ops::Range;

use foldhash::HashMap;

use super::exchange::{Exchange, ExchangeFindings};
use super::misattributed_values::unstructured;
use super::sources::ResultSource;
use crate::measure::currency;
use crate::measure::language::{Language, WordClasses, classes, classes_in};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::arithmetic::{
    converts, is_unit, named_factors, near, pair_gives, tolerance_of, triple_gives,
};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{KeyName, RecordField};
use crate::measure::tool_purpose::ToolPurpose;

/// Maximum names of fields that are compared.
const MAX_NAMES: usize = 200;
/// Maximum numbers that are combined.
const MAX_OPERANDS: usize = 40;
const PERCENT: f64 = 100.0;
/// Minimum bytes of a key of one word that is compared.
const MIN_KEY: usize = 5;
/// Words that may be between a key and its number: "the balance is 40".
const WORDS_BEFORE_NUMBER: [&str; 8] = ["is", "was", "of", "are", "at", "to", "equals", "now"];
/// Words of a statement about the present.
const PRESENT_WORDS: [&str; 3] = ["comes", "currently", "current"];
/// Classes of words with which a sentence does not state the value itself.
const NOT_STATED: WordClasses = classes!(
    Bound Comparison Approximation Alternative Sequence Restriction Increment Exception Neighbour Repetition
);
/// Classes of words by which a request may ask for something else than the field.
const CONDITIONS: WordClasses = classes!(Condition Exception Negation Quantifier Sequence);

/// A numeric field with its value in the latest results.
struct UniqueFieldValue<'a> {
    name: &'a KeyName,
    value: f64,
    source: &'a ResultSource<'a>,
    /// Values of the field in older results of equal calls.
    older_values: Vec<f64>,
    /// Whether other records have another value of this field.
    is_ambiguous: bool,
}

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let Some(language) = exchange.language else { return };
    if exchange.sources.structured.is_empty() {
        return;
    }
    let stated: Vec<(&Clause<'_>, Number, String)> = exchange
        .clauses
        .iter()
        .filter(|clause| !clause.negated && !clause.modal)
        .filter_map(|clause| Some((clause, only_number(&clause.words)?, words_of(clause.sentence))))
        .collect();
    if stated.is_empty() || !exchange.spends(exchange.sources.field_count()) {
        return;
    }
    let fields = numeric_fields(exchange);
    if !exchange.spends(fields.len() * stated.len()) {
        return;
    }
    for (clause, number, sentence) in stated {
        for field in fields.iter().filter(|field| !field.is_ambiguous) {
            let states_only_field = states_only_field(&sentence, field.name, language);
            let is_named =
                states_only_field || field.name.len() > 1 && is_beside(clause, field.name, &number);
            if !is_named {
                continue;
            }
            findings.examined = true;
            if !exchange.spends_numbers() {
                return;
            }
            if !answer_has_value(exchange, field.value)
                && !is_elapsed(exchange, field.value, &number, clause)
                && (is_stale(field, &number, states_only_field, clause)
                    || !is_known(exchange, &number)
                        && !follows_from_results(exchange, field, &number, states_only_field))
                && !changes_after(exchange, field.source)
            {
                let returned = format!("{}: {}", field.name.join(" "), field.value);
                let call = field.source.call;
                findings.contradicts(&returned, call, clause.sentence);
                return;
            }
        }
    }
}

/// The only number of a clause; `None` if there are several, or if it is a date.
fn only_number(words: &str) -> Option<Number> {
    let numbers = numbers::all(words);
    let [number] = numbers.as_slice() else { return None };
    let is_day = dates::begins_with_month(words.get(number.end..));
    (!number.in_identifier && !is_day).then_some(*number)
}

/// The numeric fields of the results, one for each name. Of equal calls, the latest result has the value.
fn numeric_fields<'e>(exchange: &'e Exchange<'_>) -> Vec<UniqueFieldValue<'e>> {
    let mut latest: HashMap<(&str, &str), usize> = HashMap::default();
    let key = |source: &'e ResultSource<'_>| {
        (source.call.name.trim(), source.call.arguments.as_deref().unwrap_or_default())
    };
    for (nth, source) in exchange.sources.structured.iter().enumerate() {
        latest.insert(key(source), nth);
    }
    let mut indices: HashMap<&[String], usize> = HashMap::default();
    let mut fields: Vec<UniqueFieldValue<'e>> = Vec::new();
    for (nth, source) in exchange.sources.structured.iter().enumerate().rev() {
        let is_older = latest.get(&key(source)) != Some(&nth);
        let records = source.parsed.0.iter().flat_map(|parsed| &parsed.records);
        let numeric = records.flat_map(|record| &record.fields).filter_map(|f| Some((&f.name, f.number()?)));
        for (name, value) in numeric {
            match indices.get(&***name).and_then(|at| fields.get_mut(*at)) {
                Some(entry) if is_older => entry.older_values.push(value),
                Some(entry) => entry.is_ambiguous |= entry.value != value,
                None => {
                    let at = fields.len();
                    if at < MAX_NAMES {
                        indices.insert(name, at);
                        fields.push(UniqueFieldValue {
                            name,
                            value,
                            source,
                            older_values: Vec::new(),
                            is_ambiguous: is_older,
                        });
                    }
                }
            }
        }
    }
    fields
}

/// Whether a word is one of a key, in the singular or plural.
fn is_key_word(name: &[String], word: &str) -> bool {
    name.iter().any(|key_word| {
        key_word == word
            || word.strip_suffix('s') == Some(key_word)
            || key_word.strip_suffix('s') == Some(word)
    })
}

/// Whether the sentence only states the field, with one number, function words and a currency.
fn states_only_field(sentence: &str, name: &[String], language: Language) -> bool {
    let is_long = name.len() > 1 || name.iter().any(|word| word.len() >= MIN_KEY);
    if !is_long || !name.iter().all(|word| contains_words(sentence, word)) {
        return false;
    }
    let is_other = |word: &&str| !is_key_word(name, word);
    let others: Vec<&str> = sentence.split_whitespace().filter(is_other).collect();
    let mut amounts = 0;
    let is_allowed = |word: &str| {
        let is_amount = word.contains(|c: char| c.is_ascii_digit());
        amounts += usize::from(is_amount);
        is_amount
            || language.is_function_word(word)
            || PRESENT_WORDS.contains(&word)
            || currency::code_for_word(word).is_some()
    };
    others.iter().copied().all(is_allowed)
        && amounts == 1
        && !language.classes(&others.join(" ")).has_any(NOT_STATED)
}

/// Whether the clause has all words of the key, and the number next to one of them.
fn is_beside(clause: &Clause<'_>, name: &[String], number: &Number) -> bool {
    let has = |word: &String| {
        clause
            .words
            .split_whitespace()
            .any(|clause_word| is_key_word(std::slice::from_ref(word), clause_word))
    };
    if !name.iter().all(has) {
        return false;
    }
    let before = clause.words.get(..number.start).unwrap_or_default().split_whitespace();
    let mut before = before
        .rev()
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .skip_while(|w| WORDS_BEFORE_NUMBER.contains(w));
    let after = clause.words.get(number.end..).unwrap_or_default();
    let after = after.split(' ').find(|word| word.chars().any(char::is_alphanumeric));
    [before.next(), after].into_iter().flatten().any(|word| is_key_word(name, word))
}

/// Whether the answer has this value, possibly rounded, converted or in words.
fn answer_has_value(exchange: &Exchange<'_>, value: f64) -> bool {
    let units = named_factors(&exchange.prose);
    let gives = |number: &Number| {
        number.possible_values().any(|n| {
            near(n, value.abs(), tolerance_of(number, n, true))
                || converts(&[value.abs()], n, tolerance_of(number, n, false), Some(&units))
        })
    };
    let spelled = numbers::spelled(value.abs());
    numbers::all(&exchange.prose).iter().any(gives)
        || spelled.is_some_and(|word| contains_words(&words_of(&exchange.prose), &word))
}

/// Whether the value is a year or a Unix time, and the number may be the time since then.
fn is_elapsed(exchange: &Exchange<'_>, value: f64, number: &Number, clause: &Clause<'_>) -> bool {
    const YEARS: Range<f64> = 1500.0..2100.0;
    const SECONDS: Range<f64> = 5e8..5e9;
    let after = clause.words.get(number.end..).unwrap_or_default().split_whitespace().next();
    let is_span = || after.is_some_and(is_unit);
    let years = exchange.year.map(|year| year as f64 - value - number.value);
    YEARS.contains(&value) && years.is_some_and(|difference| difference.abs() <= 1.0)
        || is_span() && (SECONDS.contains(&value) || SECONDS.contains(&(value / 1000.0)))
}

/// Whether the number is the field's value in an older result of an equal call.
fn is_stale(
    field: &UniqueFieldValue<'_>,
    number: &Number,
    states_only_field: bool,
    clause: &Clause<'_>,
) -> bool {
    states_only_field
        && clause.has("is")
        && field.older_values.contains(&number.value)
        && field.value != number.value
}

/// Whether a text or another field has the number.
fn is_known(exchange: &Exchange<'_>, number: &Number) -> bool {
    let is_same_number =
        |n: &Number| n.possible_values().any(|v| number.possible_values().any(|reading| reading == v));
    let spelled = numbers::spelled(number.value);
    let in_text = |text: &str| {
        let mut has_value = false;
        numbers::scan(text, |n| has_value |= is_same_number(&n));
        has_value || spelled.as_ref().is_some_and(|word| contains_words(&words_of(text), word))
    };
    let has = |field: &RecordField| match field.number() {
        Some(value) => near(value.abs(), number.value, tolerance_of(number, number.value, true)),
        None => in_text(field.shown()),
    };
    let lists = exchange.sources.structured.iter().filter_map(|source| source.parsed.0.as_ref());
    let is_count = lists.flat_map(|parsed| &parsed.lists).any(|list| list.len as f64 == number.value);
    is_count
        || exchange.sources.records().flat_map(|(.., record)| &record.fields).any(has)
        || unstructured(&exchange.sources).any(in_text)
}

/// Whether the number follows from those of the results and of the request.
fn follows_from_results(
    exchange: &Exchange<'_>,
    field: &UniqueFieldValue<'_>,
    number: &Number,
    states_only_field: bool,
) -> bool {
    let parsed = || exchange.sources.structured.iter().filter_map(|source| source.parsed.0.as_ref());
    let value = number.value;
    let tolerance = tolerance_of(number, value, false);
    if parsed().any(|parsed| parsed.aggregates().iter().any(|sum| near(*sum, value, tolerance))) {
        return true;
    }
    let fields = || exchange.sources.records().flat_map(|(.., record)| &record.fields);
    // A sentence that only states the field must have its value, unless the request has a condition.
    let is_other = |f: &&RecordField| f.number().is_some() && f.name != *field.name;
    let names = |f: &RecordField| {
        f.name.iter().any(|word| word.len() >= MIN_KEY && contains_words(exchange.task_words(), word))
    };
    let has_condition = || {
        // The number may count the items of a list, or a part of them.
        let is_listed = field.source.parsed.0.as_ref().is_some_and(|parsed| !parsed.lists.is_empty());
        let count = is_listed && field.value.fract() == 0.0 && (value.fract() != 0.0 || field.value > value)
            || parsed().flat_map(|parsed| &parsed.lists).any(|list| list.len as f64 == field.value);
        let is_count = |word: &str| (2..=20).any(|n| numbers::is_spelled(n, word));
        let has_number = numbers::all(exchange.task).iter().any(|n| !n.in_identifier)
            || exchange.task_words().split(' ').any(is_count);
        count
            || has_number
            || classes_in(exchange.task, None, exchange.memo)
                .is_none_or(|classes| classes.has_any(CONDITIONS))
            || fields().filter(is_other).any(names)
    };
    // Another result may have a rate for a conversion.
    let numeric = |source: &&ResultSource<'_>| {
        let records = source.parsed.0.iter().flat_map(|parsed| &parsed.records);
        records.flat_map(|record| &record.fields).any(|f| f.number().is_some())
    };
    let is_only =
        exchange.sources.structured.iter().filter(numeric).count() == 1 && exchange.sources.prose.is_empty();
    // A discount or a rate of the same record may explain the number, and so may instructions about the field.
    let is_rate = |rate: f64| {
        let changed = [1.0 - rate / PERCENT, 1.0 + rate / PERCENT, 1.0 - rate, 1.0 + rate, rate];
        changed.into_iter().any(|factor| near(field.value.abs() * factor, value, tolerance))
    };
    let users = || exchange.sources.from_user.iter().map(|text| &***text);
    let instructs = |text: &str| {
        let words = words_of(text);
        field.name.iter().all(|word| contains_words(&words, word)) && users().all(|message| message != text)
    };
    let is_changed =
        || fields_beside(field).any(|n| is_rate(n.abs())) || unstructured(&exchange.sources).any(instructs);
    // Instructions may state a rate.
    let rates: Vec<f64> = unstructured(&exchange.sources).flat_map(rates_of).take(MAX_OPERANDS).collect();
    if states_only_field && is_only && rates.is_empty() && !has_condition() && !is_changed() {
        return false;
    }
    let passed = exchange.sources.passed.iter().map(|text| &***text).chain([exchange.task]);
    let mut operands: Vec<f64> = fields().filter_map(RecordField::number).map(f64::abs).collect();
    operands.extend(passed.flat_map(numbers::all).map(|n| n.value));
    // A result in prose may state an exchange rate.
    operands.extend(exchange.sources.prose.iter().flat_map(|text| numbers::all(text)).map(|n| n.value));
    operands.extend(rates);
    operands.extend(parsed().flat_map(|parsed| &parsed.lists).map(|list| list.len as f64));
    operands.sort_by(f64::total_cmp);
    operands.dedup();
    operands.len() > MAX_OPERANDS
        || !exchange.spends(2 * operands.len() * operands.len())
        || converts(&operands, value, tolerance, None)
        || operands.iter().any(|a| pair_gives(&operands, *a, value, tolerance, true))
        || triple_gives(&operands, value, tolerance)
}

/// The other numbers of the records with the field.
fn fields_beside(field: &UniqueFieldValue<'_>) -> impl Iterator<Item = f64> {
    let records = field.source.parsed.0.iter().flat_map(|parsed| &parsed.records);
    let matching_records = records.filter(|record| record.fields.iter().any(|f| f.name == *field.name));
    matching_records
        .flat_map(|record| &record.fields)
        .filter(|f| f.name != *field.name)
        .filter_map(RecordField::number)
}

/// The percentages of a text.
fn rates_of(text: &str) -> Vec<f64> {
    let is_rate = |n: &Number| text.get(n.end..).is_some_and(|after| after.trim_start().starts_with('%'));
    match text.contains('%') {
        true => numbers::all(text).iter().filter(|n| is_rate(n)).map(|n| n.value).collect(),
        false => Vec::new(),
    }
}

/// Whether a call after the source may have changed something, since its tool is not a query.
pub(super) fn changes_after(exchange: &Exchange<'_>, source: &ResultSource<'_>) -> bool {
    let mut later = exchange.sources.calls.iter().filter(|call| call.start > source.call.start);
    later.any(|call| !ToolPurpose::new(&call.name, None).is_query())
}
