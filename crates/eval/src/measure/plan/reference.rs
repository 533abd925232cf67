//! Compares a plan with a reference plan (004, section 4.2 and table 33).
//!
//! In: a plan, a reference plan, decisions about pairs of prompts. Out: the matching steps, precision, recall and F1
//! over steps, the shares of steps with correct format, dependencies and placeholders, and the tier.
//!
//! Two steps match when their tools, placeholders and dependencies agree and their prompts ask for the same
//! ([`super::intent`]). Dependencies are compared through the matching itself, so that the best matching is a
//! graph problem; it is approximated in rounds: an assignment of greatest similarity, then again
//! with a bonus for pairs whose dependencies agree under the previous assignment, until no match is gained. A
//! step with wrong dependencies is still paired with its counterpart, so that a wrong step does not make the steps that
//! depend on it wrong.
//!
//! Undecided pairs do not match. A second matching that includes them gives the highest possible F1 and tier of the
//! plan.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_otlp::labelled_enum;

use super::intent::{Intents, Likeness};
use super::placeholder::{self, Placeholder};
use super::schema::{Fault, Plan, PlanIssue, PlanStep};
use super::shape::{self, dependency_positions};
use super::{assignment, rules};
use crate::measure::metric_names::PlanPart;

/// Maximum number of rounds of refinement; each must gain a match, and few plans gain more than once.
const MAX_ROUNDS: usize = 4;
/// The similarity of an undecided pair: below that of prompts that ask for the same.
const UNSURE_SIMILARITY: f64 = 0.9;
/// The bonus for agreeing dependencies, added to a similarity of at most 1; it decides between similar
/// prompts.
const AGREEMENT_BONUS: f64 = 0.5;
/// The bonus for the same relative position in the plan: a tie-breaker.
const POSITION_BONUS: f64 = 0.01;

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
    /// The highest tier whose lower bound F1 exceeds. F1 is 2 `matched` / `steps`, where `steps` is the number of steps
    /// of both plans together. It is compared in integers: F1 can equal a bound exactly, as 3/4 for 9 matches of 11 and
    /// 13 steps.
    pub(crate) fn from_matches(matched: usize, steps: usize) -> Rating {
        const BOUNDS_PERCENT: [usize; 6] = [30, 45, 60, 75, 85, 95];
        Rating::ALL[BOUNDS_PERCENT.into_iter().filter(|bound| 200 * matched > bound * steps).count()]
    }
}

/// The result of comparing a plan with its reference.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReferenceMatch {
    /// Matched steps over steps of the plan.
    pub precision: f64,
    /// Matched steps over steps of the reference.
    pub recall: f64,
    /// The harmonic mean of precision and recall; 0 if no step matches.
    pub f1: f64,
    /// The tier. A plan that is rejected or no valid JSON has the lowest tier, independently of F1.
    pub rating: Rating,
    /// F1 if every pair in `unsure` matches.
    pub f1_at_most: f64,
    /// The tier if every pair in `unsure` matches.
    pub rating_at_most: Rating,
    /// The tier by F1 of a plan that was repaired, since it is no valid JSON; `None` for other plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rating_if_valid: Option<Rating>,
    /// Share of the plan's steps that are well-formed.
    pub format: f64,
    /// Share of the plan's steps with correct dependencies.
    pub dependencies: f64,
    /// Share of the plan's steps with correct placeholders.
    pub placeholders: f64,
    /// Pairs of step numbers (plan, reference) that match.
    pub matched: Vec<(usize, usize)>,
    /// Pairs whose prompts ask for the same, but whose placeholders or dependencies differ.
    pub nearly: Vec<(usize, usize)>,
    /// Further pairs that match if their prompts ask for the same, which is undecided, and pairs that depend on such a
    /// pair.
    pub unsure: Vec<(usize, usize)>,
}

/// The decisions of embeddings or judges about pairs of prompts, by positions of steps in plan and reference.
pub(crate) type PairDecisions = BTreeMap<(usize, usize), bool>;

