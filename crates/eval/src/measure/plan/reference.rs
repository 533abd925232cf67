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

use serde::{Deserialize, Serialize};

use super::part::PlanPart;
use super::placeholder::{self, Placeholder};
use super::schema::{Fault, Plan, PlanIssue, PlanStep};
use super::words::{SIMILAR, Words};
use super::{assignment, rules, shape};

/// Questions of refinement; each must gain a match, and few plans gain more than once.
const MAX_ROUNDS: usize = 4;
/// Bonus for agreeing dependencies on a similarity of at most 1: it decides between similar
/// prompts.
const AGREEING: f64 = 0.5;
/// Bonus for the same relative position in the plan: a tie-breaker.
const SAME_PLACE: f64 = 0.01;

/// The seven tiers, best last.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Rating {
    ExtremelyBad,
    VeryBad,
    Bad,
    Acceptable,
    Good,
    VeryGood,
    ExtremelyGood,
}

impl Rating {
    /// From F1; each cut is strict.
    pub fn of(f1: f64) -> Rating {
        match f1 {
            f if f > 0.95 => Rating::ExtremelyGood,
            f if f > 0.85 => Rating::VeryGood,
            f if f > 0.75 => Rating::Good,
            f if f > 0.60 => Rating::Acceptable,
            f if f > 0.45 => Rating::Bad,
            f if f > 0.30 => Rating::VeryBad,
            _ => Rating::ExtremelyBad,
        }
    }

    /// As written in `verdict.plan.rating.label`.
    pub fn as_str(self) -> &'static str {
        match self {
            Rating::ExtremelyBad => "extremely_bad",
            Rating::VeryBad => "very_bad",
            Rating::Bad => "bad",
            Rating::Acceptable => "acceptable",
            Rating::Good => "good",
            Rating::VeryGood => "very_good",
            Rating::ExtremelyGood => "extremely_good",
        }
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
    /// The tier. An unreadable or circular plan has the lowest, whatever matches.
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
    let dependencies =
        StepDependencies { own: dependency_positions(plan), others: dependency_positions(reference) };
    let pairs = align_steps(plan, reference, &dependencies);
    let (mut matched, mut nearly) = (Vec::new(), Vec::new());
    for (at, with) in pairs.iter().enumerate().filter_map(|(at, with)| Some((at, (*with)?))) {
        let (Some(own), Some(other)) = (plan.steps.get(at), reference.steps.get(with)) else { continue };
        let agree =
            dependencies.agrees(&pairs, at, with) && placeholder_counts(own) == placeholder_counts(other);
        let list = if agree { &mut matched } else { &mut nearly };
        list.push((own.number, other.number));
    }
    let share = |of: usize| if of == 0 { 0.0 } else { matched.len() as f64 / of as f64 };
    let (precision, recall) = (share(plan.steps.len()), share(reference.steps.len()));
    let f1 = if matched.is_empty() { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
    let rating = if shape::is_rejected(plan) { Rating::ExtremelyBad } else { Rating::of(f1) };
    let is_placeholder = |fault| {
        matches!(
            fault,
            Fault::MissingPlaceholder
                | Fault::MalformedPlaceholder
                | Fault::MisplacedPlaceholder
                | Fault::MissingQuery
                | Fault::Undeclared
        )
    };
    let right = |is_wrong: &dyn Fn(Fault) -> bool| {
        let mut wrong: Vec<usize> =
            issues.iter().filter(|i| is_wrong(i.fault)).filter_map(|i| i.step).collect();
        wrong.sort_unstable();
        wrong.dedup();
        rules::share(plan.steps.len(), wrong.len())
    };
    ReferenceMatch {
        precision,
        recall,
        f1,
        rating,
        format: right(&|f| PlanPart::of(f) == Some(PlanPart::Format) && !is_placeholder(f)),
        dependencies: right(&|f| PlanPart::of(f) == Some(PlanPart::Dependencies)),
        placeholders: right(&is_placeholder),
        matched,
        nearly,
    }
}

/// For each step of the plan its counterpart in the reference, by position.
fn align_steps(plan: &Plan, reference: &Plan, dependencies: &StepDependencies) -> Vec<Option<usize>> {
    let words = |plan: &Plan| plan.steps.iter().map(|s| Words::of(&s.prompt)).collect::<Vec<_>>();
    let (own, others) = (words(plan), words(reference));
    let relative_position = |at: usize, of: usize| if of < 2 { 0.0 } else { at as f64 / (of - 1) as f64 };
    let alike: Vec<Vec<f64>> = plan
        .steps
        .iter()
        .zip(&own)
        .enumerate()
        .map(|(i, (step, said))| {
            let pair = |(j, (other, wanted)): (usize, (&PlanStep, &Words))| {
                let similarity = said.similarity(wanted);
                if !same_tool(step, other) || similarity < SIMILAR {
                    return 0.0;
                }
                let apart =
                    relative_position(i, plan.steps.len()) - relative_position(j, reference.steps.len());
                similarity + SAME_PLACE * (1.0 - apart.abs())
            };
            reference.steps.iter().zip(&others).enumerate().map(pair).collect()
        })
        .collect();
    let agreeing = |pairs: &[Option<usize>]| {
        let pairs_at = pairs.iter().enumerate().filter_map(|(at, with)| Some((at, (*with)?)));
        pairs_at.filter(|(at, with)| dependencies.agrees(pairs, *at, *with)).count()
    };
    let mut pairs = assignment::maximum_matching(&alike);
    let mut most = agreeing(&pairs);
    for _ in 0..MAX_ROUNDS {
        let weighted: Vec<Vec<f64>> = alike
            .iter()
            .enumerate()
            .map(|(i, row)| {
                let pair = |(j, weight): (usize, &f64)| {
                    let agrees = *weight > 0.0 && dependencies.agrees(&pairs, i, j);
                    if agrees { weight + AGREEING } else { *weight }
                };
                row.iter().enumerate().map(pair).collect()
            })
            .collect();
        let next = assignment::maximum_matching(&weighted);
        let gained = agreeing(&next);
        if gained <= most {
            break;
        }
        (pairs, most) = (next, gained);
    }
    pairs
}

fn same_tool(a: &PlanStep, b: &PlanStep) -> bool {
    match (&a.tool, &b.tool) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        (None, None) => true,
        _ => false,
    }
}

