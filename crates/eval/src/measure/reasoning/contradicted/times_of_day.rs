//! Times of day that no text has: "it leaves at 17:30", where the only time of the result is 17:15.
//!
//! Principle: a time of day is copied. A time that no text has is a contradiction, unless it may follow from a
//! duration, a delay or another zone, or its clause counts minutes or sets a limit. A time before 13:00 without "am"
//! or "pm" may be in both halves of the day. In other languages than English, the clause also has to name a row with a
//! time, and no number of minutes or hours in a text may lead from a known time to the stated one.
//!
//! In: the clauses of an answer with one time, and all texts. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::sources::names_of;
use crate::measure::excerpt::lowercase;
use crate::measure::language::{WordClass, WordClasses, classes, names};
use crate::measure::numbers;
use crate::measure::reasoning::dates_and_times::{Clock, clocks, clocks_in, is_relative, is_zoned, times};
use crate::measure::reasoning::statements::{Clause, contains_words};
use crate::measure::records::{RecordField, RecordList};
use crate::measure::units::possible_unit;
use crate::measure::vocabulary::{self, WordMeaning};

// A number with the word after it, which may be a duration, or a duration of ISO 8601.
regex!(DURATION, r"(?i)\d\s?(?P<unit>\p{L}+)\b|\bPT\d");
// A duration per unit: "5:30 per km", "4:50/mile", "6:05 min each".
regex!(PACE, r"(?i)\d:\d{2}(?: ?min(?:utes)?)? ?(?:/ ?[a-z]|per\b|each\b)");
/// Classes of words in clauses with a limit, a difference, or the time of something else than a row.
const RELATIVE: WordClasses = classes!(
    Sequence Bound Approximation Alternative Exception Increment Comparison Condition Probability Advice
);
/// Maximum known times, and maximum numbers of texts, that are combined with each other.
const MAX_OPERANDS: usize = 64;
/// Minimum digits of a code in a name, by which a clause may name the row.
const MIN_DIGITS: usize = 3;

/// Whether a word of a key means a duration.
fn is_duration(word: &str) -> bool {
    matches!(word, "duration" | "delay" | "length" | "offset" | "interval") || is_unit_of_time(word)
}

/// Whether a word is a unit of time.
fn is_unit_of_time(word: &str) -> bool {
    possible_unit(&lowercase(word)).is_some_and(|unit| unit.quantity == "time")
}

/// Whether a text has a duration, from which a time may follow.
fn has_duration(text: &str) -> bool {
    DURATION
        .captures_iter(text)
        .any(|captures| captures.name("unit").is_none_or(|unit| is_unit_of_time(unit.as_str())))
}

