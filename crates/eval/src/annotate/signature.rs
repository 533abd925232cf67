//! `verdict.signature`: the same for failures of the same kind, in any trace.
//!
//! In: a failing measurement. Out: a hash of the agent's name, the tool's name, the metric, the failure category, the
//! rule and, for errors, their message without the parts that change from run to run: numbers, ids, paths, quoted
//! values. No text of a judge is hashed, since a judge words the same failure differently each time. Any store can
//! group failures by it.

use verdict_otlp::trace::Idx;

use crate::measure::ask::stable_hash::stable_hash;
use crate::measure::sections::agent_name;
use crate::measure::{Defect, Finding, Measurement, Severity, Value};
use crate::recognise::AgentTrace;

/// Maximum bytes of an error message that are read, and maximum words of its pattern: the beginning names the error.
const MAX_BYTES: usize = 400;
const MAX_WORDS: usize = 12;
/// Maximum bytes of a word in a pattern. A longer word is data, which changes from run to run.
const MAX_WORD_BYTES: usize = 40;
/// Replaces the parts of a message that change from run to run.
const VARIABLE: &str = "#";

/// A signature; written as 16 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Signature(u64);

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The signature of the worst of these measurements of one span that fail, as 16 hex digits.
pub fn signature<'a>(
    trace: &AgentTrace,
    measurements: impl Iterator<Item = &'a Measurement>,
) -> Option<String> {
    worst(measurements).map(|m| signature_for(trace, m).to_string())
}

/// The worst of these measurements that fail.
pub(super) fn worst<'a>(measurements: impl Iterator<Item = &'a Measurement>) -> Option<&'a Measurement> {
    let failing = measurements.filter(|m| m.outcome.as_ref().is_ok_and(|measured| !measured.passed));
    // `min_by` returns the first of equal ones.
    failing.min_by(|a, b| {
        let ((severity_a, score_a), (severity_b, score_b)) = (severity_and_score(a), severity_and_score(b));
        severity_b.cmp(&severity_a).then(score_a.total_cmp(&score_b))
    })
}

/// The severity and score of a measurement's worst finding; of one without findings those of its score.
fn severity_and_score(m: &Measurement) -> (Severity, f64) {
    match (worst_finding(m), m.outcome.as_ref().map(|measured| &measured.value)) {
        (Some(finding), _) => (finding.severity, finding.score),
        (None, Ok(Value::Score(score))) => (Severity::from_score(*score), *score),
        (None, _) => (Severity::Low, f64::INFINITY),
    }
}

fn worst_finding(m: &Measurement) -> Option<&Finding> {
    let findings = m.outcome.iter().flat_map(|measured| &measured.findings).filter(|f| !f.is_note());
    findings.min_by(|a, b| a.worst_first(b))
}

/// The signature of a failing measurement.
pub(super) fn signature_for(trace: &AgentTrace, m: &Measurement) -> Signature {
    let finding = worst_finding(m);
    let defect = finding.and_then(|finding| finding.defect);
    let error = finding.filter(|_| defect.is_some_and(Defect::is_error));
    let parts = [
        message_pattern(agent_name(trace, m.at).unwrap_or_default()),
        tool_name(trace, m.at).unwrap_or_default().to_owned(),
        m.metric.to_owned(),
        finding.and_then(|finding| finding.category).map_or("", |category| category.as_str()).to_owned(),
        defect.map_or("", Defect::name).to_owned(),
        error.map(|finding| message_pattern(&finding.quote)).unwrap_or_default(),
    ];
    Signature(stable_hash(parts.iter().map(String::as_bytes)))
}

/// The name of the tool that the span calls.
fn tool_name(trace: &AgentTrace, index: Idx) -> Option<&str> {
    Some(&*trace.views.get(index)?.call.as_ref()?.name)
}

/// The words of a message in lower case, with [`VARIABLE`] in place of each sequence of words that change.
fn message_pattern(text: &str) -> String {
    let text = text.get(..text.floor_char_boundary(MAX_BYTES)).unwrap_or_default();
    let mut words: Vec<String> = Vec::new();
    let text = without_quoted(text);
    let pieces = text.split_whitespace().flat_map(|word| {
        let is_url = word.contains("://");
        word.split(move |c: char| !is_url && ",;:()[]{}<>=".contains(c))
    });
    for word in pieces {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '#' && c != '/');
        let is_variable =
            word.chars().any(|c| c.is_numeric() || "/\\@#".contains(c)) || word.len() > MAX_WORD_BYTES;
        let word = if is_variable { VARIABLE.to_owned() } else { word.to_lowercase() };
        let is_repeated = is_variable && words.last().is_some_and(|last| last == VARIABLE);
        if !word.is_empty() && !is_repeated {
            words.push(word);
        }
        if words.len() == MAX_WORDS {
            break;
        }
    }
    words.join(" ")
}

