//! All occurrences of many words in a text, overlapping ones included, in one pass.
//!
//! In: a set of words, compiled once, and a text. Out: the occurring words with their byte ranges. A DFA needs more
//! memory than other automata, and less than half of their instructions. Words that can only begin at the beginning of
//! a word are searched only at these positions, most of which are excluded by three bytes.

use std::ops::Range;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, StartKind};

use super::ascii_letters::end_of_letters;

/// The positions at which words are searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SearchAt {
    /// At every byte.
    AllBytes,
    /// At ASCII letters with no ASCII letter before them, and at all other bytes.
    WordBeginnings,
}

/// An automaton of words.
#[derive(Debug)]
pub(crate) struct Occurrences {
    dfa: DFA,
    start: StateID,
    /// The beginnings of the words, if they are searched at [`SearchAt::WordBeginnings`].
    beginnings: Option<Beginnings>,
}

impl Occurrences {
    /// Compiles the words.
    ///
    /// # Errors
    /// The automaton of the words would be too large.
    pub(crate) fn new(
        words: &[impl AsRef<[u8]>],
        ignores_case: bool,
        positions: SearchAt,
    ) -> Result<Occurrences, String> {
        let (kind, anchored) = match positions {
            SearchAt::AllBytes => (StartKind::Unanchored, Anchored::No),
            SearchAt::WordBeginnings => (StartKind::Anchored, Anchored::Yes),
        };
        let dfa = DFA::builder().ascii_case_insensitive(ignores_case).start_kind(kind).build(words);
        let dfa = dfa.map_err(|e| e.to_string())?;
        let start = dfa.start_state(anchored).map_err(|e| e.to_string())?;
        let beginnings = (positions == SearchAt::WordBeginnings).then(|| Beginnings::new(words));
        Ok(Occurrences { dfa, start, beginnings })
    }

    /// Calls `visit` with the index and the byte range of each occurring word, until it returns false.
    pub(crate) fn find_each(&self, text: &str, mut visit: impl FnMut(usize, Range<usize>) -> bool) {
        let Some(beginnings) = &self.beginnings else {
            _ = self.read(text.as_bytes(), 0, Anchored::No, &mut visit);
            return;
        };
        let bytes = text.as_bytes();
        let mut position = 0;
        while let Some(byte) = bytes.get(position) {
            let rest = bytes.get(position..).unwrap_or_default();
            if beginnings.may_begin(rest) && !self.read(rest, position, Anchored::Yes, &mut visit) {
                return;
            }
            position =
                if byte.is_ascii_alphabetic() { end_of_letters(bytes, position) } else { position + 1 };
        }
    }

    /// Reads `rest`, which begins at the byte `from` of the text; returns false if `visit` returned false.
    #[inline]
    fn read(
        &self,
        rest: &[u8],
        from: usize,
        anchored: Anchored,
        visit: &mut impl FnMut(usize, Range<usize>) -> bool,
    ) -> bool {
        let mut state = self.start;
        for (i, byte) in rest.iter().enumerate() {
            state = self.dfa.next_state(anchored, state, *byte);
            if !self.dfa.is_special(state) {
                continue;
            }
            if self.dfa.is_dead(state) {
                break;
            }
            for nth in 0..if self.dfa.is_match(state) { self.dfa.match_len(state) } else { 0 } {
                let word = self.dfa.match_pattern(state, nth);
                let end = from + i + 1;
                if !visit(word.as_usize(), end - self.dfa.pattern_len(word)..end) {
                    return false;
                }
            }
        }
        true
    }
}

/// A filter of the first three bytes of words, in any case of ASCII letters. It may pass other words as well.
#[derive(Debug)]
pub(crate) struct Beginnings {
    /// By the first byte, a set of second bytes as bits, see [`bit`].
    second_bytes: [u32; 256],
    /// By the first two bytes, a set of third bytes, see [`pair`].
    third_bytes: Box<[u32; 1024]>,
}

/// The bit of a byte in a set. Several bytes share a bit, among them the two cases of a letter.
fn bit(byte: u8) -> u32 {
    1 << (byte & 31)
}

/// The index of two bytes, of which each case of a letter has the same.
fn pair(first: u8, second: u8) -> usize {
    usize::from(first & 31) << 5 | usize::from(second & 31)
}

impl Beginnings {
    pub(crate) fn new(words: &[impl AsRef<[u8]>]) -> Beginnings {
        let mut beginnings = Beginnings { second_bytes: [0; 256], third_bytes: Box::new([0; 1024]) };
        for word in words {
            let [first, rest @ ..] = word.as_ref() else { continue };
            for first in [first.to_ascii_lowercase(), first.to_ascii_uppercase()] {
                beginnings.second_bytes[usize::from(first)] |=
                    rest.first().map_or(u32::MAX, |second| bit(*second));
            }
            // Any bytes may follow a word of one or two bytes.
            match rest {
                [] => (0..32).for_each(|second| beginnings.third_bytes[pair(*first, second)] = u32::MAX),
                [second] => beginnings.third_bytes[pair(*first, *second)] = u32::MAX,
                [second, third, ..] => beginnings.third_bytes[pair(*first, *second)] |= bit(*third),
            }
        }
        beginnings
    }

    /// Whether `rest` may begin with a word.
    #[inline]
    pub(crate) fn may_begin(&self, rest: &[u8]) -> bool {
        match *rest {
            [first, second, third, ..] => {
                self.second_bytes[usize::from(first)] & bit(second) != 0
                    && self.third_bytes[pair(first, second)] & bit(third) != 0
            }
            [first, second] => self.second_bytes[usize::from(first)] & bit(second) != 0,
            [first] => self.second_bytes[usize::from(first)] != 0,
            [] => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_at_all_bytes_or_at_the_beginnings_of_words() {
        let words = ["ran", "rank", "'ll", "é", "i"];
        let find = |positions, text: &str| {
            let occurrences = Occurrences::new(&words, true, positions).unwrap();
            let mut found = Vec::new();
            occurrences.find_each(text, |word, range| {
                found.push((words[word], range.start));
                true
            });
            found.sort();
            found
        };
        let text = "Ranks: grant it'll-rank é1ran ran";
        let inside = find(SearchAt::AllBytes, text);
        assert_eq!(inside.len(), 10);
        assert!(inside.contains(&("ran", 8)));
        let is_letter = |at: usize| text.as_bytes()[at].is_ascii_alphabetic();
        let begins = |at: usize| !is_letter(at) || at == 0 || !is_letter(at - 1);
        let beginning: Vec<_> = inside.into_iter().filter(|(_, at)| begins(*at)).collect();
        assert_eq!(beginning.len(), 9);
        assert_eq!(find(SearchAt::WordBeginnings, text), beginning);
        let mut visits = 0;
        let occurrences = Occurrences::new(&words, true, SearchAt::WordBeginnings).unwrap();
        occurrences.find_each(text, |_, _| {
            visits += 1;
            visits < 2
        });
        assert_eq!(visits, 2, "the search ends when the closure returns false");
    }
}
