//! `error_detection` (001, table 1): is the output a valid response, or a system, tool or API error?
//!
//! In: a span's own error signs and what it returned. Out: one of `valid`, `system_error`,
//! `tool_error`, `api_error`, with the cause as a TRAIL category. A sign is own evidence on a span
//! of any kind; `recognise` has set those aside that only repeat what a span beneath it reported. LLM, TOOL and RETRIEVER
//! spans without content and without error are unmeasured; other kinds are silent then.

use std::collections::BTreeSet;
use std::rc::Rc;

use foldhash::HashMap;

use super::defects::{Defect, Findings, QUOTE_BYTES, unmeasured};
use super::error_kind::{cause, telling};
use super::error_text;
use super::excerpt::head;
use super::memo::Memo;
use super::tool_completeness::written;
use super::{Answer, Context, Finding, Measurement, Metric, Step, Unmeasured};
use crate::recognise::{AgentTrace, Call, Content, ErrorSign, ErrorSource, SpanView, Text};
use verdict_otlp::trace::{Idx, Kind};

mod aftermath;

/// As in its attribute key.
pub const NAME: &str = "error_detection";
const VALID: &str = "valid";
const SYSTEM: &str = "system_error";
const TOOL: &str = "tool_error";
const API: &str = "api_error";
/// Bytes of an exception's type that are shown: names of classes are short.
const SHOWN_KIND: usize = 80;

/// See the module.
pub struct ErrorDetection;

impl Metric for ErrorDetection {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> Step {
        Step::Done(measure(context).into_iter().collect())
    }
}

fn measure(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at)?;
    if view.kind == Kind::Unknown {
        return None;
    }
    let mut findings = Findings::new();
    let mut label = VALID;
    if let Some((found, cause)) = own_signs(view) {
        label = label_of(view.kind, cause);
        findings.push(by_author(context, view, found, cause));
    } else if let Some((found, cause)) = returned(context, view) {
        label = label_of(view.kind, cause);
        findings.push(found);
    }
    for call in virtual_calls(context) {
        if let Some(error) = of_call(context.trace, context.memo, call) {
            let rationale = format!(
                "a result of {} was expected; the call came back with an error{}",
                call.name.trim(),
                blame(error.cause)
            );
            findings.push(error.cause.found(rationale, &error.quote));
            label = if label == VALID { label_of(Kind::Tool, error.cause) } else { label };
        }
    }
    if !findings.is_empty() {
        return Some(findings.labelled(context, NAME, label));
    }
    if !matches!(view.kind, Kind::Llm | Kind::Tool | Kind::Retriever) || view.wrapper {
        return None;
    }
    let seen = view.output_content == Content::Present || view.result.is_some();
    if let Some(met) =
        Some(view.kind).filter(|k| seen && *k == Kind::Llm).and_then(|_| aftermath::met(context))
    {
        findings.push(met);
    }
    Some(match seen {
        true => findings.labelled(context, NAME, VALID),
        false => unmeasured(context.at, NAME, Unmeasured::NoContent),
    })
}

/// A tool's failure that the model's own words brought about is that call's manifestation.
fn by_author(context: &Context<'_>, view: &SpanView, found: Finding, cause: Defect) -> Finding {
    if let Some(llm) = written::author_of_step(context).filter(|_| !of_environment(cause)) {
        let category = written::category_of_code(cause);
        return Finding { category, ..found.from_origin(llm) };
    }
    let calls = CallsAt::of(context.trace, context.memo);
    let call = Some(view.kind).filter(|k| *k == Kind::Tool).and_then(|_| calls.by_tool.get(&context.at));
    let author = call.and_then(|&i| context.trace.calls.get(i)?.llm);
    match author.filter(|_| CallError { cause, quote: String::new() }.is_the_models()) {
        Some(llm) => found.from_origin(llm),
        None => found,
    }
}

fn of_environment(cause: Defect) -> bool {
    cause.category().is_some_and(|c| c.is_environment())
}

/// Rate limits and outages are not the agent's (000, section 1): the rationale says whose it was.
fn blame(cause: Defect) -> &'static str {
    match cause.category() {
        // A limit is reached by what the agent does as often as by what it is given.
        _ if cause == Defect::Exhausted => ", at a limit",
        Some(category) if category.is_environment() => ", caused by the environment",
        _ => "",
    }
}

fn label_of(kind: Kind, cause: Defect) -> &'static str {
    use Defect::{CodeBroken, EnvironmentBroken, RateLimited, ServiceDown, Unauthenticated};
    match (kind, cause) {
        (_, RateLimited | ServiceDown | Unauthenticated) => API,
        (_, EnvironmentBroken) => SYSTEM,
        (Kind::Llm, CodeBroken) => SYSTEM,
        (Kind::Llm | Kind::Embedding | Kind::Reranker, _) => API,
        (Kind::Tool | Kind::Retriever | Kind::Memory, _) => TOOL,
        _ => SYSTEM,
    }
}