/// The text with [`VARIABLE`] in place of each quoted value. An apostrophe within a word opens no quotation.
fn without_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while let Some(c) = rest.chars().next() {
        let after = rest.get(c.len_utf8()..).unwrap_or_default();
        let opens = matches!(c, '"' | '\'' | '`') && !previous.is_alphanumeric();
        match after.find(c).filter(|_| opens) {
            Some(end) => {
                out.push_str(" # ");
                rest = after.get(end + c.len_utf8()..).unwrap_or_default();
            }
            None => {
                out.push(c);
                rest = after;
            }
        }
        previous = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::defects::measured;
    use crate::measure::testing::Script;
    use crate::measure::{Category, Measured};

    fn failing(index: Idx, metric: &'static str, finding: Finding) -> Measurement {
        measured(index, metric, Measured { value: Value::Score(1.0), passed: false, findings: vec![finding] })
    }

    fn trace() -> AgentTrace {
        Script::new("How high?").calls("", &[("visit", "{}")]).returns("404").says("I cannot tell.").build()
    }

    #[test]
    fn patterns_leave_out_what_changes_from_run_to_run() {
        for (text, expected) in [
            ("Connection to 10.0.0.7:5432 refused", "connection to # refused"),
            ("KeyError: 'city_17'", "keyerror #"),
            ("HTTP 404: https://example.org/a?b=1 was not found", "http # was not found"),
            ("request 9f8a7b6c-11 timed out after 30.5 s", "request # timed out after # s"),
            ("can't open file \"/tmp/x.txt\"", "can't open file #"),
            ("ValueError: unbalanced ' quote", "valueerror unbalanced quote"),
            ("", ""),
            ("\u{1F600}\u{1F600}", ""),
        ] {
            assert_eq!(message_pattern(text), expected, "{text}");
        }
        assert_eq!(message_pattern(&"wort ".repeat(500)).split(' ').count(), MAX_WORDS);
        assert!(message_pattern(&"é'".repeat(5000)).len() < 2 * MAX_BYTES);
    }

    #[test]
    fn signature_is_stable_and_names_agent_tool_metric_category_and_error() {
        let trace = trace();
        let signature_with = |index, metric, defect: Defect, quote: &str| {
            let m = failing(index, metric, defect.finding("why", quote));
            signature(&trace, [&m].into_iter()).unwrap()
        };
        let timed_out = |quote: &str| signature_with(2, "error_detection", Defect::TimedOut, quote);
        // A change of the value ends every grouping in stores.
        assert_eq!(timed_out("timed out after 30 s"), "107e367d0217dd30");
        assert_eq!(timed_out("timed out after 31 s"), timed_out("timed out after 30 s"));
        let others = [
            timed_out("deadline exceeded"),
            signature_with(1, "error_detection", Defect::TimedOut, "timed out after 30 s"),
            signature_with(2, "tool_completeness", Defect::TimedOut, "timed out after 30 s"),
            signature_with(2, "error_detection", Defect::ServiceDown, "timed out after 30 s"),
        ];
        assert!(others.iter().all(|other| *other != timed_out("timed out after 30 s")));
        // A rule compares content of the run; the text of a judge differs each time.
        assert_eq!(
            signature_with(3, "completeness", Defect::UnsupportedFact, "the answer is 7"),
            signature_with(3, "completeness", Defect::UnsupportedFact, "it is 8, says he"),
        );
        let judged = |rationale: &str| {
            let finding = Finding::new(rationale, "quote", 1.0).under(Category::GoalDeviation);
            signature(&trace, [&failing(0, "gpa.plan_quality", finding)].into_iter()).unwrap()
        };
        assert_eq!(judged("It was not asked for."), judged("Nobody asked."));
    }

    #[test]
    fn signature_is_that_of_the_worst_failure() {
        let trace = trace();
        let mild = failing(2, "latency", Defect::MissingTag.finding("tag", "x"));
        let bad = failing(2, "error_detection", Defect::TimedOut.finding("late", "x"));
        let trace_signature = |all: &[&Measurement]| signature(&trace, all.iter().copied());
        assert_eq!(trace_signature(&[&mild, &bad]), trace_signature(&[&bad]));
        assert_eq!(trace_signature(&[&bad, &mild]), trace_signature(&[&bad]));
        assert_ne!(trace_signature(&[&mild]), trace_signature(&[&bad]));
        assert_eq!(trace_signature(&[]), None);
    }
}
