//! The dependency graph of a plan: its issues, length and width (004, section 2 and "Number of
//! Hops").
//!
//! In: a [`Plan`]. Out: [`PlanIssue`]s of its edges, whether it has a cycle, and its [`Shape`].
//! Only edges to earlier steps count for the shape, so that an invalid plan has a shape, too.

use serde::{Deserialize, Serialize};

use super::placeholder::{self, Placeholder};
use super::schema::{Fault, Plan, PlanIssue, PlanStep, StepNotation};

/// Size, depth and width of the dependency graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Shape {
    pub steps: usize,
    /// The number of edges of the longest chain of dependencies: 0 if no step has dependencies.
    pub hops: usize,
    /// The maximum number of steps that run in parallel if each starts as soon as possible and all take equally
    /// long.
    pub width: usize,
}

/// The shape of a plan.
pub fn shape(plan: &Plan) -> Shape {
    let mut levels: Vec<usize> = Vec::with_capacity(plan.steps.len());
    let mut widths = vec![0usize; plan.steps.len()];
    for (position, step) in plan.steps.iter().enumerate() {
        let level = earlier(plan, position, step).map(|d| levels[d] + 1).max().unwrap_or(0);
        levels.push(level);
        widths[level] += 1;
    }
    let max = |counts: Vec<usize>| counts.into_iter().max().unwrap_or(0);
    Shape { steps: plan.steps.len(), hops: max(levels), width: max(widths) }
}

/// The positions of the earlier steps on which the step at `position` depends.
pub(crate) fn earlier<'a>(
    plan: &'a Plan,
    position: usize,
    step: &'a PlanStep,
) -> impl Iterator<Item = usize> + 'a {
    step.depends_on.iter().filter_map(|n| plan.position(*n)).filter(move |d| *d < position)
}

/// For each step, the positions of its dependencies; `None` for a dependency that does not exist.
pub(crate) fn dependency_positions(plan: &Plan) -> Vec<Vec<Option<usize>>> {
    plan.steps.iter().map(|s| s.depends_on.iter().map(|n| plan.position(*n)).collect()).collect()
}

/// For each step and each position, whether the step depends on that position, directly or
/// indirectly.
fn ancestors(plan: &Plan) -> Vec<Vec<bool>> {
    let count = plan.steps.len();
    let mut ancestors: Vec<Vec<bool>> = Vec::with_capacity(count);
    for (position, step) in plan.steps.iter().enumerate() {
        let mut step_ancestors = vec![false; count];
        for d in earlier(plan, position, step) {
            step_ancestors
                .iter_mut()
                .zip(&ancestors[d])
                .for_each(|(is_ancestor, indirect)| *is_ancestor |= indirect);
            step_ancestors[d] = true;
        }
        ancestors.push(step_ancestors);
    }
    ancestors
}

/// The positions of the steps on which the step at `position` depends, directly or indirectly.
pub(crate) fn transitive_dependencies(plan: &Plan, position: usize) -> Vec<usize> {
    let step_ancestors = ancestors(plan).into_iter().nth(position).unwrap_or_default();
    step_ancestors.into_iter().enumerate().filter(|(_, depends)| *depends).map(|(d, _)| d).collect()
}

/// The issues of the edges of `plan`. A dependency without a placeholder is an issue of the format,
/// unless another dependency implies it: then it is superfluous ("minimal wiring", section 4.1).
pub(crate) fn edge_issues(plan: &Plan) -> Vec<PlanIssue> {
    let mut issues = Vec::new();
    let ancestors = ancestors(plan);
    for (position, step) in plan.steps.iter().enumerate() {
        let mut used = outputs(step);
        used.sort_unstable();
        used.dedup();
        issues.extend(dependency_issues(plan, position, step, &used, &ancestors));
        issues.extend(undeclared_placeholders(plan, position, step, &used));
    }
    issues.extend(cycle_issues(plan));
    issues
}

