//! The statements of an answer: the clauses that assert something about the world.
//!
//! In: an answer. Out: its [`Clause`]s without questions, conditions, offers, examples, code, JSON, links, quotations
//! of several words, and quoted lines, as recognised by the classes of words of its language. An answer in a language
//! without spaces has no clauses, since its words cannot be separated.

use std::borrow::Cow;
use std::ops::Deref;
use std::rc::Rc;

use super::answer::{masked, sentences};
use crate::measure::Memo;
use crate::measure::excerpt::push_lowercase;
use crate::measure::language::{ClassifiedWord, Language, WordClass, WordClasses, classes, classes_of};
use crate::measure::numbers::with_joined_groups;

/// Maximum clauses of one answer.
const MAX_CLAUSES: usize = 200;
/// Minimum words of a quotation whose content is not stated; shorter quotations are names.
const MIN_QUOTED_WORDS: usize = 4;

/// Classes of words by which a sentence asserts nothing.
const NOT_ASSERTED: WordClasses = classes!(Condition Example Offer);
/// Classes of words for possible, future or partial facts.
const MODAL: WordClasses = classes!(Modal Obligation Probability Restriction Sequence Alternative);
/// Classes of words with which a clause begins.
const CLAUSE_BEGINNING: WordClasses = classes!(Conjunction Contrast Reason);
regex!(CLAUSE_MARK, r"[,;:](?:\s)|\s[–—-]\s");

/// Whether a sentence asserts nothing: it is a question, a condition, an offer, an example, or advice, so that its
/// values are not facts.
pub(super) fn asserts_nothing(sentence: &str, language: Language) -> bool {
    asserts_nothing_by_classes(sentence, language.classes(sentence))
}

/// As [`asserts_nothing`], with the classes of the words of the sentence.
pub(super) fn asserts_nothing_by_classes(sentence: &str, classes: WordClasses) -> bool {
    is_not_asserted(sentence, classes) || classes.has(WordClass::Advice)
}

/// As [`asserts_nothing_by_classes`], but false for advice.
fn is_not_asserted(sentence: &str, classes: WordClasses) -> bool {
    sentence.trim_end().ends_with(['?', '？']) || classes.has_any(NOT_ASSERTED)
}

/// The text up to the line that introduces a wording as a draft or an example: "Here is a draft:".
pub(super) fn before_draft(text: &str, language: Language) -> &str {
    // The first bytes of both colons.
    if memchr::memchr2(b':', 0xef, text.as_bytes()).is_none() {
        return text;
    }
    let mut from = 0;
    for line in text.split_inclusive('\n') {
        let shown = line.trim_end().trim_end_matches(['*', '_', ' ']);
        if shown.ends_with([':', '\u{ff1a}']) && language.classes(shown).has(WordClass::Example) {
            return text.get(..from + line.len()).unwrap_or_default();
        }
        from += line.len();
    }
    text
}

/// A part of a sentence with its own verb, as far as punctuation and conjunctions show.
#[derive(Debug)]
pub(super) struct Clause<'t> {
    /// The sentence of the answer that has the clause.
    pub sentence: &'t str,
    /// The words of the clause in the form of [`words_of`].
    pub words: String,
    pub classes: WordClasses,
    pub negated: bool,
    /// Whether the clause states a possible or future fact.
    pub modal: bool,
    /// Whether the clause is the first of the answer.
    pub first: bool,
}

impl Clause<'_> {
    /// Whether the clause contains these lower-case words in sequence.
    pub(super) fn has(&self, words: &str) -> bool {
        contains_words(&self.words, words)
    }
}

/// Whether a line is an item of a list: it begins with a number or a bullet.
pub(crate) fn is_list_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = number.len() < line.len() && number.starts_with(['.', ')']);
    is_numbered || line.starts_with(['•', '–']) || matches!(line.split(' ').next(), Some("-" | "*"))
}

