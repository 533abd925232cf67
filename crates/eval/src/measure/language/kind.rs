//! The kinds of sentences in texts that answer nothing.

use super::lists::Lists;
use super::sentence::Sentence;

/// The kind of a sentence in a text that gives no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SentenceKind {
    Refusal,
    Inability,
    /// Words in place of an answer that is not known: "unknown".
    Nothing,
    Error,
    /// The run ended before an answer.
    Stopped,
    /// Apologies, thanks, advice, offers, attempts and questions.
    Padding,
}

impl SentenceKind {
    pub(super) fn is_true(self, sentence: &Sentence<'_>, lists: &Lists) -> bool {
        let asks = sentence.is_question;
        match self {
            SentenceKind::Refusal => !asks && lists.refusal.finds(sentence),
            SentenceKind::Inability => !asks && lists.inability.finds(sentence),
            SentenceKind::Nothing => !asks && lists.nothing.is_all_of(sentence),
            SentenceKind::Error => !asks && lists.error.finds(sentence),
            SentenceKind::Stopped => !asks && lists.stopped.finds(sentence),
            SentenceKind::Padding => asks || lists.padding.finds(sentence),
        }
    }
}
