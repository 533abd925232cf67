//! The sentences of a text, as words.
//!
//! In: a text. Out: its sentences, each verbatim and as words in lower case: every word is surrounded by
//! single spaces, an apostrophe ends a word ("i' ve", "j' ai"), commas, colons and parentheses are words of
//! their own. In a language without spaces the characters follow each other. Code is left out, a quotation
//! is the word `"`. A contrast ("but") begins a new sentence: what follows it is said on its own.

use std::ops::Range;
use std::rc::Rc;

use super::abbreviation::Abbreviations;
use crate::measure::ascii_letters::end_of_letters;
use crate::measure::excerpt::clip;
use crate::measure::occurrences::Beginnings;

/// Maximum bytes that are searched for the end of a quotation.
const MAX_QUOTATION: usize = 600;

/// A sentence, or the part of one before or after a contrast.
#[derive(Clone, Debug)]
pub(crate) struct Sentence<'t> {
    /// The sentence in the text.
    pub text: &'t str,
    pub is_question: bool,
    split: Rc<SplitText>,
    words: Range<usize>,
}

impl Sentence<'_> {
    /// The words of the sentence.
    pub(crate) fn words(&self) -> &str {
        self.split.words.get(self.words.clone()).unwrap_or_default()
    }

    /// Whether nothing but punctuation, numbers and quotations is left.
    pub(crate) fn is_without_words(&self) -> bool {
        !self.words().contains(char::is_alphabetic)
    }
}

/// The sentences of a text.
#[derive(Debug, Default)]
pub(super) struct SplitText {
    /// The words of all sentences, one sentence after the other.
    words: String,
    sentences: Vec<SentenceRange>,
}

#[derive(Debug)]
struct SentenceRange {
    text: Range<usize>,
    words: Range<usize>,
    is_question: bool,
}

impl SplitText {
    /// Adds the sentences of a part of `text`, split before the words of a contrast as well.
    pub(super) fn add(&mut self, text: &str, part: Range<usize>, spaced: bool, signs: &SentenceSigns) {
        let within = text.get(part.clone()).unwrap_or_default();
        if within.is_empty() {
            return;
        }
        self.words.reserve(within.len() + within.len() / 4 + 16);
        let mut splitter = SentenceSplitter { text: within, at: 0, spaced, signs };
        let start = self.words.len();
        let mut words = SentenceWords { text: std::mem::take(&mut self.words), start, spaced };
        loop {
            words.begin();
            let from = splitter.at;
            let Some(end) = splitter.read(&mut words) else { break };
            if words.is_empty() {
                continue;
            }
            words.end_word();
            let whole = within.get(from..splitter.at).unwrap_or_default();
            let sentence = whole.trim_start();
            let begin = part.start + from + (whole.len() - sentence.len());
            self.sentences.push(SentenceRange {
                text: begin..begin + sentence.trim_end().len(),
                words: words.start..words.text.len(),
                is_question: end == SentenceEnd::Question,
            });
            words.start = words.text.len();
        }
        words.text.truncate(words.start);
        self.words = words.text;
    }

    /// The words of all sentences, one after the other. In a language with spaces, what matches a sentence and
    /// has no anchors matches these, too.
    pub(super) fn words(&self) -> &str {
        &self.words
    }

    /// A sentence of `text`, of which this is the result.
    pub(super) fn sentence<'t>(&self, text: &'t str, nth: usize) -> Option<&'t str> {
        text.get(self.sentences.get(nth)?.text.clone())
    }

    /// The sentences of `text`, of which this is the result.
    pub(super) fn sentences<'t>(
        self: &Rc<SplitText>,
        text: &'t str,
    ) -> impl Iterator<Item = Sentence<'t>> + use<'t> {
        let split = Rc::clone(self);
        (0..split.sentences.len()).filter_map(move |nth| {
            let SentenceRange { text: place, words, is_question } = split.sentences.get(nth)?;
            Some(Sentence {
                text: text.get(place.clone())?,
                is_question: *is_question,
                split: Rc::clone(&split),
                words: words.clone(),
            })
        })
    }
}

/// Where sentences of a language end besides their punctuation, and where they do not.
#[derive(Debug)]
pub(super) struct SentenceSigns {
    pub contrast: Contrast,
    pub abbreviations: Abbreviations,
}

/// Words that begin a statement of its own.
#[derive(Debug)]
pub(super) struct Contrast {
    words: Vec<String>,
    beginnings: Beginnings,
    /// Expressions with such a word that begin no statement, and where in the expression the word is.
    unless: Vec<(usize, String)>,
}

impl Contrast {
    pub(super) fn new(words: Vec<String>, unless: Vec<String>) -> Contrast {
        let places = |expression: String| {
            let places: Vec<usize> = words.iter().filter_map(|word| expression.find(word.as_str())).collect();
            places.into_iter().map(move |at| (at, expression.clone()))
        };
        let unless = unless.into_iter().flat_map(places).collect();
        Contrast { beginnings: Beginnings::new(&words), unless, words }
    }

