//! The language of a text, by its script and its function words.
//!
//! In: a text, of which the beginning is read. Out: [`Detected`]: a language that rules read, another one, or no
//! recognised language. Function words occur in prose on every topic, and rarely in code and identifiers. The weight
//! of a word is lower the more languages share it. Neighbouring languages that rules do not read are scored by the
//! words that only they have, so that Dutch is not taken for German.

use std::ops::Range;

use foldhash::{HashMap, HashMapExt};

use super::supported::Language;
use crate::measure::ascii_letters::{BLOCK, block_at, end_of_letters, leading_letters};
use crate::measure::excerpt::push_lowercase;

/// Maximum bytes that are read.
pub(super) const MAX_BYTES: usize = 3000;
/// Minimum score of a recognised language: two words that only one language has, or several shared words.
const MIN_SCORE: f32 = 1.3;
/// Minimum share of the best language in the sum of the best and the second score.
const MIN_SHARE: f32 = 0.58;
/// Minimum score of another language that excludes English, although it is too low to recognise the language.
const MIN_HINT: f32 = 1.0;
/// Minimum words in lower case of a text that is taken for prose, which has function words of its language.
const MIN_PROSE_WORDS: usize = 20;
/// Maximum bytes of a function word.
const MAX_WORD_BYTES: usize = 24;

/// The language of a text as its own words show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Detected {
    /// A language that rules read.
    Supported(Language),
    /// A language that rules do not read.
    Unsupported,
    /// The text has too few words, and no hint at another language than English.
    TooFewWords,
    /// The text has too few known words for a result, and is probably not English; with the most probable language, if
    /// there is one.
    Unclear(Option<Language>),
    /// The text has no letters.
    NoWords,
}

impl Detected {
    #[cfg(test)]
    pub(super) fn language(self) -> Option<Language> {
        match self {
            Detected::Supported(language) => Some(language),
            _ => None,
        }
    }
}

/// Function words, with one line for each language code. A code that is no [`Language`] is a neighbouring language.
const FUNCTION_WORDS: &str = include_str!("data/function_words.txt");

/// Bits of the Bloom filter of words, about twenty for each word.
const FILTER_BITS: u64 = 1 << 15;
/// Bytes of a word that determine its position in the filter.
const HEAD_BYTES: usize = BLOCK;

/// Maximum languages with function words.
const MAX_LANGUAGES: usize = 32;

/// The function words of all languages.
struct LanguageTable {
    codes: Vec<&'static str>,
    /// By word, the languages that have it, as indexes of `codes`.
    words: HashMap<&'static str, Vec<usize>>,
    /// A Bloom filter of the words: most words of a text are no function words, and are not looked up in the map.
    filter: Vec<u64>,
}

impl LanguageTable {
    /// The language of an index of `codes`, if rules read it.
    fn language(&self, index: usize) -> Option<Language> {
        let code = self.codes.get(index).copied()?;
        Language::ALL.into_iter().find(|language| language.as_str() == code)
    }

    /// Whether a word of `text` may be a function word, in any case of ASCII letters.
    fn may_have(&self, text: &str, word: Range<usize>) -> bool {
        let len = word.len();
        self.may_have_head(head(text.as_bytes(), word), len)
    }

    /// As [`Self::may_have`], for a word of `len` bytes with this [`head`].
    fn may_have_head(&self, head: u64, len: usize) -> bool {
        let (index, bit) = filter_position(head, len);
        self.filter.get(index).is_some_and(|bits| bits >> bit & 1 == 1)
    }
}

/// The first [`HEAD_BYTES`] of a word of `text` as an integer. The bytes of a shorter word are the highest bytes, above
/// zeros.
fn head(text: &[u8], word: Range<usize>) -> u64 {
    match block_at(text, word.start) {
        // Bytes after the word are shifted out.
        Some(block) => block << (8 * HEAD_BYTES.saturating_sub(word.len())),
        None => text
            .get(word)
            .unwrap_or_default()
            .iter()
            .take(HEAD_BYTES)
            .fold(0, |head, byte| (head >> 8) | u64::from(*byte) << (8 * (HEAD_BYTES - 1))),
    }
}

/// The index and the bit of a word of `len` bytes in the filter, the same for any case of ASCII letters.
fn filter_position(head: u64, len: usize) -> (usize, u64) {
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
        let language_index = table.codes.len();
        table.codes.push(code);
        let is_read = Language::ALL.iter().any(|language| language.as_str() == code);
        for word in words.split_whitespace() {
            let (index, bit) = filter_position(head(word.as_bytes(), 0..word.len()), word.len());
            table.filter.get_mut(index).into_iter().for_each(|bits| *bits |= 1 << bit);
            let languages = table.words.entry(word).or_default();
            // Neighbouring languages are the last lines, and are scored only by words that no language before them has.
            if is_read || languages.is_empty() {
                languages.push(language_index);
            }
        }
    }
    match table.codes.len() <= MAX_LANGUAGES {
        true => Ok(table),
        false => Err("more languages than scores".to_owned()),
    }
}

