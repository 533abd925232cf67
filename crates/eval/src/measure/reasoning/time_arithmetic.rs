//! Arithmetic with dates, times and durations, for the numbers of an answer that follow from them.
//!
//! In: the texts of the evidence, and a number of an answer with its sentence. Out: whether the number follows: as a
//! difference of two dates or times in its unit ("47 minutes", "32 years"), as the sum of the times of a text taken as
//! durations (7:50 and 8:25), or as a time of day that is a known duration away from another one. The total of a
//! duration in two units ("6 hours 35 minutes") is computed for the caller, which compares it as one number. In a
//! language whose units are not known, a difference in minutes, hours or days supports the number.

use std::ops::Range;

use super::dates::{self, day_number};
use super::local_dates;
use crate::measure::numbers::{self, Number};

/// Maximum values in each list of dates, moments and times of day.
const MAX_MOMENTS: usize = 64;
/// Maximum dates and times of which every pair is compared with a number without a unit: among more values, some pair
/// gives almost any number.
const MAX_FOR_PAIRS: usize = 12;
/// The number of times after a time of a text that may belong to the same thing: a departure and its arrival.
const MAX_NEXT_TIMES: usize = 3;
/// Maximum differences of such times.
const MAX_GAPS: usize = 256;
/// Maximum months or years of a term.
const MAX_MONTHS: i64 = 60;
/// Maximum pairs of a time and a duration: among more pairs, some pair gives almost any time.
const MAX_TIME_PAIRS: usize = 300;
/// Maximum count of numbers that may be durations.
const MAX_NUMBERS: usize = 400;
/// The largest number that may be a duration: the minutes of a day.
const MAX_DURATION_NUMBER: f64 = 1440.0;
/// Seconds of each unit.
const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;
const YEAR: f64 = 365.25 * DAY;
const MINUTES_OF_DAY: i64 = 24 * 60;

regex!(CLOCK, r"\b(?P<h>[01]?\d|2[0-3]):(?P<m>[0-5]\d)(?::[0-5]\d)?(?:\.\d+)?(?: ?(?P<ap>[AaPp])\.?[Mm]\b)?");
regex!(
    DURATION,
    r"(?i)\b(?P<n>\d+(?:\.\d+)?)[ -]?(?P<u>seconds?|secs?|s|minutes?|mins?|min|hours?|hrs?|hr|h|days?|nights?|weeks?|months?|years?|yrs?)\b"
);
// Times of day in other languages, in forms that only times have: "14h30", "14.30 Uhr".
regex!(LOCAL_CLOCK, r"\b(?P<h>[01]?\d|2[0-3])(?:[hH](?P<m>[0-5]\d)\b|\.(?P<m2>[0-5]\d) ?(?:Uhr|[hH])\b)");
// A form that decimal numbers have as well, so that it is compared only with known times: "alle 14.30".
regex!(DOTTED_CLOCK, r"\b(?P<h>[01]?\d|2[0-3])[.](?P<m>[0-5]\d)\b");
// Words between the parts of one duration.
regex!(PART_SEPARATOR, r"(?i)^(?:,? and |, | )?$");

/// The dates and times of the evidence.
#[derive(Default)]
pub(super) struct EvidenceMoments {
    /// Days since an origin.
    days: Vec<i64>,
    /// Months since an origin.
    months: Vec<i64>,
    /// Minutes since the origin of the days.
    instants: Vec<i64>,
    /// Minutes of the day.
    times: Vec<i64>,
    /// The times of day of timestamps, in minutes.
    timestamp_times: Vec<i64>,
    /// Minutes between times that are near each other in a text.
    gaps: Vec<i64>,
    /// For each text, the sum of its times in minutes, since they may be durations.
    sums: Vec<i64>,
    /// Whole numbers that are not part of a date or time, and may be durations and terms.
    numbers: Vec<i64>,
}