/// The wrong and superfluous dependencies of one step.
fn dependency_issues(
    plan: &Plan,
    position: usize,
    step: &PlanStep,
    used: &[usize],
    ancestors: &[Vec<bool>],
) -> Vec<PlanIssue> {
    let mut issues = Vec::new();
    // Without placeholders it is unknown which outputs a step uses.
    let are_uses_known = has_placeholders(plan);
    let positions: Vec<Option<usize>> = step.depends_on.iter().map(|n| plan.position(*n)).collect();
    for (n, (number, dependency)) in step.depends_on.iter().zip(&positions).enumerate() {
        let (fault, message) = match *dependency {
            None => (Fault::UnknownStep, format!("depends on step {number}, which does not exist")),
            Some(d) if d == position => (Fault::NotEarlier, "depends on itself".to_owned()),
            Some(d) if d > position => (Fault::NotEarlier, format!("depends on the later step {number}")),
            Some(_) if step.depends_on.iter().take(n).any(|other| other == number) => {
                (Fault::Superfluous, format!("depends on step {number} twice"))
            }
            Some(d) => {
                let is_implied =
                    positions.iter().flatten().any(|other| *other < position && ancestors[*other][d]);
                if !(is_implied && are_uses_known) || used.contains(number) {
                    continue;
                }
                let message =
                    format!("depends on step {number} without using it, and another dependency implies it");
                (Fault::Superfluous, message)
            }
        };
        issues.push(PlanIssue::for_step(step.number, fault, message));
    }
    issues
}

/// Whether outputs are passed by placeholders. Plans written as fields may use `depends_on` alone:
/// without any placeholder none is missing.
pub(crate) fn has_placeholders(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| s.notation == StepNotation::Call || !placeholder::all(&s.prompt).is_empty())
}

/// The numbers of the steps whose outputs have a placeholder in `step`, possibly a malformed one.
pub(crate) fn outputs(step: &PlanStep) -> Vec<usize> {
    let placeholders = placeholder::all(&step.inputs).into_iter().chain(placeholder::all(&step.prompt));
    let mut out = Vec::new();
    for placeholder in placeholders {
        match placeholder {
            Placeholder::Output(number) => out.push(number),
            Placeholder::Malformed(_, numbers) => out.extend(numbers),
            _ => {}
        }
    }
    out
}

/// The issues of placeholders for steps that are not dependencies. A number that no step has is no placeholder.
fn undeclared_placeholders(plan: &Plan, position: usize, step: &PlanStep, used: &[usize]) -> Vec<PlanIssue> {
    let undeclared = used.iter().filter(|n| !step.depends_on.contains(n));
    let issue = |number: &usize| {
        let message = match plan.position(*number)? < position {
            true => format!("uses ({number}) and does not depend on step {number}"),
            false => format!("uses ({number}), which is not an earlier step"),
        };
        Some(PlanIssue::for_step(step.number, Fault::Undeclared, message))
    };
    undeclared.filter_map(issue).collect()
}

/// The issues of the steps that a topological sort over all edges leaves: the steps in a cycle or after one.
fn cycle_issues(plan: &Plan) -> Vec<PlanIssue> {
    let positions = dependency_positions(plan);
    let mut sorted = vec![false; plan.steps.len()];
    let mut unsorted: Vec<(usize, &PlanStep)> = plan.steps.iter().enumerate().collect();
    loop {
        let is_ready =
            |(position, _): &(usize, &PlanStep)| positions[*position].iter().flatten().all(|d| sorted[*d]);
        let (ready, remaining): (Vec<_>, Vec<_>) = unsorted.iter().copied().partition(is_ready);
        if ready.is_empty() {
            let message = "is part of a dependency cycle, or depends on one";
            return unsorted
                .iter()
                .map(|(_, s)| PlanIssue::for_step(s.number, Fault::Circular, message))
                .collect();
        }
        ready.into_iter().for_each(|(position, _)| sorted[position] = true);
        unsorted = remaining;
    }
}

/// Whether the plan has steps, and every dependency is an existing earlier step.
pub(crate) fn is_sound(plan: &Plan) -> bool {
    let has_earlier_dependencies = |(position, step): (usize, &PlanStep)| {
        step.depends_on.iter().all(|n| plan.position(*n).is_some_and(|d| d < position))
    };
    !plan.is_unreadable() && plan.steps.iter().enumerate().all(has_earlier_dependencies)
}

