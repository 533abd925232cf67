//! Numeric dates in other forms than the form of ISO 8601: "02.03.1958", "3/12/2025", "2025年12月4日".
//!
//! In: a text. Out: the year, month and day of its dates. A numeric date with slashes may be read in two ways, since
//! some countries write the month first; both readings are returned where both are valid dates.

use crate::measure::excerpt::lowercase;
use crate::measure::language::names;

/// A year, a month from 1 and a day of it.
pub(super) type Ymd = (i64, usize, usize);

regex!(
    DATE,
    r"(?:^|[^\d./-])(?:(?P<figures>\d{1,2}(?:\.\d{1,2}\.|/\d{1,2}/|-\d{1,2}-)\d{4}|\d{4}/\d{1,2}/\d{1,2})(?:$|[^\d/-])|(?P<cy>\d{4})[年년] ?(?P<cm>\d{1,2})[月월] ?(?P<cd>\d{1,2})[日일])"
);

/// The number of a month, from 1, by its name or an abbreviation.
pub(super) fn month_of(word: &str) -> Option<usize> {
    names::month_of(&lowercase(word))
}

/// The readings of a numeric date: "03.12.2025", "3/12/2025", "2025/12/03". Empty for other words.
pub(super) fn numeric_readings(word: &str) -> Vec<Ymd> {
    let Some(separator) = ['.', '/', '-'].into_iter().find(|separator| word.contains(*separator)) else {
        return Vec::new();
    };
    let parts: Vec<&str> = word.split(separator).collect();
    let is_number = |part: &str, max_digits: usize| {
        (1..=max_digits).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
    };
    let readings: &[[usize; 3]] = match parts.as_slice() {
        [year, month, day]
            if separator == '/'
                && year.len() == 4
                && is_number(year, 4)
                && is_number(month, 2)
                && is_number(day, 2) =>
        {
            &[[0, 1, 2]]
        }
        [day, month, year]
            if year.len() == 4 && is_number(year, 4) && is_number(month, 2) && is_number(day, 2) =>
        {
            if separator == '.' {
                &[[2, 1, 0]]
            } else {
                &[[2, 1, 0], [2, 0, 1]]
            }
        }
        _ => &[],
    };
    let number_at = |index: &usize| parts.get(*index)?.parse::<usize>().ok();
    let read = |[year, month, day]: &[usize; 3]| {
        let (year, month, day) = (i64::try_from(number_at(year)?).ok()?, number_at(month)?, number_at(day)?);
        is_day(year, month, day).then_some((year, month, day))
    };
    let mut dates: Vec<Ymd> = readings.iter().filter_map(read).collect();
    dates.dedup();
    dates
}

/// The dates of a text.
pub(super) fn all(text: &str) -> impl Iterator<Item = Ymd> {
    // Most texts have no year, which a date needs; the regular expression is then not run.
    let has_year = text.as_bytes().windows(4).any(|part| part.iter().all(u8::is_ascii_digit));
    let matches = has_year.then(|| DATE.captures_iter(text)).into_iter().flatten();
    matches.flat_map(|date_match| {
        let number = |name: &str| date_match.name(name)?.as_str().parse::<usize>().ok();
        if let Some(figures) = date_match.name("figures") {
            return numeric_readings(figures.as_str());
        }
        let date = || Some((i64::try_from(number("cy")?).ok()?, number("cm")?, number("cd")?));
        date().filter(|(year, month, day)| is_day(*year, *month, *day)).into_iter().collect()
    })
}

fn is_day(year: i64, month: usize, day: usize) -> bool {
    (1900..2100).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_every_form() {
        for text in ["geboren 02.03.1958", "1958年3月2日", r#"{"nato":"2.3.1958"}"#, "1958/03/02"] {
            assert_eq!(all(text).collect::<Vec<_>>(), [(1958, 3, 2)], "{text}");
        }
        assert_eq!(all("02/03/1958").collect::<Vec<_>>(), [(1958, 3, 2), (1958, 2, 3)]);
        assert_eq!(all("23/03/1958").collect::<Vec<_>>(), [(1958, 3, 23)]);
        for text in ["1.2.3", "10.0.0.1958", "32.13.2025", "12 Personen 2025", "/2025/03/12/4", "3/4"] {
            assert_eq!(all(text).collect::<Vec<_>>(), [], "{text}");
        }
    }
}
