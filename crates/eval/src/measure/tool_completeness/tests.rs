//! Tests of `tool_completeness`.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::measure::sample::{SampleTrace, llm, measure as run, sign, tool, with_tool_request};
use crate::measure::testing::Script;
use crate::measure::{Category, Severity, Value};
use crate::recognise::{AgentTrace, Content, ToolDefinition};

fn definition(name: &str, description: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.into(),
        description: Some(description.into()),
        parameters: Some(Arc::new(json!({
            "type": "object",
            "properties": { "url": { "type": "string" }, "depth": { "type": "integer" } },
            "required": ["url"],
        }))),
    }
}

/// The trace of a model call (span 0) that calls a tool (span 1), which returns `result`.
fn trace_of_call(name: &str, arguments: &str, result: &str) -> AgentTrace {
    let mut sample = SampleTrace::new();
    let llm_span = sample.span(None, with_tool_request(llm(vec![], ""), name, arguments));
    let tool_span = sample.span(None, tool(name, arguments, result));
    sample.call(Some(llm_span), Some(tool_span), name, arguments, Some(result)).definition =
        Some(definition(name, ""));
    sample.trace()
}

fn score(measurements: &[Measurement]) -> Option<f64> {
    match measurements.first()?.outcome.as_ref().ok()?.value {
        Value::Score(score) => Some(score),
        _ => None,
    }
}

