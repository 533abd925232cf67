//! `plan_efficiency` (001, table 2): the run compared with the plan that the agent wrote.
//!
//! Principle: each step of a plan is carried out once, or the plan is replaced by another one when a step fails.
//!
//! In: an agent's plans and the calls after each, those of agents beneath it included. Out: 1-5 on the
//! agent's span. [`Execution`] matches calls with steps. The defects are skipped steps (only noted if the step is
//! a lookup and the answer is supported without it), steps repeated without need, steps in another order (only
//! noted), and failed steps after which the plan was not revised.

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::Idx;

use crate::measure::calls::attempts::{Attempt, CallAttempts, CallOutcome};
use crate::measure::defects::{Defect, Findings};
use crate::measure::language::is_english;
use crate::measure::plan::execution::{Execution, StepOutcome};
use crate::measure::reasoning::Review;
use crate::measure::reasoning::skipped_lookups::looks_up;
use crate::measure::{Context, Finding, Measurement, Memo, Unmeasured, agent_index};
use crate::recognise::{Agent, Content};

/// Maximum plans of an agent whose execution is described to a judge; the latest ones are.
const MAX_PLANS: usize = 6;
/// Maximum tools by which steps are recognised.
const MAX_TOOLS: usize = 256;
/// From this number of successful calls of one step with the same arguments and result, the step is repeated.
const MIN_REPETITIONS: usize = 3;
/// From this number of failures of a step without a success, a revised plan is expected.
const MIN_FAILURES: usize = 2;

pub(crate) fn measure(context: &Context<'_>, i: usize, agent: &Agent) -> Measurement {
    if agent.plans.is_empty() {
        let outputs = agent
            .llms
            .iter()
            .filter_map(|span_index| context.trace.views.get(*span_index))
            .map(|r| r.output_content);
        let has_output = agent.llms.is_empty() || outputs.clone().any(|output| output == Content::Present);
        let cut_output = outputs.filter(|output| output.is_partial()).max();
        let reason = match (cut_output, has_output) {
            (Some(cut_output), _) => cut_output.into(),
            (None, true) => Unmeasured::NotApplicable,
            (None, false) => Unmeasured::NoContent,
        };
        return context.unmeasured(reason);
    }
    // Conditions of steps are recognised by English words.
    if agent.plans.last().is_some_and(|(_, plan)| !is_english(&plan.text, None, context.memo)) {
        return context.unmeasured(Unmeasured::Language);
    }
    let attempts = CallAttempts::get(context.trace, context.memo);
    let last = agent.plans.len() - 1;
    let Some(execution) =
        execution_of_plan(context, i, agent, &attempts, last).filter(|_| !context.trace.incomplete)
    else {
        return context.unmeasured(Unmeasured::NotApplicable);
    };
    let review = Review::get(context.trace, context.memo);
    let check = PlanCheck { context, agent: i, review: &review, attempts: &attempts, execution: &execution };
    let mut findings = Findings::new();
    findings.examine(execution.steps_naming_tools().count());
    check.report_skipped_steps(&mut findings);
    check.report_reordered_steps(&mut findings);
    check.report_repeated_steps(&mut findings);
    check.report_unrevised_failures(&mut findings);
    findings.scored(context, Unmeasured::NotApplicable)
}

/// Plan `n` of agent `i` and the calls between it and the next plan; `None` if no step names a tool.
fn execution_of_plan<'a>(
    context: &Context<'a>,
    i: usize,
    agent: &'a Agent,
    attempts: &CallAttempts,
    n: usize,
) -> Option<Execution<'a>> {
    let (plan_span, plan) = agent.plans.get(n)?;
    let start_of = |span_index: Idx| context.trace.tree.spans.get(span_index).map_or(0, |s| s.start);
    let next = agent.plans.get(n + 1).map_or(u64::MAX, |(span_index, _)| start_of(*span_index));
    let validity = start_of(*plan_span)..next;
    let mut calls = agent_index::subtree_calls(context.trace, context.memo, i);
    calls.retain(|c| attempts.at(*c).is_some_and(|a| !a.is_control));
    let tools = tools(context, agent, &calls);
    calls.retain(|c| context.trace.calls.get(*c).is_some_and(|call| validity.contains(&call.start)));
    let bytes: usize = plan.steps.iter().map(|step| step.len()).sum();
    let steps = tools.len() + bytes / 16 + (4 + calls.len()) * plan.steps.len();
    context.memo.budget.spend(steps).then_some(())?;
    Some(Execution::new(plan, &tools, &context.trace.calls, &calls))
        .filter(|e| e.steps_naming_tools().next().is_some())
}

