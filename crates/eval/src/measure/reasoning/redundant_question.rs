//! Questions for a value that the user has already stated: "What is the parcel number?" after "pickup for parcel
//! JD0146002213".
//!
//! Principle: an agent whose answer asks for the identifier of a thing has overlooked the identifier that the user
//! wrote directly after the name of that thing. There is no finding if the user wrote several identifiers for the
//! thing, if a call passes the identifier, since the result may have shown that it is wrong, or if the question repeats
//! the identifier, since such a question asks for a confirmation.
//!
//! In: the messages of the user, the calls and the answer of an outermost agent. Out: one finding, on the model span of
//! the answer.

use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::linked_identifiers::identifiers;
use super::{dates_and_times, local_dates};
use crate::measure::Finding;
use crate::measure::defects::Defect;
use crate::measure::language::{Language, ReadText, WordClass, WordClasses, classes, names};
use crate::measure::tool_purpose::{ToolPurpose, offered_tools, stems};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Content, Text};

/// Maximum bytes of the user's messages, and of the text that asks.
const MAX_BYTES: usize = 2_000;
/// Maximum calls that are read.
const MAX_CALLS: usize = 64;
/// Maximum identifiers in the user's messages: a message with more identifiers is data.
const MAX_IDENTIFIERS: usize = 4;
/// Classes of words by which a question asks for another value than the stated one.
const ANOTHER_VALUE: WordClasses = classes!(Exception Increment Repetition New);
/// Values of the words of class `TimeUnit`: an hour asks for a time of day.
const TIME_OF_DAY: u8 = 3;
const DAY: u8 = 4;
const MONTH: u8 = 6;

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent_index, agent, .. } = *conduct;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    let is_examined = agent.parent.is_none() && !agent.tools.is_empty() && !trace.incomplete;
    if !is_examined || answer.len() > MAX_BYTES || !answer.contains('?') || trace.calls.len() > MAX_CALLS {
        return None;
    }
    let user_texts = conduct.user_messages();
    let bytes: usize = user_texts.iter().map(|text| text.len()).sum();
    let arguments = || trace.calls.iter().filter_map(|call| call.arguments.as_deref());
    let argument_bytes: usize = arguments().map(str::len).sum();
    if bytes > MAX_BYTES || !memo.budget.spend((bytes + answer.len()) / 4 + argument_bytes / BYTES_PER_STEP) {
        return None;
    }
    let analysed = ReadText::new(answer, user_texts.first().map(|text| &**text), memo);
    if trace.calls.is_empty()
        && let Some(finding) = stated_value_question(conduct, &analysed, &user_texts)
    {
        return Some((agent.answer_at?, finding));
    }
    let mut ids: Vec<String> =
        user_texts.iter().flat_map(|text| identifiers(text).collect::<Vec<_>>()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.truncate(MAX_IDENTIFIERS + 1);
    // An agent without a tool for actions may ask on behalf of another agent.
    let mut purposes = offered_tools(trace, agent_index)
        .map(|tool| ToolPurpose::new(&tool.name, tool.description.as_deref()));
    if ids.is_empty() || ids.len() > MAX_IDENTIFIERS || !purposes.any(|tool| !tool.is_query()) {
        return None;
    }
    let identified_things: Vec<(&String, String)> = ids
        .iter()
        .filter_map(|id| Some((id, user_texts.iter().find_map(|text| thing_before(text, id))?)))
        .collect();
    let is_used = |id: &str| {
        arguments().any(|text| contains_ignoring_case(text, id)) || contains_ignoring_case(answer, id)
    };
    let has_one_identifier =
        |thing: &str| identified_things.iter().filter(|(_, other)| other == thing).count() == 1;
    let overlooked = identified_things.iter().filter(|(id, thing)| !is_used(id) && has_one_identifier(thing));
    overlooked.into_iter().find_map(|(id, thing)| {
        let (_, question) =
            questions(&analysed).find(|(_, text)| asks_for(text, analysed.classes(text), thing))?;
        let rationale = format!(
            "a use of {id} was expected, which the user gave for the {thing}; the answer asks for it"
        );
        Some((agent.answer_at?, Defect::PartUnanswered.finding(rationale, question)))
    })
}

/// The questions of a text, for each language that the text may be in.
fn questions<'t>(analysed: &ReadText<'t>) -> impl Iterator<Item = (Language, &'t str)> {
    analysed.languages().flat_map(|language| {
        let questions = analysed.classified(language, []).filter(|(sentence, _)| sentence.is_question);
        questions.map(move |(sentence, _)| (language, sentence.text))
    })
}

/// The finding on a question of a run without calls that asks by "which" or "what" only for values that the user
/// stated: a month, a day or a time, or a thing next to a word that can only be its name ("the eu-central region").
fn stated_value_question(
    conduct: &Conduct<'_>,
    analysed: &ReadText<'_>,
    user_texts: &[Text],
) -> Option<Finding> {
    offered_tools(conduct.trace, conduct.agent_index).next()?;
    let all: String = user_texts.iter().map(|text| format!("{} ", &**text)).collect();
    let lower = all.to_lowercase();
    let words: Vec<&str> =
        lower.split_whitespace().map(|w| w.trim_matches(|c: char| !c.is_alphanumeric())).collect();
    let has_month = || words.iter().any(|word| local_dates::month_of(word).is_some());
    let has_day = || !dates_and_times::days(&all).is_empty() || !dates_and_times::weekdays(&all).is_empty();
    let is_name = |word: &&str| {
        word.contains(|c: char| c.is_ascii_digit() || matches!(c, '-' | '_'))
            && word.contains(char::is_alphanumeric)
    };
    let is_stated = |(noun, unit): &(&str, Option<u8>)| match unit {
        Some(MONTH) => has_month() || has_day(),
        Some(DAY) => has_day(),
        Some(TIME_OF_DAY) => !dates_and_times::clocks(&all).is_empty(),
        _ => words.iter().enumerate().any(|(at, word)| {
            let neighbours =
                [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| words.get(at));
            stems(word).eq(stems(noun)) && stems(noun).next().is_some() && neighbours.into_iter().any(is_name)
        }),
    };
    questions(analysed).find_map(|(language, question)| {
        let nouns = nouns(question, language);
        let is_asked_again = !nouns.is_empty()
            && nouns.iter().all(is_stated)
            && !analysed.classes(question).has_any(ANOTHER_VALUE);
        is_asked_again.then(|| {
            let nouns: Vec<&str> = nouns.into_iter().map(|(noun, _)| noun).collect();
            let rationale = format!(
                "a call with the {} that the user gave was expected; the answer asks for it",
                nouns.join(" and the ")
            );
            Defect::PartUnanswered.finding(rationale, question)
        })
    })
}