/// Whether `text`, normalised by [`words_of`], contains the words in sequence.
pub(super) fn contains_words(text: &str, words: &str) -> bool {
    let (text, words) = (text.as_bytes(), words.as_bytes());
    let Some(first) = words.first() else { return false };
    // Only positions with the first byte are compared.
    memchr::memchr_iter(*first, text).any(|at| {
        let begins = at == 0 || text.get(at - 1) == Some(&b' ');
        let after = text.get(at..).filter(|_| begins).and_then(|text| text.strip_prefix(words));
        after.is_some_and(|after| after.first().is_none_or(|next| *next == b' '))
    })
}

/// Whether `text`, normalised by [`words_of`], contains any of these words or sequences of words.
pub(super) fn contains_any(text: &str, any: &[&str]) -> bool {
    let text = text.as_bytes();
    // A set of hashes of the first two bytes excludes most words of the text.
    let bit = |first: u8, second: u8| 1u64 << (first.wrapping_mul(5).wrapping_add(second) % 64);
    let begin = |words: &[u8]| match words {
        [] => 0,
        [first] => bit(*first, b' '),
        [first, second, ..] => bit(*first, *second),
    };
    let begins = any.iter().fold(0, |bits, words| bits | begin(words.as_bytes()));
    let is_at = |at: usize| {
        let text_from = text.get(at..).unwrap_or_default();
        let starts_with_words = |words: &[u8]| {
            let is_end = || text_from.get(words.len()).is_none_or(|next| *next == b' ');
            !words.is_empty() && text_from.starts_with(words) && is_end()
        };
        begins & begin(text_from) != 0 && any.iter().any(|words| starts_with_words(words.as_bytes()))
    };
    is_at(0) || memchr::memchr_iter(b' ', text).any(|space| is_at(space + 1))
}

/// The words of a text in lower case, separated by single spaces, with a space at both ends. A hyphen, dot or other
/// sign inside a word is part of it.
pub(super) fn words_of(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(' ');
    let is_word_part = |byte: &u8| BYTE_CLASSES[usize::from(*byte)] == WORD_BYTE;
    let bytes = text.as_bytes();
    // Fast path: most clauses have signs only at their ends.
    let (start, end) = (bytes.iter().position(is_word_part), bytes.iter().rposition(is_word_part));
    let core = start
        .zip(end)
        .and_then(|(start, end)| text.get(start..=end))
        .filter(|core| text.is_ascii() && is_plain(core));
    if let Some(core) = core {
        out.push_str(core);
        out.push(' ');
        out.make_ascii_lowercase();
        return out;
    }
    if may_have_wide_space(text) {
        text.replace('’', "'").split_whitespace().for_each(|word| push_word(&mut out, word));
        return out;
    }
    let mut remaining = text;
    while !remaining.is_empty() {
        // The core of the word is from `start` to `stop`, and the word with its signs ends at `end`.
        let (mut start, mut stop, mut end, mut classes) = (0, 0, 0, SPACE_BYTE);
        for byte in remaining.bytes() {
            let class = BYTE_CLASSES[usize::from(byte)];
            if class == SPACE_BYTE {
                break;
            }
            if class == WORD_BYTE {
                start = if stop == 0 { end } else { start };
                stop = end + 1;
            }
            end += 1;
            classes |= class;
        }
        if classes & NON_ASCII_BYTE != 0 {
            push_word(&mut out, remaining.get(..end).unwrap_or_default());
        } else if stop > 0 {
            out.push_str(remaining.get(start..stop).unwrap_or_default());
            out.push(' ');
        }
        remaining = remaining.get(end + 1..).unwrap_or_default();
    }
    out.make_ascii_lowercase();
    out
}

/// Whether a text consists of ASCII letters and digits and single spaces.
fn is_plain(text: &str) -> bool {
    let text = text.as_bytes();
    // The folds have no branches, so that the compiler can vectorise them.
    let has_sign = text
        .iter()
        .fold(false, |has_sign, byte| has_sign | !(byte.is_ascii_alphanumeric() | (*byte == b' ')));
    let pairs = text.iter().zip(text.get(1..).unwrap_or_default());
    let has_gap = || pairs.fold(false, |has_gap, (one, next)| has_gap | ((*one == b' ') & (*next == b' ')));
    !has_sign && !has_gap()
}

