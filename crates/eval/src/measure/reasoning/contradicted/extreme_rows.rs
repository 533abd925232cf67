//! Superlatives about a row that no column bears out: "Central grew most", and in the answer's table Highlands did.
//!
//! Principle: a row that an answer calls the largest, cheapest or newest has the extreme value of a column. The column
//! is the one that the statement names or, in the second place, the request; a superlative of prices, durations or
//! dates means such a column. If neither names a column, the row of a table of the answer must be extreme in one of
//! the columns, or by the sum, difference, product or ratio of two. Another row counts only if it has the same flags,
//! states and other shared texts, and if no sentence may exclude it.
//!
//! In: the clauses of an answer with a superlative, the tables of the answer, and the tables of results. Out: one
//! contradiction, in any language. (`extremes` also reads superlatives without such a table.)

use std::borrow::Cow;

use super::super::less_fitting_choice::CLAUSE_ENDS;
use super::exchange::{Exchange, ExchangeFindings};
use super::named_rows::tables;
use super::ranked_tables::{Column, RankedTable, combinations, table_of_rows, tables_of_answer};
use super::row_scope::compares;
use super::universal_claims::has_exception;
use crate::measure::language::{
    ClassifiedWord, Language, WordClass, WordClasses, classes, classes_in, names,
};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::dates_and_times::numbers_outside_moments;
use crate::measure::reasoning::statements::{Clause, asserts_nothing_by_classes, contains_words, words_of};
use crate::measure::units::possible_unit;
use crate::measure::vocabulary::{self, WordMeaning};
use crate::pattern::contains_ignoring_case;

/// Maximum statements and tables that are compared.
const MAX_STATED: usize = 6;
const MAX_TABLES: usize = 8;
/// Maximum bytes of a request.
const MAX_REQUEST: usize = 400;
/// Maximum words of a noun with its adjectives.
const MAX_NOUN_WORDS: usize = 4;
/// Minimum bytes of a word of a column that begins a word of a text.
const MIN_WORD: usize = 3;
/// Classes of words by which a request or a statement is about some of the rows only.
const LIMITS: WordClasses = classes!(Bound Condition Exception Comparison Alternative Restriction Neighbour);
/// Classes of words in sentences that may exclude a row.
const CONTRASTS: WordClasses = classes!(Condition Exception Comparison Contrast Negation Restriction);
/// Classes of words for a time.
const TIMES: WordClasses = classes!(Month Weekday RelativeDay TimeUnit);

/// The column that a superlative is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Topic {
    Price,
    Duration,
    Weight,
    Date,
    /// A quantity whose column the superlative does not name.
    Other,
}

/// A superlative of a clause.
#[derive(Clone, Copy)]
struct Superlative {
    topic: Topic,
    /// Whether it means the smallest value; `None` if that depends on the column.
    is_minimum: Option<bool>,
}

impl Superlative {
    /// The superlative with this value in the data of a language, see [`WordClass::Superlative`].
    fn from_value(value: u8) -> Superlative {
        let (topic, is_minimum) = match value {
            1 => (Topic::Price, Some(true)),
            2 => (Topic::Price, Some(false)),
            3 => (Topic::Duration, Some(true)),
            4 => (Topic::Duration, Some(false)),
            5 => (Topic::Weight, Some(false)),
            6 => (Topic::Weight, Some(true)),
            8 | 10 | 13 => (Topic::Other, Some(true)),
            11 => (Topic::Date, Some(false)),
            12 => (Topic::Date, Some(true)),
            15 => (Topic::Other, None),
            _ => (Topic::Other, Some(false)),
        };
        Superlative { topic, is_minimum }
    }

