//! Words of all languages by what they mean: changes of amounts, totals, refunds, both ends of a journey.
//!
//! In: a text in any language. Out: where words of a meaning are. The words are unambiguous enough to be read without
//! knowing the language; those that are not are closed classes of one language ([`super::language`]).

use std::ops::Range;

use aho_corasick::AhoCorasick;
use foldhash::HashMap;

use super::currency;
use super::excerpt::lowercase;
use super::work_budget::BYTES_PER_STEP;
use verdict_otlp::work;

const VOCABULARY: &str = include_str!("language/data/vocabulary.txt");

verdict_otlp::labelled_enum! {
    /// A meaning of words of all languages.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum WordMeaning {
        /// An amount becomes larger.
        Rise = "rise",
        Fall = "fall",
        /// A share of an amount, or what is taken off it.
        Ratio = "ratio",
        /// Behind a share, before what it is a share of.
        Of = "of",
        Total = "total",
        /// The amount of something, rather than a price or a fee.
        Amount = "amount",
        Refund = "refund",
        /// Nouns and keys of both ends of a journey.
        Departure = "departure",
        Arrival = "arrival",
        /// Verbs of them.
        Departs = "departs",
        Arrives = "arrives",
        /// The reader or the writer, and what asks the reader for something.
        Addressee = "addressee",
        /// Verbs between a thing and what it is.
        Copula = "copula",
        /// A question for a number of things.
        HowMany = "how_many",
        /// A statement that something is a part, or a question for a part.
        Part = "part",
        /// A key of one of several states or versions of a thing, which follow each other.
        Succession = "succession",
        /// A key of a page of a list.
        Page = "page",
        /// A key of the unit of other values.
        Unit = "unit",
        /// The word for a language, or the name of one.
        Language = "language",
        /// The word for a language.
        TheLanguage = "the_language",
        /// The user, or a word for "the same as the user's".
        UserReference = "of_user",
        /// To answer or to write.
        Reply = "reply",
        /// A time limit was exceeded.
        TimedOut = "timed_out",
        /// The word for an error, which begins its report or is its key.
        Error = "error",
        /// The hundredth part of a unit of money.
        Hundredth = "hundredth",
        /// Ten, hundred and thousand.
        Tens = "tens",
    }
}

struct VocabularyEntry {
    meaning: WordMeaning,
    word: &'static str,
    /// Letters may follow.
    open: bool,
    /// The word is between signs or spaces.
    spaced: bool,
}

struct VocabularyTable {
    entries: Vec<VocabularyEntry>,
    automaton: AhoCorasick,
    /// By spelling, its entry: that of "é" in "Écrivez".
    entry: Vec<usize>,
    /// By word, its meanings; without those behind which letters may follow.
    exact: HashMap<&'static str, Vec<WordMeaning>>,
    /// By meaning, the beginnings of words behind which letters may follow.
    open: Vec<Vec<&'static str>>,
}

checked_static!(WORDS: VocabularyTable = words());

fn words() -> Result<VocabularyTable, String> {
    let mut entries = Vec::new();
    for line in VOCABULARY.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.splitn(3, ' ');
        let (name, language) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let meaning = WordMeaning::ALL.into_iter().find(|meaning| meaning.as_str() == name);
        let meaning = meaning.ok_or_else(|| format!("no meaning {name:?}"))?;
        for word in parts.next().unwrap_or_default().split('|') {
            let spaced = !matches!(language, "zh" | "ja") || word.is_ascii();
            let (word, open) = word.strip_suffix('*').map_or((word, false), |word| (word, true));
            entries.push(VocabularyEntry { meaning, word, open, spaced });
        }
    }
    let all = entries.iter().enumerate();
    let spellings =
        all.flat_map(|(nth, entry)| spellings(entry.word).into_iter().map(move |word| (nth, word)));
    let (entry, spellings): (Vec<usize>, Vec<String>) = spellings.unzip();
    let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(spellings);
    let mut exact: HashMap<&'static str, Vec<WordMeaning>> = HashMap::default();
    for entry in entries.iter().filter(|entry| !entry.open) {
        exact.entry(entry.word).or_default().push(entry.meaning);
    }
    let open = WordMeaning::ALL.iter().map(|meaning| {
        let open_entries = entries.iter().filter(|entry| entry.open && entry.meaning == *meaning);
        open_entries.map(|entry| entry.word).collect()
    });
    let open = open.collect();
    Ok(VocabularyTable { entries, automaton: automaton.map_err(|e| e.to_string())?, entry, exact, open })
}