/// Whether a text may have white space that is not ASCII, or "’": the encodings of both begin with one of a few bytes.
fn may_have_wide_space(text: &str) -> bool {
    let bytes = text.as_bytes();
    !text.is_ascii()
        && (memchr::memchr3(0xe1, 0xe2, 0xe3, bytes).is_some() || memchr::memchr(0xc2, bytes).is_some())
}

/// The classes of bytes, as bits of a set, of which [`SPACE_BYTE`] is empty.
const SPACE_BYTE: u8 = 0;
/// Letters, digits and signs with which a word may begin and end.
const WORD_BYTE: u8 = 1;
/// Any other ASCII character.
const SIGN_BYTE: u8 = 2;
/// A part of a character that is not ASCII.
const NON_ASCII_BYTE: u8 = 4;

/// The class of each byte.
const BYTE_CLASSES: [u8; 256] = {
    let mut classes = [SIGN_BYTE; 256];
    let mut at = 0;
    while at < classes.len() {
        classes[at] = match at as u8 {
            b' ' | b'\t'..=b'\r' => SPACE_BYTE,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'$' | b'%' => WORD_BYTE,
            0x80.. => NON_ASCII_BYTE,
            _ => SIGN_BYTE,
        };
        at += 1;
    }
    classes
};

fn push_word(out: &mut String, word: &str) {
    let is_word_part = |c: char| c.is_alphanumeric() || matches!(c, '$' | '€' | '£' | '¥' | '%');
    let word = word.trim_matches(|c| !is_word_part(c));
    if !word.is_empty() {
        push_lowercase(out, word);
        out.push(' ');
    }
}

/// The words of a text in the form of [`words_of`], computed once per trace.
pub(super) struct LowercaseWords(String);

impl LowercaseWords {
    pub(super) fn cached(text: &str, memo: &Memo) -> Rc<LowercaseWords> {
        memo.for_content(text, || LowercaseWords(words_of(text)))
    }
}

impl Deref for LowercaseWords {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// An answer whose code, links, JSON, quoted lines and quotations are blanked; positions stay the same.
pub(super) struct Prose(String);

impl Prose {
    /// The prose of an answer, computed once per trace.
    pub(super) fn cached(answer: &str, memo: &Memo) -> Rc<Prose> {
        memo.for_content(answer, || Prose(without_quotations(answer).into_owned()))
    }
}

impl Deref for Prose {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

fn without_quotations(answer: &str) -> Cow<'_, str> {
    let plain = masked(answer);
    // An answer that is JSON consists of facts.
    let is_json = plain.trim_start().starts_with(['{', '[']);
    let may_quote = memchr::memchr3(b'"', b'{', b'>', plain.as_bytes()).is_some()
        || !plain.is_ascii() && plain.contains(['“', '«', '„']);
    if is_json || !may_quote {
        return plain;
    }
    let mut out = plain.into_owned();
    for (start, end) in quoted_ranges(&out) {
        if let Some(part) = out.get(start..end) {
            let blank: String = part.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
            out.replace_range(start..end, &blank);
        }
    }
    Cow::Owned(out)
}

/// Whether the encoding of a quotation mark or a brace may begin with this byte.
fn may_begin_mark(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | 0xc2 | 0xe2)
}

/// The byte ranges of quoted lines, of texts in braces, and of quotations of at least [`MIN_QUOTED_WORDS`] words, in
/// order.
fn quoted_ranges(text: &str) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let (start, end) = (line_start, line_start + line.len());
        line_start = end;
        if line.trim_start().starts_with('>') {
            out.push((start, end));
            continue;
        }
        let mut open: Option<(usize, char)> = None;
        let mut from = 0;
        while let Some(offset) = line.bytes().skip(from).position(may_begin_mark) {
            let at = from + offset;
            let Some(c) = line.get(at..).and_then(|text| text.chars().next()) else { break };
            from = at + c.len_utf8();
            match (c, open) {
                ('"', Some((begin, '"')))
                | ('”', Some((begin, '“')))
                | ('“' | '”', Some((begin, '„')))
                | ('»', Some((begin, '«'))) => {
                    let words = line.get(begin..at).map_or(0, |inner| inner.split_whitespace().count());
                    if words >= MIN_QUOTED_WORDS {
                        out.push((start + begin, start + at));
                    }
                    open = None;
                }
                ('}', Some((begin, '{'))) => {
                    out.push((start + begin, start + at));
                    open = None;
                }
                ('"' | '“' | '„' | '«' | '{', None) => open = Some((at, c)),
                _ => {}
            }
        }
    }
    out
}

