//! Regular expressions of the rules: compiled once, in linear time, fast on texts in any script.
//!
//! Every built-in pattern is declared with `regex!`, and every set, table or automaton that is built from patterns or
//! embedded data with `checked_static!`. Both add a test that builds the value.

use std::fmt::Display;

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, BuildError, MatchKind};
pub(crate) use regex::Regex;
use verdict_otlp::work::{self, BYTES_PER_STEP};

/// `checked_static!(NAME: Type = result)` declares a `static` that is built at its first use, and a test that builds
/// it. Use it at module level only: the test must be an item of a module.
macro_rules! checked_static {
    ($name:ident: $type:ty = $result:expr) => {
        static $name: ::std::sync::LazyLock<$type> =
            ::std::sync::LazyLock::new(|| $crate::pattern::unwrap_static(stringify!($name), $result));

        #[cfg(test)]
        #[allow(non_snake_case)]
        mod $name {
            #[test]
            fn is_built() {
                ::std::sync::LazyLock::force(&super::$name);
            }
        }
    };
}

/// `regex!(NAME, source)` declares a checked `static` that compiles `source` with [`pattern`].
macro_rules! regex {
    ($name:ident, $source:expr $(,)?) => {
        checked_static!($name: $crate::pattern::Regex = $crate::pattern::pattern($source));
    };
}

/// The value of `result`, with which a `static` is initialised.
#[allow(clippy::panic, reason = "the values are constants, and a test builds each: this cannot be reached")]
pub(crate) fn unwrap_static<T>(name: &str, result: Result<T, impl Display>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{name} cannot be built: {error}"),
    }
}

/// Compiles `source` with ASCII word boundaries, words, digits and spaces. With Unicode word boundaries,
/// every text with a non-ASCII letter falls back to the slowest engine; Unicode classes make automata
/// many times larger.
///
/// # Errors
/// `source` is no regular expression, or its program is too large.
pub(crate) fn pattern(source: &str) -> Result<Regex, regex::Error> {
    let mut ascii = String::with_capacity(source.len() * 2);
    let mut chars = source.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        if c != '\\' {
            in_class = match c {
                '[' => true,
                ']' => false,
                _ => in_class,
            };
            ascii.push(c);
            continue;
        }
        match (chars.next(), in_class) {
            (Some('b'), false) => ascii.push_str("(?-u:\\b)"),
            (Some('w'), true) => ascii.push_str("A-Za-z0-9_"),
            (Some('w'), false) => ascii.push_str("[A-Za-z0-9_]"),
            (Some('d'), true) => ascii.push_str("0-9"),
            (Some('d'), false) => ascii.push_str("[0-9]"),
            // As an escape: verbose patterns ignore a literal space even inside brackets.
            (Some('s'), true) => ascii.push_str("\\x20\\t\\r\\n"),
            (Some('s'), false) => ascii.push_str("[\\x20\\t\\r\\n]"),
            (Some(other), _) => ascii.extend(['\\', other]),
            (None, _) => {}
        }
    }
    unicode_regex(&ascii)
}

/// Compiles `source` without changes, so its classes are Unicode classes: for patterns of the configuration, and for
/// built-in ones that match texts in any script.
///
/// # Errors
/// `source` is no regular expression, or its program is too large.
#[allow(clippy::disallowed_methods, reason = "the one place that compiles patterns")]
pub(crate) fn unicode_regex(source: &str) -> Result<Regex, regex::Error> {
    Regex::new(source)
}

/// Searches a text for the first of a few words, with SIMD instructions where the CPU has them.
pub(crate) struct WordSearcher {
    /// `None` where the CPU lacks the instructions.
    simd: Option<Searcher>,
    automaton: AhoCorasick,
}

impl WordSearcher {
    /// # Errors
    /// There are too many words for an automaton.
    pub(crate) fn new(words: &[&str]) -> Result<WordSearcher, BuildError> {
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(words)?;
        Ok(WordSearcher { simd: Searcher::new(words), automaton })
    }

    /// The byte position of the first occurrence of any of the words in `text`.
    pub(crate) fn find(&self, text: &str) -> Option<usize> {
        let first_match = match &self.simd {
            Some(simd) => simd.find(text),
            None => self.automaton.find(text),
        };
        Some(first_match?.start())
    }
}

/// Whether `text` contains `needle`, ignoring the case of ASCII letters. `needle` must be in lower case.
pub(crate) fn contains_ignoring_case(text: &str, needle: &str) -> bool {
    work::count(1 + text.len() / BYTES_PER_STEP);
    let (text, needle) = (text.as_bytes(), needle.as_bytes());
    // The needle is compared only at the occurrences of its rarest byte.
    let rarest = needle.iter().enumerate().min_by_key(|(_, byte)| FREQUENCIES[usize::from(**byte)]);
    let Some((offset, byte)) = rarest else { return true };
    let mut positions = memchr::memchr2_iter(*byte, byte.to_ascii_uppercase(), text);
    positions.any(|position| {
        let start = position.checked_sub(offset);
        let part = start.and_then(|start| text.get(start..start + needle.len()));
        part.is_some_and(|part| part.eq_ignore_ascii_case(needle))
    })
}

/// The approximate rank of each byte by its frequency in texts and JSON; the most frequent has the highest rank.
const FREQUENCIES: [u8; 256] = {
    /// From the rarest to the most frequent.
    const LETTERS: &[u8; 26] = b"zqxjkvbpygfwmucldrhsnioate";
    let mut out = [0; 256];
    let mut rank = 0;
    while rank < LETTERS.len() {
        out[LETTERS[rank] as usize] = rank as u8;
        rank += 1;
    }
    let mut digit = b'0';
    while digit <= b'9' {
        out[digit as usize] = 12;
        digit += 1;
    }
    out[b' ' as usize] = u8::MAX;
    out
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_boundary_matches_next_to_non_ascii_text() {
        let re = pattern(r"(?i)\bno\b").unwrap();
        assert!(re.is_match("\u{e9} no \u{e9}") && !re.is_match("nox"));
    }

    #[test]
    fn words_are_found_at_the_same_position_with_and_without_simd() {
        let words = ["exit", "return code", "code"];
        let searchers = [(); 2].map(|()| WordSearcher::new(&words).unwrap());
        let [simd_searcher, mut plain] = searchers;
        plain.simd = None;
        let padding = "x".repeat(100);
        for (text, expected) in [("a return code, exit", Some(2)), ("exi\u{e9}", None), ("", None)] {
            for text in [text.to_owned(), format!("{text}{padding}")] {
                assert_eq!([simd_searcher.find(&text), plain.find(&text)], [expected; 2], "{text}");
            }
        }
    }

    #[test]
    fn classes_are_ascii_inside_and_outside_brackets() {
        let re = pattern(r"^[\w.-]+\s\d{2}\w$").unwrap();
        assert!(re.is_match("a.b-c 12x") && !re.is_match("\u{e9} 12x"));
    }
}
