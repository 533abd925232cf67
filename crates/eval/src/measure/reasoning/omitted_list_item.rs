//! Things that a request lists and that the run omits: "the stock in Oslo, Bergen and Tromsø", and only two lookups.
//!
//! Principle: if a request lists things by identifiers of one shape or by names, and one of them was acted on or looked
//! up, each of the others has to be in a call, a result or the answer. Two names may belong to one action ("a table for
//! Ana and Bo"), so that only lookups need both.
//!
//! In: the request of an outermost agent, all calls, and the answer. Out: one finding, on the model span that wrote the
//! answer.

use verdict_otlp::trace::Idx;

use super::answer::sentences;
use super::conduct::Conduct;
use super::linked_identifiers::{identifiers, shape};
use crate::measure::defects::Defect;
use crate::measure::dialogue::Replies;
use crate::measure::language::{Language, ReadText, WordClass, WordClasses, classes, classes_in};
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::{Finding, Memo};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{AgentTrace, Call, Content};

/// Maximum bytes of a request: longer requests name several things.
const MAX_TASK_BYTES: usize = 400;
/// Maximum calls of a trace that are read.
const MAX_CALLS: usize = 64;
/// Maximum bytes of the arguments and results of these calls together with the answer.
const MAX_BYTES: usize = 16_000;
/// Maximum things of a list.
const MAX_LISTED: usize = 8;
/// Maximum words of a name.
const MAX_NAME_WORDS: usize = 2;
/// Maximum bytes between two identifiers of a list.
const MAX_GAP_BYTES: usize = 12;
/// Classes of words by which a request excludes some of the things that it lists.
const EXCLUSION: WordClasses = classes!(Negation Exception Alternative Condition Already);
/// Classes of words of a request that compares things or moves something between them, and thus lists none.
const COMPARISON: WordClasses = classes!(Comparison Origin);

/// Whether a request may exclude some of the things that it names. True for an unsupported language.
pub(super) fn may_exclude(task: &str, memo: &Memo) -> bool {
    classes_in(task, None, memo).is_none_or(|classes| classes.has_any(EXCLUSION))
}

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, attempts, agent, .. } = *conduct;
    let is_examined = agent.parent.is_none() && !agent.tools.is_empty() && !trace.incomplete;
    let task = conduct.task(MAX_TASK_BYTES).filter(|_| is_examined)?;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    let has_failed = |i: usize| attempts.at(i).is_some_and(|a| !a.is_control && a.failed());
    let is_comparable =
        (1..=MAX_CALLS).contains(&trace.calls.len()) && !(0..trace.calls.len()).any(has_failed);
    if !is_comparable {
        return None;
    }
    let (ids, names) = (listed_ids(task), listed_names(task, memo));
    if ids.is_empty() && names.is_empty() || may_exclude(task, memo) {
        return None;
    }
    // In a dialogue the user may have agreed to less.
    if agent.llms.iter().any(|at| Replies::cached(trace, memo).to(*at).is_some()) {
        return None;
    }
    let texts = trace.calls.iter().flat_map(|call| [call.arguments.as_deref(), call.result.as_deref()]);
    let texts: Vec<&str> = texts.flatten().chain([answer]).collect();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes > MAX_BYTES || !memo.budget.spend((1 + bytes / 16) * (ids.len() + names.len())) {
        return None;
    }
    let acts = |call: &Call| purpose(trace, memo, call) == Purpose::Action;
    let omitted = omitted_thing(trace, &ids, &texts, acts).or_else(|| {
        let looks_up = |call: &Call| purpose(trace, memo, call) == Purpose::Query;
        omitted_thing(trace, &names, &texts, |call| names.len() > 2 || looks_up(call))
    })?;
    if ReadText::new(answer, Some(task), memo).ends_with_question() {
        return None;
    }
    let rationale = format!(
        "a call for {omitted}, or the reason why there is none, was expected, since the request lists it"
    );
    Some((agent.answer_at?, Defect::PartUnanswered.finding(rationale, answer)))
}

