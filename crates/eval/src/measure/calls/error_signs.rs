//! The error of a span or call, by its error signs or its result, with its cause.
//!
//! In: a span or a call. Out: a finding or a [`CallError`], with the cause of the error and the text to quote.

use verdict_otlp::trace::Kind;

use crate::measure::calls::errors_as_data::is_data;
use crate::measure::defects::Defect;
use crate::measure::error_kind::{cause, cause_excerpt, cause_of_call};
use crate::measure::excerpt::head;
use crate::measure::memo::Memo;
use crate::measure::{Finding, error_text};
use crate::recognise::{AgentTrace, Call, ErrorSign, ErrorSource, SpanView, Text};

/// Maximum bytes of an exception's type that are shown.
const MAX_TYPE_BYTES: usize = 80;

/// A suffix of the rationale for causes that are not the agent's (000, section 1).
pub(crate) fn cause_suffix(cause: Defect) -> &'static str {
    match cause.category() {
        // A limit may be reached by the agent's actions or by its input.
        _ if cause == Defect::Exhausted => ", at a limit",
        Some(category) if category.is_environment() => ", caused by the environment",
        _ => "",
    }
}

/// A finding about the status, exceptions and flags of the span, with their cause. `call` is the call that the span
/// carried out. `None` if the span has no error signs.
pub(crate) fn own_signs(view: &SpanView, call: Option<&Call>) -> Option<(Finding, Defect)> {
    if view.errors.is_empty() {
        return None;
    }
    let (retries, signs): (Vec<&ErrorSign>, Vec<&ErrorSign>) =
        view.errors.iter().partition(|sign| sign.source == ErrorSource::Retry);
    let is_retry_announced = !retries.is_empty();
    // A retry sign accompanies the status and the exception that it explains.
    let signs = if signs.is_empty() { retries } else { signs };
    let sorted = by_rank(&signs);
    let cause_of = |text: &str| call.map_or_else(|| cause(text), |call| cause_of_call(call, text));
    let cause = match cause_of(&signs_text(&sorted)) {
        Defect::Errored => view.result.as_deref().map_or(Defect::Errored, cause_of),
        defect => defect,
    };
    let text = best_message(&sorted).or(view.result.as_deref());
    let quote = text.map_or(STATUS_ERROR, |text| cause_excerpt(text));
    let rationale =
        format!("{} was expected; {}", expected_output(view.kind), ending(&signs, is_retry_announced));
    let finding = match is_retry_announced {
        false => cause.finding(rationale + cause_suffix(cause), quote),
        true => Finding { category: cause.category(), ..Defect::RetryAnnounced.finding(rationale, quote) },
    };
    Some((finding, cause))
}

/// The quote of an error without a text.
const STATUS_ERROR: &str = "status ERROR";

/// The expected output of a span of this kind.
fn expected_output(kind: Kind) -> &'static str {
    match kind {
        Kind::Llm => "a completion",
        Kind::Agent => "an answer",
        Kind::Tool | Kind::Retriever | Kind::Memory => "a result",
        Kind::Embedding | Kind::Reranker => "a reply",
        _ => "an end without an error",
    }
}

/// A description of the end of the span by its first sign, with the type of the exception.
fn ending(signs: &[&ErrorSign], is_retry_announced: bool) -> String {
    let error_type = signs.iter().find_map(|sign| sign.error_type.as_deref()).map_or("", str::trim);
    let type_suffix = if error_type.is_empty() {
        String::new()
    } else {
        format!(" ({})", head(error_type, MAX_TYPE_BYTES))
    };
    let description = match signs.first().map(|sign| sign.source) {
        _ if is_retry_announced => "an error that is announced as to be retried",
        Some(ErrorSource::Status) => "status ERROR",
        Some(ErrorSource::Exception | ErrorSource::Retry) => "an exception",
        Some(ErrorSource::ErrorType) => "error.type",
        Some(ErrorSource::Flag) => "an error flag",
        None => "an error",
    };
    format!("the span ended with {description}{type_suffix}")
}