/// For each step the positions of its dependencies; `None` for one that does not exist.
fn dependency_positions(plan: &Plan) -> Vec<Vec<Option<usize>>> {
    plan.steps.iter().map(|s| s.depends_on.iter().map(|n| plan.position(*n)).collect()).collect()
}

/// The dependencies of two plans, to be compared through a matching.
struct StepDependencies {
    own: Vec<Vec<Option<usize>>>,
    others: Vec<Vec<Option<usize>>>,
}

impl StepDependencies {
    /// Whether the steps at `at` and `with` depend on counterparts of each other.
    fn agrees(&self, pairs: &[Option<usize>], at: usize, with: usize) -> bool {
        let (Some(own), Some(wanted)) = (self.own.get(at), self.others.get(with)) else { return false };
        let counterpart = |d: &Option<usize>| d.and_then(|d| pairs.get(d).copied().flatten());
        let mapped: Option<Vec<usize>> = own.iter().map(counterpart).collect();
        let wanted: Option<Vec<usize>> = wanted.iter().copied().collect();
        let set = |list: Option<Vec<usize>>| {
            list.map(|mut list| {
                list.sort_unstable();
                list.dedup();
                list
            })
        };
        mapped.is_some() && set(mapped) == set(wanted)
    }
}

/// How many placeholders of each kind a step has, before and in its prompt: which steps they name
/// is compared with the dependencies.
fn placeholder_counts(step: &PlanStep) -> [usize; 5] {
    let mut kinds = [0; 5];
    let before = placeholder::all(&step.inputs).into_iter().map(|p| (p, 0));
    for (place, outputs) in before.chain(placeholder::all(&step.prompt).into_iter().map(|p| (p, 1))) {
        let kind = match place {
            Placeholder::Output(_) => outputs,
            Placeholder::Query => 2,
            Placeholder::Tool(_) | Placeholder::Prompt(_) => 3,
            Placeholder::Malformed(..) => 4,
        };
        if let Some(count) = kinds.get_mut(kind) {
            *count += 1;
        }
    }
    // Tool and prompt labels do not affect the dependencies.
    kinds[3] = 0;
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::parse::parse_plan;
    use crate::measure::plan::parse::tests::LISTING_1;
    use crate::measure::plan::tools::Toolbox;

    fn beside(plan: &str, reference: &str) -> ReferenceMatch {
        let plan = parse_plan(plan);
        let issues = rules::issues(&plan, &Toolbox::default(), None);
        match_reference(&plan, &parse_plan(reference), &issues)
    }

    #[test]
    fn tiers_are_cut_strictly() {
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
    fn a_plan_is_extremely_good_beside_itself() {
        let same = beside(LISTING_1, LISTING_1);
        assert_eq!((same.precision, same.recall, same.f1), (1.0, 1.0, 1.0));
        assert_eq!(same.rating, Rating::ExtremelyGood);
        assert_eq!((same.format, same.dependencies, same.placeholders), (1.0, 1.0, 1.0));
        assert_eq!(same.matched, (1..=6).map(|n| (n, n)).collect::<Vec<_>>());
    }

    #[test]
    fn steps_in_another_order_match_through_their_dependencies() {
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
        assert_eq!(beside(one, other).matched, [(1, 2), (2, 1), (3, 3), (4, 4)]);
    }

    #[test]
    fn one_wrong_dependency_costs_one_step() {
        let wrong = LISTING_1.replace(r#""depends_on": [2]"#, r#""depends_on": [1]"#);
        let compared = beside(&wrong, LISTING_1);
        assert_eq!(compared.nearly, [(3, 3)]);
        assert_eq!(compared.matched.len(), 5);
        assert!((compared.f1 - 5.0 / 6.0).abs() < 1e-12);
        assert_eq!(compared.rating, Rating::Good);
        assert!((compared.dependencies - 5.0 / 6.0).abs() < 1e-12, "step 3 uses (2) undeclared");
    }

    #[test]
    fn tool_prompt_and_placeholders_must_agree() {
        let tool = LISTING_1.replace("RAG(", "T2S(");
        assert_eq!(beside(&tool, LISTING_1).matched.len(), 4, "its dependant has no counterpart either");
        let prompt = LISTING_1.replace("for professionalism", "of the week by region and team");
        assert_eq!(beside(&prompt, LISTING_1).matched.len(), 4);
        let query = LISTING_1.replace("Compare QA scores", "For (query): Compare QA scores");
        assert_eq!(beside(&query, LISTING_1).nearly, [(6, 6)]);
    }

    #[test]
    fn what_cannot_be_read_is_extremely_bad() {
        let compared = beside("{\"1\": {\"step\": \"T2S([]", LISTING_1);
        assert_eq!((compared.f1, compared.rating, compared.format), (0.0, Rating::ExtremelyBad, 0.0));
        let circle = LISTING_1.replace(r#""depends_on": []"#, r#""depends_on": [6]"#);
        assert_eq!(beside(&circle, LISTING_1).rating, Rating::ExtremelyBad);
    }
}
