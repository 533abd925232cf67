//! The metrics of plans in traces: `plan.format` and its six like, `plan.score`, `plan.rating`.
//!
//! In: a trace with recognised plans, settings, and a judge's answers. Out: measurements on the span
//! that wrote the plan; of several on one span of the last. Plans in words are measured by what words
//! have ([`prose`]), and the rest of them is unmeasured. [`PlanRules`] says what rules can tell;
//! [`PlanJudged`] asks for the rest and measures the score anew from both.

use std::borrow::Cow;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};

use super::examine::Examined;
use super::judged::{self, ASKED};
use super::part::Part;
use super::schema::{Issue, Plan};
use super::tools::Toolbox;
use super::{prose, shape};
use crate::measure::agent::agent_index;
use crate::measure::defects::{MAX_FINDINGS, QUOTE_BYTES, RULES};
use crate::measure::excerpt::head;
use crate::measure::{
    Answer, Category, Context, Detail, DetailValue, Finding, Measured, Measurement, Metric, Severity, Step,
    Unmeasured, Value,
};
use verdict_otlp::trace::Idx;

/// The name by which all plan metrics are switched, and under which they ask.
pub const SCORE: &str = "plan.score";
/// The rating's attribute key.
pub const RATING: &str = "plan.rating";
/// What is quoted of a plan without steps.
const NO_STEPS: &str = "no steps";

/// A plan of the trace, and what its agent was asked.
struct Read {
    agent: usize,
    query: Option<String>,
    examined: Examined,
}

struct Plans(HashMap<Idx, Rc<Read>>);

fn at_span(context: &Context<'_>) -> Option<Rc<Read>> {
    let plans: Rc<Plans> = context.memo.trace(|| {
        let mut found = HashMap::new();
        for (i, agent) in context.trace.agents.iter().enumerate() {
            for (at, written) in &agent.plans {
                found.insert(*at, Rc::new(examine(context, i, prose::recognised(written))));
            }
        }
        Plans(found)
    });
    plans.0.get(&context.at).cloned()
}

fn examine(context: &Context<'_>, agent: usize, plan: Plan) -> Read {
    let settings = &context.settings.plan;
    let query = agent_index::task(context.trace, agent).map(|t| t.to_string());
    let shown = context.trace.agents.get(agent).map_or(&[][..], |a| &a.tools);
    let tools = Toolbox::with_definitions(&settings.tools, shown);
    let reference = query.as_deref().and_then(|q| settings.reference(q));
    Read { agent, query, examined: Examined::new(plan, tools, reference) }
}

/// What rules can tell.
pub struct PlanRules;

impl Metric for PlanRules {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> Step {
        let Some(read) = at_span(context) else { return Step::Done(Vec::new()) };
        let judge: Cow<'static, str> = Cow::Borrowed(RULES);
        let mut out: Vec<Measurement> = Part::ALL
            .into_iter()
            .map(|part| {
                let value = read.examined.value(part);
                let outcome = value
                    .map(|value| of_part(context, &read.examined, part, value, ""))
                    .ok_or(Unmeasured::NotApplicable);
                one(context, part.metric(), outcome, judge.clone())
            })
            .collect();
        out.push(score(context, &read.examined, judge));
        out.push(rating(context, &read.examined));
        Step::Done(out)
    }
}

/// What a judge tells beside the rules.
pub struct PlanJudged;

impl Metric for PlanJudged {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> Step {
        let Some(read) = at_span(context) else { return Step::Done(Vec::new()) };
        let Read { query, examined, .. } = &*read;
        let Some(query) = query.as_deref().filter(|_| !examined.is_settled()) else {
            // A rejected plan has nothing left to ask about; without a query nothing can be held
            // against it.
            return Step::Done(Vec::new());
        };
        if answers.is_empty() {
            let asker = &context.settings.asker;
            let agent = context.trace.agents.get(read.agent);
            let task_at = agent_index::task_at(context.trace, read.agent).map(|(_, at)| at);
            let held = |at: Option<Idx>| at.is_some_and(|at| asker.withholds(context.trace, at));
            if held(Some(context.at))
                || held(task_at)
                || agent.is_some_and(|agent| asker.withholds_of(context.trace, agent))
            {
                return Step::Done(Vec::new());
            }
            let shown = examined.shown(|text| asker.clean(text));
            return Step::Ask(judged::questions(&asker.clean(query), &shown));
        }
        Step::Done(answered(context, examined.clone(), answers))
    }
}

fn answered(context: &Context<'_>, mut examined: Examined, answers: &[Answer]) -> Vec<Measurement> {
    let mut out = Vec::new();
    let mut judge: Cow<'static, str> = Cow::Borrowed(RULES);
    let mut failed = None;
    for part in ASKED {
        if !judged::applies(part, &examined.plan) {
            let outcome = Err(Unmeasured::NotApplicable);
            out.push(one(context, part.metric(), outcome, Cow::Borrowed(RULES)));
            continue;
        }
        let said = answers
            .iter()
            .find(|a| a.key == part.metric())
            .map_or(Err(Unmeasured::JudgeError), |a| a.opinions.as_deref().map_err(|reason| *reason))
            .and_then(|opinions| {
                judged::middle(part, &examined.plan, opinions).ok_or(Unmeasured::JudgeError)
            });
        let outcome = match said {
            Ok((found, by)) => {
                let value = examined.take(part, &found);
                judge = Cow::Owned(by);
                Ok(of_part(context, &examined, part, value, &found.rationale))
            }
            Err(reason) => {
                failed = Some(reason);
                Err(reason)
            }
        };
        out.push(one(context, part.metric(), outcome, judge.clone()));
    }
    // A score without one of its judged parts would look better founded than it is; that of the
    // rules then stands, with its own list of what it rests on.
    out.push(match failed {
        Some(reason) => one(context, SCORE, Err(reason), judge),
        None => score(context, &examined, judge),
    });
    out
}

