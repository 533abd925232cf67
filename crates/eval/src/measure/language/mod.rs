//! Statements in texts, recognised by their words in the languages that rules read: refusals, statements of inability,
//! claims of actions and of work, hedges, admitted inventions, reports of errors, questions to the reader, and
//! replies of a user that agree or withdraw; requests for a text, an estimate, a number or a source.
//!
//! In: a text. Out: its sentences of such a kind, verbatim. Patterns are data, with one file per language in `data/`:
//! classes of words (speaker, auxiliary, negation, verbs by class of action), and patterns over these classes. A
//! pattern is matched with one sentence, as words without case and punctuation. Code and quotations are ignored;
//! questions and conditions claim nothing. `sentences/` contains sentences that the patterns must and must not match.
//! In other languages, or if the language is not recognised, metrics that need the language are unmeasured.
//!
//! | file | content |
//! |---|---|
//! | `supported`, `detect`, `text_language` | the languages that rules read; the language of a text; whether a rule can read it |
//! | `compiler`, `lists` | the compiled data file of a language |
//! | `word_class`, `names` | closed classes of words in a text, and of single words in any language |
//! | `sentence`, `abbreviation`, `sentence_kind` | the sentences of a text, as words; full stops within a sentence; kinds of sentences in texts that avoid an answer |
//! | `reading` | the analysis of a text, which is cached for each trace |
//! | `claim`, `request`, `denial` | claims of actions and work; words of instructions; statements that deny something |
//! | `grammar` | pronouns, auxiliaries and articles of English |
//! | `content_words` | words with and without content |
//! | `verb_finder` | the forms of verbs that a sentence may contain |

mod abbreviation;
mod claim;
mod compiler;
mod content_words;
mod denial;
mod detect;
mod grammar;
mod sentence_kind;
mod supported;
mod text_language;
mod lists;
pub(crate) mod names;
mod reading;
mod request;
mod sentence;
mod verb_finder;
mod word_class;

pub(crate) use claim::{Action, ActionClaim, Tense};
pub(crate) use grammar::GrammarGroup;
pub(crate) use sentence_kind::SentenceKind;
use std::rc::Rc;
pub(crate) use supported::Language;
pub(crate) use text_language::{Readable, classes_in, is_english, is_english_alone, readable};

use compiler::Pattern;
use lists::{Lists, PatternList};
use reading::{Reading, TAIL_BYTES};
pub(crate) use request::RequestWords;
pub(crate) use sentence::{Sentence, is_quoted_json};
pub(crate) use word_class::{
    ClassifiedWord, ClassifiedWords, WordClass, WordClassTable, WordClasses, classes, classes_of,
};

use super::Memo;
use super::excerpt::clip_end;
use crate::recognise::Text;

/// Maximum bytes of a text without a recognised language that is compared with the patterns of every language.
const MAX_SHORT_BYTES: usize = 120;

impl Language {
    /// The language of a text; `None` for a language that rules do not read, or if the language is not recognised.
    #[cfg(test)]
    pub(crate) fn from_text(text: &str) -> Option<Language> {
        detect::detect(text).language()
    }

    /// The words of closed classes in a text, read once per trace.
    pub(crate) fn places(self, text: &str, memo: &Memo) -> Rc<ClassifiedWords> {
        Reading::cached(text, memo).places(text, self, memo)
    }

