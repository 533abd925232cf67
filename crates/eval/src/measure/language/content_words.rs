//! Words with content, and function words.
//!
//! In: a text or a word in a known language. Out: the content words of the text; whether the word is a function word.
//! Function words are the words of closed classes, the words without content of instructions, and the words by which
//! the language of a text is detected.

use super::word_class::FUNCTION_CLASSES;
use super::{ClassifiedWord, Language, RequestWords, WordClass, WordClasses, classes, detect};

impl Language {
    /// The content words of a text, in lower case: of at least three letters, and neither function words nor verbs that
    /// ask for any result.
    pub(crate) fn content_words(self, text: &str) -> Vec<String> {
        let lists = self.lists();
        let classified_words = lists.classes.places(text);
        let base = text.as_ptr().addr();
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().nth(2).is_some());
        let is_no_function_word = |word: &&str| {
            let at = word.as_ptr().addr() - base;
            let is_elsewhere =
                |other: &ClassifiedWord| other.at.end <= at || at + word.len() <= other.at.start;
            classified_words
                .iter()
                .all(|other| is_elsewhere(other) || !other.classes.has_any(FUNCTION_CLASSES))
        };
        let words = words.filter(is_no_function_word).map(str::to_lowercase);
        let has_content =
            |word: &String| lists.requests.as_ref().is_none_or(|requests| requests.has_content(word));
        words.filter(has_content).collect()
    }

    /// Whether a word in lower case is a function word with which a sentence may begin, or a verb that asks for any
    /// result. False for words that are also names of persons: "will".
    pub(crate) fn is_sentence_opener(self, word: &str) -> bool {
        const FUNCTION: WordClasses = classes!(Condition Sequence Conjunction Contrast Reason);
        let lists = self.lists();
        let classes = lists.classes.places(word).all();
        let is_of_requests = |words: &RequestWords| !words.has_content(word) || words.is_directed(word);
        (classes.has_any(FUNCTION) || lists.requests.as_ref().is_some_and(is_of_requests))
            && !classes.has(WordClass::Modal)
    }

    /// Whether a word in lower case is a function word, in languages where spaces separate words.
    pub(crate) fn is_function_word(self, word: &str) -> bool {
        let requests = self.lists().requests.as_ref();
        requests.is_some_and(|requests| requests.is_function_word(word) || requests.negates(word))
            || detect::is_function_word(word, self)
    }
}
