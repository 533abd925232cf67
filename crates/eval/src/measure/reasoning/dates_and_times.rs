//! Days, times and weekdays in a request or in the arguments of a call, in numeric forms and by their names.
//!
//! In: a text. Out: its days, times and weekdays; whether it counts from a day or time, sets a limit, or has a time
//! zone; and the date of today in instructions.

use std::ops::Range;

use super::dates::{self, day_number};
use super::local_dates;
use crate::measure::excerpt::clip_end;
use crate::measure::language::Language;
use crate::measure::language::names::{self, month_pattern};
use crate::measure::numbers::{self, Number};

regex!(
    DAY,
    &format!(
        r"(?i)\b(?:(?P<y>\d{{4}})-(?P<m>\d{{2}})-(?P<d>\d{{2}})|{day}(?P<m1>{any})(?:,? (?:de |del )?(?P<y1>\d{{4}}))?|(?P<m2>{english})\.? (?P<d1>\d{{1,2}})(?:st|nd|rd|th)?)(?:T|\b)",
        day = dates::DAY,
        english = month_pattern(&[Language::English]),
        any = month_pattern(&Language::ALL),
    )
);
regex!(
    TIME,
    r"(?:^|[^\d:.-])(?P<h>\d{1,2}):(?P<m>\d{2})(?::\d{2})?(?: ?(?P<ap>[AaPp])\.?[Mm]\b)?|\b(?P<h2>\d{1,2}) ?(?P<ap2>[AaPp])\.?[Mm]\b"
);
// A time of day in forms of other languages: "17h25", "17.25 Uhr", "17時半".
regex!(
    LOCAL_CLOCK,
    r"(?i)(?:^|[^\d:.])(?P<h>\d{1,2}) ?(?:h|[.:](?P<m2>\d{2}) ?(?:uhr|h\b)) ?(?P<m>\d{2})?\b|(?P<ch>\d{1,2})[時点](?:(?P<half>半)|(?P<cm>\d{1,2})分)"
);
// A day of a month in figures, without the year: "5月22日", "22.5.".
regex!(
    LOCAL_DAY,
    r"(?P<m>\d{1,2})月(?P<d>\d{1,2})[日号]|(?:^|[^\d.])(?P<d1>\d{1,2})\.(?P<m1>\d{1,2})\.(?:[^\d]|$)"
);
regex!(WEEKDAY, r"(?i)\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b");
// Not "tonight", since "tonight at 1 am" is on the next day.
regex!(NAMED_DAY, r"(?i)\b(?:(?P<today>today)|tomorrow)\b(?P<owns>['’]s)?");
// Words before the date of today in instructions.
regex!(
    TODAY,
    r"(?i)(?:\b(?:today(?:['’]s date)?|now|current (?:date|day|time|date and time))|(?:^|\n)date)(?: is| =|:)? ?(?:it is )?(?:\w+day,? )?(?:the )?$"
);
// A time with its offset from UTC, which may be on another day locally.
regex!(ZONED, r"\d(?:Z|[+-]\d{2}:?\d{2})\b|(?i)\b(?:utc|gmt|time ?zone|timezone)\b");
// The name of a zone after a time: "3 pm Berlin time", "9:00 ET".
regex!(ZONE_AFTER, r"^ ?\(?(?:(?:[\w'’.-]+ ){1,2}time\b|[A-Z]{2,4}\b)");
regex!(
    RELATIVE,
    r"(?i)\b(?:before|after|prior|earlier|later|eve|following|until|till|since|by|ago|or|if|instead|except|every|each|not|around|about|between|days?|weeks?|months?|hours?|minutes?|nights?|early|late|midnight|deadline|due|previous|again|moved?|reschedul\w+|postpon\w+|chang\w+|was|remind\w*)\b|n't\b"
);
// The duration of a thing: "for two nights", "a 30-minute call".
regex!(
    DURATION,
    r"(?i)\bfor (?P<n>\d+(?:\.5)?|an?|[a-z]+) ?(?P<u>minutes?|mins?|hours?|hrs?|h|days?|nights?|weeks?)\b|\b(?P<n2>\d+)-(?P<u2>minute|min|hour|day|night|week)\b"
);
/// The English abbreviations of the months.
pub(super) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// The English names of the weekdays without "day", from Monday.
pub(super) const WEEKDAYS: [&str; 7] = ["mon", "tues", "wednes", "thurs", "fri", "satur", "sun"];
/// Bytes before a date that are searched for [`TODAY`].
const MAX_BYTES_BEFORE: usize = 40;
/// The first minute of the day that has only one reading without "am" or "pm": 13:00.
const UNAMBIGUOUS_FROM: u32 = 13 * 60;

/// A day of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Day {
    pub(super) year: Option<i64>,
    pub(super) month: usize,
    pub(super) day: usize,
}