    /// Whether the column with these words may be the topic.
    fn is_about(self, words: &[String]) -> bool {
        match self.topic {
            Topic::Price => names::has_word_of_class(words, WordClass::Amount),
            Topic::Duration => {
                names::has_word_of_class(words, WordClass::TimeUnit)
                    || words.iter().any(|word| word == "duration")
            }
            Topic::Weight => words.iter().any(|word| {
                word == "weight" || possible_unit(word).is_some_and(|unit| unit.quantity == "mass")
            }),
            Topic::Date | Topic::Other => true,
        }
    }
}

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let Some(language) = exchange.language.filter(|_| exchange.task.len() <= MAX_REQUEST) else { return };
    let unspaced = if language.is_spaced() { Vec::new() } else { unspaced_clauses(exchange, language) };
    let clauses = if language.is_spaced() { &exchange.clauses } else { &unspaced };
    let with_superlative = clauses.iter().filter(|clause| clause.classes.has(WordClass::Superlative));
    let stated: Vec<(&Clause<'_>, Superlative)> = with_superlative
        .filter(|clause| {
            !clause.modal && !compares(clause) && !has_exception(clause) && !clause.classes.has_any(LIMITS)
        })
        .filter_map(|clause| {
            let places = language.places(&clause.words, exchange.memo);
            let mut superlatives = places.iter().filter(|place| place.classes.has(WordClass::Superlative));
            let place = superlatives.next().filter(|_| superlatives.next().is_none())?;
            // A negation after the superlative selects rows: "the newest one that you haven't heard".
            let is_negated = |word: &&ClassifiedWord| {
                word.classes.has(WordClass::Negation) && word.at.start < place.at.start
            };
            (!places.iter().any(|word| is_negated(&word)))
                .then(|| (clause, Superlative::from_value(place.value)))
        })
        .take(MAX_STATED)
        .collect();
    let Some((last_source, false)) =
        exchange.sources.structured.last().map(|source| (source, stated.is_empty()))
    else {
        return;
    };
    let results =
        if is_limited(exchange) { Some(Vec::new()) } else { tables(exchange, &words_of(exchange.answer)) };
    let Some(results) = results else { return };
    let mut compared = tables_of_answer(exchange, last_source.call);
    compared.extend(results.iter().filter_map(|rows| table_of_rows(rows)));
    for table in compared.iter().take(MAX_TABLES) {
        for (clause, superlative) in &stated {
            if !exchange.spends(table.names.len() * (1 + table.columns.len() * table.columns.len())) {
                return;
            }
            if let Some(returned) = better_row(exchange, table, (clause, clauses), *superlative, findings) {
                findings.contradicts(&returned, table.call, clause.sentence);
                return;
            }
        }
    }
}

/// The parts of the answer between punctuation as clauses, in a language without spaces.
fn unspaced_clauses<'a>(exchange: &Exchange<'a>, language: Language) -> Vec<Clause<'a>> {
    let parts = sentences(&exchange.prose).into_iter();
    let parts = parts
        .filter_map(|(start, end)| Some((exchange.prose.get(start..end)?, exchange.answer.get(start..end)?)));
    let clauses = parts.flat_map(|(plain, sentence)| {
        plain.split(CLAUSE_ENDS).filter(|part| !part.trim().is_empty()).map(move |part| {
            let classes = language.classes(part);
            let (negated, modal) = (classes.has(WordClass::Negation), classes.has(WordClass::Modal));
            Clause { sentence: sentence.trim(), words: words_of(part), classes, negated, modal, first: false }
        })
    });
    clauses.filter(|clause| !asserts_nothing_by_classes(clause.sentence, clause.classes)).collect()
}

/// Whether the request may be about some of the rows of a result only: it has a limit, or a number that no call passed.
fn is_limited(exchange: &Exchange<'_>) -> bool {
    let passed: Vec<f64> = exchange
        .sources
        .passed
        .iter()
        .flat_map(|text| numbers::all(&text.replace(['-', 'T', '"'], " ")))
        .map(|n| n.value)
        .collect();
    let is_passed = |n: &Number| n.possible_values().any(|value| passed.contains(&value));
    classes_in(exchange.task, None, exchange.memo).is_none_or(|all| all.has_any(LIMITS))
        || !numbers_outside_moments(exchange.task).iter().all(is_passed)
}

/// Whether a text, given unchanged and as words, has a name. Languages without spaces have it anywhere.
fn has_name(text: &str, words: &str, name: &str) -> bool {
    contains_words(words, name)
        || !name.is_ascii() && name.chars().count() > 1 && text.to_lowercase().contains(name)
}