/// The words of a meaning in lower case.
pub(crate) fn words_of(meaning: WordMeaning) -> impl Iterator<Item = &'static str> {
    let entries = WORDS.entries.iter().filter(move |entry| entry.meaning == meaning);
    entries.map(|entry| entry.word)
}

/// The spellings of the words of a meaning, and whether letters may stand before and behind them.
pub(crate) fn spellings_of(meaning: WordMeaning) -> impl Iterator<Item = (String, bool, bool)> {
    let entries = WORDS.entries.iter().filter(move |entry| entry.meaning == meaning);
    entries.flat_map(|entry| {
        let (before, behind) = (!entry.spaced, !entry.spaced || entry.open);
        spellings(entry.word).into_iter().map(move |word| (word, before, behind))
    })
}

/// The spellings of a word that differ in more than the case of ASCII letters.
fn spellings(word: &str) -> Vec<String> {
    let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
    let mut out = vec![word.to_owned(), format!("{}{rest}", first.to_uppercase()), word.to_uppercase()];
    out.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
    let curly: Vec<String> =
        out.iter().filter(|word| word.contains('\'')).map(|word| word.replace('\'', "\u{2019}")).collect();
    out.extend(curly);
    out
}

/// A word of a meaning, and its bytes in the text.
pub(crate) type Occurrence = (WordMeaning, Range<usize>);

/// The words of these meanings in a text, in the order of their ends.
pub(crate) fn find(text: &str, meanings: &[WordMeaning]) -> Vec<Occurrence> {
    work::count(1 + text.len() / BYTES_PER_STEP);
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let found = WORDS.automaton.find_overlapping_iter(text).filter_map(|found| {
        let entry = WORDS.entries.get(*WORDS.entry.get(found.pattern().as_usize())?);
        let entry = entry.filter(|entry| meanings.contains(&entry.meaning))?;
        let before = text.get(..found.start()).and_then(|text| text.chars().next_back());
        let after = text.get(found.end()..).and_then(|text| text.chars().next());
        let is_whole = !is_letter(before) && (entry.open || !is_letter(after));
        (!entry.spaced || is_whole).then(|| (entry.meaning, found.range()))
    });
    found.collect()
}

/// Whether a text has a word of the meaning.
pub(crate) fn has(text: &str, meaning: WordMeaning) -> bool {
    !find(text, &[meaning]).is_empty()
}

/// Whether a text in lower case is a word of the meaning.
pub(crate) fn has_meaning(word: &str, meaning: WordMeaning) -> bool {
    let mut open = WORDS.open.get(meaning as usize).into_iter().flatten();
    let first = |text: &str| text.as_bytes().first().copied();
    open.any(|begin| first(begin) == first(word) && word.starts_with(begin))
        || WORDS.exact.get(word).is_some_and(|meanings| meanings.contains(&meaning))
}

/// Whether a text has no words but those of these meanings and of currencies.
pub(crate) fn has_only(text: &str, meanings: &[WordMeaning]) -> bool {
    let mut words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).map(lowercase);
    words.all(|word| {
        currency::code_for_word(&word).is_some()
            || meanings.iter().any(|meaning| has_meaning(&word, *meaning))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_words_and_links_have_meanings() {
        assert!(
            has_meaning("reembolso", WordMeaning::Refund)
                && has_meaning("uom", WordMeaning::Unit)
                && !has_meaning("units sold", WordMeaning::Unit)
        );
        let link = |text: &str| has_only(text, &[WordMeaning::Of, WordMeaning::Copula]);
        assert!(link(" of €") && link(" è di ") && link("为") && link(": ") && !link(" with tax is "));
    }
}