/// Compares `plan` with `reference`; `issues` are those of `plan`.
pub(crate) fn match_reference(
    plan: &Plan,
    reference: &Plan,
    issues: &[PlanIssue],
    decisions: &PairDecisions,
) -> ReferenceMatch {
    let likeness = likeness_matrix(plan, reference, decisions);
    let (matched, nearly) = match_steps(plan, reference, &likeness, false);
    let (possible, _) = match_steps(plan, reference, &likeness, true);
    let unsure = possible.iter().filter(|pair| !matched.contains(pair)).copied().collect();
    // The second matching is approximated as well, so it may have fewer pairs than the first.
    let max_matched = possible.len().max(matched.len());
    let steps = plan.steps.len() + reference.steps.len();
    let share = |count: usize, total: usize| count as f64 / total.max(1) as f64;
    let is_repaired = plan.issues.iter().any(|issue| issue.fault == Fault::Repaired);
    let is_lowest = is_repaired || shape::is_rejected(plan);
    let rating =
        |matched| if is_lowest { Rating::ExtremelyBad } else { Rating::from_matches(matched, steps) };
    let correct_share = |is_wrong: &dyn Fn(Fault) -> bool| {
        let wrong = issues.iter().filter(|i| is_wrong(i.fault)).filter_map(|i| i.step);
        rules::share(plan.steps.len(), wrong.collect::<BTreeSet<usize>>().len())
    };
    let format =
        correct_share(&|f| PlanPart::for_fault(f) == Some(PlanPart::Format) && !is_placeholder_fault(f));
    ReferenceMatch {
        precision: share(matched.len(), plan.steps.len()),
        recall: share(matched.len(), reference.steps.len()),
        f1: share(2 * matched.len(), steps),
        rating: rating(matched.len()),
        f1_at_most: share(2 * max_matched, steps),
        rating_at_most: rating(max_matched),
        rating_if_valid: (is_repaired && !shape::is_rejected(plan))
            .then(|| Rating::from_matches(matched.len(), steps)),
        format: if is_repaired { 0.0 } else { format },
        dependencies: correct_share(&|f| PlanPart::for_fault(f) == Some(PlanPart::Dependencies)),
        placeholders: correct_share(&is_placeholder_fault),
        matched,
        nearly,
        unsure,
    }
}

/// The undecided pairs of positions, the most similar first: pairs with equal tools of which neither step is the same
/// as another step.
pub(crate) fn open_pairs(plan: &Plan, reference: &Plan, decisions: &PairDecisions) -> Vec<(usize, usize)> {
    let likeness = likeness_matrix(plan, reference, decisions);
    let intents = Intents::new(plan, reference);
    let is_same = |i: usize, j: usize| likeness[i][j] == Likeness::Same;
    let has_same_in_reference = |i: usize| (0..reference.steps.len()).any(|j| is_same(i, j));
    let has_same_in_plan = |j: usize| (0..plan.steps.len()).any(|i| is_same(i, j));
    let mut out: Vec<(usize, usize)> = (0..plan.steps.len())
        .flat_map(|i| (0..reference.steps.len()).map(move |j| (i, j)))
        .filter(|&(i, j)| {
            likeness[i][j] == Likeness::Unsure && !has_same_in_reference(i) && !has_same_in_plan(j)
        })
        .collect();
    out.sort_by(|a, b| intents.similarity(b.0, b.1).total_cmp(&intents.similarity(a.0, a.1)).then(a.cmp(b)));
    out
}

/// The likeness of each step of the plan and each step of the reference.
fn likeness_matrix(plan: &Plan, reference: &Plan, decisions: &PairDecisions) -> Vec<Vec<Likeness>> {
    let intents = Intents::new(plan, reference);
    let step_likeness = |i: usize, j: usize| {
        if !plan.steps[i].has_tool_of(&reference.steps[j]) {
            return Likeness::Different;
        }
        match (intents.likeness(i, j), decisions.get(&(i, j))) {
            (Likeness::Unsure, Some(true)) => Likeness::Same,
            (Likeness::Unsure, Some(false)) => Likeness::Different,
            (likeness, _) => likeness,
        }
    };
    (0..plan.steps.len()).map(|i| (0..reference.steps.len()).map(|j| step_likeness(i, j)).collect()).collect()
}

type StepPairs = Vec<(usize, usize)>;

/// The numbers of matching steps, and of steps that only differ in dependencies or placeholders.
fn match_steps(
    plan: &Plan,
    reference: &Plan,
    likeness: &[Vec<Likeness>],
    with_unsure: bool,
) -> (StepPairs, StepPairs) {
    let pairs = align_steps(plan, reference, likeness, with_unsure);
    let dependencies_agree = agreement(plan, reference, &pairs);
    let (mut matched, mut nearly) = (Vec::new(), Vec::new());
    for (position, counterpart) in position_pairs(&pairs) {
        let (step, other) = (&plan.steps[position], &reference.steps[counterpart]);
        let agree = dependencies_agree(position, counterpart)
            && placeholder_counts(step) == placeholder_counts(other);
        let list = if agree { &mut matched } else { &mut nearly };
        list.push((step.number, other.number));
    }
    (matched, nearly)
}

