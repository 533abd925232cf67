//! Checks that an answer is in the language of the user, where the instructions require it: "contesta siempre en el
//! idioma del usuario".
//!
//! Principle: such an instruction requires the language of the latest message of the user. An answer violates it if
//! the languages of the message and the answer are both recognised and differ. A message that mentions a language may
//! ask for an answer in it, so that the check does not apply.
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

/// Maximum bytes of instructions that are searched.
const MAX_INSTRUCTION_BYTES: usize = 32 * 1024;
/// Maximum bytes of a message of the user whose language is recognised.
const MAX_MESSAGE_BYTES: usize = 2_000;
/// Minimum bytes of an answer: a shorter one has too few words to distinguish related languages.
const MIN_ANSWER_BYTES: usize = 60;
/// Minimum bytes of a message of the user, as for the answer.
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

/// Compares the language of the answer with the language that the prompt requires.
pub(super) fn check_answer_language(context: &Context<'_>, view: &SpanView, answer: &str) -> AnswerLanguage {
    let Some((instruction, required, actual)) = required_and_actual(context, view, answer) else {
        return AnswerLanguage::NotApplicable;
    };
    if actual == required {
        return AnswerLanguage::Follows;
    }
    let rationale = format!(
        "expected an answer in the language of the user, {}, as the prompt says: \"{instruction}\"",
        required.as_str()
    );
    AnswerLanguage::Violates(Defect::WrongFormat.finding(rationale, head(answer.trim(), 80)))
}

/// The instruction, the required language, and the language of the answer; `None` if the check does not apply.
fn required_and_actual(
    context: &Context<'_>,
    view: &SpanView,
    answer: &str,
) -> Option<(String, Language, Language)> {
    let systems = view.input.iter().filter(|message| message.role == Role::System);
    let mut texts = systems.flat_map(|message| message.parts.iter().filter_map(plain_text));
    let instruction = texts.find_map(|text| {
        struct LanguageInstruction(Option<String>);
        let text = clip(text, MAX_INSTRUCTION_BYTES);
        context.memo.budget.spend(1 + text.len() / BYTES_PER_STEP);
        context.memo.recurring(text, || LanguageInstruction(instruction(text))).0.clone()
    })?;
    let user = view.input.iter().rfind(|message| message.role == Role::User)?;
    let user_text = user
        .parts
        .iter()
        .filter_map(plain_text)
        .find(|text| (MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES).contains(&text.len()))?;
    if answer.len() < MIN_ANSWER_BYTES || vocabulary::has(user_text, WordMeaning::Language) {
        return None;
    }
    let required = Language::recognised(user_text, context.memo)?;
    Some((instruction, required, Language::recognised(answer, context.memo)?))
}

/// The first sentence that requires the language of the user unconditionally.
fn instruction(text: &str) -> Option<String> {
    let mentions = vocabulary::find(text, &[WordMeaning::TheLanguage]);
    mentions.into_iter().take(MAX_MENTIONS).find_map(|(_, mention)| {
        let sentence = sentence(text, mention.start, mention.end);
        let is_unconditional = classes_in(sentence, None, &Memo::new())
            .is_some_and(|classes| !classes.has(WordClass::Negation) && !classes.has(WordClass::Condition));
        let requires_language = is_unconditional
            && [WordMeaning::UserReference, WordMeaning::Reply]
                .iter()
                .all(|meaning| vocabulary::has(sentence, *meaning));
        requires_language.then(|| head(sentence.trim(), 100).to_owned())
    })
}
