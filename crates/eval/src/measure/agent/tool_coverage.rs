//! `tool_coverage` (001, table 2): whether the calls of an agent and of the agents beneath it cover its task.
//!
//! Principle: each lookup and each tool that a task or a plan demands is the subject of some call. A source that the
//! task does not name is not demanded. The rule does not judge the quality of a call.
//!
//! In: the task, the plan, the offered tools, the calls of the agent and of the agents beneath it. Out: 1-5 on the
//! agent's span. The defects are a source or tool that the task demands and no call used, a planned tool that was
//! never called, calls none of which mentions a name of the task, and an unsupported answer after a series of failed
//! calls. Without tools the metric is unmeasured as `not_applicable`.
//!
//! The rule examines the demands of the task and the plan: tools that the task tells the agent to use, steps of the
//! plan that name a tool, names of the task that the calls contain in full, a demanded source. Without a demand the
//! metric is unmeasured: calls alone do not show coverage, and the facts of an answer that calls support may be other
//! facts than the task asks for.

use std::ops::Range;

use aho_corasick::AhoCorasick;
use foldhash::HashSet;
use serde_json::Value;

use crate::measure::agent::plan_efficiency::note_unneeded_lookup;
use crate::measure::calls::attempts::{Attempt, CallAttempts, CallOutcome};
use crate::measure::defects::{Defect, Findings, QUOTE_BYTES};
use crate::measure::excerpt::{around, head};
use crate::measure::language::{ReadText, Readable, is_english, readable};
use crate::measure::plan::execution::is_conditional;
use crate::measure::plan::tools::MentionFinder;
use crate::measure::reasoning::Review;
use crate::measure::request::TaskDemands;
use crate::measure::{Context, Measurement, Unmeasured, agent_index};
use crate::recognise::{Agent, Content};

/// Maximum bytes of arguments and results that are searched for the task's names; if there are more, none of the names
/// counts as missing.
const SEARCH_BYTES: usize = 4 << 20;
/// Minimum names of a task for which calls are expected to mention one.
const MIN_NAMES: usize = 2;
/// Maximum arguments of a call that are searched for names.
const MAX_ARGUMENTS: usize = 40;
/// Maximum bytes of a demand for a source in a finding.
const MAX_DEMAND: usize = 120;
/// Maximum spans that a finding cites.
const MAX_CITED: usize = 8;

pub(crate) fn measure(context: &Context<'_>, i: usize, agent: &Agent) -> Measurement {
    let attempts = CallAttempts::get(context.trace, context.memo);
    let mut calls = agent_index::subtree_calls(context.trace, context.memo, i);
    calls.retain(|c| attempts.at(*c).is_some_and(|a| !a.is_control));
    let has_sub_agents = agent_index::has_sub_agents(context.trace, context.memo, i);
    // The calls of a group chat are measured for the group, not for a single turn.
    let is_turn = agent_index::is_group_chat_turn(context.trace, context.memo, agent);
    if is_turn || agent.tools.is_empty() && calls.is_empty() && !has_sub_agents {
        return context.unmeasured(Unmeasured::NotApplicable);
    }
    let Some(task) = agent_index::task(context.trace, i) else {
        return context.unmeasured(agent_index::missing_task(agent));
    };
    let called_names = calls.iter().filter_map(|c| context.trace.calls.get(*c));
    let called_names = called_names.map(|call| call.name.trim().to_ascii_lowercase()).collect();
    let check = CoverageCheck { context, agent, attempts: &attempts, calls: &calls, called_names, task };
    let request = TaskDemands::cached(task, context.memo);
    let mut findings = Findings::new();
    if calls.is_empty() {
        let outputs = agent
            .llms
            .iter()
            .filter_map(|span_index| context.trace.views.get(*span_index))
            .map(|r| r.output_content);
        let has_output = outputs.clone().any(|output| output == Content::Present);
        if let Some(partial) = outputs.filter(|output| output.is_partial()).max() {
            return context.unmeasured(partial.into());
        }
        // An agent that asks the user a question has not begun its task.
        let asks_back = || {
            let answer = agent.answer.as_deref().map(|text| ReadText::new(text, Some(task), context.memo));
            answer.is_some_and(|text| text.ends_with_question())
        };
        let is_call_expected = has_output && !has_sub_agents && !context.trace.incomplete && !asks_back();
        let Some(source) = is_call_expected.then(|| request.source()).flatten() else {
            let is_unreadable = readable(task, None, context.memo) == Readable::No;
            let reason = if is_unreadable { Unmeasured::Language } else { Unmeasured::NotApplicable };
            return context.unmeasured(reason);
        };
        let rationale = format!(
            "a call was expected, since the task says \"{}\"; {} tools were offered, and none was called",
            head(source, MAX_DEMAND),
            agent.tools.len()
        );
        // Only the part around the demand is quoted from a long task.
        let source_start = task.find(source).filter(|_| task.len() > QUOTE_BYTES);
        let quote =
            source_start.map_or(&**task, |start| around(task, start, start + source.len(), QUOTE_BYTES / 4));
        findings.push(Defect::NothingCovered.finding(rationale, quote));
        return findings.scored(context, Unmeasured::NotApplicable);
    }
    if !context.trace.incomplete {
        check.report_uncalled_tools(&mut findings);
        check.report_uncalled_planned_tools(i, &mut findings);
        check.report_final_failures(i, &mut findings);
    }
    // Names are recognised by their capitals, and may have other forms in other languages.
    if !is_english(task, None, context.memo) {
        return findings.scored(context, Unmeasured::Language);
    }
    check.report_unmentioned_names(&request, &mut findings);
    findings.scored(context, Unmeasured::NotApplicable)
}