/// A description of the outcome of each step of the plans of agent `i`, for a judge of plan adherence: the calls that
/// carried it out, and calls that were left out, reordered or not planned, until the next plan. `None` if no step names
/// a tool.
pub(crate) fn evidence(context: &Context<'_>, i: usize) -> Option<String> {
    let agent = context.trace.agents.get(i)?;
    let attempts = CallAttempts::get(context.trace, context.memo);
    let mut out = String::new();
    for (n, (span_index, plan)) in
        agent.plans.iter().enumerate().skip(agent.plans.len().saturating_sub(MAX_PLANS))
    {
        let Some(execution) = execution_of_plan(context, i, agent, &attempts, n) else { continue };
        let id = context.trace.tree.spans.get(*span_index).map(|span| span.id).unwrap_or_default();
        let label = if plan.replan { "Replan" } else { "Plan" };
        out.push_str(&format!(
            "{label} of span {id}:\n{}\n",
            execution.evidence(&context.trace.calls).trim_end()
        ));
    }
    (!out.is_empty()).then_some(out)
}

/// The names of the tools that a step may refer to: the offered tools and the called ones.
fn tools<'a>(context: &Context<'a>, agent: &'a Agent, calls: &[usize]) -> Vec<&'a str> {
    let offered_names = agent.tools.iter().map(|t| t.name.trim());
    let called_names = calls.iter().filter_map(|c| context.trace.calls.get(*c)).map(|c| c.name.trim());
    let mut out: Vec<&str> = Vec::new();
    for name in offered_names.chain(called_names) {
        if out.len() < MAX_TOOLS && !out.contains(&name) && !context.trace.control_tools.is_final_answer(name)
        {
            out.push(name);
        }
    }
    out
}

struct PlanCheck<'a> {
    context: &'a Context<'a>,
    /// The agent that wrote the plan.
    agent: usize,
    review: &'a Review,
    attempts: &'a CallAttempts,
    execution: &'a Execution<'a>,
}

impl PlanCheck<'_> {
    /// Adds a finding for each step that was not carried out, which the rest of the run shows.
    fn report_skipped_steps(&self, findings: &mut Findings) {
        let steps = self.execution.steps_naming_tools();
        // The answer was compared with the results of the run, and the comparison has no findings.
        let is_answer_supported = self.review.answer_findings.get(&self.agent).is_some_and(Vec::is_empty);
        for (n, step) in steps.filter(|(n, _)| self.execution.outcome(*n) == StepOutcome::Skipped) {
            let rationale = format!(
                "a call to {} was expected for step {} of the plan; none followed the plan",
                step.tools.join(" and "),
                n + 1
            );
            let finding = Defect::StepSkipped.finding(rationale, step.text).by_rule("plan");
            let finding = self.review.note_if_claimed(self.agent, &step.tools, finding);
            findings.push(note_unneeded_lookup(finding, is_answer_supported, self.context.memo));
        }
    }

    /// Adds a finding for each step that was begun before an earlier step of the plan.
    fn report_reordered_steps(&self, findings: &mut Findings) {
        for ((earlier, later), (call, first)) in self.execution.reordered() {
            let rationale = format!(
                "the plan's order was expected; step {} was begun before step {}",
                later + 1,
                earlier + 1
            );
            let quote = self.execution.steps.get(later).map_or("", |s| s.text);
            let finding = Defect::StepsReordered.finding(rationale, quote).noted();
            findings.push(finding.citing_calls(self.context.trace, &[first, call]));
        }
    }

    /// Adds a finding for each step that was carried out again with the same arguments and the same result.
    fn report_repeated_steps(&self, findings: &mut Findings) {
        for (n, step) in self.execution.steps_naming_tools() {
            let mut call_counts: HashMap<(&str, &str), usize> = HashMap::new();
            for call in &step.possible_calls {
                let attempt = self.attempts.at(*call).filter(|a| a.outcome == CallOutcome::Succeeded);
                let key = attempt.and_then(|attempt| attempt.key.as_deref());
                let result = self.context.trace.calls.get(*call).and_then(|call| call.result.as_deref());
                if let Some((key, result)) = key.zip(result) {
                    *call_counts.entry((key, result.trim())).or_default() += 1;
                }
            }
            if let Some(repetitions) = call_counts.into_values().max().filter(|t| *t >= MIN_REPETITIONS) {
                let rationale = format!(
                    "step {} was expected to be done once; it was done {repetitions} times with the same arguments and the \
                     same result",
                    n + 1
                );
                findings.push(Defect::StepRepeated.finding(rationale, step.text));
            }
        }
    }

    /// Adds a finding for each step whose calls all failed without a revision of the plan.
    fn report_unrevised_failures(&self, findings: &mut Findings) {
        for (n, step) in self.execution.steps_naming_tools() {
            // Delegating the step to another agent is another way to carry it out.
            let is_own_call = |c: &usize| {
                self.context.trace.calls.get(*c).is_some_and(|call| call.agent == Some(self.agent))
            };
            let calls: Vec<usize> = step.possible_calls.iter().copied().filter(is_own_call).collect();
            let all_failed = calls.iter().all(|c| self.attempts.at(*c).is_some_and(Attempt::failed));
            if calls.len() < MIN_FAILURES || !all_failed {
                continue;
            }
            let rationale = format!(
                "a revised plan was expected, since step {} failed all {} times it was tried; it was not revised",
                n + 1,
                calls.len()
            );
            let finding = Defect::NoReplan.finding(rationale, step.text);
            findings.push(finding.citing_calls(self.context.trace, calls.iter().take(8)));
        }
    }
}

