//! The sentences of a text, as words.
//!
//! In: a text. Out: its sentences, each verbatim and as words in lower case: single spaces surround every word, an
//! apostrophe ends a word ("i' ve", "j' ai"), and commas, colons and parentheses are words. In a language without
//! spaces there are no separators. Code or a quotation, also of whole lines, is replaced by the word `"`. A contrast
//! ("but") begins a new sentence, since the statement after the contrast is independent.

use std::ops::Range;
use std::rc::Rc;

use super::abbreviation::Abbreviations;
use crate::measure::ascii_letters::end_of_letters;
use crate::measure::excerpt::clip;
use crate::measure::occurrences::Beginnings;

/// Maximum bytes that are searched for the end of a quotation.
const MAX_QUOTATION_BYTES: usize = 600;

/// The usual length of a sentence, by which memory is reserved.
const USUAL_SENTENCE_BYTES: usize = 48;

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

    /// Whether the sentence consists of punctuation, numbers, code and quotations.
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
    /// Adds the sentences of a part of `text`, which is also split before the words of a contrast.
    pub(super) fn add(&mut self, text: &str, part: Range<usize>, has_spaces: bool, signs: &SentenceSigns) {
        let part_text = text.get(part.clone()).unwrap_or_default();
        if part_text.is_empty() {
            return;
        }
        self.words.reserve(part_text.len() + part_text.len() / 4 + 16);
        self.sentences.reserve(part_text.len() / USUAL_SENTENCE_BYTES + 1);
        let mut splitter = SentenceSplitter { text: part_text, at: 0, has_spaces, signs };
        let start = self.words.len();
        let mut words = SentenceWords { text: std::mem::take(&mut self.words), start, has_spaces };
        loop {
            words.begin();
            let from = splitter.at;
            let Some(end) = splitter.read_sentence(&mut words) else { break };
            if words.is_empty() {
                continue;
            }
            words.end_word();
            let whole = part_text.get(from..splitter.at).unwrap_or_default();
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

    /// The words of all sentences, one after the other. In a language with spaces, a pattern without anchors that
    /// matches a sentence also matches these words.
    pub(super) fn words(&self) -> &str {
        &self.words
    }

    /// The sentence `nth` of `text`, of which this is the result.
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
            let SentenceRange { text: range, words, is_question } = split.sentences.get(nth)?;
            Some(Sentence {
                text: text.get(range.clone())?,
                is_question: *is_question,
                split: Rc::clone(&split),
                words: words.clone(),
            })
        })
    }
}

/// The words of a language that begin or continue a sentence in spite of the punctuation.
#[derive(Debug)]
pub(super) struct SentenceSigns {
    pub contrast: Contrast,
    pub abbreviations: Abbreviations,
}

/// Words that begin a new statement.
#[derive(Debug)]
pub(super) struct Contrast {
    words: Vec<String>,
    beginnings: Beginnings,
    /// Expressions with such a word that do not begin a statement, each after the offset of the word in it.
    exceptions: Vec<(usize, String)>,
}

impl Contrast {
    pub(super) fn new(words: Vec<String>, exceptions: Vec<String>) -> Contrast {
        let with_offsets = |expression: String| {
            let offsets: Vec<usize> =
                words.iter().filter_map(|word| expression.find(word.as_str())).collect();
            offsets.into_iter().map(move |offset| (offset, expression.clone()))
        };
        let exceptions = exceptions.into_iter().flat_map(with_offsets).collect();
        Contrast { beginnings: Beginnings::new(&words), exceptions, words }
    }

    /// Whether the word at `at` belongs to an expression that does not begin a statement.
    fn is_exception(&self, text: &str, at: usize) -> bool {
        let is_around = |(offset, expression): &(usize, String)| {
            let Some((before, rest)) =
                at.checked_sub(*offset).and_then(|from| text.as_bytes().split_at_checked(from))
            else {
                return false;
            };
            // "small but" does not contain the expression "all but".
            let begins_word = !before.last().is_some_and(u8::is_ascii_alphabetic);
            let candidate = rest.get(..expression.len());
            begins_word && candidate.is_some_and(|bytes| bytes.eq_ignore_ascii_case(expression.as_bytes()))
        };
        self.exceptions.iter().any(is_around)
    }

    /// Whether `rest` begins with a word of a contrast. In a language with spaces, a space or a comma must follow it.
    fn begins(&self, rest: &[u8], has_spaces: bool) -> bool {
        let is_word = |word: &String| {
            let after = rest.strip_prefix(word.as_bytes());
            after.is_some_and(|after| !has_spaces || matches!(after.first(), Some(b' ' | b',')))
        };
        self.beginnings.may_begin(rest) && self.words.iter().any(is_word)
    }
}