fn score_of_result(name: &str, result: &str) -> Option<f64> {
    score(&run("tool_completeness", &trace_of_call(name, r#"{"url":"https://x"}"#, result), 1))
}

#[test]
fn ordinary_result_scores_5() {
    assert_eq!(score_of_result("visit_page", "Mount Elbrus: 5642 m"), Some(5.0));
    assert_eq!(score_of_result("calculator", "0"), Some(5.0));
    assert_eq!(score_of_result("check", "false"), Some(5.0));
}

#[test]
fn error_scores_1_and_a_lookup_that_finds_nothing_is_noted() {
    assert_eq!(score_of_result("visit_page", "Error: no such host"), Some(1.0));
    let outcome = |name: &str, result: &str| {
        let trace = trace_of_call(name, r#"{"url":"the peak"}"#, result);
        let out = run("tool_completeness", &trace, 1);
        let measured = out[0].outcome.as_ref().unwrap();
        (measured.passed, measured.findings[0].is_note())
    };
    for nothing in [
        "",
        "[]",
        "null",
        "{\"results\": []}",
        "{\"trains\": [], \"count\": 0}",
        "No results found for 'x'.",
        "{\"result\": null}",
    ] {
        assert_eq!(outcome("web_search", nothing), (true, true), "{nothing}");
    }
    let message = "Your search did not match any documents.";
    assert_eq!(outcome("searchDocs", message), (true, true));
}

const FAILS_AS_INVENTED: (Option<Defect>, bool) = (Some(Defect::InventedIdentifier), false);
const NOTED_AS_EMPTY: (Option<Defect>, bool) = (Some(Defect::EmptyResult), true);

/// The findings on the span of the first call and on the model call that requested it.
fn findings_of(trace: &AgentTrace) -> [Vec<(Option<Defect>, bool)>; 2] {
    let findings_at = |span_index: usize| {
        let findings = run("tool_completeness", trace, span_index)
            .into_iter()
            .filter_map(|m| m.outcome.ok())
            .flat_map(|m| m.findings);
        findings.map(|f| (f.defect, f.is_note())).collect()
    };
    [findings_at(trace.calls[0].tool.unwrap()), findings_at(trace.calls[0].llm.unwrap())]
}

#[test]
fn invented_identifier_without_a_result_fails_on_the_model_call() {
    for nothing in
        ["[]", "Error: order not found", r#"{"error": "no such order"}"#, "No order was found for this id."]
    {
        let findings_for_task = |task: &str| {
            let script = Script::new(task).calls("", &[("get_order", r##"{"order_id":"#W88123"}"##)]);
            findings_of(&script.returns(nothing).answers("There is no such order.").build())
        };
        let [tool, llm] = findings_for_task("Where is my order?");
        assert_eq!((tool[0], llm[0]), (FAILS_AS_INVENTED, FAILS_AS_INVENTED), "{nothing}");
        let [tool, llm] = findings_for_task("Where is my order #W88123?");
        assert_eq!((tool, llm), (vec![NOTED_AS_EMPTY], vec![]), "{nothing}");
    }
}

#[test]
fn exception_of_a_search_that_found_nothing_is_noted() {
    let results_of_exception = |tool: &str, arguments: &str, error: &str| {
        let script = Script::new("Which bakeries at Elm Square open at 6?").calls("", &[(tool, arguments)]);
        let trace = script.raises(error).answers("None is listed.").build();
        let detected = run("error_detection", &trace, trace.calls[0].tool.unwrap());
        (findings_of(&trace), detected[0].outcome.as_ref().unwrap().passed)
    };
    let query = r#"{"query":"bakeries Elm Square"}"#;
    for error in
        ["Exception: No results found! Try a shorter query.", "LookupError: no matches found for 'bakeries'"]
    {
        assert_eq!(
            results_of_exception("search_places", query, error),
            ([vec![NOTED_AS_EMPTY], vec![]], true),
            "{error}"
        );
    }
    let nothing_found = "Exception: No results found.";
    let ([tool, llm], _) = results_of_exception("get_place", r#"{"place_id":"PL-88123"}"#, nothing_found);
    assert_eq!((tool[0], llm[0]), (FAILS_AS_INVENTED, FAILS_AS_INVENTED), "the model made the identifier up");
    // An action, a missing resource, and a search that failed are errors.
    for (tool, arguments, error, cause) in [
        ("delete_place", query, nothing_found, Defect::EmptyResult),
        ("visit_page", r#"{"url":"https://elm.example"}"#, "HTTPError: 404 Not Found", Defect::NotFound),
        ("search_places", query, "ConnectionError: the index is offline", Defect::ServiceDown),
    ] {
        let ([findings, _], passed) = results_of_exception(tool, arguments, error);
        assert_eq!((findings[0], passed), ((Some(cause), false), false), "{error}");
    }
}

#[test]
fn exception_in_code_of_the_model_has_the_model_as_its_origin() {
    let cause = |tool: &str, arguments: &str, error: &str| {
        let script = Script::new("What is the mean rainfall?").calls("", &[(tool, arguments)]);
        let trace = script.raises(error).answers("Unknown.").build();
        let outcome = run("tool_completeness", &trace, trace.calls[0].tool.unwrap());
        let finding = outcome[0].outcome.as_ref().unwrap().findings[0].clone();
        (finding.defect, finding.category, finding.origin.is_some())
    };
    for error in [
        "TypeError: 'NoneType' object is not iterable",
        "AttributeError: 'list' object has no attribute 'mean'",
        "ZeroDivisionError: division by zero",
    ] {
        let code = r#"{"code":"print(sum(rain) / len(rain))"}"#;
        let by_model = (Some(Defect::InvalidCode), Some(Category::FormattingErrors), true);
        assert_eq!(cause("run_python", code, error), by_model, "{error}");
        for (tool, arguments) in
            [("get_rainfall", r#"{"city":"Graz"}"#), ("run_report", r#"{"name":"rainfall"}"#)]
        {
            assert_eq!(
                cause(tool, arguments, error),
                (Some(Defect::Errored), None, false),
                "{tool}: {error}"
            );
        }
    }
    // Invalid code has the model as its origin, no matter which program reads it.
    let parsed = cause("query_db", r#"{"sql":"SELEC rain"}"#, "syntax error at or near \"SELEC\"");
    assert_eq!(parsed, (Some(Defect::InvalidCode), Some(Category::FormattingErrors), true));
}

#[test]
fn lookup_that_found_nothing_is_noted_independently_of_the_answer() {
    let findings_with_answer = |answer: &str| {
        let script = Script::new("When does the ferry to Norderney leave on Sunday?");
        let script = script.calls("", &[("search_timetable", r#"{"to":"Norderney"}"#)]).returns("[]");
        findings_of(&script.answers(answer).build())[0].clone()
    };
    assert_eq!(findings_with_answer("It leaves at 07:45 and 16:20."), [NOTED_AS_EMPTY]);
    assert_eq!(
        findings_with_answer("The timetable has no direct ferry; ask at the harbour, tel. 04932."),
        [NOTED_AS_EMPTY]
    );
}

#[test]
fn error_from_which_another_tool_recovered_has_low_severity() {
    let severity = |trace: &AgentTrace| {
        let out = run("tool_completeness", trace, trace.calls[0].tool.unwrap());
        out[0].outcome.as_ref().unwrap().findings[0].severity
    };
    let script =
        || Script::new("task").calls("", &[("read_scan", "{}")]).returns("Error: the scan is damaged");
    assert_eq!(severity(&script().answers("It shows a fracture.").build()), Severity::High);
    let other = script().calls("", &[("get_report", "{}")]).returns("no fracture, 2 views");
    assert_eq!(severity(&other.answers("No fracture.").build()), Severity::Low);
}

#[test]
fn empty_result_of_an_action_is_unmeasured() {
    assert_eq!(score_of_result("write_file", ""), None);
    assert_eq!(score_of_result("frobnicate", "null"), None);
    assert_eq!(score_of_result("send_mail", "ok"), Some(5.0));
}

#[test]
fn code_that_prints_nothing_is_noted_and_code_without_prints_is_unmeasured() {
    let score_for = |name: &str, code: &str, result: &str| {
        let arguments = serde_json::json!({ "url": code }).to_string();
        score(&run("tool_completeness", &trace_of_call(name, &arguments, result), 1))
    };
    let code = "for row in rows:\n    if row.tide > 3:\n        print(row)";
    assert_eq!(score_for("python", code, "exitcode: 0 (execution succeeded)\nCode output: "), Some(5.0));
    assert_eq!(score_for("run_code", "console.log(find(x))", ""), Some(5.0));
    assert_eq!(score_for("python", code, "exitcode: 0 (execution succeeded)\nCode output: 3.2\n"), Some(5.0));
    assert_eq!(
        score_for("python", "rows.to_csv('a.csv')", "exitcode: 0 (execution succeeded)\nCode output: "),
        None
    );
    assert_eq!(score_for("write_code", code, ""), None);
}

#[test]
fn result_that_mentions_nothing_found_is_not_empty() {
    for text in [
        "No data was lost. The transfer of 3 files took 2 s.\nfile a\nfile b\nfile c",
        "There are no direct flights, but these connect: LX 12, LX 14",
        "No. 7 in the list is Elbrus.",
    ] {
        assert_eq!(score_of_result("web_search", text), Some(5.0), "{text}");
    }
}

#[test]
fn result_with_a_truncation_marker_scores_3() {
    assert_eq!(score_of_result("read_file", "line 1\nline 2\n... [truncated, 900 lines more]"), Some(3.0));
    assert_eq!(
        score_of_result(
            "read_file",
            &format!("This log was truncated in May.{}", " All is well.".repeat(40))
        ),
        Some(5.0)
    );
}

#[test]
fn wrong_arguments_are_reported_on_both_spans_with_the_model_call_as_origin() {
    let trace = trace_of_call("visit_page", r#"{"link":"https://x"}"#, "Error: url is required");
    let llm_measurements = run("tool_completeness", &trace, 0);
    let finding = &llm_measurements[0].outcome.as_ref().unwrap().findings[0];
    assert_eq!((finding.score, finding.origin), (3.0, None));
    assert_eq!(finding.cited, [trace.tree.spans[1].id]);
    let tool_measurements = run("tool_completeness", &trace, 1);
    let findings = &tool_measurements[0].outcome.as_ref().unwrap().findings;
    assert!(findings.iter().any(|f| f.origin == Some(0) && f.cited == [trace.tree.spans[0].id]));
    assert_eq!(score(&tool_measurements), Some(1.0));
}

#[test]
fn number_as_a_string_passes_if_the_call_succeeded() {
    let arguments = r#"{"url":"https://x","depth":"2"}"#;
    assert!(run("tool_completeness", &trace_of_call("visit_page", arguments, "a page"), 0).is_empty());
    assert_eq!(
        score(&run("tool_completeness", &trace_of_call("visit_page", arguments, "Error: bad depth"), 0)),
        Some(3.0)
    );
}

#[test]
fn truncated_arguments_are_malformed() {
    let mut sample = SampleTrace::new();
    let arguments = r#"{"url": "https://almanac.exam"#;
    let span_index = sample.span(None, with_tool_request(llm(vec![], ""), "visit_page", arguments));
    sample.call(Some(span_index), None, "visit_page", arguments, None);
    let out = run("tool_completeness", &sample.trace(), span_index);
    let finding = &out[0].outcome.as_ref().unwrap().findings[0];
    assert_eq!(finding.category, Some(Category::FormattingErrors));
    assert_eq!(finding.quote, arguments);
}

#[test]
fn arguments_of_a_successful_call_are_not_malformed() {
    for arguments in [r#"{"url": "https://almanac.exam"#, "{'url': 'https://x'}", "print('x')"] {
        assert!(
            run("tool_completeness", &trace_of_call("visit_page", arguments, "a page"), 0).is_empty(),
            "{arguments}"
        );
    }
}

#[test]
fn tool_that_was_not_offered_is_unknown_if_the_call_failed() {
    let mut sample = SampleTrace::new();
    let mut view = with_tool_request(llm(vec![], ""), "teleport", "{}");
    view.tools = vec![definition("visit_page", "")];
    let span_index = sample.span(None, view.clone());
    sample.call(
        Some(span_index),
        None,
        "teleport",
        "{}",
        Some("Error: teleport is not a valid tool, try one of [visit_page]."),
    );
    let out = run("tool_completeness", &sample.trace(), span_index);
    let findings = &out[0].outcome.as_ref().unwrap().findings;
    assert!(findings.iter().any(|f| f.rationale.contains("was not offered")));
    // The tool of a call with a result is not unknown.
    let mut sample = SampleTrace::new();
    let span_index = sample.span(None, view);
    sample.call(Some(span_index), None, "teleport", "{}", Some("there you are"));
    assert_eq!(
        run("tool_completeness", &sample.trace(), span_index)[0].outcome,
        Err(Unmeasured::NotApplicable)
    );
}

#[test]
fn result_that_shows_no_outcome_is_unmeasured() {
    let measurement_of_mail = |result: &str, status: Status| {
        let mut sample = SampleTrace::new();
        let span_index = sample.span(None, tool("send_mail", "{}", result));
        sample.call(None, Some(span_index), "send_mail", "{}", Some(result));
        let mut trace = sample.trace();
        trace.tree.spans[span_index].status = status;
        run("tool_completeness", &trace, span_index).remove(0)
    };
    let plain = measurement_of_mail("there you are", Status::Unset);
    assert_eq!((plain.outcome, plain.examined), (Err(Unmeasured::NotApplicable), 0));
    for (result, status) in [("there you are", Status::Ok), (r#"{"sent":true}"#, Status::Unset)] {
        let shown = measurement_of_mail(result, status);
        assert_eq!((score(std::slice::from_ref(&shown)), shown.examined), (Some(5.0), 1), "{result}");
    }
    // An error in the text contradicts the status.
    assert_eq!(score(&[measurement_of_mail("Error: the mailbox is full", Status::Ok)]), Some(1.0));
    for structured in [
        r#"[{"to":"Ada"},{"to":"Bo"}]"#,
        "{\"to\":\"Ada\"}\n{\"to\":\"Bo\"}",
        "{'to': 'Ada', 'sent': True}",
        "[3, 4]",
    ] {
        assert_eq!(score(&[measurement_of_mail(structured, Status::Unset)]), Some(5.0), "{structured}");
    }
    for prose in [
        "[1] Ada is written to [2]",
        "{name} is written to at {address}",
        "[the mail is on its way]",
        r#"{"to":"Ada", and so on}"#,
    ] {
        assert_eq!(
            measurement_of_mail(prose, Status::Unset).outcome,
            Err(Unmeasured::NotApplicable),
            "{prose}"
        );
    }
}

#[test]
fn announced_retry_scores_3() {
    let mut sample = SampleTrace::new();
    let mut view = tool("visit_page", "{}", "");
    view.result = None;
    view.errors = vec![sign(ErrorSource::Retry, Some("ToolRetryError"), Some("404 not found"))];
    let span_index = sample.span(None, view);
    sample.call(None, Some(span_index), "visit_page", "{}", None).failed = true;
    assert_eq!(score(&run("tool_completeness", &sample.trace(), span_index)), Some(3.0));
}

#[test]
fn missing_content_is_unmeasured() {
    let mut sample = SampleTrace::new();
    let mut view = tool("visit_page", "{}", "");
    view.result = None;
    view.output_content = Content::Absent;
    let span_index = sample.span(None, view);
    sample.call(None, Some(span_index), "visit_page", "{}", None);
    assert_eq!(run("tool_completeness", &sample.trace(), span_index)[0].outcome, Err(Unmeasured::NoContent));
}

#[test]
fn refused_arguments_are_reported_on_the_model_call() {
    let trace = trace_of_call(
        "page_down",
        "{\"url\":\"x\"}",
        "Error: TypeError: forward() got an unexpected keyword argument 'url'",
    );
    let out = run("tool_completeness", &trace, 0);
    let finding = &out[0].outcome.as_ref().unwrap().findings[0];
    assert_eq!((finding.score, finding.category), (3.0, Some(Category::FormattingErrors)));
}

#[test]
fn run_that_ends_with_an_unparsed_call_scores_2() {
    let script = || Script::new("How tall?").tools(&["visit_page"]);
    let mut trace = script().says("").build();
    trace.views[1].finish = vec!["tool_calls".into()];
    trace.views[1].output.clear();
    assert_eq!(score(&run("tool_completeness", &trace, 1)), Some(2.0));
    // An instrumentation that does not record requests may still record the tool's span.
    let mut trace = script().calls("", &[("visit_page", "{}")]).returns("a page").answers("836 m").build();
    trace.views[1].finish = vec!["tool_calls".into()];
    trace.views[1].output.clear();
    assert!(run("tool_completeness", &trace, 1).is_empty());
}

#[test]
fn failing_code_is_reported_on_the_model_call_that_wrote_it() {
    let failed = |message: &str| {
        let mut sample = SampleTrace::new();
        let step = sample.span(
            None,
            crate::recognise::SpanView {
                kind: Kind::Chain,
                errors: vec![sign(ErrorSource::Exception, Some("AgentExecutionError"), Some(message))],
                ..Default::default()
            },
        );
        let author = sample.span(Some(step), llm(vec![], "Code:\n```py\nprint(np)\n```"));
        (sample.trace(), author)
    };
    let (trace, author) =
        failed("Code execution failed at line 'print(np)' due to: NameError: np is not defined");
    let out = run("tool_completeness", &trace, author);
    assert_eq!(score(&out), Some(1.0));
    let finding = &out[0].outcome.as_ref().unwrap().findings[0];
    assert_eq!((finding.defect, &*finding.cited), (Some(Defect::InvalidCode), &[trace.tree.spans[0].id][..]));
    let category = |message: &str| {
        let (trace, author) = failed(message);
        run("tool_completeness", &trace, author)[0].outcome.as_ref().unwrap().findings[0].category
    };
    assert_eq!(category("NameError: np is not defined"), Some(Category::ContextHandlingFailures));
    assert_eq!(category("FileNotFoundError: no such file: 'sales.csv'"), Some(Category::ResourceNotFound));
    assert_eq!(category("SyntaxError: '(' was never closed"), Some(Category::FormattingErrors));
    assert_eq!(category("KeyError: 'total'"), Some(Category::FormattingErrors));
    // A search in the code found nothing.
    let (trace, author) =
        failed("Code execution failed at line 'search()' due to: Exception: No results found!");
    let out = run("tool_completeness", &trace, author);
    assert!(out[0].outcome.as_ref().unwrap().findings[0].is_note());
    assert!(run("error_detection", &trace, 0).is_empty());
    // An outage is not caused by the model.
    let (trace, author) = failed("Code execution failed at line 'get()' due to: ConnectionError: 503");
    assert!(run("tool_completeness", &trace, author).is_empty());
}
