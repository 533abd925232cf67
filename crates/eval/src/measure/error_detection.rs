//! `error_detection` (001, table 1): whether the output is a valid response, or a system, tool or API error.
//!
//! Principle: a step that raised, returned or recorded an error failed, independently of the party that caused the
//! error; the cause follows from the text of the error ([`error_kind`](super::error_kind)). An error in content that
//! was looked up, as in a log, is data. The rule does not decide whether the run recovered.
//!
//! In: a span's own error signs and its result. Out: one of `valid`, `system_error`, `tool_error`,
//! `api_error`, with the cause as a TRAIL category. A sign counts on a span of any kind; `recognise` has
//! removed signs that repeat an error of a span beneath. Without content and without error, spans of kind `llm`,
//! `tool` and `retriever` are unmeasured, and spans of other kinds have no measurement.

use crate::measure::calls::call_index::CallIndex;
use crate::measure::calls::error_signs::{
    call_error, cause_suffix, is_of_model, own_signs, reported, reported_by,
};
use verdict_otlp::trace::Kind;

use super::defects::{Defect, Findings};
use super::error_kind::{cause, cause_of_call};
use super::error_text;
use super::tool_completeness::{empty_lookup, unexecuted};
use super::{Context, Finding, Measurement};
use crate::measure::reasoning::recovery;
use crate::recognise::{Call, Content, FinishReason, SpanView, json_keys};

mod cut_answer;
mod unmarked_end;

const VALID: &str = "valid";
const SYSTEM: &str = "system_error";
const TOOL: &str = "tool_error";
const API: &str = "api_error";

pub(crate) fn measure(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at)?;
    if view.kind == Kind::Unknown {
        return None;
    }
    let mut findings = Findings::new();
    let mut label = VALID;
    let call = call_of(context, view);
    let graded = |finding| match call {
        Some(call) => recovery::graded(context, call, finding),
        None => finding,
    };
    let signs = own_signs(view, call);
    let found_nothing = match call {
        Some(call) => empty_lookup::not_found(context, call).is_some(),
        None => signs.as_ref().is_some_and(|(_, cause)| unexecuted::found_nothing(context, *cause)),
    };
    if found_nothing {
        // A lookup that found nothing is not an error; `tool_completeness` notes it.
    } else if let Some((finding, cause)) = signs {
        label = label_of(view.kind, cause);
        findings.push(graded(with_author_origin(context, view, finding, cause)));
    } else if let Some((finding, cause)) = returned_error(context, view) {
        label = label_of(view.kind, cause);
        findings.push(graded(finding));
    } else if let Some(finding) = cut_answer::find(context, view) {
        label = SYSTEM;
        findings.push(finding);
    }
    for call in virtual_calls(context).filter(|call| empty_lookup::not_found(context, call).is_none()) {
        if let Some(error) = call_error(context.trace, context.memo, call) {
            let rationale = format!(
                "a result of {} was expected; the call came back with an error{}",
                call.name.trim(),
                cause_suffix(error.cause)
            );
            findings.push(recovery::graded(context, call, error.cause.finding(rationale, &error.quote)));
            label = if label == VALID { label_of(Kind::Tool, error.cause) } else { label };
        }
    }
    if !findings.is_empty() {
        return Some(findings.labelled(context, view.output_content.into(), label));
    }
    if !matches!(view.kind, Kind::Llm | Kind::Tool | Kind::Retriever) || view.wrapper {
        return None;
    }
    if view.output_content == Content::Present {
        // The status of the span, its output, and the results of calls without a span of their own.
        findings.examine(1 + virtual_calls(context).filter(|call| call.result.is_some()).count());
    }
    Some(findings.labelled(context, view.output_content.into(), VALID))
}

/// The finding, with the model call whose output caused the failure as its origin, if there is one.
fn with_author_origin(context: &Context<'_>, view: &SpanView, finding: Finding, cause: Defect) -> Finding {
    if let Some(llm) = unexecuted::author_of_step(context).filter(|_| !is_environmental(cause)) {
        let category = unexecuted::category_of_code(cause);
        return Finding { category, ..finding.from_origin(llm) };
    }
    let author = call_of(context, view).and_then(|call| call.llm);
    Finding { origin: author.filter(|_| is_of_model(cause)), ..finding }
}