    /// Whether the word that begins at `at` belongs to an expression that begins no statement.
    fn is_excepted(&self, text: &str, at: usize) -> bool {
        let is_around = |(word, expression): &(usize, String)| {
            let Some((before, rest)) =
                at.checked_sub(*word).and_then(|from| text.as_bytes().split_at_checked(from))
            else {
                return false;
            };
            // "small but" has not "all but".
            let begins_word = !before.last().is_some_and(u8::is_ascii_alphabetic);
            let around = rest.get(..expression.len());
            begins_word && around.is_some_and(|around| around.eq_ignore_ascii_case(expression.as_bytes()))
        };
        self.unless.iter().any(is_around)
    }

    /// Whether a word begins `rest`, followed by a space or a comma in a language with spaces.
    fn begins(&self, rest: &[u8], spaced: bool) -> bool {
        let is_word = |word: &String| {
            let after = rest.strip_prefix(word.as_bytes());
            after.is_some_and(|after| !spaced || matches!(after.first(), Some(b' ' | b',')))
        };
        self.beginnings.may_begin(rest) && self.words.iter().any(is_word)
    }
}

/// Reads one sentence after the other.
struct SentenceSplitter<'t, 's> {
    text: &'t str,
    at: usize,
    spaced: bool,
    signs: &'s SentenceSigns,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SentenceEnd {
    Question,
    Other,
}

impl SentenceSplitter<'_, '_> {
    /// Reads up to the end of a sentence, after its punctuation; `None` at the end of the text.
    fn read(&mut self, words: &mut SentenceWords) -> Option<SentenceEnd> {
        let from = self.at;
        let mut before = ' ';
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(&byte) = rest.as_bytes().first() else {
                return (self.at > from).then_some(SentenceEnd::Other);
            };
            if self.is_contrast(rest, before) && !words.is_empty() {
                return Some(SentenceEnd::Other);
            }
            // Most of a text.
            if byte.is_ascii_alphanumeric() {
                let run = self.plain_run(rest.as_bytes());
                words.push_run(rest.get(..run).unwrap_or_default());
                self.at += run;
                before = char::from(rest.as_bytes().get(run - 1).copied().unwrap_or(byte));
                continue;
            }
            if byte == b' ' {
                words.end_word();
                self.at += 1;
                before = ' ';
                continue;
            }
            let c = first_char(rest)?;
            let after = rest.get(c.len_utf8()..).unwrap_or_default();
            let next = first_char(after).unwrap_or(' ');
            self.at += c.len_utf8();
            let inside = before.is_alphanumeric() && next.is_alphanumeric();
            match c {
                '`' => self.skip_code(rest, words),
                '\n' | ';' | '；' | '。' | '！' | '!' | '…' | '—' => return Some(SentenceEnd::Other),
                '?' | '？' => return Some(SentenceEnd::Question),
                '–' | '-' if before == ' ' && next == ' ' => return Some(SentenceEnd::Other),
                '.' if inside => words.push('.'),
                '.' if !next.is_alphanumeric() && !self.is_within(words, after) => {
                    return Some(SentenceEnd::Other);
                }
                ',' | ':' if inside && before.is_ascii_digit() && next.is_ascii_digit() => words.push('.'),
                ',' | '，' => words.word(','),
                ':' | '：' => words.word(':'),
                '(' | ')' | '（' | '）' | '[' | ']' => words.word('('),
                '\'' | '\u{2018}' if !before.is_alphanumeric() && next.is_alphanumeric() => {
                    self.skip_single_quotation(after, words);
                }
                '\'' | '\u{2019}' if inside => {
                    words.push('\'');
                    words.end_word();
                }
                '-' if inside => words.push('-'),
                '_' if inside => words.push('_'),
                c => match closing(c) {
                    Some(closing) => {
                        if let Some(end) = self.skip_quotation(after, closing, words) {
                            return Some(end);
                        }
                    }
                    None if is_word(c) => c.to_lowercase().for_each(|c| words.push(c)),
                    None => words.end_word(),
                },
            }
            before = c;
        }
    }

    /// The number of bytes at the beginning of `rest` that are ASCII letters and digits, with single spaces between
    /// them where spaces separate words, up to a contrast.
    fn plain_run(&self, rest: &[u8]) -> usize {
        let mut run = 0;
        loop {
            run = end_of_letters(rest, run);
            let begins_word = |next: &[u8]| {
                next.first().is_some_and(u8::is_ascii_alphanumeric) && !self.signs.contrast.begins(next, true)
            };
            match rest.get(run) {
                Some(b' ') if self.spaced && rest.get(run + 1..).is_some_and(begins_word) => run += 1,
                Some(byte) if byte.is_ascii_digit() => {
                    while rest.get(run).is_some_and(u8::is_ascii_digit) {
                        run += 1;
                    }
                }
                _ => return run,
            }
        }
    }

    /// Whether a dot behind these words ends no sentence.
    fn is_within(&self, words: &SentenceWords, after: &str) -> bool {
        self.spaced && self.signs.abbreviations.has_dot(words.read(), after)
    }

    /// Whether a contrast begins here.
    fn is_contrast(&self, rest: &str, before: char) -> bool {
        (!self.spaced || before == ' ')
            && self.signs.contrast.begins(rest.as_bytes(), self.spaced)
            && !self.signs.contrast.is_excepted(self.text, self.at)
    }

    /// Skips a fenced block or inline code after its first backtick.
    fn skip_code(&mut self, rest: &str, words: &mut SentenceWords) {
        let (fence, within) = match rest.starts_with("```") {
            true => ("```", rest),
            false => ("`", rest.split('\n').next().unwrap_or_default()),
        };
        let body = within.get(fence.len()..).unwrap_or_default();
        let length = body.find(fence).map(|at| at + fence.len());
        // A fence without an end hides the rest of the text.
        let length = length.or((fence.len() > 1).then_some(body.len()));
        if let Some(length) = length {
            self.at += fence.len() - 1 + length;
            words.word('"');
        }
    }

    /// Skips a quotation in single quotes. Unlike an apostrophe, its end is followed by no letter.
    fn skip_single_quotation(&mut self, after: &str, words: &mut SentenceWords) {
        let within = quotable(after);
        let ends = |at: usize| !within.get(at..).is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
        let mut quotes = within.match_indices(['\'', '\u{2019}']).map(|(at, quote)| at + quote.len());
        if let Some(end) = quotes.find(|end| ends(*end)) {
            self.at += end;
            words.word('"');
        }
    }

    /// Skips a quotation. It ends the sentence if its own punctuation does.
    fn skip_quotation(
        &mut self,
        after: &str,
        closing: char,
        words: &mut SentenceWords,
    ) -> Option<SentenceEnd> {
        let Some(length) = quotation(after, closing) else {
            words.end_word();
            return None;
        };
        self.at += length + closing.len_utf8();
        words.word('"');
        let quoted = after.get(..length).unwrap_or_default().trim_end();
        let ends = quoted.ends_with(['.', '!', '?', '。', '！', '？']);
        ends.then_some(SentenceEnd::Other)
    }
}