/// Minimum numbers of a series.
const MIN_SERIES: usize = 3;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let is_english = exchange.is_english();
    if is_english && !exchange.prose.contains(':') && !exchange.prose.contains(['m', 'M']) {
        return;
    }
    let stated = exchange.clauses.iter().filter(|clause| !clause.negated && !clause.modal);
    let is_absolute = |clause: &Clause<'_>| match is_english {
        true => !is_relative(clause.sentence) && !PACE.is_match(clause.sentence),
        false => !clause.classes.has_any(RELATIVE),
    };
    let stated = stated.filter_map(|clause| match clocks_in(&clause.words, is_english).as_slice() {
        [time] if is_absolute(clause) => Some((clause, *time)),
        _ => None,
    });
    let stated: Vec<_> = stated.collect();
    if stated.is_empty() || !exchange.spends(exchange.sources.field_count()) || !exchange.spends_numbers() {
        return;
    }
    let fields = || exchange.sources.records().flat_map(|(.., record)| &record.fields);
    let source_with_times = exchange.sources.structured.iter().find(|source| {
        let records = source.parsed.0.iter().flat_map(|parsed| &parsed.records);
        records.flat_map(|record| &record.fields).any(|field| !times(field.shown()).is_empty())
    });
    let Some(source) = source_with_times else { return };
    let seen = || exchange.sources.seen.iter().map(|text| &***text);
    let may_give_time = |field: &RecordField| {
        let is_number = !is_english && field.number().is_some();
        field.name.iter().any(|word| is_duration(word))
            || is_number && names::has_word_of_class(&field.name, WordClass::TimeUnit)
    };
    if fields().any(may_give_time)
        || seen().any(|text| is_zoned(text) || has_duration(text))
        || vocabulary::has(exchange.task, WordMeaning::TimeInWords)
    {
        return;
    }
    // The values of a series may belong to times in equal steps, which the series does not contain.
    let is_series = |list: &RecordList| list.is_numeric && list.len >= MIN_SERIES;
    if exchange
        .sources
        .structured
        .iter()
        .filter_map(|s| s.parsed.0.as_ref())
        .any(|p| p.lists.iter().any(is_series))
    {
        return;
    }
    // Rows with several times are intervals, and the answer may choose a time in the gaps between them.
    let has_gaps = exchange.sources.records().any(|(.., record)| {
        let source_with_times = record.fields.iter().filter(|field| !times(field.shown()).is_empty());
        record.list.is_some() && source_with_times.count() > 1
    });
    findings.examined = true;
    let is_known = |stated: Clock| {
        let time = stated.time;
        let (hour, minute) = (time / 60, time % 60);
        let forms = [".", "h", "H", ""].map(|sign| format!("{hour:02}{sign}{minute:02}"));
        let has_bare_hour = |text: &str| {
            text.split(|c: char| !c.is_ascii_digit())
                .any(|n| n.parse() == Ok(hour) || n.parse() == Ok(hour % 12))
        };
        seen().any(|text| {
            let has_form = || {
                forms.iter().any(|form| text.contains(form) || text.contains(form.trim_start_matches('0')))
            };
            clocks(text).into_iter().any(|clock| clock.may_equal(stated))
                || has_form()
                || minute == 0 && has_bare_hour(text)
        })
    };
    let names_row = |clause: &Clause<'_>| {
        let mut names = exchange.sources.records().flat_map(|(.., record)| names_of(record));
        names.any(|name| clause.has(&name))
    };
    let is_of_row = |clause: &Clause<'_>, time: Clock| match is_english {
        true => !has_gaps || names_row(clause),
        false => {
            exchange.spends(exchange.sources.field_count())
                && names_timed_row(exchange, clause)
                && !may_follow(exchange, time)
        }
    };
    let unknown = stated.into_iter().find(|(clause, time)| !is_known(*time) && is_of_row(clause, *time));
    if let Some((clause, time)) = unknown {
        let time = time.time;
        let returned = format!("other times, and nothing has {:02}:{:02}", time / 60, time % 60);
        findings.contradicts(&returned, source.call, clause.sentence);
    }
}

/// Whether a clause names a record with a time, by a name or by a code in a name.
fn names_timed_row(exchange: &Exchange<'_>, clause: &Clause<'_>) -> bool {
    let is_timed = |field: &RecordField| !times(field.shown()).is_empty();
    let has_code = |name: &str| {
        let mut codes =
            name.split(' ').filter(|word| word.bytes().filter(u8::is_ascii_digit).count() >= MIN_DIGITS);
        codes.any(|code| contains_words(&clause.words, code))
    };
    let source_with_times =
        exchange.sources.records().filter(|(.., record)| record.fields.iter().any(is_timed));
    let mut names =
        source_with_times.flat_map(|(.., record)| names_of(record)).filter(|name| times(name).is_empty());
    names.any(|name| has_code(&name) || name.contains(char::is_alphabetic) && clause.has(&name))
}

/// Whether a number of any text is the difference in minutes or hours between a known time and this one. True beyond
/// the work budget.
fn may_follow(exchange: &Exchange<'_>, stated: Clock) -> bool {
    let texts = || exchange.sources.seen.iter().map(|text| &***text);
    let known_times: Vec<u32> = texts()
        .flat_map(|text| clocks_in(text, exchange.is_english()))
        .map(|c| c.time)
        .take(MAX_OPERANDS)
        .collect();
    // A length may be written as "0:33".
    let lengths = known_times.iter().map(|time| f64::from(*time));
    let numbers = texts().flat_map(numbers::all).map(|n| n.value).take(MAX_OPERANDS);
    let durations: Vec<f64> = numbers.chain(lengths).collect();
    let difference = |time: &u32| f64::from(time.abs_diff(stated.time));
    !exchange.spends(known_times.len() * durations.len())
        || known_times
            .iter()
            .any(|time| durations.iter().any(|n| *n == difference(time) || *n * 60.0 == difference(time)))
}
