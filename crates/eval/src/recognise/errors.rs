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
/// Maximum number of signs below a span that its own are compared with.
const MAX_BELOW: usize = 32;
/// Maximum length of a message in comparisons. The error is at the beginning of a traceback.
const MAX_COMPARED: usize = 4 * 1024;
/// Minimum length of a message that is searched in others. Shorter ones match by chance.
const MIN_MESSAGE: usize = 4;

/// Fills in the signs of a span.
pub(crate) fn collect_signs(
    table: &ConventionTable,
    texts: &mut TextInterner,
    scan: &SpanScan<'_>,
    view: &mut SpanView,
) {
    let message = first(scan, Field::ErrorMessage);
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
    if let Some(kind) = first(scan, Field::ErrorType) {
        let message = message.and_then(|m| texts.non_empty(m));
        add_sign(
            view,
            ErrorSign { source: ErrorSource::ErrorType, error_type: texts.non_empty(kind), message },
        );
    }
    for (_, key, value) in scan.flags.iter().filter(|(m, ..)| *m == Meaning::Error) {
        let text = value.as_str().filter(|v| v.len() > MIN_MESSAGE + 3);
        let message = message.or(text).and_then(|m| texts.non_empty(m));
        add_sign(view, ErrorSign { source: ErrorSource::Flag, error_type: texts.non_empty(key), message });
    }
    let no_failure =
        view.errors.iter().filter_map(|s| s.error_type.as_ref()).any(|k| is_no_failure(table, k));
    if scan.has(Meaning::Cancelled) || no_failure {
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

fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_COMPARED)]
}

fn first<'a>(scan: &SpanScan<'a>, field: Field) -> Option<&'a str> {
    scan.candidates(field).iter().filter_map(|(_, _, v)| v.as_str()).find(|s| !s.is_empty())
}

fn is_no_failure(table: &ConventionTable, kind: &str) -> bool {
    let class = class(kind);
    table.not_failures.iter().any(|n| n == class || n == kind)
}

/// The name of a class without its module.
fn class(kind: &str) -> &str {
    kind.rsplit(['.', ':']).next().unwrap_or(kind)
}

/// Marks the signs of spans that a later span is another attempt of.
pub(crate) fn mark_retried(tree: &Tree, views: &mut [SpanView], retried: &HashSet<SpanId>) {
    let attempts = tree.spans.iter().zip(views).filter(|(span, _)| retried.contains(&span.id));
    attempts.flat_map(|(_, view)| &mut view.errors).for_each(|sign| sign.source = ErrorSource::Retry);
}

/// Moves signs that only repeat the sign of a descendant to [`SpanView::inherited_errors`].
pub(crate) fn inherit(tree: &Tree, views: &mut [SpanView]) {
    if views.iter().all(|view| view.errors.is_empty()) {
        return;
    }
    let mut below: Vec<Vec<(Option<Text>, Option<Text>)>> = vec![Vec::new(); views.len()];
    for &at in tree.order().iter().rev() {
        let signs = std::mem::take(&mut below[at]);
        let view = &mut views[at];
        if !view.errors.is_empty() && repeats(&view.errors, &signs) {
            view.inherited_errors = std::mem::take(&mut view.errors);
        }
        if let Some(parent) = tree.parent(at) {
            let own_signs = view.errors.iter().chain(&view.inherited_errors);
            let sign_texts = own_signs.map(|sign| (sign.error_type.clone(), sign.message.clone()));
            let remaining = MAX_BELOW.saturating_sub(below[parent].len());
            below[parent].extend(sign_texts.chain(signs).take(remaining));
        }
    }
}

fn repeats(signs: &[ErrorSign], below: &[(Option<Text>, Option<Text>)]) -> bool {
    if below.is_empty() {
        return false;
    }
    // An ERROR status without a message, above a span that failed, is no evidence of its own.
    let specific =
        |s: &&ErrorSign| s.message.is_some() || (s.error_type.is_some() && s.source != ErrorSource::Flag);
    let mut specific = signs.iter().filter(specific).peekable();
    specific.peek().is_none()
        || specific.any(|sign| {
            below.iter().any(|(kind, message)| is_same_error(sign, kind.as_ref(), message.as_ref()))
        })
}

fn is_same_error(sign: &ErrorSign, kind: Option<&Text>, message: Option<&Text>) -> bool {
    match (&sign.message, message) {
        (Some(above), Some(below)) => {
            let contains = |a: &Text, b: &Text| b.len() >= MIN_MESSAGE && head(a).contains(head(b).trim());
            contains(above, below) || contains(below, above)
        }
        // If a message is missing, the same class is taken for the same error.
        _ => match (&sign.error_type, kind) {
            (Some(above), Some(below)) => class(above) == class(below),
            _ => false,
        },
    }
}
