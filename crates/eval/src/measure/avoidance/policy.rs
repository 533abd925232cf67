//! Whether a refusal follows from a rule of the instructions.
//!
//! In: a sentence that declines an action ([`Declined`]), and the instructions of the model. Out: whether they
//! contain a limit on the action: a statement with a negation or a condition that names the action and its object.
//! A refusal in an unknown language, or without a known action, follows from no rule.

use aho_corasick::{AhoCorasick, BuildError};
use foldhash::HashSet;

use crate::measure::Memo;
use crate::measure::excerpt::clip;
use crate::measure::language::{Action, Language, WordClass, WordClasses, classes};
use crate::measure::tool_purpose::{action_of, are_alike, stems};

/// Phrases before the declined action.
const NEGATIONS: [&str; 8] =
    ["cannot ", "can't ", "can not ", "may not ", "unable to ", "not able to ", "not allowed to ", "won't "];
/// Phrases that state a lack, each with the negation of [`NEGATIONS`] that has the same meaning: "I have no access to
/// it" is read as "I cannot access it".
const LACKS: [(&str, &str); 8] = [
    ("do not have access to", "cannot access"),
    ("don't have access to", "cannot access"),
    ("have no access to", "cannot access"),
    ("do not have the ability to", "cannot"),
    ("don't have the ability to", "cannot"),
    ("do not have a way to", "cannot"),
    ("don't have a way to", "cannot"),
    ("have no way to", "cannot"),
];
// Finds a phrase of `NEGATIONS` or `LACKS`, with either apostrophe. Most sentences contain none.
checked_static!(NEGATED: AhoCorasick = negations());

fn negations() -> Result<AhoCorasick, BuildError> {
    let phrases = NEGATIONS.into_iter().chain(LACKS.map(|(lack, _)| lack));
    let spellings = phrases.flat_map(|phrase| [phrase.to_owned(), phrase.replace('\'', "\u{2019}")]);
    AhoCorasick::builder().ascii_case_insensitive(true).build(spellings)
}

/// Words that end the object of a verb.
const OBJECT_ENDS: [&str; 12] =
    ["of", "in", "on", "for", "from", "with", "at", "to", "by", "and", "or", "because"];
/// The speaker, before a negation.
const SPEAKERS: [&str; 6] = [" i", " we", " i'm", " i am", " we're", " we are"];
/// Maximum bytes of instructions that are read.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// Words by which instructions set a limit.
const LIMIT_CLASSES: WordClasses = classes!(Negation Obligation Restriction Condition Exception);

/// The action that a sentence declines.
pub(super) struct Declined {
    /// The first verb after the negation.
    pub action: Action,
    /// The stems of the words after it.
    pub objects: HashSet<String>,
    /// Whether the verb after the negation is in no class of actions: it may then change a setting of the objects.
    pub is_unclassed: bool,
    /// Whether the text after the negation is negated as well: "without your number".
    pub has_condition: bool,
    language: Language,
}

impl Declined {
    /// The declined action of a sentence; `None` without a negation or a known verb. In other languages than English
    /// the action is the first known verb, and the objects are all other content words: the verb may be the last word.
    pub(super) fn from_sentence(sentence: &str, language: Language) -> Option<Declined> {
        if language == Language::English {
            return Declined::classed(&text_after_negation(sentence, |_| true)?);
        }
        let words = language.content_words(sentence);
        let verbs = words.iter().enumerate().filter_map(|(i, word)| Some((i, action(word, language)?)));
        let (verb_index, action) = verbs.into_iter().find(|(_, action)| *action != Action::Execute)?;
        let others = words.iter().enumerate().filter(|(i, _)| *i != verb_index);
        let objects = others.map(|(_, word)| word.clone()).collect();
        language.classes(sentence).has(WordClass::Negation).then_some(Declined {
            action,
            objects,
            is_unclassed: false,
            has_condition: false,
            language,
        })
    }

