//! Assigns a run's tool calls to planned steps: skipped steps, changed order, unplanned calls.
//!
//! In: the steps of a plan and the calls after it. Out: an [`Execution`], used by `plan_efficiency`
//! and as evidence for a judge of plan adherence. A step is matched with calls by the tools that it
//! names; a step without a tool is not checked. If several steps name one tool, a call is assigned to
//! the step that has most words in common with its arguments; of equal steps, to the first one without a call.

use super::parse;
use super::tools::MentionFinder;
use super::words::PromptWords;
use crate::measure::language::{Language, RequestWords, classes};
use crate::measure::vocabulary::{self, WordMeaning};
use crate::recognise::{Call, RecordedPlan};

/// Maximum number of steps of one plan that are checked.
const MAX_STEPS: usize = 64;
/// Maximum number of calls of one run that are assigned by their arguments.
const MAX_ASSIGNED: usize = 2000;
/// Maximum number of calls that are listed as evidence.
const MAX_SHOWN: usize = 40;

/// Whether a step applies only under a condition, or is an alternative or an example.
pub(crate) fn is_conditional(step: &str) -> bool {
    let has_condition = |language: Language| language.classes(step).has_any(classes!(Condition Alternative));
    vocabulary::has(step, WordMeaning::Optional)
        || Language::for_instructions(step).is_some_and(has_condition)
}

/// Whether a step was carried out, by its calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StepOutcome {
    /// At least one call carried it out.
    Done,
    /// No call of its tools followed.
    Skipped,
    /// As `Skipped`, but the step is conditional.
    Optional,
    /// The tool of the step was called, but the calls were assigned to other steps.
    Unclear,
    /// The step names no tool.
    NoTool,
}

/// A step with the calls that may have carried it out.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PlannedStep<'a> {
    pub text: &'a str,
    /// The tools that the step names.
    pub tools: Vec<&'a str>,
    /// All calls of these tools, in order.
    pub possible_calls: Vec<usize>,
    /// The calls assigned to this step.
    pub calls: Vec<usize>,
}

impl PlannedStep<'_> {
    /// Whether the call is one of `possible_calls`, which are sorted.
    fn may_be_call(&self, call: usize) -> bool {
        self.possible_calls.binary_search(&call).is_ok()
    }
}

/// A plan with the calls that followed it. Calls are indexes into
/// [`AgentTrace::calls`](crate::recognise::AgentTrace).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Execution<'a> {
    pub steps: Vec<PlannedStep<'a>>,
    /// Calls of tools that no step names.
    pub unplanned: Vec<usize>,
}

impl<'a> Execution<'a> {
    /// Assigns the calls that follow the plan, by their indexes `following`, to its steps. `tools` are the names of all
    /// tools that a step may mention.
    pub(crate) fn new(
        plan: &'a RecordedPlan,
        tools: &[&'a str],
        calls: &[Call],
        following: &[usize],
    ) -> Execution<'a> {
        let structured_tools = tools_of_structured_plan(plan);
        let finder = MentionFinder::new(tools.iter().copied());
        let name = |c: &usize| calls.get(*c).map_or("", |call| call.name.trim());
        let mut steps: Vec<PlannedStep<'a>> = plan
            .steps
            .iter()
            .take(MAX_STEPS)
            .enumerate()
            .map(|(n, text)| {
                let text = text.trim();
                let exact_tool = structured_tools.get(n).and_then(Option::as_deref);
                let named: Vec<&str> = match exact_tool {
                    // A structured step names its tool exactly, even if the name is short.
                    Some(exact_tool) => {
                        tools.iter().copied().filter(|t| t.eq_ignore_ascii_case(exact_tool)).collect()
                    }
                    None => finder.mentioned(text).into_iter().map(|i| tools[i]).collect(),
                };
                let is_call_of_named = |c: &usize| named.iter().any(|t| t.eq_ignore_ascii_case(name(c)));
                let possible_calls = following.iter().copied().filter(is_call_of_named).collect();
                PlannedStep { text, tools: named, possible_calls, calls: Vec::new() }
            })
            .collect();
        let unplanned =
            following.iter().copied().filter(|c| !steps.iter().any(|s| s.may_be_call(*c))).collect();
        assign_calls(&mut steps, calls, following);
        Execution { steps, unplanned }
    }