impl Day {
    /// Whether both may be the same day: a missing year equals any year.
    pub(super) fn may_equal(self, other: Day) -> bool {
        let same_year = self.year.zip(other.year).is_none_or(|(a, b)| a == b);
        (self.month, self.day) == (other.month, other.day) && same_year
    }

    /// The day of the week, from 0 for Monday, if the year is known.
    pub(super) fn weekday(self) -> Option<usize> {
        let monday = day_number(2024, 1, 1);
        usize::try_from((self.number()? - monday).rem_euclid(7)).ok()
    }

    /// Days since an origin, if the year is known.
    fn number(self) -> Option<i64> {
        Some(day_number(self.year?, self.month, self.day))
    }

    /// The number of days from this day to another day; a day without a year is taken to be in the year of the other
    /// one.
    pub(super) fn days_until(self, other: Day) -> i64 {
        let year = self.year.or(other.year).unwrap_or(2024);
        let number = |day: Day| day_number(day.year.unwrap_or(year), day.month, day.day);
        number(other) - number(self)
    }

    /// The day for a rationale: "16 Jun".
    pub(super) fn shown(self) -> String {
        format!("{} {}", self.day, MONTHS.get(self.month.wrapping_sub(1)).unwrap_or(&""))
    }

    /// The day after this one; `None` if the year is not known.
    fn next(self) -> Option<Day> {
        let (year, month) = (self.year?, self.month);
        let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        let is_last = day_number(next_year, next_month, 1) == self.number()? + 1;
        Some(match is_last {
            true => Day { year: Some(next_year), month: next_month, day: 1 },
            false => Day { day: self.day + 1, ..self },
        })
    }
}

/// A time of day, with whether its half of the day is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Clock {
    /// Minutes of the day.
    pub(super) time: u32,
    /// Whether the time has "am" or "pm".
    has_half_of_day: bool,
}

impl Clock {
    /// Whether both may be the same time: a time before 13:00 without "am" or "pm" may be in both halves of the day.
    pub(super) fn may_equal(self, other: Clock) -> bool {
        let is_ambiguous = |clock: Clock| !clock.has_half_of_day && clock.time < UNAMBIGUOUS_FROM;
        self.time == other.time
            || (is_ambiguous(self) || is_ambiguous(other)) && self.time % 720 == other.time % 720
    }
}

/// A value in a text, with its byte range.
pub(super) type Located<T> = (T, Range<usize>);

fn located_days(text: &str) -> impl Iterator<Item = Located<Day>> {
    DAY.captures_iter(text).filter_map(|captures| {
        let group =
            |names: [&str; 3]| names.iter().find_map(|name| captures.name(name)).map(|group| group.as_str());
        let month = group(["m", "m1", "m2"])?;
        let named = || names::written_month(month);
        let month = month.parse().ok().or_else(named).filter(|month| (1..=12).contains(month))?;
        let day = group(["d", "d1", "d2"])?.parse().ok().filter(|day| (1..=31).contains(day))?;
        let year = group(["y", "y1", "y"]).and_then(|year| year.parse().ok());
        Some((Day { year, month, day }, captures.get(0)?.range()))
    })
}

/// The days that a text names.
pub(super) fn days(text: &str) -> Vec<Day> {
    distinct(located_days(text).map(|(day, _)| day))
}

/// The days that a request names, with those of "today" and "tomorrow" if today is known. `None` if the day belongs to
/// another thing: "today's meeting".
pub(super) fn days_of_request(text: &str, today: impl FnOnce() -> Option<Day>) -> Option<Vec<Located<Day>>> {
    let mut out: Vec<Located<Day>> = located_days(text).collect();
    let mut named = NAMED_DAY.captures_iter(text).peekable();
    if named.peek().is_some() {
        let today = today();
        for captures in named {
            let day = match captures.name("today") {
                Some(_) => today,
                None => today.and_then(Day::next),
            };
            if captures.name("owns").is_some() {
                return None;
            }
            out.extend(day.zip(captures.get(0).map(|whole| whole.range())));
        }
    }
    let mut unique_days: Vec<Located<Day>> = Vec::new();
    for (day, at) in out {
        if !unique_days.iter().any(|(other, _)| other.may_equal(day)) {
            unique_days.push((day, at));
        }
    }
    Some(unique_days)
}

/// Whether a text may name a day, a weekday or a time.
pub(super) fn may_name_moment(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit()) || WEEKDAY.is_match(text) || NAMED_DAY.is_match(text)
}