/// The nouns after "which" or "what" in a question, each with the value of its class `TimeUnit` if it has that class.
fn nouns(question: &str, language: Language) -> Vec<(&str, Option<u8>)> {
    let words = language.table().places(question);
    let which_words = words.iter().filter(|word| word.classes.has(WordClass::Which));
    let nouns = which_words.filter_map(|which| {
        let after = question.get(which.at.end..)?.trim_start();
        let after_start = question.len() - after.len();
        // "何時" is "what" and "time" in one word.
        let unit = words.iter().find(|word| {
            word.classes.has(WordClass::TimeUnit) && [which.at.start, after_start].contains(&word.at.start)
        });
        let noun = after.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let noun = unit.map_or(Some(noun), |unit| question.get(unit.at.clone()))?;
        (!noun.is_empty()).then_some((noun, unit.map(|unit| unit.value)))
    });
    nouns.collect()
}

/// The stem of the word before an identifier; "number" and its synonyms between them are skipped.
fn thing_before(text: &str, id: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let before = lower.get(..lower.find(id)?)?;
    let words = before.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let noun = words.iter().rev().take(2).find(|word| !names::is_of_class(word, WordClass::Identifier))?;
    stems(noun).next().filter(|stem| stem.len() > 2)
}

/// Whether a question asks for the identifier of a thing, and not for a second identifier next to the stated one.
fn asks_for(question: &str, classes: WordClasses, thing: &str) -> bool {
    let lower = question.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_thing = |word: &str| stems(word).any(|stem| stem == thing);
    // "Parcel number", "numéro du colis", "Paketnummer".
    let is_number = |word: &str| names::is_of_class(word, WordClass::Identifier);
    let is_compound = |word: &str| {
        let suffix = word.strip_prefix(thing);
        suffix.is_some_and(|suffix| is_number(suffix) || suffix.strip_prefix('s').is_some_and(is_number))
    };
    let is_asked = words.iter().enumerate().any(|(at, word)| {
        let after = words.get(at + 1..).unwrap_or_default();
        is_thing(word) && after.first().is_some_and(|next| is_number(next))
            || is_number(word) && after.iter().take(3).any(|next| is_thing(next))
            || is_compound(word)
    }) || words.iter().any(|word| is_thing(word))
        && words.last().is_some_and(|word| is_number(word));
    is_asked && !classes.has_any(ANOTHER_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    #[test]
    fn numbers_that_the_user_gave_are_asked_for_again() {
        for (task, question, other) in [
            (
                "Please redirect my parcel JD0146002213 to the shop.",
                "What is the parcel number?",
                "What is the new parcel number?",
            ),
            (
                "Bitte leiten Sie das Paket JD0146002213 an den Laden um.",
                "Wie lautet die Paketnummer?",
                "Wie lautet die neue Paketnummer?",
            ),
            (
                "Merci d'envoyer le colis JD0146002213 à la boutique.",
                "Quel est le numéro du colis ?",
                "Quel est le numéro d'un autre colis ?",
            ),
            (
                "Por favor, desvíen el paquete JD0146002213 a la tienda.",
                "¿Cuál es el número del paquete?",
                "¿Cuál es el número del otro paquete?",
            ),
            (
                "Por favor, desvie o pacote JD0146002213 para a loja.",
                "Qual é o número do pacote?",
                "Qual é o novo número do pacote?",
            ),
            (
                "Per favore, manda il pacco JD0146002213 al negozio.",
                "Qual è il numero del pacco?",
                "Qual è il nuovo numero del pacco?",
            ),
        ] {
            let count = |answer: &str| {
                let script = Script::new(task).tools(&["list_shops", "redirect_parcel"]);
                let script = script.calls("", &[("list_shops", "{}")]).returns("[]");
                findings_of(check, &script.answers(answer).build()).len()
            };
            assert_eq!((count(question), count(other)), (1, 0), "{question}");
        }
    }

    #[test]
    fn months_that_the_user_gave_are_asked_for_again() {
        for (task, question) in [
            ("Show me the sales of May, please.", "Which month do you mean?"),
            ("Zeig mir bitte die Verkäufe vom Mai.", "Welchen Monat meinen Sie?"),
            ("Montre-moi les ventes du mois de mai.", "Quel mois voulez-vous ?"),
            ("Muéstrame las ventas de mayo, por favor.", "¿Qué mes quiere ver?"),
            ("Mostre as vendas de maio, por favor.", "Qual mês você quer ver?"),
            ("Mostrami le vendite di maggio, per favore.", "Quale mese vuole vedere?"),
        ] {
            let script = Script::new(task).tools(&["get_sales"]);
            assert_eq!(findings_of(check, &script.answers(question).build()).len(), 1, "{question}");
        }
    }
}
