//! `tool_coverage` (001, table 2): do the calls of an agent, and of those beneath it, cover its task?
//!
//! In: the task, the plan, the tools offered, all calls beneath. Out: 1-5 on the agent's span.
//! Found: a source or tool that the task demands and no call that went for it, a planned tool never
//! called, no call that touches what the task is about, and a source that failed to the last while
//! the answer went out without it. Without tools: not applicable.

use aho_corasick::AhoCorasick;

use crate::measure::agent::agent_index;
use crate::measure::agent::attempts::{Attempt, Attempts, CallOutcome};
use crate::measure::agent::plan_efficiency::note_unneeded_lookup;
use crate::measure::agent::request::{Ask, Request};
use crate::measure::defects::{Defect, Findings, QUOTE_BYTES, unmeasured};
use crate::measure::excerpt::around;
use crate::measure::plan::execution::is_conditional;
use crate::measure::plan::tools::names_tool;
use crate::measure::reasoning::Review;
use crate::measure::{Context, Measurement, Unmeasured};
use crate::recognise::{Agent, Content};

pub(crate) const NAME: &str = "tool_coverage";

/// Bytes of arguments and results that are searched for the task's names; past them the task
/// counts as covered.
const SEARCH_BYTES: usize = 4 << 20;
/// A task about fewer names may be covered under other words.
const LEAST_NAMES: usize = 2;
/// Spans cited by one finding at most.
const MAX_CITED: usize = 8;

pub(crate) fn measure(context: &Context<'_>, i: usize, agent: &Agent) -> Measurement {
    let attempts = Attempts::get(context.trace, context.memo);
    let mut calls = agent_index::calls_beneath(context.trace, context.memo, i);
    calls.retain(|c| attempts.at(*c).is_some_and(|a| !a.is_control));
    let helpers = agent_index::has_helpers(context.trace, context.memo, i);
    if agent.tools.is_empty() && calls.is_empty() && !helpers {
        return unmeasured(context.at, NAME, Unmeasured::NotApplicable);
    }
    let Some(task) = agent_index::task(context.trace, i) else {
        return unmeasured(context.at, NAME, Unmeasured::NoContent);
    };
    let check = CoverageCheck { context, agent, attempts: &attempts, calls: &calls, task };
    let request = Request::of(task, context.memo);
    let mut findings = Findings::new();
    if calls.is_empty() {
        let seen = agent
            .llms
            .iter()
            .any(|at| context.trace.views.get(*at).is_some_and(|r| r.output_content == Content::Present));
        let expected = seen && !helpers && !context.trace.incomplete;
        let Some(source) = expected.then(|| request.words(Ask::Source)).flatten() else {
            return unmeasured(context.at, NAME, Unmeasured::NotApplicable);
        };
        let rationale = format!(
            "a call was expected, since the task demands \"{source}\"; {} tools were offered, and none was called",
            agent.tools.len()
        );
        // A long task is told where it demands so.
        let place = task.find(source).filter(|_| task.len() > QUOTE_BYTES);
        let quote = place.map_or(&**task, |at| around(task, at, at + source.len(), QUOTE_BYTES / 4));
        findings.push(Defect::NothingCovered.finding(rationale, quote));
        return findings.scored(context, NAME);
    }
    if !context.trace.incomplete {
        check.demanded_tools(&mut findings);
        check.planned_tools(i, &mut findings);
        check.failed_until_the_answer(i, &mut findings);
    }
    check.unmentioned_names(&request, &mut findings);
    findings.scored(context, NAME)
}

struct CoverageCheck<'a> {
    context: &'a Context<'a>,
    agent: &'a Agent,
    attempts: &'a Attempts,
    calls: &'a [usize],
    task: &'a str,
}

