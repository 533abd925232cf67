//! The parts of a request, and the actions that texts ask for or mention.
//!
//! In: a request or another text, and its language. Out: the parts of the request with their actions; whether a text
//! mentions an action.

use crate::measure::currency;
use crate::measure::language::{Action, Language, WordClass, WordClasses, classes};
use crate::measure::numbers::has_digit;
use crate::measure::reasoning::claimed_actions::is_form_of;
use crate::measure::reasoning::skipped_step::actions_of_verbs;
use crate::measure::tool_purpose::action_of;
use crate::measure::vocabulary::{self, WordMeaning};
use crate::pattern::contains_ignoring_case;
use crate::recognise::AgentTrace;

/// Maximum bytes of a request: longer requests name several things.
pub(super) const MAX_TASK_BYTES: usize = 400;

/// Minimum bytes of a word in the name of a tool that texts are searched for: shorter words are parts of many words.
pub(super) const MIN_THING_BYTES: usize = 4;

/// Classes of words by which the parts of a sentence are conditional, or are not requests.
pub(super) const CONDITION: WordClasses =
    classes!(Negation Condition Alternative Modal Obligation Sequence Probability Already);

/// Classes of words with which the object of a verb begins: "all", "another", "two".
pub(super) const QUANTITY: WordClasses = classes!(Quantifier Increment Number);

/// Whether a call of the performed action does not include the requested one, although tools for them are similar.
pub(super) fn are_distinct(performed: Action, requested: Action) -> bool {
    use Action::{Book, Cancel, Notify, Order, Refund, Return, Schedule, Send, Update};
    match requested {
        // An action that an update includes would be in its arguments or its result.
        Send | Notify => performed == Update,
        Refund => matches!(performed, Cancel | Return | Update),
        Order => matches!(performed, Book | Schedule | Update),
        Cancel => performed == Update,
        _ => false,
    }
}

/// Whether a text has a verb or a noun of the action.
pub(super) fn has_word_of(text: &str, action: Action, language: Language) -> bool {
    mentions_action(text, action) || actions_of_verbs(text, language).contains(&action)
}

/// Whether a text has a currency or a word for an amount of money.
pub(super) fn mentions_amount(text: &str, language: Language) -> bool {
    language.classes(text).has(WordClass::Amount)
        || currency::all().any(|name| contains_ignoring_case(text, name))
}

/// Whether a text has a form of a verb of the action.
pub(super) fn mentions_action(text: &str, action: Action) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.any(|word| is_form_of(&word, action))
}

/// Whether the trace has a call of a tool.
pub(super) fn is_called(trace: &AgentTrace, tool: &str) -> bool {
    trace.calls.iter().any(|call| call.name.trim().eq_ignore_ascii_case(tool.trim()))
}

/// Whether a sentence has no condition and is neither a question nor a description.
pub(super) fn is_unconditional(sentence: &str, language: Language) -> bool {
    !sentence.contains(['?', '\u{bf}'])
        && !language.classes(sentence).has_any(CONDITION)
        && !vocabulary::has(sentence, WordMeaning::Copula)
}

/// The parts of a sentence, split at commas and conjunctions.
pub(super) fn parts_of(sentence: &str, language: Language) -> Vec<String> {
    let words = language.table().places(sentence);
    let conjunctions = words.iter().filter(|word| word.classes.has(WordClass::Conjunction));
    let mut from = 0;
    let mut parts = String::new();
    for conjunction in conjunctions.map(|word| &word.at) {
        parts.push_str(sentence.get(from..conjunction.start).unwrap_or_default());
        parts.push('\n');
        from = conjunction.end;
    }
    parts.push_str(sentence.get(from..).unwrap_or_default());
    let lines = parts.replace(", ", "\n").replace("; ", "\n");
    lines.lines().filter(|part| !part.trim().is_empty()).map(str::to_owned).collect()
}

/// Whether a part names a day: "email me tomorrow".
pub(super) fn is_for_later(part: &str, language: Language) -> bool {
    language.classes(part).has(WordClass::RelativeDay)
}

/// The external action that a part asks for; `None` for other parts, such as one without an object.
pub(super) fn requested_action(part: &str, language: Language) -> Option<Action> {
    use Action::{Book, Cancel, Delete, Notify, Order, Pay, Refund, Schedule, Send, Transfer};
    let words = part.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    let is_filler = |word: &&str| language.is_function_word(&word.to_lowercase());
    let mut words = words.filter(|word| !word.is_empty()).skip_while(is_filler);
    let verb = words.next()?.to_lowercase();
    let action = match language {
        Language::English => action_of(&verb),
        language => actions_of_verbs(&verb, language).first().copied(),
    }?;
    let object = words.next()?.to_lowercase();
    let is_object = match language {
        Language::English => {
            language.is_function_word(&object) || language.classes(&object).has_any(QUANTITY)
        }
        // "Commande 4711" names an order.
        _ => !has_digit(&object),
    };
    let is_external =
        matches!(action, Book | Cancel | Delete | Notify | Order | Pay | Refund | Schedule | Send | Transfer);
    (is_object && is_external && !is_for_later(part, language)).then_some(action)
}
