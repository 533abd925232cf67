//! A sample of explanations for review.
//!
//! In: every finding. Out: at most [`SAMPLE`] of them, deterministic, spread over metrics first, then over
//! the rules of each metric, then over traces, so that frequent rules do not displace the others.

use std::collections::BTreeMap;

use verdict_eval::metrics::{Finding, Measurement};
use verdict_eval::trace::AgentTrace;

use super::html::{Html, clip};

/// Size of the sample: as many as a reviewer reads completely.
pub const SAMPLE: usize = 20;
/// Characters of a rationale or quote.
const MAX_TEXT: usize = 600;

/// A finding with its context as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub metric: &'static str,
    /// The rule's name of the defect; empty for findings of judges.
    pub rule: String,
    /// Severity, and category if there is one.
    pub severity: String,
    /// Trace and span in hex, the span's kind and name.
    pub location: String,
    pub rationale: String,
    pub quote: String,
    /// The span of the evidence if it differs from the finding's.
    pub seen_in: Option<String>,
}

/// Every explanation of an evaluated trace.
pub fn all(trace: &AgentTrace, measurements: &[Measurement]) -> Vec<Explanation> {
    let measured = measurements.iter().filter_map(|m| Some((m, m.outcome.as_ref().ok()?)));
    measured.flat_map(|(m, measured)| measured.findings.iter().map(|f| explanation(trace, m, f))).collect()
}

fn explanation(trace: &AgentTrace, m: &Measurement, finding: &Finding) -> Explanation {
    let span = trace.tree.spans.get(m.at).map(|s| s.id.to_string()).unwrap_or_default();
    let view = trace.views.get(m.at);
    let kind = view.map_or("", |r| r.kind.as_str());
    let name = view.and_then(|r| r.name.as_deref()).unwrap_or_default();
    let category = finding.category.map_or(String::new(), |c| format!(", {}", c.as_str()));
    Explanation {
        metric: m.metric,
        rule: finding.defect.map_or(String::new(), |d| format!("{d:?}")),
        severity: format!("{}{category}", finding.severity.as_str()),
        location: format!("trace {} span {span} [{kind}] {}", trace.tree.id, clip(name, 60)),
        rationale: finding.rationale.clone(),
        quote: finding.quote.clone(),
        seen_in: finding.seen_in.map(|id| id.to_string()),
    }
}

/// The sample, by metric.
pub fn sample(explanations: &[Explanation]) -> Vec<&Explanation> {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<&Explanation>>> = BTreeMap::new();
    for explanation in explanations {
        groups.entry(explanation.metric).or_default().entry(&explanation.rule).or_default().push(explanation);
    }
    let rules: Vec<Vec<&Vec<&Explanation>>> = groups.values().map(|rules| rules.values().collect()).collect();
    let mut counts: Vec<Vec<usize>> = rules.iter().map(|rules| vec![0; rules.len()]).collect();
    let mut remaining = SAMPLE.min(explanations.len());
    while remaining > 0 {
        // Adds one explanation of each metric, from the rule with the fewest so far among those that have another.
        for (rules, counts) in rules.iter().zip(&mut counts) {
            let unfinished = (0..rules.len()).filter(|i| counts[*i] < rules[*i].len());
            if let Some(next) = unfinished.min_by_key(|i| counts[*i]).filter(|_| remaining > 0) {
                counts[next] += 1;
                remaining -= 1;
            }
        }
    }
    let counted_rules = rules.iter().flatten().zip(counts.iter().flatten());
    // The explanations of a rule are in order of traces; the list is divided into `count` equal sections, and the
    // middle of each is taken.
    counted_rules
        .flat_map(|(list, &count)| (0..count).map(move |n| list[(2 * n + 1) * list.len() / (2 * count)]))
        .collect()
}

/// The sample as a list.
pub fn html(explanations: &[Explanation], out: &mut Html) {
    let drawn = sample(explanations);
    if drawn.is_empty() {
        return;
    }
    out.raw("<h2>A sample of explanations</h2><p>").count(drawn.len()).raw(" of ").count(explanations.len());
    out.raw(", spread over metrics, rules and traces, for review with the traces.</p><ol>");
    for explanation in drawn {
        out.raw("<li><b>")
            .text(explanation.metric)
            .raw("</b> ")
            .text(&explanation.rule)
            .raw(" <span class=\"category\">");
        out.text(&explanation.severity)
            .raw("</span><br><code>")
            .text(&explanation.location)
            .raw("</code><br>");
        out.text(&clip(&explanation.rationale, MAX_TEXT)).raw("<br>");
        if let Some(span) = &explanation.seen_in {
            out.raw("<code>span ").text(span).raw("</code> ");
        }
        out.raw("<q>").text(&clip(&explanation.quote, MAX_TEXT)).raw("</q></li>");
    }
    out.raw("</ol>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explanation(metric: &'static str, rule: &str, n: usize) -> Explanation {
        Explanation {
            metric,
            rule: rule.to_owned(),
            severity: "low".to_owned(),
            location: format!("trace {n}"),
            rationale: "a tag was expected".to_owned(),
            quote: "<b>".to_owned(),
            seen_in: None,
        }
    }

    #[test]
    fn a_frequent_rule_does_not_displace_others() {
        let mut all: Vec<Explanation> = (0..500).map(|n| explanation("loud", "Often", n)).collect();
        all.extend((0..3).map(|n| explanation("loud", "Seldom", n)));
        all.push(explanation("quiet", "Once", 7));
        let drawn = sample(&all);
        let rule_count = |rule: &str| drawn.iter().filter(|e| e.rule == rule).count();
        assert_eq!(
            (drawn.len(), rule_count("Often"), rule_count("Seldom"), rule_count("Once")),
            (SAMPLE, 16, 3, 1)
        );
        let often: Vec<&str> =
            drawn.iter().filter(|e| e.rule == "Often").map(|e| e.location.as_str()).collect();
        assert_eq!((often[0], often[15]), ("trace 15", "trace 484"), "from all traces");
    }

    #[test]
    fn a_small_list_is_complete_and_an_empty_list_has_no_heading() {
        let few: Vec<Explanation> = (0..3).map(|n| explanation("m", "R", n)).collect();
        assert_eq!(sample(&few).len(), 3);
        let mut out = Html::default();
        html(&few, &mut out);
        let page = out.into_string();
        assert!(page.contains("3 of 3") && page.contains("&lt;b&gt;") && !page.contains("<b></q>"), "{page}");
        let mut none = Html::default();
        html(&[], &mut none);
        assert_eq!(none.into_string(), "");
    }
}