/// Whether the plan is rejected: unreadable, or with a cycle.
pub fn is_rejected(plan: &Plan) -> bool {
    plan.is_unreadable() || !cycle_issues(plan).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::parse::parse_plan;
    use crate::measure::plan::parse::tests::LISTING_1;
    use proptest::prelude::*;

    /// A plan of steps with these dependencies, each with its placeholder.
    fn plan(depends: &[&[usize]]) -> Plan {
        let step = |(position, dependencies): (usize, &&[usize])| PlanStep {
            number: position + 1,
            tool: Some("f".to_owned()),
            prompt: dependencies.iter().map(|n| format!("({n}) ")).collect(),
            depends_on: dependencies.to_vec(),
            ..PlanStep::default()
        };
        Plan {
            steps: depends.iter().enumerate().map(step).collect(),
            is_structured: true,
            issues: Vec::new(),
        }
    }

    fn faults(plan: &Plan) -> Vec<(usize, Fault)> {
        edge_issues(plan).into_iter().filter_map(|i| Some((i.step?, i.fault))).collect()
    }

    #[test]
    fn listing_1_has_four_hops_and_two_parallel_steps() {
        let plan = parse_plan(LISTING_1);
        assert_eq!(shape(&plan), Shape { steps: 6, hops: 4, width: 2 });
        assert_eq!(edge_issues(&plan), []);
        assert_eq!(transitive_dependencies(&plan, 5), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn refund_plan_has_one_hop_before_and_two_after_improvement() {
        assert_eq!(shape(&plan(&[&[], &[1]])), Shape { steps: 2, hops: 1, width: 1 });
        assert_eq!(shape(&plan(&[&[], &[1], &[1], &[2, 3]])), Shape { steps: 4, hops: 2, width: 2 });
        assert_eq!(shape(&plan(&[&[], &[], &[]])), Shape { steps: 3, hops: 0, width: 3 });
        assert_eq!(shape(&Plan::default()), Shape::default());
    }

    #[test]
    fn wrong_edges_are_classified() {
        assert_eq!(faults(&plan(&[&[], &[7]])), [(2, Fault::UnknownStep)]);
        assert_eq!(faults(&plan(&[&[2], &[]])), [(1, Fault::NotEarlier)]);
        assert_eq!(faults(&plan(&[&[], &[1, 1]])), [(2, Fault::Superfluous)]);
        assert_eq!(faults(&plan(&[&[1]])), [(1, Fault::NotEarlier), (1, Fault::Circular)]);
        let cycle = plan(&[&[], &[3], &[2], &[1]]);
        let expected = [(2, Fault::NotEarlier), (2, Fault::Circular), (3, Fault::Circular)];
        assert_eq!(faults(&cycle), expected);
        assert!(is_rejected(&cycle) && !is_rejected(&plan(&[&[2], &[]])) && is_rejected(&Plan::default()));
    }

    #[test]
    fn placeholders_without_dependency_and_the_reverse_are_issues() {
        let mut undeclared = plan(&[&[], &[1], &[2]]);
        undeclared.steps[2].prompt = "with (1) and (2), in (9) and (3)".to_owned();
        assert_eq!(faults(&undeclared), [(3, Fault::Undeclared), (3, Fault::Undeclared)]);
        let mut implied = plan(&[&[], &[1], &[1, 2]]);
        assert_eq!(faults(&implied), [], "it uses both");
        implied.steps[2].prompt = "with (2)".to_owned();
        assert_eq!(faults(&implied), [(3, Fault::Superfluous)]);
        implied.steps.iter_mut().for_each(|s| s.prompt = "words alone".to_owned());
        assert_eq!(faults(&implied), [], "the outputs it uses are unknown");
    }

    proptest! {
        #[test]
        fn edges_to_earlier_steps_have_no_issue(picks in prop::collection::vec(0u32..64, 1..8)) {
            let depends: Vec<Vec<usize>> = picks
                .iter()
                .enumerate()
                .map(|(position, bits)| (1..=position).filter(|n| bits >> (n - 1) & 1 == 1).collect())
                .collect();
            let plan = plan(&depends.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert_eq!(edge_issues(&plan), []);
            let shape = shape(&plan);
            prop_assert!(shape.hops < shape.steps && (1..=shape.steps).contains(&shape.width));
            prop_assert!(shape.width * (shape.hops + 1) >= shape.steps);
        }

        #[test]
        fn any_graph_has_a_shape(depends in prop::collection::vec(prop::collection::vec(0usize..9, 0..4), 0..7)) {
            let plan = plan(&depends.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let is_circular = edge_issues(&plan).iter().any(|i| i.fault == Fault::Circular);
            prop_assert_eq!(is_rejected(&plan), is_circular || plan.steps.is_empty());
            prop_assert!(shape(&plan).hops <= plan.steps.len());
        }
    }
}
