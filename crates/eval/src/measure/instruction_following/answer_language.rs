//! Checks that an answer is in the language of the user, where the instructions say so: "contesta siempre en el idioma
//! del usuario".
//!
//! Principle: such an instruction asks for the language of the latest message of the user. It is broken if both this
//! message and the answer are recognised as two of the languages that rules read. A message that mentions a language
//! may ask for another one: then the check does not apply.
//!
//! In: the system messages and the latest user message of a prompt, and the final answer. Out: whether the answer
//! follows such an instruction, with the finding if it does not.

use super::prompt::sentence;
use crate::measure::conversation::plain_text;
use crate::measure::defects::{Defect, clip};
use crate::measure::excerpt::head;
use crate::measure::language::{Language, WordClass, classes_in};
use crate::measure::vocabulary::{self, WordMeaning};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Context, Finding, Memo};
use crate::recognise::{Role, SpanView};

/// Most bytes of instructions that are searched, and of a message of the user that is compared.
const MAX_INSTRUCTIONS: usize = 32 * 1024;
const MAX_MESSAGE: usize = 2_000;
/// Shorter texts have too few words to tell related languages apart.
const MIN_ANSWER_BYTES: usize = 60;
const MIN_MESSAGE_BYTES: usize = 30;
/// Maximum number of mentions of a language that are examined.
const MAX_MENTIONS: usize = 8;

/// The result of the check of one answer.
pub(super) enum AnswerLanguage {
    /// The instructions do not require the language of the user, or one of the languages is not known.
    NotApplicable,
    Follows,
    Violates(Finding),
}

pub(super) fn check_answer_language(context: &Context<'_>, view: &SpanView, answer: &str) -> AnswerLanguage {
    let Some((instruction, wanted, found)) = required_and_actual(context, view, answer) else {
        return AnswerLanguage::NotApplicable;
    };
    if found == wanted {
        return AnswerLanguage::Follows;
    }
    let rationale = format!(
        "expected an answer in the language of the user, {}, as the prompt says: \"{instruction}\"",
        wanted.as_str()
    );
    AnswerLanguage::Violates(Defect::WrongFormat.finding(rationale, head(answer.trim(), 80)))
}

/// The instruction, the language of the user, and that of the answer.
fn required_and_actual(
    context: &Context<'_>,
    view: &SpanView,
    answer: &str,
) -> Option<(String, Language, Language)> {
    let systems = view.input.iter().filter(|message| message.role == Role::System);
    let mut texts = systems.flat_map(|message| message.parts.iter().filter_map(plain_text));
    let instruction = texts.find_map(|text| {
        struct LanguageInstruction(Option<String>);
        let text = clip(text, MAX_INSTRUCTIONS);
        context.memo.budget.spend(1 + text.len() / BYTES_PER_STEP);
        context.memo.recurring(text, || LanguageInstruction(instruction(text))).0.clone()
    })?;
    let user = view.input.iter().rfind(|message| message.role == Role::User)?;
    let user_text = user
        .parts
        .iter()
        .filter_map(plain_text)
        .find(|text| (MIN_MESSAGE_BYTES..=MAX_MESSAGE).contains(&text.len()))?;
    if answer.len() < MIN_ANSWER_BYTES || vocabulary::has(user_text, WordMeaning::Language) {
        return None;
    }
    let wanted = Language::recognised(user_text, context.memo)?;
    Some((instruction, wanted, Language::recognised(answer, context.memo)?))
}

/// The sentence that asks for the language of the user.
fn instruction(text: &str) -> Option<String> {
    let mentions = vocabulary::find(text, &[WordMeaning::TheLanguage]);
    mentions.into_iter().take(MAX_MENTIONS).find_map(|(_, at)| {
        let sentence = sentence(text, at.start, at.end);
        let is_unconditional = classes_in(sentence, None, &Memo::new())
            .is_some_and(|classes| !classes.has(WordClass::Negation) && !classes.has(WordClass::Condition));
        let requires_language = is_unconditional
            && [WordMeaning::UserReference, WordMeaning::Reply]
                .iter()
                .all(|meaning| vocabulary::has(sentence, *meaning));
        requires_language.then(|| head(sentence.trim(), 100).to_owned())
    })
}