/// Status, exceptions and flags of the span itself, with their cause.
pub fn own_signs(view: &SpanView) -> Option<(Finding, Defect)> {
    if view.errors.is_empty() {
        return None;
    }
    let (retries, signs): (Vec<&ErrorSign>, Vec<&ErrorSign>) =
        view.errors.iter().partition(|sign| sign.source == ErrorSource::Retry);
    let announced = !retries.is_empty();
    // A retry sign stands beside the status and the exception that it explains.
    let signs = if signs.is_empty() { retries } else { signs };
    let cause = match cause(&words_of(&signs)) {
        Defect::Errored => view.result.as_deref().map_or(Defect::Errored, super::error_kind::cause),
        known => known,
    };
    let words = loudest(&signs).or(view.result.as_deref());
    let quote = words.map_or(BARE, |words| telling(words, QUOTE_BYTES));
    let rationale = format!("{} was expected; {}", due(view.kind), ended(&signs, announced));
    let finding = match announced {
        false => cause.found(rationale + blame(cause), quote),
        true => {
            let mut finding = Defect::RetryAnnounced.found(rationale, quote);
            finding.category = cause.category();
            finding
        }
    };
    Some((finding, cause))
}

/// All that there is to quote of an error without words.
const BARE: &str = "status ERROR";

/// What a span of this kind is for.
fn due(kind: Kind) -> &'static str {
    match kind {
        Kind::Llm => "a completion",
        Kind::Agent => "an answer",
        Kind::Tool | Kind::Retriever | Kind::Memory => "a result",
        Kind::Embedding | Kind::Reranker => "a reply",
        _ => "an end without an error",
    }
}

/// How the span ended, by its first sign; an exception's type where it is named.
fn ended(signs: &[&ErrorSign], announced: bool) -> String {
    let kind = signs.iter().find_map(|sign| sign.kind.as_deref()).map_or("", str::trim);
    let named = if kind.is_empty() { String::new() } else { format!(" ({})", head(kind, SHOWN_KIND)) };
    let what = match signs.first().map(|sign| sign.source) {
        _ if announced => "an error that is announced as to be retried",
        Some(ErrorSource::Status) => "status ERROR",
        Some(ErrorSource::Exception | ErrorSource::Retry) => "an exception",
        Some(ErrorSource::ErrorType) => "error.type",
        Some(ErrorSource::Flag) => "an error flag",
        None => "an error",
    };
    format!("the span ended with {what}{named}")
}

/// The most telling words among the signs, as they stand in one of them.
fn loudest<'s>(signs: &[&'s ErrorSign]) -> Option<&'s str> {
    let mut sorted: Vec<&'s ErrorSign> = signs.to_vec();
    sorted.sort_by_key(|sign| rank(sign));
    let messages = sorted.iter().filter(|s| rank(s) < 2).filter_map(|s| s.message.as_deref());
    let kinds = sorted.iter().filter_map(|s| s.kind.as_deref());
    let rest = sorted.iter().filter_map(|s| s.message.as_deref());
    messages.chain(kinds).chain(rest).map(str::trim).find(|text| !text.is_empty())
}

/// Exceptions tell most; a flag's or type's name least.
fn rank(sign: &ErrorSign) -> u8 {
    match sign.source {
        ErrorSource::Exception | ErrorSource::Retry => 0,
        ErrorSource::Status => 1,
        ErrorSource::ErrorType | ErrorSource::Flag => 2,
    }
}

/// Type and message of the signs, the most telling first, each said once.
fn words_of(signs: &[&ErrorSign]) -> String {
    let mut sorted: Vec<&ErrorSign> = signs.to_vec();
    sorted.sort_by_key(|sign| rank(sign));
    let mut out = String::new();
    // A flag's or type's name says least: it is only told where nothing else is.
    let told = |sign: &&&ErrorSign| rank(sign) < 2;
    if sorted.iter().any(|sign| rank(sign) < 2 && sign.message.is_some()) {
        sorted = sorted.iter().filter(told).copied().collect();
    }
    for text in sorted.iter().flat_map(|sign| [&sign.kind, &sign.message]).flatten() {
        let text = text.trim();
        if !text.is_empty() && !out.contains(text) {
            if !out.is_empty() {
                out.push_str(": ");
            }
            out.push_str(text);
        }
    }
    out
}