/// The times of day that a text names, as they are written.
pub(super) fn located_clocks(text: &str) -> Vec<Located<Clock>> {
    let read_clock = |captures: regex::Captures<'_>| {
        let first = captures.name("h").or_else(|| captures.name("h2"))?;
        let hour: u32 = first.as_str().parse().ok()?;
        let minute: u32 = captures.name("m").map_or(Some(0), |minute| minute.as_str().parse().ok())?;
        let half = captures.name("ap").or_else(|| captures.name("ap2")).map(|half| half.as_str());
        let hour = match half {
            Some("p" | "P") => hour % 12 + 12,
            Some(_) => hour % 12,
            None => hour,
        };
        let clock = Clock { time: hour * 60 + minute, has_half_of_day: half.is_some() };
        (hour < 24 && minute < 60)
            .then(|| (clock, first.start()..captures.get(0).map_or(0, |whole| whole.end())))
    };
    TIME.captures_iter(text).filter_map(read_clock).collect()
}

/// The times of day that a text names, as they are written.
pub(super) fn clocks(text: &str) -> Vec<Clock> {
    distinct(located_clocks(text).into_iter().map(|(clock, _)| clock))
}

/// The times of day of a text, also in the forms of other languages if it is not in English.
pub(super) fn clocks_in(text: &str, is_english: bool) -> Vec<Clock> {
    let mut out = clocks(text);
    if !is_english && out.is_empty() {
        let local = LOCAL_CLOCK.captures_iter(text).filter_map(|captures| {
            let group =
                |names: [&str; 3]| names.iter().find_map(|name| captures.name(name)).map(|g| g.as_str());
            let minute = if captures.name("half").is_some() { "30" } else { group(["m2", "m", "cm"])? };
            clocks(&format!("{}:{minute:0>2}", group(["h", "ch", "h"])?)).first().copied()
        });
        out = distinct(local);
    }
    out
}

/// The days of a text in any form: by the name of the month, or in figures with or without a year.
pub(super) fn days_in(text: &str) -> Vec<Day> {
    let local = LOCAL_DAY.captures_iter(text).filter_map(|captures| {
        let number =
            |names: [&str; 2]| names.iter().find_map(|name| captures.name(name))?.as_str().parse().ok();
        let (month, day): (usize, usize) = (number(["m", "m1"])?, number(["d", "d1"])?);
        ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some(Day { year: None, month, day })
    });
    let with_year = local_dates::all(text).map(|(year, month, day)| Day { year: Some(year), month, day });
    let named = located_days(text).map(|(day, _)| day);
    let mut out: Vec<Day> = Vec::new();
    for day in named.chain(with_year).chain(local) {
        if !out.iter().any(|other| other.may_equal(day)) {
            out.push(day);
        }
    }
    out
}

/// The numbers of a text that are neither in an identifier nor part of a day or a time.
pub(super) fn numbers_outside_moments(text: &str) -> Vec<Number> {
    let mut moments: Vec<Range<usize>> = located_days(text).map(|(_, at)| at).collect();
    moments.extend(located_clocks(text).into_iter().map(|(_, at)| at));
    moments.extend(LOCAL_DAY.find_iter(text).map(|found| found.range()));
    let is_in_moment = |n: &Number| moments.iter().any(|at| at.start <= n.start && n.start < at.end);
    let is_quantity = |n: &Number| !n.in_identifier && !dates::begins_with_month(text.get(n.end..));
    numbers::all(text).into_iter().filter(|n| is_quantity(n) && !is_in_moment(n)).collect()
}

/// The times of day that a text names, in minutes.
pub(super) fn times(text: &str) -> Vec<u32> {
    distinct(located_clocks(text).into_iter().map(|(clock, _)| clock.time))
}

/// The days of the week that a text names, from 0 for Monday.
pub(super) fn weekdays(text: &str) -> Vec<Located<usize>> {
    let read_weekday = |captures: regex::Captures<'_>| {
        let name = captures.get(1)?.as_str().to_ascii_lowercase();
        Some((WEEKDAYS.iter().position(|weekday| *weekday == name)?, captures.get(0)?.range()))
    };
    let mut out: Vec<Located<usize>> = Vec::new();
    for (day, at) in WEEKDAY.captures_iter(text).filter_map(read_weekday) {
        if !out.iter().any(|(other, _)| *other == day) {
            out.push((day, at));
        }
    }
    out
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut unique_items, item| {
        if !unique_items.contains(&item) {
            unique_items.push(item);
        }
        unique_items
    })
}

/// The date of today in instructions; `None` if they have none, or several.
pub(super) fn today<'t>(texts: impl Iterator<Item = &'t str>) -> Option<Day> {
    let today_in_text = |text: &'t str| {
        dates::all(text).filter_map(move |date| {
            let is_today = TODAY.is_match(clip_end(text.get(..date.at.start)?, MAX_BYTES_BEFORE));
            is_today.then_some(Day { year: Some(date.year), month: date.month, day: date.day_of_month })
        })
    };
    let dates_of_today = distinct(texts.flat_map(today_in_text));
    match dates_of_today.as_slice() {
        [day] => Some(*day),
        _ => None,
    }
}

