//! The kinds of sentences in texts that avoid an answer.

use super::lists::Lists;
use super::sentence::Sentence;

/// The kind of a sentence in a text that avoids an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SentenceKind {
    Refusal,
    Inability,
    /// The sentence consists of words in place of an unknown answer: "unknown".
    Nothing,
    Error,
    /// The run ended before an answer.
    Stopped,
    /// Apologies, thanks, advice, offers, attempts and questions.
    Padding,
}

impl SentenceKind {
    /// Whether `sentence` is of this kind.
    pub(super) fn includes(self, sentence: &Sentence<'_>, lists: &Lists) -> bool {
        let is_question = sentence.is_question;
        match self {
            SentenceKind::Refusal => !is_question && lists.refusal.finds(sentence),
            SentenceKind::Inability => !is_question && lists.inability.finds(sentence),
            SentenceKind::Nothing => !is_question && lists.nothing.is_whole(sentence),
            SentenceKind::Error => !is_question && lists.error.finds(sentence),
            SentenceKind::Stopped => !is_question && lists.stopped.finds(sentence),
            SentenceKind::Padding => is_question || lists.padding.finds(sentence),
        }
    }
}