impl EvidenceMoments {
    /// Adds the dates and times of a text.
    pub(super) fn read(&mut self, text: &str) {
        for date in dates::all(text).take(MAX_MOMENTS) {
            add(&mut self.days, date.day);
            add(&mut self.months, date.months());
            let after_date = text.get(date.at.end..).unwrap_or_default();
            let time = after_date.strip_prefix(['T', ' ']).and_then(|after_date| {
                let clock =
                    CLOCK.captures(after_date).filter(|clock| clock.get(0).is_some_and(|m| m.start() == 0));
                minutes(&clock?)
            });
            if let Some(time) = time {
                add(&mut self.instants, date.day * MINUTES_OF_DAY + time);
                add(&mut self.timestamp_times, time);
            }
        }
        for (year, month, day) in local_dates::all(text).take(MAX_MOMENTS) {
            add(&mut self.days, day_number(year, month, day));
            add(&mut self.months, year * 12 + month as i64 - 1);
        }
        let times: Vec<i64> =
            CLOCK.captures_iter(text).filter_map(|clock| minutes(&clock)).take(MAX_MOMENTS).collect();
        if times.len() > 1 {
            add(&mut self.sums, times.iter().sum());
        }
        let local = LOCAL_CLOCK.captures_iter(text).filter_map(|clock| minutes(&clock)).take(MAX_MOMENTS);
        for (at, time) in times.iter().enumerate() {
            add(&mut self.times, *time);
            for later in times.iter().skip(at + 1).take(MAX_NEXT_TIMES) {
                let gap = (later - time).rem_euclid(MINUTES_OF_DAY);
                if self.gaps.len() < MAX_GAPS && !self.gaps.contains(&gap) {
                    self.gaps.push(gap);
                }
            }
        }
        local.for_each(|time| add(&mut self.times, time));
        self.read_numbers(text);
    }

    /// Whether the number of a sentence follows from the dates and times.
    pub(super) fn supports(&self, sentence: &str, number: &Number) -> bool {
        if let Some(time) = clock_at(sentence, number) {
            return self.supports_time(time);
        }
        match durations(sentence).find(|duration| duration.has(number)) {
            Some(duration) => self.differ_by(&duration),
            None => self.supports_age(number) || self.supports_year(number),
        }
    }

    /// Whether the number is a difference of dates or times in minutes, hours or days, or a time of day, in a language
    /// whose units are not known. Of more than [`MAX_FOR_PAIRS`] times, only those near each other are compared.
    pub(super) fn supports_difference(&self, sentence: &str, number: &Number) -> bool {
        let within =
            |clock: &regex::Captures<'_>| clock.get(0).is_some_and(|m| m.range().contains(&number.start));
        let clock = DOTTED_CLOCK.captures_iter(sentence).find(within);
        if clock
            .and_then(|clock| minutes(&clock))
            .is_some_and(|time| self.timestamp_times.contains(&time) || self.supports_time(time))
        {
            return true;
        }
        let are_few = |moments: &[i64]| moments.len() <= MAX_FOR_PAIRS;
        let time_gaps = differences_of_pairs(&self.times).filter(|_| are_few(&self.times));
        let time_gaps =
            time_gaps.flat_map(|gap| [gap, MINUTES_OF_DAY - gap]).chain(self.gaps.iter().copied());
        let mut minutes =
            time_gaps.chain(differences_of_pairs(&self.instants).filter(|_| are_few(&self.instants)));
        let mut days = differences_of_pairs(&self.days).filter(|_| are_few(&self.days));
        // "2 Stunden 43 Minuten": the number may be minutes after a number of hours.
        let mut preceding = None;
        numbers::scan(sentence, |other| {
            if other.end <= number.start {
                preceding = Some(other.value);
            }
        });
        let hours = preceding.filter(|hours| hours.fract() == 0.0 && *hours < 48.0 && number.value < 60.0);
        let hours = hours.unwrap_or_default();
        let values: Vec<f64> = number.possible_values().collect();
        minutes.any(|gap| {
            let gap = gap as f64;
            values.iter().any(|n| {
                *n == gap || (n * 60.0 - gap).abs() <= number.tolerance * 60.0 || hours * 60.0 + n == gap
            })
        }) || days.any(|gap| values.iter().any(|n| (n - gap as f64).abs() <= 1.0))
    }

