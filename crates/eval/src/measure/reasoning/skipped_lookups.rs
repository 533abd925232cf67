//! Answers that were given without the work they need.
//!
//! In: an agent's plan, everything that it and its helpers called, and its final answer. Out:
//! findings on the model span that gave the answer: the plan looks things up and nothing was
//! looked up (a plan abandoned, facts from nowhere, tools left unused); or all that came back says
//! that nothing was found, and the answer asserts all the same.
//!
//! An honest "I could not find it" is neither, nor is a riddle that needs no lookup.

use verdict_otlp::trace::Idx;

use super::answer::{final_answer, masked, sentences};
use super::answer_span::answered_by;
use super::missing_announced_call::instructions;
use crate::measure::agent::agent_index;
use crate::measure::agent::attempts::{Attempts, CallOutcome};
use crate::measure::conversation::{has_pasted_text, new_in_prompt, results_in_prompt, writes_code};
use crate::measure::defects::{Defect, clip};
use crate::measure::excerpt::head;
use crate::measure::{Finding, Memo, avoidance};
use crate::recognise::{Agent, AgentTrace, Content, Plan, SpanView};

// A step with one of these must find something out in the world; to verify or compare may be
// done by thinking.
regex!(
    LOOKUP,
    r"(?i)\b(search|look(ing)? up|locate|retrieve|consult|visit|browse|download|fetch|query|find (the|out|an?)|obtain|gather|transcribe|watch|wikipedia|websites?|web ?pages?|online|database|dataset|archive|publication|articles?)\b"
);
// Code that reaches for data by itself.
regex!(
    REACHES,
    r"\b(requests|httpx|urllib|aiohttp|urlopen|open|read_csv|read_excel|connect|subprocess|fetch)\s*[.(]|\basyncio\.run\("
);
// Words that rest a statement on somebody else's.
regex!(
    LEANS,
    r"(?i)\b(according to|verified|confirm(ed|s)|records? (show|indicate|state)s?|(well[- ])?documented|reported(ly)?|based on (the )?(available|official|authoritative|information|documentation|data|details|detailed|published|known)|cross-?referenc\w+|published (in|by|on|as)|(it )?is (well )?known)\b"
);
/// Share of an observation's words that the model must have written itself for it to be an echo.
const ECHO: f64 = 0.9;
/// Agents of a trace that are looked at, outermost first: each looks among the others for helpers.
const MAX_AGENTS: usize = 512;
/// Names of unused tools that are told.
const MAX_NAMED: usize = 6;

/// Whether a step of a plan must find something out.
pub(crate) fn looks_up(step: &str) -> bool {
    LOOKUP.is_match(step)
}

/// Findings by the model span that gave each agent's answer.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &Attempts) -> Vec<(Idx, Finding)> {
    let mut out = Vec::new();
    if trace.incomplete {
        return out;
    }
    for (i, agent) in trace.agents.iter().enumerate().take(MAX_AGENTS) {
        let Some(at) = answered_by(trace, memo, agent) else { continue };
        let Some(view) = trace.views.get(at) else { continue };
        let answer =
            agent.answer.as_deref().map(str::to_owned).or_else(|| final_answer(&trace.control_tools, view));
        let Some(answer) = answer.filter(|a| !a.trim().is_empty()) else { continue };
        if !all_visible(trace, agent) || avoidance::avoids(&answer) {
            continue;
        }
        let context = AnswerContext { trace, memo, attempts, i, agent, at, view, answer: &answer };
        out.extend(context.findings().into_iter().map(|finding| (at, finding)));
    }
    out
}

fn all_visible(trace: &AgentTrace, agent: &Agent) -> bool {
    let shown = |at: &Idx| {
        let view = trace.views.get(*at);
        view.is_some_and(|r| r.output_content == Content::Present && r.input_content == Content::Present)
    };
    !agent.llms.is_empty() && agent.llms.iter().all(shown)
}

/// One agent at the moment of its answer.
struct AnswerContext<'a> {
    trace: &'a AgentTrace,
    memo: &'a Memo,
    attempts: &'a Attempts,
    i: usize,
    agent: &'a Agent,
    at: Idx,
    view: &'a SpanView,
    answer: &'a str,
}

