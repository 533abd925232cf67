//! Tests of `error_detection`.

use super::*;
use crate::measure::sample::{Sample, asking, llm, measure as run, said, sign, tool};
use crate::measure::{Category, Severity, Value};
use crate::recognise::{ErrorSource, Role};

fn label(measurements: &[Measurement]) -> Option<(&'static str, bool)> {
    let m = measurements.first()?.outcome.as_ref().ok()?;
    let Value::Label(label) = m.value else { return None };
    Some((label, m.passed))
}

fn finding(measurements: &[Measurement]) -> &Finding {
    &measurements[0].outcome.as_ref().unwrap().findings[0]
}

fn alone(view: SpanView) -> Vec<Measurement> {
    let mut sample = Sample::new();
    let at = sample.span(None, view);
    run(measure, &sample.trace(), at)
}

#[test]
fn returned_error_with_status_ok_fails() {
    let out = alone(tool("visit_page", "{}", "Error: invalid url 'x': the scheme https:// is required"));
    assert_eq!(label(&out), Some((TOOL, false)));
    assert!(finding(&out).quote.starts_with("Error: invalid url"));
    assert_eq!(finding(&out).severity, Severity::High);
}

#[test]
fn error_status_fails_without_content() {
    let mut view = tool("visit_page", "{}", "");
    view.result = None;
    view.output_content = Content::Absent;
    view.errors = vec![sign(ErrorSource::Status, None, Some("PageNotFound: 404 for https://x.org"))];
    let out = alone(view);
    assert_eq!(label(&out), Some((TOOL, false)));
    assert_eq!(finding(&out).category, Some(Category::ResourceNotFound));
}

#[test]
fn missing_content_without_error_is_unmeasured() {
    let mut view = tool("visit_page", "{}", "");
    view.result = None;
    view.output_content = Content::Redacted;
    assert_eq!(alone(view)[0].outcome, Err(Unmeasured::NoContent));
    assert!(alone(SpanView { kind: Kind::Chain, ..SpanView::default() }).is_empty());
}

#[test]
fn unavailable_model_endpoint_is_an_api_error_of_the_environment() {
    let mut view = llm(vec![], "");
    view.errors = vec![sign(
        ErrorSource::Exception,
        Some("openai.InternalServerError"),
        Some("Error code: 500 - upstream"),
    )];
    let out = alone(view);
    assert_eq!(label(&out), Some((API, false)));
    assert!(finding(&out).rationale.contains("environment"));
}

#[test]
fn inherited_error_is_not_reported() {
    let mut sample = Sample::new();
    let repeated =
        sign(ErrorSource::Exception, Some("InternalServerError"), Some("Error code: 500 - upstream"));
    let root = sample.span(
        None,
        SpanView { kind: Kind::Agent, inherited_errors: vec![repeated.clone()], ..SpanView::default() },
    );
    let leaf =
        sample.span(Some(root), SpanView { kind: Kind::Llm, errors: vec![repeated], ..SpanView::default() });
    let trace = sample.trace();
    assert!(run(measure, &trace, root).is_empty());
    assert!(label(&run(measure, &trace, leaf)).is_some());
}

#[test]
fn announced_retry_has_low_severity() {
    let mut view = tool("visit_page", "{}", "");
    view.errors = vec![
        sign(ErrorSource::Status, None, Some("ToolRetryError")),
        sign(ErrorSource::Retry, Some("ModelRetry"), Some("404: not found")),
    ];
    let out = alone(view);
    assert_eq!(label(&out), Some((TOOL, false)));
    assert_eq!(finding(&out).severity, Severity::Low);
}

#[test]
fn answer_that_explains_an_error_is_valid() {
    let answer = "Error: 404 means that the page does not exist. {\"error\": 1}";
    assert_eq!(label(&alone(llm(vec![said(Role::User, "What is a 404?")], answer))), Some((VALID, true)));
    let body = r#"{"error": {"message": "Rate limit reached", "code": 429}}"#;
    let out = alone(llm(vec![], body));
    assert_eq!(label(&out), Some((API, false)));
    assert_eq!(finding(&out).category, Some(Category::RateLimiting));
}

#[test]
fn call_without_a_span_is_judged_on_the_model_call() {
    let mut sample = Sample::new();
    let at = sample.span(None, asking(llm(vec![], ""), "search", "{}"));
    sample.call(Some(at), None, "search", "{}", Some("Error: the index is offline"));
    assert_eq!(label(&run(measure, &sample.trace(), at)), Some((TOOL, false)));
}

#[test]
fn model_call_that_was_shown_an_error_is_valid_without_a_finding() {
    let told = "TypeError: visit_page() got an unexpected keyword argument 'x'";
    let script = crate::measure::testing::Script::new("task").calls("", &[("visit_page", r#"{"x":1}"#)]);
    let trace = script.raises(told).answers("836").build();
    let out = run(measure, &trace, trace.agents[0].llms[1]);
    assert_eq!(label(&out), Some((VALID, true)));
    assert!(out[0].outcome.as_ref().unwrap().findings.is_empty());
}
