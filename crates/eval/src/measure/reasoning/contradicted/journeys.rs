//! Departures that are given as arrivals: "is due in Cork on 4 March at 18:00", where this is the `etd` of Bilbao.
//!
//! Principle: of the only journey of the results, an answer that gives a moment as that of the arrival gives the one
//! of the arrival. It gives the one of the departure if it has its day, and its time or the place of the arrival,
//! and nowhere the right day. The same holds the other way round. What the reader is asked to do at one end has its
//! own time.
//!
//! In: the clauses of an answer, and the fields of both ends by their names. Out: one contradiction.

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

/// Words of clauses that say when to be somewhere, or relate several moments.
const RELATES: WordClasses =
    classes!(Comparison Exception Alternative Condition Neighbour Obligation Advice Bound Sequence);

/// A moment of one end, with its record.
type JourneyEnd<'e, 'a> = (&'e ResultSource<'a>, &'e Record, &'e RecordField);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    // Most answers speak of no journey.
    let speaks = !vocabulary::find(
        &exchange.prose,
        &[WordMeaning::Arrival, WordMeaning::Arrives, WordMeaning::Departure],
    )
    .is_empty();
    if exchange.clauses.is_empty() || !speaks || !exchange.spends(exchange.sources.fields()) {
        return;
    }
    let (Some(departure), Some(arrival)) =
        (end(exchange, WordMeaning::Departure), end(exchange, WordMeaning::Arrival))
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
        // Verbs of a departure have other meanings as well.
        let leaves =
            !vocabulary::find(&sentence_words, &[WordMeaning::Departure, WordMeaning::Departs]).is_empty();
        let arrives =
            !vocabulary::find(&sentence_words, &[WordMeaning::Arrival, WordMeaning::Arrives]).is_empty();
        let (right, wrong) = match (leaves, arrives) {
            (false, true) => (arrival, departure),
            (true, false) if vocabulary::has(&sentence_words, WordMeaning::Departure) => (departure, arrival),
            _ => continue,
        };
        let is_asked =
            clause.classes.has_any(RELATES) || vocabulary::has(&sentence_words, WordMeaning::Addressee);
        findings.examined = true;
        let is_wrong = gives_day(&clause.words, wrong.2) && is_linked(clause, right, wrong);
        if !is_asked && is_wrong && !gives_day(&words, right.2) {
            let returned = format!("{}: {}", right.2.name.join(" "), right.2.shown());
            findings.contradicts(&returned, right.0.call, clause.sentence);
            return;
        }
    }
}

/// The only moment of an end among the fields of all results.
fn end<'e, 'a>(exchange: &'e Exchange<'a>, meaning: WordMeaning) -> Option<JourneyEnd<'e, 'a>> {
    let fields = exchange.sources.records().flat_map(|(s, _, r)| r.fields.iter().map(move |f| (s, r, f)));
    let is_end =
        |(.., f): &JourneyEnd<'_, '_>| f.name.iter().any(|word| vocabulary::has_meaning(word, meaning));
    let is_moment =
        |(.., f): &JourneyEnd<'_, '_>| f.text().is_some() && dates::all(f.shown()).next().is_some();
    let mut ends = fields.filter(is_end).filter(is_moment);
    let first = ends.next()?;
    ends.all(|(.., field)| field.value == first.2.value).then_some(first)
}

/// Whether a clause has the time of the wrong end, or a name of the other one that the wrong end does not have.
fn is_linked(clause: &Clause<'_>, right: JourneyEnd<'_, '_>, wrong: JourneyEnd<'_, '_>) -> bool {
    let stated_times = times(&clause.words);
    if !stated_times.is_empty() {
        return times(wrong.2.shown()) == stated_times;
    }
    let is_other = !std::ptr::eq(right.1, wrong.1);
    let mut names = names_of(right.1).filter(|name| name.starts_with(char::is_alphabetic));
    is_other && names.any(|name| contains_words(&clause.words, &name))
}

/// Whether a text has the day of a date, as it is written in English or before the name of its month in any language.
fn gives_day(words: &str, field: &RecordField) -> bool {
    let Some(date) = dates::all(field.shown()).next() else { return false };
    let is_day = |n: &numbers::Number| {
        n.value == date.day_of_month as f64 && dates::month_after(words.get(n.end..)) == Some(date.month)
    };
    RowStatement::new(words).gives(field) || numbers::all(words).iter().any(is_day)
}