/// A listed thing that no text names, if a call that satisfies `is_relevant` names another one in its arguments.
fn omitted_thing(
    trace: &AgentTrace,
    listed: &[String],
    texts: &[&str],
    is_relevant: impl Fn(&Call) -> bool,
) -> Option<String> {
    let is_named = |thing: &&String| texts.iter().any(|text| contains_ignoring_case(text, thing));
    let (named, omitted): (Vec<&String>, Vec<&String>) = listed.iter().partition(is_named);
    let has = |call: &Call, thing: &str| {
        call.arguments.as_deref().is_none_or(|text| contains_ignoring_case(text, thing))
    };
    let is_handled = |thing: &&String| trace.calls.iter().any(|call| has(call, thing) && is_relevant(call));
    omitted.first().filter(|_| named.iter().any(is_handled)).map(|thing| (*thing).clone())
}

/// The identifiers that a request lists; empty if they have several shapes or are not enumerated.
fn listed_ids(task: &str) -> Vec<String> {
    let mut listed: Vec<String> = identifiers(task).take(MAX_LISTED + 1).collect();
    listed.dedup();
    let is_list = (2..=MAX_LISTED).contains(&listed.len())
        && listed.iter().all(|id| listed.first().is_some_and(|first| shape(id) == shape(first)))
        && is_enumerated(task, &listed);
    if is_list { listed } else { Vec::new() }
}

/// Whether at most one short word, such as a conjunction, is between two identifiers.
fn is_enumerated(task: &str, ids: &[String]) -> bool {
    let lower = task.to_ascii_lowercase();
    let mut from = 0;
    let mut gaps = ids.iter().enumerate().map(|(nth, id)| {
        let at = lower.get(from..)?.find(id.as_str())? + from;
        let gap = lower.get(from..at)?;
        from = at + id.len();
        Some(
            nth == 0
                || gap.len() <= MAX_GAP_BYTES
                    && gap.split_whitespace().filter(|w| w.contains(char::is_alphanumeric)).count() <= 1,
        )
    });
    gaps.all(|is_adjacent| is_adjacent == Some(true))
}

/// The names that one sentence of a request lists: words with capitals between commas and conjunctions.
fn listed_names(task: &str, memo: &Memo) -> Vec<String> {
    // Not in German, where all nouns have capitals.
    let language = Language::detected(task, None, memo)
        .filter(|language| language.is_spaced() && *language != Language::German);
    let Some(language) = language else { return Vec::new() };
    let sentences = sentences(task).into_iter().filter_map(|(start, end)| task.get(start..end));
    // A list of names has several capitals.
    let may_list = |text: &&str| {
        text.bytes().filter(u8::is_ascii_uppercase).count() > 1
            || !text.is_ascii() && text.chars().filter(|c| c.is_uppercase()).count() > 1
    };
    let mut lists = sentences
        .filter(may_list)
        .map(|text| listed_names_of_sentence(text, language))
        .filter(|names| names.len() > 1);
    // Of several lists, the list for the action is not known.
    lists.next().filter(|_| lists.next().is_none()).unwrap_or_default()
}

/// The names around the first conjunction of a sentence that has names on both sides.
fn listed_names_of_sentence(sentence: &str, language: Language) -> Vec<String> {
    let classified = language.table().places(sentence);
    if classified.all().has_any(COMPARISON) {
        return Vec::new();
    }
    let conjunctions = classified.iter().filter(|word| word.classes.has(WordClass::Conjunction));
    let mut lists = conjunctions.filter_map(|word| {
        let (before, after) = (sentence.get(..word.at.start)?, sentence.get(word.at.end..)?);
        Some(names_around(sentence, before, after)).filter(|names| names.len() > 1)
    });
    lists.next().unwrap_or_default()
}

