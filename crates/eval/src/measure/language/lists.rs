//! The lists of one language, compiled from its data file.
//!
//! In: a YAML file. Out: one [`PatternList`] for each kind of statement, and the [`Claims`]. A pattern is a regular
//! expression over the words of a sentence, in which a space separates words, `{name}` is a class of words
//! of the file, `{gap}` matches up to eight words and `{near}` up to three without a comma or colon
//! between them, `~` ends a word with any letters, and `<form>` is a verb of any action in that form.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use verdict_otlp::work;

use super::abbreviation::{Abbreviations, AbbreviationsFile};
use super::claim::{Action, Claims, ClaimsFile};
use super::compiler::{Pattern, PatternCompiler, clause, is_hypothetical};
use super::request::{RequestWords, RequestsFile};
use super::sentence::{Contrast, Sentence, SentenceSigns};
use super::word_class::{ClassesFile, WordClassTable};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    contrast: ContrastFile,
    /// Languages without spaces have none.
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
    claims: ClaimsFile,
    /// Forms of the verbs of each action.
    actions: BTreeMap<Action, BTreeMap<String, String>>,
    /// Words of instructions. Languages without spaces have none.
    #[serde(default)]
    requests: Option<RequestsFile>,
    classes: ClassesFile,
}

/// Words that begin a statement of its own: "but".
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContrastFile {
    any: Vec<String>,
    /// Expressions with such a word that begin none: "nothing but".
    #[serde(default)]
    unless: Vec<String>,
}

/// Begins a condition or a time in the future: what follows it up to a comma is not stated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HypotheticalFile {
    /// At any place of the clause before the statement.
    any: Vec<String>,
    /// Only as the first word of the clause: verbs of inverted conditions ("should it fail").
    #[serde(default)]
    first: Vec<String>,
}

/// Patterns, and patterns of the clause around a match that take it back.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFile {
    any: Vec<String>,
    #[serde(default)]
    unless: Vec<String>,
}

/// Admitted inventions, and which of them only assume something.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InventionFile {
    any: Vec<String>,
    assumed: Vec<String>,
    #[serde(default)]
    unless: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Lists {
    pub signs: SentenceSigns,
    pub refusal: PatternList,
    pub inability: PatternList,
    /// Words in place of an answer that is not known.
    pub nothing: PatternList,
    pub stopped: PatternList,
    pub padding: PatternList,
    pub hedge: PatternList,
    pub invention: PatternList,
    /// An assumption in a sentence of `invention`.
    pub assumed: Pattern,
    pub error: PatternList,
    /// The reply of a user who agrees. `unless` adds something or makes an exception, at any position.
    pub agreement: PatternList,
    /// The reply of a user who declines, takes back or postpones.
    pub withdrawal: PatternList,
    /// Statements that the user confirms something, or has to. `unless` is about other confirmations.
    pub consent: PatternList,
    /// Clauses that begin so ask the reader not to do something, or say that nothing has to be done. `unless` states
    /// something after all, at any position: "no problem was found".
    pub appeal: PatternList,
    pub question: PatternList,
    pub claims: Claims,
    pub requests: Option<RequestWords>,
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
    /// # Errors
    /// The file is no valid YAML, or a pattern names an unknown class of words.
    pub(super) fn parse(yaml: &str, spaced: bool) -> Result<Lists, String> {
        let file: File = serde_saphyr::from_str(yaml).map_err(|e| e.to_string())?;
        let compiler = PatternCompiler { words: &file.words, spaced };
        let classes = WordClassTable::new(&file.classes, spaced)?;
        let hypothetical = Arc::new(compiler.any_or_first(&file.hypothetical.any, &file.hypothetical.first)?);
        let list = |list: &ListFile| {
            let unless = (!list.unless.is_empty()).then(|| compiler.any(&list.unless)).transpose()?;
            Ok::<_, String>(PatternList {
                any: compiler.any(&list.any)?,
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
            invention: list(&ListFile { any: file.invention.any, unless: file.invention.unless })?,
            error: list(&file.error)?,
            agreement: list(&file.agreement)?,
            withdrawal: list(&file.withdrawal)?,
            consent: list(&file.consent)?,
            appeal: list(&file.appeal)?,
            question: list(&file.question)?,
            claims: Claims::new(&file.claims, &file.actions, &compiler, hypothetical.clone())?,
            requests: file.requests.map(|requests| RequestWords::new(&requests, &classes)),
            signs: SentenceSigns {
                contrast: Contrast::new(file.contrast.any, file.contrast.unless),
                abbreviations: Abbreviations::new(file.abbreviations, &classes),
            },
            classes,
        })
    }
}

impl PatternList {
    /// Whether the sentence is nothing else than a match.
    pub(super) fn is_all_of(&self, sentence: &Sentence<'_>) -> bool {
        self.any
            .find(sentence.words())
            .and_then(|found| sentence.words().get(found))
            .is_some_and(|found| found.trim() == sentence.words().trim())
    }

    /// Whether the sentence begins with a match.
    pub(super) fn begins(&self, sentence: &Sentence<'_>) -> bool {
        let before = |start| sentence.words().get(..start).unwrap_or_default();
        self.any.find(sentence.words()).is_some_and(|found| before(found.start).trim().is_empty())
    }

    /// Whether the sentence has words of `unless`, in any of its clauses.
    pub(super) fn is_limited(&self, sentence: &Sentence<'_>) -> bool {
        self.unless.as_ref().is_some_and(|unless| unless.is_match(sentence.words()))
    }

    /// The pattern that a sentence of the list matches.
    pub(super) fn any(&self) -> &Pattern {
        &self.any
    }

    pub(super) fn finds(&self, sentence: &Sentence<'_>) -> bool {
        let words = sentence.words();
        work::count(words.len());
        self.any.find_iter(words).any(|found| {
            let is_taken_back =
                || self.unless.as_ref().is_some_and(|u| u.is_match(clause(words, found.start, found.end)));
            !is_hypothetical(&self.hypothetical, words, found.start) && !is_taken_back()
        })
    }

    /// Whether all that the sentence has of the list is in a condition; `None` if it has nothing of it.
    #[cfg(test)]
    pub(super) fn is_conditional(&self, sentence: &Sentence<'_>) -> Option<bool> {
        let words = sentence.words();
        let mut found = self
            .any
            .find_iter(words)
            .map(|at| is_hypothetical(&self.hypothetical, words, at.start))
            .peekable();
        found.peek()?;
        Some(found.all(|is_condition| is_condition))
    }
}
