//! Several opinions, one measurement.
//!
//! In: what each judge and sample said. Out: a measurement. Scores by their median, labels by
//! majority, ties to the worse; where opinions differ, and where findings did not hold, it says so.
//!
//! **A failing grade must prove itself.** One that has no finding left, because it named none or
//! because its quotations are nowhere, is set aside: it may be invented, and reporting it would make
//! an operator look for what is not there. It is not turned into a pass either. Unless more than
//! half of the opinions stand, the metric is unmeasured (`judge_error`).

use std::fmt::Write;
use std::sync::Arc;

use super::asker;
use super::opinion::{Found, Grade, Said};
use crate::measure::defects::{MAX_FINDINGS, unmeasured};
use crate::measure::table::{MetricSpec, Scale};
use crate::measure::{Context, Finding, Measured, Measurement, Severity, Unmeasured, Value};

/// What a judge said; nothing where its answer could not be read.
pub struct Heard {
    /// As in `verdict.<metric>.judge`.
    pub judge: Arc<str>,
    /// What it said.
    pub said: Option<Said>,
}

/// Joins what was heard about the span of `view`.
pub fn conclude(topic: &'static MetricSpec, context: &Context<'_>, heard: Vec<Heard>) -> Measurement {
    let judge = names(&heard);
    let all = heard.len();
    let dropped: usize = heard.iter().filter_map(|h| h.said.as_ref()).map(|said| said.dropped).sum();
    let passes = |said: &Said| passes(topic, context, said.grade);
    let standing: Vec<Said> = heard
        .into_iter()
        .filter_map(|h| h.said)
        .filter(|said| passes(said) || !said.found.is_empty())
        .collect();
    let mut notes = Notes::default();
    if standing.len() < all {
        let gone = all - standing.len();
        notes.say(format_args!(
            "{gone} of {all} opinions set aside: they failed it without evidence that holds"
        ));
    }
    if dropped > 0 {
        notes.say(format_args!("{dropped} findings dropped: their quotations are not in the record"));
    }
    let mut out = match standing.len() * 2 > all {
        true => joined(topic, context, &standing, &mut notes),
        false => unmeasured(context.at, topic.name, Unmeasured::JudgeError),
    };
    out.judge = judge.into();
    out.rationale = notes.after(out.rationale.as_deref());
    out
}

fn joined(
    topic: &'static MetricSpec,
    context: &Context<'_>,
    standing: &[Said],
    notes: &mut Notes,
) -> Measurement {
    let grade = match topic.scale {
        Scale::Labels(labels) => majority(topic, context, labels, standing, notes),
        _ => Grade::Score(median(standing, notes)),
    };
    let passed = passes(topic, context, grade);
    let agrees = |said: &&Said| passes(topic, context, said.grade) == passed;
    let mut found: Vec<&Found> = Vec::new();
    for finding in standing.iter().filter(agrees).flat_map(|said| &said.found) {
        let known =
            |f: &&Found| f.at == finding.at && (f.quote == finding.quote || f.problem == finding.problem);
        if !found.iter().any(known) {
            found.push(finding);
        }
    }
    // Stable: of equals, those of the judge that was configured first.
    found.sort_by_key(|f| std::cmp::Reverse(f.severity));
    found.truncate(MAX_FINDINGS);
    let value = match (grade, topic.scale) {
        (Grade::Label(i), Scale::Labels(labels)) => Value::Label(labels.get(i).copied().unwrap_or("valid")),
        (Grade::Score(score), _) => Value::Score(score),
        (Grade::Label(_), _) => return unmeasured(context.at, topic.name, Unmeasured::JudgeError),
    };
    let distance = |said: &Said| match (said.grade, grade) {
        (Grade::Score(a), Grade::Score(b)) => (a - b).abs(),
        (a, b) => f64::from(u8::from(a != b)),
    };
    let nearest = standing.iter().filter(agrees).min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let rationale = nearest.map(|said| said.rationale.clone().into_boxed_str()).filter(|r| !r.is_empty());
    let findings = found.into_iter().map(|f| finding(context, f)).collect();
    Measurement {
        at: context.at,
        metric: topic.name,
        outcome: Ok(Measured { value, passed, findings }),
        judge: "".into(),
        details: Vec::new(),
        rationale,
    }
}

