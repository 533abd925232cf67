//! Full stops that do not end a sentence: in abbreviations, initials and ordinal numbers ("am 12. Mai").
//!
//! In: the section `abbreviations` of a language's data file, the words of a sentence up to a full stop, and the text
//! after it. Out: whether the sentence continues. `word <n>` is an abbreviation only before a number: "no. 7".

use foldhash::HashSet;
use serde::Deserialize;

use super::word_class::{WordClass, WordClassTable};

/// Maximum digits of an ordinal number, which is the day of a month.
const MAX_DAY_DIGITS: usize = 2;

/// The section `abbreviations` of a data file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct AbbreviationsFile {
    any: Vec<String>,
    /// Words before ordinal numbers, in languages that write ordinal numbers with a full stop.
    #[serde(default)]
    before_ordinals: Vec<String>,
}

/// The abbreviations of a language.
#[derive(Debug, Default)]
pub(super) struct Abbreviations {
    words: HashSet<String>,
    /// Abbreviations only before numbers.
    before_numbers: HashSet<String>,
    before_ordinals: HashSet<String>,
    /// Names of months, if ordinal numbers have a full stop.
    months: HashSet<String>,
    /// The length of the longest abbreviation, in bytes.
    max_bytes: usize,
}

impl Abbreviations {
    pub(super) fn new(file: AbbreviationsFile, classes: &WordClassTable) -> Abbreviations {
        let mut out = Abbreviations { max_bytes: MAX_DAY_DIGITS, ..Abbreviations::default() };
        for word in file.any {
            let (word, list) = match word.strip_suffix(" <n>") {
                Some(word) => (word, &mut out.before_numbers),
                None => (word.as_str(), &mut out.words),
            };
            out.max_bytes = out.max_bytes.max(word.len());
            list.insert(word.to_owned());
        }
        if !file.before_ordinals.is_empty() {
            out.months = classes.words(WordClass::Month).map(|(month, _)| month.to_lowercase()).collect();
        }
        out.before_ordinals.extend(file.before_ordinals);
        out
    }

    /// Whether the sentence continues after the full stop between `words`, which are in lower case and separated by
    /// single spaces, and `after`.
    pub(super) fn is_inner_stop(&self, words: &str, after: &str) -> bool {
        let start = memchr::memrchr(b' ', words.as_bytes()).map_or(0, |space| space + 1);
        let Some((before, word)) =
            words.split_at_checked(start).filter(|(_, word)| word.len() <= self.max_bytes)
        else {
            return false;
        };
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.len() <= MAX_DAY_DIGITS && self.is_ordinal(before, after);
        }
        let is_number = || after.trim_start().starts_with(|c: char| c.is_ascii_digit());
        word.chars().count() == 1
            || self.words.contains(word)
            || self.before_numbers.contains(word) && is_number()
    }

    /// Whether a number between these texts is the ordinal number of a day.
    fn is_ordinal(&self, before: &str, after: &str) -> bool {
        let last = before.trim_end_matches(' ').rsplit(' ').find(|word| *word != ",");
        let next = || after.trim_start().split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        !self.before_ordinals.is_empty()
            && (last.is_some_and(|word| self.before_ordinals.contains(word))
                || self.months.contains(&next().to_lowercase()))
    }
}
