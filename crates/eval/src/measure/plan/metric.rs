//! The metrics of plans in traces: the seven of [`PlanPart`], `plan.score` and `plan.rating`.
//!
//! In: a trace with recognised plans, settings, and a judge's answers. Out: measurements on the
//! span that wrote the plan; for several plans on one span, of the last plan. [`PlanRules`] measures by rules, plans
//! in prose only as far as [`prose`] reads them; [`PlanJudged`] asks judges for the other metrics and computes the
//! score from both.

use std::borrow::Cow;

use super::assessment::PlanAssessment;
use super::judge_questions::{self, JUDGED_PARTS};
use super::schema::{Plan, PlanIssue};
use super::tools::{MAX_DEFINITIONS, Toolbox};
use super::{pair_questions, parse, prose, shape};
use crate::measure::content_piece::{ContentPiece, PieceKind};
use crate::measure::defects::{MAX_FINDINGS, QUOTE_BYTES, RULES_JUDGE, measured, unmeasured};
use crate::measure::excerpt::head;
pub(crate) use crate::measure::metric_names::PlanPart;
use crate::measure::rule::Rule;
use crate::measure::table::{PLAN_RATING, PLAN_SCORE};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{
    Answer, Category, Context, Detail, DetailValue, Finding, Measured, Measurement, Metric, MetricProgress,
    Question, Unmeasured, Value, agent_index,
};

/// The quote of a finding about a plan without steps.
const NO_STEPS: &str = "no steps";

/// A plan of the trace, and the task of its agent.
struct TracePlan {
    agent: usize,
    query: Option<String>,
    assessment: PlanAssessment,
}

/// The last plan that the span of the context wrote.
fn plan_at(context: &Context<'_>) -> Option<TracePlan> {
    let (i, recorded) = agent_index::plans_at(context.trace, context.memo, context.at).pop()?;
    assess(context, i, parse::from_recognised(recorded))
}

/// Assesses a plan of an agent by rules; `None` if the work budget is spent.
fn assess(context: &Context<'_>, agent: usize, plan: Plan) -> Option<TracePlan> {
    let settings = &context.settings.plan;
    let budget = &context.memo.budget;
    let task = agent_index::task(context.trace, agent);
    let offered_tools = context.trace.agents.get(agent).map_or(&[][..], |a| &a.tools);
    let text_bytes =
        task.map_or(0, |task| task.len()) + plan.steps.iter().map(|step| step.prompt.len()).sum::<usize>();
    let steps = plan.steps.len();
    // Each step is compared with each tool and with each other step.
    let comparisons = (1 + steps) * (steps + offered_tools.len().min(MAX_DEFINITIONS));
    budget.spend(text_bytes / BYTES_PER_STEP + comparisons).then_some(())?;
    let tools = Toolbox::with_definitions(&settings.tools, offered_tools);
    let query = task.map(|task| task.to_string());
    let reference = query.as_deref().and_then(|q| Plan::reference(settings, q));
    let pairs = reference.as_ref().map_or(0, |r| steps * (steps + r.steps.len()));
    budget.spend(pairs * steps).then_some(())?;
    Some(TracePlan { agent, query, assessment: PlanAssessment::new(plan, tools, reference) })
}

/// Measures plans by rules.
pub(crate) struct PlanRules;

impl Rule for PlanRules {}

impl Metric for PlanRules {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        let Some(plan) = plan_at(context) else { return MetricProgress::Done(Vec::new()) };
        let measurements = PlanMeasurements { context, assessment: &plan.assessment };
        let mut out: Vec<Measurement> = PlanPart::ALL
            .into_iter()
            .map(|part| match plan.assessment.value(part) {
                Some(value) => measurements.by_rules(part.metric(), measurements.part(part, value, "")),
                None => unmeasured(context.at, part.metric(), Unmeasured::NotApplicable),
            })
            .collect();
        out.push(measurements.score(Cow::Borrowed(RULES_JUDGE)));
        out.push(measurements.rating());
        MetricProgress::Done(out)
    }
}