impl AnswerContext<'_> {
    fn findings(&self) -> Vec<Finding> {
        let calls: Vec<usize> = agent_index::calls_beneath(self.trace, self.memo, self.i)
            .into_iter()
            .filter(|&c| self.attempts.at(c).is_some_and(|a| !a.is_control))
            .collect();
        let helpers = agent_index::has_helpers(self.trace, self.memo, self.i);
        match calls.is_empty() && !helpers {
            true => self.without_work(),
            false => self.against_all_results(),
        }
    }

    /// Nothing was called, and the plan has things looked up.
    fn without_work(&self) -> Vec<Finding> {
        let idle = !has_earlier_input(self.trace, self.agent) && !self.code_reaches() && !self.code_worked();
        let Some(plan) = self.plan().filter(|_| idle && self.has_tools()) else { return Vec::new() };
        let steps: Vec<&str> = plan.steps.iter().map(|s| &**s).filter(|s| LOOKUP.is_match(s)).collect();
        let Some(step) = steps.first() else { return Vec::new() };
        let planned = match steps.len() {
            1 => "a step that must look something up, this one".to_owned(),
            n => format!("{n} steps that must look something up, this the first"),
        };
        let said = self.quote();
        let mut out = vec![
            Defect::PlanUnworked.finding(
                format!(
                    "the plan has {planned}: a call to a tool or helper was expected; the answer was given with none \
                     before it"
                ),
                step,
            ),
            Defect::AnswerUnsupported.finding(
                "facts that some call had found were expected; the answer states what nothing in the run had found \
                 out: no tool had been called, and no result was there to rest on",
                &said,
            ),
        ];
        if let Some((words, sentence)) = self.attributed() {
            out.push(Defect::FalseClaim.finding(
                format!("a source that was opened was expected behind \"{words}\"; no call in the run had opened any"),
                &sentence,
            ));
        }
        let tools: Vec<&str> = self.agent.tools.iter().map(|t| t.name.trim()).collect();
        let named: Vec<&str> = tools
            .into_iter()
            .filter(|t| !self.trace.control_tools.is_final_answer(t))
            .take(MAX_NAMED)
            .collect();
        let offered = match named.is_empty() {
            true => "the tools of its instructions".to_owned(),
            false => named.join(", "),
        };
        out.push(Defect::ToolLeftUnused.finding(
            format!("a call to a tool was expected for this step of the plan; the model had {offered} and used none"),
            step,
        ));
        out
    }

    /// Everything that came back says that nothing was found, and the answer asserts all the same.
    fn against_all_results(&self) -> Vec<Finding> {
        let start = self.trace.tree.spans.get(self.at).map_or(0, |s| s.start);
        let helpers = self.trace.agents.iter().filter(|a| a.parent == Some(self.i));
        let mut nothing = None;
        for helper in helpers {
            let Some(said) = helper.answer.as_deref() else { return Vec::new() };
            let Some(words) = avoidance::admits(said) else { return Vec::new() };
            nothing = Some((words.to_owned(), helper.at));
        }
        for &c in &self.agent.calls {
            let (Some(attempt), Some(call)) = (self.attempts.at(c), self.trace.calls.get(c)) else {
                continue;
            };
            if attempt.is_control || call.start > start {
                continue;
            }
            match (&attempt.outcome, call.result.as_deref().and_then(avoidance::admits)) {
                (CallOutcome::Failed { error_text, .. }, _) if nothing.is_none() => {
                    nothing = Some((error_text.clone(), call.at));
                }
                (CallOutcome::Failed { .. }, _) => {}
                (_, Some(words)) => nothing = Some((words.to_owned(), call.at)),
                _ => return Vec::new(),
            }
        }
        let Some((words, source)) = nothing else { return Vec::new() };
        if avoidance::mentions_lack(self.answer) || self.code_reaches() {
            return Vec::new();
        }
        let back = head(words.trim(), 120);
        let cite = |finding: Finding| finding.citing_at(self.trace, source);
        let said = self.quote();
        vec![
            cite(Defect::AnswerUnsupported.finding(
                format!(
                    "all that came back was \"{back}\", so an admission was expected; the answer states a result all \
                     the same"
                ),
                &said,
            )),
            cite(Defect::PlanUnworked.finding(
                format!(
                    "after \"{back}\" another way to find it, or an admission, was expected; the run was \
                         ended with an answer that nothing bears out"
                ),
                &said,
            )),
        ]
    }

    /// The plan in force when the answer was given.
    fn plan(&self) -> Option<&Plan> {
        self.agent.plans.iter().rev().find(|(at, _)| *at < self.at).map(|(_, plan)| plan)
    }

    /// It had something to work with.
    fn has_tools(&self) -> bool {
        self.agent.tools.iter().any(|t| !self.trace.control_tools.is_final_answer(&t.name))
            || instructions(self.view).any(|t| t.contains("tools"))
    }

    /// The agent's model calls up to the answer.
    fn turns(&self) -> impl Iterator<Item = &SpanView> {
        let own = self.agent.llms.iter().take_while(|at| **at <= self.at);
        own.filter_map(|at| self.trace.views.get(*at))
    }

    /// Code of the agent reaches for data by itself.
    fn code_reaches(&self) -> bool {
        let reaches = |text: &str| writes_code(text) && REACHES.is_match(text);
        self.turns().any(|view| reaches(&view.output_text()))
    }

    /// Code of the agent brought something that it had not written itself.
    fn code_worked(&self) -> bool {
        let turns: Vec<&SpanView> = self.turns().collect();
        turns.windows(2).any(|pair| match pair {
            [one, next] => Some(one.output_text()).filter(|text| writes_code(text)).is_some_and(|code| {
                let seen: Vec<&str> = new_in_prompt(next).map(|t| &**t).collect();
                !is_echo(&code, &seen.join("\n"))
            }),
            _ => false,
        })
    }

    /// Words of the answering output that lean on a source, with their sentence.
    fn attributed(&self) -> Option<(String, String)> {
        let text = self.view.output_text();
        let prose = masked(&text);
        let found = LEANS.find(&prose)?;
        let list = sentences(&prose);
        let (start, end) = list.into_iter().find(|(a, b)| (*a..*b).contains(&found.start()))?;
        Some((found.as_str().to_owned(), text.get(start..end)?.trim().to_owned()))
    }

    /// What the model said when it answered: its words, or the bare answer.
    fn quote(&self) -> String {
        let text = self.view.output_text();
        let prose = masked(&text);
        let long = |&(a, b): &(usize, usize)| prose.get(a..b).is_some_and(|s| s.trim().len() >= 40);
        let last = sentences(&prose).into_iter().rev().find(long);
        let words = last.and_then(|(a, b)| text.get(a..b)).map(str::trim);
        words.unwrap_or(self.answer).to_owned()
    }
}

