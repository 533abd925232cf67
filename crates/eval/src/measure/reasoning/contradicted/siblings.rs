//! Values of a sibling object or column: "the primary contact is Ben", where Ben is in the object `secondary`.
//!
//! Principle: sibling objects, under different keys of one object, have the same fields. Columns whose names differ
//! only in a year are compared in the same way (`yield_2024`, `yield_2025`). An answer contradicts the result if it
//! names the key of one object, links a value to this key that only a sibling object has, and contains neither the
//! sibling's key nor the value of the named object.
//!
//! In: the sentences of an answer, and the objects and rows of results. Out: one contradiction.

use foldhash::HashSet;

use super::exchange::{Exchange, ExchangeFindings};
use super::field_numbers::changes_after;
use super::row_values::RowStatement;
use super::sources::{ResultSource, names_of};
use crate::measure::language::{WordClasses, classes};
use crate::measure::reasoning::statements::{contains_words, words_of};
use crate::measure::records::{FieldValue, KeyFact, KeyName, Record, RecordField};
use crate::measure::vocabulary::{self, WordMeaning};

/// Minimum bytes of the key of a compared object.
const MIN_KEY: usize = 4;
/// Minimum bytes of a compared text.
const MIN_TEXT: usize = 3;
/// The smallest compared number: smaller numbers are common.
const MIN_NUMBER: f64 = 21.0;
/// Maximum sibling objects of an object that are compared.
const MAX_SIBLINGS: usize = 6;
/// Maximum sentences of an answer that are compared.
const MAX_SENTENCES: usize = 40;
/// Maximum objects of a result that are compared.
const MAX_OBJECTS: usize = 400;
/// Maximum bytes between a key and the value that is linked to it.
const MAX_GAP: usize = 80;
/// Classes of words in sentences about several things.
const RELATION: WordClasses = classes!(Comparison Exception Alternative Condition Neighbour);

/// A sentence of the answer, with its words in lower case.
struct AnswerSentence<'a> {
    text: &'a str,
    words: String,
}

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    if exchange.clauses.iter().all(|clause| clause.negated)
        || !exchange.spends(exchange.sources.field_count())
    {
        return;
    }
    // Without siblings, as in most results, no sentence is read.
    let sources = exchange.sources.structured.iter().filter(|source| has_siblings(source));
    let sources: Vec<&ResultSource<'_>> = sources.collect();
    if sources.is_empty() || !exchange.spends(exchange.answer.len() / 8) {
        return;
    }
    let mut sentences: Vec<AnswerSentence<'_>> = Vec::new();
    for clause in exchange.clauses.iter().filter(|clause| !clause.negated) {
        let text = clause.sentence;
        if sentences.len() < MAX_SENTENCES
            && sentences.last().is_none_or(|last| !std::ptr::eq(last.text, text))
        {
            sentences.push(AnswerSentence { text, words: words_of(text) });
        }
    }
    let is_about_several =
        |text: &str| exchange.language.is_none_or(|language| language.classes(text).has_any(RELATION));
    sentences.retain(|sentence| !is_about_several(sentence.text));
    if sentences.is_empty() {
        return;
    }
    let words = words_of(exchange.answer);
    let answer_words: HashSet<&str> = words.split(' ').collect();
    for source in sources {
        let mismatch = sibling_value(exchange, source, (&sentences, &answer_words), findings)
            .or_else(|| other_year_value(exchange, source, &sentences, findings));
        if let Some((returned, sentence)) = mismatch {
            findings.contradicts(&returned, source.call, sentence);
            return;
        }
    }
}

/// Whether a result has several objects with keys, or a column for a year.
fn has_siblings(source: &ResultSource<'_>) -> bool {
    source.records().filter(|(_, record)| is_object(record)).nth(1).is_some() || source.may_have_key(has_year)
}

/// Whether a key has exactly one year and other words.
fn has_year(name: &KeyName) -> bool {
    name.has_fact(KeyFact::Year, |words| year_in(words).is_some())
}

/// Whether a record is an object under a key, and not a row of a list.
fn is_object(record: &Record) -> bool {
    record.list.is_none() && record.key.iter().map(String::len).sum::<usize>() >= MIN_KEY
}

