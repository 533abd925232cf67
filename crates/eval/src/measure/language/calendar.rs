//! The names of months and of weekdays in all languages.
//!
//! In: a name in lower case. Out: which one it is. The names are those of the closed classes, each of which is one line
//! of a data file: they are read without the rest of it, since every number of a text may be a day.

use std::sync::LazyLock;

use foldhash::HashMap;

use super::known::Language;

/// Shorter abbreviations are words as well: "So.", "Do.".
const MIN_NAME: usize = 3;

/// By name, the month and the weekday, from 1, or 0.
static NAMES: LazyLock<HashMap<String, [usize; 2]>> = LazyLock::new(|| {
    let mut names: HashMap<String, [usize; 2]> = HashMap::default();
    for language in Language::ALL {
        for (kind, class) in ["  month: [", "  weekday: ["].into_iter().enumerate() {
            let line = language.data().lines().find_map(|line| line.strip_prefix(class));
            let values = line.and_then(|line| line.strip_suffix(']')).into_iter().flat_map(|l| l.split(", "));
            for (value, entries) in (1..).zip(values) {
                for entry in entries.split('|') {
                    let name = entry.trim_start_matches('=').trim_end_matches(" <n>");
                    let name = name.trim_end_matches(['*', '.']).to_lowercase();
                    if name.chars().count() >= MIN_NAME && !name.contains(' ') {
                        names.entry(name).or_default().get_mut(kind).into_iter().for_each(|of| *of = value);
                    }
                }
            }
        }
    }
    names
});

/// The month of a name in lower case, from January, 1, on.
pub(crate) fn month_of(name: &str) -> Option<usize> {
    NAMES.get(name).map(|[month, _]| *month).filter(|month| *month > 0)
}

/// The weekday of a name in lower case, from Monday, 1, on.
pub(crate) fn weekday_of(name: &str) -> Option<usize> {
    NAMES.get(name).map(|[_, weekday]| *weekday).filter(|weekday| *weekday > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_languages_are_read() {
        for (name, month) in
            [("may", 5), ("märz", 3), ("août", 8), ("enero", 1), ("dezembro", 12), ("lug", 0)]
        {
            assert_eq!(month_of(name).unwrap_or_default(), month, "{name}");
        }
        for (name, day) in
            [("tues", 2), ("mittwoch", 3), ("jeudi", 4), ("sábado", 6), ("terça-feira", 2), ("so", 0)]
        {
            assert_eq!(weekday_of(name).unwrap_or_default(), day, "{name}");
        }
    }
}
