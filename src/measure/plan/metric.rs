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
    Answer, Category, Detail, Finding, Measured, Measurement, Metric, Need, Opinion, Plain, Reason, Severity,
    Step, Value, View,
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
                one(view, part.metric(), outcome, judge.clone())
            })
            .collect();
        out.push(score(view, &read, &read.values, judge.clone()));
        out.push(rating(view, read.beside.as_ref()));
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
        out.push(one(view, part.metric(), outcome, judge.clone()));
    }
    // A score without one of its judged parts would look better founded than it is; that of the
    // rules then stands, with its own list of what it rests on.
    out.push(match failed {
        Some(reason) => one(view, SCORE, Err(reason), judge),
        None => score(view, read, &values, judge),
    });
    out
}

/// The most that what rules found wrong leaves of `part`.
fn by_rules(read: &Read, part: Part) -> f64 {
    rules::share(&read.plan, rules::violations(&read.issues, part))
}

/// The opinion in the middle, and who said so. A judge that saw a reference is named so.
fn middle(part: Part, plan: &Plan, opinions: &[Opinion]) -> Option<(Judged, String)> {
    let mut all: Vec<(Judged, &Opinion)> =
        opinions.iter().filter_map(|o| Some((judged::read(part, plan, &o.value, o.weighted)?, o))).collect();
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

fn one(
    view: &View<'_>,
    metric: &'static str,
    outcome: Result<Measured, Reason>,
    judge: Cow<'static, str>,
) -> Measurement {
    Measurement { at: view.at, metric, outcome, judge, details: Vec::new() }
}

/// The score of what was measured, with a list of that, and how the plan is laid out.
fn score(view: &View<'_>, read: &Read, values: &Values, judge: Cow<'static, str>) -> Measurement {
    let settings = &view.settings.plan;
    let of = |part: &Part| values.get(part.place()).copied().flatten();
    let measured: Vec<String> =
        Part::ALL.iter().filter(|p| of(p).is_some()).map(|p| p.name().to_owned()).collect();
    let outcome = part::score(values, &settings.weights).ok_or(Reason::NotApplicable).map(|score| {
        let passed = score >= settings.score_threshold;
        let shown: Vec<String> =
            Part::ALL.iter().filter_map(|p| Some(format!("{} {:.2}", p.name(), of(p)?))).collect();
        let said = format!("{score:.1} of 100 from {}", shown.join(", "));
        Measured { value: Value::Score(score), passed, findings: whole(passed, said, score / 100.0) }
    });
    let shape = shape::shape(&read.plan);
    let count = |key, n: usize| Detail { key, value: Plain::Count(n as u64) };
    let details = vec![
        Detail { key: "plan.score.measured", value: Plain::Texts(measured) },
        Detail { key: "plan.score.reference", value: Plain::Flag(read.reference.is_some()) },
        count("plan.steps", shape.steps),
        count("plan.hops", shape.hops),
        count("plan.width", shape.width),
    ];
    Measurement { details, ..one(view, SCORE, outcome, judge) }
}

fn rating(view: &View<'_>, beside: Option<&Comparison>) -> Measurement {
    let Some(beside) = beside else {
        return one(view, RATING, Err(Reason::NotApplicable), Cow::Borrowed(RULES));
    };
    let passed = beside.rating >= view.settings.plan.least_rating;
    let said = format!(
        "{} steps match the reference plan (precision {:.2}, recall {:.2}, F1 {:.2})",
        beside.matched.len(),
        beside.precision,
        beside.recall,
        beside.f1
    );
    let value = Value::Label(beside.rating.as_str());
    let measured = Measured { value, passed, findings: whole(passed, said, beside.f1) };
    let details = vec![Detail { key: "plan.rating.f1", value: Plain::Number(beside.f1) }];
    Measurement { details, ..one(view, RATING, Ok(measured), Cow::Borrowed(RULES)) }
}

/// A finding about the plan as a whole, where it failed.
fn whole(passed: bool, rationale: String, value: f64) -> Vec<Finding> {
    let score = 1.0 + 4.0 * value;
    let finding = Finding {
        rationale,
        quote: String::new(),
        cited: Vec::new(),
        category: Some(Category::TaskOrchestration),
        severity: Severity::of_score(score),
        score,
        origin: None,
        fact: false,
    };
    if passed { Vec::new() } else { vec![finding] }
}

#[cfg(test)]
mod tests;
