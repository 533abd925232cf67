//! Words of all languages by their meaning: changes of amounts, totals, refunds, both ends of a journey.
//!
//! In: a text in any language. Out: the positions of words with a meaning. The words are unambiguous across languages;
//! ambiguous words are in the closed classes of one language ([`super::language`]).

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
        /// An amount becomes smaller.
        Fall = "fall",
        /// A share of an amount, or a discount.
        Ratio = "ratio",
        /// The preposition between a share and the amount: "of".
        Of = "of",
        Total = "total",
        /// The amount of something, rather than a price or a fee.
        Amount = "amount",
        Refund = "refund",
        /// Nouns and keys for the start of a journey.
        Departure = "departure",
        /// Nouns and keys for the end of a journey.
        Arrival = "arrival",
        /// Verbs for the start of a journey.
        Departs = "departs",
        /// Verbs for the end of a journey.
        Arrives = "arrives",
        /// Words for the reader or the writer, and words of requests to the reader.
        Addressee = "addressee",
        /// Verbs between a thing and its description: "is".
        Copula = "copula",
        /// A question for a number or an amount.
        HowMany = "how_many",
        /// A statement that something is a part, or a question for a part.
        Part = "part",
        /// A key for one of several successive states or versions of a thing.
        Succession = "succession",
        /// A key for a page of a list.
        Page = "page",
        /// A key for the unit of other values.
        Unit = "unit",
        /// The word "language", or the name of a language.
        Language = "language",
        /// The word "language".
        TheLanguage = "the_language",
        /// The user, or a word for "the same as the user's".
        UserReference = "of_user",
        /// To answer or to write.
        Reply = "reply",
        /// A statement that a time limit was exceeded.
        TimedOut = "timed_out",
        /// The word "error", which begins the report of an error or is its key.
        Error = "error",
        /// The hundredth part of a currency unit: "cent".
        Hundredth = "hundredth",
        /// Ten, hundred and thousand.
        Tens = "tens",
        /// A time of day in words: "noon", "half past".
        TimeInWords = "time_in_words",
        /// A step of a plan.
        Step = "step",
        /// "First", "then", "finally": the beginning of the next step.
        StepOrder = "step_order",
        /// The result of a step: "result", "list".
        StepResult = "step_result",
        Previous = "previous",
        /// A word by which a step need not be carried out.
        Optional = "optional",
        /// The highest or largest value, in texts and keys.
        Highest = "highest",
        /// The lowest or smallest value, in texts and keys.
        Lowest = "lowest",
        /// Something did not succeed, or only in part.
        Failure = "failure",
    }
}

/// A word of the data file.
struct VocabularyEntry {
    meaning: WordMeaning,
    word: &'static str,
    /// Whether further letters of the same word may follow.
    has_open_end: bool,
    /// Whether the word must not begin or end inside another word.
    needs_word_borders: bool,
}

/// The words of the data file, compiled.
struct VocabularyTable {
    entries: Vec<VocabularyEntry>,
    automaton: AhoCorasick,
    /// By pattern of the automaton, the index of its entry. An entry may have several spellings.
    entry_of_spelling: Vec<usize>,
    /// By word, its meanings, for entries after which no letters may follow.
    exact: HashMap<&'static str, Vec<WordMeaning>>,
    /// By meaning, the words after which letters may follow.
    beginnings: Vec<Vec<&'static str>>,
}

checked_static!(WORDS: VocabularyTable = words());

