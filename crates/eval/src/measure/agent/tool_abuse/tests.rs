//! Tests of `tool_abuse`.

use super::*;
use crate::measure::testing::{Script, row};
use crate::measure::{Measured, Memo, Settings, Value};

const INVALID_URL_ERROR: &str = "Error: invalid url 'a.example': the scheme https:// is required";

fn measure_agent(trace: &AgentTrace) -> Result<Measured, Unmeasured> {
    let (settings, memo) = (Settings::default(), Memo::new());
    let context = Context {
        row: row("tool_abuse"),
        trace,
        at: trace.agents[0].at,
        settings: &settings,
        memo: &memo,
        rule_measurements: &[],
    };
    measure(&context, 0, &trace.agents[0]).outcome
}

fn script(calls: &[(&str, &str, &str)]) -> AgentTrace {
    let mut script = Script::new("task");
    for (name, arguments, result) in calls {
        script = script.calls("", &[(name, arguments)]).returns(result);
    }
    script.answers("done").build()
}

fn rationales(trace: &AgentTrace) -> Vec<String> {
    measure_agent(trace).expect("measured").findings.into_iter().map(|f| f.rationale).collect()
}

#[test]
fn four_equal_failing_calls_fail_and_are_cited() {
    let trace = script(&[("visit", r#"{"url":"a.example"}"#, INVALID_URL_ERROR); 4]);
    let measured = measure_agent(&trace).unwrap();
    assert_eq!((measured.passed, measured.value), (false, Value::Score(2.0)));
    assert_eq!(measured.findings.len(), 1);
    assert_eq!(measured.findings[0].cited.len(), 4);
    assert!(measured.findings[0].quote.contains("a.example"));
}

#[test]
fn two_equal_failing_calls_score_3() {
    let trace = script(&[("visit", r#"{"url":"a.example"}"#, INVALID_URL_ERROR); 2]);
    assert_eq!(measure_agent(&trace).unwrap().value, Value::Score(3.0));
}

#[test]
fn adapted_query_passes() {
    // Paper 001, B.3: a narrower, then a broader query.
    let trace = script(&[
        (
            "web_search",
            r#"{"query":"Emily Midkiff June 2014 article Fafnir dragon depictions quoted word criticism"}"#,
            "Error: No results found. Use a less specific query.",
        ),
        ("web_search", r#"{"query":"Midkiff Fafnir 2014"}"#, "found 9 results"),
    ]);
    assert!(rationales(&trace).is_empty());
    assert_eq!(measure_agent(&trace).unwrap().value, Value::Score(5.0));
}

#[test]
fn third_equal_result_is_found_and_a_second_is_not() {
    let twice = script(&[("read_file", r#"{"path":"a"}"#, "text"); 2]);
    assert!(rationales(&twice).is_empty());
    let thrice = script(&[("read_file", r#"{"path":"a"}"#, "text"); 3]);
    assert_eq!(rationales(&thrice).len(), 1);
}

#[test]
fn paging_polling_and_reading_after_a_write_pass() {
    let paging = script(&[("page_down", "{}", "p1"), ("page_down", "{}", "p2"), ("page_down", "{}", "p3")]);
    assert!(rationales(&paging).is_empty());
    let polling = script(&[("get_status", r#"{"id":1}"#, "running"); 6]);
    assert!(rationales(&polling).is_empty());
    let moving_results = script(&[("fetch", "{}", "1"), ("fetch", "{}", "2"), ("fetch", "{}", "3")]);
    assert!(rationales(&moving_results).is_empty());
    let edits = script(&[
        ("read_file", r#"{"path":"a"}"#, "text"),
        ("edit_file", r#"{"n":1}"#, "ok"),
        ("read_file", r#"{"path":"a"}"#, "text"),
        ("edit_file", r#"{"n":2}"#, "ok"),
        ("read_file", r#"{"path":"a"}"#, "text"),
    ]);
    assert!(rationales(&edits).is_empty());
}

#[test]
fn nearly_equal_arguments_with_equal_errors_are_found() {
    let trace = script(&[
        ("visit", r#"{"url":"https://almanac.example/elbrus/heights?page=1"}"#, INVALID_URL_ERROR),
        ("visit", r#"{"url":"https://almanac.example/elbrus/heights?page=2"}"#, INVALID_URL_ERROR),
        ("visit", r#"{"url":"https://almanac.example/elbrus/heights?page=3"}"#, INVALID_URL_ERROR),
    ]);
    assert!(rationales(&trace)[0].contains("hardly differ"), "{:?}", rationales(&trace));
}

#[test]
fn three_rounds_of_two_calls_are_a_loop_and_two_are_not() {
    let round = [("open", r#"{"p":1}"#, "x"), ("find_text", r#"{"q":2}"#, "nothing here")];
    let thrice = script(&[round, round, round].concat());
    assert!(rationales(&thrice).iter().any(|r| r.contains("loop")), "{:?}", rationales(&thrice));
    let twice = script(&[round, round].concat());
    assert!(rationales(&twice).is_empty());
}

#[test]
fn repeated_error_about_the_call_is_found() {
    let error = "TypeError: page_down() got an unexpected keyword argument ''";
    let trace = script(&[
        ("page_down", r#"{"":""}"#, error),
        ("page_down", r#"{"":{}}"#, error),
        ("page_down", r#"{"a":[1,2,3]}"#, error),
        ("page_down", r#"{"wholly":"different words"}"#, error),
    ]);
    assert!(rationales(&trace).iter().any(|r| r.contains("nothing was learned")), "{:?}", rationales(&trace));
}

#[test]
fn missing_calls_and_missing_content_are_unmeasured() {
    assert_eq!(measure_agent(&Script::new("task").answers("done").build()), Err(Unmeasured::NotApplicable));
    let hidden =
        Script::new("task").calls("", &[("visit", "{}")]).returns(INVALID_URL_ERROR).build_without_content();
    assert_eq!(measure_agent(&hidden), Err(Unmeasured::NoContent));
}