    /// The closed classes of words of the language.
    pub(crate) fn table(self) -> &'static WordClassTable {
        &self.lists().classes
    }

    /// Whether a text mentions a confirmation by the user.
    pub(crate) fn mentions_consent(self, text: &str) -> bool {
        let consent = &self.lists().consent;
        let split = Reading::default().split(text, self);
        // As in `ReadText::may_match`, one search over all words excludes most texts.
        (!self.is_spaced() || consent.any().is_match(split.words()))
            && split.sentences(text).any(|s| consent.any().is_match(s.words()) && !consent.is_limited(&s))
    }

    /// The action of a verb in lower case, in any of its forms.
    pub(crate) fn action_of(self, verb: &str) -> Option<Action> {
        self.lists().claims.action_of(verb)
    }

    /// The verbs in their base form of which a word in lower case may be a form. Most of the results are not words of
    /// the language.
    pub(crate) fn possible_verbs(self, word: &str) -> impl Iterator<Item = String> + use<'_> {
        self.lists().requests.iter().flat_map(move |words| words.possible_verbs(word))
    }

    /// Whether a word in lower case is of a group of the grammar, which only English has.
    pub(crate) fn is_in_group(self, word: &str, group: GrammarGroup) -> bool {
        self.lists().grammar.has(group, word)
    }

    /// The closed classes of the words of a short text. The result is not cached.
    pub(crate) fn classes(self, text: &str) -> WordClasses {
        self.table().places(text).all()
    }

    /// The text of the language's data file.
    fn data(self) -> &'static str {
        match self {
            Language::English => include_str!("data/en.yaml"),
            Language::German => include_str!("data/de.yaml"),
            Language::French => include_str!("data/fr.yaml"),
            Language::Spanish => include_str!("data/es.yaml"),
            Language::Portuguese => include_str!("data/pt.yaml"),
            Language::Italian => include_str!("data/it.yaml"),
            Language::Chinese => include_str!("data/zh.yaml"),
            Language::Japanese => include_str!("data/ja.yaml"),
        }
    }

    fn lists(self) -> &'static Lists {
        match self {
            Language::English => &EN,
            Language::German => &DE,
            Language::French => &FR,
            Language::Spanish => &ES,
            Language::Portuguese => &PT,
            Language::Italian => &IT,
            Language::Chinese => &ZH,
            Language::Japanese => &JA,
        }
    }
}

checked_static!(EN: Lists = Lists::parse(Language::English.data(), true));
checked_static!(DE: Lists = Lists::parse(Language::German.data(), true));
checked_static!(FR: Lists = Lists::parse(Language::French.data(), true));
checked_static!(ES: Lists = Lists::parse(Language::Spanish.data(), true));
checked_static!(PT: Lists = Lists::parse(Language::Portuguese.data(), true));
checked_static!(IT: Lists = Lists::parse(Language::Italian.data(), true));
checked_static!(ZH: Lists = Lists::parse(Language::Chinese.data(), false));
checked_static!(JA: Lists = Lists::parse(Language::Japanese.data(), false));

/// A sentence that admits invented data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Invention<'t> {
    pub sentence: &'t str,
    /// Whether the sentence only assumes something, which need not replace real data.
    pub is_assumption: bool,
}

/// The language of a text or, if it is not recognised, of `fallback`, the text that it answers. If both texts hint at
/// the same language, that language counts as recognised.
fn language_of(text: &str, reading: &Reading, fallback: Option<&str>, memo: &Memo) -> detect::Detected {
    use detect::Detected::{Supported, TooFewWords, Unclear};
    let detected = reading.language(text);
    let (TooFewWords | Unclear(_), Some(fallback)) = (detected, fallback) else { return detected };
    match (detected, Reading::cached(fallback, memo).language(fallback)) {
        (Unclear(Some(language)), Unclear(Some(other))) if language == other => Supported(language),
        (_, fallback_language) => fallback_language,
    }
}

/// A text with the languages in which its sentences are classified.
#[derive(Clone, Debug)]
pub(crate) struct ReadText<'t> {
    text: &'t str,
    languages: &'static [Language],
    is_known: bool,
    reading: Rc<Reading>,
}