    /// Whether the number is a year in which a known term of months or years, from a known date, ends or begins.
    fn supports_year(&self, number: &Number) -> bool {
        let is_year = number.value.fract() == 0.0 && (1900.0..2100.0).contains(&number.value);
        if !is_year || self.months.len() > MAX_FOR_PAIRS {
            return false;
        }
        let first_month = number.value as i64 * 12;
        self.months.iter().any(|month| {
            let mut terms = (first_month..first_month + 12)
                .map(|end| (end - month).abs())
                .filter(|term| *term <= MAX_MONTHS);
            terms.any(|term| {
                term > 0 && (self.has_number(term) || term % 12 == 0 && self.has_number(term / 12))
            })
        })
    }

    /// Whether a time of day is known, or a known number of minutes or hours away from a known one.
    fn supports_time(&self, time: i64) -> bool {
        self.times.iter().chain(&self.timestamp_times).any(|known_time| {
            let gap = (time - known_time).rem_euclid(MINUTES_OF_DAY);
            let is_known = |term: i64| self.has_number(term) || term % 60 == 0 && self.has_number(term / 60);
            gap == 0 || is_known(gap) || is_known(MINUTES_OF_DAY - gap)
        })
    }

    /// Whether the date or time of day in a text is known, or is a known number of days, minutes or hours away from a
    /// known one.
    pub(super) fn supports_text(&self, text: &str) -> bool {
        if let Some(date) = dates::all(text).next() {
            let is_term = |term: i64| term == 0 || term > 1 && self.has_number(term);
            return self.days.iter().any(|day| is_term((day - date.day).abs()));
        }
        CLOCK.captures(text).and_then(|clock| minutes(&clock)).is_some_and(|time| self.supports_time(time))
    }

    /// Whether two dates or times differ by this duration, or the times of a text have it as their sum.
    fn differ_by(&self, duration: &StatedDuration) -> bool {
        let has = |unit: f64| {
            // Months and years may be rounded down or to the nearest; a count of days may include both ends.
            let (less, more) = match duration.unit {
                unit if unit >= 28.0 * DAY => (0.5, 1.0),
                DAY => (1.0, 1.0),
                _ => (0.5, 0.5),
            };
            let (low, high) =
                (duration.seconds - less * duration.unit, duration.seconds + more * duration.unit);
            move |gap: i64| (low..=high).contains(&(gap as f64 * unit))
        };
        match duration.unit < DAY {
            true => {
                let differences =
                    differences_of_pairs(&self.instants).chain(differences_of_pairs(&self.times));
                differences.chain(self.sums.iter().copied()).any(has(MINUTE))
            }
            false => differences_of_pairs(&self.days).any(has(DAY)),
        }
    }

    /// Whether the number is the full years between two dates, such as an age.
    fn supports_age(&self, number: &Number) -> bool {
        let is_age = |days: i64| (days as f64 * DAY / YEAR).floor() == number.value;
        !number.fractional && self.days.len() <= MAX_FOR_PAIRS && differences_of_pairs(&self.days).any(is_age)
    }

    /// Whether the times and durations are so numerous that their combinations give almost any time.
    pub(super) fn are_too_many(&self) -> bool {
        self.times.len() * self.numbers.len() > MAX_TIME_PAIRS
    }

    fn has_number(&self, number: i64) -> bool {
        self.numbers.contains(&number)
    }

    /// The numbers that may be terms of months or years.
    pub(super) fn terms(&self) -> impl Iterator<Item = i64> + Clone + '_ {
        self.numbers.iter().copied().filter(|n| *n <= MAX_MONTHS)
    }

    /// Adds the whole numbers of a text that are in none of its dates and times.
    fn read_numbers(&mut self, text: &str) {
        let ranges =
            dates::all(text).map(|date| date.at).chain(CLOCK.find_iter(text).map(|clock| clock.range()));
        let mut ranges: Vec<Range<usize>> = ranges.take(MAX_NUMBERS).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let is_in = |at: usize| {
            let before = ranges.partition_point(|range| range.start <= at).checked_sub(1);
            before.and_then(|i| ranges.get(i)).is_some_and(|range| range.contains(&at))
        };
        numbers::scan(text, |n| {
            let is_plain =
                n.value.fract() == 0.0 && n.value > 0.0 && n.value <= MAX_DURATION_NUMBER && !n.in_identifier;
            if is_plain
                && self.numbers.len() < MAX_NUMBERS
                && !is_in(n.start)
                && !self.has_number(n.value as i64)
            {
                self.numbers.push(n.value as i64);
            }
        });
    }
}