/// Measures plans by judges, together with the rules.
pub(crate) struct PlanJudged;

impl Metric for PlanJudged {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        let Some(plan) = plan_at(context) else { return MetricProgress::Done(Vec::new()) };
        let TracePlan { query, assessment, .. } = &plan;
        // A rejected plan is not judged, nor is one without a query to compare it with.
        let Some(query) = query.as_deref().filter(|_| !assessment.is_rejected()) else {
            return MetricProgress::Done(Vec::new());
        };
        let asker = &context.settings.asker;
        let agent = context.trace.agents.get(plan.agent);
        let content = context.content();
        let task = agent_index::task_at(context.trace, plan.agent);
        let task = task.map(|(task, task_span)| (task_span, ContentPiece::new(PieceKind::User, &**task)));
        if content.withholds(context.at)
            || content.withholds_output(context.at)
            || task.is_some_and(|(task_span, task)| content.withholds_piece(task_span, &task))
            || agent.is_some_and(|agent| content.withholds_agent(agent))
        {
            return MetricProgress::Done(Vec::new());
        }
        let sanitized = assessment.sanitized(|text| asker.clean(text));
        let matching = &context.settings.plan.matching;
        let system = |question: &str, rubric: &str| {
            asker
                .question_system_prompt((PLAN_SCORE, question), rubric, Some((context.trace, context.at)))
                .to_string()
        };
        let fits =
            |question: &Question| question.prompt.user.len() <= asker.max_bytes(&question.prompt.system);
        if answers.is_empty() {
            let mut questions = judge_questions::questions(&asker.clean(query), &sanitized, &system);
            questions.extend(match &matching.embeddings {
                Some(judge) => pair_questions::embedding_question(assessment, &sanitized, judge),
                None => pair_questions::pair_question(assessment, &sanitized, &system),
            });
            // A plan that is cut cannot be judged.
            questions.retain(fits);
            if !questions.is_empty() {
                return MetricProgress::Ask(questions);
            }
        }
        let mut assessment = assessment.clone();
        let opinions_on = |key| answers.iter().find(|a| a.key == key)?.opinions.as_deref().ok();
        let mut decided_by = None;
        if let Some([opinion, ..]) = opinions_on(pair_questions::EMBEDDED_KEY) {
            assessment.decide(pair_questions::read_cosines(
                &assessment,
                &sanitized,
                &opinion.value,
                matching,
            ));
            decided_by = Some(opinion.judge.to_string());
        }
        if matching.embeddings.is_some() && !answers.iter().any(|a| a.key == pair_questions::JUDGED_KEY) {
            // The pairs whose similarity is between the two thresholds.
            let question = pair_questions::pair_question(&assessment, &sanitized, &system);
            if let Some(question) = question.filter(|question| !answers.is_empty() && fits(question)) {
                return MetricProgress::Ask(vec![question]);
            }
        }
        if let Some(opinions @ [first, ..]) = opinions_on(pair_questions::JUDGED_KEY) {
            assessment.decide(pair_questions::read_pairs(&assessment, &sanitized, opinions));
            decided_by = Some(first.judge.to_string());
        }
        let rating = decided_by.map(|judge| Measurement {
            judge: judge.into(),
            ..PlanMeasurements { context, assessment: &assessment }.rating()
        });
        let mut out = measure_answers(context, assessment, answers);
        out.extend(rating);
        MetricProgress::Done(out)
    }
}

