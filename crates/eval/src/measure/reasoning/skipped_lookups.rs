//! Answers without the lookups that they need.
//!
//! Principle: if an agent's plan requires a lookup and the agent has tools, at least one call precedes its answer; and
//! if every call returned an error or nothing, the answer states this. An answer that admits the lack is not a
//! finding. The answers that the user replied to are compared with the calls of their turns.
//!
//! In: an agent's plan, all calls of the agent and its sub-agents, and its answers. Out: at most one finding for each
//! answer, on the model span that wrote it.

use foldhash::HashSet;
use verdict_otlp::trace::Idx;

use super::answer::{final_answer, masked, sentences};
use super::answer_span::answered_by;
use super::missing_announced_call::instructions;
use super::skipped_step::actions_of_verbs;
use crate::measure::calls::attempts::{CallAttempts, CallOutcome};
use crate::measure::calls::empty_result::is_nothing;
use crate::measure::conversation::{has_pasted_text, new_in_prompt, results_in_prompt, writes_code};
use crate::measure::defects::{Defect, clip};
use crate::measure::dialogue::Replies;
use crate::measure::excerpt::head;
use crate::measure::language::{Action, Language, ReadText, Readable, WordClass, classes_in, readable};
use crate::measure::provenance::{Provenance, follows_negation};
use crate::measure::reasoning::recovery;
use crate::measure::request::TaskDemands;
use crate::measure::vocabulary::{self, WordMeaning};
use crate::measure::{Finding, Memo, agent_index, avoidance};
use crate::recognise::{Agent, AgentTrace, Content, RecordedPlan, SpanView, action_text};

// Names of functions in programs that retrieve data.
regex!(
    RETRIEVING_CODE,
    r"\b(requests|httpx|urllib|aiohttp|urlopen|open|read_csv|read_excel|connect|subprocess|fetch)\s*[.(]|\basyncio\.run\("
);
/// Maximum bytes of a step of a plan that are read.
const MAX_STEP_BYTES: usize = 400;
/// Minimum share of the words of an output that are in the code: such an output only repeats the model's text.
const MIN_ECHO_SHARE: f64 = 0.9;
/// Maximum agents of a trace that are checked, since each check searches the others for sub-agents.
const MAX_AGENTS: usize = 512;
/// Maximum turns of a dialogue that are checked.
const MAX_TURNS: usize = 32;
/// Minimum letters of a word with content, and maximum words of an answer that are compared.
const MIN_LETTERS: usize = 5;
const MAX_WORDS: usize = 400;
/// Minimum words without a source by which an answer states more than that nothing was found.
const MIN_UNKNOWN_WORDS: usize = 8;
/// Maximum names of unused tools in a finding.
const MAX_NAMED_TOOLS: usize = 6;

/// Whether a step of a plan requires a lookup, by its verbs. A step that verifies or compares requires none.
pub(crate) fn looks_up(step: &str, memo: &Memo) -> bool {
    let step = clip(step, MAX_STEP_BYTES);
    let Some(language) = Language::detected(step, None, memo) else { return false };
    if !language.is_spaced() {
        return actions_of_verbs(step, language).contains(&Action::Search);
    }
    let words = step.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    let is_search = |verb: &str| language.action_of(verb) == Some(Action::Search);
    // A verb may have two words: "look up".
    words.iter().any(|word| is_search(word)) || words.windows(2).any(|pair| is_search(&pair.join(" ")))
}

/// Whether instructions mention tools, since not every instrumentation lists them.
pub(super) fn mentions_tools(instructions: &str, memo: &Memo) -> bool {
    classes_in(instructions, None, memo).is_some_and(|classes| classes.has(WordClass::Tool))
}

/// Findings by the model span that wrote the agent's answer.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<(Idx, Finding)> {
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
        // In an unsupported language, an admission cannot be recognised.
        let is_unsupported = readable(&answer, agent.task.as_deref(), memo) == Readable::No;
        if is_unsupported || !is_recorded(trace, agent) {
            continue;
        }
        let context = AnswerContext {
            trace,
            memo,
            attempts,
            agent_index: i,
            agent,
            from: 0,
            at,
            view,
            answer: &answer,
        };
        let has_answered = !avoidance::avoids(&answer, memo);
        let finding = if has_answered { context.finding() } else { None };
        out.extend(context.turn_findings(has_answered && finding.is_none()));
        out.extend(finding.map(|finding| (at, finding)));
    }
    out
}

