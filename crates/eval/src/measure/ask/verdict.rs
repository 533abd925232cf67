//! Combines several opinions into one measurement.
//!
//! In: the opinion of each judge and sample. Out: a measurement. Scores are combined by their
//! median, labels by majority, ties resolved to the worse; the rationale notes differing opinions
//! and dropped findings.
//!
//! **A failing grade needs evidence.** An opinion that fails without a verified finding is set
//! aside: it may be invented, and its findings could not be located. It is not turned into a pass
//! either. Unless more than half of the opinions remain, the metric is unmeasured (`judge_error`).

use std::sync::Arc;

use super::opinion::{Grade, JudgeFinding, JudgeOpinion, MAX_FINDINGS};
use crate::measure::median::median;
use crate::measure::table::Scale;
use crate::measure::{Context, Finding, Measured, Measurement, Severity, Unmeasured, Value};

/// The reply of one judge.
pub(crate) struct ParsedOpinion {
    /// The judge, in the form of `verdict.<metric>.judge`.
    pub judge: Arc<str>,
    /// `None` if the answer has no grade on the metric's scale.
    pub opinion: Option<JudgeOpinion>,
}

/// Combines the replies about the span of `context`.
pub(crate) fn combine_replies(context: &Context<'_>, replies: Vec<ParsedOpinion>) -> Measurement {
    let judge = judge_names(&replies);
    let reply_count = replies.len();
    let dropped: usize =
        replies.iter().filter_map(|reply| reply.opinion.as_ref()).map(|opinion| opinion.dropped).sum();
    let mut valid: Vec<JudgeOpinion> = replies.into_iter().filter_map(|reply| reply.opinion).collect();
    valid.retain(|opinion| passes(context, opinion.grade) || !opinion.findings.is_empty());
    let mut notes = Vec::new();
    if valid.len() < reply_count {
        let set_aside = reply_count - valid.len();
        notes.push(format!(
            "{set_aside} of {reply_count} opinions set aside: they failed it without evidence that holds"
        ));
    }
    if dropped > 0 {
        notes.push(format!("{dropped} findings dropped: their quotations are not in the record"));
    }
    let mut out = match valid.len() * 2 > reply_count {
        true => combine(context, &valid, &mut notes),
        false => context.unmeasured(Unmeasured::JudgeError),
    };
    out.judge = judge.into();
    out.rationale = with_notes(out.rationale, &notes);
    out
}

/// The measurement from the valid opinions: the combined grade, with the findings of the opinions that agree with it.
fn combine(context: &Context<'_>, valid: &[JudgeOpinion], notes: &mut Vec<String>) -> Measurement {
    let grade = match context.row.scale {
        Scale::Labels(labels) => majority(context, labels, valid, notes),
        _ => Grade::Score(median_score(valid, notes)),
    };
    let passed = passes(context, grade);
    let agrees = |opinion: &&JudgeOpinion| passes(context, opinion.grade) == passed;
    let mut merged: Vec<&JudgeFinding> = Vec::new();
    for opinion in valid.iter().filter(agrees) {
        // Judges may assign different categories to the same quotation: the category of the first judge is kept.
        let earlier_findings = merged.clone();
        merged.extend(
            opinion
                .findings
                .iter()
                .filter(|f| !earlier_findings.iter().any(|earlier| f.is_about_same(earlier))),
        );
    }
    // The sort is stable: of equal severity, findings of the judge that was configured first come first.
    merged.sort_by_key(|f| std::cmp::Reverse(f.severity));
    let over_limit: usize = valid.iter().filter(agrees).map(|opinion| opinion.over_limit).sum();
    let over_limit = over_limit + merged.len().saturating_sub(MAX_FINDINGS);
    if over_limit > 0 {
        notes.push(format!("{over_limit} more findings are not listed"));
    }
    merged.truncate(MAX_FINDINGS);
    let value = match (grade, context.row.scale) {
        (Grade::Label(i), Scale::Labels(labels)) => Value::Label(labels.get(i).copied().unwrap_or("valid")),
        (Grade::Score(score), _) => Value::Score(score),
        (Grade::Label(_), _) => return context.unmeasured(Unmeasured::JudgeError),
    };
    let distance = |opinion: &JudgeOpinion| match (opinion.grade, grade) {
        (Grade::Score(a), Grade::Score(b)) => (a - b).abs(),
        (a, b) => f64::from(u8::from(a != b)),
    };
    let nearest = valid.iter().filter(agrees).min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let rationale =
        nearest.map(|opinion| opinion.rationale.clone().into_boxed_str()).filter(|r| !r.is_empty());
    let findings = merged.into_iter().map(|f| finding(context, f)).collect();
    let outcome = Ok(Measured { value, passed, findings });
    Measurement { rationale, ..Measurement::new(context.at, context.row.name, "", outcome) }
}