/// The measurements of the judged metrics, and of the score.
fn measure_answers(
    context: &Context<'_>,
    mut assessment: PlanAssessment,
    answers: &[Answer],
) -> Vec<Measurement> {
    let mut out = Vec::new();
    let mut judge: Cow<'static, str> = Cow::Borrowed(RULES_JUDGE);
    let mut unmeasured_reason = None;
    for part in JUDGED_PARTS {
        if !judge_questions::is_judged(part, &assessment.plan) {
            out.push(unmeasured(context.at, part.metric(), Unmeasured::NotApplicable));
            continue;
        }
        let judgement = answers
            .iter()
            .find(|a| a.key == part.metric())
            .map_or(Err(Unmeasured::Limit), |a| a.opinions.as_deref().map_err(|reason| *reason))
            .and_then(|opinions| {
                judge_questions::median_judgement(part, &assessment.plan, opinions)
                    .ok_or(Unmeasured::JudgeError)
            });
        unmeasured_reason = judgement.as_ref().err().copied().or(unmeasured_reason);
        let outcome = judgement.map(|(judgement, judge_name)| {
            judge = Cow::Owned(judge_name);
            let value = assessment.apply_judgement(part, &judgement);
            PlanMeasurements { context, assessment: &assessment }.part(part, value, &judgement.rationale)
        });
        out.push(Measurement::new(context.at, part.metric(), judge.clone(), outcome));
    }
    // A score without one of its judged metrics would be misleading: the score of the rules is kept,
    // which lists the metrics that it includes.
    out.push(match unmeasured_reason {
        Some(reason) => Measurement::new(context.at, PLAN_SCORE, judge, Err(reason)),
        None => PlanMeasurements { context, assessment: &assessment }.score(judge),
    });
    out
}

/// The category of the defects of a part.
fn category(part: PlanPart) -> Category {
    match part {
        PlanPart::Format => Category::FormattingErrors,
        PlanPart::ToolPromptAlignment | PlanPart::ToolUsageCompleteness => Category::ToolSelectionErrors,
        PlanPart::QueryAdherence => Category::GoalDeviation,
        _ => Category::TaskOrchestration,
    }
}

/// A finding with the score of `value` (0 to 1) on the scale of findings, 1 to 5.
fn finding(rationale: String, quote: &str, value: f64) -> Finding {
    Finding::new(rationale, head(quote, QUOTE_BYTES), 1.0 + 4.0 * value).under(Category::TaskOrchestration)
}

/// The measurements of an assessed plan.
struct PlanMeasurements<'a> {
    context: &'a Context<'a>,
    assessment: &'a PlanAssessment,
}

