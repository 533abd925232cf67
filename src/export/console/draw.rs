//! Renders one trace as text: a summary, one line per span, and below a failed span its failed metrics with their
//! findings.
//!
//! Spans, indentation, findings and line width are limited. The sender controls the depth of the tree, so rendering
//! does not recurse.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use verdict_eval::annotation::TraceHeader;
use verdict_otlp::trace::Idx;

use super::paint::{ConsoleLine, Paint, width, wrap};
use super::read::{AnnotatedTrace, MetricAnnotation, SpanAnnotations};
use super::style::TreeStyle;

/// Limit on the rendered spans of a trace.
const MAX_SPANS: usize = 2_000;
/// Deeper spans are indented as at this depth: each level takes three columns.
const MAX_DEPTH: usize = 24;
/// Limit on the rendered findings of a metric.
const MAX_FINDINGS: usize = 3;
/// Limit on the lines of a finding.
const MAX_FINDING_LINES: usize = 3;
/// Columns of the longest name of a span kind.
const KIND_WIDTH: usize = 9;
/// The smallest supported width of a line.
const MIN_WIDTH: usize = 40;
/// Columns reserved for durations and notes, which follow the names.
const NOTES_WIDTH: usize = 34;

/// A span to render.
struct SpanRow {
    span: Idx,
    depth: usize,
    is_last_sibling: bool,
    has_children: bool,
}

pub(super) fn trace(trace: &AnnotatedTrace, style: &TreeStyle, out: &mut String) {
    let page = Page { width: style.width.max(MIN_WIDTH), color: style.color };
    page.summary(trace, out);
    let rows = rows(trace);
    let names_end = rows.iter().map(|row| name_column(row) + width(&trace.annotations[row.span].name)).max();
    let duration_column =
        names_end.unwrap_or(0).min(page.width.saturating_sub(NOTES_WIDTH)).max(MIN_WIDTH / 2);
    // For each level, whether more siblings of the ancestor follow, so that a vertical line continues.
    let mut continued_levels = [false; MAX_DEPTH + 1];
    for row in &rows {
        let depth = row.depth.min(MAX_DEPTH);
        page.span(row, &trace.annotations[row.span], &continued_levels[..depth], duration_column, out);
        continued_levels[depth] = !row.is_last_sibling && row.depth <= MAX_DEPTH;
        let mut metric_indent = String::from("  ");
        metric_indent.extend((1..=depth).map(|level| if continued_levels[level] { "│  " } else { "   " }));
        metric_indent.push_str(if row.has_children { "│   " } else { "    " });
        for metric in &trace.annotations[row.span].failed_metrics {
            page.metric(metric, &metric_indent, out);
        }
    }
    let omitted = trace.tree.len().saturating_sub(rows.len());
    if omitted > 0 {
        let mut line = page.line();
        line.layout("  ", Paint::Plain).write(&format!("… and {omitted} more spans"), Paint::Faint);
        line.finish(out);
    }
}

/// The rendered spans, in the order of the tree.
fn rows(trace: &AnnotatedTrace) -> Vec<SpanRow> {
    let tree = &trace.tree;
    let mut depths: HashMap<Idx, usize> = HashMap::new();
    let mut rows = Vec::new();
    for &span in tree.order().iter().take(MAX_SPANS) {
        let (siblings, depth) = match tree.parent(span) {
            Some(parent) => (tree.children(parent), depths.get(&parent).copied().unwrap_or(0) + 1),
            None => (tree.top(), 0),
        };
        depths.insert(span, depth);
        let is_last_sibling = siblings.last() == Some(&span);
        let has_children = !tree.children(span).is_empty();
        rows.push(SpanRow { span, depth, is_last_sibling, has_children });
    }
    rows
}

/// The column at which the name of a span begins: after the indentation, the result symbol and the kind, each
/// followed by a space.
fn name_column(row: &SpanRow) -> usize {
    2 + 3 * row.depth.min(MAX_DEPTH) + 2 + KIND_WIDTH + 1
}

/// The symbol and the colour of a result.
fn result_symbol(passed: Option<bool>) -> (&'static str, Paint) {
    match passed {
        Some(true) => ("✓", Paint::Good),
        Some(false) => ("✗", Paint::Bad),
        None => ("–", Paint::Faint),
    }
}

/// A duration, with the unit chosen by its size.
fn format_duration(nanos: u64) -> String {
    let ms = nanos as f64 / 1e6;
    match ms {
        ms if ms < 1.0 => format!("{:.0} µs", ms * 1e3),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 119_950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} min", ms / 6e4),
    }
}

/// A time as RFC 3339, in UTC and whole seconds.
fn format_time(nanos: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(nanos)).to_string()
}

/// A number with `noun`, in the plural unless the number is 1.
fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Renders the lines of a trace.
struct Page {
    width: usize,
    color: bool,
}

impl Page {
    fn line(&self) -> ConsoleLine {
        ConsoleLine::new(self.width, self.color)
    }