/// The most informative text of the signs, verbatim.
fn best_message<'s>(sorted: &[&'s ErrorSign]) -> Option<&'s str> {
    let messages = sorted.iter().filter(|s| rank(s) < 2).filter_map(|s| s.message.as_deref());
    let types = sorted.iter().filter_map(|s| s.error_type.as_deref());
    let other_messages = sorted.iter().filter_map(|s| s.message.as_deref());
    messages.chain(types).chain(other_messages).map(str::trim).find(|text| !text.is_empty())
}

fn by_rank<'s>(signs: &[&'s ErrorSign]) -> Vec<&'s ErrorSign> {
    let mut sorted = signs.to_vec();
    sorted.sort_by_key(|sign| rank(sign));
    sorted
}

/// The rank of a sign, 0 for the most informative: exceptions, then the status, then flags and types.
fn rank(sign: &ErrorSign) -> u8 {
    match sign.source {
        ErrorSource::Exception | ErrorSource::Retry => 0,
        ErrorSource::Status => 1,
        ErrorSource::ErrorType | ErrorSource::Flag => 2,
    }
}

/// Types and messages of the signs, the most informative first, each once.
fn signs_text(sorted: &[&ErrorSign]) -> String {
    let mut out = String::new();
    // The name of a flag or type is used only if there is no message.
    let has_message = sorted.iter().any(|sign| rank(sign) < 2 && sign.message.is_some());
    let used = sorted.iter().filter(|sign| !has_message || rank(sign) < 2);
    for text in used.flat_map(|sign| [&sign.error_type, &sign.message]).flatten() {
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

/// The error of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallError {
    pub cause: Defect,
    /// The text of the error, verbatim.
    pub quote: String,
}

/// Whether the model's output causes errors of this kind: arguments that the tool refuses, a query without a result,
/// code that fails.
pub(crate) fn is_of_model(cause: Defect) -> bool {
    use Defect::{EmptyResult, InvalidCode, MalformedArguments, UndefinedName, WrongArguments};
    matches!(cause, WrongArguments | MalformedArguments | InvalidCode | UndefinedName | EmptyResult)
}

/// The error of a call, by the signs of its span (status, exception, flag) or by its result; `None` if it has none.
pub(crate) fn call_error(trace: &AgentTrace, memo: &Memo, call: &Call) -> Option<CallError> {
    let from_result = match call.failed {
        true => call.result.as_ref().and_then(|text| reported(memo, text)),
        false => reported_by(trace, memo, call),
    };
    if !call.failed {
        let quote = from_result?;
        return Some(CallError { cause: cause_of_call(call, &quote), quote });
    }
    let signs: Vec<&ErrorSign> = call
        .tool
        .and_then(|tool| trace.views.get(tool))
        .map_or(Vec::new(), |view| view.errors.iter().collect());
    let sorted = by_rank(&signs);
    let text = signs_text(&sorted);
    let result = call.result.as_deref().filter(|result| !result.trim().is_empty());
    let quote = best_message(&sorted).or(from_result.as_deref()).or(result).unwrap_or(STATUS_ERROR);
    let cause = cause_of_call(call, if text.is_empty() { quote } else { &text });
    Some(CallError { cause, quote: cause_excerpt(quote).to_owned() })
}

/// The error that the result of a call reports; `None` if the error is the content that was looked up.
pub(crate) fn reported_by(trace: &AgentTrace, memo: &Memo, call: &Call) -> Option<String> {
    let result = call.result.as_ref()?;
    reported(memo, result).filter(|message| !is_data(trace, memo, call, result, message))
}

struct Reported(Option<String>);

/// [`error_text::reported`], computed once for each text.
pub(crate) fn reported(memo: &Memo, text: &Text) -> Option<String> {
    memo.for_text(text, |t| Reported(error_text::reported(t))).0.clone()
}