/// Reads and compiles the data file.
fn words() -> Result<VocabularyTable, String> {
    let mut entries = Vec::new();
    for line in VOCABULARY.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.splitn(3, ' ');
        let (name, language) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let meaning = WordMeaning::ALL.into_iter().find(|meaning| meaning.as_str() == name);
        let meaning = meaning.ok_or_else(|| format!("no meaning {name:?}"))?;
        for word in parts.next().unwrap_or_default().split('|') {
            let needs_word_borders = !matches!(language, "zh" | "ja") || word.is_ascii();
            let (word, has_open_end) = word.strip_suffix('*').map_or((word, false), |word| (word, true));
            entries.push(VocabularyEntry { meaning, word, has_open_end, needs_word_borders });
        }
    }
    let all = entries.iter().enumerate();
    let spellings =
        all.flat_map(|(nth, entry)| spellings(entry.word).into_iter().map(move |word| (nth, word)));
    let (entry_of_spelling, spellings): (Vec<usize>, Vec<String>) = spellings.unzip();
    let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(spellings);
    let mut exact: HashMap<&'static str, Vec<WordMeaning>> = HashMap::default();
    for entry in entries.iter().filter(|entry| !entry.has_open_end) {
        exact.entry(entry.word).or_default().push(entry.meaning);
    }
    let beginnings = WordMeaning::ALL.iter().map(|meaning| {
        let open_entries = entries.iter().filter(|entry| entry.has_open_end && entry.meaning == *meaning);
        open_entries.map(|entry| entry.word).collect()
    });
    let (beginnings, automaton) = (beginnings.collect(), automaton.map_err(|e| e.to_string())?);
    Ok(VocabularyTable { entries, automaton, entry_of_spelling, exact, beginnings })
}

/// The words with a meaning, in lower case.
pub(crate) fn words_of(meaning: WordMeaning) -> impl Iterator<Item = &'static str> {
    let entries = WORDS.entries.iter().filter(move |entry| entry.meaning == meaning);
    entries.map(|entry| entry.word)
}

/// The spellings of the words with a meaning, each with whether letters may precede and follow it.
pub(crate) fn spellings_of(meaning: WordMeaning) -> impl Iterator<Item = (String, bool, bool)> {
    let entries = WORDS.entries.iter().filter(move |entry| entry.meaning == meaning);
    entries.flat_map(|entry| {
        let may_follow_letters = !entry.needs_word_borders;
        let may_precede_letters = may_follow_letters || entry.has_open_end;
        spellings(entry.word).into_iter().map(move |word| (word, may_follow_letters, may_precede_letters))
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

/// The meaning of a word, and its bytes in the text.
pub(crate) type Occurrence = (WordMeaning, Range<usize>);

/// The words with these meanings in a text, in the order of their ends.
pub(crate) fn find(text: &str, meanings: &[WordMeaning]) -> Vec<Occurrence> {
    work::count(1 + text.len() / BYTES_PER_STEP);
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let occurrences = WORDS.automaton.find_overlapping_iter(text).filter_map(|found| {
        let entry = WORDS.entries.get(*WORDS.entry_of_spelling.get(found.pattern().as_usize())?);
        let entry = entry.filter(|entry| meanings.contains(&entry.meaning))?;
        let before = text.get(..found.start()).and_then(|text| text.chars().next_back());
        let after = text.get(found.end()..).and_then(|text| text.chars().next());
        let is_whole = !is_letter(before) && (entry.has_open_end || !is_letter(after));
        (!entry.needs_word_borders || is_whole).then(|| (entry.meaning, found.range()))
    });
    occurrences.collect()
}

/// Whether a text contains a word with the meaning.
pub(crate) fn has(text: &str, meaning: WordMeaning) -> bool {
    !find(text, &[meaning]).is_empty()
}

/// Whether a text in lower case is a word with the meaning.
pub(crate) fn has_meaning(word: &str, meaning: WordMeaning) -> bool {
    let mut beginnings = WORDS.beginnings.get(meaning as usize).into_iter().flatten();
    let first = |text: &str| text.as_bytes().first().copied();
    beginnings.any(|beginning| first(beginning) == first(word) && word.starts_with(beginning))
        || WORDS.exact.get(word).is_some_and(|meanings| meanings.contains(&meaning))
}

/// Whether all words of a text have one of these meanings or denote a currency.
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
    fn single_words_and_phrases_have_meanings() {
        assert!(
            has_meaning("reembolso", WordMeaning::Refund)
                && has_meaning("uom", WordMeaning::Unit)
                && !has_meaning("units sold", WordMeaning::Unit)
        );
        let is_link = |text: &str| has_only(text, &[WordMeaning::Of, WordMeaning::Copula]);
        assert!(is_link(" of €") && is_link(" è di ") && is_link("为") && is_link(": "));
        assert!(!is_link(" with tax is "));
    }
}
