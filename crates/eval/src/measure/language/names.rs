//! Single words of closed classes in all languages: names of months and weekdays, and words of parameters and fields.
//!
//! In: a word in lower case, whose language is not known. Out: its classes in any language. The classes are read from
//! their lines of the data files, without compiling the other lists, since these functions are called for many numbers
//! and keys.

use std::sync::LazyLock;

use foldhash::{HashMap, HashSet};

use super::supported::Language;
use super::word_class::WordClass::{self, *};
use super::word_class::WordClasses;
use crate::measure::excerpt::lowercase;

/// Minimum letters of the name of a day or month: shorter abbreviations are also other words ("So.", "Do.").
const MIN_NAME_LETTERS: usize = 3;
/// The classes of names of months and weekdays, then the classes of words of keys.
const NAME_CLASSES: [WordClass; 12] =
    [Month, Weekday, Amount, Identifier, Origin, Phone, Quantifier, Reason, Share, Target, TimeUnit, Title];
/// The number of classes of months and weekdays, at the beginning of [`NAME_CLASSES`].
const CALENDAR_CLASS_COUNT: usize = 2;

/// By word, its classes, and the number of the month or weekday.
static NAMES: LazyLock<HashMap<String, (WordClasses, u8)>> = LazyLock::new(|| {
    let mut names: HashMap<String, (WordClasses, u8)> = HashMap::default();
    for language in Language::ALL {
        for (nth, class) in NAME_CLASSES.into_iter().enumerate() {
            for (name, value) in names_of_class(language, class) {
                let (classes, calendar_value) = names.entry(name).or_default();
                *classes = classes.union(WordClasses::new(&[class]));
                *calendar_value = if nth < CALENDAR_CLASS_COUNT { value } else { *calendar_value };
            }
        }
    }
    names
});

/// The names of a class in one language, in lower case, with their values.
fn names_of_class(language: Language, class: WordClass) -> impl Iterator<Item = (String, u8)> {
    let head = format!("  {}: ", class.as_str());
    let lines = language.data().lines().skip_while(|line| *line != "classes:");
    let lists = lines.into_iter().find_map(|line| line.strip_prefix(&head)).unwrap_or_default();
    let lists = (1..).zip(lists.trim_matches(['[', ']']).split(", "));
    let entries = lists.flat_map(|(value, entries)| entries.split('|').map(move |entry| (entry, value)));
    let is_calendar = NAME_CLASSES.iter().take(CALENDAR_CLASS_COUNT).any(|calendar| *calendar == class);
    entries.filter_map(move |(entry, value)| {
        let name = entry.trim_start_matches(['=', '+']).trim_end_matches(" <n>");
        let name = name.trim_end_matches(['*', '.']).to_lowercase();
        // Of the words for reasons only `+word`s are words of keys: the others are conjunctions ("car").
        let is_word = class != Reason || entry.starts_with('+');
        let is_long = !is_calendar || name.chars().count() >= MIN_NAME_LETTERS;
        (is_word && is_long && !name.contains(' ')).then_some((name, value))
    })
}

/// A pattern of the names of months in these languages, in lower case.
pub(crate) fn month_pattern(languages: &[Language]) -> String {
    let spaced = languages.iter().filter(|language| language.is_spaced());
    let names = spaced.flat_map(|language| names_of_class(*language, Month)).map(|(name, _)| name);
    let mut names: Vec<String> = names.collect();
    // The first alternative that matches counts: the longest name.
    names.sort_by_key(|name| (usize::MAX - name.len(), name.clone()));
    names.dedup();
    names.join("|")
}

/// The English names of months, in lower case.
static ENGLISH_MONTHS: LazyLock<HashSet<String>> =
    LazyLock::new(|| names_of_class(Language::English, Month).map(|(name, _)| name).collect());

/// The month of a name in the spelling of a text: an English name needs a capital letter, since "may" and "march" are
/// also verbs.
pub(crate) fn written_month(word: &str) -> Option<usize> {
    let lower = lowercase(word);
    (word.starts_with(char::is_uppercase) || !ENGLISH_MONTHS.contains(&lower))
        .then(|| month_of(&lower))
        .flatten()
}

/// The number of a month or weekday by its name.
fn value(name: &str, class: WordClass) -> Option<usize> {
    NAMES.get(name).filter(|(classes, _)| classes.has(class)).map(|(_, value)| usize::from(*value))
}

/// The month of a name in lower case; January is 1.
pub(crate) fn month_of(name: &str) -> Option<usize> {
    value(name, Month)
}

/// The weekday of a name in lower case; Monday is 1.
pub(crate) fn weekday_of(name: &str) -> Option<usize> {
    value(name, Weekday)
}

/// Whether a word in lower case, of a parameter or a field, is of the class in any language.
pub(crate) fn is_of_class(word: &str, class: WordClass) -> bool {
    NAMES.get(word).is_some_and(|(classes, _)| classes.has(class))
}

/// Words of keys for an identifier that are the same in many languages, in addition to the words of the class.
const IDENTIFIER_KEYS: [&str; 12] =
    ["id", "no", "nr", "ref", "key", "sku", "uuid", "url", "path", "slug", "doi", "tracking"];

/// Whether a key with this word, in lower case, has an identifier, which names one thing and is no quantity.
pub(crate) fn names_identifier(word: &str) -> bool {
    IDENTIFIER_KEYS.contains(&word) || is_of_class(word, Identifier)
}

/// Whether one of the words of a key is of the class.
pub(crate) fn has_word_of_class(key: &[String], class: WordClass) -> bool {
    key.iter().any(|word| is_of_class(word, class))
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

    #[test]
    fn months_of_a_language_are_a_pattern() {
        let names = month_pattern(&[Language::English]);
        assert!(
            names.starts_with("september|") && names.ends_with("|sep") && !names.contains("mai"),
            "{names}"
        );
        assert!(month_pattern(&Language::ALL).split('|').any(|name| name == "février"));
        assert_eq!(["May", "may", "mai", "Mayo"].map(written_month), [Some(5), None, Some(5), Some(5)]);
    }

    #[test]
    fn words_of_keys_are_of_classes_in_all_languages() {
        for (word, class) in [
            ("amount", WordClass::Amount),
            ("betrag", WordClass::Amount),
            ("importe", WordClass::Amount),
            ("numéro", WordClass::Identifier),
            ("codice", WordClass::Identifier),
            ("编号", WordClass::Identifier),
            ("origen", WordClass::Origin),
            ("from", WordClass::Origin),
            ("nach", WordClass::Target),
            ("mensagem", WordClass::Reason),
            ("stunde", WordClass::TimeUnit),
            ("ambos", WordClass::Quantifier),
        ] {
            assert!(is_of_class(word, class), "{word}");
        }
        assert!(!is_of_class("car", WordClass::Reason) && !is_of_class("betrag", WordClass::Target));
    }
}
