//! The context that a judge of one step is shown in addition to the step.

use std::sync::Arc as Shared;

use verdict_otlp::request::{Interner, split};
use verdict_otlp::trace::{Span, Tree};

use super::*;
use crate::measure::question_rounds::Questions;
use crate::measure::testing::{captured, tests};
use crate::recognise::{Overrides, Recogniser, Text, ToolDefinition};

const TOOL: &str = "tool_completeness";
const STEPS: [&str; 5] =
    [TOOL, "reasoning_integrity", "avoidance", "instruction_following", "error_detection"];

/// The page about the span `span_index`.
fn page_of(trace: &AgentTrace, metric: &str, span_index: usize) -> Ask {
    let asked = questions(trace, &settings(&[metric]));
    asked.into_iter().find(|ask| ask.at == span_index).expect("a question")
}

/// The text under the heading that contains `label`.
fn block(ask: &Ask, label: &str) -> Option<String> {
    let user = &ask.question.prompt.user;
    let start = user.find("\n<data ").unwrap() + 7;
    let mark = &user[start..start + 8];
    let heading = format!("\n[{mark} ");
    let mut parts = user.split(&heading);
    let found = parts.find(|part| part.lines().next().is_some_and(|heading| heading.contains(label)))?;
    Some(found.split_once("]\n").unwrap().1.split("\n</data").next().unwrap().to_owned())
}

#[test]
fn tool_call_is_shown_with_task_request_and_definition() {
    let mut trace = bridge();
    let definition = |description: Option<&str>| ToolDefinition {
        name: "search".into(),
        description: description.map(Text::from),
        parameters: description.map(|_| Shared::new(json!({ "type": "object" }))),
    };
    let asked = page_of(&trace, TOOL, 2);
    assert_eq!(
        block(&asked, "the task of its agent, agent").as_deref(),
        Some("When was the Kirchenfeld bridge in Bern opened?")
    );
    assert_eq!(block(&asked, "asked for it: llm | output]").as_deref(), Some("I look it up."));
    assert_eq!(block(&asked, "the definition of the judged tool").as_deref(), Some("search"));
    // The best definition is shown, wherever it is recorded.
    for span_index in [2, 0, 1, 3] {
        let mut trace = bridge();
        trace.views[span_index].tools = vec![definition(Some("Finds pages."))];
        let shown = block(&page_of(&trace, TOOL, 2), "the definition of the judged tool").unwrap();
        assert!(shown.starts_with("search: Finds pages. Parameters: {"), "{span_index}: {shown}");
    }
    // The definition of another tool is not shown.
    trace.views.iter_mut().for_each(|view| view.tools.clear());
    trace.views[0].tools = vec![ToolDefinition { name: "fetch".into(), ..definition(Some("Fetches.")) }];
    assert_eq!(block(&page_of(&trace, TOOL, 2), "the definition of the judged tool"), None);
}

#[test]
fn request_is_found_by_call_where_a_framework_nests_model_and_tool_apart() {
    let mut calls = 0;
    for trace in captured("langgraph-openllmetry-x") {
        for ask in questions(&trace, &settings(&[TOOL])) {
            let llm = trace.calls.iter().find(|call| call.tool == Some(ask.at)).unwrap().llm.unwrap();
            assert_ne!(trace.tree.parent(llm), trace.tree.parent(ask.at));
            let id = trace.tree.spans[llm].id.to_string();
            let heading = format!("span {id} | the model call that asked for it: ");
            assert!(ask.question.prompt.user.contains(&heading), "{}", ask.question.prompt.user);
            calls += 1;
        }
    }
    assert!(calls > 0);
}

