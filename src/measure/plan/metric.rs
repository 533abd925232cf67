//! The metrics of plans in traces: `plan.format` and its six like, `plan.score`, `plan.rating`.
//!
//! In: a scene with recognised plans, settings, and a judge's answers. Out: measurements on the span
//! that wrote the plan. Only plans with structure (tools or dependencies) are measured; of several on
//! one span the last. [`PlanRules`] says what rules can tell; [`PlanJudged`] asks for the rest and
//! measures the score anew from both.

use std::borrow::Cow;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};

use super::judged::{self, ASKED, Judged};
use super::part::{self, Part, Values};
use super::reference::{self, Comparison};
use super::schema::{Issue, Plan};
use super::tools::Toolbox;
use super::{read, rules, shape};
use crate::measure::agent::cast;
use crate::measure::anchors::{MAX_FINDINGS, QUOTE_BYTES, RULES, clip};
use crate::measure::{
    Answer, Category, Finding, Measured, Measurement, Metric, Need, Opinion, Reason, Severity, Step, Value,
    View,
};
use crate::trace::Idx;

/// The name by which all plan metrics are switched, and under which they ask.
pub const SCORE: &str = "plan.score";
/// The rating's attribute key.
pub const RATING: &str = "plan.rating";

/// A plan of the scene, with everything that rules say of it.
struct Read {
    plan: Plan,
    query: Option<String>,
    tools: Toolbox,
    reference: Option<Plan>,
    issues: Vec<Issue>,
    values: Values,
    beside: Option<Comparison>,
}

struct Plans(HashMap<Idx, Rc<Read>>);

fn at_span(view: &View<'_>) -> Option<Rc<Read>> {
    let plans: Rc<Plans> = view.memo.scene(|| {
        let mut found = HashMap::new();
        for (i, agent) in view.scene.agents.iter().enumerate() {
            for (at, written) in &agent.plans {
                let plan = read::read(&written.text);
                // Text that only looks structured and cannot be followed is a broken plan.
                if plan.structured || (plan.is_unreadable() && written.text.contains("depends_on")) {
                    found.insert(*at, Rc::new(examine(view, i, plan)));
                }
            }
        }
        Plans(found)
    });
    plans.0.get(&view.at).cloned()
}

fn examine(view: &View<'_>, agent: usize, plan: Plan) -> Read {
    let settings = &view.settings.plan;
    let query = cast::task(view.scene, agent).map(|t| t.to_string());
    let shown = view.scene.agents.get(agent).map_or(&[][..], |a| &a.tools);
    let tools = Toolbox::with_definitions(&settings.tools, shown);
    let reference = query.as_deref().and_then(|q| settings.reference(q));
    let issues = rules::issues(&plan, &tools, reference.as_ref());
    let values = rules::values(&plan, &tools, &issues, reference.as_ref());
    let beside = reference.as_ref().map(|r| reference::compare(&plan, r, &issues));
    Read { plan, query, tools, reference, issues, values, beside }
}

/// What rules can tell.
pub struct PlanRules;

impl Metric for PlanRules {
    fn name(&self) -> &'static str {
        SCORE
    }

    fn need(&self) -> Need {
        Need::Subtree
    }

    fn step(&self, view: &View<'_>, _: &[Answer]) -> Step {
        let Some(read) = at_span(view) else { return Step::Done(Vec::new()) };
        let judge: Cow<'static, str> = Cow::Borrowed(RULES);
        let mut out: Vec<Measurement> = Part::ALL
            .into_iter()
            .map(|part| {
                let value = read.values.get(part.place()).copied().flatten();
                let outcome = value
                    .map(|value| of_part(view, &read, part, value, &read.issues, ""))
                    .ok_or(Reason::NotApplicable);
                Measurement { at: view.at, metric: part.metric(), outcome, judge: judge.clone() }
            })
            .collect();
        out.push(score(view, &read.values, judge.clone()));
        let rating = read.beside.as_ref().map(|beside| rating(view, beside)).ok_or(Reason::NotApplicable);
        out.push(Measurement { at: view.at, metric: RATING, outcome: rating, judge });
        Step::Done(out)
    }
}

/// What a judge tells beside the rules.
pub struct PlanJudged;

impl Metric for PlanJudged {
    fn name(&self) -> &'static str {
        SCORE
    }

    fn need(&self) -> Need {
        Need::Subtree
    }

    fn step(&self, view: &View<'_>, answers: &[Answer]) -> Step {
        let Some(read) = at_span(view) else { return Step::Done(Vec::new()) };
        let Some(query) = read.query.as_deref().filter(|_| !shape::rejected(&read.plan)) else {
            // A rejected plan has nothing left to ask about; without a query nothing can be held
            // against it.
            return Step::Done(Vec::new());
        };
        if answers.is_empty() {
            let ask = |part| judged::question(part, query, &read.plan, &read.tools, read.reference.as_ref());
            return Step::Ask(ASKED.into_iter().filter_map(ask).collect());
        }
        Step::Done(answered(view, &read, answers))
    }
}

