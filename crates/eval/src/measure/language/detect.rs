//! The language of a text, by its script and its function words.
//!
//! In: a text, of which the beginning is read. Out: one of the languages that rules read, another one, or
//! that it is not recognised. Function words occur in prose on every topic, and code and
//! identifiers have few of them. A word counts less the more languages share it. Neighbouring languages are
//! counted as well, by the words that only they have, so that Dutch is not taken for German.

use std::ops::Range;

use foldhash::{HashMap, HashMapExt};

use super::supported::Language;
use crate::measure::ascii_letters::{BLOCK, block_at, end_of_letters, letters_of};
use crate::measure::excerpt::push_lowercase;

/// Bytes that are read.
pub(super) const MAX_BYTES: usize = 3000;
/// The least score: two words that only one language has, or several shared ones.
const MIN_SCORE: f32 = 1.3;
/// The best language's share of the score of the best and the second.
const MIN_SHARE: f32 = 0.58;
/// The least score of another language that is too low to recognise it, but excludes English.
const MIN_HINT: f32 = 1.0;
/// Prose of at least this number of words in lower case has function words of its language.
const MIN_PROSE: usize = 20;
/// The longest function word in bytes.
const MAX_WORD: usize = 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Detected {
    In(Language),
    /// A language that rules do not read.
    Other,
    /// Too few words.
    TooFewWords,
    /// Too few words that are known, which hint at another language than English, perhaps at this one.
    Unclear(Option<Language>),
    /// No letters: there is nothing to read.
    NoWords,
}

impl Detected {
    #[cfg(test)]
    pub(super) fn language(self) -> Option<Language> {
        match self {
            Detected::In(language) => Some(language),
            _ => None,
        }
    }
}

/// Function words, each line a language by its code. Those that are no [`Language`] are neighbours.
const FUNCTION_WORDS: &str = include_str!("data/function_words.txt");

/// Bits of the filter of words, some twenty for each.
const FILTER_BITS: u64 = 1 << 15;
/// Bytes of a word that the filter sees.
const HEAD: usize = BLOCK;

/// Most languages with function words.
const MAX_LANGUAGES: usize = 32;

/// By word, the languages that have it, as indexes of `codes`.
struct LanguageTable {
    codes: Vec<&'static str>,
    words: HashMap<&'static str, Vec<usize>>,
    /// A Bloom filter of the words: most words of a text are none of them, and are not looked up.
    filter: Vec<u64>,
}

impl LanguageTable {
    /// The language of an index of `codes`, if rules read it.
    fn language(&self, index: usize) -> Option<Language> {
        let code = self.codes.get(index).copied()?;
        Language::ALL.into_iter().find(|language| language.as_str() == code)
    }

    /// Whether there may be such a word, in any case of ASCII letters.
    fn may_have(&self, text: &str, word: Range<usize>) -> bool {
        let len = word.len();
        self.may_have_head(head(text.as_bytes(), word), len)
    }

    /// As [`Self::may_have`], of a word of `len` bytes with this [`head`].
    fn may_have_head(&self, head: u64, len: usize) -> bool {
        let (at, bit) = place(head, len);
        self.filter.get(at).is_some_and(|bits| bits >> bit & 1 == 1)
    }
}

/// The first bytes of a word of `text`, those of a shorter word highest, above zeros.
fn head(text: &[u8], word: Range<usize>) -> u64 {
    match block_at(text, word.start) {
        // Bytes after the word are shifted out.
        Some(block) => block << (8 * HEAD.saturating_sub(word.len())),
        None => text
            .get(word)
            .unwrap_or_default()
            .iter()
            .take(HEAD)
            .fold(0, |head, byte| (head >> 8) | u64::from(*byte) << (8 * (HEAD - 1))),
    }
}

/// The place of a word of `len` bytes in the filter, in any case of ASCII letters.
fn place(head: u64, len: usize) -> (usize, u64) {
    let hash = ((head | 0x2020_2020_2020_2020) ^ len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bit = hash >> (u64::BITS - FILTER_BITS.trailing_zeros());
    ((bit / 64) as usize, bit % 64)
}

checked_static!(TABLE: LanguageTable = table());

fn table() -> Result<LanguageTable, String> {
    let filter = vec![0; (FILTER_BITS / 64) as usize];
    let mut table = LanguageTable { codes: Vec::new(), words: HashMap::new(), filter };
    for line in FUNCTION_WORDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (code, words) = line.split_once(':').ok_or_else(|| format!("no language in {line:?}"))?;
        let index = table.codes.len();
        table.codes.push(code);
        let is_read = Language::ALL.iter().any(|language| language.as_str() == code);
        for word in words.split_whitespace() {
            let (at, bit) = place(head(word.as_bytes(), 0..word.len()), word.len());
            table.filter.get_mut(at).into_iter().for_each(|bits| *bits |= 1 << bit);
            let languages = table.words.entry(word).or_default();
            // Neighbours come last, and have only words of their own.
            if is_read || languages.is_empty() {
                languages.push(index);
            }
        }
    }
    match table.codes.len() <= MAX_LANGUAGES {
        true => Ok(table),
        false => Err("more languages than have a score".to_owned()),
    }
}

