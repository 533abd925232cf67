//! Words of instructions: words without content, negations, names of days and seasons, and pairs of opposites.
//!
//! In: the section `requests` of a language's data file. Out: [`RequestWords`]. Lists are words separated by spaces;
//! each entry of `opposites` has two sides.

use std::collections::HashMap;

use foldhash::HashSet;
use serde::Deserialize;

use super::word_class::{WordClass, WordClassTable};

/// The section `requests` of a data file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestsFile {
    /// Words that carry no content.
    function: String,
    /// Verbs that ask for any kind of result: "fetch", "list".
    verbs: String,
    negation: String,
    /// Prefixes that negate a word: "un".
    prefixes: String,
    /// Endings of inflected forms, longest first.
    endings: String,
    /// For each ending of an imperative, a participle or a noun, the endings of the verb in its base form; `-` is none:
    /// "ation - e" for "cancellation" and "confirmation".
    verb_forms: Vec<String>,
    /// Names of seasons, and of days that are not in the closed classes.
    calendar: String,
    /// Words between two objects whose order has a meaning: "from", "to".
    directed: String,
    /// Whether common nouns begin with a capital letter, so that a capital letter does not indicate a name.
    #[serde(default)]
    nouns_in_capitals: bool,
    /// The two sides of comparisons, changes, times and signs.
    opposites: Vec<[String; 2]>,
}

/// Words of instructions in one language.
#[derive(Debug)]
pub(crate) struct RequestWords {
    function: HashSet<String>,
    verbs: HashSet<String>,
    negation: HashSet<String>,
    prefixes: Vec<String>,
    endings: Vec<String>,
    verb_forms: Vec<(String, Vec<String>)>,
    numbers: HashMap<String, u32>,
    calendar: HashSet<String>,
    directed: HashSet<String>,
    pub nouns_in_capitals: bool,
    /// By word, its entry of `opposites`, and whether it is on the first side.
    opposites: HashMap<String, (usize, bool)>,
}

/// An entry of `verb_forms`: the ending, and the endings of the verb.
fn verb_form(entry: &str) -> (String, Vec<String>) {
    let mut endings =
        entry.split_whitespace().map(|ending| if ending == "-" { "" } else { ending }.to_owned());
    (endings.next().unwrap_or_default(), endings.collect())
}

/// Minimum characters of a word after its ending or prefix is removed.
const MIN_STEM_CHARS: usize = 3;

impl RequestWords {
    /// The words of a data file. Numbers and names of days and months are read from the closed classes.
    pub(super) fn new(file: &RequestsFile, classes: &WordClassTable) -> RequestWords {
        let set = |words: &str| words.split_whitespace().map(str::to_owned).collect::<HashSet<String>>();
        let list = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let sides = file.opposites.iter().enumerate().flat_map(|(n, sides)| {
            let side_words = move |side: usize, words: &'_ str| {
                words.split_whitespace().map(|w| (w.to_owned(), (n, side == 0))).collect::<Vec<_>>()
            };
            [side_words(0, &sides[0]), side_words(1, &sides[1])].concat()
        });
        let numbers = classes.words(WordClass::Number).filter(|(_, value)| *value > 1);
        let numbers = numbers.map(|(word, value)| (word.to_owned(), value.into())).collect();
        let mut calendar = set(&file.calendar);
        for class in [WordClass::Weekday, WordClass::Month, WordClass::RelativeDay] {
            calendar.extend(classes.words(class).map(|(word, _)| word.to_lowercase()));
        }
        RequestWords {
            function: set(&file.function),
            verbs: set(&file.verbs),
            negation: set(&file.negation),
            prefixes: list(&file.prefixes),
            endings: list(&file.endings),
            verb_forms: file.verb_forms.iter().map(|form| verb_form(form)).collect(),
            numbers,
            calendar,
            directed: set(&file.directed),
            nouns_in_capitals: file.nouns_in_capitals,
            opposites: sides.collect(),
        }
    }
}

