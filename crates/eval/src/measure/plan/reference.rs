//! A plan held against the best one at a glance (004, section 4.2 and table 33).
//!
//! In: a plan, a reference plan, the tools. Out: which steps match, precision, recall and F1 over
//! steps, the shares of steps with right format, dependencies and placeholders, and the tier.
//!
//! Two steps match when their tools, placeholders and dependencies agree and their prompts say the
//! same. Dependencies are compared through the matching itself, which makes the best matching a
//! question about graphs; it is approached in rounds: an assignment of greatest similarity, then
//! again with a bonus where the dependencies agree under the one before, until nothing is gained.
//! A step whose dependencies are wrong still stands for its counterpart, so that one wrong step does
//! not make all behind it wrong.

use serde::{Deserialize, Serialize};

use super::assignment;
use super::part::Part;
use super::placeholder::{self, Placeholder};
use super::rules;
use super::schema::{Fault, Issue, Plan, Step};
use super::shape;
use super::words::{SIMILAR, Words};

/// Rounds of refinement; each must gain a match, and few plans gain more than once.
const MAX_ROUNDS: usize = 4;
/// What agreeing dependencies add to a pair's similarity of at most 1: they decide between prompts
/// that are much alike.
const AGREEING: f64 = 0.5;
/// What a place in the same part of the plan adds: enough to tell equals apart.
const SAME_PLACE: f64 = 0.01;

/// The seven tiers, best last.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
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

/// A plan beside its reference.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
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
    /// Share of the plan's steps whose dependencies are right.
    pub dependencies: f64,
    /// Share of the plan's steps whose placeholders are right.
    pub placeholders: f64,
    /// Pairs of step numbers (plan, reference) that match.
    pub matched: Vec<(usize, usize)>,
    /// Pairs that say the same and differ in placeholders or dependencies.
    pub nearly: Vec<(usize, usize)>,
}

/// Holds `plan` against `reference`; `issues` are the plan's.
pub fn compare(plan: &Plan, reference: &Plan, issues: &[Issue]) -> Comparison {
    let wiring = Wiring { own: places(plan), others: places(reference) };
    let pairs = align(plan, reference, &wiring);
    let (mut matched, mut nearly) = (Vec::new(), Vec::new());
    for (at, with) in pairs.iter().enumerate().filter_map(|(at, with)| Some((at, (*with)?))) {
        let (Some(own), Some(other)) = (plan.steps.get(at), reference.steps.get(with)) else { continue };
        let agree = wiring.agrees(&pairs, at, with) && placeholders(own) == placeholders(other);
        let list = if agree { &mut matched } else { &mut nearly };
        list.push((own.number, other.number));
    }
    let share = |of: usize| if of == 0 { 0.0 } else { matched.len() as f64 / of as f64 };
    let (precision, recall) = (share(plan.steps.len()), share(reference.steps.len()));
    let f1 = if matched.is_empty() { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
    let rating = if shape::rejected(plan) { Rating::ExtremelyBad } else { Rating::of(f1) };
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
    Comparison {
        precision,
        recall,
        f1,
        rating,
        format: right(&|f| Part::of(f) == Some(Part::Format) && !is_placeholder(f)),
        dependencies: right(&|f| Part::of(f) == Some(Part::Dependencies)),
        placeholders: right(&is_placeholder),
        matched,
        nearly,
    }
}

/// For each step of the plan its counterpart in the reference, by place.
fn align(plan: &Plan, reference: &Plan, wiring: &Wiring) -> Vec<Option<usize>> {
    let words = |plan: &Plan| plan.steps.iter().map(|s| Words::of(&s.prompt)).collect::<Vec<_>>();
    let (own, others) = (words(plan), words(reference));
    let place = |at: usize, of: usize| if of < 2 { 0.0 } else { at as f64 / (of - 1) as f64 };
    let alike: Vec<Vec<f64>> = plan
        .steps
        .iter()
        .zip(&own)
        .enumerate()
        .map(|(i, (step, said))| {
            let pair = |(j, (other, wanted)): (usize, (&Step, &Words))| {
                let similarity = said.similarity(wanted);
                if !same_tool(step, other) || similarity < SIMILAR {
                    return 0.0;
                }
                let apart = place(i, plan.steps.len()) - place(j, reference.steps.len());
                similarity + SAME_PLACE * (1.0 - apart.abs())
            };
            reference.steps.iter().zip(&others).enumerate().map(pair).collect()
        })
        .collect();
    let agreeing = |pairs: &[Option<usize>]| {
        let pairs_at = pairs.iter().enumerate().filter_map(|(at, with)| Some((at, (*with)?)));
        pairs_at.filter(|(at, with)| wiring.agrees(pairs, *at, *with)).count()
    };
    let mut pairs = assignment::best(&alike);
    let mut most = agreeing(&pairs);
    for _ in 0..MAX_ROUNDS {
        let weighted: Vec<Vec<f64>> = alike
            .iter()
            .enumerate()
            .map(|(i, row)| {
                let pair = |(j, weight): (usize, &f64)| {
                    let agrees = *weight > 0.0 && wiring.agrees(&pairs, i, j);
                    if agrees { weight + AGREEING } else { *weight }
                };
                row.iter().enumerate().map(pair).collect()
            })
            .collect();
        let next = assignment::best(&weighted);
        let gained = agreeing(&next);
        if gained <= most {
            break;
        }
        (pairs, most) = (next, gained);
    }
    pairs
}

fn same_tool(a: &Step, b: &Step) -> bool {
    match (&a.tool, &b.tool) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        (None, None) => true,
        _ => false,
    }
}

/// For each step the places of those that it depends on; `None` for one that there is not.
fn places(plan: &Plan) -> Vec<Vec<Option<usize>>> {
    plan.steps.iter().map(|s| s.depends_on.iter().map(|n| plan.position(*n)).collect()).collect()
}

/// The dependencies of two plans, to be compared through a matching.
struct Wiring {
    own: Vec<Vec<Option<usize>>>,
    others: Vec<Vec<Option<usize>>>,
}

impl Wiring {
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
/// is the dependencies' business.
fn placeholders(step: &Step) -> [usize; 5] {
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
    // Labels for a reader say nothing about the wiring.
    kinds[3] = 0;
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::read::read;
    use crate::measure::plan::read::tests::LISTING_1;
    use crate::measure::plan::tools::Toolbox;

    fn beside(plan: &str, reference: &str) -> Comparison {
        let plan = read(plan);
        let issues = rules::issues(&plan, &Toolbox::default(), None);
        compare(&plan, &read(reference), &issues)
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