    /// The action that the speaker declines ("I cannot", "we are unable to"); `None` if the sentence has none.
    pub(super) fn by_speaker(sentence: &str) -> Option<Declined> {
        let after = text_after_negation(sentence, is_speaker)?;
        Declined::classed(&after).or_else(|| Declined::unclassed(&after))
    }

    /// The declined action in the text after a negation, if its verb is in no class of actions: "operate the pump".
    fn unclassed(after: &str) -> Option<Declined> {
        let words: Vec<String> = stems(after).collect();
        // The object ends before a preposition: in "the noise of the pump" it is the noise, not the pump.
        let is_end = |word: &&str| OBJECT_ENDS.contains(word);
        let object: Vec<&str> = after.split_whitespace().take_while(|word| !is_end(word)).collect();
        let object_stems: Vec<String> = stems(&object.join(" ")).collect();
        let (_, objects) = object_stems.split_first()?;
        let is_unclassed = !words.iter().any(|word| action_of(word).is_some());
        is_unclassed.then(|| Declined {
            action: Action::Update,
            objects: objects.iter().cloned().collect(),
            is_unclassed,
            has_condition: has_negation(after),
            language: Language::English,
        })
    }

    /// The declined action in the text after a negation, if its verb is in a class of actions.
    fn classed(after: &str) -> Option<Declined> {
        let words: Vec<String> = stems(after).collect();
        let verbs = words.iter().enumerate().filter_map(|(i, word)| Some((i, action_of(word)?)));
        // In "process a refund" the noun names the action.
        let (verb_index, action) = verbs.into_iter().find(|(_, action)| *action != Action::Execute)?;
        // In "submit a reading" the word after the verb is an object, although it is also the form of a verb.
        let is_object =
            |word: &String| !action_of(word).is_some_and(Action::is_work) || word.ends_with("ing");
        let objects = words.into_iter().skip(verb_index + 1).filter(is_object).collect();
        let has_condition = has_negation(after);
        Some(Declined { action, objects, is_unclassed: false, has_condition, language: Language::English })
    }

    /// Whether the speaker declines to give information, and not to change something.
    pub(super) fn is_information(&self) -> bool {
        self.action.is_work()
    }
}

/// The text in lower case after the first negation, if `is_accepted` returns true for the text before it.
fn text_after_negation(sentence: &str, is_accepted: impl Fn(&str) -> bool) -> Option<String> {
    if !NEGATED.is_match(sentence) {
        return None;
    }
    let lower = format!(" {}", sentence.to_lowercase().replace('\u{2019}', "'"));
    let lower = LACKS.iter().fold(lower, |lower, (lack, inability)| lower.replace(lack, inability));
    let splits = NEGATIONS.iter().filter_map(|negation| lower.split_once(negation));
    let (before, after) = splits.max_by_key(|(_, after)| after.len())?;
    is_accepted(before).then(|| after.to_owned())
}

/// Whether a text is negated; not if the speakers only state another inability: "so I cannot tell".
fn has_negation(text: &str) -> bool {
    let places = Language::English.table().places(text);
    places.iter().any(|place| {
        place.classes.has(WordClass::Negation) && !text.get(..place.at.start).is_some_and(is_speaker)
    })
}

/// Whether the speakers are the subject that ends a text.
fn is_speaker(before: &str) -> bool {
    SPEAKERS.iter().any(|speaker| before.trim_end().ends_with(speaker))
}

/// The action of a verb, or of an English noun for it.
fn action(word: &str, language: Language) -> Option<Action> {
    match language {
        Language::English => action_of(word),
        _ => language.action_of(word).or_else(|| action_of(word)),
    }
}