/// The clauses of an answer that state something; empty in a language without spaces.
pub(super) fn clauses<'t>(
    answer: &'t str,
    prose: &Prose,
    language: Language,
    memo: &Memo,
) -> Vec<Clause<'t>> {
    if !language.is_spaced() {
        return Vec::new();
    }
    let places = language.places(prose, memo);
    let mut out = Vec::new();
    for (nth, (start, end)) in sentences(prose).into_iter().enumerate() {
        let (Some(plain), Some(sentence)) = (prose.get(start..end), answer.get(start..end)) else { continue };
        let within = places.within(start..end);
        if is_not_asserted(plain, classes_of(within)) {
            continue;
        }
        let mut from = start;
        for (stop, next) in clause_ends(plain, start, within) {
            let text = prose.get(from..stop).unwrap_or_default();
            // A comma and "but" begin one clause.
            if text.trim().is_empty() && next < end {
                continue;
            }
            let (first, classes) = (nth == 0 && from == start, classes_of(places.within(from..stop)));
            from = next;
            if !text.trim().is_empty() && out.len() < MAX_CLAUSES {
                let words = match language {
                    Language::English => words_of(text),
                    _ => words_of(&with_joined_groups(text)),
                };
                let (negated, modal) = (classes.has(WordClass::Negation), classes.has_any(MODAL));
                out.push(Clause { sentence: sentence.trim(), words, classes, negated, modal, first });
            }
        }
    }
    out
}