fn passes(topic: &MetricSpec, context: &Context<'_>, grade: Grade) -> bool {
    match (grade, topic.scale) {
        (Grade::Label(i), Scale::Labels(labels)) => {
            labels.get(i).is_some_and(|label| !context.settings.fails(topic.name, label))
        }
        (Grade::Score(score), _) => {
            score >= context.settings.threshold(topic.name, context.trace, context.at)
        }
        (Grade::Label(_), _) => false,
    }
}

fn median(standing: &[Said], notes: &mut Notes) -> f64 {
    let scores: Vec<f64> = standing
        .iter()
        .filter_map(|said| match said.grade {
            Grade::Score(score) => Some(score),
            Grade::Label(_) => None,
        })
        .collect();
    let mut sorted = scores.clone();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match (sorted.get(middle), sorted.len() % 2) {
        (Some(upper), 0) => (sorted.get(middle - 1).unwrap_or(upper) + upper) / 2.0,
        (Some(only), _) => *only,
        (None, _) => 0.0,
    };
    if sorted.first() != sorted.last() {
        let all: Vec<String> = scores.iter().map(|s| short(*s)).collect();
        notes.say(format_args!("opinions differ: {}; median {}", all.join(", "), short(median)));
    }
    median
}

/// At most two places: enough to tell opinions apart.
fn short(score: f64) -> String {
    let text = format!("{score:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn majority(
    topic: &MetricSpec,
    context: &Context<'_>,
    labels: &[&str],
    standing: &[Said],
    notes: &mut Notes,
) -> Grade {
    let mut votes = vec![0usize; labels.len()];
    for said in standing {
        if let Grade::Label(i) = said.grade
            && let Some(vote) = votes.get_mut(i)
        {
            *vote += 1;
        }
    }
    // Labels stand from good to bad, but which of them fail is the operator's word.
    let badness = |i: usize| (!passes(topic, context, Grade::Label(i)), i);
    let won = (0..labels.len()).max_by_key(|&i| (votes[i], badness(i))).unwrap_or(0);
    if votes.iter().filter(|&&v| v > 0).count() > 1 {
        let all: Vec<String> = (0..labels.len())
            .filter(|&i| votes[i] > 0)
            .map(|i| format!("{} {}", votes[i], labels[i]))
            .collect();
        notes.say(format_args!("opinions differ: {}", all.join(", ")));
    }
    Grade::Label(won)
}

/// The score on 1-5 that a finding alone would leave: the table of `anchors` by severity.
fn finding(context: &Context<'_>, found: &Found) -> Finding {
    let score = match found.severity {
        Severity::High => 1.0,
        Severity::Medium => 2.0,
        Severity::Low => 3.0,
    };
    let cited = if found.at == context.at { Vec::new() } else { vec![found.id] };
    // A run has several agents; whose problem it is comes first.
    let trace = context.trace;
    let owner = |at| trace.owner.get(at).copied().flatten();
    let other = owner(found.at).filter(|&i| Some(i) != owner(context.at)).and_then(|i| trace.agents.get(i));
    let who =
        other.and_then(|agent| agent.name.as_ref()).map(|n| format!("{}: ", asker(context.settings).name(n)));
    Finding {
        rationale: format!("{}{}", who.unwrap_or_default(), found.problem),
        quote: found.quote.clone(),
        seen_in: (found.at != context.at).then_some(found.id),
        cited,
        category: found.category,
        severity: found.severity,
        score,
        origin: None,
        fact: false,
        defect: None,
    }
}

/// Each judge once, in order of appearance.
fn names(heard: &[Heard]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for heard in heard {
        if !names.contains(&&*heard.judge) {
            names.push(&heard.judge);
        }
    }
    names.join("+")
}

/// Remarks of ours, after what the judge says.
#[derive(Default)]
struct Notes(String);

impl Notes {
    fn say(&mut self, what: std::fmt::Arguments<'_>) {
        if !self.0.is_empty() {
            self.0.push_str("; ");
        }
        let _ = write!(self.0, "{what}");
    }

    fn after(self, rationale: Option<&str>) -> Option<Box<str>> {
        match (rationale, self.0.is_empty()) {
            (rationale, true) => rationale.map(Into::into),
            (None, false) => Some(format!("({})", self.0).into()),
            (Some(rationale), false) => Some(format!("{rationale} ({})", self.0).into()),
        }
    }
}
