//! Scenarios of `reasoning_integrity`: the situations of paper 001 (figure 3, table 3), and at least as
//! many without a defect.

use verdict_otlp::trace::Idx;

use super::*;
use crate::measure::testing::{Script, row};
use crate::measure::{Measured, Memo, Settings, Value};
use crate::recognise::AgentTrace;

mod amounts;
mod conduct;
mod figures;
mod grounding;
mod values;

const TASK: &str =
    "How many metres taller is Mount Elbrus than Mont Blanc, according to the Alpine Almanac page?";
const TOOLS: [&str; 3] = ["web_search", "visit_page", "calculator"];
const SEARCH_RESULT: &str =
    "1. Alpine Almanac - Elbrus https://almanac.example/elbrus\n2. Travel blog https://blog.example/e";
const PAGE: &str = "Alpine Almanac. Mount Elbrus: 5642 m. Mont Blanc: 4806 m. Last revised 2025-03-02.";
const URL_ERROR: &str = "Error: invalid url 'almanac.example/elbrus': the scheme https:// is required";

fn outcome_at(trace: &AgentTrace, at: Idx) -> Result<Measured, Unmeasured> {
    let (settings, memo) = (Settings::default(), Memo::new());
    let context = Context {
        row: row("reasoning_integrity"),
        trace,
        at,
        settings: &settings,
        memo: &memo,
        rule_measurements: &[],
    };
    measure(&context).expect("the metric exists on LLM spans").outcome
}

fn findings(trace: &AgentTrace) -> Vec<(Idx, String)> {
    let llms = trace.views.iter().enumerate().filter(|(_, r)| r.kind == Kind::Llm).map(|(at, _)| at);
    llms.filter_map(|at| outcome_at(trace, at).ok().map(|m| (at, m)))
        .flat_map(|(at, m)| m.findings.into_iter().map(move |f| (at, f.rationale)))
        .collect()
}

fn last_llm(trace: &AgentTrace) -> Idx {
    trace.agents.iter().flat_map(|a| a.llms.last().copied()).max().expect("an LLM span")
}

