//! Compares a plan with a reference plan (004, section 4.2 and table 33).
//!
//! In: a plan, a reference plan, the tools. Out: which steps match, precision, recall and F1 over
//! steps, the shares of steps with correct format, dependencies and placeholders, and the tier.
//!
//! Two steps match when their tools, placeholders and dependencies agree and their prompts are
//! similar. Dependencies are compared through the matching itself, so that the best matching is a
//! graph problem; it is approximated in rounds: an assignment of greatest similarity, then again
//! with a bonus where the dependencies agree under the previous one, until no match is gained. A
//! step with wrong dependencies is still paired with its counterpart, so that one wrong step does
//! not make every later one wrong.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_otlp::labelled_enum;

use super::part::PlanPart;
use super::placeholder::{self, Placeholder};
use super::schema::{Fault, Plan, PlanIssue, PlanStep};
use super::shape::{self, dependency_positions};
use super::words::{SIMILAR, Words};
use super::{assignment, rules};

/// Rounds of refinement; each must gain a match, and few plans gain more than once.
const MAX_ROUNDS: usize = 4;
/// Bonus for agreeing dependencies, added to a similarity of at most 1; it decides between similar
/// prompts.
const AGREEING: f64 = 0.5;
/// Bonus for the same relative position in the plan: a tie-breaker.
const SAME_PLACE: f64 = 0.01;

labelled_enum! {
    /// The seven tiers, best last. Labels as in `verdict.plan.rating.label`.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Rating {
        ExtremelyBad = "extremely_bad",
        VeryBad = "very_bad",
        Bad = "bad",
        Acceptable = "acceptable",
        Good = "good",
        VeryGood = "very_good",
        ExtremelyGood = "extremely_good",
    }
}

impl Rating {
    /// From F1, which must exceed the lower bound of the tier.
    pub fn of(f1: f64) -> Rating {
        const BOUNDS: [f64; 6] = [0.30, 0.45, 0.60, 0.75, 0.85, 0.95];
        Rating::ALL[BOUNDS.into_iter().filter(|bound| f1 > *bound).count()]
    }
}

/// The result of comparing a plan with its reference.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReferenceMatch {
    /// Matched steps over steps of the plan.
    pub precision: f64,
    /// Matched steps over steps of the reference.
    pub recall: f64,
    /// Their harmonic mean; 0 where nothing matches.
    pub f1: f64,
    /// The tier. A rejected plan has the lowest, independently of F1.
    pub rating: Rating,
    /// Share of the plan's steps that are well-formed.
    pub format: f64,
    /// Share of the plan's steps with correct dependencies.
    pub dependencies: f64,
    /// Share of the plan's steps with correct placeholders.
    pub placeholders: f64,
    /// Pairs of step numbers (plan, reference) that match.
    pub matched: Vec<(usize, usize)>,
    /// Pairs with similar prompts that differ in placeholders or dependencies.
    pub nearly: Vec<(usize, usize)>,
}

/// Compares `plan` with `reference`; `issues` are those of `plan`.
pub(crate) fn match_reference(plan: &Plan, reference: &Plan, issues: &[PlanIssue]) -> ReferenceMatch {
    let pairs = align_steps(plan, reference);
    let dependencies_agree = agreement(plan, reference, &pairs);
    let (mut matched, mut nearly) = (Vec::new(), Vec::new());
    for (at, with) in paired(&pairs) {
        let (own, other) = (&plan.steps[at], &reference.steps[with]);
        let agree = dependencies_agree(at, with) && placeholder_counts(own) == placeholder_counts(other);
        let list = if agree { &mut matched } else { &mut nearly };
        list.push((own.number, other.number));
    }
    let share = |of: usize| matched.len() as f64 / of.max(1) as f64;
    let (precision, recall) = (share(plan.steps.len()), share(reference.steps.len()));
    let f1 = if matched.is_empty() { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
    let rating = if shape::is_rejected(plan) { Rating::ExtremelyBad } else { Rating::of(f1) };
    let right = |is_wrong: &dyn Fn(Fault) -> bool| {
        let wrong = issues.iter().filter(|i| is_wrong(i.fault)).filter_map(|i| i.step);
        rules::share(plan.steps.len(), wrong.collect::<BTreeSet<usize>>().len())
    };
    ReferenceMatch {
        precision,
        recall,
        f1,
        rating,
        format: right(&|f| PlanPart::of(f) == Some(PlanPart::Format) && !is_of_placeholder(f)),
        dependencies: right(&|f| PlanPart::of(f) == Some(PlanPart::Dependencies)),
        placeholders: right(&is_of_placeholder),
        matched,
        nearly,
    }
}

fn is_of_placeholder(fault: Fault) -> bool {
    use Fault::*;
    matches!(
        fault,
        MissingPlaceholder | MalformedPlaceholder | MisplacedPlaceholder | MissingQuery | Undeclared
    )
}

/// The positions of matched steps.
fn paired(pairs: &[Option<usize>]) -> impl Iterator<Item = (usize, usize)> + '_ {
    pairs.iter().enumerate().filter_map(|(at, with)| Some((at, (*with)?)))
}