/// Whether `instructions` limit the declined action. Only a limit on information forbids information. Where the
/// instructions are in another language than the refusal, the objects have other words, so that the action alone
/// decides. Instructions in an unknown language may contain any limit.
pub(super) fn is_grounded(declined: &Declined, instructions: &str, memo: &Memo) -> bool {
    let text = clip(instructions, MAX_BYTES);
    memo.budget.spend(1 + text.len() / 16);
    let Some(language) = Language::detected(text, None, memo) else { return true };
    let statements = text.split(['\n', ';']).flat_map(|line| line.split(". "));
    let limits = statements.filter(|statement| language.classes(statement).has_any(LIMIT_CLASSES));
    limits.into_iter().any(|statement| {
        let words: HashSet<String> = match language {
            Language::English => stems(statement).collect(),
            _ => language.content_words(statement).into_iter().collect(),
        };
        let shared_count = declined.objects.iter().filter(|object| words.contains(*object)).count();
        let verbs = words.iter().filter(|word| !declined.objects.contains(*word));
        let mut actions = verbs.filter_map(|word| action(word, language)).peekable();
        let has_action = match declined.is_information() {
            true => actions.peek().is_some() && actions.all(Action::is_work),
            false => actions.any(|action| !action.is_work() && are_alike(declined.action, action)),
        };
        has_action && (shared_count > 0 || declined.language != language)
            || shared_count > 2 && !declined.is_information()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_grounded_in(sentence: &str, instructions: &str) -> bool {
        let memo = Memo::new();
        let language = Language::detected(sentence, Some(instructions), &memo).unwrap();
        is_grounded(&Declined::from_sentence(sentence, language).unwrap(), instructions, &memo)
    }

    #[test]
    fn limits_of_the_instructions_ground_a_refusal() {
        for (sentence, instructions) in [
            (
                "I'm unable to cancel the basic plan after 14 days.",
                "Be polite.\n- Basic plans cannot be cancelled later than 14 days after purchase.",
            ),
            (
                "I cannot prescribe or change the dosage of your medication.",
                "Only a physician may change the dosage.",
            ),
            (
                "I can't remove a guest from the booking.",
                "The number of guests in a booking must not change.",
            ),
        ] {
            assert!(is_grounded_in(sentence, instructions), "{sentence}");
        }
        assert!(is_grounded_in(
            "I'm unable to provide the address of another guest.",
            "Never provide the address of a guest to others."
        ));
    }

    #[test]
    fn limits_in_other_languages_ground_a_refusal() {
        for (sentence, instructions) in [
            (
                "Ich kann die Buchung leider nicht stornieren.",
                "Eine Buchung kann nach der Abreise nicht mehr storniert werden.",
            ),
            (
                "Je ne peux pas rembourser ce billet.",
                "Un billet promotionnel n'est pas remboursé après le départ.",
            ),
            ("No puedo cancelar la reserva.", "Nunca cancele una reserva sin el código del cliente."),
            ("Não posso cancelar a assinatura.", "Só o titular pode cancelar a assinatura."),
            (
                "Non posso annullare la prenotazione.",
                "La prenotazione non si può annullare dopo la partenza.",
            ),
            (
                "Ich kann die Buchung leider nicht stornieren.",
                "Bookings cannot be cancelled after the departure.",
            ),
        ] {
            assert!(is_grounded_in(sentence, instructions), "{sentence}");
        }
        assert!(!is_grounded_in(
            "Ich kann die Buchung leider nicht stornieren.",
            "Antworte auf die Fragen der Gäste nie mit Emojis."
        ));
    }

    #[test]
    fn other_limits_and_permissions_do_not_ground_a_refusal() {
        for (sentence, instructions) in [
            ("I'm unable to cancel your plan.", "Never reveal the price of a plan to competitors."),
            ("I cannot change your address.", "You can change the address of a customer."),
            ("I can't refund the room.", "Do not use emojis."),
        ] {
            assert!(!is_grounded_in(sentence, instructions), "{sentence}");
        }
        assert!(!is_grounded_in(
            "I'm unable to provide the balance of your gift cards.",
            "Each booking can be paid with at most three gift cards, and the rest of a gift card is not refunded."
        ));
    }
}