pub(super) fn detect(text: &str) -> Detected {
    let text = text.get(..text.floor_char_boundary(MAX_BYTES)).unwrap_or(text);
    let scripts = Scripts::from_text(text);
    scripts.language().unwrap_or_else(|| by_words(text))
}

/// Letters by script.
#[derive(Default)]
struct Scripts {
    latin: usize,
    han: usize,
    kana: usize,
    other: usize,
}

/// Bytes that are passed over at once if all are ASCII.
const PART: usize = 32;

impl Scripts {
    fn from_text(text: &str) -> Scripts {
        let letters =
            |part: &[u8]| part.iter().fold(0u8, |sum, byte| sum + u8::from(byte.is_ascii_alphabetic()));
        // Parts so short that the compiler counts many bytes at once.
        let latin = text.as_bytes().chunks(usize::from(u8::MAX)).map(|part| usize::from(letters(part))).sum();
        let mut scripts = Scripts { latin, ..Scripts::default() };
        for (nth, part) in text.as_bytes().chunks(PART).enumerate().filter(|(_, part)| !part.is_ascii()) {
            // The first byte of a character of several bytes has both of the highest bits.
            let starts = part.iter().enumerate().filter(|(_, byte)| **byte >= 0xc0);
            for (at, _) in starts {
                scripts.count(text.get(nth * PART + at..).and_then(|rest| rest.chars().next()));
            }
        }
        scripts
    }

    /// Counts a character that is not ASCII.
    fn count(&mut self, c: Option<char>) {
        match c {
            Some('\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}') => self.latin += 1,
            Some('\u{3040}'..='\u{30ff}') => self.kana += 1,
            Some('\u{3400}'..='\u{9fff}') => self.han += 1,
            Some(c) if c.is_alphabetic() => self.other += 1,
            _ => {}
        }
    }

    /// The language if the script decides it. One Chinese character says about as much as three letters;
    /// names and code in Latin letters are common in Chinese and Japanese texts.
    fn language(&self) -> Option<Detected> {
        let asian = (self.han + self.kana) * 3;
        match () {
            () if self.latin + asian + self.other == 0 => Some(Detected::NoWords),
            () if self.other > self.latin.max(asian) => Some(Detected::Other),
            () if asian < self.latin => None,
            () if self.kana * 8 >= self.han => Some(Detected::In(Language::Japanese)),
            () => Some(Detected::In(Language::Chinese)),
        }
    }
}

/// The score from which on a language is recognised if no other one has more than a quarter of it.
const CLEAR_SCORE: f32 = 8.0;

fn by_words(text: &str) -> Detected {
    let table = &*TABLE;
    let mut scores = [0.0_f32; MAX_LANGUAGES];
    let scores = scores.get_mut(..table.codes.len()).unwrap_or_default();
    let mut highest = 0.0_f32;
    let mut lower = String::with_capacity(MAX_WORD);
    let mut words = WordReader { text, at: 0 };
    while words.next_in_lower_case(table, &mut lower) {
        let Some(languages) = table.words.get(lower.as_str()) else { continue };
        let weight = 1.0 / languages.len() as f32;
        for language in languages {
            if let Some(score) = scores.get_mut(*language) {
                *score += weight;
                highest = highest.max(*score);
            }
        }
        if highest >= CLEAR_SCORE && is_clear(scores) {
            break;
        }
    }
    let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    let Some((best, &score)) = best else { return Detected::TooFewWords };
    let second = scores.iter().enumerate().filter(|(i, _)| *i != best).map(|(_, s)| *s).fold(0.0, f32::max);
    if score < MIN_SCORE || score < (score + second) * MIN_SHARE {
        let hint = || (score >= MIN_HINT && second < score).then(|| table.language(best)).flatten();
        return match hints_at_another(text, score, scores) {
            true => Detected::Unclear(hint()),
            false => Detected::TooFewWords,
        };
    }
    table.language(best).map_or(Detected::Other, Detected::In)
}

/// Whether a text of too few known words, of which a language has `best`, is hardly English.
fn hints_at_another(text: &str, best: f32, scores: &[f32]) -> bool {
    let english = TABLE.codes.iter().position(|code| *code == Language::English.as_str());
    let english = english.and_then(|at| scores.get(at)).copied().unwrap_or_default();
    // A letter may be the name of something.
    let is_word = || {
        text.split(|c: char| !c.is_alphabetic()).any(|word| {
            word.chars().nth(1).is_some()
                && TABLE.words.get(&*word.to_lowercase()).is_some_and(|languages| languages.len() == 1)
        })
    };
    best >= MIN_HINT && english * 2.0 <= best && is_word() || english < MIN_HINT && is_prose(text)
}