/// An error that the span returned as its result.
fn returned(context: &Context<'_>, view: &SpanView) -> Option<(Finding, Defect)> {
    match view.kind {
        Kind::Tool | Kind::Retriever | Kind::Memory => {
            let error = reported(context.memo, view.result.as_ref()?)?;
            let cause = cause(&error);
            let rationale = format!(
                "a result was expected; what came back is an error report, though the span's status does not say \
                 so{}",
                blame(cause)
            );
            Some((cause.found(rationale, &error), cause))
        }
        Kind::Llm => failed_completion(view),
        _ => None,
    }
}

/// A model call whose "answer" is the API's error object, or that ended for the reason `error`.
fn failed_completion(view: &SpanView) -> Option<(Finding, Defect)> {
    if view.finish.iter().any(|f| f.eq_ignore_ascii_case("error")) {
        let text = view.output_text();
        let cause = cause(&text);
        let quote = if text.trim().is_empty() { "error" } else { &text };
        let rationale = "a completion was expected; the model call finished with reason 'error'";
        return Some((cause.found(rationale, quote), cause));
    }
    // A model may well explain an error: only an API's own error object counts as one.
    let text = view.output_text();
    let object = text.trim().strip_prefix('{')?.trim_start();
    if !object.starts_with("\"error\"") || view.requests().next().is_some() {
        return None;
    }
    let value: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
    let error = value.get("error")?.as_object()?;
    if value.as_object()?.len() > 2 || !error.contains_key("message") {
        return None;
    }
    let cause = cause(&text);
    Some((cause.found("a completion was expected; the output is the API's error object", &text), cause))
}

/// What went wrong with a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallError {
    /// Its cause.
    pub cause: Defect,
    /// Its words, verbatim.
    pub quote: String,
}

impl CallError {
    /// The model's own words brought it about: arguments that the tool refuses, a query that finds
    /// nothing, code that does not run.
    pub fn is_the_models(&self) -> bool {
        matches!(
            self.cause,
            Defect::WrongArguments | Defect::MalformedArguments | Defect::CodeBroken | Defect::EmptyResult
        )
    }
}

/// The error of a call, by a structural sign (status, exception, flag) or by what it returned.
pub fn of_call(trace: &AgentTrace, memo: &Memo, call: &Call) -> Option<CallError> {
    let from_text = call.result.as_ref().and_then(|text| reported(memo, text));
    if !call.failed {
        let quote = from_text?;
        return Some(CallError { cause: cause(&quote), quote });
    }
    let signs: Vec<&ErrorSign> =
        call.tool.and_then(|tool| trace.views.get(tool)).map_or(Vec::new(), |r| r.errors.iter().collect());
    let words = words_of(&signs);
    let result = call.result.as_deref().filter(|r| !r.trim().is_empty());
    let quote = loudest(&signs).or(from_text.as_deref()).or(result).unwrap_or(BARE);
    let cause = cause(if words.is_empty() { quote } else { &words });
    Some(CallError { cause, quote: telling(quote, QUOTE_BYTES).to_owned() })
}

struct Reported(Option<String>);

/// [`error_text::reported`], worked out once for each text.
pub fn reported(memo: &Memo, text: &Text) -> Option<String> {
    memo.of(text, |t| Reported(error_text::reported(t))).0.clone()
}

/// Where the calls of a trace are, by the span that made or carried them out.
#[derive(Default)]
pub struct CallsAt {
    /// Calls that an LLM span wrote, in order.
    pub by_llm: HashMap<Idx, Vec<usize>>,
    /// The call that a TOOL span carried out.
    pub by_tool: HashMap<Idx, usize>,
    /// The tools that were called, each once.
    pub names: BTreeSet<Text>,
}

impl CallsAt {
    /// For the trace of `memo`.
    pub fn of(trace: &AgentTrace, memo: &Memo) -> Rc<CallsAt> {
        memo.trace(|| {
            let mut at = CallsAt::default();
            for (i, call) in trace.calls.iter().enumerate() {
                at.names.insert(call.name.clone());
                if let Some(llm) = call.llm {
                    at.by_llm.entry(llm).or_default().push(i);
                }
                if let Some(tool) = call.tool {
                    at.by_tool.entry(tool).or_insert(i);
                }
            }
            at
        })
    }
}

/// Calls that have no span of their own and happened at this one.
pub fn virtual_calls<'a>(context: &Context<'a>) -> impl Iterator<Item = &'a Call> {
    let at = context.at;
    let known = CallsAt::of(context.trace, context.memo);
    let calls = known.by_llm.get(&at).cloned().unwrap_or_default();
    let trace = context.trace;
    calls.into_iter().filter_map(|i| trace.calls.get(i)).filter(|call| call.tool.is_none())
}

#[cfg(test)]
mod tests;