/// The description of the expected value and the sentence, if the answer links a value to the key of one object that
/// only a sibling object has.
fn sibling_value<'a>(
    exchange: &Exchange<'_>,
    source: &ResultSource<'_>,
    (sentences, answer_words): (&[AnswerSentence<'a>], &HashSet<&str>),
    findings: &mut ExchangeFindings,
) -> Option<(String, &'a str)> {
    let parsed = source.parsed.0.as_ref()?;
    let objects = parsed.records.iter().filter(|record| is_object(record));
    let objects: Vec<&Record> = objects.take(MAX_OBJECTS).collect();
    let is_key_in_answer =
        |object: &&&Record| object.key.iter().all(|word| answer_words.contains(word.as_str()));
    for object in objects.iter().filter(is_key_in_answer) {
        let siblings: Vec<&&Record> = objects
            .iter()
            .filter(|other| other.parent == object.parent && other.key != object.key)
            .take(MAX_SIBLINGS)
            .collect();
        let key = object.key.join(" ");
        // Keys such as "old" and "new" are not compared, since an action may have changed them.
        let is_succession =
            |name: &KeyName| name.iter().any(|word| vocabulary::has_meaning(word, WordMeaning::Succession));
        if siblings.is_empty()
            || is_succession(&object.key)
            || siblings.iter().any(|sibling| is_succession(&sibling.key))
            || changes_after(exchange, source)
            || !exchange.spends(objects.len() + exchange.answer.len() / 16 * (1 + siblings.len()))
        {
            continue;
        }
        let is_other_key = |sentence: &AnswerSentence<'_>| {
            siblings.iter().any(|other| contains_words(&sentence.words, &other.key.join(" ")))
        };
        for sentence in sentences
            .iter()
            .filter(|candidate| contains_words(&candidate.words, &key) && !is_other_key(candidate))
        {
            for field in object.fields.iter().filter(|field| is_distinctive(field)) {
                let others = siblings
                    .iter()
                    .filter_map(|sibling| sibling.fields.iter().find(|f| f.name == field.name));
                let mut others = others.filter(|f| is_distinctive(f) && f.value != field.value);
                findings.examined = true;
                let is_in_answer = |given_field: &RecordField| {
                    contains_words(&words_of(exchange.answer), &text_of(given_field))
                };
                let linked = others.find(|f| is_linked(sentence.text, &key, &text_of(f)));
                if let Some(other) =
                    linked.filter(|other| !is_in_answer(field) && occurs_once(exchange, other))
                {
                    let returned = format!("{key} {}: {}", field.name.join(" "), field.shown());
                    return Some((
                        format!("{returned}, and {} for another one", other.shown()),
                        sentence.text,
                    ));
                }
            }
        }
    }
    None
}

/// Whether a value distinguishes objects: a text or a number that is not short or small.
fn is_distinctive(field: &RecordField) -> bool {
    match &field.value {
        FieldValue::Text(text) => text.len() >= MIN_TEXT && text.contains(char::is_alphanumeric),
        FieldValue::Number(n) => n.abs() >= MIN_NUMBER,
        FieldValue::Bool(_) => false,
    }
}

/// The words of the value of a field.
fn text_of(field: &RecordField) -> String {
    words_of(field.shown()).trim().to_owned()
}

/// Whether a sentence links a value to a key by a verb or a colon: "the primary contact of the team is Ben".
fn is_linked(sentence: &str, key: &str, value: &str) -> bool {
    let lowercase_sentence = sentence.to_lowercase().replace(['*', '_', '`'], "");
    let mut texts_after =
        lowercase_sentence.match_indices(key).filter_map(|(at, _)| lowercase_sentence.get(at + key.len()..));
    texts_after.any(|text| {
        let Some((between, after)) = text.split_once(value) else { return false };
        let is_whole = !after.starts_with(char::is_alphanumeric) && !between.ends_with(char::is_alphanumeric);
        let between = between.trim();
        let copulas = vocabulary::find(between, &[WordMeaning::Copula]);
        let is_last = copulas.last().is_some_and(|(_, at)| at.end == between.len());
        let is_plain = between.len() <= MAX_GAP && !between.contains(['.', ';', '\n']);
        is_whole && is_plain && (is_last && copulas.len() == 1 || between == ":")
    })
}

