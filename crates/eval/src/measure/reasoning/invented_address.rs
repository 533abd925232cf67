//! E-mail addresses and telephone numbers in an answer that no text contains: "appeals go to appeals@board.example".
//!
//! Principle: contact details are copied, never composed. An address or a number in an answer needs a message, an
//! instruction or a result that has it. Telephone numbers are compared by their last digits, without signs and spaces.
//! There is no finding if the request asks for an example or a test, which need invented data.
//!
//! In: the answer of an outermost agent with tools, its prompts and all results. Out: one finding, on the model span
//! that wrote the answer.

use std::ops::Range;

use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::invented_contact::joined_digits;
use crate::measure::conversation::{prompt_texts, writes_code};
use crate::measure::defects::Defect;
use crate::measure::language::{WordClass, classes_in};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, agent_index, currency};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Content;

/// Maximum bytes of an answer that is read.
const MAX_ANSWER_BYTES: usize = 16 << 10;
/// Maximum addresses and numbers of one answer that are compared.
const MAX_CONTACTS: usize = 8;
/// Minimum digits of a telephone number with its country code: "+12500" is a difference.
const MIN_PHONE_DIGITS: usize = 7;
/// Forms of "@" in texts that obscure addresses from programs, by conventions of no language.
const OBSCURED_AT: [&str; 6] = ["&#64;", "&commat;", "%40", "(at)", "[at]", " at "];
/// Number of last digits of a telephone number that are compared.
const COMPARED_DIGITS: usize = 6;

// An e-mail address. The last part of its domain begins with a letter, unlike in the version `lodash@4.17.21` or the
// login `deploy@10.20.0.14`.
regex!(ADDRESS, r"(?i)[a-z0-9][a-z0-9._+-]*@[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z][a-z0-9-]+");
// A telephone number in the international form: a country code and groups of digits.
regex!(PHONE, r"\+\d{1,3}[ \u{2011}-]?\(?\d{2,5}\)?(?:[ /\u{2011}-]?\d{2,5}){1,4}\b");

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent, agent_index, .. } = *conduct;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    let is_examined = agent.parent.is_none() && !agent.tools.is_empty() && !trace.incomplete;
    if !is_examined
        || answer.len() > MAX_ANSWER_BYTES
        || !memo.budget.spend(1 + answer.len() / BYTES_PER_STEP)
    {
        return None;
    }
    let may_have_contact = memchr::memchr2(b'@', b'+', answer.as_bytes()).is_some();
    let is_address = |text: &str| !text.starts_with('+') && text.contains('@');
    let phones = PHONE.find_iter(answer).filter(|number| is_phone(answer, number.range()));
    let contacts = ADDRESS.find_iter(answer).chain(phones).take(MAX_CONTACTS);
    let contacts: Vec<&str> =
        if may_have_contact { contacts.map(|contact| contact.as_str()).collect() } else { Vec::new() };
    if contacts.is_empty() || writes_code(answer) {
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
    let input_texts = prompts.chain(agent_index::instructions(trace, agent_index)).map(|text| &**text);
    let call_texts = trace.calls.iter().flat_map(|call| [call.result.as_deref(), call.arguments.as_deref()]);
    // Results of retrievers and memories are in views.
    let results = trace.views.iter().filter_map(|view| view.result.as_deref()).chain(call_texts.flatten());
    let texts: Vec<&str> = user_texts.iter().map(|text| &**text).chain(input_texts).chain(results).collect();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if !memo.budget.spend((1 + bytes / BYTES_PER_STEP) * (1 + contacts.len())) {
        return None;
    }
    let digits = |text: &str| joined_digits(text).trim().to_owned();
    let is_given = |stated: &&&str| match is_address(stated) {
        true => texts.iter().any(|text| contains_ignoring_case(text, stated) || has_obscured(text, stated)),
        false => {
            let stated_digits = digits(stated);
            let last =
                stated_digits.get(stated_digits.len().saturating_sub(COMPARED_DIGITS)..).unwrap_or_default();
            texts.iter().any(|text| digits(text).contains(last))
        }
    };

    let invented = contacts.iter().find(|stated| !is_given(stated))?;
    let rationale = format!(
        "an address or a telephone number of an earlier message or result was expected; the answer gives {invented}, which \
         none of them contains"
    );
    Some((agent.answer_at?, Defect::UnsupportedFact.finding(rationale, answer)))
}

/// Whether a number after "+" may be a telephone number: it has enough digits, and is not an amount of money or a
/// percentage.
fn is_phone(answer: &str, number: Range<usize>) -> bool {
    let digits = answer.get(number.clone()).map_or(0, |n| n.bytes().filter(u8::is_ascii_digit).count());
    let after = answer.get(number.end..).unwrap_or_default().trim_start_matches([' ', '\u{a0}']);
    digits >= MIN_PHONE_DIGITS && !after.starts_with('%') && !currency::is_beside(answer, number)
}

/// Whether a text has an address with another form of "@": "office (at) climb.example".
fn has_obscured(text: &str, address: &str) -> bool {
    let Some((name, domain)) = address.split_once('@') else { return false };
    let is_obscured = |at: &str| {
        [format!("{name}{at}{domain}"), format!("{name} {at} {domain}")]
            .iter()
            .any(|obscured| contains_ignoring_case(text, obscured))
    };
    contains_ignoring_case(text, domain) && OBSCURED_AT.into_iter().any(is_obscured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    fn run(task: &str, result: &str, answer: &str) -> usize {
        let script = Script::new(task).system("Answer from the documents.").tools(&["search_documents"]);
        let script = script.calls("", &[("search_documents", r#"{"query":"appeal"}"#)]).returns(result);
        findings_of(check, &script.answers(answer).build()).len()
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
            (task, "lodash 4.17.21", "It is lodash@4.17.21."),
            (task, "10.20.0.14, user deploy", "Use ssh deploy@10.20.0.14."),
            (task, "board (at) office.example", "Write to board@office.example."),
            (task, "board&#64;office.example", "Write to board@office.example."),
            (task, "88000, then 100500", "There were 100500 (+12500)."),
            (task, "310000 and 4435000", "It rose by +4 125 000 €."),
        ] {
            assert_eq!(run(task, result, answer), 0, "{answer}");
        }
    }
}