/// Whether a grade passes on the span of the context.
fn passes(context: &Context<'_>, grade: Grade) -> bool {
    match (grade, context.row.scale) {
        (Grade::Label(i), Scale::Labels(labels)) => labels.get(i).is_some_and(|label| !context.fails(label)),
        (Grade::Score(score), _) => score >= context.threshold(),
        (Grade::Label(_), _) => false,
    }
}

/// The median of the scores; adds a note if they differ.
fn median_score(valid: &[JudgeOpinion], notes: &mut Vec<String>) -> f64 {
    let scores: Vec<f64> = valid.iter().filter_map(|opinion| opinion.grade.score()).collect();
    let median = median(scores.clone()).unwrap_or_default();
    if scores.iter().any(|score| Some(score) != scores.first()) {
        let all: Vec<String> = scores.iter().map(|s| two_decimals(*s)).collect();
        notes.push(format!("opinions differ: {}; median {}", all.join(", "), two_decimals(median)));
    }
    median
}

/// The score with at most two decimals.
fn two_decimals(score: f64) -> String {
    let text = format!("{score:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The label with the most votes; of labels with the same number of votes, the worst one.
fn majority(
    context: &Context<'_>,
    labels: &[&str],
    valid: &[JudgeOpinion],
    notes: &mut Vec<String>,
) -> Grade {
    let votes = |i: usize| valid.iter().filter(|opinion| opinion.grade == Grade::Label(i)).count();
    // Labels are ordered from good to bad, but the operator configures which of them fail.
    let badness = |i: usize| (!passes(context, Grade::Label(i)), i);
    let winner = (0..labels.len()).max_by_key(|&i| (votes(i), badness(i))).unwrap_or(0);
    let voted = labels.iter().enumerate().map(|(i, label)| (votes(i), label)).filter(|(n, _)| *n > 0);
    let all: Vec<String> = voted.map(|(n, label)| format!("{n} {label}")).collect();
    if all.len() > 1 {
        notes.push(format!("opinions differ: {}", all.join(", ")));
    }
    Grade::Label(winner)
}

/// The finding of a judge as a finding of the measurement; its score from 1 to 5 follows from its severity, as in
/// `defects`.
fn finding(context: &Context<'_>, judge_finding: &JudgeFinding) -> Finding {
    let score = match judge_finding.severity {
        Severity::High => 1.0,
        Severity::Medium => 2.0,
        Severity::Low => 3.0,
    };
    let other_span = (judge_finding.at != context.at).then_some(judge_finding.id);
    // If the finding is about another agent, its name comes first.
    let trace = context.trace;
    let owner = |span_index| trace.owner.get(span_index).copied().flatten();
    let other_agent =
        owner(judge_finding.at).filter(|&i| Some(i) != owner(context.at)).and_then(|i| trace.agents.get(i));
    let agent_prefix = other_agent
        .and_then(|agent| agent.name.as_ref())
        .map(|n| format!("{}: ", context.settings.asker.name(n)));
    let rationale = agent_prefix.unwrap_or_default() + &judge_finding.problem;
    Finding {
        seen_in: other_span,
        cited: other_span.into_iter().collect(),
        // Judges are asked for the span where the problem began.
        origin: other_span.map(|_| judge_finding.at),
        category: judge_finding.category,
        severity: judge_finding.severity,
        ..Finding::new(rationale, judge_finding.quote.clone(), score)
    }
}

/// Each judge once, in order of appearance.
fn judge_names(replies: &[ParsedOpinion]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for reply in replies {
        if !names.contains(&&*reply.judge) {
            names.push(&reply.judge);
        }
    }
    names.join("+")
}

/// The rationale of the judge with the notes appended.
fn with_notes(rationale: Option<Box<str>>, notes: &[String]) -> Option<Box<str>> {
    let notes = Some(notes.join("; ")).filter(|notes| !notes.is_empty());
    match (rationale, notes) {
        (Some(rationale), Some(notes)) => Some(format!("{rationale} ({notes})").into()),
        (None, Some(notes)) => Some(format!("({notes})").into()),
        (rationale, None) => rationale,
    }
}