/// Whether no other field of the results and no message of the user has the value. False beyond the work budget.
fn occurs_once(exchange: &Exchange<'_>, field: &RecordField) -> bool {
    let fields = || exchange.sources.records().flat_map(|(.., record)| &record.fields);
    let equal_fields = || fields().filter(|other| other.value == field.value);
    let value = text_of(field);
    exchange.spends(exchange.sources.field_count())
        && exchange.spends_search()
        && equal_fields().count() == 1
        && !exchange.sources.from_user.iter().any(|text| contains_words(&words_of(text), &value))
}

/// The only year in a key, with the other words of the key; `None` without other words.
fn year_in(name: &[String]) -> Option<(u32, Vec<&String>)> {
    let year = |word: &String| word.parse().ok().filter(|year: &u32| (1900..2100).contains(year));
    let mut years = name.iter().filter_map(year);
    let (first, None) = (years.next()?, years.next()) else { return None };
    let other_words: Vec<&String> = name.iter().filter(|word| year(word).is_none()).collect();
    (!other_words.is_empty()).then_some((first, other_words))
}

/// The description of the expected value and the sentence, if the answer gives a value for one year that is in the
/// column of another year.
fn other_year_value<'a>(
    exchange: &Exchange<'_>,
    source: &ResultSource<'_>,
    sentences: &[AnswerSentence<'a>],
    findings: &mut ExchangeFindings,
) -> Option<(String, &'a str)> {
    let parsed = source.parsed.0.as_ref()?;
    let first =
        parsed.records.iter().find(|record| record.fields.iter().any(|field| has_year(&field.name)))?;
    let columns: Vec<(u32, Vec<&String>)> = first.fields.iter().filter_map(|f| year_in(&f.name)).collect();
    let years = |words: &str| -> Vec<u32> {
        let mut years: Vec<u32> =
            words.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect();
        years.retain(|year| (1900..2100).contains(year));
        years.sort_unstable();
        years.dedup();
        years
    };
    let answer = RowStatement::from_text(exchange.answer);
    for sentence in sentences {
        let (stated_years, request_years) = (years(&sentence.words), years(exchange.task_words()));
        let (Some(year), true) = (
            stated_years.first().or(request_years.first()),
            stated_years.len() <= 1 && request_years.len() <= 1,
        ) else {
            continue;
        };
        // The names of each row are searched for in the sentence.
        exchange.spends(parsed.records.len() * (1 + sentence.words.len() / 32)).then_some(())?;
        let rows = parsed.records.iter().filter(|record| !record.fields.is_empty());
        let mut named_rows =
            rows.filter(|row| names_of(row).any(|name| contains_words(&sentence.words, &name)));
        let (Some(row), None) = (named_rows.next(), named_rows.next()) else { continue };
        exchange.spends(columns.len() * row.fields.len()).then_some(())?;
        for (column_year, other_words) in columns.iter().filter(|(column_year, _)| column_year == year) {
            let cell = |wanted: u32| {
                let is_in_column = |f: &&RecordField| {
                    year_in(&f.name).is_some_and(|(y, words)| y == wanted && words == *other_words)
                };
                row.fields.iter().find(is_in_column)
            };
            let Some(expected) = cell(*column_year).filter(|field| is_distinctive(field)) else { continue };
            let others = columns.iter().filter(|(y, words)| y != column_year && words == other_words);
            findings.examined = true;
            let statement = RowStatement::new(&sentence.words);
            let mut sibling = others
                .filter_map(|(y, _)| cell(*y))
                .filter(|f| f.value != expected.value && statement.gives(f));
            let is_without_source = |f: &RecordField| {
                let is_unique = row.fields.iter().filter(|other| other.value == f.value).count() == 1;
                is_unique
                    && !exchange.sources.from_user.iter().any(|text| RowStatement::from_text(text).gives(f))
            };
            if let Some(sibling) = sibling
                .find(|f| is_distinctive(f) && is_without_source(f))
                .filter(|_| !answer.gives(expected))
            {
                let returned = format!("{}: {}", expected.name.join(" "), expected.shown());
                let other = format!("{}: {}", sibling.name.join(" "), sibling.shown());
                return Some((format!("{returned}, and {other}"), sentence.text));
            }
        }
    }
    None
}