    /// The outcome of step `n`, from 0.
    pub(crate) fn outcome(&self, n: usize) -> StepOutcome {
        match self.steps.get(n) {
            Some(step) if step.tools.is_empty() => StepOutcome::NoTool,
            Some(step) if !step.calls.is_empty() => StepOutcome::Done,
            Some(step) if !step.possible_calls.is_empty() => StepOutcome::Unclear,
            Some(step) if is_conditional(step.text) => StepOutcome::Optional,
            Some(_) => StepOutcome::Skipped,
            None => StepOutcome::NoTool,
        }
    }

    /// Steps that name a tool, from 0.
    pub(crate) fn steps_naming_tools(&self) -> impl Iterator<Item = (usize, &PlannedStep<'a>)> {
        self.steps.iter().enumerate().filter(|(_, s)| !s.tools.is_empty())
    }

    /// Pairs of steps (earlier and later in the plan) of which the later one was carried out first, with the first
    /// call of each. Only tools that exactly one step names are considered.
    pub(crate) fn reordered(&self) -> Vec<((usize, usize), (usize, usize))> {
        let unique =
            |tool: &&str| self.steps_naming_tools().filter(|(_, s)| s.tools.contains(tool)).count() == 1;
        let mut out = Vec::new();
        // The step with the latest first call so far.
        let mut latest: Option<(usize, usize)> = None;
        for (n, step) in self.steps_naming_tools().filter(|(_, s)| s.tools.iter().all(unique)) {
            let Some(first) = step.possible_calls.first().copied() else { continue };
            match latest {
                Some((earlier, call)) if call > first => out.push(((earlier, n), (call, first))),
                Some((_, call)) if call == first => {}
                _ => latest = Some((n, first)),
            }
        }
        out
    }

    /// The execution as text for a judge, one line for each step or call.
    pub(crate) fn evidence(&self, calls: &[Call]) -> String {
        let name = |c: &usize| calls.get(*c).map_or("", |call| call.name.trim());
        let mut out = String::new();
        for (n, step) in self.steps.iter().enumerate() {
            let outcome = match self.outcome(n) {
                StepOutcome::Done => {
                    let shown: Vec<String> = step
                        .calls
                        .iter()
                        .take(MAX_SHOWN)
                        .map(|c| format!("call {} {}", c + 1, name(c)))
                        .collect();
                    format!("carried out by {}", shown.join(", "))
                }
                StepOutcome::Skipped => format!("no call of {} followed", step.tools.join(" or ")),
                StepOutcome::Optional => "conditional, no call followed".to_owned(),
                StepOutcome::Unclear => {
                    "its tool was called, as far as can be told for other steps".to_owned()
                }
                StepOutcome::NoTool => "names no tool".to_owned(),
            };
            out.push_str(&format!("step {}: {outcome}\n", n + 1));
        }
        for ((earlier, later), _) in self.reordered() {
            out.push_str(&format!("step {} was begun before step {}\n", later + 1, earlier + 1));
        }
        for call in self.unplanned.iter().take(MAX_SHOWN) {
            out.push_str(&format!("call {} {}: in no step\n", call + 1, name(call)));
        }
        out
    }
}

/// The tools of a structured plan's steps; empty for a plan in prose, or if the recorded steps are not those of the
/// structured plan.
fn tools_of_structured_plan(plan: &RecordedPlan) -> Vec<Option<String>> {
    if !plan.text.contains("depends_on") {
        return Vec::new();
    }
    let parsed = parse::parse_plan(&plan.text).steps;
    if parsed.len() == plan.steps.len() { parsed.into_iter().map(|s| s.tool).collect() } else { Vec::new() }
}

