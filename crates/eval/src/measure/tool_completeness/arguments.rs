//! Defects of a call as the model requested it: invalid JSON, an unknown tool, wrong parameters.
//!
//! Principle: a call names an existing tool, and its arguments are valid JSON that matches the tool's definition: a
//! tool cannot carry out a call that it cannot read. A mismatch in a call that the tool accepted is a defect only if
//! the recording cannot have caused it.
//!
//! Parameters are checked only if the trace contains the tool's definition. The tool of a successful call accepted its
//! arguments, so that uncertain defects (a truncated attribute, a number written as a string) are reported only for
//! failed calls.

use std::cell::RefCell;
use std::sync::Arc;

use foldhash::HashMap;
use serde_json::Value;

use crate::measure::calls::attempts::quoted;
use crate::measure::calls::error_signs::call_error;
use crate::measure::defects::{Defect, QUOTE_BYTES};
use crate::measure::excerpt::around;
use crate::measure::tool_index::OfferedTo;
use crate::measure::{Context, Finding, schema};
use crate::recognise::{AgentTrace, Call, Role};

/// The cached findings on calls, by the addresses of the calls.
#[derive(Default)]
struct CheckedCalls(RefCell<HashMap<usize, Vec<Finding>>>);

/// The defects of the call as the model wrote it; none if no model call requested it. The result is cached, since it is
/// needed on the model call and on the tool call.
pub(crate) fn defects(context: &Context<'_>, call: &Call) -> Vec<Finding> {
    if call.llm.is_none() {
        return Vec::new();
    }
    let checked = context.memo.shared::<CheckedCalls>();
    let key = std::ptr::from_ref(call) as usize;
    if let Some(findings) = checked.0.borrow().get(&key) {
        return findings.clone();
    }
    let findings = find_defects(context, call);
    // Beyond the work budget the findings are incomplete.
    if !context.memo.budget.is_exceeded() {
        checked.0.borrow_mut().insert(key, findings.clone());
    }
    findings
}

/// As [`defects`], without the cache.
fn find_defects(context: &Context<'_>, call: &Call) -> Vec<Finding> {
    let error = call_error(context.trace, context.memo, call);
    let has_succeeded = call.result.is_some() && error.is_none();
    let unreadable = malformed(call, has_succeeded).or_else(|| unknown_tool(context, call, has_succeeded));
    if let Some(finding) = unreadable {
        return vec![finding];
    }
    let mut findings = schema_findings(context, call, has_succeeded);
    if findings.is_empty()
        && let Some(error) = error.filter(|e| e.cause == Defect::WrongArguments)
    {
        let rationale = format!(
            "arguments that {} takes were expected; it refused those that the model wrote",
            call.name.trim()
        );
        findings.push(refusal_defect(&error.quote).finding(rationale, &error.quote));
    }
    findings
}

/// The schema of the tool and the arguments to compare with it; `None` if either is unknown.
pub(super) fn schema(call: &Call) -> Option<(&Arc<Value>, &Value)> {
    let schema = call.definition.as_ref()?.parameters.as_ref()?;
    Some((schema, call.parsed.as_deref().filter(|arguments| arguments.is_object())?))
}

/// Violations of the schema in the prompt.
fn schema_findings(context: &Context<'_>, call: &Call, has_succeeded: bool) -> Vec<Finding> {
    let Some((schema, arguments)) = schema(call) else { return Vec::new() };
    let name = call.name.trim();
    let mut findings = Vec::new();
    for problem in schema::problems(context.memo, schema, arguments) {
        if !(has_succeeded && problem.is_coercible) {
            let rationale = format!("in the call to {name}, {}", problem.rationale);
            findings.push(problem.defect.finding(rationale, arguments_around(call, &problem.name)));
        }
    }
    // A schema may allow further names, so that they are reported only if the call failed.
    if !has_succeeded && call.failed && findings.is_empty() {
        for unlisted in schema::unlisted(schema, arguments).into_iter().take(4) {
            let rationale = format!(
                "in the call to {name}, parameters of the tool's schema were expected; it has no '{unlisted}'"
            );
            findings.push(Defect::UnknownParameter.finding(rationale, arguments_around(call, unlisted)));
        }
    }
    findings
}