#[test]
fn for_parallel_calls_the_request_of_the_judged_one_is_shown() {
    let trace = Script::new("Compare A and B.")
        .calls("Both.", &[("search", r#"{"q":"first"}"#), ("search", r#"{"q":"second"}"#)])
        .returns("result one")
        .returns("result two")
        .build();
    let asked = page_of(&trace, TOOL, 3);
    let request = block(&asked, "asked for it: llm | output, tool call").unwrap();
    assert!(request.contains("second") && !request.contains("first"), "{request}");
}

#[test]
fn steps_before_a_step_are_those_of_its_agent_and_not_repeated() {
    let trace = Script::new("How long is it, and who built it?")
        .calls("I ask.", &[("helper", r#"{"task":"find it"}"#)])
        .enter("Find the bridge.")
        .calls("", &[("search", r#"{"q":"bridge"}"#)])
        .returns("It is 229 m long.")
        .answers("229 m")
        .leave()
        .calls("", &[("search", r#"{"q":"builder"}"#)])
        .returns("Probst built it.")
        .answers("229 m; Probst.")
        .build();
    let tool = trace.calls.iter().find(|call| call.result.as_deref() == Some("Probst built it.")).unwrap().at;
    let asked = page_of(&trace, TOOL, tool);
    let user = &asked.question.prompt.user;
    assert!(block(&asked, "earlier: tool helper | result").is_some_and(|text| text == "229 m"), "{user}");
    assert!(!user.contains("It is 229 m long."), "a step of the helper: {user}");
    // The last model call received the results itself.
    let answer = trace.agents[0].answer_at.unwrap();
    let user = page_of(&trace, "reasoning_integrity", answer).question.prompt.user;
    assert_eq!(user.matches("Probst built it.").count(), 1, "{user}");
    assert_eq!(user.matches("How long is it, and who built it?").count(), 1, "{user}");
}

#[test]
fn later_steps_are_shown_only_if_the_metric_considers_them() {
    let trace = bridge();
    let first = page_of(&trace, "avoidance", 1);
    let followed = block(&first, "what followed: tool search | result").unwrap();
    assert!(followed.starts_with("The Kirchenfeld bridge was opened"), "{followed}");
    let answer = block(&first, "what followed: llm | output").unwrap();
    assert!(answer.contains("1884"), "{answer}");
    let last = page_of(&trace, "avoidance", 3);
    assert_eq!(block(&last, "what followed").as_deref(), Some("(nothing: it is the last step of its agent)"));
    for (metric, span_index) in [("reasoning_integrity", 1), ("instruction_following", 1), (TOOL, 2)] {
        let user = page_of(&trace, metric, span_index).question.prompt.user;
        assert!(!user.contains("what followed") && !user.contains("in 1884"), "{metric}: {user}");
    }
}

#[test]
fn a_model_call_within_a_tool_is_shown_the_arguments_of_the_tool() {
    let mut trace = bridge();
    let spans = |trace: &AgentTrace| trace.tree.spans.to_vec();
    let mut moved: Vec<Span> = spans(&trace);
    let tool = moved[2].id;
    moved[3].parent = tool;
    trace.tree = Tree::new(trace.tree.id, moved);
    let asked = page_of(&trace, "reasoning_integrity", 3);
    let around = block(&asked, "what the tool search around it was asked").unwrap();
    assert_eq!(around, r#"{"q":"Kirchenfeld bridge"}"#);
}

#[test]
fn content_of_withheld_services_is_in_no_page_about_another_step() {
    // The span that is withheld, its text, the metric and the span of the question.
    let cases = [
        (0, "When was the", TOOL, 2),
        (1, "I look it up.", TOOL, 2),
        (1, "Secret index.", TOOL, 2),
        (2, "Kirchenfeld bridge was opened", "avoidance", 1),
        (3, "in 1884", "avoidance", 1),
    ];
    for (hidden, text, metric, judged_span) in cases {
        let mut trace = bridge();
        trace.views.iter_mut().for_each(|view| view.service = Some("shop".into()));
        trace.views[hidden].service = Some("vault".into());
        trace.views[1].tools = vec![ToolDefinition {
            name: "search".into(),
            description: Some("Secret index.".into()),
            parameters: None,
        }];
        let open = page_of(&trace, metric, judged_span).question.prompt.user;
        assert!(open.contains(text), "{text}: {open}");
        let settings = asked_with(settings(&[metric]), |ask| ask.withhold = vec!["vault".into()]);
        let asked = questions(&trace, &settings);
        let user = &asked.iter().find(|ask| ask.at == judged_span).unwrap().question.prompt.user;
        assert!(!user.contains(text) && user.contains("(withheld)"), "{text}: {user}");
    }
}

#[test]
fn every_shown_span_counts_among_the_services_of_a_question() {
    let mut trace = bridge();
    for (span_index, service) in ["front", "brain", "tools", "writer"].into_iter().enumerate() {
        trace.views[span_index].service = Some(service.into());
    }
    let services = |metric: &str, span_index: usize| {
        let ask = page_of(&trace, metric, span_index);
        ask.services.iter().map(|service| service.to_string()).collect::<Vec<_>>()
    };
    // Task of the agent, request of the model, the call.
    assert_eq!(services(TOOL, 2), ["brain", "front", "tools"]);
    // Its own input states the task; the later steps are the tool call and the next model call.
    assert_eq!(services("avoidance", 1), ["brain", "tools", "writer"]);
    assert_eq!(services("instruction_following", 1), ["brain"]);
    trace.views[0].tools = vec![ToolDefinition {
        name: "search".into(),
        description: Some("Finds pages.".into()),
        parameters: None,
    }];
    trace.agents[0].task_at = Some(1);
    trace.views[1].service = Some("front".into());
    let ask = page_of(&trace, TOOL, 2);
    assert_eq!(ask.services.iter().map(|s| &**s).collect::<Vec<_>>(), ["front", "tools"]);
}

#[test]
fn pages_about_steps_keep_to_the_limit_of_tokens() {
    let long = "many words about it ".repeat(4_000);
    let arguments = json!({ "q": long }).to_string();
    let mut script = Script::new(&long).system(&long).tools(&["search"]);
    for _ in 0..12 {
        script = script.calls(&long, &[("search", &arguments)]).returns(&long);
    }
    let mut trace = script.answers(&long).build();
    for view in &mut trace.views {
        view.name = Some("n".repeat(300).as_str().into());
        for tool in &mut view.tools {
            tool.description = Some(long.as_str().into());
        }
    }
    for max_tokens in [6_000, 8_000, 24_000] {
        let settings = asked_with(settings(&STEPS), |ask| ask.max_prompt_tokens = max_tokens);
        let asked = questions(&trace, &settings);
        assert!(asked.len() > 40);
        for ask in asked {
            assert!(
                tokens_of(&ask) <= max_tokens,
                "{} on {}: {} tokens",
                ask.metric,
                ask.at,
                tokens_of(&ask)
            );
        }
    }
}

/// Every question that is asked while spans arrive in the order in which they end is one of those about the closed
/// trace: otherwise it would be asked, and paid for, twice.
#[test]
fn questions_about_an_open_trace_are_those_about_the_closed_one() {
    const CHECKLIST: &str = "checklist.verdict";
    let (mut early_questions, mut early_checklists) = (0, 0);
    let recogniser = Recogniser::new(&Overrides::default()).unwrap();
    let mut settings = settings(&STEPS);
    (settings.checklist.generate, settings.checklist.judges) = (true, vec!["main".to_owned()]);
    let prompts_of = |trace: &AgentTrace, is_early: bool| {
        let inputs = JudgeInputs { trace, settings: &settings, rule_measurements: &[] };
        let mut rounds = if is_early { Questions::early(inputs, &[]) } else { Questions::new(inputs, &[]) };
        std::iter::from_fn(|| rounds.next_question())
            // Until the span of the agent comes, another span represents it.
            .map(|ask| (Some(trace.tree.spans[ask.at].id).filter(|_| ask.metric != CHECKLIST), ask))
            .map(|(id, ask)| (id, ask.metric, ask.question.prompt.system, ask.question.prompt.user))
            .collect::<Vec<_>>()
    };
    for name in [
        "strands-c",
        "langgraph-openllmetry-x",
        "langgraph-openinference-m",
        "openaiagents-openinference-responses-b",
        "pydanticai-b",
        "vercelai-e",
    ] {
        let file = tests().join("../demo").join(name).join("001.pb");
        let Ok(body) = std::fs::read(&file) else { panic!("{}", file.display()) };
        for group in split(&body, "verdict.", &Interner::default()).unwrap().groups {
            let mut spans: Vec<Span> = group.spans;
            spans.sort_by_key(|span| span.end);
            let closed = recogniser.trace(Tree::new(group.trace, spans.clone()), &[], false);
            let late = prompts_of(&closed, false);
            for n in 1..=spans.len() {
                let tree = Tree::new(group.trace, spans[..n].to_vec());
                for early in prompts_of(&recogniser.open_trace(tree, &[]), true) {
                    early_questions += 1;
                    early_checklists += usize::from(early.1 == CHECKLIST && n < spans.len());
                    assert!(late.contains(&early), "{name}, {n} of {} spans: {early:?}", spans.len());
                }
            }
        }
    }
    assert!(early_questions > 20 && early_checklists > 5, "{early_questions}, {early_checklists}");
}
