//! The metrics of plans in traces: the seven of [`PlanPart`], `plan.score` and `plan.rating`.
//!
//! In: a trace with recognised plans, settings, and a judge's answers. Out: measurements on the
//! span that wrote the plan; for several plans on one span, the last one. Plans in words are
//! measured by what words have ([`prose`]), and the rest of them is unmeasured. [`PlanRules`] says
//! what rules can tell;
//! [`PlanJudged`] asks for the rest and measures the score anew from both.

use std::borrow::Cow;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::Idx;

use super::assessment::PlanAssessment;
use super::judge_questions::{self, JUDGED_PARTS};
pub(crate) use super::part::{PlanPart, RATING, SCORE};
use super::schema::{Plan, PlanIssue};
use super::tools::Toolbox;
use super::{parse, prose, shape};
use crate::measure::agent::agent_index;
use crate::measure::defects::{MAX_FINDINGS, QUOTE_BYTES, RULES};
use crate::measure::excerpt::head;
use crate::measure::{
    Answer, Category, Context, Detail, DetailValue, Finding, Measured, Measurement, Metric, Severity, Step,
    Unmeasured, Value,
};

/// Quote for a plan without steps.
const NO_STEPS: &str = "no steps";

/// A plan of the trace, and the task of its agent.
struct TracePlan {
    agent: usize,
    query: Option<String>,
    assessment: PlanAssessment,
}

struct PlansBySpan(HashMap<Idx, Rc<TracePlan>>);

fn plan_at(context: &Context<'_>) -> Option<Rc<TracePlan>> {
    let plans: Rc<PlansBySpan> = context.memo.trace(|| {
        let mut found = HashMap::new();
        for (i, agent) in context.trace.agents.iter().enumerate() {
            for (at, written) in &agent.plans {
                found.insert(*at, Rc::new(assess(context, i, parse::from_recognised(written))));
            }
        }
        PlansBySpan(found)
    });
    plans.0.get(&context.at).cloned()
}

fn assess(context: &Context<'_>, agent: usize, plan: Plan) -> TracePlan {
    let settings = &context.settings.plan;
    let query = agent_index::task(context.trace, agent).map(|t| t.to_string());
    let shown = context.trace.agents.get(agent).map_or(&[][..], |a| &a.tools);
    let tools = Toolbox::with_definitions(&settings.tools, shown);
    let reference = query.as_deref().and_then(|q| settings.reference(q));
    TracePlan { agent, query, assessment: PlanAssessment::new(plan, tools, reference) }
}

/// Measures plans by rules.
pub(crate) struct PlanRules;

impl Metric for PlanRules {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> Step {
        let Some(read) = plan_at(context) else { return Step::Done(Vec::new()) };
        let judge: Cow<'static, str> = Cow::Borrowed(RULES);
        let mut out: Vec<Measurement> = PlanPart::ALL
            .into_iter()
            .map(|part| {
                let value = read.assessment.value(part);
                let outcome = value
                    .map(|value| measured_part(context, &read.assessment, part, value, ""))
                    .ok_or(Unmeasured::NotApplicable);
                measurement(context, part.metric(), outcome, judge.clone())
            })
            .collect();
        out.push(score_measurement(context, &read.assessment, judge));
        out.push(rating_measurement(context, &read.assessment));
        Step::Done(out)
    }
}

/// Measures plans by judges, together with the rules.
pub(crate) struct PlanJudged;

impl Metric for PlanJudged {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> Step {
        let Some(read) = plan_at(context) else { return Step::Done(Vec::new()) };
        let TracePlan { query, assessment, .. } = &*read;
        let Some(query) = query.as_deref().filter(|_| !assessment.is_rejected()) else {
            // A rejected plan is not judged, and without a query there is nothing to compare a plan
            // with.
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
            let shown = assessment.sanitized(|text| asker.clean(text));
            return Step::Ask(judge_questions::questions(&asker.clean(query), &shown));
        }
        Step::Done(measure_answers(context, assessment.clone(), answers))
    }
}

fn measure_answers(
    context: &Context<'_>,
    mut assessment: PlanAssessment,
    answers: &[Answer],
) -> Vec<Measurement> {
    let mut out = Vec::new();
    let mut judge: Cow<'static, str> = Cow::Borrowed(RULES);
    let mut failed = None;
    for part in JUDGED_PARTS {
        if !judge_questions::is_judged(part, &assessment.plan) {
            let outcome = Err(Unmeasured::NotApplicable);
            out.push(measurement(context, part.metric(), outcome, Cow::Borrowed(RULES)));
            continue;
        }
        let said = answers
            .iter()
            .find(|a| a.key == part.metric())
            .map_or(Err(Unmeasured::JudgeError), |a| a.opinions.as_deref().map_err(|reason| *reason))
            .and_then(|opinions| {
                judge_questions::median_judgement(part, &assessment.plan, opinions)
                    .ok_or(Unmeasured::JudgeError)
            });
        let outcome = match said {
            Ok((found, by)) => {
                let value = assessment.apply_judgement(part, &found);
                judge = Cow::Owned(by);
                Ok(measured_part(context, &assessment, part, value, &found.rationale))
            }
            Err(reason) => {
                failed = Some(reason);
                Err(reason)
            }
        };
        out.push(measurement(context, part.metric(), outcome, judge.clone()));
    }
    // A score without one of its judged parts would be misleading: the score of the rules is kept,
    // which lists the parts that it includes.
    out.push(match failed {
        Some(reason) => measurement(context, SCORE, Err(reason), judge),
        None => score_measurement(context, &assessment, judge),
    });
    out
}