/// The first character of a text, which is mostly ASCII.
fn first_char(text: &str) -> Option<char> {
    match text.as_bytes().first() {
        Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
        _ => text.chars().next(),
    }
}

/// The length of a quotation that begins in front of `after`; `None` if it has no end.
fn quotation(after: &str, closing: char) -> Option<usize> {
    if closing != '"' {
        return quotable(after).find(closing);
    }
    let within = after.as_bytes().get(..MAX_QUOTATION).unwrap_or(after.as_bytes());
    memchr::memchr2(b'"', b'\n', within).filter(|end| within.get(*end) == Some(&b'"'))
}

/// The text in which a quotation has to end.
fn quotable(after: &str) -> &str {
    let within = clip(after, MAX_QUOTATION);
    let line = memchr::memchr(b'\n', within.as_bytes()).and_then(|end| within.get(..end));
    line.unwrap_or(within)
}

/// The sign that ends a quotation that `opening` begins.
fn closing(opening: char) -> Option<char> {
    Some(match opening {
        '"' => '"',
        '\u{201c}' => '\u{201d}',
        '\u{201e}' => '\u{201c}',
        '«' => '»',
        '「' => '」',
        '『' => '』',
        '《' => '》',
        _ => return None,
    })
}

/// Whether `c` is part of a word. Signs of currencies and the like are words or parts of words.
fn is_word(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(c, '€' | '$' | '£' | '¥' | '%' | '％' | '@' | '/' | '+' | '=' | '&' | '々' | 'ー')
}

/// The words of the sentence that is read, after those of the sentences before it.
struct SentenceWords {
    text: String,
    /// Where the sentence begins.
    start: usize,
    spaced: bool,
}

impl SentenceWords {
    /// Begins a sentence at `start`.
    fn begin(&mut self) {
        self.text.truncate(self.start);
        self.text.push(' ');
    }

    fn is_empty(&self) -> bool {
        self.text.len() <= self.start + 1
    }

    fn push(&mut self, c: char) {
        self.text.push(c);
    }

    fn push_run(&mut self, ascii: &str) {
        let from = self.text.len();
        self.text.push_str(ascii);
        self.text.get_mut(from..).into_iter().for_each(str::make_ascii_lowercase);
    }

    fn end_word(&mut self) {
        if self.spaced && self.text.as_bytes().last() != Some(&b' ') {
            self.text.push(' ');
        }
    }

    fn word(&mut self, sign: char) {
        self.end_word();
        self.text.push(sign);
        self.end_word();
    }

    /// The words of the sentence.
    fn read(&self) -> &str {
        self.text.get(self.start..).unwrap_or_default()
    }
}
