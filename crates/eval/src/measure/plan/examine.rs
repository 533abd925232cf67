//! A plan with everything that can be said of it: the one place where reading, rules, reference and
//! judges come together, for traces and for files.
//!
//! In: a plan, its tools, a reference plan where there is one, judges' answers as they come. Out: an
//! [`Examined`] with issues, values and score.

use super::judged::Judged;
use super::part::{self, Part, Values, Weights};
use super::prose;
use super::reference::{self, Comparison};
use super::rules;
use super::schema::{Issue, Plan};
use super::shape;
use super::tools::Toolbox;

/// What is known of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Examined {
    /// The plan.
    pub plan: Plan,
    /// The tools it may use.
    pub tools: Toolbox,
    /// The best plan for the same query, where there is one.
    pub reference: Option<Plan>,
    /// What is wrong, by rules and by judges.
    pub issues: Vec<Issue>,
    /// The metrics that were measured.
    pub values: Values,
    /// The plan beside the reference.
    pub beside: Option<Comparison>,
}

impl Examined {
    /// What rules can tell of `plan`.
    pub fn new(mut plan: Plan, tools: Toolbox, reference: Option<Plan>) -> Examined {
        let mut reference = reference.filter(|r| !r.is_unreadable());
        for words in [Some(&mut plan), reference.as_mut()].into_iter().flatten().filter(|p| !p.structured) {
            prose::name_tools(words, &tools);
        }
        let issues = rules::issues(&plan, &tools, reference.as_ref());
        let values = rules::values(&plan, &tools, &issues, reference.as_ref());
        // Steps match by tool, placeholders and dependencies, which words do not have: a plan in
        // words is no worse for that than one of calls. Words are rated beside words.
        let alike = |r: &&Plan| r.structured == plan.structured || shape::rejected(&plan);
        let beside = reference.as_ref().filter(alike).map(|r| reference::compare(&plan, r, &issues));
        Examined { plan, tools, reference, issues, values, beside }
    }

    /// Nothing more is asked of it: it is unreadable or runs in a circle.
    pub fn is_settled(&self) -> bool {
        shape::rejected(&self.plan)
    }

    /// The same as a judge may read it: `clean` goes over every text that is not ours. Numbers and
    /// layout stay, so that what is said of steps can be taken back to them.
    pub fn shown(&self, clean: impl Fn(&str) -> String) -> Examined {
        Examined {
            plan: self.plan.map_texts(&clean),
            tools: self.tools.map_texts(&clean),
            reference: self.reference.as_ref().map(|plan| plan.map_texts(&clean)),
            ..self.clone()
        }
    }

    /// Takes what a judge said of `part`, and returns the value that it now has. What rules found
    /// wrong (a tool that there is not, a limit passed) the judge cannot make right.
    pub fn take(&mut self, part: Part, judged: &Judged) -> f64 {
        let steps = rules::judged_steps(&self.plan, part);
        let at_most = rules::share(steps, rules::violations(&self.issues, part));
        let value = judged.value.min(at_most);
        if let Some(slot) = self.values.get_mut(part.place()) {
            *slot = Some(value);
        }
        for issue in &judged.issues {
            if !self.issues.iter().any(|known| known.step == issue.step && known.fault == issue.fault) {
                self.issues.push(issue.clone());
            }
        }
        value
    }

    /// The metric's value, where measured.
    pub fn value(&self, part: Part) -> Option<f64> {
        self.values.get(part.place()).copied().flatten()
    }

    /// From 0 to 100, where each group has something measured.
    pub fn score(&self, weights: &Weights) -> Option<f64> {
        part::score(&self.values, weights)
    }
}
