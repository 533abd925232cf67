//! A plan with all its measurements by rules, reference and judges; used for plans in traces and in files.
//!
//! In: a plan, its tools, an optional reference plan, judges' answers. Out: a [`PlanAssessment`] with
//! issues, values and score.

use super::part::{self, PartValues, PlanWeights};
use super::reference::{self, PairDecisions, ReferenceMatch};
use super::schema::{Plan, PlanIssue};
use super::tools::Toolbox;
use super::{prose, rules, shape};
use crate::measure::metric_names::PlanPart;

/// A judge's answer about one metric.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanPartJudgement {
    /// From 0 to 1.
    pub value: f64,
    /// Issues of the steps that the judge named, with its reasons.
    pub issues: Vec<PlanIssue>,
    /// The judge's overall rationale.
    pub rationale: String,
}

/// A plan and its measurements.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanAssessment {
    pub plan: Plan,
    /// The tools it may use.
    pub tools: Toolbox,
    /// The reference plan for the same query.
    pub reference: Option<Plan>,
    /// Issues found by rules and by judges.
    pub issues: Vec<PlanIssue>,
    /// The measured metrics.
    pub values: PartValues,
    /// The comparison with the reference.
    pub reference_match: Option<ReferenceMatch>,
    /// The decisions of embeddings and judges about pairs of steps.
    pub(crate) pair_decisions: PairDecisions,
}

impl PlanAssessment {
    /// Measures `plan` by rules.
    pub fn new(mut plan: Plan, tools: Toolbox, reference: Option<Plan>) -> PlanAssessment {
        let mut reference = reference.filter(|r| !r.is_unreadable());
        for prose in std::iter::once(&mut plan).chain(&mut reference).filter(|plan| !plan.is_structured) {
            prose::assign_tools(prose, &tools);
        }
        let issues = rules::issues(&plan, &tools, reference.as_ref());
        let values = rules::values(&plan, &tools, &issues, reference.as_ref());
        let pair_decisions = PairDecisions::new();
        let mut assessment =
            PlanAssessment { plan, tools, reference, issues, values, reference_match: None, pair_decisions };
        assessment.match_reference();
        assessment
    }

    /// Compares the plan with its reference again, by the decisions about pairs so far.
    fn match_reference(&mut self) {
        let reference = self.comparable_reference();
        self.reference_match =
            reference.map(|r| reference::match_reference(&self.plan, r, &self.issues, &self.pair_decisions));
    }

    /// The reference, if its steps can be compared with those of the plan: steps match by tool, placeholders and
    /// dependencies, which prose does not have, so prose is rated only against prose.
    fn comparable_reference(&self) -> Option<&Plan> {
        let is_comparable = |r: &&Plan| r.is_structured == self.plan.is_structured || self.is_rejected();
        self.reference.as_ref().filter(is_comparable)
    }

    /// The pairs of steps, by position in plan and reference, that rules cannot decide and that are not decided yet.
    pub(crate) fn open_pairs(&self) -> Vec<(usize, usize)> {
        let reference = self.comparable_reference().filter(|_| !self.is_rejected());
        reference.map_or_else(Vec::new, |r| reference::open_pairs(&self.plan, r, &self.pair_decisions))
    }

    /// Matches the steps again with further decisions about pairs.
    pub fn decide(&mut self, decisions: PairDecisions) {
        self.pair_decisions.extend(decisions);
        self.match_reference();
    }

    /// Whether the plan is unreadable or has a dependency cycle; judges are not asked about such a plan.
    pub fn is_rejected(&self) -> bool {
        shape::is_rejected(&self.plan)
    }

    /// A copy for a judge, with `clean` applied to every untrusted text. Step numbers stay, so that
    /// answers refer to the same steps.
    pub fn sanitized(&self, clean: impl Fn(&str) -> String) -> PlanAssessment {
        PlanAssessment {
            plan: self.plan.map_texts(&clean),
            tools: self.tools.map_texts(&clean),
            reference: self.reference.as_ref().map(|plan| plan.map_texts(&clean)),
            ..self.clone()
        }
    }

    /// Applies a judgement of `part` and returns its new value. The issues found by rules (an unknown
    /// tool, an exceeded limit) bound it.
    pub fn apply_judgement(&mut self, part: PlanPart, judgement: &PlanPartJudgement) -> f64 {
        let steps = rules::judged_steps(&self.plan, part);
        let upper_bound = rules::share(steps, rules::violations(&self.issues, part));
        let value = judgement.value.min(upper_bound);
        self.values[part as usize] = Some(value);
        for issue in &judgement.issues {
            if !self
                .issues
                .iter()
                .any(|existing| existing.step == issue.step && existing.fault == issue.fault)
            {
                self.issues.push(issue.clone());
            }
        }
        value
    }

    pub fn value(&self, part: PlanPart) -> Option<f64> {
        self.values[part as usize]
    }

    /// The score from 0 to 100; `None` if a group of metrics is unmeasured.
    pub fn score(&self, weights: &PlanWeights) -> Option<f64> {
        part::score(&self.values, weights)
    }
}
