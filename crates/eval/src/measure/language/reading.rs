//! The analysis of a text that every search needs: its language, its sentences, its words of closed classes, and the
//! kinds of its sentences. A text is analysed once per trace, whatever rules read it.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use super::claim::ActionClaim;
use super::detect;
use super::kind::SentenceKind;
use super::sentence::{Sentence, SplitText};
use super::supported::Language;
use super::word_class::ClassifiedWords;
use crate::measure::Memo;
use crate::measure::excerpt::{clip, clip_end};

/// Bytes at the beginning and at the end of a text that are read. Statements about an answer as a whole
/// are in these parts.
const HEAD_BYTES: usize = 12 * 1024;
pub(super) const TAIL_BYTES: usize = 4 * 1024;

/// The analysis of a text that every search needs.
#[derive(Debug, Default)]
pub(super) struct Reading {
    language: OnceCell<detect::Detected>,
    /// The sentences of the text by language: one that is known, all for a short text in an unknown one.
    split: RefCell<Vec<(Language, Rc<SplitText>)>>,
    /// By language, the claims of done actions.
    done: RefCell<Vec<(Language, Rc<[DoneClaim]>)>>,
    /// By language, the words of closed classes.
    places: RefCell<Vec<(Language, Rc<ClassifiedWords>)>>,
    /// By language and sentence, the kinds that were asked for.
    kinds: RefCell<Vec<(Language, Vec<KnownKinds>)>>,
}

/// Which kinds a sentence was compared with, and which of them it is: a bit for each [`Kind`].
#[derive(Clone, Copy, Default, Debug)]
struct KnownKinds {
    compared: u8,
    is_true: u8,
}

/// A claim of a done action without its sentence, and which sentence it is.
pub(super) type DoneClaim = (usize, ActionClaim<'static>);

impl Reading {
    /// The reading of a text, shared by all that read it in the trace.
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
        let cached = self.places.borrow().iter().find(|(key, _)| *key == language).map(|(_, p)| p.clone());
        cached.unwrap_or_else(|| {
            memo.budget.spend(1 + text.len() / 16);
            let places = Rc::new(language.lists().classes.places(text));
            self.places.borrow_mut().push((language, Rc::clone(&places)));
            places
        })
    }

    /// Whether the sentence `nth` of the text is of a kind.
    pub(super) fn is_true(
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
        let Some((_, kinds)) = all.get_mut(at) else { return kind.is_true(sentence, language.lists()) };
        if kinds.len() <= nth {
            kinds.resize(nth + 1, KnownKinds::default());
        }
        let Some(sentence_kinds) = kinds.get_mut(nth) else {
            return kind.is_true(sentence, language.lists());
        };
        let bit = 1 << kind as u8;
        if sentence_kinds.compared & bit == 0 {
            sentence_kinds.compared |= bit;
            sentence_kinds.is_true |= if kind.is_true(sentence, language.lists()) { bit } else { 0 };
        }
        sentence_kinds.is_true & bit != 0
    }

    /// The claims of done actions in `text`, of which this is the reading.
    pub(super) fn done(&self, text: &str, language: Language) -> Rc<[DoneClaim]> {
        let cached =
            self.done.borrow().iter().find(|(key, _)| *key == language).map(|(_, done)| done.clone());
        cached.unwrap_or_else(|| {
            let (claims, split) = (&language.lists().claims, self.split(text, language));
            let mut done = Vec::new();
            // As in `ReadText::may_match`.
            if !language.is_spaced() || claims.may_be_done(split.words()) {
                for (nth, sentence) in split.sentences(text).enumerate() {
                    let mut found = Vec::new();
                    claims.find_done(&sentence, &mut found);
                    done.extend(found.into_iter().map(|claim| (nth, claim.with_sentence(""))));
                }
            }
            let done: Rc<[DoneClaim]> = done.into();
            self.done.borrow_mut().push((language, Rc::clone(&done)));
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
