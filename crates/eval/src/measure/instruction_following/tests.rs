//! Tests of `instruction_following`: violations that are found, and outputs without one.

use proptest::prelude::*;

use super::prompt::{LengthUnit, system_message, user_instructions};
use super::*;
use crate::measure::Value;
use crate::measure::sample::{SampleTrace, llm, measure as run, text_message, with_tool_request};
use crate::measure::testing::Script;

fn rules(text: &str) -> Vec<OutputRule> {
    user_instructions(text).into_iter().map(|i| i.rule).collect()
}

/// The score of one model call with this system prompt and output.
fn score(system: &str, output: &str) -> Option<f64> {
    let mut sample = SampleTrace::new();
    let span_index = sample
        .span(None, llm(vec![text_message(Role::System, system), text_message(Role::User, "Go.")], output));
    match run("instruction_following", &sample.trace(), span_index)[0].outcome.as_ref().ok()?.value {
        Value::Score(score) => Some(score),
        _ => None,
    }
}

#[test]
fn instructions_about_the_output_are_read() {
    let cases: [(&str, OutputRule); 17] = [
        (
            "After writing the final step of the plan, write the '\n<end_plan>' tag and stop there.",
            OutputRule::EndsWith("<end_plan>".into()),
        ),
        ("End your response with the phrase \"Over and out\".", OutputRule::EndsWith("Over and out".into())),
        ("Your answer must start with 'ANSWER:'.", OutputRule::StartsWith("ANSWER:".into())),
        ("Put your final answer inside <answer></answer> tags.", OutputRule::Enclosed("answer".into())),
        ("Respond with valid JSON only, no prose.", OutputRule::OnlyJson),
        ("Only output JSON.", OutputRule::OnlyJson),
        ("Answer with only 'yes' or 'no'.", OutputRule::OnlyYesOrNo),
        ("Reply with just a number.", OutputRule::OnlyNumber),
        ("Answer with a number and the unit.", OutputRule::HasNumber),
        ("Answer in at most 50 words.", OutputRule::AtMost(50, LengthUnit::Words)),
        ("Summarize the text in one sentence.", OutputRule::AtMost(1, LengthUnit::Sentences)),
        ("Keep your reply under 280 characters.", OutputRule::AtMost(280, LengthUnit::Characters)),
        ("Do not wrap the output in code fences.", OutputRule::NoFence),
        ("Never use the word \"synergy\".", OutputRule::Forbidden("synergy".into())),
        ("Only call one tool at a time.", OutputRule::OneCall),
        (
            "You must call the lookup_order tool before you answer.",
            OutputRule::UseTool("lookup_order".into()),
        ),
        ("Never answer from memory.", OutputRule::UseSomeTool),
    ];
    for (text, rule) in cases {
        assert!(rules(text).contains(&rule), "{text}: {:?}", rules(text));
    }
}

#[test]
fn conditional_or_unrelated_sentences_are_not_instructions() {
    for text in [
        "If the user asks for data, respond with JSON only.",
        "When the task is done, end your reply with \"TERMINATE\".",
        "The tool returns JSON only.",
        "For example, answer with only 'yes' or 'no'.",
        "Could you answer in one sentence?",
        "Each bullet should be at most 10 words.",
        "The title of the report must be under 60 characters.",
        "```\nRespond with valid JSON only.\n```",
        "<example>Answer with only 'yes' or 'no'.</example>",
        "The code sequence must end with '<end_code>' sequence.",
        "Always use the right arguments for the tools.",
        "You should only use this tool with a correct input.",
        "The essay of 500 words was returned.",
        "Which novel has the number of words in its title?",
    ] {
        assert_eq!(rules(text), [], "{text}");
    }
}

#[test]
fn missing_closing_tag_scores_three() {
    let system = "After writing the final step of the plan, write the '\n<end_plan>' tag and stop there.";
    assert_eq!(score(system, "1. Search.\n2. Answer.\n"), Some(3.0));
    assert_eq!(score(system, "1. Search.\n2. Answer.\n<end_plan>"), Some(5.0));
    // An instruction about plans does not apply to other outputs.
    assert_eq!(score(system, "I will search."), None);
}