    fn summary(&self, trace: &AnnotatedTrace, out: &mut String) {
        let passed = trace.summary.as_ref().and_then(|s| s.passed);
        let (symbol, paint) = result_symbol(passed);
        let verdict = match (passed, &trace.summary) {
            (Some(true), _) => "pass",
            (Some(false), _) => "fail",
            (None, Some(_)) => "unmeasured",
            // Late spans without a revised verdict: the verdict was rendered earlier, with the trace.
            (None, None) if trace.is_late() => "late spans",
            (None, None) => "no verdict",
        };
        let mut line = self.line();
        line.write(symbol, paint).layout(" ", Paint::Plain).write(verdict, paint);
        line.layout("  trace ", Paint::Faint).write(&trace.id(), Paint::Strong);
        let mut facts = vec![count(trace.tree.len(), "span")];
        if trace.failures() > 0 {
            facts.push(format!("{} failing", trace.failures()));
        }
        facts.extend(trace.header.duration.map(format_duration));
        facts.extend(trace.header.start.map(format_time));
        if let Some(summary) = &trace.summary
            && !summary.close_reason.is_empty()
        {
            facts.push(format!("closed by {}", summary.close_reason));
        }
        if trace.is_incomplete {
            facts.push("incomplete".to_owned());
        }
        if trace.tree.has_skew() {
            facts.push("clocks corrected".to_owned());
        }
        line.layout("  ", Paint::Plain).write(&facts.join(" · "), Paint::Faint);
        line.finish(out);
        self.header(&trace.header, out);
        let Some(summary) = &trace.summary else { return };
        for (label, text) in
            [("failed ", summary.failed_metrics.join(", ")), ("chain  ", summary.failure_chain.join(" ▸ "))]
        {
            if !text.is_empty() {
                let mut line = self.line();
                line.layout("  ", Paint::Plain).layout(label, Paint::Faint).write(&text, Paint::Plain);
                line.finish(out);
            }
        }
    }

    /// The service, the agent and the session in one line, the task in the next.
    fn header(&self, header: &TraceHeader, out: &mut String) {
        let fields = [("service", &header.service), ("agent", &header.agent), ("session", &header.session)];
        let labelled: Vec<String> =
            fields.iter().filter_map(|(label, value)| Some(format!("{label} {}", value.as_ref()?))).collect();
        let task = header.task.clone().unwrap_or_default();
        for (label, text) in [("run    ", labelled.join(" · ")), ("task   ", task)] {
            if !text.is_empty() {
                let mut line = self.line();
                line.layout("  ", Paint::Plain).layout(label, Paint::Faint).write(&text, Paint::Plain);
                line.finish(out);
            }
        }
    }

    fn span(
        &self,
        row: &SpanRow,
        annotations: &SpanAnnotations,
        continued_levels: &[bool],
        duration_column: usize,
        out: &mut String,
    ) {
        let mut line = self.line();
        line.layout("  ", Paint::Plain);
        for is_continued in continued_levels.iter().skip(1) {
            line.layout(if *is_continued { "│  " } else { "   " }, Paint::Faint);
        }
        if row.depth > 0 {
            line.layout(if row.is_last_sibling { "└─ " } else { "├─ " }, Paint::Faint);
        }
        let (symbol, paint) = result_symbol(annotations.passed);
        line.write(symbol, paint).layout(" ", Paint::Plain);
        let kind = format!("{:KIND_WIDTH$} ", annotations.kind.as_str());
        line.layout(&kind, Paint::Faint);
        let name_width = duration_column.saturating_sub(name_column(row)).max(8);
        let name_paint = if annotations.passed.is_none() { Paint::Faint } else { Paint::Plain };
        line.write(&super::paint::fit(&annotations.name, name_width), name_paint);
        line.pad_to(duration_column);
        let duration = annotations.duration_nanos.map(format_duration).unwrap_or_default();
        line.layout(&format!("{duration:>9}"), Paint::Faint);
        let mut notes: Vec<&str> = annotations.severity.as_deref().into_iter().collect();
        notes.extend(annotations.categories.iter().map(String::as_str));
        if annotations.passed == Some(false) && annotations.is_caused_by_children {
            notes.push("caused by children");
        }
        if annotations.has_error_status && annotations.passed != Some(false) {
            notes.push("error status");
        }
        if annotations.is_late {
            notes.push("late");
        }
        line.layout("  ", Paint::Plain).write(&notes.join(" · "), Paint::Warn);
        line.finish(out);
    }

    /// Renders a failed metric: its name and value, then its findings, wrapped.
    fn metric(&self, metric: &MetricAnnotation, indent: &str, out: &mut String) {
        let mut line = self.line();
        line.layout(indent, Paint::Faint).write(&metric.name, Paint::Bad);
        if !metric.value.is_empty() {
            line.layout(" ", Paint::Plain).write(&metric.value, Paint::Strong);
        }
        line.layout("  ", Paint::Plain);
        let full_width = self.width.saturating_sub(width(indent) + 2);
        let findings: Vec<&str> = metric.explanation.lines().filter(|l| !l.trim().is_empty()).collect();
        let lines = if full_width < MIN_WIDTH { 1 } else { MAX_FINDING_LINES };
        for (i, finding) in findings.iter().take(MAX_FINDINGS).enumerate() {
            let first_width = if i == 0 { line.remaining() } else { full_width };
            for (n, text) in wrap(finding, first_width, full_width, lines).iter().enumerate() {
                if i + n > 0 {
                    std::mem::replace(&mut line, self.continuation_line(indent)).finish(out);
                }
                line.write(text, Paint::Plain);
            }
        }
        if findings.len() > MAX_FINDINGS {
            std::mem::replace(&mut line, self.continuation_line(indent)).finish(out);
            line.write(&format!("… and {} more", findings.len() - MAX_FINDINGS), Paint::Faint);
        }
        line.finish(out);
    }

    /// A line below the name of a metric, with its indentation.
    fn continuation_line(&self, indent: &str) -> ConsoleLine {
        let mut line = self.line();
        line.layout(indent, Paint::Faint).layout("  ", Paint::Plain);
        line
    }
}
