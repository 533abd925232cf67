//! Whether a text states to its reader that something is not so.
//!
//! In: a text. Out: whether a clause of a statement is negated. A question states nothing, nor does a condition ("if it
//! does not suit you"), an offer, or what the reader is asked not to do ("do not hesitate", "please do not reply").

use std::ops::Range;

use super::word_class::{ClassifiedWords, WordClass, WordClasses, classes, classes_of};
use super::{Language, ReadText, Reading};
use crate::measure::Memo;

/// Marks between clauses.
pub(super) const MARKS: [char; 14] =
    [',', ';', ':', '(', ')', '–', '—', '\n', '，', '；', '：', '、', '（', '）'];
/// Negations that are a part of something else: an offer ("don't hesitate"), a prohibition, a limit, "without delay".
const NO_STATEMENT: WordClasses = classes!(Offer Obligation Bound AtOnce Condition Confirmation);
/// The rest of a clause after one of these words is not stated.
const NOT_STATED: WordClasses = classes!(Condition Offer);

impl Language {
    /// Whether a clause asks the reader not to do something, or says that nothing has to be done.
    pub(super) fn begins_appeal(self, clause: &str) -> bool {
        let split = Reading::default().split(clause, self);
        let appeal = &self.lists().appeal;
        split
            .sentences(clause)
            .next()
            .is_some_and(|first| appeal.begins(&first) && !appeal.is_limited(&first))
    }

    /// Whether the clause at these bytes of `text` states that something is not so.
    fn denies(self, text: &str, clause: Range<usize>, places: &ClassifiedWords) -> bool {
        let words = places.within(clause.clone());
        let is_stated = |nth: usize| {
            // In languages without spaces the word of a condition comes last.
            let around = if self.is_spaced() { words.get(..nth) } else { Some(words) };
            !classes_of(around.unwrap_or_default()).has_any(NOT_STATED)
        };
        let mut negations = words
            .iter()
            .enumerate()
            .filter(|(_, word)| word.classes.has(WordClass::Negation) && !word.classes.has_any(NO_STATEMENT));
        negations.any(|(nth, _)| is_stated(nth))
            && text.get(clause).is_some_and(|clause| !self.begins_appeal(clause))
    }
}

impl ReadText<'_> {
    /// Whether a statement of the text denies something.
    pub(crate) fn denies_something(&self, memo: &Memo) -> bool {
        self.languages().any(|language| {
            let places = language.places(self.text, memo);
            let has_negation = places.all().has(WordClass::Negation);
            let mut statements = self.sentences(language).filter(|sentence| !sentence.is_question);
            has_negation
                && statements.any(|sentence| {
                    let mut clauses = sentence.text.split(MARKS);
                    clauses.any(|clause| {
                        let start = clause.as_ptr().addr() - self.text.as_ptr().addr();
                        language.denies(self.text, start..start + clause.len(), &places)
                    })
                })
        })
    }
}
