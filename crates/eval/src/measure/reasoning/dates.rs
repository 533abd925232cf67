//! Dates in texts: numeric, with the name of the month in any language ("9 Sep 2025", "9 de septiembre de 2025"), or as
//! programs print them ("Sep  9 16:40:03 2025").
//!
//! In: a text. Out: its dates, with day numbers that can be subtracted; also the forms of a date without its year.

use std::ops::Range;

use crate::measure::excerpt::lowercase;
use crate::measure::language::Language;
use crate::measure::language::names::{self, month_pattern};

regex!(
    DATE,
    &format!(
        r"(?i)\b(?:(?P<m1>{english})\.? {{1,2}}(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?,? (?:\d{{2}}:\d{{2}}:\d{{2}} (?:[a-z]{{3,4}} )?)?(?P<y1>\d{{4}})|{DAY}(?P<m2>{any})\.?,? (?:de |del )?(?P<y2>\d{{4}})|(?P<y3>\d{{4}})-(?P<m3>\d{{2}})-(?P<d3>\d{{2}}))(?:T|\b)",
        english = month_pattern(&[Language::English]),
        any = month_pattern(&Language::ALL),
    )
);

regex!(
    WITHOUT_YEAR,
    &format!(
        r"(?i)\b(?:(?P<m1>{english})\.? (?P<d1>\d{{1,2}})(?:st|nd|rd|th)?|{DAY}(?P<m2>{any}))\b",
        english = month_pattern(&[Language::English]),
        any = month_pattern(&Language::ALL),
    )
);
/// A pattern of the day of the month before the name of the month.
pub(super) const DAY: &str = r"(?P<d2>\d{1,2})(?:st|nd|rd|th|er|º)?\.? (?:of |de |d[ei]l? )?";

/// A date of a text.
#[derive(Clone)]
pub(super) struct Date {
    /// The byte range of the date in the text.
    pub at: Range<usize>,
    pub year: i64,
    pub month: usize,
    pub day_of_month: usize,
    /// The number of the day, see [`day_number`].
    pub day: i64,
}

/// The dates of a text.
pub(super) fn all(text: &str) -> impl Iterator<Item = Date> {
    DATE.captures_iter(text).filter_map(|date| {
        let group = |names: [&str; 3]| names.iter().find_map(|n| date.name(n)).map(|m| m.as_str());
        let (month, day) = (lowercase(group(["m1", "m2", "m3"])?), group(["d1", "d2", "d3"])?);
        let month = month.parse::<usize>().ok().or_else(|| names::month_of(&month))?;
        let day_of_month = day.parse::<usize>().ok()?;
        let year = group(["y1", "y2", "y3"])?.parse::<i64>().ok()?;
        MONTHS.get(month.checked_sub(1)?)?;
        let whole = date.get(0)?;
        Some(Date {
            // The "T" of a timestamp is not part of its date.
            at: whole.start()..whole.end() - usize::from(whole.as_str().ends_with('T')),
            year,
            month,
            day_of_month,
            day: day_number(year, month, day_of_month),
        })
    })
}

/// The months and days of a text with the name of the month, with a year or without one.
pub(super) fn without_year(text: &str) -> impl Iterator<Item = (usize, usize)> {
    WITHOUT_YEAR.captures_iter(text).filter_map(|captures| {
        let month = lowercase(captures.name("m1").or_else(|| captures.name("m2"))?.as_str());
        let day = captures.name("d1").or_else(|| captures.name("d2"))?.as_str().parse().ok()?;
        Some((names::month_of(&month)?, day))
    })
}

/// Whether the text after a number begins with the name of a month in any language, so that the number is a day of the
/// month: "9 December", "9. Dezember", "9 de diciembre".
pub(super) fn begins_with_month(text: Option<&str>) -> bool {
    month_after(text).is_some()
}

/// The number, from 1, of the month whose name begins the text after a number.
pub(super) fn month_after(text: Option<&str>) -> Option<usize> {
    let words = text.unwrap_or_default().trim_start_matches(['.', ' ']).split(|c: char| !c.is_alphabetic());
    let mut words = words.skip_while(|word| ["de", "di"].contains(word));
    let word = words.next().filter(|word| word.len() > 2)?;
    names::month_of(&lowercase(word))
}

/// The year of a day number. Days near the turn of a year may have the adjacent year.
pub(super) fn year_of_day(day: i64) -> i64 {
    const DAYS: f64 = 365.2425;
    (day as f64 / DAYS) as i64
}

