//! The kinds of sentences in texts that answer nothing.

use super::lists::Lists;
use super::sentence::Sentence;

/// What a sentence may be in a text that answers nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
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

impl Kind {
    pub(super) fn holds(self, sentence: &Sentence<'_>, lists: &Lists) -> bool {
        let asks = sentence.is_question;
        match self {
            Kind::Refusal => !asks && lists.refusal.finds(sentence),
            Kind::Inability => !asks && lists.inability.finds(sentence),
            Kind::Nothing => !asks && lists.nothing.is_all_of(sentence),
            Kind::Error => !asks && lists.error.finds(sentence),
            Kind::Stopped => !asks && lists.stopped.finds(sentence),
            Kind::Padding => asks || lists.padding.finds(sentence),
        }
    }
}
