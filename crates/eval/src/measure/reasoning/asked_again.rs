//! Questions for what the user has already said: "What is the parcel number?" after "pickup for parcel JD0146002213".
//!
//! Principle: a run whose last text asks for the identifier of a thing has overlooked it where the user wrote one directly
//! behind the name of this thing, and no other one behind it, and no call of the run has it. A call that had it may have shown
//! that it is wrong, and a question that repeats it asks for a confirmation.
//!
//! In: what the user said, the calls and the answer of an outermost agent. Out: one finding, on the model span of the
//! answer.

use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::same_thing::identifiers;
use super::{local_dates, written_moments};
use crate::measure::Finding;
use crate::measure::defects::Defect;
use crate::measure::language::{Said, WordClass, WordClasses};
use crate::measure::tool_purpose::{ToolPurpose, offered, stems};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Content, Text};

/// Most bytes of what the user said, and of the text that asks.
const MAX_BYTES: usize = 2_000;
/// Most calls that are read.
const MAX_CALLS: usize = 64;
/// Most identifiers of what the user said: more are data.
const MAX_IDENTIFIERS: usize = 4;
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
/// Words by which another one is asked for, besides "new" and "right".
const OTHERS: WordClasses =
    WordClasses::of(&[WordClass::Exception, WordClass::Increment, WordClass::Repetition]);
const NEW: [&str; 12] = [
    "new", "correct", "right", "neue", "neuen", "nouveau", "nouvelle", "nuevo", "nueva", "novo", "nova",
    "nuovo",
];

// What a question asks for.
regex!(WHICH, r"\b(?:which|what)\s+(\w+)");

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
    let read = Said::new(answer, said.first().map(|text| &**text), memo);
    if trace.calls.is_empty()
        && let Some(finding) = of_values(conduct, &read, &said)
    {
        return Some((agent.answer_at?, finding));
    }
    let mut ids: Vec<String> = said.iter().flat_map(|text| identifiers(text).collect::<Vec<_>>()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.truncate(MAX_IDENTIFIERS + 1);
    // An agent without a tool for actions asks on behalf of another one.
    let mut acts = offered(trace, i).map(|tool| ToolPurpose::of(&tool.name, tool.description.as_deref()));
    if ids.is_empty() || ids.len() > MAX_IDENTIFIERS || !acts.any(|tool| !tool.is_query()) {
        return None;
    }
    let of_things: Vec<(&String, String)> = ids
        .iter()
        .filter_map(|id| Some((id, said.iter().find_map(|text| thing_before(text, id))?)))
        .collect();
    let is_used = |id: &str| {
        arguments().any(|text| contains_ignoring_case(text, id)) || contains_ignoring_case(answer, id)
    };
    let is_only = |thing: &str| of_things.iter().filter(|(_, of)| of == thing).count() == 1;
    let overlooked = of_things.iter().filter(|(id, thing)| !is_used(id) && is_only(thing));
    overlooked.into_iter().find_map(|(id, thing)| {
        let question = questions(&read).find(|text| asks_for(text, read.classes(text), thing))?;
        let rationale = format!(
            "a use of {id} was expected, which the user gave for the {thing}; the answer asks for it"
        );
        Some((agent.answer_at?, Defect::PartUnanswered.finding(rationale, question)))
    })
}

/// The questions of a text.
fn questions<'t>(read: &Said<'t>) -> impl Iterator<Item = &'t str> {
    let sentences = read.languages().flat_map(|language| read.classified(language, []));
    sentences.filter(|(sentence, _)| sentence.is_question).map(|(sentence, _)| sentence.text)
}

/// A question of a run that called nothing, which asks for things by "which" or "what", all of which the user gave: a
/// month, a day or a time, or a thing beside a word that can be only its name ("the eu-central region").
fn of_values(conduct: &Conduct<'_>, read: &Said<'_>, said: &[Text]) -> Option<Finding> {
    offered(conduct.trace, conduct.i).next()?;
    let all: String = said.iter().map(|text| format!("{} ", &**text)).collect();
    let lower = all.to_lowercase();
    let words: Vec<&str> =
        lower.split_whitespace().map(|w| w.trim_matches(|c: char| !c.is_alphanumeric())).collect();
    let has_month = || words.iter().any(|word| local_dates::month_of(word).is_some());
    let has_day = || !written_moments::days(&all).is_empty() || !written_moments::weekdays(&all).is_empty();
    let is_name = |word: &&str| {
        word.contains(|c: char| c.is_ascii_digit() || matches!(c, '-' | '_'))
            && word.contains(char::is_alphanumeric)
    };
    let is_given = |noun: &str| match noun {
        "month" => has_month() || has_day(),
        "day" | "date" => has_day(),
        "time" => !written_moments::clocks(&all).is_empty(),
        _ => words.iter().enumerate().any(|(at, word)| {
            let beside =
                [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| words.get(at));
            stems(word).eq(stems(noun)) && stems(noun).next().is_some() && beside.into_iter().any(is_name)
        }),
    };
    questions(read).find_map(|question| {
        let lower = question.to_lowercase();
        let nouns: Vec<&str> =
            WHICH.captures_iter(&lower).filter_map(|found| Some(found.get(1)?.as_str())).collect();
        let is_asked_again = !nouns.is_empty()
            && nouns.iter().all(|noun| is_given(noun))
            && !asks_for_another(&lower, read.classes(question));
        is_asked_again.then(|| {
            let rationale = format!(
                "a call with the {} that the user gave was expected; the answer asks for it",
                nouns.join(" and the ")
            );
            Defect::PartUnanswered.finding(rationale, question)
        })
    })
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

/// Whether a question, here in lower case, is about another thing than the one that the user named.
fn asks_for_another(question: &str, classes: WordClasses) -> bool {
    classes.has_any(OTHERS) || question.split(|c: char| !c.is_alphanumeric()).any(|word| NEW.contains(&word))
}

/// Whether a question asks for the identifier of a thing, and for no other one.
fn asks_for(question: &str, classes: WordClasses, thing: &str) -> bool {
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
    }) || words.iter().any(|word| is_thing(word))
        && words.last().is_some_and(|word| is_number(word));
    is_asked && !asks_for_another(&lower, classes)
}
