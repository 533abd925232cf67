//! Finds in one pass which of several groups of verbs may be in the words of a sentence.
//!
//! In: for each group, a pattern of verbs. Out: the groups of which the words have the beginning of a verb, which is
//! all of it for most. A group whose verbs have no known beginnings may always be there.

use regex_syntax::hir::literal::Extractor;

use crate::measure::occurrences::{Occurrences, Within};

/// Most beginnings of the verbs of one group.
const MAX_LITERALS: usize = 1000;

/// The groups of some words, one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct VerbGroups(u32);

impl VerbGroups {
    pub(super) fn has(self, group: usize) -> bool {
        self.0.checked_shr(group as u32).is_none_or(|bits| bits & 1 == 1)
    }

    pub(super) fn union(self, others: VerbGroups) -> VerbGroups {
        VerbGroups(self.0 | others.0)
    }

    /// The group alone; those beyond the bits are always there.
    pub(super) fn only(group: usize) -> VerbGroups {
        VerbGroups(1u32.checked_shl(group as u32).unwrap_or_default())
    }
}

#[derive(Debug)]
pub(super) struct VerbFinder {
    beginnings: Occurrences,
    /// By beginning.
    groups: Vec<VerbGroups>,
    /// The groups whose verbs have no known beginnings.
    always: VerbGroups,
    all: VerbGroups,
    /// Spaces separate words: a verb is a word.
    spaced: bool,
}

impl VerbFinder {
    /// # Errors
    /// A pattern is no regular expression, or the verbs are too many for an automaton.
    pub(super) fn new(patterns: impl Iterator<Item = String>, spaced: bool) -> Result<VerbFinder, String> {
        let (mut literals, mut groups) = (Vec::new(), Vec::new());
        let (mut always, mut all) = (VerbGroups::default(), VerbGroups::default());
        let mut extractor = Extractor::new();
        extractor.limit_total(MAX_LITERALS);
        for (nth, pattern) in patterns.enumerate() {
            let group = VerbGroups::only(nth);
            all = all.union(group);
            let hir = regex_syntax::parse(&pattern).map_err(|e| e.to_string())?;
            match extractor.extract(&hir).literals() {
                Some(found) if found.iter().all(|literal| !literal.is_empty()) => {
                    literals.extend(found.iter().map(|literal| literal.as_bytes().to_vec()));
                    groups.resize(literals.len(), group);
                }
                _ => always = always.union(group),
            }
        }
        Ok(VerbFinder {
            beginnings: Occurrences::new(&literals, false, Within::Text)?,
            groups,
            always,
            all,
            spaced,
        })
    }

    /// The groups that may be in `words`.
    pub(super) fn find(&self, words: &str) -> VerbGroups {
        let mut found = self.always;
        self.beginnings.find_each(words, |beginning, at| {
            let before = at.start.checked_sub(1).and_then(|before| words.as_bytes().get(before));
            let is_inside = self.spaced && before.is_some_and(u8::is_ascii_alphabetic);
            if !is_inside {
                found = found.union(self.groups.get(beginning).copied().unwrap_or(self.all));
            }
            found != self.all
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_the_beginnings_of_their_verbs() {
        let patterns =
            ["cancell?ed|called off", "(?:full |partial )?refunds?", "[^ ]*iert", "let [^ ]+ know"];
        let finder = VerbFinder::new(patterns.into_iter().map(str::to_owned), true).unwrap();
        let found = |words: &str| (0..4).filter(|nth| finder.find(words).has(*nth)).collect::<Vec<_>>();
        assert_eq!(found(" i canceled it "), [0, 2]);
        assert_eq!(found(" i called it off "), [2]);
        assert_eq!(found(" a refund, called off "), [0, 1, 2]);
        assert_eq!(found(" i let you know "), [2, 3]);
        assert_eq!(found(" the outlet prerefunds "), [2], "inside words");
        assert!(finder.find("").has(40), "beyond the bits");
    }
}
