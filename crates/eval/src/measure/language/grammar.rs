//! Words of English grammar: pronouns, auxiliaries and articles, for rules that read the order of English words.
//!
//! In: the section `grammar` of a language's data file, and a word in lower case. Out: whether the word is of a group.
//! Only English has the section; rules that need it report nothing about texts in other languages.

use std::collections::BTreeMap;

use foldhash::HashSet;

verdict_otlp::labelled_enum! {
    /// A group of words.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum GrammarGroup {
        /// The writer as a subject: "I", "we've".
        Speaker = "speaker",
        /// Auxiliaries before the past participle of a verb.
        Auxiliary = "auxiliary",
        /// Words between an auxiliary and its verb.
        Adverb = "adverb",
        /// Subjects other than the writer, and words of clauses that are about no particular thing.
        OtherActor = "other_actor",
        /// Prepositions before words that are not the object of a verb.
        Preposition = "preposition",
        /// Verbs whose past is equal to the verb.
        UnchangedPast = "unchanged_past",
        /// Past forms of verbs that send a message to somebody.
        Message = "message",
        /// Past forms of verbs for a transfer or a payment, which are also used for a change of a text or a decision.
        Editing = "editing",
        /// Articles and pronouns before a thing that exists: "the", "my".
        Definite = "definite",
        /// Words before a property that is wanted: "with", "only".
        Wanted = "wanted",
        /// Words by which a request allows several properties: "whether", "either".
        Open = "open",
    }
}

/// The groups of a data file, as words between spaces.
pub(super) type GrammarFile = BTreeMap<GrammarGroup, String>;

/// The words of each group.
#[derive(Debug, Default)]
pub(super) struct Grammar(BTreeMap<GrammarGroup, HashSet<String>>);

impl Grammar {
    pub(super) fn new(file: &GrammarFile) -> Grammar {
        let words = |words: &String| words.split_whitespace().map(str::to_owned).collect();
        Grammar(file.iter().map(|(group, all)| (*group, words(all))).collect())
    }

    pub(super) fn has(&self, group: GrammarGroup, word: &str) -> bool {
        self.0.get(&group).is_some_and(|words| words.contains(word))
    }
}