fn add(values: &mut Vec<i64>, value: i64) {
    if values.len() < MAX_MOMENTS && !values.contains(&value) {
        values.push(value);
    }
}

/// The absolute differences of all pairs of values.
fn differences_of_pairs(values: &[i64]) -> impl Iterator<Item = i64> + '_ {
    values.iter().enumerate().flat_map(|(i, a)| values.iter().skip(i + 1).map(move |b| (a - b).abs()))
}

/// The minutes of the day of a time.
fn minutes(clock: &regex::Captures<'_>) -> Option<i64> {
    let hour: i64 = clock.name("h")?.as_str().parse().ok()?;
    let minute: i64 = clock.name("m").or_else(|| clock.name("m2"))?.as_str().parse().ok()?;
    let hour = match clock.name("ap").map(|half| half.as_str()) {
        Some("p" | "P") if hour < 12 => hour + 12,
        Some("a" | "A") if hour == 12 => 0,
        _ => hour,
    };
    Some(hour * 60 + minute)
}

/// The time of day that a number of a sentence is part of.
pub(super) fn clock_at(sentence: &str, number: &Number) -> Option<i64> {
    let within =
        |clock: &regex::Captures<'_>| clock.get(0).is_some_and(|m| m.range().contains(&number.start));
    minutes(&CLOCK.captures_iter(sentence).find(within)?)
}

/// A duration of a sentence.
pub(super) struct StatedDuration {
    start: usize,
    end: usize,
    seconds: f64,
    /// The smallest unit, in seconds.
    unit: f64,
    /// Whether the duration has several units.
    is_compound: bool,
}

impl StatedDuration {
    pub(super) fn has(&self, number: &Number) -> bool {
        (self.start..self.end).contains(&number.start)
    }

    /// The total in its smallest unit as one number, if it has several units.
    pub(super) fn total(&self, number: &Number) -> Option<Number> {
        let value = (self.seconds / self.unit).round();
        let tolerance = 0.5;
        self.is_compound.then_some(Number {
            value,
            alternative: None,
            bare: None,
            tolerance,
            fractional: false,
            ..*number
        })
    }
}

/// The durations of a sentence; parts in descending units are one.
pub(super) fn durations(sentence: &str) -> impl Iterator<Item = StatedDuration> {
    let mut out: Vec<StatedDuration> = Vec::new();
    for found in DURATION.captures_iter(sentence).take(MAX_MOMENTS) {
        let (Some(whole), Some(n), Some(name)) = (found.get(0), found.name("n"), found.name("u")) else {
            continue;
        };
        let Ok(n) = n.as_str().parse::<f64>() else { continue };
        let unit = unit(name.as_str());
        let part = StatedDuration {
            start: whole.start(),
            end: whole.end(),
            seconds: n * unit,
            unit,
            is_compound: false,
        };
        let joined = out.last_mut().filter(|last| {
            last.unit > unit
                && sentence.get(last.end..part.start).is_some_and(|gap| PART_SEPARATOR.is_match(gap))
        });
        match joined {
            Some(last) => {
                *last = StatedDuration {
                    start: last.start,
                    seconds: last.seconds + part.seconds,
                    is_compound: true,
                    ..part
                };
            }
            None => out.push(part),
        }
    }
    out.into_iter()
}