impl<'t> ReadText<'t> {
    /// Reads `text` in its language or, if it is not recognised, in the language of `fallback`, the text that it
    /// answers. The analysis is cached for the trace.
    pub(crate) fn new(text: &'t str, fallback: Option<&str>, memo: &Memo) -> ReadText<'t> {
        let reading = Reading::cached(text, memo);
        let detected = language_of(text, &reading, fallback, memo);
        ReadText::with_language(text, detected, reading)
    }

    /// As [`ReadText::new`]; also counts the work of the detection in the work budget, once for each text.
    pub(crate) fn new_counted(text: &'t Text, fallback: Option<&Text>, memo: &Memo) -> ReadText<'t> {
        for text in [Some(text), fallback].into_iter().flatten() {
            memo.for_text(text, |text| {
                memo.budget.spend(text.len().min(detect::MAX_BYTES) / 16);
                CountedLanguageWork
            });
        }
        ReadText::new(text, fallback.map(|text| &**text), memo)
    }

    /// Reads a reply to this text in its own language or, if it is not recognised, in the language of this text.
    pub(crate) fn answered_by<'r>(&self, reply: &'r str, memo: &Memo) -> ReadText<'r> {
        let reading = Reading::cached(reply, memo);
        match reading.language(reply) {
            detect::Detected::TooFewWords | detect::Detected::Unclear(_) | detect::Detected::NoWords
                if !self.languages.is_empty() =>
            {
                ReadText { text: reply, languages: self.languages, is_known: self.is_known, reading }
            }
            detected => ReadText::with_language(reply, detected, reading),
        }
    }