/// Turns a finding about a missing lookup into a note if the answer is supported without it; returns any other
/// finding unchanged.
pub(super) fn note_unneeded_lookup(finding: Finding, is_answer_supported: bool, memo: &Memo) -> Finding {
    if is_answer_supported && looks_up(&finding.quote, memo) { finding.noted() } else { finding }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::{Script, row};
    use crate::measure::{Measured, Settings, Value};
    use crate::recognise::AgentTrace;

    const PLAN: [&str; 4] = [
        "Search for the Alpine Almanac page with web_search.",
        "Open the page with visit_page and read both heights.",
        "Compute the difference with calculator.",
        "Answer.",
    ];

    fn measure_trace(trace: &AgentTrace) -> Result<Measured, Unmeasured> {
        let (settings, memo) = (Settings::default(), Memo::new());
        let context = Context {
            row: row("plan_efficiency"),
            trace,
            at: trace.agents[0].at,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        };
        measure(&context, 0, &trace.agents[0]).outcome
    }

    fn script_with_plan(plan: &[&str], calls: &[(&str, &str)]) -> Script {
        let mut script =
            Script::new("task").tools(&["web_search", "visit_page", "calculator"]).says("Plan").plan(plan);
        for (n, (name, result)) in calls.iter().enumerate() {
            script = script.calls("", &[(name, &format!(r#"{{"n":{n}}}"#))]).returns(result);
        }
        script
    }

    fn rationales(trace: &AgentTrace) -> Vec<String> {
        measure_trace(trace).unwrap().findings.into_iter().map(|f| f.rationale).collect()
    }

    #[test]
    fn followed_plan_passes() {
        let calls =
            [("web_search", "hits"), ("visit_page", "page"), ("visit_page", "more"), ("calculator", "836")];
        let trace = script_with_plan(&PLAN, &calls).answers("836").build();
        assert_eq!(measure_trace(&trace).unwrap().value, Value::Score(5.0));
    }

    #[test]
    fn skipped_step_is_found_and_quoted() {
        let trace =
            script_with_plan(&PLAN, &[("web_search", "hits"), ("visit_page", "page")]).answers("846").build();
        let measured = measure_trace(&trace).unwrap();
        assert_eq!((measured.passed, measured.value), (false, Value::Score(3.0)));
        assert_eq!(measured.findings[0].quote, PLAN[2]);
    }

    #[test]
    fn skipped_step_that_the_agent_claims_to_have_carried_out_fails_as_the_false_claim_alone() {
        const STEPS: [&str; 2] = ["Read the tide with visit_page", "Round it with calculator"];
        let result_with_claim = |claim: &str| {
            let trace = script_with_plan(&STEPS, &[("visit_page", "tide 4.12 m")]).answers(claim).build();
            let measured = measure_trace(&trace).unwrap();
            (measured.passed, measured.findings[0].is_note())
        };
        assert_eq!(result_with_claim("I verified the tide with the calculator: 4.1 m."), (true, true));
        assert_eq!(result_with_claim("The tide is 4.1 m."), (false, false), "no claim");
        assert_eq!(
            result_with_claim("I verified the tide with web_search: 4.1 m."),
            (false, false),
            "of another tool"
        );
        let trace = script_with_plan(&STEPS[1..], &[("visit_page", "tide 4.12 m")]);
        let trace = trace.calls("", &[("calculator", "{}")]).returns("4.1");
        let trace = trace.answers("I verified the tide with the calculator: 4.1 m.").build();
        assert_eq!(rationales(&trace), Vec::<String>::new(), "called");
    }

    #[test]
    fn evidence_for_judges_describes_each_step() {
        let trace =
            script_with_plan(&PLAN, &[("web_search", "hits"), ("visit_page", "page")]).answers("846").build();
        let (settings, memo) = (Settings::default(), Memo::new());
        let context = Context {
            row: row("plan_efficiency"),
            trace: &trace,
            at: trace.agents[0].at,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        };
        let evidence = super::evidence(&context, 0).unwrap();
        assert!(evidence.contains("step 1: carried out by call 1 web_search\n"), "{evidence}");
        assert!(evidence.contains("step 3: no call of calculator followed\n"), "{evidence}");
        assert!(evidence.contains("step 4: names no tool\n"), "{evidence}");
        assert_eq!(super::evidence(&context, 1), None);
    }

    #[test]
    fn skipped_conditional_steps_and_steps_without_a_tool_pass() {
        let plan = [
            "Search with web_search",
            "If the result is unclear, open the page with visit_page",
            "Use calculator or mental arithmetic",
            "Find the row (e.g., with visit_page)",
            "Confirm the heights on a second source",
        ];
        let trace = script_with_plan(&plan, &[("web_search", "hits")]).answers("836").build();
        assert_eq!(measure_trace(&trace).unwrap().value, Value::Score(5.0));
    }

    #[test]
    fn replan_replaces_the_previous_plan() {
        let trace = script_with_plan(&PLAN, &[("web_search", "hits")])
            .says("New plan")
            .plan(&["Compute with calculator"])
            .calls("", &[("calculator", "{}")])
            .returns("836")
            .answers("836")
            .build();
        assert_eq!(measure_trace(&trace).unwrap().value, Value::Score(5.0));
    }

    #[test]
    fn reordered_steps_are_noted_and_pass() {
        let calls = [("calculator", "836"), ("web_search", "hits"), ("visit_page", "page")];
        let measured = measure_trace(&script_with_plan(&PLAN, &calls).answers("836").build()).unwrap();
        assert_eq!((measured.passed, measured.value), (true, Value::Score(5.0)));
        assert!(measured.findings[0].is_note());
    }

    #[test]
    fn repeated_errors_without_a_replan_are_found_and_a_recovery_is_not() {
        let url_error = "Error: invalid url: the scheme https:// is required";
        let calls = [
            ("web_search", "hits"),
            ("visit_page", url_error),
            ("visit_page", url_error),
            ("calculator", "836"),
        ];
        let trace = script_with_plan(&PLAN, &calls).answers("836").build();
        assert!(rationales(&trace)[0].contains("not revised"), "{:?}", rationales(&trace));
        let calls = [
            ("web_search", "hits"),
            ("visit_page", url_error),
            ("visit_page", "page"),
            ("calculator", "836"),
        ];
        assert!(rationales(&script_with_plan(&PLAN, &calls).answers("836").build()).is_empty());
    }

    #[test]
    fn three_equal_calls_of_a_step_are_a_repeated_step() {
        let mut script = script_with_plan(&PLAN[..1], &[]);
        for _ in 0..3 {
            script = script.calls("", &[("web_search", r#"{"q":1}"#)]).returns("hits");
        }
        assert!(rationales(&script.answers("x").build())[0].contains("3 times"));
    }

    #[test]
    fn missing_plan_incomplete_run_and_missing_content_are_unmeasured() {
        assert_eq!(measure_trace(&Script::new("task").answers("x").build()), Err(Unmeasured::NotApplicable));
        let cut = script_with_plan(&PLAN, &[("web_search", "hits")]).incomplete().build();
        assert_eq!(measure_trace(&cut), Err(Unmeasured::NotApplicable));
        let hidden = script_with_plan(&PLAN, &[("web_search", "hits")]).build_without_content();
        assert_eq!(measure_trace(&hidden), Err(Unmeasured::NoContent));
    }
}
