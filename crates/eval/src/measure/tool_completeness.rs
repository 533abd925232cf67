//! `tool_completeness` (001, table 1): whether a tool call achieved its purpose, 1-5.
//!
//! In: a call, its result, and the definition of the tool in the prompt. Out: 5, or the score of the worst defect: an
//! error (1), arguments that the tool does not accept, an identifier that the model invented, a result that is cut off.
//! A lookup that finds nothing is noted. A defect of the arguments is reported on the model call that wrote them, and
//! with this origin on the tool call. Calls without a span are measured on the model call.
//!
//! The rule examines the arguments of a call with a result, where the trace contains the tool's schema, and a result
//! that shows whether the call succeeded: it is structured (JSON, whose fields show it), its span has the status `OK`,
//! or it is long enough to be compared with the query. The status `OK` is not a default: it states that the call was
//! completed, and an error in the text of the result contradicts it. Plain text under an unset status does not show
//! whether the call succeeded, so that such a call is unmeasured.

use verdict_otlp::trace::{Kind, Status};

use super::defects::{Defect, Findings};
use super::{Context, Finding, Measurement, Unmeasured};
use crate::measure::calls::attempts::{CallAttempts, MIN_REPEATED_FAILURES, quoted};
use crate::measure::calls::call_index::CallIndex;
use crate::measure::calls::error_signs::{call_error, is_of_model};
use crate::measure::reasoning::recovery;
use crate::recognise::{Call, ErrorSource};

pub(crate) mod arguments;
pub(crate) mod result;
pub(crate) mod unexecuted;
pub(crate) mod empty_lookup;

pub(crate) fn measure(context: &Context<'_>) -> Option<Measurement> {
    match context.trace.views.get(context.at)?.kind {
        Kind::Tool => measure_tool_span(context),
        Kind::Llm => measure_llm_span(context),
        _ => None,
    }
}

/// The measurement of the call that this tool call carried out.
fn measure_tool_span(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at)?;
    let mut findings = Findings::new();
    let call_index = CallIndex::cached(context.trace, context.memo);
    let call = call_index.by_tool.get(&context.at).and_then(|&i| context.trace.calls.get(i));
    if let Some(call) = call {
        let has_result = check_result(context, call, &mut findings);
        findings.examine(usize::from(has_result && arguments::schema(call).is_some()));
        findings.extend(repeated_failure(context, call));
        if let Some(llm) = call.llm {
            let defects = arguments::defects(context, call).into_iter();
            let defects = defects.map(|finding| recovery::graded(context, call, finding));
            findings.extend(defects.map(|finding| finding.citing_at(context.trace, llm).from_origin(llm)));
        }
    }
    Some(findings.scored(context, view.output_content.into()))
}

/// The measurement of the calls that this model call requested: their arguments, and the results of calls without a
/// span.
fn measure_llm_span(context: &Context<'_>) -> Option<Measurement> {
    let call_index = CallIndex::cached(context.trace, context.memo);
    let calls = call_index.by_llm.get(&context.at).map_or(&[][..], Vec::as_slice);
    let mut findings = Findings::new();
    let mut has_any_result = false;
    findings.extend(context.trace.views.get(context.at).and_then(|view| unexecuted::defects(context, view)));
    for call in calls.iter().filter_map(|&i| context.trace.calls.get(i)) {
        if call.tool.is_none() {
            let has_result = check_result(context, call, &mut findings);
            findings.examine(usize::from(has_result && arguments::schema(call).is_some()));
            has_any_result |= has_result;
        }
        let invented = call.tool.and_then(|_| empty_lookup::finding_of_author(context, call));
        let defects = arguments::defects(context, call).into_iter().chain(invented);
        findings.extend(defects.map(|finding| {
            let finding = recovery::graded(context, call, finding);
            match call.tool {
                Some(tool) => finding.citing_at(context.trace, tool),
                None => finding,
            }
        }));
    }
    let without_span =
        calls.iter().filter_map(|&i| context.trace.calls.get(i)).filter(|call| call.tool.is_none());
    let partial = without_span.map(|call| call.result_content).filter(|content| content.is_partial()).max();
    let unmeasured_reason = partial.map_or(Unmeasured::NotApplicable, Unmeasured::from);
    (has_any_result || partial.is_some() || !findings.is_empty())
        .then(|| findings.scored(context, unmeasured_reason))
}

/// The finding about a failing call that was repeated, on the tool call of its last repetition.
fn repeated_failure(context: &Context<'_>, call: &Call) -> Option<Finding> {
    let attempts = CallAttempts::get(context.trace, context.memo);
    let repeat =
        attempts.last_repeat(*CallIndex::cached(context.trace, context.memo).by_tool.get(&context.at)?)?;
    let rationale = format!(
        "{} was called {} times with the same arguments and failed each time; after one failure a changed call \
         was expected",
        call.name.trim(),
        repeat.nth
    );
    let finding = Defect::RepeatedFailingCall.finding(rationale, quoted(call));
    // One more attempt does not harm a user to whom the failure is reported.
    Some(if repeat.nth < MIN_REPEATED_FAILURES { recovery::graded(context, call, finding) } else { finding })
}

/// Checks the result or error of a call; returns false if neither is recorded.
fn check_result(context: &Context<'_>, call: &Call, findings: &mut Findings) -> bool {
    if let Some(finding) = empty_lookup::not_found(context, call) {
        findings.push(finding);
        return true;
    }
    if let Some(error) = call_error(context.trace, context.memo, call) {
        let is_retried = call
            .tool
            .and_then(|tool| context.trace.views.get(tool))
            .is_some_and(|view| view.errors.iter().any(|sign| sign.source == ErrorSource::Retry));
        let defect = if is_retried { Defect::RetryAnnounced } else { error.cause };
        let rationale = format!("a result of {} was expected; the call failed", call.name.trim());
        // If the model's output caused the failure, the model call is its origin.
        let origin = call.llm.filter(|_| is_of_model(error.cause) && call.tool.is_some());
        let category = error.cause.category();
        let finding = Finding { category, origin, ..defect.finding(rationale, &error.quote) };
        findings.push(recovery::graded(context, call, finding));
        return true;
    }
    let Some(text) = &call.result else { return false };
    let status = call.tool.and_then(|tool| context.trace.tree.spans.get(tool)).map(|span| span.status);
    match result::check(context, call, text) {
        result::ResultCheck::Complete { shows_outcome } => {
            findings.examine(usize::from(shows_outcome || status == Some(Status::Ok)));
            true
        }
        result::ResultCheck::Unclear => false,
        result::ResultCheck::Defective(finding) => {
            findings.push(*finding);
            true
        }
    }
}

#[cfg(test)]
mod tests;
