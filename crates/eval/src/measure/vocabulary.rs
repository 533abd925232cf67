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
    /// What words of all languages mean.
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
        /// What asks for a number of things.
        HowMany = "how_many",
        /// What says that something is a part, or asks for one.
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
        /// The user, or what is the same as theirs.
        OfUser = "of_user",
        /// To answer or to write.
        Reply = "reply",
    }
}

struct VocabularyEntry {
    meaning: WordMeaning,
    word: &'static str,
    /// Letters may follow.
    open: bool,
    /// It stands between signs or spaces.
    spaced: bool,
}

struct VocabularyTable {
    entries: Vec<VocabularyEntry>,
    automaton: AhoCorasick,
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
        let spaced = !matches!(language, "zh" | "ja");
        for word in parts.next().unwrap_or_default().split('|') {
            let (word, open) = word.strip_suffix('*').map_or((word, false), |word| (word, true));
            entries.push(VocabularyEntry { meaning, word, open, spaced });
        }
    }
    let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(entries.iter().map(|e| e.word));
    let mut exact: HashMap<&'static str, Vec<WordMeaning>> = HashMap::default();
    for entry in entries.iter().filter(|entry| !entry.open) {
        exact.entry(entry.word).or_default().push(entry.meaning);
    }
    let open = WordMeaning::ALL.iter().map(|meaning| {
        let open_entries = entries.iter().filter(|entry| entry.open && entry.meaning == *meaning);
        open_entries.map(|entry| entry.word).collect()
    });
    let open = open.collect();
    Ok(VocabularyTable { entries, automaton: automaton.map_err(|e| e.to_string())?, exact, open })
}

/// A word of a meaning, and its bytes in the text.
pub(crate) type Occurrence = (WordMeaning, Range<usize>);

/// The words of these meanings in a text, in the order of their ends.
pub(crate) fn find(text: &str, meanings: &[WordMeaning]) -> Vec<Occurrence> {
    work::count(1 + text.len() / BYTES_PER_STEP);
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let found = WORDS.automaton.find_overlapping_iter(text).filter_map(|found| {
        let entry =
            WORDS.entries.get(found.pattern().as_usize()).filter(|e| meanings.contains(&e.meaning))?;
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
    fn words_are_found_whole_in_all_languages() {
        for (text, meaning) in [
            ("Revenue rose to 40.", WordMeaning::Rise),
            ("Der Umsatz ist gestiegen.", WordMeaning::Rise),
            ("订单增长约13%", WordMeaning::Rise),
            ("Les ventes ont baissé.", WordMeaning::Fall),
            ("Il totale è 40.", WordMeaning::Total),
            ("Gesamtpreis: 40 €", WordMeaning::Total),
            ("退款金额为40元", WordMeaning::Refund),
            ("Votre billet est remboursé.", WordMeaning::Refund),
            ("Quantos chamados?", WordMeaning::HowMany),
            ("etd", WordMeaning::Departure),
            ("einheit", WordMeaning::Unit),
        ] {
            assert!(has(text, meaning), "{text} {meaning:?}");
        }
        assert!(
            has_meaning("reembolso", WordMeaning::Refund)
                && has_meaning("uom", WordMeaning::Unit)
                && !has_meaning("units sold", WordMeaning::Unit)
        );
        let link = |text: &str| has_only(text, &[WordMeaning::Of, WordMeaning::Copula]);
        assert!(link(" of €") && link(" è di ") && link(": ") && !link(" with tax is "));
        for (text, meaning) in [
            ("It is again 40, subtotal 30.", WordMeaning::Total),
            ("The upper gate of Morelia", WordMeaning::Rise),
            ("He lives in Gesamtort", WordMeaning::Refund),
        ] {
            assert!(!has(text, meaning), "{text} {meaning:?}");
        }
    }
}
