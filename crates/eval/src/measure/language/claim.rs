//! Claims of actions and of work: "I have cancelled your booking", "I verified the figure".
//!
//! In: sentences. Out: [`ActionClaim`]s, each with its [`Action`], which is the same in all languages, its verb, and
//! whether the action is done, promised or offered.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::compiler::{Pattern, PatternCompiler, clause, is_hypothetical};
use super::sentence::Sentence;
use super::verb_finder::{VerbFinder, VerbGroups};

verdict_otlp::labelled_enum! {
    /// A class of actions. The last four are work on information, which has no effect outside of the run.
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

/// Whether an action is stated as done, promised or offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tense {
    /// "I have cancelled it."
    Done,
    /// "It has been cancelled.", without the actor.
    DonePassive,
    /// "I will cancel it."
    Promised,
    /// "I can cancel it." "Shall I cancel it?"
    Offered,
}

impl Tense {
    /// Whether the action is stated as completed.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Tense::Done | Tense::DonePassive)
    }
}

/// An action that a sentence states.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ActionClaim<'t> {
    pub action: Action,
    pub tense: Tense,
    /// The verb, in lower case.
    pub verb: String,
    /// The sentence, verbatim.
    pub sentence: &'t str,
    /// For work: its instrument, as "calculator" in "verified with the calculator".
    pub instrument: Option<String>,
    /// For work: whether the sentence names a source outside the conversation, for example a page.
    pub names_source: bool,
}

impl ActionClaim<'_> {
    /// The same claim with another sentence, for a claim that was cached without its sentence.
    pub(super) fn with_sentence<'s>(self, sentence: &'s str) -> ActionClaim<'s> {
        let ActionClaim { action, tense, verb, instrument, names_source, .. } = self;
        ActionClaim { action, tense, verb, sentence, instrument, names_source }
    }
}

/// The section `claims` of a data file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimsFile {
    done: Vec<String>,
    passive: Vec<String>,
    promised: Vec<String>,
    offered: Vec<String>,
    /// Patterns that exclude a done action if its clause matches: negation, attempts.
    unless: Vec<String>,
    /// Patterns that exclude a done action in the passive if its clause matches: other actors.
    unless_passive: Vec<String>,
    /// Patterns that exclude a promised or offered action in a statement if its clause matches: negation.
    #[serde(default)]
    unless_stated: Vec<String>,
    /// The instrument of work, as the group `noun`.
    instrument: Vec<String>,
    /// Sources outside the conversation.
    source: Vec<String>,
}

/// The compiled patterns of claims of a language.
#[derive(Debug)]
pub(super) struct Claims {
    patterns: Vec<ClaimPattern>,
    hypothetical: Arc<Pattern>,
    unless: Pattern,
    unless_passive: Pattern,
    unless_stated: Option<Pattern>,
    /// The frames of done actions in any form of verbs. Most sentences match none, and need no further search.
    done_frames: Pattern,
    prefilters: Vec<Prefilter>,
    finder: VerbFinder,
    instrument: Pattern,
    source: Pattern,
    /// For each form of verbs, the pattern of each action.
    verbs: BTreeMap<String, Vec<(Action, Pattern)>>,
}

/// A test before the patterns of one form of verbs: frames are the patterns with any words in place of the verb. Most
/// sentences match no frame or contain no verb in the form. The frames are small, while a union of the patterns
/// contains every verb many times and is too large for an automaton.
#[derive(Debug)]
struct Prefilter {
    /// Whether the patterns are those of done actions.
    is_done: bool,
    /// The form of the verbs in the patterns.
    form: String,
    frames: Pattern,
}

/// A pattern of claims with the verbs of one form.
#[derive(Debug)]
struct ClaimPattern {
    tense: Tense,
    form: String,
    pattern: Pattern,
    /// Its prefilter, an index into [`Claims::prefilters`].
    prefilter: usize,
}

/// By action and form of verbs, the pattern of its verbs.
type Forms = BTreeMap<Action, BTreeMap<String, String>>;

