//! The language in which a text is read, and whether a rule can read it.
//!
//! In: a text, and optionally the text that it answers. Out: its language, and whether rules with English words only
//! can read it. For a text that cannot be read, a metric is unmeasured, or a rule reports no finding that the words of
//! the text might excuse.

use super::detect::{Detected, detect};
use super::{Language, ReadText, Reading, RequestWords, WordClasses, language_of};
use crate::measure::Memo;

impl Language {
    /// The language of a text or, if it is not recognised, of `fallback`, the text that it answers. A text of too few
    /// words without a hint at another language is read as English. `None` for a language that rules do not read.
    pub(crate) fn detected(text: &str, fallback: Option<&str>, memo: &Memo) -> Option<Language> {
        match language_of(text, &Reading::cached(text, memo), fallback, memo) {
            Detected::Supported(language) => Some(language),
            Detected::TooFewWords | Detected::NoWords => Some(Language::English),
            Detected::Unclear(_) | Detected::Unsupported => None,
        }
    }

    /// The language of a text, if its own words are enough to recognise the language and rules read that language.
    pub(crate) fn recognised(text: &str, memo: &Memo) -> Option<Language> {
        match Reading::cached(text, memo).language(text) {
            Detected::Supported(language) => Some(language),
            _ => None,
        }
    }

    /// As [`Language::detected`] without a fallback, for a text that is not cached.
    pub(crate) fn for_instructions(text: &str) -> Option<Language> {
        match detect(text) {
            Detected::Supported(language) => Some(language),
            Detected::TooFewWords | Detected::NoWords => Some(Language::English),
            Detected::Unclear(_) | Detected::Unsupported => None,
        }
    }
}

impl RequestWords {
    /// The words of instructions in the language of `text`. A text of too few words is read as English; `None` for a
    /// language without data.
    pub(crate) fn for_text(text: &str) -> Option<&'static RequestWords> {
        Language::for_instructions(text)?.lists().requests.as_ref()
    }
}

/// The rules that can read a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readable {
    /// All rules: the text is English, has no words, or has too few words to recognise its language and no hint at
    /// another one, so that words which an English rule finds in it are English.
    InEnglish,
    /// Rules with lists for each language: the text is in another language that has lists.
    ByLists,
    /// None: the text is in a language without lists, or in one that is not recognised and probably not English.
    No,
}

/// The rules that can read `text`. If the text has too few words, they are the rules for the language of `fallback`,
/// the text that it answers. Rules with English words only must not read other texts: they would miss hedges, labels,
/// negations and requests in another language.
pub(crate) fn readable(text: &str, fallback: Option<&str>, memo: &Memo) -> Readable {
    readable_in(language_of(text, &Reading::cached(text, memo), fallback, memo))
}

fn readable_in(detected: Detected) -> Readable {
    match detected {
        Detected::Supported(Language::English) | Detected::TooFewWords | Detected::NoWords => {
            Readable::InEnglish
        }
        Detected::Supported(_) => Readable::ByLists,
        Detected::Unclear(_) | Detected::Unsupported => Readable::No,
    }
}

/// Whether rules with English words only can read `text`; see [`readable`].
pub(crate) fn is_english(text: &str, fallback: Option<&str>, memo: &Memo) -> bool {
    readable(text, fallback, memo) == Readable::InEnglish
}

/// As [`is_english`], for a text that answers no other text and whose analysis is not cached.
pub(crate) fn is_english_alone(text: &str) -> bool {
    readable_in(detect(text)) == Readable::InEnglish
}

/// The closed classes of the words of a text, in each language that it may be in. If its language is not recognised,
/// the language of `fallback` is used, the text that it answers. `None` for a text that cannot be read, so that
/// callers report no finding that such words might excuse.
pub(crate) fn classes_in(text: &str, fallback: Option<&str>, memo: &Memo) -> Option<WordClasses> {
    let analysed = ReadText::new(text, fallback, memo);
    let classes = |language| analysed.reading.places(text, language, memo).all();
    let all = || analysed.languages().map(classes).fold(WordClasses::default(), WordClasses::union);
    (analysed.is_known || !analysed.languages.is_empty()).then(all)
}
