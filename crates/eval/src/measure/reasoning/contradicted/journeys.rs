//! Departures that an answer gives as arrivals: "is due in Cork on 4 March at 18:00", which is the `etd` of Bilbao.
//!
//! Principle: if the results have only one journey, a clause about the arrival has the day of the arrival. It is a
//! contradiction if the clause has the day of the departure, with the time of the departure or the place of the
//! arrival, and the answer nowhere has the day of the arrival. The same applies to a clause about the departure. A
//! clause that asks the reader to do something may have another time and is not compared.
//!
//! In: the clauses of an answer, and the fields of both ends, by their keys. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::row_values::RowStatement;
use super::sources::{ResultSource, names_of};
use crate::measure::language::{WordClasses, classes};
use crate::measure::numbers;
use crate::measure::reasoning::dates;
use crate::measure::reasoning::dates_and_times::times;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{Record, RecordField};
use crate::measure::vocabulary::{self, WordMeaning};

/// Classes of words in clauses that contain an instruction with a time for the reader, or that relate several times.
const OTHER_TIMES: WordClasses =
    classes!(Comparison Exception Alternative Condition Neighbour Obligation Advice Bound Sequence);

/// The source, the record and the field of the time of a departure or an arrival.
type JourneyEnd<'e, 'a> = (&'e ResultSource<'a>, &'e Record, &'e RecordField);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    // Most answers mention no journey.
    let mentions_journey = !vocabulary::find(
        &exchange.prose,
        &[WordMeaning::Arrival, WordMeaning::Arrives, WordMeaning::Departure],
    )
    .is_empty();
    if exchange.clauses.is_empty() || !mentions_journey || !exchange.spends(exchange.sources.field_count()) {
        return;
    }
    let (Some(departure), Some(arrival)) =
        (only_end(exchange, WordMeaning::Departure), only_end(exchange, WordMeaning::Arrival))
    else {
        return;
    };
    let day = |(.., field): JourneyEnd<'_, '_>| dates::all(field.shown()).next().map(|date| date.day);
    if day(departure) == day(arrival) {
        return;
    }
    let words = words_of(exchange.answer);
    for clause in exchange.clauses.iter().filter(|clause| !clause.negated && !clause.modal) {
        if !exchange.spends(1 + clause.sentence.len() / 8) {
            return;
        }
        let sentence_words = words_of(clause.sentence);
        // A verb of departure may have another meaning, so that a finding on a departure requires a noun.
        let has_departure =
            !vocabulary::find(&sentence_words, &[WordMeaning::Departure, WordMeaning::Departs]).is_empty();
        let has_arrival =
            !vocabulary::find(&sentence_words, &[WordMeaning::Arrival, WordMeaning::Arrives]).is_empty();
        let (expected, wrong) = match (has_departure, has_arrival) {
            (false, true) => (arrival, departure),
            (true, false) if vocabulary::has(&sentence_words, WordMeaning::Departure) => (departure, arrival),
            _ => continue,
        };
        let is_other_time =
            clause.classes.has_any(OTHER_TIMES) || vocabulary::has(&sentence_words, WordMeaning::Addressee);
        findings.examined = true;
        let is_wrong = gives_day(&clause.words, wrong.2) && is_about_expected_end(clause, expected, wrong);
        if !is_other_time && is_wrong && !gives_day(&words, expected.2) {
            let returned = format!("{}: {}", expected.2.name.join(" "), expected.2.shown());
            findings.contradicts(&returned, expected.0.call, clause.sentence);
            return;
        }
    }
}

/// The only time of a departure or an arrival in all results; `None` if there are several.
fn only_end<'e, 'a>(exchange: &'e Exchange<'a>, meaning: WordMeaning) -> Option<JourneyEnd<'e, 'a>> {
    let fields = exchange.sources.records().flat_map(|(s, _, r)| r.fields.iter().map(move |f| (s, r, f)));
    let is_end =
        |(.., f): &JourneyEnd<'_, '_>| f.name.iter().any(|word| vocabulary::has_meaning(word, meaning));
    let has_date = |(.., f): &JourneyEnd<'_, '_>| f.is_text() && dates::all(f.shown()).next().is_some();
    let mut ends = fields.filter(is_end).filter(has_date);
    let first = ends.next()?;
    ends.all(|(.., field)| field.value == first.2.value).then_some(first)
}

/// Whether a clause has the time of the wrong end, or without a time a name in the record of the expected end, if the
/// ends are in different records.
fn is_about_expected_end(
    clause: &Clause<'_>,
    expected: JourneyEnd<'_, '_>,
    wrong: JourneyEnd<'_, '_>,
) -> bool {
    let stated_times = times(&clause.words);
    if !stated_times.is_empty() {
        return times(wrong.2.shown()) == stated_times;
    }
    let are_separate_records = !std::ptr::eq(expected.1, wrong.1);
    let mut names = names_of(expected.1).filter(|name| name.starts_with(char::is_alphabetic));
    are_separate_records && names.any(|name| contains_words(&clause.words, &name))
}

/// Whether a text has the day of a date, in an English form or before the name of its month in any language.
fn gives_day(words: &str, field: &RecordField) -> bool {
    let Some(date) = dates::all(field.shown()).next() else { return false };
    let is_day = |n: &numbers::Number| {
        n.value == date.day_of_month as f64 && dates::month_after(words.get(n.end..)) == Some(date.month)
    };
    RowStatement::new(words).gives(field) || numbers::all(words).iter().any(is_day)
}
