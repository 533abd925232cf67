//! Signs of error on a span (conventions, section 5.10), and which of them only repeat a child's.

use verdict_otlp::trace::{Status, Tree};
use verdict_otlp::{Attributes, Value};

use super::message::Text;
use super::overrides::{EventRule, Field, Meaning};
use super::scan::SpanScan;
use super::span_view::{ErrorSign, ErrorSource, SpanView};
use super::table::Table;
use super::texts::Texts;

/// Signs kept of one span: instrumentations record the same exception a few times.
const MAX_SIGNS: usize = 16;
/// Signs below a span that its own are compared with.
const MAX_BELOW: usize = 32;
/// How much of a message is compared with others: a traceback repeats itself at its beginning.
const MAX_COMPARED: usize = 4 * 1024;
/// A message this short is found in others by accident.
const MIN_MESSAGE: usize = 4;

/// Collects the signs that stand on the span itself.
pub(crate) fn collect_signs(table: &Table, texts: &mut Texts, scan: &SpanScan<'_>, view: &mut SpanView) {
    let message = first(scan, Field::ErrorMessage);
    for event in scan.events.iter().filter(|e| e.rule == EventRule::Exception) {
        let mut sign = ErrorSign { source: ErrorSource::Exception, kind: None, message: None };
        for (key, value) in Attributes::new(event.message, event.attributes).chain(event.body.entries()) {
            match (key, value) {
                ("exception.type" | "error.type", Value::Str(s)) => sign.kind = texts.some(s),
                ("exception.message" | "error.message", Value::Str(s)) => sign.message = texts.some(s),
                _ => {}
            }
        }
        add_sign(view, sign);
    }
    if scan.status == Status::Error {
        let message = texts.some(scan.status_message).or(message.and_then(|m| texts.some(m)));
        add_sign(view, ErrorSign { source: ErrorSource::Status, kind: None, message });
    }
    if let Some(kind) = first(scan, Field::ErrorType) {
        let message = message.and_then(|m| texts.some(m));
        add_sign(view, ErrorSign { source: ErrorSource::ErrorType, kind: texts.some(kind), message });
    }
    for (_, key, value) in scan.flags.iter().filter(|(m, ..)| *m == Meaning::Error) {
        let said = value.as_str().filter(|v| v.len() > MIN_MESSAGE + 3);
        let message = message.or(said).and_then(|m| texts.some(m));
        add_sign(view, ErrorSign { source: ErrorSource::Flag, kind: texts.some(key), message });
    }
    let on_purpose = view.errors.iter().filter_map(|s| s.kind.as_ref()).any(|k| is_no_failure(table, k));
    if scan.has(Meaning::Cancelled) || on_purpose {
        view.cancelled = true;
        view.errors.clear();
    }
    if scan.has(Meaning::Retry) {
        view.errors.iter_mut().for_each(|s| s.source = ErrorSource::Retry);
    }
}

/// The span's result says itself that it failed.
pub(crate) fn add_error_flag(texts: &mut Texts, view: &mut SpanView) {
    let sign = ErrorSign {
        source: ErrorSource::Flag,
        kind: texts.some("is_error"),
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
    let end = (0..=MAX_COMPARED.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.get(..end).unwrap_or(text)
}

fn first<'a>(scan: &SpanScan<'a>, field: Field) -> Option<&'a str> {
    scan.candidates(field).iter().filter_map(|(_, _, v)| v.as_str()).find(|s| !s.is_empty())
}

fn is_no_failure(table: &Table, kind: &str) -> bool {
    let class = class(kind);
    table.not_failures.iter().any(|n| n == class || n == kind)
}

/// A class without its module.
fn class(kind: &str) -> &str {
    kind.rsplit(['.', ':']).next().unwrap_or(kind)
}

/// Moves the signs that only repeat a descendant's to [`SpanView::inherited_errors`].
pub(crate) fn inherit(tree: &Tree, views: &mut [SpanView]) {
    let mut below: Vec<Vec<(Option<Text>, Option<Text>)>> = vec![Vec::new(); views.len()];
    for &at in tree.order().iter().rev() {
        let seen = std::mem::take(&mut below[at]);
        let Some(view) = views.get_mut(at) else { continue };
        if !view.errors.is_empty() && repeats(&view.errors, &seen) {
            view.inherited_errors = std::mem::take(&mut view.errors);
        }
        if let Some(up) = tree.parent(at) {
            let own = view.errors.iter().chain(&view.inherited_errors);
            let all: Vec<_> = own.map(|s| (s.kind.clone(), s.message.clone())).chain(seen).collect();
            let target = &mut below[up];
            let room = MAX_BELOW.saturating_sub(target.len());
            target.extend(all.into_iter().take(room));
        }
    }
}

fn repeats(signs: &[ErrorSign], below: &[(Option<Text>, Option<Text>)]) -> bool {
    if below.is_empty() {
        return false;
    }
    // A bare ERROR status above a span that failed says nothing new.
    let telling = |s: &&ErrorSign| s.message.is_some() || (s.kind.is_some() && s.source != ErrorSource::Flag);
    if !signs.iter().any(|s| telling(&s)) {
        return true;
    }
    signs
        .iter()
        .filter(telling)
        .any(|sign| below.iter().any(|(kind, message)| same(sign, kind.as_ref(), message.as_ref())))
}

fn same(sign: &ErrorSign, kind: Option<&Text>, message: Option<&Text>) -> bool {
    match (&sign.message, message) {
        (Some(above), Some(below)) => {
            let contains = |a: &Text, b: &Text| b.len() >= MIN_MESSAGE && head(a).contains(head(b).trim());
            contains(above, below) || contains(below, above)
        }
        // Without both messages, the same class is the same error.
        _ => match (&sign.kind, kind) {
            (Some(above), Some(below)) => class(above) == class(below),
            _ => false,
        },
    }
}