    /// Reads a part of the text in the language of the text.
    pub(crate) fn part<'p>(&self, part: &'p str) -> ReadText<'p> {
        let is_whole = part.len() == self.text.len();
        let reading = if is_whole { Rc::clone(&self.reading) } else { Rc::default() };
        ReadText { text: part, languages: self.languages, is_known: self.is_known, reading }
    }

    /// The analysis without the text, so that it can be stored apart from the text; see [`ReadText::with_text`].
    pub(crate) fn without_text(&self) -> ReadText<'static> {
        ReadText {
            text: "",
            languages: self.languages,
            is_known: self.is_known,
            reading: Rc::clone(&self.reading),
        }
    }

    /// The analysis together with its text again, after [`ReadText::without_text`].
    pub(crate) fn with_text<'o>(&self, text: &'o str) -> ReadText<'o> {
        ReadText {
            text,
            languages: self.languages,
            is_known: self.is_known,
            reading: Rc::clone(&self.reading),
        }
    }

    fn with_language(text: &'t str, detected: detect::Detected, reading: Rc<Reading>) -> ReadText<'t> {
        let languages = match detected {
            detect::Detected::Supported(language) => slice_of(language),
            detect::Detected::TooFewWords | detect::Detected::Unclear(_) if text.len() <= MAX_SHORT_BYTES => {
                &Language::ALL
            }
            _ => &[],
        };
        let is_known = matches!(detected, detect::Detected::Supported(_) | detect::Detected::NoWords);
        ReadText { text, languages, is_known, reading }
    }

    /// Whether the language is known. If it is not, the absence of a kind of sentence cannot be determined, and a
    /// metric that depends on it is unmeasured as `language`.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Sentences that decline a request: for reasons of policy, law or permission.
    pub(crate) fn refusals(&self) -> Vec<&'t str> {
        self.sentences_of(|lists| &lists.refusal)
    }

    /// Sentences that state a lack of knowledge, access or ability.
    pub(crate) fn inability(&self) -> Vec<&'t str> {
        self.sentences_of(|lists| &lists.inability)
    }

    /// Sentences whose content the speaker states as uncertain.
    pub(crate) fn hedges(&self) -> Vec<&'t str> {
        self.sentences_of(|lists| &lists.hedge)
    }

    /// Sentences that admit simulated, assumed or made-up data.
    pub(crate) fn inventions(&self) -> Vec<Invention<'t>> {
        let mut out = Vec::new();
        for &language in self.languages {
            let lists = language.lists();
            if !self.may_match(language, lists.invention.any()) {
                continue;
            }
            let inventions = self.sentences(language).filter(|s| !s.is_question && lists.invention.finds(s));
            out.extend(inventions.map(|sentence| Invention {
                is_assumption: lists.assumed.is_match(sentence.words()),
                sentence: sentence.text,
            }));
        }
        out
    }

    /// Whether a statement or a question of the text is about an error.
    pub(crate) fn mentions_errors(&self) -> bool {
        self.languages.iter().any(|&language| {
            let error = &language.lists().error;
            self.may_match(language, error.any()) && self.sentences(language).any(|s| error.finds(&s))
        })
    }

    /// Whether a reply only agrees: it begins with an agreement, and contains no question, addition, exception or
    /// withdrawal.
    pub(crate) fn agrees(&self) -> bool {
        self.languages.iter().any(|&language| {
            let lists = language.lists();
            let mut sentences = self.sentences(language).filter(|s| !s.is_without_words()).peekable();
            sentences.peek().is_some_and(|first| lists.agreement.begins(first))
                && sentences
                    .all(|s| !s.is_question && !lists.agreement.is_limited(&s) && !lists.withdrawal.finds(&s))
        })
    }

    /// Whether a reply begins with an agreement and withdraws nothing; the reply may ask for something else as well.
    pub(crate) fn begins_to_agree(&self) -> bool {
        self.languages.iter().any(|&language| {
            let agreement = &language.lists().agreement;
            let mut sentences = self.sentences(language).filter(|s| !s.is_without_words());
            sentences.next().is_some_and(|first| {
                agreement.begins(&first) && !first.is_question && !agreement.is_limited(&first)
            })
        }) && !self.withdraws()
    }

    /// Whether a reply declines, withdraws or postpones something.
    pub(crate) fn withdraws(&self) -> bool {
        self.languages.iter().any(|&language| {
            self.sentences(language).any(|sentence| language.lists().withdrawal.finds(&sentence))
        })
    }

    /// Whether the text ends with a question or a request for information.
    pub(crate) fn ends_with_question(&self) -> bool {
        self.languages.iter().any(|&language| {
            let text = clip_end(self.text, TAIL_BYTES);
            let split = match text.len() == self.text.len() {
                true => self.reading.split(text, language),
                false => Reading::default().split(text, language),
            };
            let last = split.sentences(text).filter(|sentence| !sentence.is_without_words()).last();
            last.is_some_and(|last| last.is_question || language.lists().question.finds(&last))
        })
    }

    /// Whether the text asks to write or to transform a text, code or a plan.
    pub(crate) fn asks_for_text(&self) -> bool {
        self.asks(|lists| &lists.writing)
    }

    /// Whether the text asks for an estimate or allows one.
    pub(crate) fn asks_for_estimate(&self) -> bool {
        self.asks(|lists| &lists.estimate)
    }

    /// The words of the first question for a number, in lower case, and the words after them in its sentence.
    pub(crate) fn question_for_number(&self) -> Option<[String; 2]> {
        self.languages.iter().find_map(|&language| {
            let number = &language.lists().number;
            self.sentences(language).find_map(|sentence| number.first(&sentence))
        })
    }

    /// The first sentence or question that demands a source of the answer, or the use of tools.
    pub(crate) fn source_demand(&self) -> Option<&'t str> {
        self.languages.iter().find_map(|&language| {
            let demand = &language.lists().source_demand;
            self.may_match(language, demand.any()).then_some(())?;
            self.sentences(language).find(|sentence| demand.asks(sentence)).map(|sentence| sentence.text)
        })
    }

    /// Sentences that state that the text comes from the memory of its writer.
    pub(crate) fn memory_claims(&self) -> Vec<&'t str> {
        self.sentences_of(|lists| &lists.memory)
    }

    /// Sentences that announce a call of a tool or a question to somebody, each with the words after the announcement,
    /// in lower case.
    pub(crate) fn announcements(&self) -> Vec<(&'t str, String)> {
        let mut out = Vec::new();
        for &language in self.languages {
            let list = &language.lists().announcement;
            if !self.may_match(language, list.any()) {
                continue;
            }
            let announcing = self.sentences(language).filter(|s| !s.is_question && list.finds(s));
            out.extend(announcing.map(|sentence| {
                let [_, after] = list.first(&sentence).unwrap_or_default();
                (sentence.text, after)
            }));
        }
        out
    }

    /// Whether a sentence or a question has a match of a list, and no clause of it is excluded.
    fn asks(&self, list: impl Fn(&'static Lists) -> &'static PatternList) -> bool {
        self.languages.iter().any(|&language| {
            let list = list(language.lists());
            self.sentences(language).any(|sentence| list.asks(&sentence))
        })
    }

    /// Actions that the speaker claims, promises or offers.
    pub(crate) fn claims_of_action(&self) -> Vec<ActionClaim<'t>> {
        let mut out = Vec::new();
        for &language in self.languages {
            let claims = &language.lists().claims;
            self.sentences(language).for_each(|sentence| claims.find(&sentence, &mut out));
        }
        out
    }

    /// Actions that the speaker claims to have done.
    pub(crate) fn claims_of_done_action(&self) -> Vec<ActionClaim<'t>> {
        let mut out = Vec::new();
        for &language in self.languages {
            let split = self.reading.split(self.text, language);
            let done_claims = self.reading.done_claims(self.text, language);
            let text_claims = done_claims.iter().filter_map(|(nth, claim)| {
                let sentence = split.sentence(self.text, *nth)?;
                Some(claim.clone().with_sentence(sentence))
            });
            out.extend(text_claims);
        }
        out
    }

    /// The closed classes of the words of a part of the text, in each language that it may be in.
    pub(crate) fn classes(&self, part: &str) -> WordClasses {
        let all = self.languages.iter().map(|language| language.classes(part));
        all.fold(WordClasses::default(), WordClasses::union)
    }

    /// The languages in which the text is read: one if it is known, all for a short text, none for others.
    pub(crate) fn languages(&self) -> impl Iterator<Item = Language> + use<> {
        self.languages.iter().copied()
    }

    /// The sentences, each with the first of `kinds` that includes it, or `None`.
    pub(crate) fn classified<const N: usize>(
        &self,
        language: Language,
        kinds: [SentenceKind; N],
    ) -> impl Iterator<Item = (Sentence<'t>, Option<SentenceKind>)> + use<'t, N> {
        let reading = Rc::clone(&self.reading);
        self.sentences(language).enumerate().map(move |(nth, sentence)| {
            let kind = kinds.into_iter().find(|kind| reading.is_of_kind(*kind, language, nth, &sentence));
            (sentence, kind)
        })
    }

    /// The statements with a match of a list.
    fn sentences_of(&self, list: impl Fn(&'static Lists) -> &'static PatternList) -> Vec<&'t str> {
        let mut out = Vec::new();
        for &language in self.languages {
            let list = list(language.lists());
            if !self.may_match(language, list.any()) {
                continue;
            }
            let matching = self.sentences(language).filter(|s| !s.is_question && list.finds(s));
            out.extend(matching.map(|sentence| sentence.text));
        }
        out
    }

    fn sentences(&self, language: Language) -> impl Iterator<Item = Sentence<'t>> + use<'t> {
        self.reading.split(self.text, language).sentences(self.text)
    }

    /// Whether a sentence may match a pattern. One search over the words of all sentences excludes most texts.
    fn may_match(&self, language: Language, pattern: &Pattern) -> bool {
        // Patterns have anchors only in languages without spaces.
        !language.is_spaced() || pattern.is_match(self.reading.split(self.text, language).words())
    }
}

/// The slice that contains only `language`.
fn slice_of(language: Language) -> &'static [Language] {
    const ALL: &[Language] = &Language::ALL;
    ALL.get(language as usize..=language as usize).unwrap_or_default()
}

/// The cached mark that the work on the language of a text was counted.
struct CountedLanguageWork;

#[cfg(test)]
mod tests;