impl CoverageCheck<'_> {
    fn called(&self, name: &str) -> bool {
        let calls = self.calls.iter().filter_map(|c| self.context.trace.calls.get(*c));
        calls.map(|c| c.name.trim()).any(|n| n.eq_ignore_ascii_case(name))
            || agent_index::is_another(self.context.trace, self.context.memo, self.agent, name)
    }

    /// Tools that the task itself names.
    fn demanded_tools(&self, findings: &mut Findings) {
        for tool in &self.agent.tools {
            let name = tool.name.trim();
            // A plain word ("search") in a task is a word; an identifier is the tool.
            if !name.contains(['_', '-']) || self.called(name) {
                continue;
            }
            let Some(at) = self.task.find(name) else { continue };
            let before = self.task.get(..at).unwrap_or_default();
            let start = before.rfind(['.', ';', '\n']).map_or(0, |i| i + 1);
            let clause = before.get(start..).unwrap_or_default().to_ascii_lowercase();
            let open =
                ["not ", "n't ", "without", "avoid", " or ", "if ", "may ", "can ", "available", "tools:"];
            if !open.iter().any(|w| clause.contains(w)) && clause.contains("use") {
                let rationale = format!("a call to {name} was expected, as the task says; there was none");
                let quote = self.task.get(start..at + name.len()).unwrap_or(name);
                findings.push(Defect::PartNotCovered.finding(rationale, quote.trim()));
            }
        }
    }

    /// Tools that the latest plan names.
    fn planned_tools(&self, i: usize, findings: &mut Findings) {
        let Some((_, plan)) = self.agent.plans.last() else { return };
        let review = Review::get(self.context.trace, self.context.memo);
        let stands = review.of_answer.get(&i).is_some_and(Vec::is_empty);
        for step in plan.steps.iter().filter(|s| !is_conditional(s)) {
            let mut named = self
                .agent
                .tools
                .iter()
                .map(|t| t.name.trim())
                .filter(|n| !self.context.trace.control_tools.is_final_answer(n) && names_tool(step, n))
                .peekable();
            if named.peek().is_some() && !named.clone().any(|n| self.called(n)) {
                let rationale = format!(
                    "a call to {} was expected in this step of the plan; it was never called",
                    named.next().unwrap_or_default()
                );
                findings
                    .push(note_unneeded_lookup(Defect::PlannedCallMissing.finding(rationale, step), stands));
            }
        }
    }

    /// The last calls all failed, and the answer is found to rest on nothing.
    fn failed_until_the_answer(&self, i: usize, findings: &mut Findings) {
        let review = Review::get(self.context.trace, self.context.memo);
        if review.of_answer.get(&i).is_none_or(Vec::is_empty) {
            return;
        }
        let failed = |c: &&usize| self.attempts.at(**c).is_some_and(Attempt::failed);
        let tail: Vec<usize> = self.calls.iter().rev().take_while(failed).copied().collect();
        let Some(call) = tail.first().and_then(|c| self.context.trace.calls.get(*c)) else { return };
        let quote = match tail.first().and_then(|c| self.attempts.at(*c)).map(|a| &a.outcome) {
            Some(CallOutcome::Failed { error_text, .. }) => error_text.as_str(),
            _ => "",
        };
        let rationale = format!(
            "a call that brought what the answer needs was expected; the last {} calls ({}) failed, no other brought \
             it, and the answer was given all the same",
            tail.len(),
            call.name.trim()
        );
        let defect =
            if tail.len() == self.calls.len() { Defect::NothingCovered } else { Defect::PartNotCovered };
        let spans = tail.iter().filter_map(|c| self.context.trace.calls.get(*c)).take(MAX_CITED);
        let finding = defect.finding(rationale, quote);
        findings.push(spans.fold(finding, |f, call| f.citing_at(self.context.trace, call.at)));
    }

    /// No argument and no result holds any name that the task is about.
    fn unmentioned_names(&self, request: &Request, findings: &mut Findings) {
        let tokens: Vec<String> = request
            .names()
            .iter()
            .flat_map(|n| n.split([' ', '-', '’', '\'']))
            .filter(|t| t.chars().count() >= 4 && t.is_ascii())
            .map(str::to_ascii_lowercase)
            .collect();
        if request.names().len() < LEAST_NAMES || !request.wants_found_facts() || tokens.is_empty() {
            return;
        }
        let Ok(finder) = AhoCorasick::builder().ascii_case_insensitive(true).build(&tokens) else { return };
        let mut bytes = 0;
        for call in self.calls.iter().filter_map(|c| self.context.trace.calls.get(*c)) {
            let (Some(arguments), Some(result)) = (&call.arguments, &call.result) else { return };
            bytes += arguments.len() + result.len();
            if bytes > SEARCH_BYTES || finder.is_match(&**arguments) || finder.is_match(&**result) {
                return;
            }
        }
        let rationale = format!(
            "calls about what the task names were expected; none of {} asked about or returned anything on {}",
            self.calls.len(),
            request.names().join(", ")
        );
        findings.push(Defect::NothingCovered.finding(rationale, self.task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;
    use crate::measure::{Measured, Memo, Settings, Value};
    use crate::recognise::AgentTrace;

    const TASK: &str =
        "How many metres taller is Mount Elbrus than Mont Blanc, according to the Alpine Almanac page?";
    const BAD: &str = "Error: invalid url: the scheme https:// is required";

    fn on(trace: &AgentTrace) -> Result<Measured, Unmeasured> {
        let (settings, memo) = (Settings::default(), Memo::new());
        let context = Context { trace, at: trace.agents[0].at, settings: &settings, memo: &memo, rules: &[] };
        measure(&context, 0, &trace.agents[0]).outcome
    }

    fn run(task: &str) -> Script {
        Script::new(task).tools(&["web_search", "visit_page", "calculator"])
    }

    #[test]
    fn calls_about_the_task_cover_it() {
        let trace = run(TASK)
            .calls("", &[("web_search", r#"{"query":"elbrus height"}"#)])
            .returns("Elbrus: 5642 m, Mont Blanc: 4806 m")
            .answers("836 m")
            .build();
        assert_eq!(on(&trace).unwrap().value, Value::Score(5.0));
    }

    #[test]
    fn a_demanded_source_without_any_call_is_no_coverage() {
        let trace = run(TASK).answers("1206 m").build();
        let measured = on(&trace).unwrap();
        assert_eq!((measured.value, measured.passed), (Value::Score(1.0), false));
        assert!(measured.findings[0].rationale.contains("Alpine Almanac"));
    }

    #[test]
    fn tools_that_were_not_needed_need_not_be_called() {
        let trace = run("What is the capital of France?").answers("Paris").build();
        assert_eq!(on(&trace), Err(Unmeasured::NotApplicable));
        assert_eq!(on(&Script::new(TASK).answers("836 m").build()), Err(Unmeasured::NotApplicable));
    }

    #[test]
    fn calls_about_something_else_cover_nothing() {
        let trace = run("Who founded Acme Robotics and Zenith Optics?")
            .calls("", &[("web_search", r#"{"query":"weather"}"#)])
            .returns("sunny")
            .answers("I do not know.")
            .build();
        assert_eq!(on(&trace).unwrap().value, Value::Score(1.0));
    }

    #[test]
    fn a_tool_named_by_the_task_or_the_plan_must_be_called() {
        let named = run("Use web_search to find the height of Mount Elbrus.")
            .calls("", &[("visit_page", r#"{"url":"https://elbrus.example"}"#)])
            .returns("Mount Elbrus: 5642 m")
            .answers("5642 m")
            .build();
        assert_eq!(on(&named).unwrap().value, Value::Score(3.0));
        let planned = run(TASK)
            .says("Plan")
            .plan(&[
                "Search with web_search",
                "Compute the difference with calculator",
                "Use visit_page if needed",
            ])
            .calls("", &[("web_search", r#"{"query":"elbrus"}"#)])
            .returns("Elbrus: 5642 m, Mont Blanc: 4806 m")
            .answers("836 m")
            .build();
        let measured = on(&planned).unwrap();
        assert_eq!(measured.findings.len(), 1);
        assert!(measured.findings[0].quote.contains("calculator"));
    }

    #[test]
    fn tools_forbidden_or_optional_in_the_task_may_be_left_out() {
        for task in [
            "Do not use web_search. How high is Mount Elbrus?",
            "You can use web_search if you like. How high is Mount Elbrus?",
        ] {
            let trace = run(task)
                .calls("", &[("visit_page", r#"{"url":"https://elbrus.example"}"#)])
                .returns("Mount Elbrus: 5642 m")
                .answers("5642 m")
                .build();
            assert_eq!(on(&trace).unwrap().value, Value::Score(5.0), "{task}");
        }
    }

    #[test]
    fn a_source_that_failed_to_the_last_does_not_cover_the_answer() {
        let mut script = run(TASK)
            .calls("", &[("web_search", r#"{"query":"Elbrus"}"#)])
            .returns("1. Alpine Almanac https://almanac.example/elbrus");
        for _ in 0..3 {
            script = script.calls("", &[("visit_page", r#"{"url":"almanac.example/elbrus"}"#)]).returns(BAD);
        }
        let measured = on(&script.answers("From memory it is roughly 800 metres.").build()).unwrap();
        assert_eq!(measured.findings[0].cited.len(), 3);
        assert!(!measured.passed);
    }

    #[test]
    fn without_a_task_there_is_no_measurement() {
        let trace = run(TASK).calls("", &[("web_search", "{}")]).returns("x").build_without_content();
        assert_eq!(on(&trace), Err(Unmeasured::NoContent));
    }
}
