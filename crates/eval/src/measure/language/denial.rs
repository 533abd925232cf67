//! Whether a text denies something to its reader.
//!
//! In: a text. Out: whether a clause of a statement is negated. Questions, conditions ("if it does not suit you"),
//! offers, and requests not to do something ("do not hesitate", "please do not reply") are not statements.

use std::ops::Range;

use super::word_class::{ClassifiedWords, WordClass, WordClasses, classes, classes_of};
use super::{Language, ReadText, Reading};
use crate::measure::Memo;

/// Characters between clauses.
pub(super) const CLAUSE_DELIMITERS: [char; 14] =
    [',', ';', ':', '(', ')', '–', '—', '\n', '，', '；', '：', '、', '（', '）'];
/// A negation that also has one of these classes is a part of an offer ("don't hesitate"), a prohibition, a limit, or
/// a phrase such as "without delay", and denies nothing.
const NON_DENYING: WordClasses = classes!(Offer Obligation Bound AtOnce Condition Confirmation);
/// Classes of words after which the content of a clause is not stated as a fact.
const NOT_STATED: WordClasses = classes!(Condition Offer);

impl Language {
    /// Whether a clause begins by asking the reader not to do something, or by stating that nothing has to be done.
    pub(super) fn begins_appeal(self, clause: &str) -> bool {
        let split = Reading::default().split(clause, self);
        let appeal = &self.lists().appeal;
        split
            .sentences(clause)
            .next()
            .is_some_and(|first| appeal.begins(&first) && !appeal.is_limited(&first))
    }

    /// Whether the clause at these bytes of `text` denies something.
    fn denies(self, text: &str, clause: Range<usize>, classified: &ClassifiedWords) -> bool {
        let words = classified.within(clause.clone());
        let is_stated = |nth: usize| {
            // In languages without spaces the word of a condition may follow the negation.
            let context = if self.is_spaced() { words.get(..nth) } else { Some(words) };
            !classes_of(context.unwrap_or_default()).has_any(NOT_STATED)
        };
        let mut negations = words
            .iter()
            .enumerate()
            .filter(|(_, word)| word.classes.has(WordClass::Negation) && !word.classes.has_any(NON_DENYING));
        negations.any(|(nth, _)| is_stated(nth))
            && text.get(clause).is_some_and(|clause| !self.begins_appeal(clause))
    }
}

impl<'t> ReadText<'t> {
    /// Whether a statement of the text denies something.
    pub(crate) fn denies_something(&self, memo: &Memo) -> bool {
        self.denials(memo).next().is_some()
    }

    /// The clauses of statements that deny something.
    pub(crate) fn denials<'s>(&'s self, memo: &'s Memo) -> impl Iterator<Item = &'t str> + use<'s, 't> {
        self.languages().flat_map(move |language| {
            let classified = language.places(self.text, memo);
            let has_negation = classified.all().has(WordClass::Negation);
            let statements =
                self.sentences(language).filter(move |sentence| has_negation && !sentence.is_question);
            let clauses = statements.flat_map(|sentence| sentence.text.split(CLAUSE_DELIMITERS));
            clauses.filter(move |clause| {
                let start = clause.as_ptr().addr() - self.text.as_ptr().addr();
                language.denies(self.text, start..start + clause.len(), &classified)
            })
        })
    }
}