#[test]
fn format_rules_are_checked_against_the_output() {
    let json = "Respond with valid JSON only.";
    assert_eq!(score(json, "{\"a\": [1, 2]}"), Some(5.0));
    assert_eq!(score(json, "```json\n{\"a\": 1}\n```"), Some(5.0));
    assert_eq!(score(json, "Here it is: {\"a\": 1}"), Some(3.0));
    assert_eq!(score(json, "{\"a\": 1"), Some(3.0));
    let words = "Answer in at most 10 words.";
    assert_eq!(score(words, "It is 836 metres taller."), Some(5.0));
    assert_eq!(score(words, &"word ".repeat(12)), Some(3.0));
    assert_eq!(score("Answer with only yes or no.", "Yes."), Some(5.0));
    assert_eq!(score("Answer with only yes or no.", "Yes, because it is."), Some(3.0));
    assert_eq!(score("Do not use code fences.", "```py\n1\n```"), Some(3.0));
    assert_eq!(score("Never use the word 'cheap'.", "It is cheaper."), Some(5.0));
    assert_eq!(score("Never use the word 'cheap'.", "It is Cheap."), Some(3.0));
    assert_eq!(score("Put the answer inside <answer></answer> tags.", "<answer>7</answer>"), Some(5.0));
    assert_eq!(score("Put the answer inside <answer></answer> tags.", "<answer>7"), Some(3.0));
}

#[test]
fn abbreviations_do_not_end_a_sentence() {
    let rule = "Answer in one sentence.";
    assert_eq!(
        score(rule, "Mt. Elbrus (5642 m) is 836.5 m taller than Mt. Blanc, i.e. the U.S. figure."),
        Some(5.0)
    );
    assert_eq!(score(rule, "It is taller. The difference is 836 m."), Some(3.0));
}

#[test]
fn second_call_violates_a_limit_of_one() {
    let view = llm(vec![text_message(Role::System, "Only call one tool at a time.")], "");
    let mut sample = SampleTrace::new();
    let one = sample.span(None, with_tool_request(view.clone(), "search", "{}"));
    let two = sample.span(None, with_tool_request(with_tool_request(view, "search", "{}"), "visit", "{}"));
    let trace = sample.trace();
    assert!(run("instruction_following", &trace, one)[0].outcome.as_ref().unwrap().passed);
    let out = run("instruction_following", &trace, two);
    assert_eq!(out[0].outcome.as_ref().unwrap().findings[0].quote, "visit");
}

#[test]
fn answer_without_the_required_tool_is_a_violation() {
    let script_with_limit = || {
        Script::new("Where is order 7?")
            .system("You must call the lookup_order tool.")
            .tools(&["lookup_order"])
    };
    let without_call = script_with_limit().answers("The order 7 left the warehouse yesterday.").build();
    let span_index = without_call.agents[0].answer_at.unwrap();
    assert!(!run("instruction_following", &without_call, span_index)[0].outcome.as_ref().unwrap().passed);
    let with_call = script_with_limit()
        .calls("", &[("lookup_order", "{\"id\":7}")])
        .returns("left the warehouse")
        .answers("The order 7 left the warehouse yesterday.")
        .build();
    let span_index = with_call.agents[0].answer_at.unwrap();
    assert!(run("instruction_following", &with_call, span_index)[0].outcome.as_ref().unwrap().passed);
}

#[test]
fn answer_instruction_does_not_apply_to_intermediate_steps() {
    let trace = Script::new("How tall?")
        .system("Respond with valid JSON only.")
        .says("I will think first.")
        .answers("{\"height\": 5642}")
        .build();
    let answer = trace.agents[0].answer_at.unwrap();
    assert!(run("instruction_following", &trace, answer)[0].outcome.as_ref().unwrap().passed);
    assert_eq!(run("instruction_following", &trace, 1)[0].outcome, Err(Unmeasured::NotApplicable));
}

#[test]
fn missing_content_is_unmeasured() {
    let trace =
        Script::new("How tall?").system("Respond with valid JSON only.").answers("x").build_without_content();
    assert_eq!(run("instruction_following", &trace, 1)[0].outcome, Err(Unmeasured::NoContent));
}

proptest! {
    #[test]
    fn any_prompt_and_output_is_read_without_panic(prompt in "\\PC{0,300}", output in "\\PC{0,100}") {
        let _ = system_message(&prompt);
        let wrapped = format!("Respond with JSON only. Answer in at most 2 words. End your reply with '{prompt}'.");
        for instruction in user_instructions(&wrapped) {
            let _ = check::violation(&instruction.rule, &output);
        }
    }
}
