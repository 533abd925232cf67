//! The words in names of functions and tools.

use std::ops::Deref;
use std::rc::Rc;

use verdict_otlp::work;

use super::excerpt::push_lowercase;
use super::memo::Memo;
use crate::recognise::Text;

/// Maximum characters of a name that are read.
const MAX_CHARS: usize = 128;

/// The words of an identifier in lower case: it is split at every character that is no letter or digit, and where an
/// upper-case letter follows a lower-case one (`visitPage`, `visit_page`, `visit-page`).
pub(crate) fn identifier_words(name: &str) -> Vec<String> {
    let mut words = Vec::with_capacity(4);
    each_word(name, |word| {
        // Most words are ASCII, for which this is faster.
        if word.is_ascii() {
            return words.push(word.to_ascii_lowercase());
        }
        let mut lower = String::with_capacity(word.len());
        push_lowercase(&mut lower, word);
        words.push(lower);
    });
    words
}

/// The words of a tool's name, which several rules read.
pub(crate) struct NameWords(Vec<String>);

impl NameWords {
    /// The words of a tool's name, read once per trace.
    pub(crate) fn cached(tool: &Text, memo: &Memo) -> Rc<NameWords> {
        memo.for_text(tool, |name| NameWords(identifier_words(name)))
    }
}

impl Deref for NameWords {
    type Target = [String];
    fn deref(&self) -> &[String] {
        &self.0
    }
}

/// Calls `add` with each word of an identifier, as [`identifier_words`] splits it, without a change of case.
pub(crate) fn each_word<'n>(name: &'n str, mut add: impl FnMut(&'n str)) {
    work::count(1);
    // A character has at least one byte.
    let end = match name.len() {
        ..=MAX_CHARS => name.len(),
        _ => name.char_indices().nth(MAX_CHARS).map_or(name.len(), |(i, _)| i),
    };
    let name = name.get(..end).unwrap_or(name);
    if name.is_ascii() {
        return each_ascii_word(name, add);
    }
    for part in name.split(|c: char| !c.is_alphanumeric()) {
        let (mut start, mut after_lower) = (0, false);
        for (i, c) in part.char_indices() {
            if after_lower && c.is_uppercase() {
                add(part.get(start..i).unwrap_or_default());
                start = i;
            }
            after_lower = c.is_lowercase();
        }
        if start < part.len() {
            add(part.get(start..).unwrap_or_default());
        }
    }
}

/// As [`each_word`], for a name of ASCII characters.
fn each_ascii_word<'n>(name: &'n str, mut add: impl FnMut(&'n str)) {
    let (mut start, mut after_lower) = (0, false);
    let mut add_range = |start: usize, end: usize| {
        if start < end {
            add(name.get(start..end).unwrap_or_default());
        }
    };
    for (i, byte) in name.bytes().enumerate() {
        if !byte.is_ascii_alphanumeric() {
            add_range(start, i);
            start = i + 1;
        } else if after_lower && byte.is_ascii_uppercase() {
            add_range(start, i);
            start = i;
        }
        after_lower = byte.is_ascii_lowercase();
    }
    add_range(start, name.len());
}

/// Whether a value has the form of an e-mail address, whose domain ends in letters; "react@18.2.0" is a version.
pub(crate) fn is_email_address(value: &str) -> bool {
    let domain = value.split_once('@').filter(|(name, _)| !name.is_empty()).map(|(_, domain)| domain);
    let top_level_domain = domain.and_then(|domain| domain.rsplit_once('.'));
    top_level_domain.is_some_and(|(_, top_level_domain)| {
        top_level_domain.len() > 1 && top_level_domain.chars().all(char::is_alphabetic)
    })
}
