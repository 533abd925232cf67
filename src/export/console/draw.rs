//! Renders one trace as text: a summary, one line per span, and below a failing span its failing
//! metrics with their findings.
//!
//! Limits: spans, indentation, findings and line width. The sender chooses the depth, so nothing
//! recurses and indentation stops growing.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use verdict_eval::annotation::TraceHeader;
use verdict_otlp::trace::Idx;

use super::paint::{ConsoleLine, Paint, width, wrap};
use super::read::{AnnotatedTrace, ShownMetric, SpanAnnotations};
use super::style::TreeStyle;

/// Spans rendered of one trace.
const MAX_SPANS: usize = 2_000;
/// Deeper spans are rendered at this depth: each level takes three columns.
const MAX_DEPTH: usize = 24;
/// Findings rendered of one metric.
const MAX_FINDINGS: usize = 3;
/// Lines of one finding.
const MAX_LINES: usize = 3;
/// Columns of the longest name of a kind.
const KIND: usize = 9;
/// Smallest usable width.
const MIN_WIDTH: usize = 40;
/// Columns reserved after names, for times and categories.
const BEHIND: usize = 34;

/// A span to render.
struct SpanRow {
    at: Idx,
    depth: usize,
    last: bool,
    has_children: bool,
}

pub(super) fn trace(trace: &AnnotatedTrace, style: &TreeStyle, out: &mut String) {
    let page = Page { width: style.width.max(MIN_WIDTH), color: style.color };
    page.summary(trace, out);
    let rows = rows(trace);
    let longest = rows.iter().map(|row| indent(row) + 2 + KIND + 1 + width(&trace.shown[row.at].name)).max();
    let column = longest.unwrap_or(0).min(page.width.saturating_sub(BEHIND)).max(MIN_WIDTH / 2);
    // Whether an ancestor's level has more spans, and so a vertical line.
    let mut through = [false; MAX_DEPTH + 1];
    for row in &rows {
        let depth = row.depth.min(MAX_DEPTH);
        page.span(row, &trace.shown[row.at], &through[..depth], column, out);
        through[depth] = !row.last && row.depth <= MAX_DEPTH;
        let mut under = String::from("  ");
        under.extend((1..=depth).map(|level| if through[level] { "│  " } else { "   " }));
        under.push_str(if row.has_children { "│   " } else { "    " });
        for metric in &trace.shown[row.at].failed {
            page.metric(metric, &under, out);
        }
    }
    let more = trace.tree.len().saturating_sub(rows.len());
    if more > 0 {
        let mut line = page.line();
        line.layout("  ", Paint::Plain).write(&format!("… and {more} more spans"), Paint::Faint);
        line.finish(out);
    }
}

/// Spans in rendering order.
fn rows(trace: &AnnotatedTrace) -> Vec<SpanRow> {
    let tree = &trace.tree;
    let mut depths: HashMap<Idx, usize> = HashMap::new();
    let mut rows = Vec::new();
    for &at in tree.order().iter().take(MAX_SPANS) {
        let (siblings, depth) = match tree.parent(at) {
            Some(parent) => (tree.children(parent), depths.get(&parent).copied().unwrap_or(0) + 1),
            None => (tree.top(), 0),
        };
        depths.insert(at, depth);
        let last = siblings.last() == Some(&at);
        rows.push(SpanRow { at, depth, last, has_children: !tree.children(at).is_empty() });
    }
    rows
}

/// Columns before a span's result mark.
fn indent(row: &SpanRow) -> usize {
    2 + 3 * row.depth.min(MAX_DEPTH)
}

fn mark(passed: Option<bool>) -> (&'static str, Paint) {
    match passed {
        Some(true) => ("✓", Paint::Good),
        Some(false) => ("✗", Paint::Bad),
        None => ("–", Paint::Faint),
    }
}

/// A duration with a readable unit.
fn time(nanos: u64) -> String {
    let ms = nanos as f64 / 1e6;
    match ms {
        ms if ms < 1.0 => format!("{:.0} µs", ms * 1e3),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 119_950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} min", ms / 6e4),
    }
}

/// A time as RFC 3339, in UTC and whole seconds.
fn date(nanos: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(nanos)).to_string()
}

