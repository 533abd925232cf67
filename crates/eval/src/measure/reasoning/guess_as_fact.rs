//! Guesses that are stated as facts: "it is probably 4310", and later "there were 4310 visitors".
//!
//! Principle: a value that a model was not certain of does not become certain by repetition. A value that entered the
//! run in a hedged sentence of a model, and that no result, instruction or message of a user has, remains a guess.
//!
//! In: the texts of models before the final answer of a run, and that answer. Out: a finding on the model span that
//! wrote the answer. Only numbers above [`MAX_SMALL_NUMBER`] are compared.

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::{Idx, Kind};

use super::answer::{MAX_ANSWER, final_answer};
use super::answer_span::answered_by;
use super::history::end_of;
use crate::measure::conversation::plain_text;
use crate::measure::defects::Defect;
use crate::measure::excerpt::{clip, head};
use crate::measure::language::ReadText;
use crate::measure::request::TaskDemands;
use crate::measure::{Finding, Memo, agent_index, numbers};
use crate::recognise::{AgentTrace, Content, Part, Role};

/// Maximum model calls of a trace that are read.
const MAX_TEXTS: usize = 2_000;
/// Maximum bytes of one text that are read.
const MAX_BYTES: usize = 16 << 10;
/// Numbers up to this one are taken for counts, ranks and days, and are not compared.
const MAX_SMALL_NUMBER: f64 = 20.0;

/// Findings by agent and model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(usize, Idx, Finding)> {
    let outermost = trace.agents.iter().enumerate().filter(|(_, agent)| agent.parent.is_none());
    outermost.filter_map(|(i, _)| check_run(trace, memo, i)).collect()
}

/// The finding on the answer of an outermost agent.
fn check_run(trace: &AgentTrace, memo: &Memo, i: usize) -> Option<(usize, Idx, Finding)> {
    let agent = trace.agents.get(i)?;
    let task = agent_index::task(trace, i)?;
    let demands = TaskDemands::cached(task, memo);
    if !demands.asks_for_facts(memo) || demands.asks_for_estimate() {
        return None;
    }
    let at = answered_by(trace, memo, agent)?;
    let view = trace.views.get(at).filter(|view| view.kind == Kind::Llm)?;
    if view.output_content != Content::Present || trace.evidence(at).is_partial() {
        return None;
    }
    let answer = final_answer(&trace.control_tools, view)?;
    let answer = clip(&answer, MAX_ANSWER);
    let answer_text = ReadText::new(answer, Some(task), memo);
    let hedged: HashSet<&str> = answer_text.hedges().into_iter().chain(answer_text.inability()).collect();
    let mut stated_numbers: Vec<(f64, &str)> = Vec::new();
    for language in answer_text.languages() {
        for (sentence, _) in answer_text.classified(language, []).filter(|(s, _)| !s.is_question) {
            if !hedged.contains(sentence.text) {
                let large_numbers = numbers::all(sentence.text)
                    .into_iter()
                    .filter(|n| !n.in_identifier && n.value > MAX_SMALL_NUMBER);
                stated_numbers.extend(large_numbers.map(|n| (n.value, sentence.text)));
            }
        }
    }
    if stated_numbers.is_empty() || !hedged.is_empty() {
        return None;
    }
    let guesses = guesses(trace, memo, at, task, &stated_numbers)?;
    let (value, sentence) =
        stated_numbers.iter().find(|(value, _)| guesses.contains_key(&value.to_bits()))?;
    let (guessed, origin) = guesses.get(&value.to_bits())?;
    let rationale = format!(
        "a value from a result or the request was expected; {value} was a guess (\"{}\"), which nothing confirmed, and \
         is stated as a fact",
        head(guessed.trim(), 100)
    );
    let finding = Defect::GuessStated.finding(rationale, sentence.trim()).citing_at(trace, *origin);
    Some((i, at, finding))
}