/// Reads one sentence after the other.
struct SentenceSplitter<'t, 's> {
    text: &'t str,
    at: usize,
    has_spaces: bool,
    signs: &'s SentenceSigns,
}

/// The end of a sentence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SentenceEnd {
    Question,
    Other,
}

impl SentenceSplitter<'_, '_> {
    /// Reads up to the end of a sentence, after its punctuation; `None` at the end of the text.
    fn read_sentence(&mut self, words: &mut SentenceWords) -> Option<SentenceEnd> {
        let from = self.at;
        if self.skip_quoted_lines(words) {
            return Some(SentenceEnd::Other);
        }
        let mut before = ' ';
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(&byte) = rest.as_bytes().first() else {
                return (self.at > from).then_some(SentenceEnd::Other);
            };
            if self.is_contrast(rest, before) && !words.is_empty() {
                return Some(SentenceEnd::Other);
            }
            // Fast path: most of a text is such a run.
            if byte.is_ascii_alphanumeric() {
                let run = self.plain_run(rest.as_bytes());
                words.push_ascii(rest.get(..run).unwrap_or_default());
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
            let is_inside_word = before.is_alphanumeric() && next.is_alphanumeric();
            match c {
                '`' => self.skip_code(rest, words),
                '\n' | ';' | '；' | '。' | '！' | '!' | '…' | '—' => return Some(SentenceEnd::Other),
                '?' | '？' => return Some(SentenceEnd::Question),
                '–' | '-' if before == ' ' && next == ' ' => return Some(SentenceEnd::Other),
                '.' if is_inside_word => words.push('.'),
                '.' if !next.is_alphanumeric() && !self.is_inner_stop(words, after) => {
                    return Some(SentenceEnd::Other);
                }
                ',' | ':' if is_inside_word && before.is_ascii_digit() && next.is_ascii_digit() => {
                    words.push('.')
                }
                ',' | '，' => words.push_sign(','),
                ':' | '：' => words.push_sign(':'),
                '(' | ')' | '（' | '）' | '[' | ']' => words.push_sign('('),
                '\'' | '\u{2018}' if !before.is_alphanumeric() && next.is_alphanumeric() => {
                    self.skip_single_quotation(after, words);
                }
                '\'' | '\u{2019}' if is_inside_word => {
                    words.push('\'');
                    words.end_word();
                }
                '-' if is_inside_word => words.push('-'),
                '_' if is_inside_word => words.push('_'),
                c => match closing_quote(c) {
                    Some(closing) => {
                        if let Some(end) = self.skip_quotation(after, closing, words) {
                            return Some(end);
                        }
                    }
                    None if is_word_char(c) => c.to_lowercase().for_each(|c| words.push(c)),
                    None => words.end_word(),
                },
            }
            before = c;
        }
    }

    /// Skips lines that are marked as a quotation: a text of another writer, or a draft. Returns whether there are any.
    fn skip_quoted_lines(&mut self, words: &mut SentenceWords) -> bool {
        let is_line_start =
            self.at.checked_sub(1).is_none_or(|at| self.text.as_bytes().get(at) == Some(&b'\n'));
        if !is_line_start {
            return false;
        }
        let is_quoted = |line: &str| {
            let quoted = line.trim_start_matches([' ', '\t']).strip_prefix('>');
            quoted.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '>', '\n', '\r']))
        };
        let rest = self.text.get(self.at..).unwrap_or_default();
        // Most texts begin with another character, and need no search for the ends of lines.
        if !rest.trim_start_matches([' ', '\t']).starts_with('>') {
            return false;
        }
        let lines = rest.split_inclusive('\n');
        let length: usize = lines.take_while(|line| is_quoted(line)).map(str::len).sum();
        if length > 0 {
            self.at += length;
            words.push_sign('"');
        }
        length > 0
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
                Some(b' ') if self.has_spaces && rest.get(run + 1..).is_some_and(begins_word) => run += 1,
                Some(byte) if byte.is_ascii_digit() => {
                    while rest.get(run).is_some_and(u8::is_ascii_digit) {
                        run += 1;
                    }
                }
                _ => return run,
            }
        }
    }

    /// Whether the sentence continues after the full stop between these words and `after`.
    fn is_inner_stop(&self, words: &SentenceWords, after: &str) -> bool {
        self.has_spaces && self.signs.abbreviations.is_inner_stop(words.current(), after)
    }

    /// Whether a contrast begins at the current position.
    fn is_contrast(&self, rest: &str, before: char) -> bool {
        (!self.has_spaces || before == ' ')
            && self.signs.contrast.begins(rest.as_bytes(), self.has_spaces)
            && !self.signs.contrast.is_exception(self.text, self.at)
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
            words.push_sign('"');
        }
    }

    /// Skips a quotation in single quotes. Unlike an apostrophe, the closing quote has no letter after it.
    fn skip_single_quotation(&mut self, after: &str, words: &mut SentenceWords) {
        let within = quotation_range(after);
        let is_end =
            |at: usize| !within.get(at..).is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
        let mut quotes = within.match_indices(['\'', '\u{2019}']).map(|(at, quote)| at + quote.len());
        if let Some(end) = quotes.find(|end| is_end(*end)) {
            self.at += end;
            words.push_sign('"');
        }
    }

    /// Skips a quotation; returns the end of the sentence if the punctuation of the quotation ends it.
    fn skip_quotation(
        &mut self,
        after: &str,
        closing: char,
        words: &mut SentenceWords,
    ) -> Option<SentenceEnd> {
        let Some(length) = quotation_length(after, closing) else {
            words.end_word();
            return None;
        };
        self.at += length + closing.len_utf8();
        words.push_sign('"');
        let quoted = after.get(..length).unwrap_or_default().trim_end();
        let ends_sentence = quoted.ends_with(['.', '!', '?', '。', '！', '？']);
        ends_sentence.then_some(SentenceEnd::Other)
    }
}

