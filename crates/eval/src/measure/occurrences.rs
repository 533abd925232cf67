//! All places of many words in a text, overlapping ones included, in one pass.
//!
//! In: the words, once, and a text. Out: the words that end at each place, in the order of their ends. A DFA takes
//! more memory than the other automata, and less than half of their instructions.

use std::ops::Range;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;

/// An automaton of words.
#[derive(Debug)]
pub(crate) struct Occurrences {
    dfa: DFA,
    start: StateID,
}

impl Occurrences {
    /// # Errors
    /// The words are too many for an automaton.
    pub(crate) fn of(words: &[impl AsRef<[u8]>], ignores_case: bool) -> Result<Occurrences, String> {
        let dfa = DFA::builder().ascii_case_insensitive(ignores_case).build(words);
        let dfa = dfa.map_err(|e| e.to_string())?;
        let start = dfa.start_state(Anchored::No).map_err(|e| e.to_string())?;
        Ok(Occurrences { dfa, start })
    }

    /// Calls `found` with the index of each word that is found and with its bytes, until it returns false.
    pub(crate) fn find_each(&self, text: &str, mut found: impl FnMut(usize, Range<usize>) -> bool) {
        let mut state = self.start;
        for (at, byte) in text.bytes().enumerate() {
            state = self.dfa.next_state(Anchored::No, state, byte);
            if self.dfa.is_match(state) {
                for nth in 0..self.dfa.match_len(state) {
                    let word = self.dfa.match_pattern(state, nth);
                    let start = at + 1 - self.dfa.pattern_len(word);
                    if !found(word.as_usize(), start..at + 1) {
                        return;
                    }
                }
            }
        }
    }
}