/// For each step of the plan its counterpart in the reference, by position.
fn align_steps(plan: &Plan, reference: &Plan) -> Vec<Option<usize>> {
    let (own, others) = (Words::of_steps(plan), Words::of_steps(reference));
    let relative_position = |at: usize, plan: &Plan| at as f64 / (plan.steps.len() - 1).max(1) as f64;
    let similarity = |i: usize, j: usize| {
        let similarity = own[i].similarity(&others[j]);
        if !plan.steps[i].has_tool_of(&reference.steps[j]) || similarity < SIMILAR {
            return 0.0;
        }
        let distance = (relative_position(i, plan) - relative_position(j, reference)).abs();
        similarity + SAME_PLACE * (1.0 - distance)
    };
    let matrix = |weight: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
        (0..own.len()).map(|i| (0..others.len()).map(|j| weight(i, j)).collect()).collect()
    };
    let agreeing = |pairs: &[Option<usize>]| {
        let agrees = agreement(plan, reference, pairs);
        paired(pairs).filter(|(at, with)| agrees(*at, *with)).count()
    };
    let similarities = matrix(&similarity);
    let mut pairs = assignment::maximum_matching(&similarities);
    let mut most = agreeing(&pairs);
    for _ in 0..MAX_ROUNDS {
        let agrees = agreement(plan, reference, &pairs);
        let next = assignment::maximum_matching(&matrix(&|i, j| {
            let similarity = similarities[i][j];
            if similarity > 0.0 && agrees(i, j) { similarity + AGREEING } else { similarity }
        }));
        let gained = agreeing(&next);
        if gained <= most {
            break;
        }
        (pairs, most) = (next, gained);
    }
    pairs
}

/// Whether the dependencies of a step of the plan and of a step of the reference, given by position, are
/// paired with each other.
fn agreement(
    plan: &Plan,
    reference: &Plan,
    pairs: &[Option<usize>],
) -> impl Fn(usize, usize) -> bool + use<> {
    let own = dependency_sets(plan, |d| pairs[d]);
    let others = dependency_sets(reference, Some);
    move |at, with| own[at].is_some() && own[at] == others[with]
}

/// For each step its dependencies, mapped; `None` if one does not exist or is not mapped.
fn dependency_sets(plan: &Plan, map: impl Fn(usize) -> Option<usize>) -> Vec<Option<BTreeSet<usize>>> {
    dependency_positions(plan).iter().map(|on| on.iter().map(|d| d.and_then(&map)).collect()).collect()
}