/// The first character of a text; faster where it is ASCII, as in most texts.
fn first_char(text: &str) -> Option<char> {
    match text.as_bytes().first() {
        Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
        _ => text.chars().next(),
    }
}

/// The length of a quotation whose text begins with `after`; `None` if it has no end.
fn quotation_length(after: &str, closing: char) -> Option<usize> {
    if closing != '"' {
        return quotation_range(after).find(closing);
    }
    let within = after.as_bytes().get(..MAX_QUOTATION_BYTES).unwrap_or(after.as_bytes());
    memchr::memchr2(b'"', b'\n', within).filter(|end| within.get(*end) == Some(&b'"'))
}

/// Whether a text is JSON whose only words outside of quotations are `true`, `false` and `null`, so that no sentence of
/// it states anything. False for JSON on several lines, and with escapes or other forms that are rarer.
pub(crate) fn is_quoted_json(text: &str) -> bool {
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        let rest = text.get(at + 1..).unwrap_or_default();
        let length = match byte {
            b'"' => quotation_length(rest, '"').map(|length| length + 1),
            b'{' | b'}' | b'[' | b']' | b',' | b':' | b'.' | b'-' | b' ' | b'0'..=b'9' => Some(0),
            b't' | b'n' => rest.starts_with(if *byte == b't' { "rue" } else { "ull" }).then_some(3),
            b'f' => rest.starts_with("alse").then_some(4),
            _ => None,
        };
        let Some(length) = length else { return false };
        at += 1 + length;
    }
    text.starts_with(['{', '['])
}

/// The part of `after` in which a quotation has to end: the rest of its line, up to a limit.
fn quotation_range(after: &str) -> &str {
    let within = clip(after, MAX_QUOTATION_BYTES);
    let line = memchr::memchr(b'\n', within.as_bytes()).and_then(|end| within.get(..end));
    line.unwrap_or(within)
}

/// The closing quotation mark for `opening`; `None` if it is no quotation mark.
fn closing_quote(opening: char) -> Option<char> {
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

/// Whether `c` is part of a word. Currency signs and similar symbols are words or parts of words.
fn is_word_char(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(c, '€' | '$' | '£' | '¥' | '%' | '％' | '@' | '/' | '+' | '=' | '&' | '々' | 'ー')
}

/// The words of the current sentence, after the words of the earlier sentences.
struct SentenceWords {
    text: String,
    /// The start of the current sentence in `text`.
    start: usize,
    has_spaces: bool,
}

impl SentenceWords {
    /// Begins a sentence at `start`, and discards the words after it.
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

    fn push_ascii(&mut self, ascii: &str) {
        let from = self.text.len();
        self.text.push_str(ascii);
        self.text.get_mut(from..).into_iter().for_each(str::make_ascii_lowercase);
    }

    fn end_word(&mut self) {
        if self.has_spaces && self.text.as_bytes().last() != Some(&b' ') {
            self.text.push(' ');
        }
    }

    /// Adds a sign as a word.
    fn push_sign(&mut self, sign: char) {
        self.end_word();
        self.text.push(sign);
        self.end_word();
    }

    /// The words of the current sentence.
    fn current(&self) -> &str {
        self.text.get(self.start..).unwrap_or_default()
    }
}
