//! Words for people, and numbers of people.
//!
//! In: a word, the words around a number, or a text without spaces between words. Out: whether the word names people,
//! whether the number counts people, or the numbers that count people.

use std::sync::LazyLock;

use foldhash::HashSet;

use super::language::{Language, WordClass};

const PEOPLE: &str = include_str!("language/data/people.txt");
/// Numerals of Chinese and Japanese, from one on.
const NUMERALS: [char; 10] = ['一', '二', '三', '四', '五', '六', '七', '八', '九', '十'];

/// The words of the data file.
struct PeopleWords {
    /// Words that name people, and pairs of words before a number of people.
    words: HashSet<&'static str>,
    /// Words after numbers in Chinese and in Japanese, each with whether it counts people.
    counters: [Vec<(&'static str, bool)>; 2],
}

static WORDS: LazyLock<PeopleWords> = LazyLock::new(|| {
    let mut out = PeopleWords { words: HashSet::default(), counters: [Vec::new(), Vec::new()] };
    let lines = PEOPLE.lines().filter(|line| !line.starts_with('#'));
    for (language, words) in lines.filter_map(|line| line.split_once(' ')) {
        let (names, word_pairs) = words.split_once('|').unwrap_or((words, ""));
        let known_language = Language::ALL.into_iter().find(|known| known.as_str() == language);
        if let Some(counters) =
            known_language.and_then(counter_index).and_then(|index| out.counters.get_mut(index))
        {
            let counter =
                |word: &'static str| word.strip_prefix('-').map_or((word, true), |word| (word, false));
            counters.extend(names.split_whitespace().map(counter));
        }
        let names = names.split_whitespace().filter(|name| !name.starts_with('-'));
        out.words.extend(names.chain(word_pairs.split(',').map(str::trim)));
    }
    out
});

/// The index of a language in [`PeopleWords::counters`].
fn counter_index(language: Language) -> Option<usize> {
    [Language::Chinese, Language::Japanese].into_iter().position(|known| known == language)
}

/// Whether a word in lower case names people.
pub(crate) fn names_people(word: &str) -> bool {
    WORDS.words.contains(word)
}

/// Whether a number after these two words in lower case counts people: "a table for 4".
fn precedes_people_count(words: &str) -> bool {
    words.contains(' ') && WORDS.words.contains(words)
}

/// Whether the number at `index` in `words` counts people by the words before it ("a table for 4"), and no noun
/// that it could count follows it.
pub(crate) fn is_people_count(language: Option<Language>, words: &[&str], index: usize) -> bool {
    let before = index.checked_sub(2).and_then(|from| words.get(from..index)).unwrap_or_default();
    let ends_clause = words.get(index).is_some_and(|word| word.ends_with([',', '.', ';', '!', '?']));
    let is_relation = |word: &&str| {
        language
            .is_some_and(|language| language.table().name(&word.to_lowercase()).0.has(WordClass::Relation))
    };
    precedes_people_count(&before.join(" ").to_lowercase())
        && (ends_clause || words.get(index + 1).is_none_or(is_relation))
}

/// The numbers of people in a text of a language without spaces between words: "4位", "四人".
pub(crate) fn numbers_in(text: &str, language: Language) -> Vec<f64> {
    let Some(counters) = counter_index(language).and_then(|index| WORDS.counters.get(index)) else {
        return Vec::new();
    };
    let is_numeral = |c: char| c.is_ascii_digit() || c == '两' || NUMERALS.contains(&c);
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_numeral) {
        let (before, from_numeral) = rest.split_at(start);
        let after = from_numeral.trim_start_matches(is_numeral);
        let numeral = from_numeral.get(..from_numeral.len() - after.len()).unwrap_or_default();
        let after_space = after.trim_start_matches(' ');
        let counter = counters.iter().filter(|(word, _)| after_space.starts_with(word));
        let is_of_people =
            counter.max_by_key(|(word, _)| word.len()).is_some_and(|(_, counts_people)| *counts_people);
        // "第3名" is a rank.
        out.extend(value(numeral).filter(|_| is_of_people && !before.ends_with(['第', '.'])));
        rest = after;
    }
    out
}

/// The value of a numeral below one hundred, or of digits.
fn value(numeral: &str) -> Option<f64> {
    if numeral.bytes().all(|byte| byte.is_ascii_digit()) {
        return numeral.parse().ok();
    }
    let mut value = 0;
    for c in numeral.chars() {
        let digit = if c == '两' { 2 } else { NUMERALS.iter().position(|numeral| *numeral == c)? + 1 };
        value = if digit == NUMERALS.len() { value.max(1) * digit } else { value + digit };
    }
    u32::try_from(value).ok().map(f64::from)
}
