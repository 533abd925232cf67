//! Questions for what the user has already said: "What is the parcel number?" after "pickup for parcel JD0146002213".
//!
//! Principle: a run whose last text asks for the identifier of a thing has overlooked it where the user wrote exactly one
//! identifier, directly behind the name of this thing, and no call of the run has it. A call that had it may have shown
//! that it is wrong, and a question that repeats it asks for a confirmation.
//!
//! In: what the user said, the calls and the answer of an outermost agent. Out: one finding, on the model span of the
//! answer.

use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::same_thing::identifiers;
use crate::measure::Finding;
use crate::measure::defects::Defect;
use crate::measure::language::Said;
use crate::measure::tool_purpose::{ToolPurpose, offered, stems};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;
use crate::recognise::Content;

/// Most bytes of what the user said, and of the text that asks.
const MAX_BYTES: usize = 2_000;
/// Most calls that are read.
const MAX_CALLS: usize = 64;
/// Words by which a question asks for an identifier, in English, German, French, and Spanish, Portuguese and Italian.
const NUMBERS: [&str; 14] = [
    "number",
    "id",
    "code",
    "reference",
    "nummer",
    "kennung",
    "numéro",
    "numero",
    "número",
    "référence",
    "referencia",
    "código",
    "codice",
    "riferimento",
];
/// Words by which another one is asked for.
const OTHERS: [&str; 10] =
    ["other", "another", "new", "second", "correct", "right", "different", "neue", "otro", "nouveau"];

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, i, agent, .. } = *conduct;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    let is_whole = agent.parent.is_none() && !agent.tools.is_empty() && !trace.incomplete;
    if !is_whole || answer.len() > MAX_BYTES || !answer.contains('?') || trace.calls.len() > MAX_CALLS {
        return None;
    }
    let said = conduct.said();
    let bytes: usize = said.iter().map(|text| text.len()).sum();
    let arguments = || trace.calls.iter().filter_map(|call| call.arguments.as_deref());
    let passed: usize = arguments().map(str::len).sum();
    if bytes > MAX_BYTES || !memo.budget.spend((bytes + answer.len()) / 4 + passed / BYTES_PER_STEP) {
        return None;
    }
    let mut ids: Vec<String> = said.iter().flat_map(|text| identifiers(text).collect::<Vec<_>>()).collect();
    ids.sort_unstable();
    ids.dedup();
    let [id] = ids.as_slice() else { return None };
    // An agent without a tool for actions asks on behalf of another one.
    let mut acts = offered(trace, i).map(|tool| ToolPurpose::of(&tool.name, tool.description.as_deref()));
    let is_used =
        arguments().any(|text| contains_ignoring_case(text, id)) || contains_ignoring_case(answer, id);
    if is_used || !acts.any(|tool| !tool.is_query()) {
        return None;
    }
    let thing = said.iter().find_map(|text| thing_before(text, id))?;
    let read = Said::new(answer, said.first().map(|text| &**text), memo);
    let mut questions =
        read.languages().flat_map(|language| read.classified(language, [])).filter(|(s, _)| s.is_question);
    let question = questions.find(|(sentence, _)| asks_for(sentence.text, &thing))?.0.text;
    let rationale =
        format!("a use of {id} was expected, which the user gave for the {thing}; the answer asks for it");
    Some((agent.answer_at?, Defect::PartUnanswered.finding(rationale, question)))
}

/// The stem of the word before an identifier, or of the one before "number".
fn thing_before(text: &str, id: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let before = lower.get(..lower.find(id)?)?;
    let words = before.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let noun = words.iter().rev().take(2).find(|word| !NUMBERS.contains(word))?;
    stems(noun).next().filter(|stem| stem.len() > 2)
}

/// Whether a question asks for the identifier of a thing, and for no other one.
fn asks_for(question: &str, thing: &str) -> bool {
    let lower = question.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_thing = |word: &str| stems(word).any(|stem| stem == thing);
    // "Parcel number", "numéro du colis", "Paketnummer".
    let is_number = |word: &str| NUMBERS.contains(&word);
    let is_compound = |word: &str| {
        word.starts_with(thing)
            && NUMBERS.iter().any(|number| word.ends_with(number) && word.len() > number.len() + 2)
    };
    let is_asked = words.iter().enumerate().any(|(at, word)| {
        let after = words.get(at + 1..).unwrap_or_default();
        is_thing(word) && after.first().is_some_and(|next| is_number(next))
            || is_number(word) && after.iter().take(3).any(|next| is_thing(next))
            || is_compound(word)
    });
    is_asked && !words.iter().any(|word| OTHERS.contains(word))
}