impl PlanMeasurements<'_> {
    /// The outcome of one metric; `rationale` is the judge's.
    fn part(&self, part: PlanPart, value: f64, rationale: &str) -> Measured {
        let passed = value >= self.context.settings.plan.threshold;
        let issues =
            self.assessment.issues.iter().filter(|issue| PlanPart::for_fault(issue.fault) == Some(part));
        let mut findings: Vec<Finding> =
            issues.take(MAX_FINDINGS).map(|issue| self.issue_finding(part, value, issue)).collect();
        if findings.is_empty() && value < 1.0 && !rationale.is_empty() {
            let rationale = format!("{} was expected; {rationale}", part.expectation());
            findings = self.plan_finding(false, rationale, value);
        }
        let findings = findings.into_iter().map(|finding| finding.under(category(part))).collect();
        Measured { value: Value::Score(value), passed, findings }
    }

    /// A measurement by the rules, which examine the steps of the plan. A plan without steps can only fail as a whole.
    fn by_rules(&self, metric: &'static str, outcome: Measured) -> Measurement {
        match (self.assessment.plan.steps.len(), outcome.passed) {
            (0, true) => unmeasured(self.context.at, metric, Unmeasured::NotApplicable),
            (steps, _) => measured(self.context.at, metric, outcome).having_examined(steps.max(1)),
        }
    }

    /// The finding about an issue of a metric with this value.
    fn issue_finding(&self, part: PlanPart, value: f64, issue: &PlanIssue) -> Finding {
        let plan = &self.assessment.plan;
        let step = issue.step.and_then(|n| plan.position(n)).and_then(|position| plan.steps.get(position));
        let quote = step.or(plan.steps.first()).map_or(NO_STEPS, |s| s.prompt.as_str());
        let rationale = format!("{} was expected; {issue}", part.expectation());
        Finding { fact: shape::is_rejected(plan), ..finding(rationale, quote, value) }
    }

    /// A finding about the plan as a whole, if it failed.
    fn plan_finding(&self, passed: bool, rationale: String, value: f64) -> Vec<Finding> {
        let quote = self.assessment.plan.steps.first().map_or(NO_STEPS, |s| s.prompt.as_str());
        if passed { Vec::new() } else { vec![finding(rationale, quote, value)] }
    }

    /// The score with the measured metrics and the shape of the plan as details.
    fn score(&self, judge: Cow<'static, str>) -> Measurement {
        let PlanMeasurements { context, assessment } = self;
        let settings = &context.settings.plan;
        let values: Vec<(&str, f64)> =
            PlanPart::ALL.into_iter().filter_map(|p| Some((p.name(), assessment.value(p)?))).collect();
        let outcome = assessment.score(&settings.weights).map(|score| {
            let passed = score >= settings.score_threshold;
            let value_texts: Vec<String> =
                values.iter().map(|(name, value)| format!("{name} {value:.2}")).collect();
            let rationale = format!(
                "at least {} of 100 was expected; the plan has {score:.1} from {}",
                settings.score_threshold,
                value_texts.join(", ")
            );
            let findings = self.plan_finding(passed, rationale, score / 100.0);
            Measured { value: Value::Score(score), passed, findings }
        });
        let shape = shape::shape(&assessment.plan);
        let count = |key, n: usize| Detail { key, value: DetailValue::Count(n as u64) };
        let names = values.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut details = vec![
            Detail { key: "plan.score.measured", value: DetailValue::Texts(names) },
            Detail { key: "plan.score.reference", value: DetailValue::Flag(assessment.reference.is_some()) },
            count("plan.steps", shape.steps),
        ];
        // Without references, prose does not state which steps may run in parallel.
        if assessment.plan.is_structured || prose::has_references(&assessment.plan) {
            details.extend([count("plan.hops", shape.hops), count("plan.width", shape.width)]);
        }
        let outcome = outcome.ok_or(Unmeasured::NotApplicable);
        let examined = if outcome.is_ok() && judge == RULES_JUDGE { values.len() as u64 } else { 0 };
        Measurement { details, examined, ..Measurement::new(context.at, PLAN_SCORE, judge, outcome) }
    }

    /// The rating by the reference plan; undecided if undecided pairs of steps determine whether it passes.
    fn rating(&self) -> Measurement {
        let own_span = self.context.at;
        let Some(reference_match) = &self.assessment.reference_match else {
            return unmeasured(own_span, PLAN_RATING, Unmeasured::NotApplicable);
        };
        let least_rating = self.context.settings.plan.least_rating;
        let passed = reference_match.rating >= least_rating;
        let details = vec![
            Detail { key: "plan.rating.f1", value: DetailValue::Number(reference_match.f1) },
            Detail { key: "plan.rating.f1_at_most", value: DetailValue::Number(reference_match.f1_at_most) },
            Detail {
                key: "plan.rating.unsure",
                value: DetailValue::Count(reference_match.unsure.len() as u64),
            },
        ];
        if passed != (reference_match.rating_at_most >= least_rating) {
            // Whether the plan passes depends on pairs of steps that are undecided.
            return Measurement { details, ..unmeasured(own_span, PLAN_RATING, Unmeasured::Undecided) };
        }
        let repair_note =
            if reference_match.rating_if_valid.is_some() { "; it is not valid JSON" } else { "" };
        let rationale = format!(
            "a plan rated {} or better was expected; {} steps match the reference plan (precision {:.2}, \
             recall {:.2}, F1 {:.2}){repair_note}",
            least_rating.as_str(),
            reference_match.matched.len(),
            reference_match.precision,
            reference_match.recall,
            reference_match.f1
        );
        let findings = self.plan_finding(passed, rationale, reference_match.f1);
        let value = Value::Label(reference_match.rating.as_str());
        Measurement { details, ..self.by_rules(PLAN_RATING, Measured { value, passed, findings }) }
    }
}

#[cfg(test)]
mod tests;