/// Assigns each call to one of its possible steps.
fn assign_calls(steps: &mut [PlannedStep<'_>], calls: &[Call], following: &[usize]) {
    let texts: Vec<&str> = steps.iter().map(|step| step.text).collect();
    let lists = RequestWords::for_text(&texts.join("\n"));
    let words: Vec<PromptWords> = texts.iter().map(|text| PromptWords::from_prompt(text, lists)).collect();
    for &call in following.iter().take(MAX_ASSIGNED) {
        let possible_steps: Vec<usize> = (0..steps.len()).filter(|n| steps[*n].may_be_call(call)).collect();
        let chosen = match possible_steps.as_slice() {
            [] => continue,
            [one] => *one,
            several => {
                let arguments = calls.get(call).and_then(|c| c.arguments.as_deref()).unwrap_or_default();
                let arguments = PromptWords::from_prompt(arguments, lists);
                let is_covered = |n: &usize| arguments.covered_by(&words[*n]);
                let best = several.iter().map(is_covered).fold(0.0, f64::max);
                let mut fitting = several.iter().filter(|n| is_covered(n) >= best);
                let has_no_call = |n: &&usize| steps[**n].calls.is_empty();
                let Some(chosen) = fitting.clone().find(has_no_call).or_else(|| fitting.next_back()) else {
                    continue;
                };
                *chosen
            }
        };
        steps[chosen].calls.push(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;
    use crate::recognise::{AgentTrace, Text};

    fn run(plan: &[&str], calls: &[(&str, &str)]) -> (AgentTrace, Vec<String>) {
        let mut script =
            Script::new("task").tools(&["web_search", "visit_page", "calculator"]).says("Plan").plan(plan);
        for (name, arguments) in calls {
            script = script.calls("", &[(name, arguments)]).returns("ok");
        }
        let trace = script.answers("done").build();
        let names = trace.agents[0].tools.iter().map(|t| t.name.to_string()).collect();
        (trace, names)
    }

    fn check_execution(
        plan: &[&str],
        calls: &[(&str, &str)],
        check: impl FnOnce(&Execution<'_>, &AgentTrace),
    ) {
        let (trace, names) = run(plan, calls);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let following: Vec<usize> = (0..trace.calls.len()).collect();
        let plan = &trace.agents[0].plans[0].1;
        check(&Execution::new(plan, &names, &trace.calls, &following), &trace);
    }

    #[test]
    fn call_is_assigned_to_the_step_with_most_common_words() {
        let plan = [
            "Use web_search for the height of Elbrus",
            "Use web_search for the height of Mont Blanc",
            "Subtract with calculator",
            "If in doubt, open visit_page",
        ];
        let calls = [
            ("web_search", r#"{"query": "Mont Blanc height"}"#),
            ("web_search", r#"{"query": "Elbrus height"}"#),
            ("web_search", r#"{"query": "summit"}"#),
            ("send_mail", "{}"),
        ];
        check_execution(&plan, &calls, |execution, trace| {
            assert_eq!(execution.steps[0].calls, [1]);
            assert_eq!(execution.steps[1].calls, [0, 2]);
            let outcomes: Vec<StepOutcome> = (0..4).map(|n| execution.outcome(n)).collect();
            assert_eq!(
                outcomes,
                [StepOutcome::Done, StepOutcome::Done, StepOutcome::Skipped, StepOutcome::Optional]
            );
            assert_eq!(execution.unplanned, [3]);
            let evidence = execution.evidence(&trace.calls);
            assert_eq!(
                evidence,
                "step 1: carried out by call 2 web_search\n\
                 step 2: carried out by call 1 web_search, call 3 web_search\n\
                 step 3: no call of calculator followed\n\
                 step 4: conditional, no call followed\n\
                 call 4 send_mail: in no step\n"
            );
        });
    }

    #[test]
    fn steps_called_in_other_order_are_reordered() {
        let plan = ["web_search it", "visit_page then", "calculator last"];
        check_execution(
            &plan,
            &[("calculator", "{}"), ("web_search", "{}"), ("visit_page", "{}")],
            |execution, _| {
                assert_eq!(execution.reordered(), [((1, 2), (2, 0))]);
            },
        );
    }

    #[test]
    fn short_tool_names_of_structured_plans_are_matched() {
        let text = r#"{"1": {"step": "T2S([], 'Count by RAG status')", "depends_on": []}, "2": {"step": "RAG((1), 'Why?')", "depends_on": [1]}}"#;
        let (mut trace, _) = run(&[], &[("T2S", "{}"), ("RAG", "{}")]);
        let steps = ["T2S([], 'Count by RAG status')", "RAG((1), 'Why?')"].map(Text::from).to_vec();
        trace.agents[0].plans = vec![(0, RecordedPlan { text: text.into(), replan: false, steps })];
        let plan = &trace.agents[0].plans[0].1;
        let execution = Execution::new(plan, &["T2S", "RAG"], &trace.calls, &[0, 1]);
        assert_eq!((&execution.steps[0].calls[..], &execution.steps[1].calls[..]), (&[0][..], &[1][..]));
    }
}