/// The numbers of placeholders for outputs before the prompt, for outputs in the prompt, for the
/// query, and of malformed ones. The steps that they name are compared with the dependencies; labels
/// of tools and prompts do not affect these.
fn placeholder_counts(step: &PlanStep) -> [usize; 4] {
    let mut counts = [0; 4];
    let before = placeholder::all(&step.inputs).into_iter().map(|p| (p, 0));
    for (place, outputs) in before.chain(placeholder::all(&step.prompt).into_iter().map(|p| (p, 1))) {
        let kind = match place {
            Placeholder::Output(_) => outputs,
            Placeholder::Query => 2,
            Placeholder::Malformed(..) => 3,
            Placeholder::Tool(_) | Placeholder::Prompt(_) => continue,
        };
        counts[kind] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::parse::parse_plan;
    use crate::measure::plan::parse::tests::LISTING_1;
    use crate::measure::plan::tools::Toolbox;

    fn compare(plan: &str, reference: &str) -> ReferenceMatch {
        let plan = parse_plan(plan);
        let issues = rules::issues(&plan, &Toolbox::default(), None);
        match_reference(&plan, &parse_plan(reference), &issues)
    }

    #[test]
    fn f1_on_a_bound_gets_the_lower_tier() {
        for (f1, rating) in [
            (1.0, Rating::ExtremelyGood),
            (0.95, Rating::VeryGood),
            (0.85, Rating::Good),
            (0.75, Rating::Acceptable),
            (0.60, Rating::Bad),
            (0.45, Rating::VeryBad),
            (0.30, Rating::ExtremelyBad),
            (0.0, Rating::ExtremelyBad),
        ] {
            assert_eq!(Rating::of(f1), rating, "{f1}");
        }
    }

    #[test]
    fn plan_equal_to_its_reference_is_extremely_good() {
        let same = compare(LISTING_1, LISTING_1);
        assert_eq!((same.precision, same.recall, same.f1), (1.0, 1.0, 1.0));
        assert_eq!(same.rating, Rating::ExtremelyGood);
        assert_eq!((same.format, same.dependencies, same.placeholders), (1.0, 1.0, 1.0));
        assert_eq!(same.matched, (1..=6).map(|n| (n, n)).collect::<Vec<_>>());
    }

    #[test]
    fn reordered_steps_match_through_their_dependencies() {
        let one = r#"{
          "1": {"step": "T2S([], 'ids of refund calls')", "depends_on": []},
          "2": {"step": "T2S([], 'ids of sales calls')", "depends_on": []},
          "3": {"step": "RAG((1), 'What are customers unhappy about?')", "depends_on": [1]},
          "4": {"step": "RAG((2), 'What are customers unhappy about?')", "depends_on": [2]}
        }"#;
        let other = r#"{
          "1": {"step": "T2S([], 'ids of sales calls')", "depends_on": []},
          "2": {"step": "T2S([], 'ids of refund calls')", "depends_on": []},
          "3": {"step": "RAG((2), 'What are customers unhappy about?')", "depends_on": [2]},
          "4": {"step": "RAG((1), 'What are customers unhappy about?')", "depends_on": [1]}
        }"#;
        assert_eq!(compare(one, other).matched, [(1, 2), (2, 1), (3, 3), (4, 4)]);
    }

    #[test]
    fn one_wrong_dependency_unmatches_one_step() {
        let wrong = LISTING_1.replace(r#""depends_on": [2]"#, r#""depends_on": [1]"#);
        let compared = compare(&wrong, LISTING_1);
        assert_eq!(compared.nearly, [(3, 3)]);
        assert_eq!(compared.matched.len(), 5);
        assert!((compared.f1 - 5.0 / 6.0).abs() < 1e-12);
        assert_eq!(compared.rating, Rating::Good);
        assert!((compared.dependencies - 5.0 / 6.0).abs() < 1e-12, "step 3 uses (2) undeclared");
    }

    #[test]
    fn steps_with_other_tool_prompt_or_placeholders_do_not_match() {
        let tool = LISTING_1.replace("RAG(", "T2S(");
        assert_eq!(
            compare(&tool, LISTING_1).matched.len(),
            4,
            "the step that depends on it does not match either"
        );
        let prompt = LISTING_1.replace("for professionalism", "of the week by region and team");
        assert_eq!(compare(&prompt, LISTING_1).matched.len(), 4);
        let query = LISTING_1.replace("Compare QA scores", "For (query): Compare QA scores");
        assert_eq!(compare(&query, LISTING_1).nearly, [(6, 6)]);
    }

    #[test]
    fn rejected_plan_is_extremely_bad() {
        let compared = compare("{\"1\": {\"step\": \"T2S([]", LISTING_1);
        assert_eq!((compared.f1, compared.rating, compared.format), (0.0, Rating::ExtremelyBad, 0.0));
        let circle = LISTING_1.replace(r#""depends_on": []"#, r#""depends_on": [6]"#);
        assert_eq!(compare(&circle, LISTING_1).rating, Rating::ExtremelyBad);
    }
}