fn searched() -> Script {
    Script::new(TASK)
        .system("Use the tools. Every number in the final answer must come from a visited page.")
        .tools(&TOOLS)
        .calls("I will search for the page first.", &[("web_search", r#"{"query":"Alpine Almanac"}"#)])
        .returns(SEARCH_RESULT)
}

fn visited() -> Script {
    searched().calls("", &[("visit_page", r#"{"url":"https://almanac.example/elbrus"}"#)]).returns(PAGE)
}

#[test]
fn correct_run_scores_five() {
    let trace = visited()
        .calls("", &[("calculator", r#"{"expression":"5642-4806"}"#)])
        .returns("836")
        .answers("Mount Elbrus is 836 metres taller than Mont Blanc (5642 m - 4806 m, Alpine Almanac).")
        .build();
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
    let last = outcome_at(&trace, last_llm(&trace)).unwrap();
    assert!(last.passed && last.value == Value::Score(5.0));
}

#[test]
fn arithmetic_on_recorded_values_passes() {
    let trace = visited().answers("I checked the Alpine Almanac page: 5642 m - 4806 m = 836 m.").build();
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
}

#[test]
fn answer_from_memory_after_failed_calls_fails() {
    let mut script = searched();
    for _ in 0..2 {
        script =
            script.calls("", &[("visit_page", r#"{"url":"almanac.example/elbrus"}"#)]).returns(URL_ERROR);
    }
    let trace = script
        .answers("After several attempts I could not open the page. From memory Mount Elbrus is roughly 800 metres taller than Mont Blanc.")
        .build();
    let last = outcome_at(&trace, last_llm(&trace)).unwrap();
    assert!(!last.passed && last.value == Value::Score(2.0));
    assert!(last.findings[0].quote.starts_with("From memory"), "{:?}", last.findings);
    // The repetition of the failed call is found on the span that requested it.
    let repeated = trace.calls[2].llm.unwrap();
    let found = outcome_at(&trace, repeated).unwrap();
    assert!(!found.passed && found.findings[0].rationale.contains("visit_page"));
    assert_eq!(
        outcome_at(&trace, trace.calls[1].llm.unwrap()),
        Err(Unmeasured::NotApplicable),
        "no failed call before"
    );
}

#[test]
fn unsupported_answer_with_false_claim_has_two_findings() {
    let trace = Script::new(TASK)
        .system("Use the tools. Every number in the final answer must come from a visited page.")
        .tools(&TOOLS)
        .answers("I checked the Alpine Almanac page: Mount Elbrus is 6012 m and Mont Blanc is 4806 m, so Mount Elbrus is 1206 metres taller. I verified this figure with the calculator.")
        .build();
    let found = findings(&trace);
    assert!(found.iter().any(|(_, r)| r.contains("6012")), "{found:?}");
    assert!(found.iter().any(|(_, r)| r.contains("calculator was never called")), "{found:?}");
    let claims = found.iter().filter(|(_, r)| r.contains("supports the claim")).count();
    assert!(claims == 2 && found.iter().any(|(_, r)| r.contains("no tool had been called")), "{found:?}");
}

#[test]
fn wrong_number_without_its_calculation_fails() {
    let trace = visited()
        .answers("Mount Elbrus is 846 metres taller than Mont Blanc. The difference was computed with the calculator and both heights were confirmed on a second source.")
        .build();
    let found = findings(&trace);
    assert!(found.iter().any(|(_, r)| r.contains("846")), "{found:?}");
    assert!(found.iter().any(|(_, r)| r.contains("calculator was never called")), "{found:?}");
}

#[test]
fn unsupported_report_of_sub_agent_is_not_evidence() {
    let trace = Script::new(TASK)
        .tools(&["search_agent"])
        .calls("", &[("search_agent", r#"{"task":"How high are both mountains?"}"#)])
        .enter("How high are Mount Elbrus and Mont Blanc, according to the Alpine Almanac page?")
        .tools(&["visit_page"])
        .calls("", &[("visit_page", r#"{"url":"almanac.example/elbrus"}"#)])
        .returns(URL_ERROR)
        .answers("The page could not be opened; from memory Mount Elbrus is about 5600 m and Mont Blanc about 4800 m.")
        .leave()
        .answers("Mount Elbrus is about 800 metres taller than Mont Blanc.")
        .build();
    let (manager, helper) = (trace.agents[0].answer_at.unwrap(), trace.agents[1].answer_at.unwrap());
    assert!(!outcome_at(&trace, helper).unwrap().passed);
    assert!(!outcome_at(&trace, manager).unwrap().passed, "800 is 5600 - 4800, but neither is in a result");
}

#[test]
fn supported_report_of_sub_agent_is_evidence() {
    let trace = Script::new(TASK)
        .tools(&["search_agent"])
        .calls("", &[("search_agent", r#"{"task":"How high are both mountains?"}"#)])
        .enter("How high are Mount Elbrus and Mont Blanc, according to the Alpine Almanac page?")
        .tools(&["visit_page"])
        .calls("", &[("visit_page", r#"{"url":"https://almanac.example/elbrus"}"#)])
        .returns(PAGE)
        .answers("Mount Elbrus 5642 m, Mont Blanc 4806 m (Alpine Almanac).")
        .leave()
        .answers("Mount Elbrus is 836 metres taller than Mont Blanc.")
        .build();
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
}

#[test]
fn answer_after_recovered_error_passes() {
    let trace = searched()
        .calls("", &[("visit_page", r#"{"url":"https://almanac.example/elbrus-2019"}"#)])
        .raises("PageNotFound: 404 for https://almanac.example/elbrus-2019")
        .calls(
            "That page is gone; I will try the current one.",
            &[("visit_page", r#"{"url":"https://almanac.example/elbrus"}"#)],
        )
        .returns(PAGE)
        .answers("Mount Elbrus is 836 metres taller than Mont Blanc.")
        .build();
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
}

#[test]
fn empty_last_output_fails_on_its_span() {
    let trace = searched().says("").build();
    let last = outcome_at(&trace, last_llm(&trace)).unwrap();
    assert_eq!((last.passed, last.value), (false, Value::Score(1.0)));
    let cut = searched().says("").incomplete().build();
    assert_eq!(outcome_at(&cut, last_llm(&cut)), Err(Unmeasured::NotApplicable));
}

#[test]
fn answer_without_tools_is_not_checked() {
    let trace = Script::new("How high is Mount Elbrus?").answers("Mount Elbrus is 5642 metres high.").build();
    assert_eq!(outcome_at(&trace, last_llm(&trace)), Err(Unmeasured::NotApplicable));
    let trace = Script::new("What is the capital of France?")
        .tools(&TOOLS)
        .answers("Paris, a city of 2,102,650 people.")
        .build();
    assert_eq!(outcome_at(&trace, last_llm(&trace)), Err(Unmeasured::NotApplicable));
}

#[test]
fn plans_thoughts_and_fiction_are_not_checked() {
    let trace = searched()
        .says("Plan: 1. Read 5000 pages. 2. Compute 777 differences.")
        .calls("I expect 5642 m or 5555 m.", &[("visit_page", r#"{"url":"https://almanac.example/elbrus"}"#)])
        .returns(PAGE)
        .answers("836 m")
        .build();
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
    let trace = Script::new("Write a story about a mountain. How many goats live there?")
        .tools(&TOOLS)
        .calls("", &[("web_search", r#"{"query":"goats"}"#)])
        .returns("goats live on mountains")
        .answers("Once upon a time 1234 goats lived at 5,555 m.")
        .build();
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
}

#[test]
fn facts_are_not_checked_when_content_is_missing() {
    // A result that is not recorded may contain the number.
    let mut trace = visited().answers("Mount Elbrus is 999 metres taller than Mont Blanc.").build();
    trace.calls[1].result = None;
    for view in &mut trace.views {
        for message in &mut view.input {
            message.parts.retain(|p| !matches!(p, crate::recognise::Part::Result { .. }));
        }
    }
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
    // An image may contain it as well.
    let mut trace = visited().answers("Mount Elbrus is 999 metres taller than Mont Blanc.").build();
    let last = last_llm(&trace);
    trace.views[last].input[1].parts.push(crate::recognise::Part::Media);
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
}

#[test]
fn missing_output_is_unmeasured() {
    let trace = visited().answers("836 m").build_without_content();
    for agent in &trace.agents {
        for &at in &agent.llms {
            assert_eq!(outcome_at(&trace, at), Err(Unmeasured::NoContent));
        }
    }
}

#[test]
fn claims_backed_by_calls_pass() {
    let trace = visited()
        .calls("", &[("calculator", r#"{"expression":"5642-4806"}"#)])
        .returns("836")
        .answers(
            "I searched the web, read the Almanac page and verified the result with the calculator: 836 m.",
        )
        .build();
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
}

#[test]
fn claim_to_have_read_a_document_of_the_prompt_passes() {
    let long = "The valley lies between two ranges. ".repeat(80);
    let trace = Script::new(&format!("What does the page say? {long}"))
        .tools(&TOOLS)
        .answers("I have read the page: the valley lies between two ranges.")
        .build();
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
}

#[test]
fn successful_retry_is_not_a_finding() {
    let trace = searched()
        .calls("", &[("visit_page", r#"{"url":"https://almanac.example/elbrus"}"#)])
        .raises("HTTP 503 Service Unavailable")
        .calls("", &[("visit_page", r#"{"url":"https://almanac.example/elbrus"}"#)])
        .returns(PAGE)
        .answers("836 m")
        .build();
    assert!(findings(&trace).is_empty(), "{:?}", findings(&trace));
}

#[test]
fn claim_to_have_read_after_failed_visits_fails() {
    let trace = Script::new(TASK)
        .tools(&TOOLS)
        .calls("", &[("visit_page", r#"{"url":"almanac.example/elbrus"}"#)])
        .returns(URL_ERROR)
        .answers("I checked the Alpine Almanac page and Mount Elbrus is taller.")
        .build();
    let found = findings(&trace);
    assert!(found.iter().any(|(_, r)| r.contains("every call before it had failed")), "{found:?}");
}

#[test]
fn particulars_after_lookups_that_found_nothing_fail_where_they_are_stated() {
    let run_answer = |result: &str, answer: &str| {
        let script =
            Script::new("When does the ferry to Norderney leave on Sunday?").tools(&["search_timetable"]);
        let script = script.calls("", &[("search_timetable", r#"{"to":"Norderney"}"#)]).returns(result);
        let trace = script.answers(answer).build();
        let found = findings(&trace);
        assert!(found.iter().all(|(at, _)| *at == *trace.agents[0].llms.last().unwrap()));
        found.len()
    };
    for answer in ["It leaves at 07:45 and 16:20.", "The timetable has no direct ferry; ask at the harbour."]
    {
        let script = Script::new("When does the ferry to Norderney leave?").tools(&["search_timetable"]);
        let script = script.calls("", &[("search_timetable", r#"{"to":"Norderney"}"#)]);
        let trace = script.raises("Exception: No results found! Try another port.").answers(answer).build();
        assert_eq!(findings(&trace).len(), usize::from(answer.contains("07:45")), "raised: {answer}");
    }
    for nothing in ["[]", "", "No departures found."] {
        assert_eq!(run_answer(nothing, "It leaves at 07:45 and 16:20."), 1, "{nothing}");
        assert_eq!(run_answer(nothing, "The timetable has no direct ferry; ask at the harbour."), 0);
        assert_eq!(run_answer(nothing, "You can stay at home on Sunday then."), 0);
    }
    assert_eq!(run_answer("07:45, 16:20", "It leaves at 7:45 and 16:20."), 0);
}