struct CoverageCheck<'a> {
    context: &'a Context<'a>,
    agent: &'a Agent,
    attempts: &'a CallAttempts,
    calls: &'a [usize],
    /// The names of the called tools in lower case.
    called_names: HashSet<String>,
    task: &'a str,
}

impl CoverageCheck<'_> {
    fn spend(&self, steps: usize) -> bool {
        self.context.memo.budget.spend(steps)
    }

    /// Whether a tool or another agent of this name was called.
    fn was_called(&self, name: &str) -> bool {
        self.called_names.contains(&name.to_ascii_lowercase())
            || agent_index::other_agent_is_named(self.context.trace, self.context.memo, self.agent, name)
    }

    /// Reports tools that the task tells the agent to use and that were not called.
    fn report_uncalled_tools(&self, findings: &mut Findings) {
        for tool in &self.agent.tools {
            let name = tool.name.trim();
            // Only an identifier names a tool; "search" may be an ordinary word of the task.
            if !name.contains(['_', '-']) || !self.spend(self.task.len() / 64 + 1) {
                continue;
            }
            let Some(name_start) = self.task.find(name) else { continue };
            let before = self.task.get(..name_start).unwrap_or_default();
            let start = before.rfind(['.', ';', '\n']).map_or(0, |i| i + 1);
            let clause = before.get(start..).unwrap_or_default().to_ascii_lowercase();
            let non_demands =
                ["not ", "n't ", "without", "avoid", " or ", "if ", "may ", "can ", "available", "tools:"];
            if non_demands.iter().any(|w| clause.contains(w)) || !clause.contains("use") {
                continue;
            }
            findings.examine(1);
            if !self.was_called(name) {
                let rationale = format!("a call to {name} was expected, as the task says; there was none");
                let quote = self.task.get(start..name_start + name.len()).unwrap_or(name);
                findings.push(Defect::PartNotCovered.finding(rationale, quote.trim()));
            }
        }
    }

    /// Reports steps of the latest plan that name tools of which none was called.
    fn report_uncalled_planned_tools(&self, i: usize, findings: &mut Findings) {
        let Some((_, plan)) =
            self.agent.plans.last().filter(|(_, plan)| is_english(&plan.text, None, self.context.memo))
        else {
            return;
        };
        let review = Review::get(self.context.trace, self.context.memo);
        let is_answer_supported = review.answer_findings.get(&i).is_some_and(Vec::is_empty);
        let mut tools: Vec<&str> = self.agent.tools.iter().map(|t| t.name.trim()).collect();
        tools.retain(|name| !self.context.trace.control_tools.is_final_answer(name));
        let finder = MentionFinder::new(tools.iter().copied());
        for step in plan.steps.iter().filter(|s| !is_conditional(s)) {
            if !self.spend(self.agent.tools.len() + step.len() / 16 + 4) {
                return;
            }
            let named_tools: Vec<&str> = finder.mentioned(step).into_iter().map(|i| tools[i]).collect();
            findings.examine(usize::from(!named_tools.is_empty()));
            if let Some(first) =
                named_tools.first().filter(|_| !named_tools.iter().any(|n| self.was_called(n)))
            {
                let rationale =
                    format!("a call to {first} was expected in this step of the plan; it was never called");
                let finding = Defect::PlannedCallMissing.finding(rationale, step);
                let finding = review.note_if_claimed(i, &[first], finding);
                findings.push(note_unneeded_lookup(finding, is_answer_supported, self.context.memo));
            }
        }
    }

    /// Reports that the last calls all failed while the answer is unsupported.
    fn report_final_failures(&self, i: usize, findings: &mut Findings) {
        let review = Review::get(self.context.trace, self.context.memo);
        if review.answer_findings.get(&i).is_none_or(Vec::is_empty) {
            return;
        }
        let has_failed = |c: &&usize| self.attempts.at(**c).is_some_and(Attempt::failed);
        let last_failures: Vec<usize> = self.calls.iter().rev().take_while(has_failed).copied().collect();
        let Some(call) = last_failures.first().and_then(|c| self.context.trace.calls.get(*c)) else { return };
        let quote = match last_failures.first().and_then(|c| self.attempts.at(*c)).map(|a| &a.outcome) {
            Some(CallOutcome::Failed { error_text, .. }) => error_text.as_str(),
            _ => "",
        };
        let rationale = format!(
            "a call that brought what the answer needs was expected; the last {} calls ({}) failed, no other brought \
             it, and the answer was given all the same",
            last_failures.len(),
            call.name.trim()
        );
        let defect = if last_failures.len() == self.calls.len() {
            Defect::NothingCovered
        } else {
            Defect::PartNotCovered
        };
        let finding = defect.finding(rationale, quote);
        findings.push(finding.citing_calls(self.context.trace, last_failures.iter().take(MAX_CITED)));
    }

    /// Reports that no argument and no result contains a name of the task. A part of a longer word may be a form of the
    /// name, so that the name does not count as missing; a name counts as examined only if the calls contain each of
    /// its words.
    fn report_unmentioned_names(&self, request: &TaskDemands, findings: &mut Findings) {
        let names: Vec<Vec<String>> = request.names().iter().map(|name| words_of_name(name)).collect();
        let words: Vec<&String> = names.iter().flatten().collect();
        if names.len() < MIN_NAMES || !request.asks_for_facts(self.context.memo) || words.is_empty() {
            return;
        }
        let Ok(finder) = AhoCorasick::builder().ascii_case_insensitive(true).build(&words) else { return };
        let mut found_words: HashSet<&str> = HashSet::default();
        // Whether a call may be about a name: it contains a part of one, or a code that may represent one.
        let mut may_mention = false;
        let mut bytes = 0;
        for call in self.calls.iter().filter_map(|c| self.context.trace.calls.get(*c)) {
            let texts = [&call.arguments, &call.result];
            bytes += texts.iter().copied().flatten().map(|text| text.len()).sum::<usize>();
            if bytes > SEARCH_BYTES {
                may_mention = true;
                break;
            }
            let is_readable = texts.iter().all(|text| text.is_some());
            may_mention |= !is_readable || !call.parsed.as_deref().is_some_and(names_in_words);
            for text in texts.into_iter().flatten() {
                for part in finder.find_overlapping_iter(&**text) {
                    may_mention = true;
                    let word =
                        words.get(part.pattern().as_usize()).filter(|_| is_whole_word(text, part.range()));
                    found_words.extend(word.map(|word| word.as_str()));
                }
            }
            if found_words.len() == words.len() {
                break;
            }
        }
        let is_found = |name: &&Vec<String>| {
            !name.is_empty() && name.iter().all(|word| found_words.contains(word.as_str()))
        };
        findings.examine(names.iter().filter(is_found).count());
        if may_mention {
            return;
        }
        let rationale = format!(
            "calls about what the task names were expected; none of {} asked about or returned anything on {}",
            self.calls.len(),
            request.names().join(", ")
        );
        findings.push(Defect::NothingCovered.finding(rationale, self.task));
    }
}

