//! Weekdays next to dates: "Thursday, 3 December 2025", which is a Wednesday.
//!
//! Principle: a date and the weekday next to it are one day of the calendar, or one of the two is wrong.
//!
//! In: the dates of an answer with a weekday before or after them, in the supported languages. Out: a contradiction if
//! the calendar gives another weekday. A date without a year may be in any year in which a text that the model read has
//! the date; if all these years are past, it may be in any year of the texts and of the run, or the year after. A
//! numeric date that can be read in two orders may be either day. A date that a text has with the same weekday is not
//! compared, nor is a weekday in brackets that begins a range or a list of weekdays, since these are the days of a
//! week.

use std::borrow::Cow;
use std::rc::Rc;

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::Memo;
use crate::measure::defects::Defect;
use crate::measure::excerpt::lowercase;
use crate::measure::language::names;
use crate::measure::reasoning::dates::{self, day_number};
use crate::measure::reasoning::local_dates::{Ymd, month_of, numeric_readings};
use crate::recognise::Text;

/// Maximum dates of one answer, and of one text that the model read.
const MAX_DATES: usize = 64;
/// Maximum bytes of an abbreviation, after which a dot does not end a sentence.
const MAX_ABBREVIATION: usize = 5;
/// Maximum bytes of a text whose dates are read.
const MAX_TEXT: usize = 64 * 1024;

/// The names of the weekdays in rationales, from Monday.
const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// Words between a weekday and a date, and within a date.
const ARTICLES: [&str; 13] =
    ["the", "on", "of", "den", "dem", "der", "am", "le", "el", "il", "de", "del", "di"];
/// The characters for the weekdays in Japanese and in Chinese, from Monday.
const CJK_WEEKDAYS: [[char; 2]; 7] =
    [['月', '一'], ['火', '二'], ['水', '三'], ['木', '四'], ['金', '五'], ['土', '六'], ['日', '天']];

// A date with slashes.
regex!(SLASHED_DATE, r"(?:^|[\s(])(\d{1,2}/\d{1,2}/\d{4}|\d{4}/\d{1,2}/\d{1,2})(?:$|[\s).,;:!?（])");
// A date in Japanese or Chinese with its weekday.
regex!(
    CJK_DATE,
    r"(?:(?P<y>\d{4})年)?(?P<m>\d{1,2})月(?P<d>\d{1,2})日 ?[（(]?(?:(?:星期|周|週)(?P<zh>[一二三四五六日天])|(?P<ja>[月火水木金土日])(?:曜日?|[）)]))"
);

/// A date with the weekday next to it.
struct DatedWeekday {
    year: Option<i64>,
    month: usize,
    day: usize,
    /// For a numeric date that can be read in two orders, the month and the day of the second reading.
    other_reading: Option<(usize, usize)>,
    /// The weekday, from 0 for Monday.
    weekday: usize,
    /// The byte positions in the answer.
    start: usize,
    end: usize,
}

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &*with_slashed_dates(&exchange.prose, exchange.answer);
    let dates = dates_with_weekday(prose).into_iter().chain(cjk_dates_with_weekday(prose)).take(MAX_DATES);
    for dated in dates {
        let years = match dated.year {
            Some(year) => vec![year],
            None => possible_years(exchange, &dated),
        };
        if years.is_empty() {
            continue;
        }
        findings.examined = true;
        let days = [Some((dated.month, dated.day)), dated.other_reading];
        let is_correct = |year: &i64| {
            days.into_iter().flatten().any(|(month, day)| weekday(*year, month, day) == dated.weekday)
        };
        let shown = prose.get(dated.start..dated.end).unwrap_or_default();
        if years.iter().any(is_correct) || exchange.sources.any_contains(shown) {
            continue;
        }
        let expected = years.first().map(|year| weekday(*year, dated.month, dated.day)).unwrap_or_default();
        let name = NAMES.get(expected).copied().unwrap_or_default();
        let rationale = format!(
            "the weekday of the calendar was expected; the answer says \"{shown}\", and that day is a {name}"
        );
        let quote = exchange.sentence_at(dated.start);
        findings.entries.push((Defect::ContradictsResult.finding(rationale, quote), None));
        return;
    }
}