/// The names before and after a conjunction of a sentence.
fn names_around(sentence: &str, before: &str, after: &str) -> Vec<String> {
    let is_name = |word: &&str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        word.chars().next().is_some_and(char::is_uppercase) && word.chars().any(char::is_lowercase)
    };
    let joined = |words: Vec<&str>| {
        let name = words.join(" ");
        let name = name.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        (!name.is_empty() && words.len() <= MAX_NAME_WORDS).then_some(name)
    };
    // The last name ends before a word without a capital ("Oslo, Bergen and Tromsø have") or at a punctuation mark.
    let mut ended = false;
    let last: Vec<&str> = after
        .split_whitespace()
        .take_while(|word| {
            let is_part = !ended && is_name(word);
            ended |= word.ends_with(|c: char| !c.is_alphanumeric());
            is_part
        })
        .collect();
    let Some(last) = joined(last) else { return Vec::new() };
    let mut names = vec![last];
    for item in before.trim_end().trim_end_matches(',').rsplit(", ").take(MAX_LISTED) {
        let words: Vec<&str> = item.split_whitespace().collect();
        let name_length = words.iter().rev().take_while(|word| is_name(word)).count();
        // The first word of a sentence has a capital even if it is not a name.
        let is_first = name_length == words.len() && item.as_ptr() == sentence.trim_start().as_ptr();
        let name = words.get(words.len() - name_length..).unwrap_or_default().to_vec();
        match joined(name).filter(|_| !is_first) {
            Some(name) => names.push(name),
            None => break,
        }
        if name_length < words.len() {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    #[test]
    fn listed_name_that_was_not_looked_up_is_found() {
        let run = |task: &str, tool: &str, cities: &[&str], answer: &str| {
            let script = cities.iter().fold(Script::new(task).tools(&[tool]), |script, city| {
                let findings = format!(r#"{{"city":"{city}","stock":4}}"#);
                script.calls("", &[(tool, &format!(r#"{{"city":"{city}"}}"#))]).returns(&findings)
            });
            findings_of(check, &script.answers(answer).build()).len()
        };
        let task = "How many tents are in the shops of Oslo, Bergen and Tromsø?";
        assert_eq!(run(task, "get_stock", &["Oslo", "Bergen"], "Oslo has 4, Bergen has 4."), 1);
        let french = "Quel temps fait-il à Lyon et Annecy demain ?";
        assert_eq!(run(french, "get_weather", &["Lyon"], "Il fait beau à Lyon."), 1);
        for (task, tool, cities, answer) in [
            (task, "get_stock", &["Oslo", "Bergen", "Tromsø"][..], "There are 4 in each of them."),
            (task, "get_stock", &["Oslo", "Bergen"], "Oslo and Bergen have 4; there is no shop in Tromsø."),
            ("Book a table for Ana and Bo.", "book_table", &["Ana"], "It is booked."),
            ("Is it warmer in Oslo than in Bergen and Lyon?", "get_weather", &["Oslo"], "It is warm."),
            ("Move it from Oslo to Bergen and Lyon.", "get_weather", &["Oslo"], "It is moved."),
            ("Not in Oslo, Bergen and Lyon.", "get_weather", &["Oslo"], "It is fine."),
        ] {
            assert_eq!(run(task, tool, cities, answer), 0, "{task}");
        }
    }

    #[test]
    fn listed_thing_that_nothing_names_is_found() {
        let run = |task: &str, ids: &[&str], answer: &str| {
            let script = ids.iter().fold(Script::new(task).tools(&["cancel_order"]), |script, id| {
                script.calls("", &[("cancel_order", &format!(r#"{{"order":"{id}"}}"#))]).returns("ok")
            });
            let trace = script.answers(answer).build();
            findings_of(check, &trace).len()
        };
        let task = "Cancel W-4411, W-4412 and W-4413.";
        assert_eq!(run(task, &["W-4411", "W-4412"], "The orders are cancelled."), 1);
        assert_eq!(run("Storniere W-4411 und W-4412.", &["W-4411"], "Die Bestellung ist storniert."), 1);
        assert_eq!(run(task, &["W-4411", "W-4412", "W-4413"], "The orders are cancelled."), 0);
        assert_eq!(run(task, &["W-4411", "W-4412"], "Done, but W-4413 has left."), 0);
        assert_eq!(run("Cancel W-4411, not W-4412.", &["W-4411"], "It is cancelled."), 0);
        assert_eq!(run(task, &[], "What is the reason?"), 0);
        assert_eq!(run("Refund W-4411, as you did for the order W-4412.", &["W-4411"], "It is refunded."), 0);
    }
}