impl Claims {
    pub(super) fn new(
        file: &ClaimsFile,
        actions: &Forms,
        compiler: &PatternCompiler<'_>,
        hypothetical: Arc<Pattern>,
    ) -> Result<Claims, String> {
        let mut verbs: BTreeMap<String, Vec<(Action, Pattern)>> = BTreeMap::new();
        let mut verbs_by_form: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (action, forms) in actions {
            for (form, source) in forms {
                let source = compiler.expand(source, 0)?;
                let matched = Pattern::new(&format!("^(?:{source})$"));
                verbs.entry(form.clone()).or_default().push((*action, matched));
                verbs_by_form.entry(form).or_default().push(source);
            }
        }
        let mut patterns = Vec::new();
        let mut frames: [BTreeMap<&str, Vec<String>>; 2] = Default::default();
        let sources_by_tense = [
            (Tense::Done, &file.done),
            (Tense::DonePassive, &file.passive),
            (Tense::Promised, &file.promised),
            (Tense::Offered, &file.offered),
        ];
        for (tense, sources) in sources_by_tense {
            for source in sources {
                let (before, verb) =
                    source.split_once('<').ok_or_else(|| format!("no verb in {source:?}"))?;
                let (form, after) = verb.split_once('>').ok_or_else(|| format!("no verb in {source:?}"))?;
                let verbs_of_form =
                    verbs_by_form.get(form).ok_or_else(|| format!("no verbs in the form {form:?}"))?;
                let any_verb = verbs_of_form.join("|");
                let (before, after) = (compiler.expand(before, 0)?, compiler.expand(after, 0)?);
                let frame = compiler.within_words(&format!("(?:{before})(?:.+)(?:{after})"));
                let [done, stated] = &mut frames;
                let frames_of_tense = if tense.is_done() { done } else { stated };
                frames_of_tense.entry(form).or_default().push(frame);
                let source = compiler.within_words(&format!("(?:{before})(?P<verb>{any_verb})(?:{after})"));
                patterns.push((tense, form.to_owned(), Pattern::new(&source)));
            }
        }
        let [done_by_form, _] = &frames;
        let done_frames: Vec<&str> = done_by_form.values().flatten().map(String::as_str).collect();
        let done_frames = Pattern::new(&done_frames.join("|"));
        let prefilters = frames.into_iter().zip([true, false]).flat_map(|(by_form, is_done)| {
            let prefilter = |(form, frames): (&str, Vec<String>)| Prefilter {
                is_done,
                form: form.to_owned(),
                frames: Pattern::new(&frames.join("|")),
            };
            by_form.into_iter().map(prefilter).collect::<Vec<_>>()
        });
        let prefilters: Vec<Prefilter> = prefilters.collect();
        let patterns = patterns.into_iter().filter_map(|(tense, form, pattern): (Tense, String, Pattern)| {
            let has_pattern =
                |prefilter: &Prefilter| prefilter.is_done == tense.is_done() && prefilter.form == form;
            let prefilter = prefilters.iter().position(has_pattern)?;
            Some(ClaimPattern { tense, form, pattern, prefilter })
        });
        let patterns = patterns.collect();
        let verbs_for_form =
            |form: &str| verbs_by_form.get(form).map(|verbs| verbs.join("|")).unwrap_or_default();
        let finder = VerbFinder::new(
            prefilters.iter().map(|prefilter| verbs_for_form(&prefilter.form)),
            compiler.has_spaces,
        )?;
        Ok(Claims {
            done_frames,
            prefilters,
            finder,
            hypothetical,
            unless: compiler.any(&file.unless)?,
            unless_passive: compiler.any(&file.unless_passive)?,
            unless_stated: (!file.unless_stated.is_empty())
                .then(|| compiler.any(&file.unless_stated))
                .transpose()?,
            instrument: compiler.any(&file.instrument)?,
            source: compiler.any(&file.source)?,
            patterns,
            verbs,
        })
    }