/// The seconds of a unit.
fn unit(name: &str) -> f64 {
    match name.to_ascii_lowercase().as_bytes() {
        [b's', ..] => 1.0,
        [b'm', b'o', ..] => YEAR / 12.0,
        [b'm', ..] => MINUTE,
        [b'h', ..] => HOUR,
        [b'w', ..] => 7.0 * DAY,
        [b'y', ..] => YEAR,
        _ => DAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether all numbers of the sentence follow from the texts.
    fn follows(texts: &[&str], sentence: &str) -> bool {
        let mut moments = EvidenceMoments::default();
        texts.iter().for_each(|text| moments.read(text));
        numbers::all(sentence).iter().all(|n| moments.supports(sentence, n))
    }

    #[test]
    fn differences_ages_and_shifted_times_follow() {
        for (texts, sentence) in [
            (&["2025-12-04T13:45:00Z", "2025-12-04T14:32:00Z"][..], "It lasted 47 minutes."),
            (&["2025-12-03 22:10", "2025-12-04 02:40"], "The job ran for 4.5 hours."),
            (&["from 09:15 until 11:00"], "The visit takes 1 hour 45 minutes."),
            (&["due 2025-10-20", "today 2025-12-04"], "It is 45 days late."),
            (&["born 1992-12-15", "2025-12-04"], "He is 32."),
            (&["signed on 1 March 2021", "2025-12-04"], "The contract is 4 years old."),
            (&["starts 14:45, 50 min"], "It ends at 15:35."),
            (&["starts 11:30 pm, 90 min"], "It ends at 1:00 am."),
            (&["from 2024-03-01 for 24 months"], "It ends in spring 2026."),
        ] {
            assert!(follows(texts, sentence), "{sentence}");
        }
    }

    #[test]
    fn other_differences_and_times_do_not() {
        for (texts, sentence) in [
            (&["2025-12-04T13:45:00Z", "2025-12-04T14:32:00Z"][..], "It lasted 74 minutes."),
            (&["due 2025-10-20", "today 2025-12-04"], "It is 54 days late."),
            (&["born 1992-12-15", "2025-12-04"], "He is 23."),
            (&["starts 14:45, 50 min"], "It ends at 15:53."),
            (&["from 09:15 until 11:00"], "The visit takes 2 hours 45 minutes."),
            (&["from 2024-03-01 for 24 months"], "It ends in spring 2028."),
            (&["from 2024-03-02 at 02:00"], "It ends in spring 2026."),
            (&["starts 2025-03-02 14:45"], "It ends at 16:45."),
        ] {
            assert!(!follows(texts, sentence), "{sentence}");
        }
    }

    #[test]
    fn differences_follow_where_words_are_not_read() {
        let follows = |texts: &[&str], sentence: &str| {
            let mut moments = EvidenceMoments::default();
            texts.iter().for_each(|text| moments.read(text));
            numbers::all(sentence)
                .iter()
                .filter(|n| n.value > 20.0 || n.fractional)
                .all(|n| moments.supports_difference(sentence, n))
        };
        let trip = &["08:03 10:46"][..];
        for (texts, sentence) in [
            (trip, "Die Fahrt dauert 163 Minuten."),
            (trip, "Die Fahrt dauert 2 Stunden und 43 Minuten."),
            (trip, "Le trajet dure 2,7 heures."),
            (trip, "Il treno arriva alle 10.46."),
            (&["2025-12-04T14:30"], "Ihr Termin ist um 14.30 Uhr."),
            (&["23:10", "00:40"], "飛行時間は90分です。"),
            (&["2025-12-01 08:00", "2025-12-02 11:00"], "Der Lauf dauerte 27 Stunden."),
            (&["Hoy es 2025-12-04.", "2026-01-20"], "Faltan 47 días."),
            (&["14.30 Uhr", "15h45"], "Das sind 75 Minuten."),
            (&["Oggi è il 4 dicembre 2025.", r#"{"fine":"15/02/2026"}"#], "Mancano 73 giorni."),
        ] {
            assert!(follows(texts, sentence), "{sentence}");
        }
        for (texts, sentence) in [
            (trip, "Die Fahrt dauert 136 Minuten."),
            (trip, "Die Fahrt dauert 2 Stunden und 34 Minuten."),
            (trip, "Le trajet dure 3,4 heures."),
            (trip, "Il treno arriva alle 11.46."),
            (&["2025-12-04", "2026-01-20"], "Faltan 74 días."),
        ] {
            assert!(!follows(texts, sentence), "{sentence}");
        }
    }

    #[test]
    fn duration_in_two_units_is_one_number() {
        let total = |sentence: &str| {
            let number = numbers::all(sentence)[0];
            durations(sentence).find(|d| d.has(&number)).and_then(|d| d.total(&number)).map(|n| n.value)
        };
        assert_eq!(total("6 hours 35 minutes"), Some(395.0));
        assert_eq!(total("1h 45min"), Some(105.0));
        assert_eq!(total("2 days and 3 hours"), Some(51.0));
        assert_eq!(total("35 minutes"), None);
    }
}
