//! A trace as a tree, as in paper 001's figure 3: findings and annotations at their spans.
//!
//! In: a judged trace and its annotations. Out: lines of a tree as HTML. Spans without findings or
//! annotations are folded into a count, as in the figure.

use std::collections::BTreeMap;

use verdict_eval::propagation::{Verdict, Verdicts};
use verdict_eval::{AgentTrace, Measurement, Value};
use verdict_otlp::trace::{Idx, Kind};

use super::html::{Html, clip};
use crate::score::trail::{Annotation, find};

/// Largest indentation.
const MAX_DEPTH: usize = 14;
/// Lines of one tree; further lines are counted only.
const MAX_LINES: usize = 400;
/// Characters of one explanation, quote or mark.
const MAX_TEXT: usize = 600;

/// Findings of one metric at a span, of a failing or passing measurement.
#[derive(Clone, Debug, PartialEq)]
struct MetricFindings {
    metric: &'static str,
    score: String,
    /// Rationale, quote, category of each finding.
    findings: Vec<(String, String, &'static str)>,
}

/// One span with findings or annotations.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    depth: usize,
    kind: Kind,
    name: String,
    span: String,
    failed: Option<bool>,
    findings: Vec<MetricFindings>,
    marks: Vec<Annotation>,
    /// A finding counts at this span.
    predicted: bool,
    /// Number of folded spans after this one.
    folded: usize,
}

/// A trace as lines.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceTree {
    id: String,
    passed: Option<bool>,
    lines: Vec<Line>,
    /// Number of lines beyond the limit.
    cut: usize,
}

impl TraceTree {
    /// From a judged trace and its annotations.
    pub fn new(
        trace: &AgentTrace,
        measurements: &[Measurement],
        verdicts: &Verdicts,
        marks: &[Annotation],
    ) -> TraceTree {
        let tree = &trace.tree;
        let mut marked: BTreeMap<&str, Vec<Annotation>> = BTreeMap::new();
        marks.iter().for_each(|m| marked.entry(&m.location).or_default().push(m.clone()));
        let mut findings: Vec<Vec<MetricFindings>> = vec![Vec::new(); tree.len()];
        for m in measurements {
            if let (Some(own), Some(findings)) = (findings.get_mut(m.at), metric_findings(m)) {
                own.push(findings);
            }
        }
        let predicted: Vec<Idx> = find::located_findings(trace, measurements).iter().map(|f| f.at).collect();
        let mut drawn =
            TraceTree { id: tree.id.to_string(), passed: verdicts.trace.passed, lines: Vec::new(), cut: 0 };
        let mut folded = 0;
        for (i, depth) in preorder(trace) {
            let (Some(span), Some(view)) = (tree.spans.get(i), trace.views.get(i)) else { continue };
            let id = span.id.to_string();
            let marks = marked.remove(id.as_str()).unwrap_or_default();
            let findings = findings.get_mut(i).map(std::mem::take).unwrap_or_default();
            let shown = !marks.is_empty() || !findings.is_empty() || view.kind == Kind::Agent;
            if !shown {
                folded += 1;
                continue;
            }
            if drawn.lines.len() == MAX_LINES {
                drawn.cut += 1;
                continue;
            }
            if let Some(last) = drawn.lines.last_mut() {
                last.folded += std::mem::take(&mut folded);
            }
            drawn.lines.push(Line {
                depth: depth.min(MAX_DEPTH),
                kind: view.kind,
                name: view.name.as_deref().unwrap_or_default().to_owned(),
                span: id,
                failed: verdicts.of.get(i).copied().flatten().map(Verdict::failed),
                findings,
                marks,
                predicted: predicted.contains(&i),
                folded: 0,
            });
        }
        if let Some(last) = drawn.lines.last_mut() {
            last.folded += folded;
        }
        drawn
    }

    /// Whether findings and annotations differ in their spans.
    pub fn differs(&self) -> bool {
        self.lines.iter().any(|line| line.predicted == line.marks.is_empty())
    }

