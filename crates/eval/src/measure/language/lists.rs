//! The lists of one language, compiled from its data file.
//!
//! In: a YAML file. Out: one [`PatternList`] for each kind of statement, and the [`Claims`]. A pattern is a regular
//! expression over the words of a sentence with these additions: a space separates words, `{name}` is a class of
//! words of the file, `{gap}` matches up to eight words and `{near}` up to three without a comma or colon between
//! them, `~` matches any further letters of a word, and `<form>` is a verb of any action in the form of this name
//! (a key of the section `actions`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use verdict_otlp::work;

use super::abbreviation::{Abbreviations, AbbreviationsFile};
use super::claim::{Action, Claims, ClaimsFile};
use super::compiler::{Pattern, PatternCompiler, clause, is_hypothetical};
use super::grammar::{Grammar, GrammarFile};
use super::request::{RequestWords, RequestsFile};
use super::sentence::{Contrast, Sentence, SentenceSigns};
use super::word_class::{ClassesFile, WordClassTable};

/// The data file of a language.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LanguageFile {
    contrast: ContrastFile,
    /// Absent in languages without spaces.
    #[serde(default)]
    abbreviations: AbbreviationsFile,
    /// Classes of words.
    words: BTreeMap<String, String>,
    hypothetical: HypotheticalFile,
    refusal: ListFile,
    inability: ListFile,
    nothing: ListFile,
    stopped: ListFile,
    padding: ListFile,
    hedge: ListFile,
    invention: InventionFile,
    error: ListFile,
    agreement: ListFile,
    withdrawal: ListFile,
    consent: ListFile,
    appeal: ListFile,
    question: ListFile,
    writing: ListFile,
    number: ListFile,
    source_demand: ListFile,
    memory: ListFile,
    announcement: ListFile,
    estimate: ListFile,
    claims: ClaimsFile,
    /// Forms of the verbs of each action.
    actions: BTreeMap<Action, BTreeMap<String, String>>,
    /// Words of instructions; absent in languages without spaces.
    #[serde(default)]
    requests: Option<RequestsFile>,
    /// Present only in the file of English.
    #[serde(default)]
    grammar: GrammarFile,
    classes: ClassesFile,
}

/// Words that begin a new statement: "but".
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContrastFile {
    any: Vec<String>,
    /// Expressions with such a word that do not begin a statement: "nothing but".
    #[serde(default)]
    unless: Vec<String>,
}

/// Beginnings of a condition or a time in the future: the words after it, up to a comma, are not stated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HypotheticalFile {
    /// Beginnings at any position of the clause before the statement.
    any: Vec<String>,
    /// Beginnings only as the first word of the clause: verbs of inverted conditions ("should it fail").
    #[serde(default)]
    first: Vec<String>,
}

/// Patterns of statements, and patterns that exclude a match if its clause matches them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFile {
    /// Patterns only at the beginning of a sentence.
    #[serde(default)]
    first: Vec<String>,
    any: Vec<String>,
    #[serde(default)]
    unless: Vec<String>,
}

/// Patterns of admitted inventions, and patterns of admissions that only assume something.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InventionFile {
    any: Vec<String>,
    assumed: Vec<String>,
    #[serde(default)]
    unless: Vec<String>,
}

/// The compiled lists of a language.
#[derive(Debug)]
pub(super) struct Lists {
    pub signs: SentenceSigns,
    pub refusal: PatternList,
    pub inability: PatternList,
    /// Words in place of an unknown answer.
    pub nothing: PatternList,
    pub stopped: PatternList,
    pub padding: PatternList,
    pub hedge: PatternList,
    pub invention: PatternList,
    /// An assumption in a sentence of `invention`.
    pub assumed: Pattern,
    pub error: PatternList,
    /// The beginning of a reply that agrees. `unless` are words that add something or make an exception, at any
    /// position.
    pub agreement: PatternList,
    /// A reply that declines, withdraws or postpones.
    pub withdrawal: PatternList,
    /// Statements that the user confirms something or has to confirm it. `unless` are other confirmations.
    pub consent: PatternList,
    /// Beginnings of clauses that ask the reader not to do something, or state that nothing has to be done. `unless`
    /// are words at any position that make the clause a statement: "no problem was found".
    pub appeal: PatternList,
    pub question: PatternList,
    /// A request to write or to transform a text, code or a plan. `unless` are words at any position that make the
    /// sentence a question about a text.
    pub writing: PatternList,
    /// A question for a count, an amount or a year.
    pub number: PatternList,
    /// A demand to take an answer from a source, a search or a tool. `unless` are words at any position.
    pub source_demand: PatternList,
    /// Statements that an answer comes from the memory of its writer. `unless` are refusals to answer from memory.
    pub memory: PatternList,
    /// Statements that the speaker is about to call a tool or to ask somebody.
    pub announcement: PatternList,
    /// A request for an estimate, or the permission to estimate. `unless` are words at any position.
    pub estimate: PatternList,
    pub claims: Claims,
    pub requests: Option<RequestWords>,
    pub grammar: Grammar,
    pub classes: WordClassTable,
}

/// The patterns of one kind of statement.
#[derive(Debug)]
pub(super) struct PatternList {
    any: Pattern,
    unless: Option<Pattern>,
    hypothetical: Arc<Pattern>,
}