/// The weekday of a date, from 0 for Monday.
fn weekday(year: i64, month: usize, day: usize) -> usize {
    dates::weekday(day_number(year, month, day))
}

/// The prose of an answer with dates such as "03/12/2025", which are masked in prose as paths.
fn with_slashed_dates<'p>(prose: &'p str, answer: &str) -> Cow<'p, str> {
    if prose.len() != answer.len() || memchr::memchr(b'/', answer.as_bytes()).is_none() {
        return Cow::Borrowed(prose);
    }
    let mut out = Cow::Borrowed(prose);
    for date in SLASHED_DATE.captures_iter(answer).filter_map(|captures| captures.get(1)).take(MAX_DATES) {
        if out.get(date.range()).is_some_and(|masked| masked.trim().is_empty()) {
            out.to_mut().replace_range(date.range(), date.as_str());
        }
    }
    out
}

/// The possible years of a date without a year: those in which texts have the date; if all of these are past, also all
/// years of the texts and of the run, and the years after them.
fn possible_years(exchange: &Exchange<'_>, dated: &DatedWeekday) -> Vec<i64> {
    if !exchange.spends_numbers() {
        return Vec::new();
    }
    let texts = exchange.sources.seen.iter().filter(|text| text.len() <= MAX_TEXT);
    let text_dates: Vec<Rc<TextDates>> = texts.map(|text| TextDates::cached(text, exchange.memo)).collect();
    let known_dates = || text_dates.iter().flat_map(|dates| &dates.0);
    let same_day = known_dates().filter(|(_, month, day)| (*month, *day) == (dated.month, dated.day));
    let mut years: Vec<i64> = same_day.map(|(year, ..)| *year).collect();
    let known_years = || known_dates().map(|(year, ..)| *year);
    // The same date of a later year may be meant: "your last check-up was on 5 December 2024".
    let latest = exchange.year.or_else(|| known_years().max());
    if years.iter().copied().max() < latest {
        years.extend(known_years().chain(exchange.year).flat_map(|year| [year, year + 1]));
    }
    years.sort_unstable();
    years.dedup();
    years
}

/// The year, month and day of each date of a text, as they are cached.
struct TextDates(Vec<(i64, usize, usize)>);

impl TextDates {
    /// The dates of a text, which are read once for each text.
    fn cached(text: &Text, memo: &Memo) -> Rc<TextDates> {
        memo.for_text(text, |text| {
            let dates = dates::all(text).map(|date| (date.year, date.month, date.day_of_month));
            TextDates(dates.take(MAX_DATES).collect())
        })
    }
}

/// A word of an answer with its byte positions.
struct AnswerWord<'t> {
    text: &'t str,
    start: usize,
    end: usize,
}

/// The words of a text, without the punctuation around them.
fn words(text: &str) -> Vec<AnswerWord<'_>> {
    let is_punctuation = |c: char| !c.is_alphanumeric();
    let offset = |part: &'_ str| part.as_ptr().addr() - text.as_ptr().addr();
    let words =
        text.split_whitespace().map(|part| part.trim_matches(is_punctuation)).filter(|part| !part.is_empty());
    words.map(|part| AnswerWord { text: part, start: offset(part), end: offset(part) + part.len() }).collect()
}

/// The weekday of a name, from 0 for Monday.
fn weekday_of(word: &str) -> Option<usize> {
    names::weekday_of(&lowercase(word))?.checked_sub(1)
}

/// The day of the month that a word is, possibly an ordinal number: "3rd".
fn day_of_month(word: &str) -> Option<usize> {
    let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
    let is_ordinal = matches!(word.get(digits.len()..)?, "" | "st" | "nd" | "rd" | "th" | "er" | "º");
    digits.parse().ok().filter(|day| is_ordinal && digits.len() <= 2 && (1..=31).contains(day))
}