    pub fn html(&self, out: &mut Html) {
        out.raw("<details open><summary><code>").text(&self.id).raw("</code> ");
        verdict(out, self.passed.map(|p| !p));
        out.raw("</summary><div class=\"tree\">");
        for line in &self.lines {
            line.html(out);
        }
        if self.cut > 0 {
            out.raw("<p class=\"fold\">").count(self.cut).raw(" more spans with something to tell</p>");
        }
        out.raw("</div></details>");
    }
}

impl Line {
    fn html(&self, out: &mut Html) {
        out.raw("<div class=\"span\" style=\"margin-left:").count(self.depth).raw("em\"><div>[");
        out.text(self.kind.as_str()).raw("] <b>").text(&clip(&self.name, 120)).raw("</b> <code>");
        out.text(&self.span).raw("</code> ");
        verdict(out, self.failed);
        match (self.predicted, self.marks.is_empty()) {
            (true, false) => out.raw(" <span class=\"hit\">told and marked</span>"),
            (true, true) => out.raw(" <span class=\"over\">told, not marked</span>"),
            (false, false) => out.raw(" <span class=\"miss\">marked, not told</span>"),
            (false, true) => out,
        };
        out.raw("</div>");
        for metric in &self.findings {
            metric.html(out);
        }
        for mark in &self.marks {
            out.raw("<div class=\"mark\">people: <b>").text(&clip(&mark.category, 120)).raw("</b> ");
            out.text(&clip(&mark.impact, 20)).raw(" ").text(&clip(&mark.description, MAX_TEXT)).raw("</div>");
        }
        out.raw("</div>");
        if self.folded > 0 {
            out.raw("<div class=\"fold\" style=\"margin-left:").count(self.depth).raw("em\">… ");
            out.count(self.folded).raw(" without issues</div>");
        }
    }
}

impl MetricFindings {
    fn html(&self, out: &mut Html) {
        out.raw("<div class=\"metric\"><b>").text(self.metric).raw("</b> (").text(&self.score).raw(")");
        for (rationale, quote, category) in &self.findings {
            out.raw("<div class=\"finding\">").text(&clip(rationale, MAX_TEXT));
            if !category.is_empty() {
                out.raw(" <span class=\"category\">").text(category).raw("</span>");
            }
            if !quote.is_empty() {
                out.raw(" <q>").text(&clip(quote, MAX_TEXT)).raw("</q>");
            }
            out.raw("</div>");
        }
        out.raw("</div>");
    }
}

fn verdict(out: &mut Html, failed: Option<bool>) {
    match failed {
        Some(true) => out.raw("<span class=\"fail\">fail</span>"),
        Some(false) => out.raw("<span class=\"pass\">pass</span>"),
        None => out.raw("<span class=\"none\">unmeasured</span>"),
    };
}

fn metric_findings(m: &Measurement) -> Option<MetricFindings> {
    let measured = m.outcome.as_ref().ok()?;
    if measured.passed && measured.findings.iter().all(|f| f.category.is_none()) {
        return None;
    }
    let finding = |f: &verdict_eval::Finding| {
        (f.rationale.clone(), f.quote.clone(), f.category.map_or("", |c| c.as_str()))
    };
    let score = match measured.value {
        Value::Score(score) => format!("{score:.1}"),
        Value::Label(label) => label.to_owned(),
        Value::Number(number) => format!("{number}"),
    };
    Some(MetricFindings {
        metric: m.metric,
        score,
        findings: measured.findings.iter().map(finding).collect(),
    })
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
    use verdict_eval::Settings;
    use verdict_eval::metrics;
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
        let mark = Annotation {
            category: evil.to_owned(),
            location: trace.tree.spans[1].id.to_string(),
            description: evil.to_owned(),
            impact: evil.to_owned(),
            ..Annotation::default()
        };
        let drawn = TraceTree::new(&trace, &measurements, &verdicts, &[mark]);
        assert!(drawn.lines.iter().any(|l| !l.findings.is_empty()), "the error was found: {drawn:?}");
        let mut out = Html::default();
        drawn.html(&mut out);
        let html = out.into_string();
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
        let drawn = TraceTree::new(&trace, &[], &Verdicts::default(), &[]);
        assert_eq!(drawn.lines.len(), 1);
        assert_eq!(drawn.lines[0].folded, trace.tree.len() - 1);
        assert!(!drawn.differs());
    }
}