/// The recorded arguments; of long arguments, the part around the parameter.
fn arguments_around<'c>(call: &'c Call, parameter: &str) -> &'c str {
    let arguments = quoted(call);
    let parameter_start =
        Some(parameter).filter(|_| arguments.len() > QUOTE_BYTES).and_then(|p| arguments.find(p));
    match parameter_start {
        Some(start) => around(arguments, start, start + parameter.len(), QUOTE_BYTES / 4),
        None => arguments,
    }
}

/// The defect for the text of a tool's refusal.
fn refusal_defect(text: &str) -> Defect {
    let lower = text.to_ascii_lowercase();
    match () {
        () if lower.contains("unexpected") || lower.contains("unrecognized") => Defect::UnknownParameter,
        () if lower.contains("missing") || lower.contains("required") => Defect::MissingParameter,
        () => Defect::IllTypedParameter,
    }
}

/// The finding about arguments that begin like JSON and are not valid.
fn malformed(call: &Call, has_succeeded: bool) -> Option<Finding> {
    let text = call.arguments.as_deref()?.trim();
    if has_succeeded
        || call.parsed.is_some()
        || call.too_large
        || !text.starts_with(['{', '['])
        || is_python_repr(text)
    {
        return None;
    }
    let error = serde_json::from_str::<serde_json::Value>(text).err()?;
    let fault = if error.is_eof() { "break off in the middle" } else { "are not valid JSON" };
    Some(Defect::MalformedArguments.finding(
        format!("JSON was expected; the arguments of the call to {} {fault}", call.name.trim()),
        text,
    ))
}

/// Whether arguments are in Python's notation, in which some instrumentations record them.
fn is_python_repr(text: &str) -> bool {
    let body = text.trim_start_matches(['{', '[', ' ']);
    body.starts_with('\'') || text.contains(": None") || text.contains(": True") || text.contains(": False")
}

/// The finding about a call of a tool that was not offered, if the call failed or has no answer.
fn unknown_tool(context: &Context<'_>, call: &Call, has_succeeded: bool) -> Option<Finding> {
    let llm = call.llm?;
    let offered = offered(context.trace, call, llm)?;
    let name = call.name.trim();
    // If the prompt is cut off or hidden, the list of tools may be incomplete.
    let is_partial = context.trace.views.get(llm).is_some_and(|view| view.input_content.is_partial());
    if has_succeeded
        || is_partial
        || name.is_empty()
        || offered.has_similar(context.trace, context.memo, name)
    {
        return None;
    }
    let is_refused = call_error(context.trace, context.memo, call).is_some();
    if !is_refused && !is_unanswered(context.trace, call, llm) {
        return None;
    }
    let list: Vec<&str> = offered.tools(context.trace).iter().take(12).map(|tool| &*tool.name).collect();
    let rationale = format!(
        "a call to one of the tools offered ({}) was expected; the model called {name}, which was not offered",
        list.join(", ")
    );
    Some(Defect::UnknownTool.finding(rationale, name))
}

/// The model call or else the agent to which tools were offered; `None` if no tools were offered.
fn offered(trace: &AgentTrace, call: &Call, llm: usize) -> Option<OfferedTo> {
    let agent = call.agent.map(OfferedTo::Agent);
    [Some(OfferedTo::Model(llm)), agent].into_iter().flatten().find(|to| !to.tools(trace).is_empty())
}

/// Whether the call has no result and the run ended without an answer. After a call that ends the run regularly (an
/// output tool, a handoff) there is an answer or a further step.
fn is_unanswered(trace: &AgentTrace, call: &Call, llm: usize) -> bool {
    let Some(agent) = call.agent.and_then(|agent| trace.agents.get(agent)) else { return false };
    let is_last = agent.llms.last() == Some(&llm);
    let has_answer = agent.answer.as_deref().is_some_and(|answer| !answer.trim().is_empty());
    let has_tool_message =
        trace.views.get(llm).is_some_and(|view| view.output.iter().any(|m| m.role == Role::Tool));
    !trace.incomplete
        && is_last
        && !has_answer
        && !has_tool_message
        && call.result.is_none()
        && call.tool.is_none()
        && !call.result_content.is_partial()
        && !agent.answer_content.is_partial()
}