/// Whether a word in lower case is a function word of the language.
pub(super) fn is_function_word(word: &str, language: Language) -> bool {
    let indexes = TABLE.words.get(word);
    indexes.is_some_and(|indexes| indexes.iter().any(|index| TABLE.language(*index) == Some(language)))
}

/// The language of a text, by its script or else by its function words.
pub(super) fn detect(text: &str) -> Detected {
    let text = text.get(..text.floor_char_boundary(MAX_BYTES)).unwrap_or(text);
    let scripts = Scripts::from_text(text);
    scripts.language().unwrap_or_else(|| language_by_words(text))
}

/// The numbers of letters by script.
#[derive(Default)]
struct Scripts {
    /// In a text without letters of other scripts, the ASCII letters count as one.
    latin: usize,
    han: usize,
    kana: usize,
    other: usize,
}

/// Bytes of a chunk of the text; a chunk of ASCII is skipped in the count of other characters.
const CHUNK_BYTES: usize = 32;

impl Scripts {
    fn from_text(text: &str) -> Scripts {
        let mut scripts = Scripts::default();
        for (nth, part) in
            text.as_bytes().chunks(CHUNK_BYTES).enumerate().filter(|(_, part)| !part.is_ascii())
        {
            // The first byte of a character of several bytes has both of its highest bits set.
            let starts = part.iter().enumerate().filter(|(_, byte)| **byte >= 0xc0);
            for (at, _) in starts {
                scripts.count(text.get(nth * CHUNK_BYTES + at..).and_then(|rest| rest.chars().next()));
            }
        }
        let bytes = text.as_bytes();
        scripts.latin += match scripts.han + scripts.kana + scripts.other {
            // Without letters of other scripts only their presence matters.
            0 => usize::from(bytes.iter().any(u8::is_ascii_alphabetic)),
            _ => bytes.iter().filter(|byte| byte.is_ascii_alphabetic()).count(),
        };
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

    /// The language, if the script determines it. A Chinese or Japanese character counts as three letters, since it has
    /// about as much content; names and code in Latin letters are common in such texts.
    fn language(&self) -> Option<Detected> {
        let asian = (self.han + self.kana) * 3;
        match () {
            () if self.latin + asian + self.other == 0 => Some(Detected::NoWords),
            () if self.other > self.latin.max(asian) => Some(Detected::Unsupported),
            () if asian < self.latin => None,
            () if self.kana * 8 >= self.han => Some(Detected::Supported(Language::Japanese)),
            () => Some(Detected::Supported(Language::Chinese)),
        }
    }
}

/// Minimum score of a language that is recognised before the end of the text, if the sum of all other scores is at most
/// a quarter of it.
const CLEAR_SCORE: f32 = 8.0;

/// The language of a text by its function words.
fn language_by_words(text: &str) -> Detected {
    let table = &*TABLE;
    let mut scores = [0.0_f32; MAX_LANGUAGES];
    let scores = scores.get_mut(..table.codes.len()).unwrap_or_default();
    let mut highest = 0.0_f32;
    let mut lower = String::with_capacity(MAX_WORD_BYTES);
    let mut words = WordReader { text, at: 0 };
    while words.read_lowercase(table, &mut lower) {
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
    // No score is negative.
    let (mut best, mut score, mut second) = (0, 0.0, 0.0);
    for (language, &language_score) in scores.iter().enumerate() {
        if language_score >= score {
            (best, score, second) = (language, language_score, score);
        } else if language_score > second {
            second = language_score;
        }
    }
    if score < MIN_SCORE || score < (score + second) * MIN_SHARE {
        let hint = || (score >= MIN_HINT && second < score).then(|| table.language(best)).flatten();
        return match hints_at_another(text, score, scores) {
            true => Detected::Unclear(hint()),
            false => Detected::TooFewWords,
        };
    }
    table.language(best).map_or(Detected::Unsupported, Detected::Supported)
}

/// Whether a text with too few known words is probably not English. `best` is the highest score of a language.
fn hints_at_another(text: &str, best: f32, scores: &[f32]) -> bool {
    let english = TABLE.codes.iter().position(|code| *code == Language::English.as_str());
    let english = english.and_then(|at| scores.get(at)).copied().unwrap_or_default();
    // A single letter may be a name or a label.
    let has_unshared_word = || {
        text.split(|c: char| !c.is_alphabetic()).any(|word| {
            word.chars().nth(1).is_some()
                && TABLE.words.get(&*word.to_lowercase()).is_some_and(|languages| languages.len() == 1)
        })
    };
    best >= MIN_HINT && english * 2.0 <= best && has_unshared_word() || english < MIN_HINT && is_prose(text)
}

/// Whether a text has many words in lower case, as sentences do and lists of names and values do not.
fn is_prose(text: &str) -> bool {
    let words = text.split_whitespace().map(|word| word.trim_end_matches(['.', ',', '!', '?', ';', ':']));
    words
        .filter(|word| word.chars().all(char::is_lowercase) && !word.is_empty())
        .nth(MIN_PROSE_WORDS - 1)
        .is_some()
}

/// Whether the best language is so far ahead that further words are not read.
fn is_clear(scores: &[f32]) -> bool {
    let best = scores.iter().copied().fold(0.0, f32::max);
    let others: f32 = scores.iter().sum::<f32>() - best;
    best >= CLEAR_SCORE && others <= best / 4.0
}

/// The classes of bytes, of which a word has the union as bits.
const LETTER: u8 = 0;
/// A byte of an identifier, a path or code, which joins its words.
const JOINT: u8 = 1;
/// A byte of a character that is not ASCII.
const NON_ASCII: u8 = 2;
/// A byte between words.
const SEPARATOR: u8 = 4;

/// The class of each byte.
const BYTE_CLASSES: [u8; 256] = {
    let mut classes = [SEPARATOR; 256];
    let mut at = 0;
    while at < classes.len() {
        classes[at] = match at as u8 {
            b'a'..=b'z' | b'A'..=b'Z' => LETTER,
            b'_' | b'0'..=b'9' | b'/' | b'@' | b'=' => JOINT,
            0x80.. => NON_ASCII,
            _ => SEPARATOR,
        };
        at += 1;
    }
    classes
};

/// Reads the words of a text.
struct WordReader<'t> {
    text: &'t str,
    at: usize,
}

impl WordReader<'_> {
    /// The next word of ASCII letters that may be a function word; `None` before a word with other characters, and near
    /// the end of the text.
    fn next_ascii_word(&mut self, table: &LanguageTable) -> Option<Range<usize>> {
        let bytes = self.text.as_bytes();
        while let Some(block) = block_at(bytes, self.at) {
            let (start, mut end) = (self.at, self.at + leading_letters(block));
            if end == start + BLOCK {
                end = end_of_letters(bytes, end);
            }
            let (next, letters) = (*bytes.get(end)?, end - start);
            if BYTE_CLASSES[usize::from(next)] != SEPARATOR {
                return None;
            }
            let is_label = letters == 1 && next == b'-';
            // Bytes after the word are shifted out.
            let head = || block << (8 * HEAD_BYTES.saturating_sub(letters));
            if letters > 0 && !is_label && table.may_have_head(head(), letters) {
                self.at = end;
                return Some(start..end);
            }
            self.at = end + 1;
        }
        None
    }

