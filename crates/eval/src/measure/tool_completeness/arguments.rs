//! Defects of a call as requested: its JSON, its tool, its parameters.
//!
//! Principle: a call is written as the definition of its tool says, in valid JSON, for a tool that exists: what the
//! tool cannot read is not carried out as meant. What a tool accepted in spite of its definition is a defect only
//! where it cannot be a matter of recording.
//!
//! Parameters are checked only if the trace contains the tool's definition. The arguments of a successful
//! call were accepted by its tool, so that uncertain defects (a truncated attribute, a number written as a
//! string) are reported only for failed calls.

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

/// The findings on the calls of a trace that were checked, by the addresses of the calls.
#[derive(Default)]
struct CheckedCalls(RefCell<HashMap<usize, Vec<Finding>>>);

/// Defects of the call as the model wrote it; none if no model call requested it. They are asked for by the span of the
/// model and by that of the tool.
pub(crate) fn defects(context: &Context<'_>, call: &Call) -> Vec<Finding> {
    if call.llm.is_none() {
        return Vec::new();
    }
    let checked = context.memo.shared::<CheckedCalls>();
    let key = std::ptr::from_ref(call) as usize;
    if let Some(findings) = checked.0.borrow().get(&key) {
        return findings.clone();
    }
    let found = find_defects(context, call);
    // Beyond the work budget they are incomplete.
    if !context.memo.budget.is_exceeded() {
        checked.0.borrow_mut().insert(key, found.clone());
    }
    found
}

fn find_defects(context: &Context<'_>, call: &Call) -> Vec<Finding> {
    let error = call_error(context.trace, context.memo, call);
    let succeeded = call.result.is_some() && error.is_none();
    let unusable = malformed(call, succeeded).or_else(|| unknown_tool(context, call, succeeded));
    if let Some(finding) = unusable {
        return vec![finding];
    }
    let mut findings = schema_findings(context, call, succeeded);
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

/// The schema of the tool and the arguments to compare with it.
pub(super) fn schema(call: &Call) -> Option<(&Arc<Value>, &Value)> {
    let schema = call.definition.as_ref()?.parameters.as_ref()?;
    Some((schema, call.parsed.as_deref().filter(|arguments| arguments.is_object())?))
}

/// Violations of the schema that the model was shown.
fn schema_findings(context: &Context<'_>, call: &Call, succeeded: bool) -> Vec<Finding> {
    let Some((schema, arguments)) = schema(call) else { return Vec::new() };
    let name = call.name.trim();
    let mut findings = Vec::new();
    for problem in schema::problems(context.memo, schema, arguments) {
        if !(succeeded && problem.coercible) {
            let rationale = format!("in the call to {name}, {}", problem.rationale);
            findings.push(problem.defect.finding(rationale, place_of(call, &problem.name)));
        }
    }
    // A schema may allow further names; they are reported only if the call failed.
    if !succeeded && call.failed && findings.is_empty() {
        for unlisted in schema::unlisted(schema, arguments).into_iter().take(4) {
            let rationale = format!(
                "in the call to {name}, parameters of the tool's schema were expected; it has no '{unlisted}'"
            );
            findings.push(Defect::UnknownParameter.finding(rationale, place_of(call, unlisted)));
        }
    }
    findings
}

/// The arguments as written; of long ones, the part around the parameter.
fn place_of<'c>(call: &'c Call, parameter: &str) -> &'c str {
    let arguments = quoted(call);
    let place = Some(parameter).filter(|_| arguments.len() > QUOTE_BYTES).and_then(|p| arguments.find(p));
    match place {
        Some(at) => around(arguments, at, at + parameter.len(), QUOTE_BYTES / 4),
        None => arguments,
    }
}

/// The defect for the text of a tool's refusal.
fn refusal_defect(words: &str) -> Defect {
    let lower = words.to_ascii_lowercase();
    match () {
        () if lower.contains("unexpected") || lower.contains("unrecognized") => Defect::UnknownParameter,
        () if lower.contains("missing") || lower.contains("required") => Defect::MissingParameter,
        () => Defect::IllTypedParameter,
    }
}

/// Arguments that begin like JSON and are not valid.
fn malformed(call: &Call, succeeded: bool) -> Option<Finding> {
    let text = call.arguments.as_deref()?.trim();
    if succeeded
        || call.parsed.is_some()
        || call.too_large
        || !text.starts_with(['{', '['])
        || is_python(text)
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

/// Some instrumentations record arguments in Python's notation.
fn is_python(text: &str) -> bool {
    let body = text.trim_start_matches(['{', '[', ' ']);
    body.starts_with('\'') || text.contains(": None") || text.contains(": True") || text.contains(": False")
}

/// A call of a tool that was not offered, if it failed or was not answered.
fn unknown_tool(context: &Context<'_>, call: &Call, succeeded: bool) -> Option<Finding> {
    let llm = call.llm?;
    let offered = offered(context.trace, call, llm)?;
    let name = call.name.trim();
    // A limit that cut off the prompt, or what hides it, applies to the list of tools as well.
    let partial = context.trace.views.get(llm).is_some_and(|view| view.input_content.is_partial());
    if succeeded || partial || name.is_empty() || offered.has_like(context.trace, context.memo, name) {
        return None;
    }
    let refused = call_error(context.trace, context.memo, call).is_some();
    if !refused && !is_unanswered(context.trace, call, llm) {
        return None;
    }
    let list: Vec<&str> = offered.tools(context.trace).iter().take(12).map(|tool| &*tool.name).collect();
    let rationale = format!(
        "a call to one of the tools offered ({}) was expected; the model called {name}, which was not offered",
        list.join(", ")
    );
    Some(Defect::UnknownTool.finding(rationale, name))
}

/// To whom the tools of the call were offered: the model, else its agent; `None` if none were.
fn offered(trace: &AgentTrace, call: &Call, llm: usize) -> Option<OfferedTo> {
    let agent = call.agent.map(OfferedTo::Agent);
    [Some(OfferedTo::Model(llm)), agent].into_iter().flatten().find(|to| !to.tools(trace).is_empty())
}

/// Whether the call has no result and the run ended without an answer. A call that ends the run (an output
/// tool, a handoff) has an answer or a further step.
fn is_unanswered(trace: &AgentTrace, call: &Call, llm: usize) -> bool {
    let Some(agent) = call.agent.and_then(|agent| trace.agents.get(agent)) else { return false };
    let last = agent.llms.last() == Some(&llm);
    let answered = agent.answer.as_deref().is_some_and(|answer| !answer.trim().is_empty());
    let replied = trace.views.get(llm).is_some_and(|r| r.output.iter().any(|m| m.role == Role::Tool));
    !trace.incomplete
        && last
        && !answered
        && !replied
        && call.result.is_none()
        && call.tool.is_none()
        && !call.result_content.is_partial()
        && !agent.answer_content.is_partial()
}