fn of_part(context: &Context<'_>, examined: &Examined, part: Part, value: f64, said: &str) -> Measured {
    let passed = value >= context.settings.plan.threshold;
    let of_part = |issue: &&Issue| Part::of(issue.fault) == Some(part);
    let mut findings: Vec<Finding> = examined
        .issues
        .iter()
        .filter(of_part)
        .take(MAX_FINDINGS)
        .map(|i| finding(examined, part, value, i))
        .collect();
    if findings.is_empty() && value < 1.0 && !said.is_empty() {
        let said = format!("{} was expected; {said}", part.due());
        findings
            .extend(whole(examined, false, said, value).map(|f| Finding { category: category(part), ..f }));
    }
    Measured { value: Value::Score(value), passed, findings }
}

fn category(part: Part) -> Option<Category> {
    Some(match part {
        Part::Format => Category::FormattingErrors,
        Part::ToolPromptAlignment | Part::ToolUsageCompleteness => Category::ToolSelectionErrors,
        Part::QueryAdherence => Category::GoalDeviation,
        _ => Category::TaskOrchestration,
    })
}

fn finding(examined: &Examined, part: Part, value: f64, issue: &Issue) -> Finding {
    let plan = &examined.plan;
    let step = issue.step.and_then(|n| plan.position(n)).and_then(|at| plan.steps.get(at));
    let quote = step.or(plan.steps.first()).map_or(NO_STEPS, |s| s.prompt.as_str());
    // On the findings' common scale of 1 to 5.
    let score = 1.0 + 4.0 * value;
    Finding {
        rationale: format!("{} was expected; {issue}", part.due()),
        quote: head(quote, QUOTE_BYTES).to_owned(),
        seen_in: None,
        cited: Vec::new(),
        category: category(part),
        severity: Severity::of_score(score),
        score,
        origin: None,
        fact: shape::rejected(plan),
        defect: None,
    }
}

fn one(
    context: &Context<'_>,
    metric: &'static str,
    outcome: Result<Measured, Unmeasured>,
    judge: Cow<'static, str>,
) -> Measurement {
    Measurement { at: context.at, metric, outcome, judge, details: Vec::new(), rationale: None }
}

/// The score of what was measured, with a list of that, and how the plan is laid out.
fn score(context: &Context<'_>, examined: &Examined, judge: Cow<'static, str>) -> Measurement {
    let settings = &context.settings.plan;
    let of = |part: &Part| examined.value(*part);
    let measured: Vec<String> =
        Part::ALL.iter().filter(|p| of(p).is_some()).map(|p| p.name().to_owned()).collect();
    let outcome = examined.score(&settings.weights).ok_or(Unmeasured::NotApplicable).map(|score| {
        let passed = score >= settings.score_threshold;
        let shown: Vec<String> =
            Part::ALL.iter().filter_map(|p| Some(format!("{} {:.2}", p.name(), of(p)?))).collect();
        let least = settings.score_threshold;
        let said = format!(
            "at least {least} of 100 was expected; the plan has {score:.1} from {}",
            shown.join(", ")
        );
        Measured {
            value: Value::Score(score),
            passed,
            findings: whole(examined, passed, said, score / 100.0).into_iter().collect(),
        }
    });
    let shape = shape::shape(&examined.plan);
    let count = |key, n: usize| Detail { key, value: DetailValue::Count(n as u64) };
    let mut details = vec![
        Detail { key: "plan.score.measured", value: DetailValue::Texts(measured) },
        Detail { key: "plan.score.reference", value: DetailValue::Flag(examined.reference.is_some()) },
        count("plan.steps", shape.steps),
    ];
    // Words that leave dependencies to their order do not say what may run side by side.
    if examined.plan.structured || prose::is_wired(&examined.plan) {
        details.extend([count("plan.hops", shape.hops), count("plan.width", shape.width)]);
    }
    Measurement { details, ..one(context, SCORE, outcome, judge) }
}

fn rating(context: &Context<'_>, examined: &Examined) -> Measurement {
    let Some(beside) = &examined.beside else {
        return one(context, RATING, Err(Unmeasured::NotApplicable), Cow::Borrowed(RULES));
    };
    let passed = beside.rating >= context.settings.plan.least_rating;
    let said = format!(
        "a plan rated {} or better was expected; {} steps match the reference plan (precision {:.2}, recall {:.2}, \
         F1 {:.2})",
        context.settings.plan.least_rating.as_str(),
        beside.matched.len(),
        beside.precision,
        beside.recall,
        beside.f1
    );
    let value = Value::Label(beside.rating.as_str());
    let measured =
        Measured { value, passed, findings: whole(examined, passed, said, beside.f1).into_iter().collect() };
    let details = vec![Detail { key: "plan.rating.f1", value: DetailValue::Number(beside.f1) }];
    Measurement { details, ..one(context, RATING, Ok(measured), Cow::Borrowed(RULES)) }
}

/// A finding about the plan as a whole, where it failed.
fn whole(examined: &Examined, passed: bool, rationale: String, value: f64) -> Option<Finding> {
    let score = 1.0 + 4.0 * value;
    let quote = examined.plan.steps.first().map_or(NO_STEPS, |s| s.prompt.as_str());
    let finding = Finding {
        rationale,
        quote: head(quote, QUOTE_BYTES).to_owned(),
        seen_in: None,
        cited: Vec::new(),
        category: Some(Category::TaskOrchestration),
        severity: Severity::of_score(score),
        score,
        origin: None,
        fact: false,
        defect: None,
    };
    (!passed).then_some(finding)
}

#[cfg(test)]
mod tests;