/// The first model call had results of an earlier run, or a document, before it.
fn has_earlier_input(trace: &AgentTrace, agent: &Agent) -> bool {
    /// A task this long holds what is to be read.
    const LONG_TASK: usize = 4000;
    let first = agent.llms.first().and_then(|at| trace.views.get(*at));
    let long = agent.task.as_ref().is_some_and(|t| t.len() > LONG_TASK);
    first.is_some_and(|r| results_in_prompt(&r.input) > 0 || long && has_pasted_text(&r.input))
}

/// Nearly every word of `seen` is in `written`: a print of what the model itself had put there.
fn is_echo(written: &str, seen: &str) -> bool {
    const FRAME: [&str; 10] =
        ["call", "execution", "logs", "last", "output", "from", "code", "snippet", "none", "observation"];
    let words = |text: &str| -> Vec<String> {
        let split = text.split(|c: char| !c.is_alphanumeric());
        split.filter(|w| w.len() > 2).map(str::to_lowercase).collect()
    };
    let known: foldhash::HashSet<String> = words(written).into_iter().collect();
    let seen = words(clip(seen, 8192));
    let told: Vec<&String> = seen.iter().filter(|w| !FRAME.contains(&w.as_str())).collect();
    // A failure is no result either.
    if told.iter().take(3).any(|w| *w == "error") {
        return true;
    }
    let own = told.iter().filter(|w| known.contains(**w)).count();
    own as f64 >= told.len() as f64 * ECHO
}
