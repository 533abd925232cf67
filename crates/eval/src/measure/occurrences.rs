//! All places of many words in a text, overlapping ones included, in one pass.
//!
//! In: the words, once, and a text. Out: the words found, with their places. A DFA takes more memory than the other
//! automata, and less than half of their instructions. Words that can only begin where a word of the text does are
//! searched for there alone: most words of a text are excluded by their first two bytes.

use std::ops::Range;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, StartKind};

use super::ascii_letters::end_of_letters;

/// Where words are searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Within {
    /// At every byte.
    Text,
    /// At every byte with no ASCII letter before it, and at bytes that are no ASCII letters.
    Beginnings,
}

/// An automaton of words.
#[derive(Debug)]
pub(crate) struct Occurrences {
    dfa: DFA,
    start: StateID,
    /// The beginnings of the words, if they are searched for at those of the text.
    beginnings: Option<Beginnings>,
}

impl Occurrences {
    /// # Errors
    /// The words are too many for an automaton.
    pub(crate) fn new(
        words: &[impl AsRef<[u8]>],
        ignores_case: bool,
        within: Within,
    ) -> Result<Occurrences, String> {
        let (kind, anchored) = match within {
            Within::Text => (StartKind::Unanchored, Anchored::No),
            Within::Beginnings => (StartKind::Anchored, Anchored::Yes),
        };
        let dfa = DFA::builder().ascii_case_insensitive(ignores_case).start_kind(kind).build(words);
        let dfa = dfa.map_err(|e| e.to_string())?;
        let start = dfa.start_state(anchored).map_err(|e| e.to_string())?;
        let beginnings = (within == Within::Beginnings).then(|| Beginnings::new(words));
        Ok(Occurrences { dfa, start, beginnings })
    }

    /// Calls `found` with the index of each word that is found and with its bytes, until it returns false.
    pub(crate) fn find_each(&self, text: &str, mut found: impl FnMut(usize, Range<usize>) -> bool) {
        let Some(beginnings) = &self.beginnings else {
            _ = self.read(text.as_bytes(), 0, Anchored::No, &mut found);
            return;
        };
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let rest = bytes.get(at..).unwrap_or_default();
            if beginnings.may_begin(rest) && !self.read(rest, at, Anchored::Yes, &mut found) {
                return;
            }
            at = if byte.is_ascii_alphabetic() { end_of_letters(bytes, at) } else { at + 1 };
        }
    }

    /// Reads the text that begins at `from`; false if `found` returns it.
    #[inline]
    fn read(
        &self,
        rest: &[u8],
        from: usize,
        anchored: Anchored,
        found: &mut impl FnMut(usize, Range<usize>) -> bool,
    ) -> bool {
        let mut state = self.start;
        for (at, byte) in rest.iter().enumerate() {
            state = self.dfa.next_state(anchored, state, *byte);
            if !self.dfa.is_special(state) {
                continue;
            }
            if self.dfa.is_dead(state) {
                break;
            }
            for nth in 0..if self.dfa.is_match(state) { self.dfa.match_len(state) } else { 0 } {
                let word = self.dfa.match_pattern(state, nth);
                let end = from + at + 1;
                if !found(word.as_usize(), end - self.dfa.pattern_len(word)..end) {
                    return false;
                }
            }
        }
        true
    }
}

/// The first two bytes of words, in any case of ASCII letters: a set that others may be in as well.
#[derive(Debug)]
pub(crate) struct Beginnings {
    /// By the first byte of a word, a bit set of the second ones, see [`bit`].
    seconds: [u32; 256],
}

/// The bit of a byte in a set; several bytes share one, the cases of a letter among them.
fn bit(byte: u8) -> u32 {
    1 << (byte & 31)
}

impl Beginnings {
    pub(crate) fn new(words: &[impl AsRef<[u8]>]) -> Beginnings {
        let mut seconds = [0; 256];
        for word in words {
            if let [first, rest @ ..] = word.as_ref() {
                for first in [first.to_ascii_lowercase(), first.to_ascii_uppercase()] {
                    seconds[usize::from(first)] |= rest.first().map_or(u32::MAX, |second| bit(*second));
                }
            }
        }
        Beginnings { seconds }
    }

    /// Whether a word may begin `rest`: most texts that begin with the first byte of one go on differently.
    #[inline]
    pub(crate) fn may_begin(&self, rest: &[u8]) -> bool {
        let [first, rest @ ..] = rest else { return false };
        self.seconds[usize::from(*first)] & rest.first().map_or(u32::MAX, |second| bit(*second)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_everywhere_or_where_words_begin() {
        let words = ["ran", "rank", "'ll", "é", "i"];
        let found = |within, text: &str| {
            let occurrences = Occurrences::new(&words, true, within).unwrap();
            let mut found = Vec::new();
            occurrences.find_each(text, |word, at| {
                found.push((words[word], at.start));
                true
            });
            found.sort();
            found
        };
        let text = "Ranks: grant it'll-rank é1ran ran";
        let inside = found(Within::Text, text);
        assert_eq!(inside.len(), 10);
        assert!(inside.contains(&("ran", 8)));
        let is_letter = |at: usize| text.as_bytes()[at].is_ascii_alphabetic();
        let begins = |at: usize| !is_letter(at) || at == 0 || !is_letter(at - 1);
        let beginning: Vec<_> = inside.into_iter().filter(|(_, at)| begins(*at)).collect();
        assert_eq!(beginning.len(), 9);
        assert_eq!(found(Within::Beginnings, text), beginning);
        let mut seen = 0;
        let occurrences = Occurrences::new(&words, true, Within::Beginnings).unwrap();
        occurrences.find_each(text, |_, _| {
            seen += 1;
            seen < 2
        });
        assert_eq!(seen, 2, "ends with the first refusal");
    }
}
