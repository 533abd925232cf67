//! Claims of actions and of work: "I have cancelled your booking", "I verified the figure".
//!
//! In: sentences. Out: [`Claim`]s, each with the class of its action, which no language shares words with,
//! its verb, and whether the action is done, promised or offered.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::compiler::{Compiler, Pattern, clause, is_hypothetical};
use super::sentence::Sentence;

verdict_otlp::labelled_enum! {
    /// A class of actions. The last four are work on information, which changes nothing.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum Action {
        Cancel = "cancel",
        Refund = "refund",
        Send = "send",
        Book = "book",
        Order = "order",
        Update = "update",
        Delete = "delete",
        Create = "create",
        Add = "add",
        Pay = "pay",
        Transfer = "transfer",
        Schedule = "schedule",
        Notify = "notify",
        Submit = "submit",
        Return = "return",
        Save = "save",
        Execute = "execute",
        Verify = "verify",
        Search = "search",
        Compute = "compute",
        Read = "read",
    }
}

impl Action {
    /// Whether the action is work on information: a claim of work, not of an effect.
    pub(crate) fn is_work(self) -> bool {
        self >= Action::Verify
    }
}

/// How an action is stated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tense {
    /// "I have cancelled it."
    Done,
    /// "It has been cancelled." Who did it is not said.
    DonePassive,
    /// "I will cancel it."
    Promised,
    /// "I can cancel it." "Shall I cancel it?"
    Offered,
}

impl Tense {
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Tense::Done | Tense::DonePassive)
    }
}

/// An action that a sentence states.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim<'t> {
    pub action: Action,
    pub tense: Tense,
    /// The verb, in lower case.
    pub verb: String,
    /// The sentence, verbatim.
    pub sentence: &'t str,
    /// For work: what it was done with, "calculator" in "verified with the calculator".
    pub instrument: Option<String>,
    /// For work: whether the sentence names a source outside the conversation, for example a page.
    pub names_source: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimsFile {
    done: Vec<String>,
    passive: Vec<String>,
    promised: Vec<String>,
    offered: Vec<String>,
    /// In the clause of a done action: negation, attempts.
    unless: Vec<String>,
    /// In the clause of a passive: other actors.
    unless_passive: Vec<String>,
    /// What work was done with, as the group `noun`.
    instrument: Vec<String>,
    /// Sources outside the conversation.
    source: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Claims {
    patterns: Vec<ClaimPattern>,
    hypothetical: Arc<Pattern>,
    unless: Pattern,
    unless_passive: Pattern,
    /// The patterns with any words in place of their verb, and the verbs anywhere: both are small, and most
    /// sentences match one of them at most. A union of the patterns has every verb many times, and becomes too
    /// large for an automaton.
    frames: Pattern,
    any_verb: Pattern,
    instrument: Pattern,
    source: Pattern,
    /// For each form of verbs, the pattern of each action.
    verbs: BTreeMap<String, Vec<(Action, Pattern)>>,
}

#[derive(Debug)]
struct ClaimPattern {
    tense: Tense,
    form: String,
    pattern: Pattern,
}

type Forms = BTreeMap<Action, BTreeMap<String, String>>;

impl Claims {
    pub(super) fn new(
        file: &ClaimsFile,
        actions: &Forms,
        compiler: &Compiler<'_>,
        hypothetical: Arc<Pattern>,
    ) -> Result<Claims, String> {
        let mut verbs: BTreeMap<String, Vec<(Action, Pattern)>> = BTreeMap::new();
        let mut any: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (action, forms) in actions {
            for (form, source) in forms {
                let source = compiler.expand(source, 0)?;
                let whole = Pattern::new(&format!("^(?:{source})$"));
                verbs.entry(form.clone()).or_default().push((*action, whole));
                any.entry(form).or_default().push(source);
            }
        }
        let any_verb: Vec<String> = any.values().flatten().cloned().collect();
        let (mut patterns, mut frames) = (Vec::new(), Vec::new());
        let kinds = [
            (Tense::Done, &file.done),
            (Tense::DonePassive, &file.passive),
            (Tense::Promised, &file.promised),
            (Tense::Offered, &file.offered),
        ];
        for (tense, sources) in kinds {
            for source in sources {
                let (before, verb) =
                    source.split_once('<').ok_or_else(|| format!("no verb in {source:?}"))?;
                let (form, after) = verb.split_once('>').ok_or_else(|| format!("no verb in {source:?}"))?;
                let any = any.get(form).ok_or_else(|| format!("no verbs in the form {form:?}"))?.join("|");
                let (before, after) = (compiler.expand(before, 0)?, compiler.expand(after, 0)?);
                frames.push(compiler.within_words(&format!("(?:{before})(?:.+)(?:{after})")));
                let source = compiler.within_words(&format!("(?:{before})(?P<verb>{any})(?:{after})"));
                patterns.push(ClaimPattern { tense, form: form.to_owned(), pattern: Pattern::new(&source) });
            }
        }
        Ok(Claims {
            frames: Pattern::new(&frames.join("|")),
            any_verb: Pattern::new(&any_verb.join("|")),
            hypothetical,
            unless: compiler.any(&file.unless)?,
            unless_passive: compiler.any(&file.unless_passive)?,
            instrument: compiler.any(&file.instrument)?,
            source: compiler.any(&file.source)?,
            patterns,
            verbs,
        })
    }

    /// Adds the claims of `sentence` to `out`, one for each action and tense.
    pub(super) fn find<'t>(&self, sentence: &Sentence<'t>, out: &mut Vec<Claim<'t>>) {
        let first = out.len();
        let words = &sentence.words;
        // Most sentences have no claim.
        if !self.any_verb.get().is_match(words) || !self.frames.get().is_match(words) {
            return;
        }
        for pattern in &self.patterns {
            for found in pattern.pattern.get().captures_iter(words) {
                let (Some(whole), Some(verb)) = (found.get(0), found.name("verb")) else { continue };
                let Some(action) = self.action(&pattern.form, verb.as_str()) else { continue };
                if pattern.tense.is_done()
                    && (sentence.is_question
                        || is_hypothetical(&self.hypothetical, words, whole.start())
                        || self.is_taken_back(pattern.tense, clause(words, whole.start(), whole.end())))
                {
                    continue;
                }
                let tense = if sentence.is_question { Tense::Offered } else { pattern.tense };
                let known = out.get(first..).unwrap_or_default();
                if !known.iter().any(|claim| claim.action == action && claim.tense == tense) {
                    let verb = verb.as_str().to_owned();
                    let is_work = action.is_work() && tense.is_done();
                    let instrument = is_work.then(|| self.instrument.get().captures(words)).flatten();
                    let instrument =
                        instrument.and_then(|found| Some(found.name("noun")?.as_str().to_owned()));
                    let names_source = is_work && self.source.get().is_match(words);
                    out.push(Claim {
                        action,
                        tense,
                        verb,
                        sentence: sentence.text,
                        instrument,
                        names_source,
                    });
                }
            }
        }
    }

    /// Whether its clause denies a done action, or gives it to another actor.
    fn is_taken_back(&self, tense: Tense, clause: &str) -> bool {
        self.unless.get().is_match(clause)
            || tense == Tense::DonePassive && self.unless_passive.get().is_match(clause)
    }

    fn action(&self, form: &str, verb: &str) -> Option<Action> {
        self.verbs
            .get(form)?
            .iter()
            .find(|(_, pattern)| pattern.get().is_match(verb))
            .map(|(action, _)| *action)
    }
}
