//! Spans that repeat output of a span of another service.

use super::*;
use crate::measure::Memo;
use crate::recognise::{Message, Part, Role};

const SECRET: &str = "PAYROLL pays 9000";
const TOOL: &str = "tool_completeness";
const MODEL: &str = "instruction_following";
const METRICS: [&str; 6] =
    [TOOL, MODEL, "reasoning_integrity", "avoidance", "error_detection", "gpa.goal_fulfillment"];

/// A tool of `payroll`, at 2, is called by an agent of `shop`, whose last prompt repeats the result after nine
/// further steps.
fn payroll_trace() -> AgentTrace {
    let first =
        Script::new("Shop: what does Ann earn?").calls("Shop: I ask.", &[("pay", "{}")]).returns(SECRET);
    let further = (0..9).fold(first, |script, i| {
        script.calls("", &[("look", &format!(r#"{{"n":{i}}}"#))]).returns(&format!("Shop: row {i}"))
    });
    let mut trace = further.answers("Shop: enough.").build();
    trace.views.iter_mut().for_each(|view| view.service = Some("shop".into()));
    trace.views[2].service = Some("payroll".into());
    trace
}

/// The messages of all prompts.
fn messages(trace: &mut AgentTrace) -> impl Iterator<Item = &mut Message> {
    trace.views.iter_mut().flat_map(|view| &mut view.input)
}

/// As [`payroll`], with a result in other words on the span of the tool.
fn in_other_words() -> AgentTrace {
    let mut trace = payroll_trace();
    trace.views[2].result = Some("[\"PAYROLL pays 9000\"]".into());
    trace
}

/// The trace, with the result repeated in each way.
fn traces_with_repetition() -> Vec<(&'static str, AgentTrace)> {
    let trace_without_call_ids = || {
        let mut trace = in_other_words();
        for part in messages(&mut trace).flat_map(|message| message.parts.iter_mut()) {
            if let Part::Result { id, .. } = part {
                *id = None;
            }
        }
        trace
    };
    let mut reused = in_other_words();
    reused.calls[3].id = reused.calls[0].id.clone();
    reused.calls[3].tool = None;
    let mut repeated_by_user = trace_without_call_ids();
    for message in messages(&mut repeated_by_user) {
        if matches!(&message.parts[..], [Part::Result { content, .. }] if &**content == SECRET) {
            let parts = vec![Part::Text(format!("Observation: {SECRET}").as_str().into())];
            *message = Message { role: Role::User, parts: parts.into() };
        }
    }
    let cases = [
        ("same text", payroll_trace()),
        ("id of the call", in_other_words()),
        ("unknown", trace_without_call_ids()),
    ];
    cases.into_iter().chain([("reused id", reused), ("message of the user", repeated_by_user)]).collect()
}

fn services(ask: &Ask) -> Vec<&str> {
    ask.services.iter().map(|service| &**service).collect()
}

#[test]
fn repeated_content_counts_as_content_of_the_service_that_produced_it() {
    for (case, trace) in traces_with_repetition() {
        let last = trace.agents[0].answer_at.unwrap();
        for ask in questions(&trace, &settings(&METRICS)) {
            let is_shown = ask.question.prompt.user.contains(SECRET);
            assert!(!is_shown || services(&ask).contains(&"payroll"), "{case}: {} at {}", ask.metric, ask.at);
            assert!(
                is_shown || ask.metric != MODEL || ask.at != last,
                "{case}: the last prompt has the result"
            );
        }
    }
    // Content that is known to be of one service is content of that service.
    let mut trace = payroll_trace();
    trace.views[2].service = Some("shop".into());
    let other_span = trace.views.len() - 2;
    trace.views[other_span].service = Some("payroll".into());
    for (metric, span_index) in [(MODEL, 1), (MODEL, 3), (MODEL, other_span - 1), (TOOL, 2)] {
        let asked = questions(&trace, &settings(&[metric]));
        assert_eq!(
            services(asked.iter().find(|ask| ask.at == span_index).unwrap()),
            ["shop"],
            "{metric} at {span_index}"
        );
    }
}

#[test]
fn repeated_withheld_content_is_not_shown() {
    let settings = asked_with(settings(&METRICS), |ask| ask.withhold = vec!["payroll".into()]);
    for (case, mut trace) in traces_with_repetition() {
        if case == "same text" {
            trace.agents[0].answer = Some(SECRET.into());
        }
        let asked = questions(&trace, &settings);
        assert!(asked.len() > 20 && asked.iter().any(|ask| ask.question.prompt.user.contains("Shop: row 8")));
        for ask in asked {
            assert!(!ask.question.prompt.user.contains("9000"), "{case}: {}", ask.question.prompt.user);
        }
    }
}

#[test]
fn spans_without_a_service_are_withheld_if_any_service_of_the_trace_is() {
    let settings = asked_with(settings(&METRICS), |ask| ask.withhold = vec!["payroll".into()]);
    let mut trace = payroll_trace();
    let row = trace.views.iter_mut().find(|view| view.result.as_deref() == Some("Shop: row 8")).unwrap();
    row.service = None;
    assert!(questions(&trace, &settings).iter().all(|ask| !ask.question.prompt.user.contains("Shop: row 8")));
    trace.views[2].service = Some("shop".into());
    assert!(questions(&trace, &settings).iter().any(|ask| ask.question.prompt.user.contains("Shop: row 8")));
}

/// A tool around an agent of another service returns the agent's output, perhaps in other words.
#[test]
fn result_of_a_tool_around_spans_of_another_service_counts_as_content_of_every_service() {
    let mut trace = Script::new("Shop: what does Ann earn?")
        .calls("Shop: I ask.", &[("ask", "{}")])
        .enter("Which salary?")
        .answers(SECRET)
        .leave()
        .answers("Shop: enough.")
        .build();
    trace.views.iter_mut().for_each(|view| view.service = Some("shop".into()));
    (3..5).for_each(|span_index| trace.views[span_index].service = Some("payroll".into()));
    for result in [SECRET, "They said: PAYROLL pays 9000!"] {
        trace.views[2].result = Some(result.into());
        let ask = questions(&trace, &settings(&[TOOL])).into_iter().find(|ask| ask.at == 2).unwrap();
        assert_eq!(services(&ask), ["payroll", "shop"]);
        let settings = asked_with(settings(&METRICS), |ask| ask.withhold = vec!["payroll".into()]);
        let asked = questions(&trace, &settings);
        assert!(!asked.is_empty());
        assert!(asked.iter().all(|ask| !ask.question.prompt.user.contains("9000")), "{result}");
    }
}

#[test]
fn nothing_is_asked_of_an_open_trace_while_content_is_withheld() {
    let (trace, settings) = (payroll_trace(), settings(&METRICS));
    let asked = |settings: &Settings| {
        let inputs = JudgeInputs { trace: &trace, settings, rule_measurements: &[] };
        Questions::early(inputs, &[]).next_question()
    };
    assert!(asked(&settings).unwrap().context.is_early);
    assert!(asked(&asked_with(settings, |ask| ask.withhold = vec!["other".into()])).is_none());
    let closed = questions(&trace, &super::settings(&METRICS));
    assert!(closed.iter().all(|ask| !ask.context.is_early));
}

#[test]
fn log_of_a_run_repeats_nothing_that_is_withheld() {
    use crate::measure::checklist::log::texts;
    let settings = asked_with(Settings::default(), |ask| ask.withhold = vec!["payroll".into()]);
    for (case, mut trace) in traces_with_repetition() {
        let last = trace.calls.len() - 1;
        let call = &mut trace.calls[last];
        (call.tool, call.result, call.failed) =
            (None, Some(format!("Error: {SECRET}, it says").as_str().into()), true);
        let all = texts(&trace, &Memo::new(), &trace.agents[0], None);
        assert!(all.iter().any(|text| text.text.contains("it failed: Error: PAYROLL")), "{case}: {all:#?}");
        let shown = texts(&trace, &Memo::new(), &trace.agents[0], Some(&settings.asker));
        assert!(shown.iter().all(|text| !text.text.contains("9000")), "{case}: {shown:#?}");
        assert!(shown.iter().any(|text| text.text.contains("it failed")), "{case}: {shown:#?}");
        assert!(shown.iter().any(|text| text.text.contains("Shop: row 3")), "{case}: {shown:#?}");
    }
}
