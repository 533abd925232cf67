//! Dots that end no sentence: those of abbreviations, of initials and of ordinal numbers ("am 12. Mai").
//!
//! In: the section `abbreviations` of a language's data file, the words of a sentence up to a dot, and the text behind
//! it. Out: whether the dot ends no sentence. `word <n>` is an abbreviation only before a number: "no. 7".

use foldhash::HashSet;
use serde::Deserialize;

use super::word_class::{WordClass, WordClassTable};

/// Digits of a day.
const DAY_DIGITS: usize = 2;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct AbbreviationsFile {
    any: Vec<String>,
    /// Words before ordinal numbers, in languages that write those with a dot.
    #[serde(default)]
    before_ordinals: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Abbreviations {
    words: HashSet<String>,
    before_numbers: HashSet<String>,
    before_ordinals: HashSet<String>,
    /// Names of months, if ordinal numbers have a dot.
    months: HashSet<String>,
    /// Bytes of the longest abbreviation.
    longest: usize,
}

impl Abbreviations {
    pub(super) fn new(file: AbbreviationsFile, classes: &WordClassTable) -> Abbreviations {
        let mut out = Abbreviations { longest: DAY_DIGITS, ..Abbreviations::default() };
        for word in file.any {
            let (word, list) = match word.strip_suffix(" <n>") {
                Some(word) => (word, &mut out.before_numbers),
                None => (word.as_str(), &mut out.words),
            };
            out.longest = out.longest.max(word.len());
            list.insert(word.to_owned());
        }
        if !file.before_ordinals.is_empty() {
            out.months = classes.words(WordClass::Month).map(|(month, _)| month.to_lowercase()).collect();
        }
        out.before_ordinals.extend(file.before_ordinals);
        out
    }

    /// Whether the dot between `words`, in lower case between single spaces, and `after` ends no sentence.
    pub(super) fn has_dot(&self, words: &str, after: &str) -> bool {
        let start = memchr::memrchr(b' ', words.as_bytes()).map_or(0, |space| space + 1);
        let Some((before, word)) =
            words.split_at_checked(start).filter(|(_, word)| word.len() <= self.longest)
        else {
            return false;
        };
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.len() <= DAY_DIGITS && self.is_ordinal(before, after);
        }
        let is_number = || after.trim_start().starts_with(|c: char| c.is_ascii_digit());
        word.chars().count() == 1
            || self.words.contains(word)
            || self.before_numbers.contains(word) && is_number()
    }

    /// Whether a number between these texts is that of a day.
    fn is_ordinal(&self, before: &str, after: &str) -> bool {
        let last = before.trim_end_matches(' ').rsplit(' ').find(|word| *word != ",");
        let next = || after.trim_start().split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        !self.before_ordinals.is_empty()
            && (last.is_some_and(|word| self.before_ordinals.contains(word))
                || self.months.contains(&next().to_lowercase()))
    }
}