/// The year of a time in nanoseconds since 1970, if the clock was set.
pub(super) fn year_of(time: u64) -> Option<i64> {
    const YEAR: u64 = 31_556_952_000_000_000;
    // An unset clock begins in 1970.
    i64::try_from(1970 + time / YEAR).ok().filter(|year| *year > 2000)
}

/// The weekday of a day number, from 0 for Monday.
pub(super) fn weekday(day: i64) -> usize {
    usize::try_from((day + 1).rem_euclid(7)).unwrap_or_default()
}

/// The number of days in the Gregorian calendar up to this date, from a fixed origin.
pub(super) fn day_number(year: i64, month: usize, day: usize) -> i64 {
    // The year is taken to begin in March, so that a leap day is the last day of a year.
    let (month, day) = (month as i64, day as i64);
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
}

impl Date {
    /// Months since the year 0.
    pub(super) fn months(&self) -> i64 {
        self.year * 12 + self.month as i64 - 1
    }

    /// The ordinal of the day, the month and the year, in lower case: "the 6th" of a text about June 1931.
    pub(super) fn parts(&self) -> [String; 3] {
        let month = self.month.checked_sub(1).and_then(|i| MONTHS.get(i)).copied().unwrap_or_default();
        let ending = match self.day_of_month {
            1 | 21 | 31 => "st",
            2 | 22 => "nd",
            3 | 23 => "rd",
            _ => "th",
        };
        [format!(" {}{ending}", self.day_of_month), month.to_owned(), self.year.to_string()]
    }

    /// The forms of the date without its year, in lower case.
    pub(super) fn forms_without_year(&self) -> Vec<String> {
        let (month, day) = (self.month, self.day_of_month);
        let name = month.checked_sub(1).and_then(|i| MONTHS.get(i)).copied().unwrap_or_default();
        let short = name.get(..3).unwrap_or(name);
        let write = |form: &str, name: &str| {
            let form = form.replace("MM", &format!("{month:02}")).replace("DD", &format!("{day:02}"));
            form.replace('M', &month.to_string()).replace('D', &day.to_string()).replace('N', name)
        };
        let named = [name, short].map(|name| NAMED_DATE_FORMS.map(|form| write(form, name)));
        DATE_FORMS.map(|form| write(form, short)).into_iter().chain(named.into_iter().flatten()).collect()
    }
}

/// The English names of the months, in lower case.
pub(super) const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// The day of the month in a month, which is counted since the year 0.
pub(super) fn day_in_month(months: i64, day_of_month: usize) -> i64 {
    let month = usize::try_from(months.rem_euclid(12)).unwrap_or_default() + 1;
    day_number(months.div_euclid(12), month, day_of_month)
}

/// Forms of a date: `M` and `D` are the numbers of the month and the day, `MM` and `DD` the same with two digits, and
/// `N` is the short name of the month.
const DATE_FORMS: [&str; 12] =
    ["MM-DD", "M/D", "D/M", "MM/DD", "DD/MM", "D.M.", "DD.MM.", "MMDD", "D-M-", "DD-MM-", "DD-N", "D-N"];
/// As [`DATE_FORMS`], where `N` is the short or full name of the month.
const NAMED_DATE_FORMS: [&str; 15] = [
    "N D", "N  D", "N DD", "N. D", "D N", "DD N", "D. N", "Dst N", "Dnd N", "Drd N", "Dth N", "Dst of N",
    "Dnd of N", "Drd of N", "Dth of N",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_day_numbers_are_days_of_the_calendar() {
        let day = |text: &str| all(text).next().unwrap().day;
        for (first, second, days) in [
            ("2025-02-27", "March 1, 2025", 2),
            ("28 Feb 2024", "2024-03-01", 2),
            ("31 December 1999", "2000-01-01", 1),
            ("2025-01-01", "2026-01-01", 365),
            ("2025-01-31T23:30:00Z", "1 February 2025", 1),
            ("Sep  9 16:40:03 2025 GMT", "Tue Sep 30 23:59:59 UTC 2025", 21),
            ("28. Februar 2024", "1er mars 2024", 2),
            ("31 de dezembro de 1999", "1 gennaio 2000", 1),
            ("27 de febrero del 2025", "le 1 MARS 2025", 2),
        ] {
            assert_eq!(day(second) - day(first), days, "{first} {second}");
        }
    }
}