/// The stated numbers whose only source in the run is a hedged sentence of a model, by the bits of the number, each
/// with the sentence and its model span; `None` if there are none, or beyond the work budget.
fn guesses(
    trace: &AgentTrace,
    memo: &Memo,
    answer: Idx,
    task: &str,
    stated_numbers: &[(f64, &str)],
) -> Option<HashMap<u64, (String, Idx)>> {
    let wanted: HashSet<u64> = stated_numbers.iter().map(|(value, _)| value.to_bits()).collect();
    let end = end_of(trace, answer);
    let is_before = |at: Idx| trace.tree.spans.get(at).is_some_and(|span| span.end < end);
    let mut guesses: HashMap<u64, (String, Idx)> = HashMap::default();
    let llms: Vec<Idx> = trace.agents.iter().flat_map(|agent| &agent.llms).copied().take(MAX_TEXTS).collect();
    for &at in &llms {
        let Some(view) = trace.views.get(at) else { continue };
        for part in view.output.iter().flat_map(|message| &message.parts) {
            let Part::Text(text) = part else { continue };
            if !is_before(at) || !memo.budget.spend(1 + text.len() / 4) {
                continue;
            }
            let text = clip(text, MAX_BYTES);
            let hedges = numbers::has_digit(text).then(|| ReadText::new(text, Some(task), memo).hedges());
            for sentence in hedges.into_iter().flatten() {
                let guessed_numbers =
                    numbers::all(sentence).into_iter().filter(|n| wanted.contains(&n.value.to_bits()));
                guessed_numbers
                    .for_each(|n| _ = guesses.entry(n.value.to_bits()).or_insert((sentence.to_owned(), at)));
            }
        }
    }
    if guesses.is_empty() {
        return None;
    }
    // Removes the numbers of a text; false beyond the work budget.
    let mut remove_confirmed = |text: &str| {
        let is_read = memo.budget.spend(1 + text.len() / 8);
        numbers::scan(text, |n| n.possible_values().for_each(|v| _ = guesses.remove(&v.to_bits())));
        is_read
    };
    let results = trace.calls.iter().filter_map(|call| call.result.as_deref());
    if !remove_confirmed(task) || !results.into_iter().all(&mut remove_confirmed) {
        return None;
    }
    // Texts that models wrote confirm nothing: in a group chat, the prompts of other agents repeat them as user
    // messages.
    let outputs = llms.iter().filter_map(|at| trace.views.get(*at)).flat_map(|view| &view.output);
    let model_texts: HashSet<&str> =
        outputs.flat_map(|message| &message.parts).filter_map(plain_text).map(|text| &**text).collect();
    for &at in &llms {
        let Some(view) = trace.views.get(at) else { continue };
        for message in view.input.iter().filter(|message| message.role != Role::Assistant) {
            for part in &message.parts {
                let (Part::Text(text) | Part::Result { content: text, .. }) = part else { continue };
                if !model_texts.contains(&**text) && !remove_confirmed(text) {
                    return None;
                }
            }
        }
    }
    Some(guesses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn finding_count(script: Script) -> usize {
        find(&script.build(), &Memo::new()).len()
    }

    const QUESTION: &str = "How many visitors did the museum have in March?";

    #[test]
    fn guess_that_is_stated_as_a_fact_is_found() {
        let run =
            |guess: &str| Script::new(QUESTION).calls("", &[("search", "{}")]).returns("no page").says(guess);
        for guess in ["It was probably 4310, as in other years.", "I think that there were 4310 of them."] {
            assert_eq!(
                finding_count(run(guess).answers("The museum had 4310 visitors in March.")),
                1,
                "{guess}"
            );
        }
        assert_eq!(
            finding_count(run("It was probably 4310.").answers("I think that it had 4310 visitors.")),
            0
        );
        assert_eq!(finding_count(run("It was probably 4310.").answers("The museum had 5125 visitors.")), 0);
    }

    #[test]
    fn guess_that_a_result_confirms_is_a_fact() {
        let run = Script::new(QUESTION)
            .says("It was probably 4310, I will look it up.")
            .calls("", &[("search", "{}")])
            .returns("March: 4310")
            .answers("The museum had 4310 visitors in March.");
        assert_eq!(finding_count(run), 0);
    }
}