fn measured_part(
    context: &Context<'_>,
    assessment: &PlanAssessment,
    part: PlanPart,
    value: f64,
    said: &str,
) -> Measured {
    let passed = value >= context.settings.plan.threshold;
    let of_part = |issue: &&PlanIssue| PlanPart::of(issue.fault) == Some(part);
    let mut findings: Vec<Finding> = assessment
        .issues
        .iter()
        .filter(of_part)
        .take(MAX_FINDINGS)
        .map(|i| issue_finding(assessment, part, value, i))
        .collect();
    if findings.is_empty() && value < 1.0 && !said.is_empty() {
        let said = format!("{} was expected; {said}", part.expectation());
        findings.extend(
            plan_finding(assessment, false, said, value).map(|f| Finding { category: category(part), ..f }),
        );
    }
    Measured { value: Value::Score(value), passed, findings }
}

fn category(part: PlanPart) -> Option<Category> {
    Some(match part {
        PlanPart::Format => Category::FormattingErrors,
        PlanPart::ToolPromptAlignment | PlanPart::ToolUsageCompleteness => Category::ToolSelectionErrors,
        PlanPart::QueryAdherence => Category::GoalDeviation,
        _ => Category::TaskOrchestration,
    })
}

fn issue_finding(assessment: &PlanAssessment, part: PlanPart, value: f64, issue: &PlanIssue) -> Finding {
    let plan = &assessment.plan;
    let step = issue.step.and_then(|n| plan.position(n)).and_then(|at| plan.steps.get(at));
    let quote = step.or(plan.steps.first()).map_or(NO_STEPS, |s| s.prompt.as_str());
    let rationale = format!("{} was expected; {issue}", part.expectation());
    Finding { category: category(part), fact: shape::is_rejected(plan), ..finding(rationale, quote, value) }
}

/// A finding with the score of `value` (0 to 1) on the scale of findings, 1 to 5.
fn finding(rationale: String, quote: &str, value: f64) -> Finding {
    let score = 1.0 + 4.0 * value;
    Finding {
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
    }
}

fn measurement(
    context: &Context<'_>,
    metric: &'static str,
    outcome: Result<Measured, Unmeasured>,
    judge: Cow<'static, str>,
) -> Measurement {
    Measurement { at: context.at, metric, outcome, judge, details: Vec::new(), rationale: None }
}

/// The score with the measured parts and the shape of the plan as details.
fn score_measurement(
    context: &Context<'_>,
    assessment: &PlanAssessment,
    judge: Cow<'static, str>,
) -> Measurement {
    let settings = &context.settings.plan;
    let of = |part: &PlanPart| assessment.value(*part);
    let measured: Vec<String> =
        PlanPart::ALL.iter().filter(|p| of(p).is_some()).map(|p| p.name().to_owned()).collect();
    let outcome = assessment.score(&settings.weights).ok_or(Unmeasured::NotApplicable).map(|score| {
        let passed = score >= settings.score_threshold;
        let shown: Vec<String> =
            PlanPart::ALL.iter().filter_map(|p| Some(format!("{} {:.2}", p.name(), of(p)?))).collect();
        let least = settings.score_threshold;
        let said = format!(
            "at least {least} of 100 was expected; the plan has {score:.1} from {}",
            shown.join(", ")
        );
        Measured {
            value: Value::Score(score),
            passed,
            findings: plan_finding(assessment, passed, said, score / 100.0).into_iter().collect(),
        }
    });
    let shape = shape::shape(&assessment.plan);
    let count = |key, n: usize| Detail { key, value: DetailValue::Count(n as u64) };
    let mut details = vec![
        Detail { key: "plan.score.measured", value: DetailValue::Texts(measured) },
        Detail { key: "plan.score.reference", value: DetailValue::Flag(assessment.reference.is_some()) },
        count("plan.steps", shape.steps),
    ];
    // Prose without references does not say which steps may run in parallel.
    if assessment.plan.structured || prose::has_references(&assessment.plan) {
        details.extend([count("plan.hops", shape.hops), count("plan.width", shape.width)]);
    }
    Measurement { details, ..measurement(context, SCORE, outcome, judge) }
}

fn rating_measurement(context: &Context<'_>, assessment: &PlanAssessment) -> Measurement {
    let Some(reference_match) = &assessment.reference_match else {
        return measurement(context, RATING, Err(Unmeasured::NotApplicable), Cow::Borrowed(RULES));
    };
    let passed = reference_match.rating >= context.settings.plan.least_rating;
    let said = format!(
        "a plan rated {} or better was expected; {} steps match the reference plan (precision {:.2}, recall {:.2}, \
         F1 {:.2})",
        context.settings.plan.least_rating.as_str(),
        reference_match.matched.len(),
        reference_match.precision,
        reference_match.recall,
        reference_match.f1
    );
    let value = Value::Label(reference_match.rating.as_str());
    let measured = Measured {
        value,
        passed,
        findings: plan_finding(assessment, passed, said, reference_match.f1).into_iter().collect(),
    };
    let details = vec![Detail { key: "plan.rating.f1", value: DetailValue::Number(reference_match.f1) }];
    Measurement { details, ..measurement(context, RATING, Ok(measured), Cow::Borrowed(RULES)) }
}

/// A finding about the plan as a whole, if it failed.
fn plan_finding(assessment: &PlanAssessment, passed: bool, rationale: String, value: f64) -> Option<Finding> {
    let quote = assessment.plan.steps.first().map_or(NO_STEPS, |s| s.prompt.as_str());
    (!passed).then(|| finding(rationale, quote, value))
}

#[cfg(test)]
mod tests;
