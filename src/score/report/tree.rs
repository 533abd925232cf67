//! A trace as a tree, as in paper 001's figure 3: findings and annotations at their spans.
//!
//! In: an evaluated trace and its annotations. Out: lines of a tree as HTML. Spans without findings or
//! annotations are folded into a count, as in the figure.

use std::collections::{BTreeMap, BTreeSet};

use verdict_eval::metrics::{Measured, Measurement, Value};
use verdict_eval::propagation::{Verdict, Verdicts};
use verdict_eval::trace::AgentTrace;
use verdict_otlp::trace::{Idx, Kind};

use super::html::{Html, clip};
use crate::score::trail::Annotation;
use crate::score::trail::placement::{self, Predicted};

/// Largest indentation.
const MAX_DEPTH: usize = 14;
/// Lines of one tree; further lines are counted only.
const MAX_LINES: usize = 400;
/// Characters of one rationale, quote or annotation.
const MAX_TEXT: usize = 600;

/// A trace as HTML.
#[derive(Clone, Debug)]
pub struct TraceTree {
    pub html: Html,
    /// Whether predicted findings and annotations are at different spans.
    pub differs: bool,
}

/// The lines of one tree.
#[derive(Default)]
struct Lines {
    html: Html,
    count: usize,
    /// Lines beyond [`MAX_LINES`].
    omitted: usize,
    /// Spans without findings or annotations after the last line.
    folded: usize,
    /// Depth of the last line.
    depth: usize,
}

impl TraceTree {
    /// From an evaluated trace and its annotations.
    pub fn new(
        trace: &AgentTrace,
        measurements: &[Measurement],
        verdicts: &Verdicts,
        annotations: &[Annotation],
        predicted: Predicted,
    ) -> TraceTree {
        let tree = &trace.tree;
        let mut annotations_by_span: BTreeMap<&str, Vec<&Annotation>> = BTreeMap::new();
        annotations.iter().for_each(|m| annotations_by_span.entry(&m.location).or_default().push(m));
        let mut findings: BTreeMap<Idx, Vec<(&Measurement, &Measured)>> = BTreeMap::new();
        for (m, measured) in measurements.iter().filter_map(|m| Some((m, m.outcome.as_ref().ok()?))) {
            if !measured.passed || measured.findings.iter().any(|f| f.category.is_some()) {
                findings.entry(m.at).or_default().push((m, measured));
            }
        }
        let predicted: BTreeSet<Idx> =
            placement::located_findings(trace, measurements, predicted).iter().map(|f| f.at).collect();
        let mut lines = Lines::default();
        lines.html.raw("<details open><summary><code>").text(&tree.id.to_string()).raw("</code> ");
        write_verdict(&mut lines.html, verdicts.trace.passed.map(|p| !p));
        lines.html.raw("</summary><div class=\"tree\">");
        let mut differs = false;
        for (i, depth) in preorder(trace) {
            let (Some(span), Some(view)) = (tree.spans.get(i), trace.views.get(i)) else { continue };
            let id = span.id.to_string();
            let annotations = annotations_by_span.remove(id.as_str()).unwrap_or_default();
            let findings = findings.remove(&i).unwrap_or_default();
            if annotations.is_empty() && findings.is_empty() && view.kind != Kind::Agent {
                lines.folded += 1;
                continue;
            }
            let Some(out) = lines.next(depth) else { continue };
            differs |= predicted.contains(&i) == annotations.is_empty();
            out.text(view.kind.as_str()).raw("] <b>");
            out.text(&clip(view.name.as_deref().unwrap_or_default(), 120)).raw("</b> <code>");
            out.text(&id).raw("</code> ");
            write_verdict(out, verdicts.by_span.get(i).copied().flatten().map(Verdict::failed));
            match (predicted.contains(&i), annotations.is_empty()) {
                (true, false) => out.raw(" <span class=\"hit\">found and annotated</span>"),
                (true, true) => out.raw(" <span class=\"over\">found, not annotated</span>"),
                (false, false) => out.raw(" <span class=\"miss\">annotated, not found</span>"),
                (false, true) => out,
            };
            out.raw("</div>");
            findings.iter().for_each(|(m, measured)| write_metric(out, m.metric, measured));
            annotations.iter().for_each(|annotation| write_annotation(out, annotation));
            out.raw("</div>");
        }
        TraceTree { html: lines.finish(), differs }
    }
}

impl Lines {
    /// Begins a line; `None` beyond the limit.
    fn next(&mut self, depth: usize) -> Option<&mut Html> {
        if self.count == MAX_LINES {
            self.omitted += 1;
            return None;
        }
        self.fold();
        self.count += 1;
        self.depth = depth.min(MAX_DEPTH);
        self.html.raw("<div class=\"span\" style=\"margin-left:").count(self.depth).raw("em\"><div>[");
        Some(&mut self.html)
    }

