//! The work of preparing questions, on traces with very many parts, calls or spans.

use verdict_otlp::work;

use super::*;
use crate::measure::sample::{SampleTrace, llm, text, text_message as message, tool};
use crate::recognise::{Content, Message, Part, Role, ToolRequest};

/// The ratio of the sizes of the larger and the smaller trace.
const SIZE_RATIO: u64 = 10;
const SMALL_SIZE: usize = 60;
const METRICS: [&str; 5] =
    ["tool_completeness", "reasoning_integrity", "avoidance", "instruction_following", "error_detection"];

/// Many parts in the instructions of one model call.
fn instructions(n: usize) -> AgentTrace {
    let parts = (0..n).map(|i| Part::Text(text(&format!("rule {i}")))).collect();
    let mut sample = SampleTrace::new();
    sample.span(None, llm(vec![Message { role: Role::System, parts }, message(Role::User, "do it")], "done"));
    sample.trace()
}

/// Many calls of one message, each with its span.
fn calls_of_one_message(n: usize) -> AgentTrace {
    let requests: Vec<(String, String)> =
        (0..n).map(|i| ("look".to_owned(), format!(r#"{{"n":{i}}}"#))).collect();
    let requests: Vec<(&str, &str)> =
        requests.iter().map(|(name, arguments)| (name.as_str(), arguments.as_str())).collect();
    let asked = Script::new("Look everywhere.").calls("I look.", &requests);
    requests.iter().fold(asked, |script, _| script.returns("found")).answers("Done.").build()
}

/// A model call with a long prompt and many requests, and after it many tools at the same time that others requested.
fn tools_after_one_call(n: usize) -> AgentTrace {
    let mut sample = SampleTrace::new();
    let top = sample.span(None, llm(Vec::new(), "I begin."));
    let mut first = llm((0..n).map(|i| message(Role::User, &format!("page {i}"))).collect(), "");
    let call =
        |i| Part::Call(ToolRequest { id: None, name: text("other"), arguments: Some(text(&format!("{i}"))) });
    first.output = vec![Message { role: Role::Assistant, parts: (0..n).map(call).collect() }];
    sample.span(Some(top), first);
    for i in 0..n {
        sample.span(Some(top), tool("look", &format!(r#"{{"n":{i}}}"#), "found"));
    }
    let mut trace = sample.trace();
    (2..n + 2).for_each(|span_index| trace.tree.spans[span_index].end = 1_000_000);
    trace
}

/// A trace with a given number of parts, calls or spans.
type Shape = fn(usize) -> AgentTrace;

fn work_of(trace: &AgentTrace) -> u64 {
    let settings = settings(&METRICS);
    let inputs = JudgeInputs { trace, settings: &settings, rule_measurements: &[] };
    let mut rounds = Questions::new(inputs, &[]);
    let before = work::counted();
    let mut asked = 0;
    while rounds.next_question().is_some() {
        asked += 1;
    }
    assert!(asked > 0);
    work::counted() - before
}

#[test]
fn work_of_preparing_questions_grows_linearly() {
    let shapes: [(&str, Shape); 3] = [
        ("parts of the instructions", instructions),
        ("calls of one message", calls_of_one_message),
        ("tools after one call", tools_after_one_call),
    ];
    let growing: Vec<String> = shapes
        .into_iter()
        .filter_map(|(shape, make)| {
            let [small_work, large_work] =
                [SMALL_SIZE, SMALL_SIZE * SIZE_RATIO as usize].map(|n| work_of(&make(n)));
            let growth = large_work as f64 / (SIZE_RATIO * small_work) as f64;
            println!("{growth:.2} {shape}: {small_work}, {large_work}");
            (growth > 2.0).then(|| format!("{growth:.2} {shape}: {small_work}, {large_work}"))
        })
        .collect();
    assert_eq!(growing, Vec::<String>::new());
}

#[test]
fn content_of_a_step_is_charged_before_it_is_rendered() {
    let trace = instructions(SMALL_SIZE);
    let settings = settings(&["instruction_following"]);
    let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
    let mut rounds = Questions::new(inputs, &[]).within(SMALL_SIZE as u64, None);
    let before = work::counted();
    assert!(rounds.next_question().is_none());
    assert!(work::counted() - before < SMALL_SIZE as u64, "{}", work::counted() - before);
    let measured = rounds.finish(Unmeasured::Timeout);
    assert_eq!(measured[0].outcome, Err(Unmeasured::Limit));
    assert_eq!(trace.views[0].input_content, Content::Present);
}
