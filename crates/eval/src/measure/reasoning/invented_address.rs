//! E-mail addresses and telephone numbers of an answer that no text gave: "appeals go to appeals@board.example".
//!
//! Principle: where somebody can be reached is given and never composed. An address or a number that an answer states
//! needs a message, an instruction or a result that has it. Telephone numbers are compared by their last digits,
//! without signs and spaces. A request for a text, an example or a test may be answered by made-up ones.
//!
//! In: the answer of an outermost agent with tools, its prompts and all results. Out: one finding, on the model span
//! that gave the answer.

use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::invented_contact::joined_digits;
use crate::measure::conversation::{prompt_texts, writes_code};
use crate::measure::defects::Defect;
use crate::measure::language::{WordClass, classes_in};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, agent_index};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Content;

/// Most bytes of an answer that is read.
const MAX_ANSWER: usize = 16 << 10;
/// Most addresses and numbers of one answer.
const MAX_FOUND: usize = 8;
/// Digits of a telephone number that are compared, the last ones.
const COMPARED: usize = 6;

// An address, and a number in the international form: groups of digits behind the code of a country.
regex!(ADDRESS, r"(?i)[a-z0-9][a-z0-9._+-]*@[a-z0-9-]+(?:\.[a-z0-9-]+)+");
regex!(PHONE, r"\+\d{1,3}[ \u{2011}-]?\(?\d{2,5}\)?(?:[ /\u{2011}-]?\d{2,5}){1,4}\b");

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent, i, .. } = *conduct;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    let is_whole = agent.parent.is_none() && !agent.tools.is_empty() && !trace.incomplete;
    if !is_whole || answer.len() > MAX_ANSWER || !memo.budget.spend(1 + answer.len() / BYTES_PER_STEP) {
        return None;
    }
    let may_have = memchr::memchr2(b'@', b'+', answer.as_bytes()).is_some();
    let is_address = |text: &str| !text.starts_with('+') && text.contains('@');
    let found = ADDRESS.find_iter(answer).chain(PHONE.find_iter(answer)).take(MAX_FOUND);
    let found: Vec<&str> = if may_have { found.map(|found| found.as_str()).collect() } else { Vec::new() };
    if found.is_empty() || writes_code(answer) {
        return None;
    }
    let user_texts = conduct.user_messages();
    let is_example = |text: &str| {
        classes_in(text, None, memo)
            .is_none_or(|classes| classes.has(WordClass::MadeUp) || classes.has(WordClass::Example))
    };
    if user_texts.iter().any(|text| is_example(text)) {
        return None;
    }
    let prompts = agent.llms.iter().filter_map(|at| trace.views.get(*at)).flat_map(prompt_texts);
    let input_texts = prompts.chain(agent_index::instructions(trace, i)).map(|text| &**text);
    let call_texts = trace.calls.iter().flat_map(|call| [call.result.as_deref(), call.arguments.as_deref()]);
    // Also what retrievers and memories returned.
    let results = trace.views.iter().filter_map(|view| view.result.as_deref()).chain(call_texts.flatten());
    let texts: Vec<&str> = user_texts.iter().map(|text| &**text).chain(input_texts).chain(results).collect();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if !memo.budget.spend((1 + bytes / BYTES_PER_STEP) * (1 + found.len())) {
        return None;
    }
    let digits = |text: &str| joined_digits(text).trim().to_owned();
    let is_given = |stated: &&&str| match is_address(stated) {
        true => texts.iter().any(|text| contains_ignoring_case(text, stated)),
        false => {
            let wanted = digits(stated);
            let last = wanted.get(wanted.len().saturating_sub(COMPARED)..).unwrap_or_default();
            texts.iter().any(|text| digits(text).contains(last))
        }
    };
    // An answer writes to somebody whose address a hidden text has.
    let invented = found.iter().find(|stated| !is_given(stated))?;
    let rationale = format!(
        "an address or a telephone number of an earlier message or result was expected; the answer gives {invented}, which \
         none of them contains"
    );
    Some((agent.answer_at?, Defect::UnsupportedFact.finding(rationale, answer)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::found;
    use crate::measure::testing::Script;

    fn run(task: &str, result: &str, answer: &str) -> usize {
        let script = Script::new(task).system("Answer from the documents.").tools(&["search_documents"]);
        let script = script.calls("", &[("search_documents", r#"{"query":"appeal"}"#)]).returns(result);
        found(check, &script.answers(answer).build()).len()
    }

    #[test]
    fn address_that_no_text_gives_is_found() {
        let task = "How do I appeal?";
        let rules = "Appeals are made in writing to the board.";
        assert_eq!(run(task, rules, "Write to appeals@board.example."), 1);
        assert_eq!(run(task, rules, "Call the board: +44 20 7946 0018."), 1);
        assert_eq!(run("Wie lege ich Einspruch ein?", rules, "Rufen Sie +49 30 5550 1234 an."), 1);
    }

    #[test]
    fn address_that_is_given_or_asked_for_as_an_example_is_none() {
        let task = "How do I appeal?";
        for (task, result, answer) in [
            (task, "Write to Appeals@board.example.", "Write to appeals@board.example."),
            (task, r#"{"phone":"+442079460018"}"#, "Call the board: +44 20 7946 0018."),
            (task, r#"{"phone":"020 79460018"}"#, "Call the board: +44 20 7946 0018."),
            ("I am ana@post.example, how do I appeal?", "In writing.", "We answer to ana@post.example."),
            ("Give me an example of an address.", "In writing.", "For example jane@mail.example."),
            (task, "It was 5 more.", "That is +15 in the year 2026-04-01."),
            (task, "In writing.", "Call the board on 0800 555123."),
        ] {
            assert_eq!(run(task, result, answer), 0, "{answer}");
        }
    }
}