    /// Writes the number of folded spans after the last line, if there is a line.
    fn fold(&mut self) {
        if self.count > 0 && self.folded > 0 {
            let folded = std::mem::take(&mut self.folded);
            self.html.raw("<div class=\"fold\" style=\"margin-left:").count(self.depth).raw("em\">… ");
            self.html.count(folded).raw(" without issues</div>");
        }
    }

    fn finish(mut self) -> Html {
        self.fold();
        if self.omitted > 0 {
            let omitted = self.html.raw("<p class=\"fold\">").count(self.omitted);
            omitted.raw(" more spans with findings or annotations</p>");
        }
        self.html.raw("</div></details>");
        self.html
    }
}

fn write_metric(out: &mut Html, name: &str, measured: &Measured) {
    out.raw("<div class=\"metric\"><b>").text(name).raw("</b> (");
    match measured.value {
        Value::Score(score) => out.numbers("{1}", &[score]),
        Value::Label(label) => out.text(label),
        Value::Number(number) => out.text(&number.to_string()),
    };
    out.raw(")");
    for finding in &measured.findings {
        out.raw("<div class=\"finding\">").text(&clip(&finding.rationale, MAX_TEXT));
        if let Some(category) = finding.category {
            out.raw(" <span class=\"category\">").text(category.as_str()).raw("</span>");
        }
        if !finding.quote.is_empty() {
            out.raw(" <q>").text(&clip(&finding.quote, MAX_TEXT)).raw("</q>");
        }
        out.raw("</div>");
    }
    out.raw("</div>");
}

fn write_annotation(out: &mut Html, annotation: &Annotation) {
    out.raw("<div class=\"mark\">annotators: <b>").text(&clip(&annotation.category, 120)).raw("</b> ");
    out.text(&clip(&annotation.impact, 20))
        .raw(" ")
        .text(&clip(&annotation.description, MAX_TEXT))
        .raw("</div>");
}

fn write_verdict(out: &mut Html, failed: Option<bool>) {
    match failed {
        Some(true) => out.raw("<span class=\"fail\">fail</span>"),
        Some(false) => out.raw("<span class=\"pass\">pass</span>"),
        None => out.raw("<span class=\"none\">unmeasured</span>"),
    };
}

/// Every span under its parent, by time. Iterative, because the depth is untrusted.
fn preorder(trace: &AgentTrace) -> Vec<(Idx, usize)> {
    let tree = &trace.tree;
    let mut stack: Vec<(Idx, usize)> = tree.top().iter().rev().map(|&i| (i, 0)).collect();
    let mut out = Vec::with_capacity(tree.len());
    while let Some((i, depth)) = stack.pop() {
        out.push((i, depth));
        stack.extend(tree.children(i).iter().rev().map(|&child| (child, depth + 1)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_eval::metrics;
    use verdict_eval::metrics::Settings;
    use verdict_eval::propagation::{Policies, propagate};
    use verdict_eval::testing::Script;

    #[test]
    fn texts_of_a_trace_are_escaped() {
        let evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}";
        let trace = Script::new(evil)
            .tools(&["look"])
            .calls(evil, &[("look", "{\"q\": \"<script>\"}")])
            .raises(&format!("429 Too Many Requests {evil}"))
            .answers(evil)
            .build();
        let measurements = metrics::run(&trace, &Settings::default());
        let verdicts = propagate(&trace, &measurements, &Policies::default());
        let annotation = Annotation {
            category: evil.to_owned(),
            location: trace.tree.spans[1].id.to_string(),
            description: evil.to_owned(),
            impact: evil.to_owned(),
            ..Annotation::default()
        };
        let drawn = TraceTree::new(&trace, &measurements, &verdicts, &[annotation], Predicted::FLAGGED);
        assert!(drawn.html.as_str().contains("class=\"finding\""), "the error was found: {drawn:?}");
        let html = drawn.html.as_str();
        assert!(html.contains("&lt;script&gt;") && html.contains("429"), "{html}");
        assert!(!html.contains("<script") && !html.contains("<img") && !html.contains('\u{202e}'), "{html}");
    }

    #[test]
    fn spans_without_findings_are_folded_into_a_count() {
        let mut script = Script::new("count");
        for _ in 0..5 {
            script = script.says("well");
        }
        let trace = script.answers("7").build();
        let drawn = TraceTree::new(&trace, &[], &Verdicts::default(), &[], Predicted::FLAGGED);
        let html = drawn.html.as_str();
        assert_eq!(html.matches("class=\"span\"").count(), 1);
        assert!(html.contains(&format!("… {} without issues", trace.tree.len() - 1)), "{html}");
        assert!(!drawn.differs);
    }
}
