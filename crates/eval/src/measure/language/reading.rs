//! The cached analysis of a text: its language, its sentences, its words of closed classes, the kinds of its sentences,
//! and its claims. A text is analysed once per trace, no matter how many rules read it.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use super::claim::ActionClaim;
use super::detect;
use super::sentence::{Sentence, SplitText};
use super::sentence_kind::SentenceKind;
use super::supported::Language;
use super::word_class::ClassifiedWords;
use crate::measure::Memo;
use crate::measure::excerpt::{clip, clip_end};

/// Maximum bytes at the beginning of a text that are read. Statements about an answer as a whole are at its beginning
/// or its end.
const HEAD_BYTES: usize = 12 * 1024;
/// Maximum bytes at the end of a text that are read.
pub(super) const TAIL_BYTES: usize = 4 * 1024;

/// The analysis of a text, each part of which is computed at its first use.
#[derive(Debug, Default)]
pub(super) struct Reading {
    language: OnceCell<detect::Detected>,
    /// By language, the sentences of the text. A short text in an unknown language is split in every language.
    split: RefCell<Vec<(Language, Rc<SplitText>)>>,
    /// By language, the claims of done actions.
    done_claims: RefCell<Vec<(Language, Rc<[DoneClaim]>)>>,
    /// By language, the words of closed classes.
    word_classes: RefCell<Vec<(Language, Rc<ClassifiedWords>)>>,
    /// By language and sentence, the kinds that were tested.
    kinds: RefCell<Vec<(Language, Vec<KnownKinds>)>>,
}

/// The kinds that a sentence was tested for, and the kinds that it matches, with a bit for each [`SentenceKind`].
#[derive(Clone, Copy, Default, Debug)]
struct KnownKinds {
    tested: u8,
    matching: u8,
}

/// The index of a sentence, and a claim of a done action in it. The claim does not borrow the text of the sentence, so
/// that it can be cached.
pub(super) type DoneClaim = (usize, ActionClaim<'static>);

impl Reading {
    /// The reading of a text, which is shared within the trace.
    pub(super) fn cached(text: &str, memo: &Memo) -> Rc<Reading> {
        memo.for_content(text, Reading::default)
    }

    /// The language of `text`, of which this is the reading.
    pub(super) fn language(&self, text: &str) -> detect::Detected {
        *self.language.get_or_init(|| detect::detect(text))
    }

    /// The sentences of `text`, of which this is the reading.
    pub(super) fn split(&self, text: &str, language: Language) -> Rc<SplitText> {
        let cached =
            self.split.borrow().iter().find(|(key, _)| *key == language).map(|(_, split)| split.clone());
        cached.unwrap_or_else(|| {
            let mut split = SplitText::default();
            for part in head_and_tail(text) {
                split.add(text, part, language.is_spaced(), &language.lists().signs);
            }
            let split = Rc::new(split);
            self.split.borrow_mut().push((language, Rc::clone(&split)));
            split
        })
    }

    /// The words of closed classes in `text`, of which this is the reading.
    pub(super) fn places(&self, text: &str, language: Language, memo: &Memo) -> Rc<ClassifiedWords> {
        let cached =
            self.word_classes.borrow().iter().find(|(key, _)| *key == language).map(|(_, p)| p.clone());
        cached.unwrap_or_else(|| {
            memo.budget.spend(1 + text.len() / 16);
            let word_classes = Rc::new(language.lists().classes.places(text));
            self.word_classes.borrow_mut().push((language, Rc::clone(&word_classes)));
            word_classes
        })
    }

    /// Whether the sentence `nth` of the text is of a kind.
    pub(super) fn is_of_kind(
        &self,
        kind: SentenceKind,
        language: Language,
        nth: usize,
        sentence: &Sentence<'_>,
    ) -> bool {
        let mut all = self.kinds.borrow_mut();
        let at = all.iter().position(|(key, _)| *key == language).unwrap_or_else(|| {
            all.push((language, Vec::new()));
            all.len() - 1
        });
        let Some((_, kinds)) = all.get_mut(at) else { return kind.includes(sentence, language.lists()) };
        if kinds.len() <= nth {
            kinds.resize(nth + 1, KnownKinds::default());
        }
        let Some(sentence_kinds) = kinds.get_mut(nth) else {
            return kind.includes(sentence, language.lists());
        };
        let bit = 1 << kind as u8;
        if sentence_kinds.tested & bit == 0 {
            sentence_kinds.tested |= bit;
            sentence_kinds.matching |= if kind.includes(sentence, language.lists()) { bit } else { 0 };
        }
        sentence_kinds.matching & bit != 0
    }

    /// The claims of done actions in `text`, of which this is the reading.
    pub(super) fn done_claims(&self, text: &str, language: Language) -> Rc<[DoneClaim]> {
        let cached =
            self.done_claims.borrow().iter().find(|(key, _)| *key == language).map(|(_, done)| done.clone());
        cached.unwrap_or_else(|| {
            let (claims, split) = (&language.lists().claims, self.split(text, language));
            let mut done = Vec::new();
            // As in `ReadText::may_match`, one search over all words excludes most texts.
            if !language.is_spaced() || claims.may_have_done(split.words()) {
                for (nth, sentence) in split.sentences(text).enumerate() {
                    let mut sentence_claims = Vec::new();
                    claims.find_done(&sentence, &mut sentence_claims);
                    done.extend(sentence_claims.into_iter().map(|claim| (nth, claim.with_sentence(""))));
                }
            }
            let done: Rc<[DoneClaim]> = done.into();
            self.done_claims.borrow_mut().push((language, Rc::clone(&done)));
            done
        })
    }
}

/// The parts of a text that are read; the second is empty unless the text is long.
fn head_and_tail(text: &str) -> [Range<usize>; 2] {
    let head = clip(text, HEAD_BYTES).len();
    let tail = clip_end(text.get(head..).unwrap_or_default(), TAIL_BYTES).len();
    [0..head, text.len() - tail..text.len()]
}