/// Whether all prompts and outputs of the agent are recorded.
fn is_recorded(trace: &AgentTrace, agent: &Agent) -> bool {
    let has_content = |at: &Idx| {
        let view = trace.views.get(*at);
        view.is_some_and(|r| r.output_content == Content::Present && r.input_content == Content::Present)
    };
    !agent.llms.is_empty() && agent.llms.iter().all(has_content)
}

/// The last of an agent's results, all of which are errors or empty.
struct EmptyResult {
    /// The words by which the result states an error or that nothing was found.
    words: String,
    source: Idx,
    /// Whether a call or a sub-agent failed, so that its result is not known.
    failed: bool,
}

/// An agent and its answer.
struct AnswerContext<'a> {
    trace: &'a AgentTrace,
    memo: &'a Memo,
    attempts: &'a CallAttempts,
    agent_index: usize,
    agent: &'a Agent,
    /// The start of the turn.
    from: u64,
    at: Idx,
    view: &'a SpanView,
    answer: &'a str,
}

impl AnswerContext<'_> {
    fn finding(&self) -> Option<Finding> {
        let calls: Vec<usize> = agent_index::subtree_calls(self.trace, self.memo, self.agent_index)
            .into_iter()
            .filter(|&c| self.attempts.at(c).is_some_and(|a| !a.is_control))
            .collect();
        let has_sub_agents = agent_index::has_sub_agents(self.trace, self.memo, self.agent_index);
        match calls.is_empty() && !has_sub_agents {
            true => self.finding_without_calls(),
            false => self.finding_against_empty_results(false),
        }
    }

    /// The findings on the turns of a dialogue: the answers that the user replied to and, if there are any and
    /// `with_last`, the last one.
    fn turn_findings(&self, with_last: bool) -> Vec<(Idx, Finding)> {
        let (trace, memo) = (self.trace, self.memo);
        let replies = Replies::cached(trace, memo);
        let start = |at: Idx| trace.tree.spans.get(at).map_or(0, |span| span.start);
        let (mut out, mut from) = (Vec::new(), 0);
        for &at in self.agent.llms.iter().filter(|at| replies.to(**at).is_some()).take(MAX_TURNS) {
            let Some(view) = trace.views.get(at).filter(|_| at != self.at) else { continue };
            let answer = view.output_text();
            let turn = AnswerContext { from, at, view, answer: &answer, ..*self };
            let is_admission = || avoidance::avoids(&answer, memo);
            out.extend(
                turn.finding_against_empty_results(true)
                    .filter(|_| !is_admission())
                    .map(|finding| (at, finding)),
            );
            from = start(at);
        }
        if from > 0 && with_last {
            let turn = AnswerContext { from, ..*self };
            out.extend(turn.finding_against_empty_results(true).map(|finding| (self.at, finding)));
        }
        out
    }

    /// The finding if nothing was called although the plan requires a lookup.
    fn finding_without_calls(&self) -> Option<Finding> {
        let had_input = has_earlier_input(self.trace, self.agent)
            || self.code_retrieves()
            || self.code_returned_content();
        let plan = self.plan().filter(|_| !had_input && self.has_tools())?;
        let steps: Vec<&str> = plan.steps.iter().map(|s| &**s).filter(|s| looks_up(s, self.memo)).collect();
        let planned = match steps.len() {
            1 => "a step that requires a lookup, this one".to_owned(),
            n => format!("{n} steps that require a lookup, this is the first"),
        };
        let named: Vec<&str> = self.tool_names().take(MAX_NAMED_TOOLS).collect();
        let offered = match named.is_empty() {
            true => "the tools of its instructions".to_owned(),
            false => named.join(", "),
        };
        let rationale = format!(
            "the plan has {planned}: a call to a tool or helper was expected; the model had {offered}, used none and \
             answered, so nothing in the run supports the answer"
        );
        Some(Defect::LookupsSkipped.finding(rationale, steps.first()?))
    }

    /// The names of the agent's tools, except tools that control the run.
    fn tool_names(&self) -> impl Iterator<Item = &str> {
        let names = self.agent.tools.iter().map(|t| t.name.trim());
        names.filter(|name| !self.trace.control_tools.is_control(name))
    }

    /// The finding if every result is an error or empty, and the answer states a result. For a turn of a dialogue,
    /// every result has to be empty: the user sees that a refused action is discussed.
    fn finding_against_empty_results(&self, is_turn: bool) -> Option<Finding> {
        let EmptyResult { words, source, failed } = self.empty_result()?;
        if is_turn && failed {
            return None;
        }
        let reports_refusal_to_user = || {
            let mut calls = self.agent.calls.iter().rev().filter_map(|c| self.trace.calls.get(*c));
            calls.next().is_some_and(|call| recovery::reports_refusal_to_user(self.trace, self.memo, call))
        };
        let read = ReadText::new(self.answer, None, self.memo);
        // After results without an error, the answer admits a lack by a denial, and not by a word for an error.
        let admits = || failed || read.denies_something(self.memo) || !read.inability().is_empty();
        if avoidance::mentions_lack(self.answer, self.memo) && admits()
            || self.code_retrieves()
            || failed && reports_refusal_to_user()
        {
            return None;
        }
        // An answer may state in any words that nothing was found ("you are free then"), but it then has no specific
        // values without a source.
        let provenance = Provenance::cached(self.trace, self.memo);
        let states = || {
            provenance
                .unknown_specific_or_name(self.answer)
                .filter(|word| !follows_negation(self.answer, word) && !word.bytes().all(|byte| byte == b'0'))
        };
        if !failed && states().is_none() && !self.states_much(&provenance) {
            return None;
        }
        let rationale = format!(
            "an admission that nothing was found was expected; every result was an error or empty, such as \"{}\", \
             but the answer states a result",
            head(words.trim(), 120)
        );
        Some(Defect::AnswerUnsupported.finding(rationale, &self.quote()).citing_at(self.trace, source))
    }

    /// Whether the answer to a request for facts consists of words that no text of the run has, without a denial in its
    /// first sentence and without a hedge.
    fn states_much(&self, provenance: &Provenance) -> bool {
        let asks_for_facts = |task| !TaskDemands::cached(task, self.memo).asks_for_text();
        if !agent_index::task(self.trace, self.agent_index).is_some_and(asks_for_facts) {
            return false;
        }
        let words = self.answer.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() >= MIN_LETTERS);
        let mut unknown: HashSet<String> = HashSet::default();
        unknown.extend(words.take(MAX_WORDS).map(str::to_lowercase));
        unknown
            .retain(|word| provenance.is_unknown(word) && provenance.is_unknown(word.trim_end_matches('s')));
        let read = ReadText::new(self.answer, None, self.memo);
        let first = sentences(self.answer).first().and_then(|(start, end)| self.answer.get(*start..*end));
        let denies = || first.is_none_or(|first| read.part(first).denies_something(self.memo));
        unknown.len() >= MIN_UNKNOWN_WORDS && read.hedges().is_empty() && !denies()
    }

    /// The last result, if there are results and each is an error or empty.
    fn empty_result(&self) -> Option<EmptyResult> {
        let start = self.trace.tree.spans.get(self.at).map_or(0, |s| s.start);
        let mut empty = None;
        let start_of = |at: Idx| self.trace.tree.spans.get(at).map_or(0, |span| span.start);
        let is_helper = |agent: &&Agent| {
            agent.parent == Some(self.agent_index) && (self.from..=start).contains(&start_of(agent.at))
        };
        for helper in self.trace.agents.iter().filter(is_helper) {
            let words = avoidance::admits(helper.answer.as_deref()?, self.memo)?.to_owned();
            empty = Some(EmptyResult { words, source: helper.at, failed: true });
        }
        for &c in &self.agent.calls {
            let (Some(attempt), Some(call)) = (self.attempts.at(c), self.trace.calls.get(c)) else {
                continue;
            };
            if attempt.is_control || !(self.from..=start).contains(&call.start) {
                continue;
            }
            if let CallOutcome::Failed { error_text, cause } = &attempt.outcome {
                if *cause == Defect::EmptyResult {
                    // An empty result of a search is not a failure.
                    let failed = empty.is_some_and(|previous| previous.failed);
                    empty = Some(EmptyResult { words: error_text.clone(), source: call.at, failed });
                    continue;
                }
                if recovery::repeats_output(self.trace, self.memo, call) {
                    return None;
                }
                let words = error_text.clone();
                let result_words = empty.get_or_insert(EmptyResult { words, source: call.at, failed: true });
                result_words.failed = true;
                continue;
            }
            let none = |text| avoidance::says_none(text, self.memo).or(is_nothing(text).then_some("nothing"));
            let words = call.result.as_deref().and_then(none)?;
            let failed = empty.is_some_and(|previous| previous.failed);
            empty = Some(EmptyResult { words: words.to_owned(), source: call.at, failed });
        }
        empty
    }

    /// The latest plan before the answer.
    fn plan(&self) -> Option<&RecordedPlan> {
        self.agent.plans.iter().rev().find(|(at, _)| *at < self.at).map(|(_, plan)| plan)
    }

    /// Whether the agent had tools.
    fn has_tools(&self) -> bool {
        self.tool_names().next().is_some()
            || instructions(self.view).any(|text| mentions_tools(text, self.memo))
    }

    /// The agent's model calls up to the answer.
    fn turns(&self) -> impl Iterator<Item = &SpanView> {
        let model_calls = self.agent.llms.iter().take_while(|at| **at <= self.at);
        model_calls.filter_map(|at| self.trace.views.get(*at))
    }

    /// Whether code of the agent retrieves data.
    fn code_retrieves(&self) -> bool {
        let retrieves = |text: &str| writes_code(text) && RETRIEVING_CODE.is_match(text);
        self.turns().any(|view| retrieves(&view.output_text()))
    }

    /// Whether code of the agent returned content that the agent had not written itself.
    fn code_returned_content(&self) -> bool {
        let turns: Vec<&SpanView> = self.turns().collect();
        turns.windows(2).any(|pair| match pair {
            [one, next] => Some(one.output_text()).filter(|text| writes_code(text)).is_some_and(|code| {
                let outputs: Vec<&str> = new_in_prompt(next).map(|t| &**t).collect();
                !is_echo(&code, &outputs.join("\n"))
            }),
            _ => false,
        })
    }

    /// The quote of a finding: the last long sentence of the output, or else the answer.
    fn quote(&self) -> String {
        let text = self.view.output_text();
        let prose = masked(&text);
        let is_long = |&(a, b): &(usize, usize)| prose.get(a..b).is_some_and(|s| s.trim().len() >= 40);
        let last = sentences(&prose).into_iter().rev().find(is_long);
        let words = last.and_then(|(a, b)| text.get(a..b)).map(str::trim);
        words.unwrap_or(self.answer).to_owned()
    }
}