fn is_placeholder_fault(fault: Fault) -> bool {
    use Fault::*;
    matches!(
        fault,
        MissingPlaceholder | MalformedPlaceholder | MisplacedPlaceholder | MissingQuery | Undeclared
    )
}

/// The positions of matched steps.
fn position_pairs(pairs: &[Option<usize>]) -> impl Iterator<Item = (usize, usize)> + '_ {
    pairs.iter().enumerate().filter_map(|(position, counterpart)| Some((position, (*counterpart)?)))
}

/// For each step of the plan its counterpart in the reference, by position.
fn align_steps(
    plan: &Plan,
    reference: &Plan,
    likeness: &[Vec<Likeness>],
    with_unsure: bool,
) -> Vec<Option<usize>> {
    let relative_position =
        |position: usize, plan: &Plan| position as f64 / (plan.steps.len() - 1).max(1) as f64;
    let similarity = |i: usize, j: usize| {
        let similarity = match likeness[i][j] {
            Likeness::Same => 1.0,
            Likeness::Unsure if with_unsure => UNSURE_SIMILARITY,
            Likeness::Unsure | Likeness::Different => return 0.0,
        };
        let distance = (relative_position(i, plan) - relative_position(j, reference)).abs();
        similarity + POSITION_BONUS * (1.0 - distance)
    };
    let matrix = |weight: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
        let (rows, columns) = (plan.steps.len(), reference.steps.len());
        (0..rows).map(|i| (0..columns).map(|j| weight(i, j)).collect()).collect()
    };
    let agreeing_count = |pairs: &[Option<usize>]| {
        let agrees = agreement(plan, reference, pairs);
        position_pairs(pairs).filter(|(position, counterpart)| agrees(*position, *counterpart)).count()
    };
    let similarities = matrix(&similarity);
    let mut pairs = assignment::maximum_matching(&similarities);
    let mut best = agreeing_count(&pairs);
    for _ in 0..MAX_ROUNDS {
        let agrees = agreement(plan, reference, &pairs);
        let next = assignment::maximum_matching(&matrix(&|i, j| {
            let similarity = similarities[i][j];
            if similarity > 0.0 && agrees(i, j) { similarity + AGREEMENT_BONUS } else { similarity }
        }));
        let next_count = agreeing_count(&next);
        if next_count <= best {
            break;
        }
        (pairs, best) = (next, next_count);
    }
    pairs
}

/// A function that returns whether the dependencies of a step of the plan and of a step of the reference, given by
/// position, are paired with each other.
fn agreement(
    plan: &Plan,
    reference: &Plan,
    pairs: &[Option<usize>],
) -> impl Fn(usize, usize) -> bool + use<> {
    let plan_sets = dependency_sets(plan, |d| pairs[d]);
    let reference_sets = dependency_sets(reference, Some);
    move |position, counterpart| {
        plan_sets[position].is_some() && plan_sets[position] == reference_sets[counterpart]
    }
}

/// For each step, its dependencies mapped by `map`; `None` if a dependency does not exist or is not mapped.
fn dependency_sets(plan: &Plan, map: impl Fn(usize) -> Option<usize>) -> Vec<Option<BTreeSet<usize>>> {
    dependency_positions(plan)
        .iter()
        .map(|dependencies| dependencies.iter().map(|d| d.and_then(&map)).collect())
        .collect()
}