impl RequestWords {
    /// Whether a word in lower case carries content.
    pub(crate) fn has_content(&self, word: &str) -> bool {
        !self.function.contains(word) && !self.verbs.contains(word) && !self.negation.contains(word)
    }

    /// Whether a word in lower case is a function word that changes no instruction, as a negation would.
    pub(crate) fn is_function_word(&self, word: &str) -> bool {
        self.function.contains(word)
    }

    /// Whether a word is a negation.
    pub(crate) fn negates(&self, word: &str) -> bool {
        self.negation.contains(word)
    }

    /// Whether a word is between two objects whose order has a meaning: "from", "to".
    pub(crate) fn is_directed(&self, word: &str) -> bool {
        self.directed.contains(word)
    }

    /// Whether a word names a day, a month or a season.
    pub(crate) fn is_date(&self, word: &str) -> bool {
        self.calendar.contains(word)
    }

    /// The value of a number word.
    pub(crate) fn number(&self, word: &str) -> Option<u32> {
        self.numbers.get(word).copied()
    }

    /// The entry of `opposites` that contains the word, and whether the word is on its first side.
    pub(crate) fn side(&self, word: &str) -> Option<(usize, bool)> {
        self.opposites.get(word).copied()
    }

    /// The word without the ending of an inflected form.
    pub(crate) fn stem<'w>(&self, word: &'w str) -> &'w str {
        let is_long = |stem: &&str| stem.chars().count() >= MIN_STEM_CHARS;
        self.endings.iter().find_map(|end| word.strip_suffix(end.as_str()).filter(is_long)).unwrap_or(word)
    }

    /// The verbs in their base form of which a word in lower case may be an imperative, a participle or a noun. Most of
    /// the results are not words of the language.
    pub(super) fn possible_verbs<'w>(&'w self, word: &'w str) -> impl Iterator<Item = String> + 'w {
        self.verb_forms.iter().flat_map(move |(ending, verb_endings)| {
            let root =
                word.strip_suffix(ending.as_str()).filter(|root| root.chars().count() >= MIN_STEM_CHARS);
            // A doubled consonant before the ending: "stopping".
            let doubled = root.filter(|_| !ending.is_empty()).and_then(|root| {
                root.strip_suffix(|c| root.strip_suffix(c).is_some_and(|rest| rest.ends_with(c)))
            });
            let verbs =
                root.into_iter().flat_map(|root| verb_endings.iter().map(move |end| format!("{root}{end}")));
            verbs.chain(doubled.map(str::to_owned))
        })
    }

    /// The word without each negating prefix that it begins with: "resolved" of "unresolved", but also "der" of
    /// "under". The caller has to check that a text contains the result as a word.
    pub(crate) fn without_prefix<'w>(&'w self, word: &'w str) -> impl Iterator<Item = &'w str> + 'w {
        let words = self.prefixes.iter().filter_map(move |prefix| word.strip_prefix(prefix.as_str()));
        words.filter(|word| word.chars().count() >= MIN_STEM_CHARS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Language;

    #[test]
    fn only_languages_with_spaces_have_words_of_requests() {
        for language in Language::ALL {
            assert_eq!(language.lists().requests.is_some(), language.is_spaced(), "{}", language.as_str());
        }
    }

    #[test]
    fn endings_are_tried_longest_first() {
        for language in Language::ALL {
            let Some(words) = &language.lists().requests else { continue };
            for (i, end) in words.endings.iter().enumerate() {
                let shadowed = words.endings[..i].iter().find(|earlier| end.ends_with(earlier.as_str()));
                assert_eq!(shadowed, None, "{}: {end}", language.as_str());
            }
        }
    }

    #[test]
    fn opposites_have_words_on_both_sides() {
        for language in Language::ALL {
            let Some(words) = &language.lists().requests else { continue };
            assert!(words.opposites.values().any(|(_, side)| *side), "{}", language.as_str());
            assert!(words.opposites.values().any(|(_, side)| !*side), "{}", language.as_str());
        }
    }
}
