//! The sentences of a text, as words.
//!
//! In: a text. Out: its sentences, each verbatim and as words in lower case: every word is surrounded by
//! single spaces, an apostrophe ends a word ("i' ve", "j' ai"), commas, colons and parentheses are words of
//! their own. In a language without spaces the characters follow each other. Code is left out, a quotation
//! is the word `"`. A contrast ("but") begins a new sentence: what follows it is said on its own.

use crate::measure::excerpt::clip;

/// A quotation is searched for its end within so many bytes.
const MAX_QUOTATION: usize = 600;
/// Abbreviations whose dot ends no sentence.
const ABBREVIATIONS: [&str; 24] = [
    "dr", "mr", "mrs", "ms", "st", "no", "nr", "sr", "sra", "prof", "e.g", "i.e", "vs", "ca", "approx",
    "inc", "z.b", "d.h", "p.ex", "bzw", "etc", "art", "tel", "núm",
];

/// Words before a day's number, whose dot is that of an ordinal number ("am 12. Mai").
const BEFORE_ORDINALS: [&str; 9] = ["den", "dem", "der", "des", "das", "am", "vom", "zum", "im"];

/// A sentence, or the part of one before or after a contrast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sentence<'t> {
    /// The sentence in the text.
    pub text: &'t str,
    /// Its words.
    pub words: String,
    pub is_question: bool,
}

impl Sentence<'_> {
    /// Whether nothing but punctuation, numbers and quotations is left.
    pub(crate) fn is_without_words(&self) -> bool {
        !self.words.contains(char::is_alphabetic)
    }
}

/// The sentences of `text`, split before the words of `contrast` as well.
pub(super) fn sentences<'t>(text: &'t str, spaced: bool, contrast: &'static [String]) -> Sentences<'t> {
    Sentences { text, at: 0, spaced, contrast }
}

pub(super) struct Sentences<'t> {
    text: &'t str,
    at: usize,
    spaced: bool,
    contrast: &'static [String],
}

impl<'t> Iterator for Sentences<'t> {
    type Item = Sentence<'t>;

    fn next(&mut self) -> Option<Sentence<'t>> {
        loop {
            let from = self.at;
            let mut words = Words { text: String::from(" "), spaced: self.spaced };
            let end = self.read(&mut words)?;
            let text = self.text.get(from..self.at).unwrap_or_default().trim();
            if words.text.len() > 1 {
                words.end_word();
                return Some(Sentence { text, words: words.text, is_question: end == End::Question });
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Question,
    Other,
}

impl Sentences<'_> {
    /// Reads up to the end of a sentence, behind its punctuation; `None` at the end of the text.
    fn read(&mut self, words: &mut Words) -> Option<End> {
        let from = self.at;
        let mut before = ' ';
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(c) = rest.chars().next() else { return (self.at > from).then_some(End::Other) };
            if words.text.len() > 1 && self.is_contrast(rest, before) {
                return Some(End::Other);
            }
            // Most of a text, and no contrast begins inside.
            if c.is_ascii_alphanumeric() {
                let run = rest.bytes().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(rest.len());
                words.push_run(rest.get(..run).unwrap_or_default());
                self.at += run;
                before = rest.as_bytes().get(run - 1).map_or(c, |byte| char::from(*byte));
                continue;
            }
            let after = rest.get(c.len_utf8()..).unwrap_or_default();
            let next = after.chars().next().unwrap_or(' ');
            self.at += c.len_utf8();
            let inside = before.is_alphanumeric() && next.is_alphanumeric();
            match c {
                '`' => self.skip_code(rest, words),
                '\n' | ';' | '；' | '。' | '！' | '!' | '…' | '—' => return Some(End::Other),
                '?' | '？' => return Some(End::Question),
                '–' | '-' if before == ' ' && next == ' ' => return Some(End::Other),
                '.' if inside => words.push('.'),
                '.' if !next.is_alphanumeric() && !words.ends_with_abbreviation() => return Some(End::Other),
                ',' | ':' if inside && before.is_ascii_digit() && next.is_ascii_digit() => words.push('.'),
                ',' | '，' => words.word(","),
                ':' | '：' => words.word(":"),
                '(' | ')' | '（' | '）' | '[' | ']' => words.word("("),
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

    /// Whether a contrast begins here.
    fn is_contrast(&self, rest: &str, before: char) -> bool {
        if self.spaced && before != ' ' {
            return false;
        }
        self.contrast.iter().any(|word| {
            let after = rest.get(word.len()..).filter(|_| rest.get(..word.len()).is_some_and(|r| r == word));
            after.is_some_and(|a| !self.spaced || a.starts_with([' ', ',']))
        })
    }

    /// Skips a fenced block or inline code behind its first backtick.
    fn skip_code(&mut self, rest: &str, words: &mut Words) {
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
            words.word("\"");
        }
    }

    /// Skips a quotation in single quotes. Unlike an apostrophe, its end is followed by no letter.
    fn skip_single_quotation(&mut self, after: &str, words: &mut Words) {
        let within = quotable(after);
        let ends = |at: usize| !within.get(at..).is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
        let mut quotes = within.match_indices(['\'', '\u{2019}']).map(|(at, quote)| at + quote.len());
        if let Some(end) = quotes.find(|end| ends(*end)) {
            self.at += end;
            words.word("\"");
        }
    }

    /// Skips a quotation. It ends the sentence if its own punctuation does.
    fn skip_quotation(&mut self, after: &str, closing: char, words: &mut Words) -> Option<End> {
        let within = quotable(after);
        let Some(length) = within.find(closing) else {
            words.end_word();
            return None;
        };
        self.at += length + closing.len_utf8();
        words.word("\"");
        let quoted = within.get(..length).unwrap_or_default().trim_end();
        let ends = quoted.ends_with(['.', '!', '?', '。', '！', '？']);
        ends.then_some(End::Other)
    }
}

/// The text in which a quotation has to end.
fn quotable(after: &str) -> &str {
    clip(after, MAX_QUOTATION).split('\n').next().unwrap_or_default()
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

struct Words {
    text: String,
    spaced: bool,
}

impl Words {
    fn push(&mut self, c: char) {
        self.text.push(c);
    }

    fn push_run(&mut self, ascii: &str) {
        let from = self.text.len();
        self.text.push_str(ascii);
        self.text.get_mut(from..).into_iter().for_each(str::make_ascii_lowercase);
    }

    fn end_word(&mut self) {
        if self.spaced && !self.text.ends_with(' ') {
            self.text.push(' ');
        }
    }

    fn word(&mut self, word: &str) {
        self.end_word();
        self.text.push_str(word);
        self.end_word();
    }

    fn ends_with_abbreviation(&self) -> bool {
        let mut last = self.text.rsplit(' ');
        let (word, before) = (last.next().unwrap_or_default(), last.next().unwrap_or_default());
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        let is_initial = word.chars().count() == 1 && !is_number;
        let is_ordinal = is_number && word.len() <= 2 && BEFORE_ORDINALS.contains(&before);
        self.spaced && (is_initial || is_ordinal || ABBREVIATIONS.contains(&word))
    }
}