/// A request in which lengths such as "for two nights" are blanked, and these lengths in minutes.
pub(super) fn without_lengths(text: &str) -> (String, Vec<i64>) {
    let mut lengths = Vec::new();
    let mut out = text.to_owned();
    for captures in DURATION.captures_iter(text) {
        let group = |names: [&str; 2]| names.iter().find_map(|name| captures.name(name)).map(|g| g.as_str());
        let (Some(n), Some(unit), Some(whole)) = (group(["n", "n2"]), group(["u", "u2"]), captures.get(0))
        else {
            continue;
        };
        let n = n.to_ascii_lowercase();
        let spelled = || (1..=20).find(|number| numbers::is_spelled(*number, &n)).map(|n| n as f64);
        let article = || matches!(&*n, "a" | "an").then_some(1.0);
        let Some(n) = n.parse::<f64>().ok().or_else(article).or_else(spelled) else { continue };
        let minutes = match unit.as_bytes() {
            [b'm' | b'M', ..] => 1.0,
            [b'h' | b'H', ..] => 60.0,
            [b'w' | b'W', ..] => 7.0 * 1440.0,
            _ => 1440.0,
        };
        lengths.push((n * minutes) as i64);
        out.replace_range(whole.range(), &" ".repeat(whole.len()));
    }
    (out, lengths)
}

/// Whether a text counts from a day or time, sets a limit, or has a time zone.
pub(super) fn is_relative(text: &str) -> bool {
    RELATIVE.is_match(text) || ZONED.is_match(text)
}

/// Whether a text has times with an offset from UTC, or mentions a time zone.
pub(super) fn is_zoned(text: &str) -> bool {
    ZONED.is_match(text)
}

/// Whether the text after a time begins with the name of a time zone.
pub(super) fn begins_with_zone(after: &str) -> bool {
    ZONE_AFTER.is_match(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(year: i64, month: usize, day: usize) -> Day {
        Day { year: Some(year), month, day }
    }

    #[test]
    fn today_is_read_from_instructions() {
        for text in [
            "Today is 2025-12-04.",
            "You help guests. Today is Thursday, 4 December 2025.",
            "Current date: December 4, 2025",
            "Today's date is 2025-12-04 and the shop opens at 9.",
            "now: 2025-12-04T09:00:00",
            "Date: 2025-12-04\nUser: Ana",
        ] {
            assert_eq!(today([text].into_iter()), Some(day(2025, 12, 4)), "{text}");
        }
        for text in [
            "The shop opened on 2025-12-04.",
            "The release date is 2025-12-04.",
            "Valid from now until 2025-12-04.",
            "Be brief today.",
            "Today is Thursday.",
            "",
        ] {
            assert_eq!(today([text].into_iter()), None, "{text}");
        }
        let two = ["Today is 2025-12-04.", "Today is 2025-12-05."];
        assert_eq!(today(two.into_iter()), None);
    }

    #[test]
    fn tomorrow_is_the_day_after_today() {
        let days_in = |text: &str, today: Day| {
            let days = days_of_request(text, || Some(today));
            days.map(|days| days.into_iter().map(|(day, _)| day).collect::<Vec<_>>())
        };
        assert_eq!(days_in("a table for tomorrow", day(2025, 12, 31)), Some(vec![day(2026, 1, 1)]));
        assert_eq!(days_in("a table for tomorrow", day(2024, 2, 28)), Some(vec![day(2024, 2, 29)]));
        assert_eq!(days_in("tomorrow, 5 December", day(2025, 12, 4)).map(|days| days.len()), Some(1));
        assert_eq!(days_in("for tomorrow's meeting", day(2025, 12, 4)), None);
    }

    #[test]
    fn half_of_the_day_decides_where_it_is_written() {
        let may_be = |a: &str, b: &str| clocks(a)[0].may_equal(clocks(b)[0]);
        for (a, b) in [("17:15", "5:15 pm"), ("17:15", "5:15"), ("5:15", "5:15 pm"), ("00:30", "12:30 am")] {
            assert!(may_be(a, b) && may_be(b, a), "{a} {b}");
        }
        for (a, b) in [("17:15", "5:15 am"), ("5:15 pm", "5:15 am"), ("17:15", "17:30")] {
            assert!(!may_be(a, b) && !may_be(b, a), "{a} {b}");
        }
    }

    #[test]
    fn lengths_are_no_moments() {
        let (text, lengths) = without_lengths("A 30-minute call, a table for two hours, a room for 3 nights");
        assert!(!is_relative(&text), "{text}");
        assert_eq!(lengths, [30, 120, 3 * 1440]);
        assert!(is_relative(&without_lengths("two hours before 15:00").0));
    }
}
