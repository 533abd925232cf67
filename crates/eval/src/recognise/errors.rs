//! Finds error signs on a span, and separates those that only repeat the sign of a descendant.

use foldhash::HashSet;
use verdict_otlp::trace::{SpanId, Status, Tree};
use verdict_otlp::{Attributes, Value};

use super::message::Text;
use super::overrides::{EventRule, Field, Meaning};
use super::scan::SpanScan;
use super::span_view::{ErrorSign, ErrorSource, SpanView};
use super::table::ConventionTable;
use super::texts::TextInterner;

/// Maximum number of signs of one span. Instrumentations record the same exception a few times.
const MAX_SIGNS: usize = 16;
/// Maximum number of signs below a span with which its own signs are compared.
const MAX_SIGNS_BELOW: usize = 32;
/// Maximum length of a message in comparisons. The error is at the beginning of a traceback.
const MAX_COMPARED: usize = 4 * 1024;
/// Minimum length of a message that is searched in others. Shorter ones match by chance.
const MIN_MESSAGE: usize = 4;
/// Minimum length of a flag's value that is read as a message: longer than `true`, `error` or `failed`.
const MIN_FLAG_MESSAGE: usize = 8;

/// Fills in the signs of a span.
pub(crate) fn collect_signs(
    table: &ConventionTable,
    texts: &mut TextInterner,
    scan: &SpanScan<'_>,
    view: &mut SpanView,
) {
    let message = first_text(scan, Field::ErrorMessage);
    for event in scan.events.iter().filter(|e| e.rule == EventRule::Exception) {
        let mut sign = ErrorSign { source: ErrorSource::Exception, error_type: None, message: None };
        for (key, value) in Attributes::new(event.message, event.attributes).chain(event.body.entries()) {
            match (key, value) {
                ("exception.type" | "error.type", Value::Str(s)) => sign.error_type = texts.non_empty(s),
                ("exception.message" | "error.message", Value::Str(s)) => sign.message = texts.non_empty(s),
                _ => {}
            }
        }
        add_sign(view, sign);
    }
    if scan.status == Status::Error {
        let message = texts.non_empty(scan.status_message).or(message.and_then(|m| texts.non_empty(m)));
        add_sign(view, ErrorSign { source: ErrorSource::Status, error_type: None, message });
    }
    if let Some(error_type) = first_text(scan, Field::ErrorType) {
        let message = message.and_then(|m| texts.non_empty(m));
        add_sign(
            view,
            ErrorSign { source: ErrorSource::ErrorType, error_type: texts.non_empty(error_type), message },
        );
    }
    for (_, key, value) in scan.flags.iter().filter(|(m, ..)| *m == Meaning::Error) {
        let text = value.as_str().filter(|v| v.len() >= MIN_FLAG_MESSAGE);
        let message = message.or(text).and_then(|m| texts.non_empty(m));
        add_sign(view, ErrorSign { source: ErrorSource::Flag, error_type: texts.non_empty(key), message });
    }
    let is_cancellation =
        view.errors.iter().filter_map(|s| s.error_type.as_ref()).any(|k| is_cancellation(table, k));
    if scan.has(Meaning::Cancelled) || is_cancellation {
        view.cancelled = true;
        view.errors.clear();
    }
    if scan.has(Meaning::Retry) {
        view.errors.iter_mut().for_each(|s| s.source = ErrorSource::Retry);
    }
}

/// Adds the sign that a tool's result has a flag for failure.
pub(crate) fn add_error_flag(texts: &mut TextInterner, view: &mut SpanView) {
    let sign = ErrorSign {
        source: ErrorSource::Flag,
        error_type: texts.non_empty("is_error"),
        message: view.result.clone().filter(|r| !r.is_empty()),
    };
    add_sign(view, sign);
}

fn add_sign(view: &mut SpanView, sign: ErrorSign) {
    if view.errors.len() < MAX_SIGNS && !view.errors.contains(&sign) {
        view.errors.push(sign);
    }
}

/// The beginning of a message, which is compared.
fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_COMPARED)]
}

/// The first value of a field that is a text and not empty.
fn first_text<'a>(scan: &SpanScan<'a>, field: Field) -> Option<&'a str> {
    scan.candidates(field).iter().filter_map(|(_, _, v)| v.as_str()).find(|s| !s.is_empty())
}

/// Whether an error type is that of a cancellation or interrupt, which is no failure.
fn is_cancellation(table: &ConventionTable, error_type: &str) -> bool {
    let class = class_name(error_type);
    table.not_failures.iter().any(|n| n == class || n == error_type)
}

/// The name of a class without its module.
fn class_name(error_type: &str) -> &str {
    error_type.rsplit(['.', ':']).next().unwrap_or(error_type)
}

/// Marks the signs of spans that a later span retried, so that they do not count as final failures.
pub(crate) fn mark_retried(tree: &Tree, views: &mut [SpanView], retried: &HashSet<SpanId>) {
    let attempts = tree.spans.iter().zip(views).filter(|(span, _)| retried.contains(&span.id));
    attempts.flat_map(|(_, view)| &mut view.errors).for_each(|sign| sign.source = ErrorSource::Retry);
}

/// Moves signs that only repeat the sign of a descendant to [`SpanView::inherited_errors`].
pub(crate) fn separate_inherited(tree: &Tree, views: &mut [SpanView]) {
    if views.iter().all(|view| view.errors.is_empty()) {
        return;
    }
    let mut signs_below: Vec<Vec<(Option<Text>, Option<Text>)>> = vec![Vec::new(); views.len()];
    for &index in tree.order().iter().rev() {
        let below = std::mem::take(&mut signs_below[index]);
        let view = &mut views[index];
        if !view.errors.is_empty() && repeats_sign_below(&view.errors, &below) {
            view.inherited_errors = std::mem::take(&mut view.errors);
        }
        if let Some(parent) = tree.parent(index) {
            let own_signs = view.errors.iter().chain(&view.inherited_errors);
            let sign_texts = own_signs.map(|sign| (sign.error_type.clone(), sign.message.clone()));
            let remaining = MAX_SIGNS_BELOW.saturating_sub(signs_below[parent].len());
            signs_below[parent].extend(sign_texts.chain(below).take(remaining));
        }
    }
}

/// Whether the signs of a span only repeat signs below it, which are given as error type and message.
fn repeats_sign_below(signs: &[ErrorSign], below: &[(Option<Text>, Option<Text>)]) -> bool {
    if below.is_empty() {
        return false;
    }
    // An ERROR status without a message, above a span that failed, is no further evidence.
    let is_specific =
        |s: &&ErrorSign| s.message.is_some() || (s.error_type.is_some() && s.source != ErrorSource::Flag);
    let mut specific = signs.iter().filter(is_specific).peekable();
    specific.peek().is_none()
        || specific.any(|sign| {
            below
                .iter()
                .any(|(error_type, message)| is_same_error(sign, error_type.as_ref(), message.as_ref()))
        })
}

fn is_same_error(sign: &ErrorSign, error_type: Option<&Text>, message: Option<&Text>) -> bool {
    match (&sign.message, message) {
        (Some(above), Some(below)) => {
            let contains = |a: &Text, b: &Text| b.len() >= MIN_MESSAGE && head(a).contains(head(b).trim());
            contains(above, below) || contains(below, above)
        }
        // If a message is missing, errors of the same class count as the same error.
        _ => match (&sign.error_type, error_type) {
            (Some(above), Some(below)) => class_name(above) == class_name(below),
            _ => false,
        },
    }
}
