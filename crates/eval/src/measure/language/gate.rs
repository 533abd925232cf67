//! The language in which a text is read, and whether a rule can read it.
//!
//! In: a text, perhaps with the one that it answers. Out: its language, and whether rules that have words of English
//! only can read it. A text that cannot be read is unmeasured, or excuses a finding that its words might excuse.

use super::detect::{Detected, detect};
use super::{Language, ReadText, Reading, RequestWords, WordClasses, language_of};
use crate::measure::Memo;

impl Language {
    /// The language of a text or, if that cannot be recognised, of `fallback`, the text that it answers; `None` if it
    /// is none that rules read. Too few words that hint at no language are read as English.
    pub(crate) fn detected(text: &str, fallback: Option<&str>, memo: &Memo) -> Option<Language> {
        match language_of(text, &Reading::cached(text, memo), fallback, memo) {
            Detected::In(language) => Some(language),
            Detected::TooFewWords | Detected::NoWords => Some(Language::English),
            Detected::Unclear(_) | Detected::Other => None,
        }
    }

    /// The language of a text if its own words show it.
    pub(crate) fn recognised(text: &str, memo: &Memo) -> Option<Language> {
        match Reading::cached(text, memo).language(text) {
            Detected::In(language) => Some(language),
            _ => None,
        }
    }
}

impl RequestWords {
    /// The words of instructions in the language of `text`. A text of too few words is read as English; `None` for a
    /// language without data.
    pub(crate) fn for_text(text: &str) -> Option<&'static RequestWords> {
        let language = match detect(text) {
            Detected::In(language) => language,
            Detected::TooFewWords | Detected::NoWords => Language::English,
            Detected::Unclear(_) | Detected::Other => return None,
        };
        language.lists().requests.as_ref()
    }
}

/// In what languages rules can read a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readable {
    /// The text is English, has no words, or too few to recognise its language and none that hint at another one: what
    /// an English rule finds in those are English words.
    InEnglish,
    /// The text is in another language that has lists.
    ByLists,
    /// The text is in a language that has no lists, or that is not recognised and is hardly English.
    No,
}

/// In what languages rules can read `text`; if it has too few words, `fallback` decides, the text that it
/// answers. Rules that have words of English only read no text that is not readable in English: what is
/// hedged, labelled, negated or asked for in another language would be taken for something else.
pub(crate) fn readable(text: &str, fallback: Option<&str>, memo: &Memo) -> Readable {
    readable_in(language_of(text, &Reading::cached(text, memo), fallback, memo))
}

fn readable_in(found: Detected) -> Readable {
    match found {
        Detected::In(Language::English) | Detected::TooFewWords | Detected::NoWords => Readable::InEnglish,
        Detected::In(_) => Readable::ByLists,
        Detected::Unclear(_) | Detected::Other => Readable::No,
    }
}

/// Whether rules that have words of English only can read `text`; see [`readable`].
pub(crate) fn is_english(text: &str, fallback: Option<&str>, memo: &Memo) -> bool {
    readable(text, fallback, memo) == Readable::InEnglish
}

/// As [`is_english`], of a text that answers none and is read once.
pub(crate) fn is_english_alone(text: &str) -> bool {
    readable_in(detect(text)) == Readable::InEnglish
}

/// The closed classes that a text has words of, in any language that it may be in: that of what it answers, if its
/// own is not recognised. `None` for a text that cannot be read: what such words would excuse is no finding.
pub(crate) fn classes_in(text: &str, fallback: Option<&str>, memo: &Memo) -> Option<WordClasses> {
    let analysed = ReadText::new(text, fallback, memo);
    let classes = |language| analysed.reading.places(text, language, memo).all();
    let all = || analysed.languages().map(classes).fold(WordClasses::default(), WordClasses::union);
    (analysed.is_known || !analysed.languages.is_empty()).then(all)
}