/// The numbers of placeholders for outputs before the prompt, for outputs in the prompt, for the
/// query, and of malformed placeholders. The steps that they refer to are compared as dependencies; placeholders for
/// tools and prompts are not counted.
fn placeholder_counts(step: &PlanStep) -> [usize; 4] {
    let mut counts = [0; 4];
    let before = placeholder::all(&step.inputs).into_iter().map(|p| (p, 0));
    let within = placeholder::all(&step.prompt).into_iter().map(|p| (p, 1));
    for (placeholder, output_index) in before.chain(within) {
        let index = match placeholder {
            Placeholder::Output(_) => output_index,
            Placeholder::Query => 2,
            Placeholder::Malformed(..) => 3,
            Placeholder::Tool(_) | Placeholder::Prompt(_) => continue,
        };
        counts[index] += 1;
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
        match_reference(&plan, &parse_plan(reference), &issues, &PairDecisions::new())
    }

    #[test]
    fn f1_on_a_bound_gets_the_lower_tier() {
        for (matched, steps, rating) in [
            (1, 2, Rating::ExtremelyGood),
            (19, 40, Rating::VeryGood),
            (17, 40, Rating::Good),
            (3, 8, Rating::Acceptable),
            // 2 * 9 / 24 and 2 * 12 / 32 are 3/4, and 2 * 9 / 30 is 3/5: not in floating point.
            (9, 24, Rating::Acceptable),
            (12, 32, Rating::Acceptable),
            (9, 30, Rating::Bad),
            (9, 40, Rating::VeryBad),
            (3, 20, Rating::ExtremelyBad),
            (0, 0, Rating::ExtremelyBad),
        ] {
            assert_eq!(Rating::from_matches(matched, steps), rating, "{matched} of {steps}");
        }
    }

    #[test]
    fn plan_equal_to_its_reference_is_extremely_good() {
        let comparison = compare(LISTING_1, LISTING_1);
        assert_eq!((comparison.precision, comparison.recall, comparison.f1), (1.0, 1.0, 1.0));
        assert_eq!(comparison.rating, Rating::ExtremelyGood);
        assert_eq!((comparison.format, comparison.dependencies, comparison.placeholders), (1.0, 1.0, 1.0));
        assert_eq!(comparison.matched, (1..=6).map(|n| (n, n)).collect::<Vec<_>>());
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
    fn unsure_pairs_do_not_match_and_bound_the_rating() {
        let step = |prompt: &str| {
            format!(
                r#"{{"1": {{"step": "RAG([], '{prompt}')", "depends_on": []}}, "2": {{"step": "LLM('Sum up (1)')", "depends_on": [1]}}}}"#
            )
        };
        let one = step("What are customers most unhappy about?");
        let other = step("What are the main complaints of customers?");
        let compared = compare(&one, &other);
        assert_eq!((compared.matched.len(), compared.f1, compared.rating), (0, 0.0, Rating::ExtremelyBad));
        assert_eq!(compared.unsure, [(1, 1), (2, 2)], "the second step depends on the first");
        assert_eq!((compared.f1_at_most, compared.rating_at_most), (1.0, Rating::ExtremelyGood));
        let (plan, reference) = (parse_plan(&one), parse_plan(&other));
        assert_eq!(open_pairs(&plan, &reference, &PairDecisions::new()), [(0, 0)], "only one is a question");
        for (is_same, f1) in [(true, 1.0), (false, 0.0)] {
            let decisions = PairDecisions::from([((0, 0), is_same)]);
            let found = match_reference(&plan, &reference, &[], &decisions);
            assert_eq!((found.f1, found.f1_at_most, found.unsure), (f1, f1, Vec::new()));
            assert_eq!(open_pairs(&plan, &reference, &decisions), []);
        }
        // A decision does not overrule a contradiction.
        let not = parse_plan(&step("What are customers not most unhappy about?"));
        let found = match_reference(&plan, &not, &[], &PairDecisions::from([((0, 0), true)]));
        assert_eq!((found.f1, found.unsure.len()), (0.0, 0));
    }

    #[test]
    fn repaired_plan_is_extremely_bad_and_keeps_the_tier_of_its_f1() {
        let compared = compare(&LISTING_1.replace("[1]}", "[1],}"), LISTING_1);
        assert_eq!((compared.f1, compared.rating), (1.0, Rating::ExtremelyBad));
        assert_eq!((compared.rating_if_valid, compared.format), (Some(Rating::ExtremelyGood), 0.0));
        assert_eq!(compare(LISTING_1, LISTING_1).rating_if_valid, None);
    }

    #[test]
    fn rejected_plan_is_extremely_bad() {
        let compared = compare("{\"1\": {\"step\": \"T2S([]", LISTING_1);
        assert_eq!((compared.f1, compared.rating, compared.format), (0.0, Rating::ExtremelyBad, 0.0));
        let cycle = LISTING_1.replace(r#""depends_on": []"#, r#""depends_on": [6]"#);
        assert_eq!(compare(&cycle, LISTING_1).rating, Rating::ExtremelyBad);
    }
}
