//! Finds in one pass the groups of verbs that may occur in the words of a sentence.
//!
//! In: for each group, a pattern of verbs. Out: the groups with a verb whose literal beginning is in the words; for
//! most verbs it is the whole verb. A group with a verb that has no literal beginning may always occur.

use regex_syntax::hir::literal::Extractor;

use crate::measure::occurrences::{Occurrences, SearchAt};

/// Maximum literal beginnings of the verbs of one group.
const MAX_LITERALS: usize = 1000;

/// A set of groups, with one bit for each. Groups beyond the bits are always in the set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct VerbGroups(u32);

impl VerbGroups {
    pub(super) fn has(self, group: usize) -> bool {
        self.0.checked_shr(group as u32).is_none_or(|bits| bits & 1 == 1)
    }

    pub(super) fn union(self, others: VerbGroups) -> VerbGroups {
        VerbGroups(self.0 | others.0)
    }

    /// The set of this group alone.
    pub(super) fn only(group: usize) -> VerbGroups {
        VerbGroups(1u32.checked_shl(group as u32).unwrap_or_default())
    }
}

/// Searches the literal beginnings of verbs.
#[derive(Debug)]
pub(super) struct VerbFinder {
    beginnings: Occurrences,
    /// By index of `beginnings`, the group of the verb.
    groups: Vec<VerbGroups>,
    /// The groups with a verb that has no literal beginning.
    always: VerbGroups,
    all: VerbGroups,
    /// Whether spaces separate words, so that a verb begins at the beginning of a word.
    has_spaces: bool,
}

impl VerbFinder {
    /// # Errors
    /// A pattern is not a regular expression, or an automaton for all verbs would be too large.
    pub(super) fn new(
        patterns: impl Iterator<Item = String>,
        has_spaces: bool,
    ) -> Result<VerbFinder, String> {
        let (mut literals, mut groups) = (Vec::new(), Vec::new());
        let (mut always, mut all) = (VerbGroups::default(), VerbGroups::default());
        let mut extractor = Extractor::new();
        extractor.limit_total(MAX_LITERALS);
        for (nth, pattern) in patterns.enumerate() {
            let group = VerbGroups::only(nth);
            all = all.union(group);
            let hir = regex_syntax::parse(&pattern).map_err(|e| e.to_string())?;
            match extractor.extract(&hir).literals() {
                Some(literals_of_group) if literals_of_group.iter().all(|literal| !literal.is_empty()) => {
                    literals.extend(literals_of_group.iter().map(|literal| literal.as_bytes().to_vec()));
                    groups.resize(literals.len(), group);
                }
                _ => always = always.union(group),
            }
        }
        Ok(VerbFinder {
            beginnings: Occurrences::new(&literals, false, SearchAt::AllBytes)?,
            groups,
            always,
            all,
            has_spaces,
        })
    }

    /// The groups of which `words` may contain a verb.
    pub(super) fn find(&self, words: &str) -> VerbGroups {
        let mut groups = self.always;
        self.beginnings.find_each(words, |beginning, at| {
            let before = at.start.checked_sub(1).and_then(|before| words.as_bytes().get(before));
            let is_inside = self.has_spaces && before.is_some_and(u8::is_ascii_alphabetic);
            if !is_inside {
                groups = groups.union(self.groups.get(beginning).copied().unwrap_or(self.all));
            }
            groups != self.all
        });
        groups
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