/// The call that a tool's span carried out.
fn call_of<'a>(context: &Context<'a>, view: &SpanView) -> Option<&'a Call> {
    if view.kind != Kind::Tool {
        return None;
    }
    let calls = CallIndex::cached(context.trace, context.memo);
    calls.by_tool.get(&context.at).and_then(|&i| context.trace.calls.get(i))
}

/// Whether the environment, not the agent, is at fault for an error with this cause.
fn is_environmental(cause: Defect) -> bool {
    cause.category().is_some_and(|c| c.is_environment())
}

/// The label of an error with this cause on a span of this kind.
fn label_of(kind: Kind, cause: Defect) -> &'static str {
    use Defect::{EnvironmentBroken, InvalidCode, RateLimited, ServiceDown, Unauthenticated, UndefinedName};
    match (kind, cause) {
        (_, RateLimited | ServiceDown | Unauthenticated) => API,
        (_, EnvironmentBroken) => SYSTEM,
        (Kind::Llm, InvalidCode | UndefinedName) => SYSTEM,
        (Kind::Llm | Kind::Embedding | Kind::Reranker, _) => API,
        (Kind::Tool | Kind::Retriever | Kind::Memory, _) => TOOL,
        _ => SYSTEM,
    }
}

/// A finding about an error that the span returned as its result, with the cause; else `None`.
fn returned_error(context: &Context<'_>, view: &SpanView) -> Option<(Finding, Defect)> {
    match view.kind {
        Kind::Tool | Kind::Retriever | Kind::Memory if !view.output_content.is_partial() => {
            let call = call_of(context, view);
            let error = match call.filter(|call| call.result.is_some()) {
                Some(call) => reported_by(context.trace, context.memo, call)?,
                None => {
                    let result = view.result.as_ref()?;
                    let is_document =
                        |_: &String| view.kind == Kind::Retriever && error_text::is_in_document(result);
                    reported(context.memo, result).filter(|passage| !is_document(passage))?
                }
            };
            let cause = call.map_or_else(|| cause(&error), |call| cause_of_call(call, &error));
            let rationale = format!(
                "a result was expected; what came back is an error report, though the span's status does not say \
                 so{}",
                cause_suffix(cause)
            );
            Some((cause.finding(rationale, &error), cause))
        }
        Kind::Llm => failed_completion(view),
        _ => None,
    }
}

/// A model call whose output is the API's error object, or whose finish reason is `error`.
fn failed_completion(view: &SpanView) -> Option<(Finding, Defect)> {
    let text = view.output_text();
    if view.finished_by(FinishReason::Error).is_some() {
        let cause = cause(&text);
        let quote = if text.trim().is_empty() { "error" } else { &text };
        let rationale = "a completion was expected; the model call finished with reason 'error'";
        return Some((cause.finding(rationale, quote), cause));
    }
    // The output may explain an error, so that only an API's error object counts.
    let object = text.trim().strip_prefix('{')?.trim_start();
    if !object.starts_with("\"error\"") || view.requests().next().is_some() {
        return None;
    }
    let value = json_keys::parse(text.trim())?;
    let error = value.get("error")?.as_object()?;
    if value.as_object()?.len() > 2 || !error.contains_key("message") {
        return None;
    }
    let cause = cause(&text);
    Some((cause.finding("a completion was expected; the output is the API's error object", &text), cause))
}

/// Calls of this model call that have no span of their own.
pub(crate) fn virtual_calls<'a>(context: &Context<'a>) -> impl Iterator<Item = &'a Call> {
    let own_span = context.at;
    let call_index = CallIndex::cached(context.trace, context.memo);
    let trace = context.trace;
    let calls = (0..).map_while(move |nth| call_index.by_llm.get(&own_span)?.get(nth).copied());
    calls.filter_map(|i| trace.calls.get(i)).filter(|call| call.tool.is_none())
}

#[cfg(test)]
mod tests;
