//! Words for people who are counted.
//!
//! In: a word, or the two words before a number. Out: whether it names people, or the number is one of people.

use std::sync::LazyLock;

use foldhash::HashSet;

const PEOPLE: &str = include_str!("language/data/people.txt");

static WORDS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let lines =
        PEOPLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" | "));
    lines.flat_map(|(names, openings)| names.split(' ').chain(openings.split(", "))).collect()
});

/// Whether a word in lower case names people.
pub(crate) fn are_named_by(word: &str) -> bool {
    WORDS.contains(word)
}

/// Whether a number after these two words in lower case is one of people: "a table for 4".
pub(crate) fn are_counted_behind(words: &str) -> bool {
    words.contains(' ') && WORDS.contains(words)
}