fn plural(n: usize, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

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
        let (glyph, paint) = mark(passed);
        let word = match (passed, &trace.summary) {
            (Some(true), _) => "pass",
            (Some(false), _) => "fail",
            (None, Some(_)) => "unmeasured",
            // The verdict stays as it was printed with the trace.
            (None, None) if trace.is_late() => "late spans",
            (None, None) => "no verdict",
        };
        let mut line = self.line();
        line.write(glyph, paint).layout(" ", Paint::Plain).write(word, paint);
        line.layout("  trace ", Paint::Faint).write(&trace.id(), Paint::Strong);
        let mut facts = vec![plural(trace.tree.len(), "span")];
        if trace.failures() > 0 {
            facts.push(format!("{} failing", trace.failures()));
        }
        facts.extend(trace.header.duration.map(time));
        facts.extend(trace.header.start.map(date));
        if let Some(summary) = &trace.summary
            && !summary.close_reason.is_empty()
        {
            facts.push(format!("closed by {}", summary.close_reason));
        }
        if trace.incomplete {
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
            [("failed ", summary.failed_metrics.join(", ")), ("chain  ", summary.chain.join(" ▸ "))]
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
        let named = [("service", &header.service), ("agent", &header.agent), ("session", &header.session)];
        let named: Vec<String> =
            named.iter().filter_map(|(label, name)| Some(format!("{label} {}", name.as_ref()?))).collect();
        let task = header.task.clone().unwrap_or_default();
        for (label, text) in [("run    ", named.join(" · ")), ("task   ", task)] {
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
        shown: &SpanAnnotations,
        through: &[bool],
        column: usize,
        out: &mut String,
    ) {
        let mut line = self.line();
        line.layout("  ", Paint::Plain);
        for open in through.iter().skip(1) {
            line.layout(if *open { "│  " } else { "   " }, Paint::Faint);
        }
        if row.depth > 0 {
            line.layout(if row.last { "└─ " } else { "├─ " }, Paint::Faint);
        }
        let (glyph, paint) = mark(shown.passed);
        let faint = shown.passed.is_none();
        line.write(glyph, paint).layout(" ", Paint::Plain);
        let kind = format!("{:KIND$} ", shown.kind.as_str());
        line.layout(&kind, Paint::Faint);
        let name_width = column.saturating_sub(indent(row) + 2 + KIND + 1).max(8);
        let plain = if faint { Paint::Faint } else { Paint::Plain };
        line.write(&super::paint::fit(&shown.name, name_width), plain);
        line.pad_to(column);
        let time = shown.nanos.map(time).unwrap_or_default();
        line.layout(&format!("{time:>9}"), Paint::Faint);
        let mut notes: Vec<&str> = shown.severity.as_deref().into_iter().collect();
        notes.extend(shown.categories.iter().map(String::as_str));
        if shown.passed == Some(false) && shown.by_children {
            notes.push("caused by children");
        }
        if shown.error && shown.passed != Some(false) {
            notes.push("error status");
        }
        if shown.late {
            notes.push("late");
        }
        line.layout("  ", Paint::Plain).write(&notes.join(" · "), Paint::Warn);
        line.finish(out);
    }

    /// Name and value, then each finding, wrapped.
    fn metric(&self, metric: &ShownMetric, under: &str, out: &mut String) {
        let mut line = self.line();
        line.layout(under, Paint::Faint).write(&metric.name, Paint::Bad);
        if !metric.value.is_empty() {
            line.layout(" ", Paint::Plain).write(&metric.value, Paint::Strong);
        }
        line.layout("  ", Paint::Plain);
        let rest = self.width.saturating_sub(width(under) + 2);
        let findings: Vec<&str> = metric.explanation.lines().filter(|l| !l.trim().is_empty()).collect();
        let lines = if rest < MIN_WIDTH { 1 } else { MAX_LINES };
        for (i, finding) in findings.iter().take(MAX_FINDINGS).enumerate() {
            let first = if i == 0 { line.remaining() } else { rest };
            for (n, text) in wrap(finding, first, rest, lines).iter().enumerate() {
                if i + n > 0 {
                    std::mem::replace(&mut line, self.under(under)).finish(out);
                }
                line.write(text, Paint::Plain);
            }
        }
        if findings.len() > MAX_FINDINGS {
            std::mem::replace(&mut line, self.under(under)).finish(out);
            line.write(&format!("… and {} more", findings.len() - MAX_FINDINGS), Paint::Faint);
        }
        line.finish(out);
    }

    fn under(&self, under: &str) -> ConsoleLine {
        let mut line = self.line();
        line.layout(under, Paint::Faint).layout("  ", Paint::Plain);
        line
    }
}