/// The year that a word is.
fn year(word: &str) -> Option<i64> {
    word.parse().ok().filter(|year| word.len() == 4 && (1900..2100).contains(year))
}

/// The dates with a weekday next to them, in languages with spaces.
fn dates_with_weekday(text: &str) -> Vec<DatedWeekday> {
    let words = words(text);
    // A quick test excludes texts without a number that a date could have.
    let is_date =
        |word: &AnswerWord<'_>| day_of_month(word.text).is_some() || !numeric_dates(word.text).is_empty();
    if !words.iter().any(is_date) {
        return Vec::new();
    }
    let word = |at: usize| words.get(at).map(|word| word.text);
    let is_article = |at: usize| word(at).is_some_and(|word| ARTICLES.contains(&&*lowercase(word)));
    // The index of the next word in this direction, where one article is skipped.
    let before = |at: usize| {
        let at = at.checked_sub(1)?;
        if is_article(at) { at.checked_sub(1) } else { Some(at) }
    };
    let after = |at: usize| if is_article(at + 1) { at + 2 } else { at + 1 };
    let mut out = Vec::new();
    for (at, current) in words.iter().enumerate() {
        let mut other_reading = None;
        let (first, last, year, month, day) = if let Some(month) = month_of(current.text) {
            let day_before = before(at).and_then(|day| Some((day, day_of_month(word(day)?)?)));
            let (first, day_at, day) = match day_before {
                Some((day_at, day)) => (day_at, at, day),
                None => match word(at + 1).and_then(day_of_month) {
                    Some(day) => (at, at + 1, day),
                    None => continue,
                },
            };
            let year_at = after(day_at);
            match word(year_at).and_then(self::year) {
                Some(year) => (first, year_at, Some(year), month, day),
                None => (first, day_at, None, month, day),
            }
        } else if let [date, other_readings @ ..] = numeric_dates(current.text).as_slice() {
            other_reading = other_readings.first().map(|(_, month, day)| (*month, *day));
            (at, at, Some(date.0), date.1, date.2)
        } else {
            continue;
        };
        let weekday_before = before(first).and_then(|at| Some((at, weekday_of(word(at)?)?)));
        let between =
            |from: usize, to: usize| -> Option<&str> { text.get(words.get(from)?.end..words.get(to)?.start) };
        // A weekday after the date must be in brackets: "3 December (Wednesday)".
        let is_in_brackets = || between(last, last + 1).is_some_and(|between| between.contains('('));
        let is_in_list = || {
            let begins = |at: usize| between(at - 1, at).is_some_and(|between| !between.contains(')'));
            let is_weekday = |at: &usize| word(*at).and_then(weekday_of).is_some();
            let after = [last + 2, last + 3].into_iter().take_while(|at| begins(*at)).find(is_weekday);
            after.is_some() || word(last + 1).is_some_and(|word| word.split(['-', '–', '/']).count() > 1)
        };
        let dated = match weekday_before {
            Some((at, weekday)) if !are_separated(word(at), between(at, first)) => Some((at, last, weekday)),
            _ => word(last + 1)
                .and_then(weekday_of)
                .filter(|_| is_in_brackets() && !is_in_list())
                .map(|weekday| (first, last + 1, weekday)),
        };
        let ends = dated.and_then(|(from, to, day)| Some((words.get(from)?.start, words.get(to)?.end, day)));
        if let Some((start, end, weekday)) = ends {
            out.push(DatedWeekday { year, month, day, other_reading, weekday, start, end });
        }
    }
    out
}

/// Whether a weekday and a date are separated by the end of a sentence or a line, or by a sign such as a dash.
fn are_separated(weekday: Option<&str>, between: Option<&str>) -> bool {
    let is_abbreviation = weekday.is_some_and(|weekday| weekday.len() <= MAX_ABBREVIATION);
    between.is_none_or(|between| {
        between.contains(['\n', ';', '!', '?', '|', '–', '-', '/', '(', ')'])
            || between.contains('.') && !is_abbreviation
    })
}