/// The words of a name by which it is searched for, in lower case.
fn words_of_name(name: &str) -> Vec<String> {
    let words = name.split([' ', '-', '’', '\'']).filter(|word| word.chars().count() >= 4 && word.is_ascii());
    words.map(str::to_ascii_lowercase).collect()
}

/// Whether a part of a text has neither a letter nor a digit before or after it.
fn is_whole_word(text: &str, part: Range<usize>) -> bool {
    let before = text.get(..part.start).and_then(|text| text.chars().next_back());
    let after = text.get(part.end..).and_then(|text| text.chars().next());
    !before.into_iter().chain(after).any(char::is_alphanumeric)
}

/// Whether all arguments are words and plain counts: such arguments cannot refer to a name by a code ("JFK"), a
/// position or an identifier.
fn names_in_words(arguments: &Value) -> bool {
    let is_word = |word: &str| word.len() > 1 && word.chars().skip(1).all(|c| c.is_lowercase() || c == '\'');
    let has_words = |text: &str| {
        let mut words = text
            .split(|c: char| c.is_whitespace() || matches!(c, ',' | '.' | '-' | '?'))
            .filter(|w| !w.is_empty());
        words.all(is_word)
    };
    arguments.as_object().is_some_and(|map| {
        let mut values = map.values().take(MAX_ARGUMENTS);
        map.len() <= MAX_ARGUMENTS
            && values.all(|value| match value {
                Value::String(text) => has_words(text),
                Value::Number(number) => number.is_u64(),
                Value::Bool(_) | Value::Null => true,
                _ => false,
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::{Script, row};
    use crate::measure::{Measured, Memo, Settings, Value};
    use crate::recognise::AgentTrace;

    const TASK: &str =
        "How many metres taller is Mount Elbrus than Mont Blanc, according to the Alpine Almanac page?";
    const BAD: &str = "Error: invalid url: the scheme https:// is required";

    fn measure_trace(trace: &AgentTrace) -> Result<Measured, Unmeasured> {
        let (settings, memo) = (Settings::default(), Memo::new());
        let context = Context {
            row: row("tool_coverage"),
            trace,
            at: trace.agents[0].at,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        };
        measure(&context, 0, &trace.agents[0]).outcome
    }

    fn run(task: &str) -> Script {
        Script::new(task).tools(&["web_search", "visit_page", "calculator"])
    }

    #[test]
    fn calls_that_mention_the_task_cover_it() {
        let trace = run(TASK)
            .calls("", &[("web_search", r#"{"query":"elbrus height"}"#)])
            .returns("Elbrus: 5642 m, Mont Blanc: 4806 m")
            .answers("836 m")
            .build();
        assert_eq!(measure_trace(&trace).unwrap().value, Value::Score(5.0));
    }

    #[test]
    fn demanded_source_without_a_call_scores_1() {
        let trace = run(TASK).answers("1206 m").build();
        let measured = measure_trace(&trace).unwrap();
        assert_eq!((measured.value, measured.passed), (Value::Score(1.0), false));
        assert!(measured.findings[0].rationale.contains("Alpine Almanac"));
    }

    #[test]
    fn task_without_need_for_tools_is_not_applicable() {
        let trace = run("What is the capital of France?").answers("Paris").build();
        assert_eq!(measure_trace(&trace), Err(Unmeasured::NotApplicable));
        assert_eq!(
            measure_trace(&Script::new(TASK).answers("836 m").build()),
            Err(Unmeasured::NotApplicable)
        );
    }

    #[test]
    fn calls_about_other_names_score_1() {
        let trace = run("Who founded Acme Robotics and Zenith Optics?")
            .calls("", &[("web_search", r#"{"query":"weather"}"#)])
            .returns("sunny")
            .answers("I do not know.")
            .build();
        assert_eq!(measure_trace(&trace).unwrap().value, Value::Score(1.0));
    }

    #[test]
    fn names_are_examined_where_the_calls_have_them_whole() {
        let examined = |query: &str, result: &str| {
            let arguments = serde_json::json!({ "query": query }).to_string();
            let script = run(TASK).calls("", &[("web_search", &arguments)]).returns(result);
            let trace = script.answers("It is 836 m.").build();
            let (settings, memo) = (Settings::default(), Memo::new());
            let row = row("tool_coverage");
            let span_index = trace.agents[0].at;
            let context = Context {
                row,
                trace: &trace,
                at: span_index,
                settings: &settings,
                memo: &memo,
                rule_measurements: &[],
            };
            let measured = measure(&context, 0, &trace.agents[0]);
            measured.outcome.map(|outcome| (outcome.value, measured.examined))
        };
        let covers = |names: u64| Ok((Value::Score(5.0), names));
        assert_eq!(examined("height of mont blanc", "4806 m"), covers(1));
        // The words of a name may be in the arguments and in the result.
        assert_eq!(examined("elbrus", "Elbrus (mount in Russia): 5642 m. Mont Blanc: 4806 m."), covers(2));
        assert_eq!(
            examined("mount elbrus and mont blanc", "Alpine Almanac: Elbrus 5642 m, Blanc 4806 m"),
            covers(3)
        );
        for (query, result) in [
            ("mount kenya", "5199 m"),
            ("highest peak of the month", "5199 m"),
            ("elbrus height", "5642 m; the tallest one"),
        ] {
            assert_eq!(examined(query, result), Err(Unmeasured::NotApplicable), "{query}");
        }
        assert_eq!(examined("weather", "sunny"), Ok((Value::Score(1.0), 1)));
    }

    #[test]
    fn facts_of_the_answer_are_no_demand_on_the_calls() {
        let trace_for_task = |task: &str| {
            let called = run(task).calls("", &[("web_search", r#"{"query":"ferry prices"}"#)]);
            called.returns("The ferry costs 412 kroner.").answers("The ferry costs 412 kroner.").build()
        };
        assert_eq!(
            measure_trace(&trace_for_task("What does the ferry cost?")),
            Err(Unmeasured::NotApplicable)
        );
        let demanded =
            measure_trace(&trace_for_task("Use web_search to find what the ferry costs.")).unwrap();
        assert_eq!((demanded.value, demanded.findings.len()), (Value::Score(5.0), 0));
    }

    #[test]
    fn uncalled_tool_of_task_or_plan_is_found() {
        let named = run("Use web_search to find the height of Mount Elbrus.")
            .calls("", &[("visit_page", r#"{"url":"https://elbrus.example"}"#)])
            .returns("Mount Elbrus: 5642 m")
            .answers("5642 m")
            .build();
        assert_eq!(measure_trace(&named).unwrap().value, Value::Score(3.0));
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
        let measured = measure_trace(&planned).unwrap();
        assert_eq!(measured.findings.len(), 1);
        assert!(measured.findings[0].quote.contains("calculator"));
    }

    #[test]
    fn uncalled_tools_that_the_task_forbids_or_allows_are_no_demand() {
        for task in [
            "Do not use web_search. How high is Mount Elbrus?",
            "You can use web_search if you like. How high is Mount Elbrus?",
        ] {
            let trace = run(task)
                .calls("", &[("visit_page", r#"{"url":"https://elbrus.example"}"#)])
                .returns("Mount Elbrus: 5642 m")
                .answers("5642 m")
                .build();
            assert_eq!(measure_trace(&trace), Err(Unmeasured::NotApplicable), "{task}");
        }
    }

    #[test]
    fn unsupported_answer_after_failed_calls_fails() {
        let mut script = run(TASK)
            .calls("", &[("web_search", r#"{"query":"Elbrus"}"#)])
            .returns("1. Alpine Almanac https://almanac.example/elbrus");
        for _ in 0..3 {
            script = script.calls("", &[("visit_page", r#"{"url":"almanac.example/elbrus"}"#)]).returns(BAD);
        }
        let measured =
            measure_trace(&script.answers("From memory it is roughly 800 metres.").build()).unwrap();
        assert_eq!(measured.findings[0].cited.len(), 3);
        assert!(!measured.passed);
    }

    #[test]
    fn missing_task_is_unmeasured() {
        let trace = run(TASK).calls("", &[("web_search", "{}")]).returns("x").build_without_content();
        assert_eq!(measure_trace(&trace), Err(Unmeasured::NoContent));
    }
}