fn answered(view: &View<'_>, read: &Read, answers: &[Answer]) -> Vec<Measurement> {
    let mut values = read.values;
    let mut out = Vec::new();
    let mut judge: Cow<'static, str> = Cow::Borrowed(RULES);
    let mut failed = None;
    for part in ASKED {
        let opinions = answers
            .iter()
            .find(|a| a.key == part.metric())
            .map_or(Err(Reason::JudgeError), |a| a.opinions.as_deref().map_err(|reason| *reason))
            .and_then(|opinions| middle(part, &read.plan, opinions).ok_or(Reason::JudgeError));
        let outcome = match opinions {
            Ok((found, by)) => {
                // The rules' own word on a tool that there is not stands beside the judge's.
                let value = found.value.min(by_rules(read, part));
                if let Some(slot) = values.get_mut(part.place()) {
                    *slot = Some(value);
                }
                judge = Cow::Owned(by);
                let issues: Vec<Issue> = read.issues.iter().chain(&found.issues).cloned().collect();
                Ok(of_part(view, read, part, value, &issues, &found.rationale))
            }
            Err(reason) => {
                failed = Some(reason);
                Err(reason)
            }
        };
        out.push(Measurement { at: view.at, metric: part.metric(), outcome, judge: judge.clone() });
    }
    // A score without one of its judged parts would look better founded than it is.
    out.push(match failed {
        Some(reason) => Measurement { at: view.at, metric: SCORE, outcome: Err(reason), judge },
        None => score(view, &values, judge),
    });
    out
}

/// The most that what rules found wrong leaves of `part`.
fn by_rules(read: &Read, part: Part) -> f64 {
    rules::share(&read.plan, rules::violations(&read.issues, part))
}

/// The opinion in the middle, and who said so. A judge that saw a reference is named so.
fn middle(part: Part, plan: &Plan, opinions: &[Opinion]) -> Option<(Judged, String)> {
    let mut all: Vec<(Judged, &Opinion)> = opinions
        .iter()
        .filter_map(|o| Some((judged::read(part, plan, &o.value, o.weighted)?, o)))
        .collect();
    all.sort_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let (judged, opinion) = all.into_iter().nth(opinions.len().saturating_sub(1) / 2)?;
    Some((judged, opinion.judge.to_string()))
}

fn of_part(view: &View<'_>, read: &Read, part: Part, value: f64, issues: &[Issue], said: &str) -> Measured {
    let passed = value >= view.settings.plan.threshold;
    let of_part = |issue: &&Issue| Part::of(issue.fault) == Some(part);
    let mut findings: Vec<Finding> =
        issues.iter().filter(of_part).take(MAX_FINDINGS).map(|i| finding(read, part, value, i)).collect();
    if findings.is_empty() && value < 1.0 && !said.is_empty() {
        let whole = Issue { step: None, fault: super::schema::Fault::Unreadable, said: said.to_owned() };
        findings.push(Finding { fact: false, ..finding(read, part, value, &whole) });
    }
    Measured { value: Value::Score(value), passed, findings }
}

fn finding(read: &Read, part: Part, value: f64, issue: &Issue) -> Finding {
    let step = issue.step.and_then(|n| read.plan.position(n)).and_then(|at| read.plan.steps.get(at));
    let quote = step.map(|s| s.instruction()).unwrap_or_default();
    let category = match part {
        Part::Format => Category::FormattingErrors,
        Part::ToolPromptAlignment | Part::ToolUsageCompleteness => Category::ToolSelectionErrors,
        Part::QueryAdherence => Category::GoalDeviation,
        _ => Category::TaskOrchestration,
    };
    // On the findings' common scale of 1 to 5.
    let score = 1.0 + 4.0 * value;
    Finding {
        rationale: issue.to_string(),
        quote: clip(&quote, QUOTE_BYTES).to_owned(),
        cited: Vec::new(),
        category: Some(category),
        severity: Severity::of_score(score),
        score,
        origin: None,
        fact: shape::rejected(&read.plan),
    }
}

/// The score of what was measured; what was not is named.
fn score(view: &View<'_>, values: &Values, judge: Cow<'static, str>) -> Measurement {
    let settings = &view.settings.plan;
    let outcome = part::score(values, &settings.weights).ok_or(Reason::NotApplicable).map(|score| {
        let passed = score >= settings.score_threshold;
        let list = |known: bool| {
            let of = |part: &Part| values.get(part.place()).copied().flatten();
            let shown = Part::ALL.iter().filter(|p| of(p).is_some() == known);
            let text = |p: &Part| of(p).map_or(p.name().to_owned(), |v| format!("{} {v:.2}", p.name()));
            shown.map(text).collect::<Vec<_>>().join(", ")
        };
        let missing = list(false);
        let missing = if missing.is_empty() { missing } else { format!("; not measured: {missing}") };
        let common = 1.0 + score / 25.0;
        let finding = Finding {
            rationale: format!("{score:.1} of 100 from {}{missing}", list(true)),
            quote: String::new(),
            cited: Vec::new(),
            category: None,
            severity: Severity::of_score(common),
            score: common,
            origin: None,
            fact: false,
        };
        Measured { value: Value::Score(score), passed, findings: vec![finding] }
    });
    Measurement { at: view.at, metric: SCORE, outcome, judge }
}

fn rating(view: &View<'_>, beside: &Comparison) -> Measured {
    let passed = beside.rating >= view.settings.plan.least_rating;
    let common = 1.0 + 4.0 * beside.f1;
    let finding = Finding {
        rationale: format!(
            "{} steps match the reference plan (precision {:.2}, recall {:.2}, F1 {:.2})",
            beside.matched.len(),
            beside.precision,
            beside.recall,
            beside.f1
        ),
        quote: String::new(),
        cited: Vec::new(),
        category: Some(Category::TaskOrchestration),
        severity: Severity::of_score(common),
        score: common,
        origin: None,
        fact: false,
    };
    let findings = if passed { Vec::new() } else { vec![finding] };
    Measured { value: Value::Label(beside.rating.as_str()), passed, findings }
}

#[cfg(test)]
mod tests;