/// Whether the prompt of the first model call contains results of an earlier run, or a document.
fn has_earlier_input(trace: &AgentTrace, agent: &Agent) -> bool {
    /// Minimum bytes of a task that contains a document.
    const MIN_DOCUMENT_BYTES: usize = 4000;
    let first = agent.llms.first().and_then(|at| trace.views.get(*at));
    let is_long = agent.task.as_ref().is_some_and(|t| t.len() > MIN_DOCUMENT_BYTES);
    first.is_some_and(|r| results_in_prompt(&r.input) > 0 || is_long && has_pasted_text(&r.input, |_| false))
}

/// Whether nearly every word of `output` is in `code`, so that the code only printed the model's own text, or whether
/// the output is an error.
fn is_echo(code: &str, output: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let split = text.split(|c: char| !c.is_alphanumeric());
        split.filter(|w| w.len() > 2).map(str::to_lowercase).collect()
    };
    let code_words: foldhash::HashSet<String> = words(code).into_iter().collect();
    let output_words = words(&action_text::without_labels(clip(output, 8192)));
    let echoed_words = output_words.iter().filter(|w| code_words.contains(*w)).count();
    output_words.iter().take(3).any(|word| vocabulary::has_meaning(word, WordMeaning::Error))
        || echoed_words as f64 >= output_words.len() as f64 * MIN_ECHO_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_with_a_verb_of_search_require_a_lookup() {
        let memo = Memo::new();
        for step in [
            "Search for the opening hours of the museum",
            "Look up the price of copper",
            "Find out who built the bridge",
            "Retrieve the invoice of May",
            "Suche die Öffnungszeiten des Museums",
            "Die Adresse der Werkstatt nachschlagen",
            "Chercher le prix du cuivre dans la base pour le client",
            "Buscar la dirección del taller en el registro para el cliente",
            "查询铜的价格",
        ] {
            assert!(looks_up(step, &memo), "{step}");
        }
        for step in [
            "Compare both prices",
            "Tell the user the result",
            "Verify the sum",
            "Show the table to the reader",
            "Die beiden Preise vergleichen",
            "Afficher le résultat",
            "Redactar la respuesta",
            "比较两个价格",
        ] {
            assert!(!looks_up(step, &memo), "{step}");
        }
    }
}