/// The description of the row that refutes a superlative.
fn better_row(
    exchange: &Exchange<'_>,
    table: &RankedTable<'_>,
    (clause, clauses): (&Clause<'_>, &[Clause<'_>]),
    superlative: Superlative,
    findings: &mut ExchangeFindings,
) -> Option<String> {
    let is_named = |text: &str, words: &str, at: usize| {
        table
            .names
            .get(at)
            .is_some_and(|names| names.iter().any(|name| !name.is_empty() && has_name(text, words, name)))
    };
    let all = 0..table.names.len();
    let sentence_words = words_of(clause.sentence);
    let named_in = |text: &str, words: &str| -> Vec<usize> {
        all.clone().filter(|at| is_named(text, words, *at)).collect()
    };
    let by_clause = named_in(&clause.words, &clause.words);
    let by_sentence = || named_in(clause.sentence, &sentence_words);
    let named = match (by_clause.as_slice(), by_sentence().as_slice()) {
        ([only], _) | ([], [only]) => *only,
        _ => return None,
    };
    let in_request = named_in(exchange.task, exchange.task_words());
    // A part of a name may also name a row: "Morel" for "Couverture Morel".
    let is_part = |at: usize, word: &str| {
        let others = table.names.iter().enumerate().filter(|(other, _)| *other != at);
        word.len() > MIN_WORD
            && contains_words(&sentence_words, word)
            && !others.into_iter().any(|(_, names)| names.iter().any(|name| contains_words(name, word)))
    };
    let may_be_named = |at: &usize| {
        let names = table.all_names.get(*at).map(Vec::as_slice).unwrap_or_default();
        *at != named && names.iter().any(|name| name.split(' ').any(|word| is_part(*at, word)))
    };
    if !table.is_of_answer
        && (has_condition(exchange, table, &clause.words)
            || has_condition(exchange, table, exchange.task_words()))
    {
        return None;
    }
    let columns = columns_of(exchange, table, clause, superlative)?;
    if by_clause.is_empty() && all.clone().any(|at| may_be_named(&at)) {
        return None;
    }
    let properties = |at: usize| table.properties.get(at);
    let is_zero = |at: usize| table.columns.iter().map(move |column| column.values.get(at) == Some(&0.0));
    let is_eligible = |at: &usize| {
        properties(*at) == properties(named)
            && (table.is_of_answer || is_zero(*at).eq(is_zero(named)))
            && (!in_request.contains(&named) || in_request.contains(at))
    };
    // If the answer lists several rows, the superlative is about these.
    let is_listed = |at: usize| table.names.get(at).is_some_and(|names| !names.is_empty());
    let lists_several = all.clone().any(|at| at != named && is_listed(at) && !in_request.contains(&at));
    let eligible: Vec<usize> =
        all.clone().filter(is_eligible).filter(|at| !lists_several || is_listed(*at)).collect();
    let best_of = |column: &Column, is_minimum: bool| {
        let value = |at: &usize| column.values.get(*at).copied().unwrap_or_default();
        let best = eligible.iter().copied().max_by(|a, b| {
            let (a, b) = if is_minimum { (value(b), value(a)) } else { (value(a), value(b)) };
            a.total_cmp(&b)
        });
        best.filter(|best| value(best) != value(&named))
    };
    findings.examined = true;
    let directions: &[bool] = match superlative.is_minimum {
        Some(true) => &[true],
        Some(false) => &[false],
        None => &[true, false],
    };
    // The row must be extreme in one of the columns.
    let mut better = None;
    for column in &columns {
        for is_minimum in directions {
            better = Some((column, best_of(column, *is_minimum)?));
        }
    }
    let (column, best) = better?;
    let contrasts = |other: &Clause<'_>| {
        is_named(other.sentence, &words_of(other.sentence), best)
            && !std::ptr::eq(other.sentence, clause.sentence)
            && (other.negated || other.classes.has_any(CONTRASTS))
    };
    // "Luma and Arca have the lowest rate" has both rows.
    let before = clauses.iter().take_while(|other| !std::ptr::eq(*other, clause));
    let is_joined = before.into_iter().last().is_some_and(|other| {
        std::ptr::eq(other.sentence, clause.sentence) && is_named(&other.words, &other.words, best)
    });
    if is_joined || clauses.iter().any(contrasts) {
        return None;
    }
    let shown = |at: usize| column.values.get(at).copied().unwrap_or_default();
    let names =
        [&table.names, &table.all_names].into_iter().filter_map(|names| names.get(best)?.first()).next();
    let name = names.map(|name| name.trim()).unwrap_or_default();
    let unit = if column.is_date { "days" } else { "" };
    let (better_value, named_value) = (shown(best), shown(named));
    let title = column.words.join(" ");
    Some(match unit {
        "" => format!("{title} {better_value} for {name}, and {named_value} for what the answer names"),
        _ => format!(
            "{title} {} days apart for {name} and for what the answer names",
            (better_value - named_value).abs()
        ),
    })
}

/// Whether a word between a superlative and its noun ("the cheapest electric boat") is in no column and in no argument
/// of a call, so that it may exclude rows.
fn has_condition(exchange: &Exchange<'_>, table: &RankedTable<'_>, words: &str) -> bool {
    let Some(language) = exchange.language.filter(|language| language.is_spaced()) else { return false };
    let places = language.places(words, exchange.memo);
    let superlatives = places.iter().filter(|place| place.classes.has(WordClass::Superlative));
    superlatives.into_iter().any(|place| {
        let after = words.get(place.at.end..).unwrap_or_default().split_whitespace().take(MAX_NOUN_WORDS);
        let group: Vec<&str> = after.take_while(|word| !language.is_function_word(word)).collect();
        let conditions = group.split_last().map_or(&[][..], |(_, conditions)| conditions);
        let is_known = |word: &str| {
            table
                .columns
                .iter()
                .flat_map(|column| &column.words)
                .any(|other| begins_in("", word, other) || word == other)
                || exchange.sources.passed.iter().any(|text| contains_ignoring_case(text, word))
        };
        conditions.iter().any(|word| !is_known(word))
    })
}