impl Lists {
    /// Compiles a data file.
    ///
    /// # Errors
    /// The file is not valid YAML, or a pattern names an unknown class of words.
    pub(super) fn parse(yaml: &str, has_spaces: bool) -> Result<Lists, String> {
        let file: LanguageFile = serde_saphyr::from_str(yaml).map_err(|e| e.to_string())?;
        let compiler = PatternCompiler { words: &file.words, has_spaces };
        let classes = WordClassTable::new(&file.classes, has_spaces)?;
        let hypothetical = Arc::new(compiler.any_or_first(&file.hypothetical.any, &file.hypothetical.first)?);
        let list = |source: &ListFile| {
            let unless = (!source.unless.is_empty()).then(|| compiler.any(&source.unless)).transpose()?;
            Ok::<_, String>(PatternList {
                any: match source.first.as_slice() {
                    [] => compiler.any(&source.any)?,
                    first => compiler.any_or_first(&source.any, first)?,
                },
                unless,
                hypothetical: hypothetical.clone(),
            })
        };
        Ok(Lists {
            refusal: list(&file.refusal)?,
            inability: list(&file.inability)?,
            nothing: list(&file.nothing)?,
            stopped: list(&file.stopped)?,
            padding: list(&file.padding)?,
            hedge: list(&file.hedge)?,
            assumed: compiler.any(&file.invention.assumed)?,
            invention: list(&ListFile {
                first: Vec::new(),
                any: file.invention.any,
                unless: file.invention.unless,
            })?,
            error: list(&file.error)?,
            agreement: list(&file.agreement)?,
            withdrawal: list(&file.withdrawal)?,
            consent: list(&file.consent)?,
            appeal: list(&file.appeal)?,
            question: list(&file.question)?,
            writing: list(&file.writing)?,
            number: list(&file.number)?,
            source_demand: list(&file.source_demand)?,
            memory: list(&file.memory)?,
            announcement: list(&file.announcement)?,
            estimate: list(&file.estimate)?,
            claims: Claims::new(&file.claims, &file.actions, &compiler, hypothetical.clone())?,
            requests: file.requests.map(|requests| RequestWords::new(&requests, &classes)),
            grammar: Grammar::new(&file.grammar),
            signs: SentenceSigns {
                contrast: Contrast::new(file.contrast.any, file.contrast.unless),
                abbreviations: Abbreviations::new(file.abbreviations, &classes),
            },
            classes,
        })
    }
}

impl PatternList {
    /// Whether the first match is the whole sentence.
    pub(super) fn is_whole(&self, sentence: &Sentence<'_>) -> bool {
        self.any
            .find(sentence.words())
            .and_then(|range| sentence.words().get(range))
            .is_some_and(|matched| matched.trim() == sentence.words().trim())
    }

    /// Whether the sentence begins with a match.
    pub(super) fn begins(&self, sentence: &Sentence<'_>) -> bool {
        let before = |start| sentence.words().get(..start).unwrap_or_default();
        self.any.find(sentence.words()).is_some_and(|range| before(range.start).trim().is_empty())
    }

    /// Whether any clause of the sentence matches `unless`.
    pub(super) fn is_limited(&self, sentence: &Sentence<'_>) -> bool {
        self.unless.as_ref().is_some_and(|unless| unless.is_match(sentence.words()))
    }

    /// Whether the sentence or question has a match, and no clause of it matches `unless`.
    pub(super) fn asks(&self, sentence: &Sentence<'_>) -> bool {
        self.any.is_match(sentence.words()) && !self.is_limited(sentence)
    }

    /// The words of the first match of a sentence or question, and the words after them; `None` if any clause matches
    /// `unless`.
    pub(super) fn first(&self, sentence: &Sentence<'_>) -> Option<[String; 2]> {
        let words = sentence.words();
        let matched = self.any.find(words).filter(|_| !self.is_limited(sentence))?;
        let part = |part: Option<&str>| part.map(|words| words.trim().to_owned());
        Some([part(words.get(matched.clone()))?, part(words.get(matched.end..))?])
    }

    /// The union of the patterns of the list.
    pub(super) fn any(&self) -> &Pattern {
        &self.any
    }

    /// Whether the sentence has a match that is neither in a condition nor excluded by `unless`.
    pub(super) fn finds(&self, sentence: &Sentence<'_>) -> bool {
        let words = sentence.words();
        work::count(words.len());
        self.any.find_iter(words).any(|range| {
            let is_excluded =
                || self.unless.as_ref().is_some_and(|u| u.is_match(clause(words, range.start, range.end)));
            !is_hypothetical(&self.hypothetical, words, range.start) && !is_excluded()
        })
    }

    /// Whether all matches of the sentence are in a condition; `None` without a match.
    #[cfg(test)]
    pub(super) fn is_conditional(&self, sentence: &Sentence<'_>) -> Option<bool> {
        let words = sentence.words();
        let mut conditional = self
            .any
            .find_iter(words)
            .map(|at| is_hypothetical(&self.hypothetical, words, at.start))
            .peekable();
        conditional.peek()?;
        Some(conditional.all(|is_condition| is_condition))
    }
}
