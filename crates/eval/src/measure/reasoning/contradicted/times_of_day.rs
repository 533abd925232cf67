//! Times of day that nothing gives: "it leaves at 17:30", where the only time of the result is 17:15.
//!
//! Principle: a time of day is copied. One that no text and no field has is another one, unless it can follow: from a
//! duration or a delay, from another zone, or from a sentence that counts minutes or sets a limit. Without its half of
//! the day a time before 13:00 may be in both; one that is written with it ("5:15 am") is not 17:15.

use super::exchange::{Exchange, Outcome};
use super::sources::names_of;
use crate::measure::reasoning::dates_and_times::{Clock, clocks, is_relative, is_zoned, times};
use crate::measure::reasoning::statements::Clause;
use crate::measure::records::Field;

// A time of day in words.
regex!(
    IN_WORDS,
    r"(?i)\b(?:noon|midday|midnight|half past|quarter (?:past|to)|(?:ten|twenty) (?:past|to))\b"
);
// A duration, from which times follow.
regex!(DURATION, r"(?i)\d\s?(?:min|mins|minutes?|h|hrs?|hours?)\b|\bPT\d");

/// Whether a key is that of a duration.
fn is_duration(word: &str) -> bool {
    matches!(
        word,
        "minutes"
            | "minute"
            | "min"
            | "mins"
            | "hours"
            | "hour"
            | "duration"
            | "delay"
            | "length"
            | "offset"
            | "interval"
            | "seconds"
    )
}

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut Outcome) {
    if !exchange.prose.contains(':') && !exchange.prose.contains(['m', 'M']) {
        return;
    }
    let stated = exchange.clauses.iter().filter(|clause| !clause.negated && !clause.modal);
    let stated = stated.filter_map(|clause| match clocks(&clause.words).as_slice() {
        [time] if !is_relative(clause.sentence) => Some((clause, *time)),
        _ => None,
    });
    let stated: Vec<_> = stated.collect();
    if stated.is_empty() || !exchange.spends(exchange.sources.fields()) || !exchange.spends_numbers() {
        return;
    }
    let fields = || exchange.sources.records().flat_map(|(.., record)| &record.fields);
    let timed = exchange.sources.structured.iter().find(|source| {
        let records = source.parsed.0.iter().flat_map(|parsed| &parsed.records);
        records.flat_map(|record| &record.fields).any(|field| !times(field.shown()).is_empty())
    });
    let Some(source) = timed else { return };
    let seen = || exchange.sources.seen.iter().map(|text| &***text);
    let follows = |field: &Field| field.name.iter().any(|word| is_duration(word));
    if fields().any(follows)
        || seen().any(|text| is_zoned(text) || DURATION.is_match(text))
        || IN_WORDS.is_match(exchange.task)
    {
        return;
    }
    // Intervals leave gaps, from which a time can be chosen.
    let has_gaps = exchange.sources.records().any(|(.., record)| {
        let timed = record.fields.iter().filter(|field| !times(field.shown()).is_empty());
        record.list.is_some() && timed.count() > 1
    });
    outcome.examined = true;
    let is_known = |stated: Clock| {
        let time = stated.time;
        let (hour, minute) = (time / 60, time % 60);
        let forms = [".", "h", "H", ""].map(|sign| format!("{hour:02}{sign}{minute:02}"));
        let bare = |text: &str| {
            text.split(|c: char| !c.is_ascii_digit())
                .any(|n| n.parse() == Ok(hour) || n.parse() == Ok(hour % 12))
        };
        seen().any(|text| {
            let has_form = || {
                forms.iter().any(|form| text.contains(form) || text.contains(form.trim_start_matches('0')))
            };
            clocks(text).into_iter().any(|known| known.may_be(stated))
                || has_form()
                || minute == 0 && bare(text)
        })
    };
    let names_row = |clause: &Clause<'_>| {
        let mut names = exchange.sources.records().flat_map(|(.., record)| names_of(record));
        names.any(|name| clause.has(&name))
    };
    let unknown =
        stated.into_iter().find(|(clause, time)| !is_known(*time) && (!has_gaps || names_row(clause)));
    if let Some((clause, time)) = unknown {
        let time = time.time;
        let returned = format!("other times, and nothing has {:02}:{:02}", time / 60, time % 60);
        outcome.contradicts(&returned, source.call, clause.sentence);
    }
}