/// The columns that a superlative may be about; `None` if there are none.
fn columns_of<'t>(
    exchange: &Exchange<'_>,
    table: &'t RankedTable<'_>,
    clause: &Clause<'_>,
    superlative: Superlative,
) -> Option<Vec<Cow<'t, Column>>> {
    let is_about_date = superlative.topic == Topic::Date;
    let has_dates = table.columns.iter().any(|column| column.is_date);
    // Rows of several days may be outside the period of the request.
    let names_time = || {
        numbers::has_digit(exchange.task)
            || classes_in(exchange.task, None, exchange.memo).is_none_or(|all| all.has_any(TIMES))
    };
    if !is_about_date && has_dates && names_time() {
        return None;
    }
    let candidates: Vec<&Column> = table
        .columns
        .iter()
        .filter(|column| column.is_date == is_about_date && superlative.is_about(&column.words))
        .collect();
    // A word of a column precedes the beginning of one: the "churn rate" is `rate` rather than `churned`.
    let named_in = |text: &str, words: &str| -> Vec<Cow<'t, Column>> {
        let with = |is_in: fn(&str, &str, &str) -> bool| -> Vec<Cow<'t, Column>> {
            let is_named = |column: &&&Column| column.words.iter().any(|word| is_in(text, words, word));
            candidates.iter().filter(is_named).map(|column| Cow::Borrowed(*column)).collect()
        };
        let whole = with(
            |text, words, word| {
                if word.is_ascii() { contains_words(words, word) } else { text.contains(word) }
            },
        );
        if whole.is_empty() { with(begins_in) } else { whole }
    };
    // A word between the superlative and its noun that is no column makes a calculated value: "the largest average
    // order".
    let language = exchange.language?;
    let is_column_word = |word: &str| {
        language.is_function_word(word)
            || table
                .columns
                .iter()
                .flat_map(|column| &column.words)
                .any(|other| begins_in("", word, other) || word == other)
    };
    let is_plain = |words: &str| {
        let places = language.places(words, exchange.memo);
        let end = places
            .iter()
            .find(|place| place.classes.has(WordClass::Superlative))
            .map_or(0, |place| place.at.end);
        let next = words.get(end..).unwrap_or_default().split_whitespace().next();
        // The one that grew most has the largest difference of two columns.
        let is_change =
            || vocabulary::has(words, WordMeaning::Rise) || vocabulary::has(words, WordMeaning::Fall);
        (!language.is_spaced() || next.is_none_or(is_column_word)) && !is_change()
    };
    let by_clause = named_in(&clause.words, &clause.words);
    if !by_clause.is_empty() && is_plain(&clause.words) {
        return Some(by_clause);
    }
    let part = part_with_superlative(exchange).unwrap_or_default();
    let part_words = words_of(part);
    let by_request =
        if by_clause.is_empty() && is_plain(&part_words) { named_in(part, &part_words) } else { Vec::new() };
    if !by_request.is_empty() && !table.is_of_answer {
        return Some(by_request);
    }
    // A value that the answer calculates from several results is in none of them.
    if superlative.topic == Topic::Other && !table.is_of_answer {
        return None;
    }
    let mut columns: Vec<Cow<'t, Column>> = candidates.iter().map(|column| Cow::Borrowed(*column)).collect();
    if superlative.topic == Topic::Other {
        for (nth, a) in candidates.iter().enumerate() {
            for b in candidates.iter().skip(nth + 1) {
                columns.extend(combinations(a, b).map(Cow::Owned));
            }
        }
    }
    (!columns.is_empty()).then_some(columns)
}

/// The part of the request between punctuation that has its only superlative.
fn part_with_superlative<'a>(exchange: &Exchange<'a>) -> Option<&'a str> {
    let is_end = |c: char| matches!(c, ',' | ';' | '.' | '?' | '!' | '\n' | '、' | '。' | '，' | '？');
    let has_superlative = |part: &&str| {
        classes_in(part, Some(exchange.task), exchange.memo)
            .is_some_and(|all| all.has(WordClass::Superlative))
    };
    let mut parts = exchange.task.split(is_end).filter(has_superlative);
    parts.next().filter(|_| parts.next().is_none())
}

/// Whether a text, given by its words, has the beginning of a word of a column, or a longer word: `rev` for "revenue".
fn begins_in(_: &str, words: &str, column_word: &str) -> bool {
    let is_same =
        |word: &str| word.starts_with(column_word) || word.len() > MIN_WORD && column_word.starts_with(word);
    column_word.len() >= MIN_WORD && words.split(' ').any(is_same)
}