/// Whether a text has many words in lower case, as sentences have and lists of names and values have not.
fn is_prose(text: &str) -> bool {
    let words = text.split_whitespace().map(|word| word.trim_end_matches(['.', ',', '!', '?', ';', ':']));
    words.filter(|word| word.chars().all(char::is_lowercase) && !word.is_empty()).nth(MIN_PROSE - 1).is_some()
}

/// Whether more words would not change which language is the best.
fn is_clear(scores: &[f32]) -> bool {
    let best = scores.iter().copied().fold(0.0, f32::max);
    let others: f32 = scores.iter().sum::<f32>() - best;
    best >= CLEAR_SCORE && others <= best / 4.0
}

/// The role of a byte in a word: a set of these bits.
const LETTER: u8 = 0;
/// Part of an identifier, a path or code.
const JOINT: u8 = 1;
/// Part of a character that is not ASCII.
const OTHER_SCRIPT: u8 = 2;
const SEPARATOR: u8 = 4;

const CLASSES: [u8; 256] = {
    let mut classes = [SEPARATOR; 256];
    let mut at = 0;
    while at < classes.len() {
        classes[at] = match at as u8 {
            b'a'..=b'z' | b'A'..=b'Z' => LETTER,
            b'_' | b'0'..=b'9' | b'/' | b'@' | b'=' => JOINT,
            0x80.. => OTHER_SCRIPT,
            _ => SEPARATOR,
        };
        at += 1;
    }
    classes
};

/// The words of a text.
struct WordReader<'t> {
    text: &'t str,
    at: usize,
}

impl WordReader<'_> {
    /// The next word of letters that can be a function word, up to any word that has other characters.
    fn next_plain(&mut self, table: &LanguageTable) -> Option<Range<usize>> {
        let bytes = self.text.as_bytes();
        while let Some(block) = block_at(bytes, self.at) {
            let (start, mut end) = (self.at, self.at + letters_of(block));
            if end == start + BLOCK {
                end = end_of_letters(bytes, end);
            }
            let (next, letters) = (*bytes.get(end)?, end - start);
            if CLASSES[usize::from(next)] != SEPARATOR {
                return None;
            }
            let is_label = letters == 1 && next == b'-';
            // Bytes after the word are shifted out.
            let head = || block << (8 * HEAD.saturating_sub(letters));
            if letters > 0 && !is_label && table.may_have_head(head(), letters) {
                self.at = end;
                return Some(start..end);
            }
            self.at = end + 1;
        }
        None
    }

    /// Reads the next word that can be a function word into `lower`; false at the end.
    fn next_in_lower_case(&mut self, table: &LanguageTable, lower: &mut String) -> bool {
        lower.clear();
        loop {
            if let Some(word) = self.next_plain(table) {
                lower.push_str(self.text.get(word).unwrap_or_default());
                lower.make_ascii_lowercase();
                return true;
            }
            let Some((word, seen)) = self.next_word() else { return false };
            // "W-4411" has no word.
            let is_label = word.len() == 1 && self.text.as_bytes().get(word.end) == Some(&b'-');
            if seen & JOINT != 0 || word.len() > MAX_WORD || is_label {
                continue;
            }
            if seen == LETTER {
                if table.may_have(self.text, word.clone()) {
                    lower.push_str(self.text.get(word).unwrap_or_default());
                    lower.make_ascii_lowercase();
                    return true;
                }
                continue;
            }
            push_lowercase(lower, self.text.get(word).unwrap_or_default());
            if table.may_have(lower, 0..lower.len()) {
                return true;
            }
            lower.clear();
        }
    }

    /// The next word, and the classes of its bytes.
    fn next_word(&mut self) -> Option<(Range<usize>, u8)> {
        let bytes = self.text.as_bytes();
        let class = |at: usize| bytes.get(at).map(|byte| CLASSES[usize::from(*byte)]);
        let mut at = self.at;
        while class(at) == Some(SEPARATOR) {
            at += 1;
        }
        let (mut start, mut seen) = (at, LETTER);
        loop {
            at = end_of_letters(bytes, at);
            match class(at) {
                Some(JOINT) => {
                    seen |= JOINT;
                    at += 1;
                }
                Some(OTHER_SCRIPT) => {
                    let c = self.text.get(at..).and_then(|rest| rest.chars().next()).unwrap_or(' ');
                    let is_sign = !c.is_alphabetic();
                    if is_sign && at > start {
                        self.at = at + c.len_utf8();
                        break;
                    }
                    at += c.len_utf8();
                    if is_sign {
                        start = at;
                    } else {
                        seen |= OTHER_SCRIPT;
                    }
                }
                Some(_) if at == start => {
                    at += 1;
                    start = at;
                }
                _ => {
                    self.at = at;
                    break;
                }
            }
        }
        (start < at).then_some((start..at, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_passes_every_function_word_wherever_it_stands() {
        for word in TABLE.words.keys() {
            for text in [format!("({word}"), format!("({}) and more", word.to_ascii_uppercase())] {
                assert!(TABLE.may_have(&text, 1..1 + word.len()), "{text}");
            }
        }
    }
}