/// The readings of a numeric date.
fn numeric_dates(word: &str) -> Vec<Ymd> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return Vec::new();
    }
    match iso_date(word) {
        Some(date) => vec![date],
        None => numeric_readings(word),
    }
}

/// The date in ISO 8601 that a word is.
fn iso_date(word: &str) -> Option<Ymd> {
    let mut parts = word.splitn(3, '-');
    let (year, month, day) = (self::year(parts.next()?)?, parts.next()?, parts.next()?);
    let (month, day) = (month.parse().ok()?, day.parse().ok()?);
    ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some((year, month, day))
}

/// The dates in Japanese and Chinese with a weekday after them.
fn cjk_dates_with_weekday(text: &str) -> impl Iterator<Item = DatedWeekday> {
    CJK_DATE.captures_iter(text).filter_map(|captures| {
        let number = |name: &str| captures.name(name)?.as_str().parse::<usize>().ok();
        let sign = captures.name("ja").or_else(|| captures.name("zh"))?.as_str().chars().next()?;
        let language = usize::from(captures.name("ja").is_none());
        // Chinese has two characters for Sunday.
        let has_sign =
            |signs: &[char; 2]| signs.get(language) == Some(&sign) || sign == '日' && signs.contains(&sign);
        let weekday = CJK_WEEKDAYS.iter().position(has_sign)?;
        let whole = captures.get(0)?;
        Some(DatedWeekday {
            year: number("y").and_then(|year| i64::try_from(year).ok()),
            month: number("m").filter(|month| (1..=12).contains(month))?,
            day: number("d")?,
            other_reading: None,
            weekday,
            start: whole.start(),
            end: whole.end(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(text: &str) -> Vec<(Option<i64>, usize, usize, usize)> {
        let to_tuple = |d: DatedWeekday| (d.year, d.month, d.day, d.weekday);
        dates_with_weekday(text).into_iter().chain(cjk_dates_with_weekday(text)).map(to_tuple).collect()
    }

    #[test]
    fn dates_with_weekdays_are_read_in_every_form() {
        for (text, year) in [
            ("On Wednesday, December 3, 2025 at 10:15", Some(2025)),
            ("It is on Wed 3 Dec.", None),
            ("Wednesday the 3rd of December", None),
            ("2025-12-03 (Wednesday)", Some(2025)),
            ("am Mittwoch, den 3. Dezember 2025 um 8:45 Uhr", Some(2025)),
            ("le mercredi 3 décembre", None),
            ("el miércoles 3 de diciembre de 2025", Some(2025)),
            ("quarta-feira, 3 de dezembro", None),
            ("2025年12月3日（水）", Some(2025)),
            ("12月3日星期三", None),
            ("am Mittwoch, 03.12.2025 um 8:45 Uhr", Some(2025)),
            ("mercredi 3/12/2025", Some(2025)),
            ("2025/12/03 (Wed)", Some(2025)),
        ] {
            assert_eq!(days(text), [(year, 12, 3, 2)], "{text}");
        }
    }

    #[test]
    fn weekday_of_another_date_is_ignored() {
        for text in [
            "Open Monday - 3 December is a holiday",
            "We are closed on Sunday. 3 December is fine.",
            "It may rain on 3 December",
            "On Monday 3 people come",
            "Week 1 of December (Monday, Tuesday, Thursday)",
            "Sprint 3 December (Monday to Friday)",
            "Woche 2 März (Montag und Dienstag) war voll",
            "Semaine 1 de mars (lundi, mardi, jeudi, vendredi)",
        ] {
            assert!(days(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn weekdays_are_computed_from_dates() {
        assert_eq!(weekday(2025, 11, 25), 1);
        assert_eq!(weekday(2024, 2, 29), 3);
        assert_eq!(weekday(2000, 1, 1), 5);
    }
}