    /// Whether these words, of one sentence or several, may contain claims of done actions.
    pub(super) fn may_have_done(&self, words: &str) -> bool {
        self.done_frames.is_match(words)
    }

    /// Adds the claims of `sentence` to `out`, one for each action and tense.
    pub(super) fn find<'t>(&self, sentence: &Sentence<'t>, out: &mut Vec<ActionClaim<'t>>) {
        self.search(sentence, |_| true, out);
    }

    /// As [`Claims::find`], but only for claims of done actions.
    pub(super) fn find_done<'t>(&self, sentence: &Sentence<'t>, out: &mut Vec<ActionClaim<'t>>) {
        if !sentence.is_question && self.may_have_done(sentence.words()) {
            self.search(sentence, |prefilter| prefilter.is_done, out);
        }
    }

    /// Adds the claims of `sentence` by the patterns whose prefilter `is_included`.
    fn search<'t>(
        &self,
        sentence: &Sentence<'t>,
        is_included: impl Fn(&Prefilter) -> bool,
        out: &mut Vec<ActionClaim<'t>>,
    ) {
        let first = out.len();
        let words = sentence.words();
        // Most sentences pass no prefilter.
        let verb_groups = self.finder.find(words);
        let prefilters = self.prefilters.iter().enumerate();
        let passes = |(nth, prefilter): &(usize, &Prefilter)| {
            is_included(prefilter) && verb_groups.has(*nth) && prefilter.frames.is_match(words)
        };
        let passed_prefilters = prefilters
            .filter(passes)
            .fold(VerbGroups::default(), |all, (nth, _)| all.union(VerbGroups::only(nth)));
        for ClaimPattern { tense, form, pattern, .. } in
            self.patterns.iter().filter(|candidate| passed_prefilters.has(candidate.prefilter))
        {
            for captures in pattern.captures_iter(words) {
                let (Some(matched), Some(verb)) = (captures.get(0), captures.name("verb")) else { continue };
                let verb = words.get(verb.range()).unwrap_or_default();
                let Some(action) = self.action(form, verb) else { continue };
                let clause = clause(words, matched.start(), matched.end());
                let is_excluded = match tense.is_done() {
                    true => {
                        let is_hypothetical = || is_hypothetical(&self.hypothetical, words, matched.start());
                        sentence.is_question || is_hypothetical() || self.is_excluded(*tense, clause)
                    }
                    false => {
                        let is_denied_by = |unless: &Pattern| unless.is_match(clause);
                        !sentence.is_question && self.unless_stated.as_ref().is_some_and(is_denied_by)
                    }
                };
                if is_excluded {
                    continue;
                }
                let tense = if sentence.is_question { Tense::Offered } else { *tense };
                let earlier = out.get(first..).unwrap_or_default();
                if !earlier.iter().any(|claim| claim.action == action && claim.tense == tense) {
                    let is_work = action.is_work() && tense.is_done();
                    let instrument = is_work.then(|| self.instrument.captures_iter(words).next()).flatten();
                    let instrument = instrument
                        .and_then(|captures| Some(words.get(captures.name("noun")?.range())?.to_owned()));
                    out.push(ActionClaim {
                        action,
                        tense,
                        verb: verb.to_owned(),
                        sentence: sentence.text,
                        instrument,
                        names_source: is_work && self.source.is_match(words),
                    });
                }
            }
        }
    }

    /// Whether the clause of a done action denies it, or names another actor.
    fn is_excluded(&self, tense: Tense, clause: &str) -> bool {
        self.unless.is_match(clause) || tense == Tense::DonePassive && self.unless_passive.is_match(clause)
    }

    /// The action of a verb in any form.
    pub(super) fn action_of(&self, verb: &str) -> Option<Action> {
        self.verbs.keys().find_map(|form| self.action(form, verb))
    }

    /// The action of a verb in this form.
    fn action(&self, form: &str, verb: &str) -> Option<Action> {
        self.verbs
            .get(form)?
            .iter()
            .find(|(_, pattern)| pattern.is_anchored_match(verb))
            .map(|(action, _)| *action)
    }
}