    /// Reads the next word that may be a function word into `lower`; returns false at the end of the text.
    fn read_lowercase(&mut self, table: &LanguageTable, lower: &mut String) -> bool {
        lower.clear();
        loop {
            if let Some(word) = self.next_ascii_word(table) {
                lower.push_str(self.text.get(word).unwrap_or_default());
                lower.make_ascii_lowercase();
                return true;
            }
            let Some((word, classes)) = self.next_word() else { return false };
            // The letter of an identifier such as "W-4411" is no word.
            let is_label = word.len() == 1 && self.text.as_bytes().get(word.end) == Some(&b'-');
            if classes & JOINT != 0 || word.len() > MAX_WORD_BYTES || is_label {
                continue;
            }
            if classes == LETTER {
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

    /// The next word, and the classes of its bytes; `None` at the end of the text.
    fn next_word(&mut self) -> Option<(Range<usize>, u8)> {
        let bytes = self.text.as_bytes();
        let class = |at: usize| bytes.get(at).map(|byte| BYTE_CLASSES[usize::from(*byte)]);
        let mut at = self.at;
        while class(at) == Some(SEPARATOR) {
            at += 1;
        }
        let (mut start, mut classes) = (at, LETTER);
        loop {
            at = end_of_letters(bytes, at);
            match class(at) {
                Some(JOINT) => {
                    classes |= JOINT;
                    at += 1;
                }
                Some(NON_ASCII) => {
                    let c = self.text.get(at..).and_then(|rest| rest.chars().next()).unwrap_or(' ');
                    let is_symbol = !c.is_alphabetic();
                    if is_symbol && at > start {
                        self.at = at + c.len_utf8();
                        break;
                    }
                    at += c.len_utf8();
                    if is_symbol {
                        start = at;
                    } else {
                        classes |= NON_ASCII;
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
        (start < at).then_some((start..at, classes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_passes_every_function_word_at_any_position() {
        for word in TABLE.words.keys() {
            for text in [format!("({word}"), format!("({}) and more", word.to_ascii_uppercase())] {
                assert!(TABLE.may_have(&text, 1..1 + word.len()), "{text}");
            }
        }
    }
}