/// For each clause of a sentence that begins at `start`, the position where it ends and where the next one begins, in
/// order.
fn clause_ends(plain: &str, start: usize, words: &[ClassifiedWord]) -> Vec<(usize, usize)> {
    let marks = CLAUSE_MARK.find_iter(plain).map(|mark| (start + mark.start(), start + mark.end()));
    let is_between_spaces = |word: &&ClassifiedWord| {
        let (from, to) = (word.at.start - start, word.at.end - start);
        let blank = |c: Option<char>| c.is_some_and(char::is_whitespace);
        blank(plain.get(..from).and_then(|before| before.chars().next_back()))
            && blank(plain.get(to..).and_then(|after| after.chars().next()))
    };
    let words = words.iter().filter(|word| word.classes.has_any(CLAUSE_BEGINNING)).filter(is_between_spaces);
    let end = start + plain.len();
    let words = words.map(|word| (word.at.start - 1, word.at.end + 1));
    let mut out: Vec<(usize, usize)> = marks.chain(words).chain([(end, end)]).collect();
    out.sort_unstable();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clauses(answer: &str) -> Vec<Clause<'_>> {
        let memo = Memo::new();
        super::clauses(answer, &Prose::cached(answer, &memo), Language::English, &memo)
    }

    #[test]
    fn clauses_have_polarity_and_mood() {
        let parts = clauses(
            "It is not refundable, but you may change it. No problem: the lamp is in stock and costs 9.",
        );
        let actual: Vec<_> = parts.iter().map(|c| (c.words.trim(), c.negated, c.modal)).collect();
        let expected = [
            ("it is not refundable", true, false),
            ("but you may change it", false, true),
            ("no problem", true, false),
            ("the lamp is in stock", false, false),
            ("costs 9", false, false),
        ];
        assert!(clauses("It is due on May 12.").iter().all(|clause| !clause.modal));
        assert!(clauses("It is due on 12 May.").iter().all(|clause| !clause.modal));
        assert_eq!(actual, expected);
    }

    #[test]
    fn clauses_of_other_languages() {
        let shown_clauses = |language: Language, answer: &'static str| {
            let memo = Memo::new();
            let clauses = super::clauses(answer, &Prose::cached(answer, &memo), language, &memo);
            clauses
                .iter()
                .map(|c| format!("{} {} {}", c.words.trim(), c.negated, c.modal))
                .collect::<Vec<_>>()
        };
        for (language, answer, expected) in [
            (
                Language::German,
                "W-1 ist nicht offen, aber W-2 kostet 9,50 € und darf storniert werden. Wenn W-3 fehlt, ist es zu.",
                [
                    "w-1 ist nicht offen true false",
                    "aber w-2 kostet 9,50 € false false",
                    "darf storniert werden false true",
                ],
            ),
            (
                Language::French,
                "W-1 n’est pas ouverte, mais W-2 coûte 1 250 euros et W-3 est peut-être prête. Si W-4 manque, dites-le.",
                [
                    "w-1 n'est pas ouverte true false",
                    "mais w-2 coûte 1'250 euros false false",
                    "w-3 est peut-être prête false true",
                ],
            ),
            (
                Language::Spanish,
                "W-1 no está abierta, pero W-2 cuesta 9 euros y W-3 podría llegar. ¿Falta W-4?",
                [
                    "w-1 no está abierta true false",
                    "pero w-2 cuesta 9 euros false false",
                    "w-3 podría llegar false true",
                ],
            ),
            (
                Language::Portuguese,
                "W-1 não está aberta, mas W-2 custa 9 euros e W-3 pode chegar. Se a W-4 faltar, avise.",
                [
                    "w-1 não está aberta true false",
                    "mas w-2 custa 9 euros false false",
                    "w-3 pode chegar false true",
                ],
            ),
            (
                Language::Italian,
                "W-1 non è aperta, ma W-2 costa 9 euro e W-3 può arrivare. Se manca W-4, lo dica.",
                [
                    "w-1 non è aperta true false",
                    "ma w-2 costa 9 euro false false",
                    "w-3 può arrivare false true",
                ],
            ),
        ] {
            assert_eq!(shown_clauses(language, answer), expected);
        }
        assert!(shown_clauses(Language::Chinese, "W-1 没有打开，W-2 要九元。").is_empty());
    }

    #[test]
    fn what_is_not_stated_has_no_clauses() {
        for text in [
            "Is the lamp in stock?",
            "If it is delivered, tell me.",
            "> the order was shipped",
            "```\nstatus is shipped\n```",
            "For example, order 12 is closed.",
        ] {
            assert!(clauses(text).is_empty(), "{text}: {:?}", clauses(text));
        }
        for text in [
            "The body is {\"status\": \"shipped\"} then.",
            "You can write \"The order was shipped on Monday\".",
        ] {
            assert!(clauses(text).iter().all(|c| !c.has("shipped")), "{text}");
        }
    }

    #[test]
    fn words_are_compared_whole() {
        let text = words_of("It’s shipped (T-5519), 9.50 €.");
        assert_eq!(text, " it's shipped t-5519 9.50 € ");
        assert!(contains_words(&text, "t-5519") && !contains_words(&text, "ship"));
    }

    #[test]
    fn words_are_those_between_white_space_without_signs() {
        let words = |text: &str| {
            let is_word_part = |c: char| c.is_alphanumeric() || matches!(c, '$' | '€' | '£' | '¥' | '%');
            let plain = text.replace('’', "'");
            let words =
                plain.split_whitespace().map(|word| word.trim_matches(|c| !is_word_part(c)).to_lowercase());
            words.filter(|word| !word.is_empty()).fold(" ".to_owned(), |out, word| out + &word + " ")
        };
        for text in [
            "",
            "-- ,",
            "The lamp costs 9",
            "(The  Lamp) costs 9.",
            "Über ab",
            "ab über ",
            "…ab cd",
            "$5 is 5%!",
            "a\tb\u{b}c\u{a0}d",
            "It’s a well-known W-1.",
        ] {
            assert_eq!(words_of(text), words(text), "{text}");
        }
    }

    #[test]
    fn any_is_contained_if_one_is() {
        let any = ["of them", "a", "first", ""];
        for text in
            [" one of them is ", " of theme ", " a ", " an ", "first", " the first", "", " ", " af of "]
        {
            assert_eq!(
                contains_any(text, &any),
                any.iter().any(|words| contains_words(text, words)),
                "{text}"
            );
        }
    }
}
