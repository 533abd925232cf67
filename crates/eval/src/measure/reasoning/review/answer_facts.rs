//! The facts of answers, compared with the evidence: of final answers, and of the answers before them in a dialogue,
//! which their user has read as well.
//!
//! In: the text that a model wrote for its reader, and all content that the model could have read. Out: findings, and
//! the number of compared facts.

use verdict_otlp::trace::{Idx, SpanId};

use super::{ExaminedFacts, MAX_CALLS, ReaderAnswer, Reviewer};
use crate::measure::conversation::{plain_text, results_in_prompt, runs_code, writes_code};
use crate::measure::defects::{Defect, clip};
use crate::measure::dialogue::{Replies, open_request};
use crate::measure::language::{Language, ReadText};
use crate::measure::numbers::has_digit;
use crate::measure::reasoning::answer::MAX_ANSWER;
use crate::measure::reasoning::evidence::TextSource;
use crate::measure::reasoning::history::CallCounts;
use crate::measure::reasoning::skipped_lookups::mentions_tools;
use crate::measure::reasoning::unsupported_facts::{CallsBefore, check};
use crate::measure::request::TaskDemands;
use crate::measure::{Finding, agent_index};
use crate::recognise::{Content, Role, SpanView, Text};

/// Maximum answers of one trace whose facts are checked: each may have to search all evidence.
const MAX_ANSWERS: usize = 512;
/// Maximum calls cited by a finding about an answer.
const MAX_CITED: usize = 4;

impl<'a> Reviewer<'a> {
    /// Checks an answer that the user replied to.
    pub(super) fn check_turn(
        &mut self,
        at: Idx,
        view: &'a SpanView,
        counts: CallCounts,
        findings: &mut Vec<Finding>,
    ) -> ExaminedFacts {
        let owner = self.trace.owner.get(at).copied().flatten();
        let replied = || Replies::cached(self.trace, self.memo).to(at).is_some();
        let Some(agent) = owner.filter(|_| counts.calls > 0 && replied()) else {
            return ExaminedFacts::default();
        };
        // The task of an agent in a dialogue may be the last message.
        let messages = || view.input.iter().rev().filter(|message| message.role == Role::User);
        let latest = || messages().find_map(|message| message.parts.iter().rev().find_map(plain_text));
        let asked = open_request(view, self.memo).or_else(latest);
        let text = view.output_text();
        let answer = clip(&text, MAX_ANSWER);
        // A text that asks for a decision proposes values.
        let asks = || ReadText::new(answer, None, self.memo).ends_with_question();
        let is_question = |text: &Text| TaskDemands::cached(text, self.memo).asks_for_facts(self.memo);
        if !asked.is_some_and(is_question) || asks() {
            return ExaminedFacts::default();
        }
        self.check_answer(&ReaderAnswer { agent, at, answer, view: Some(view), asked }, counts, findings)
    }

    /// Compares the facts of an answer with the evidence.
    pub(super) fn check_answer(
        &mut self,
        given: &ReaderAnswer<'_, 'a>,
        counts: CallCounts,
        findings: &mut Vec<Finding>,
    ) -> ExaminedFacts {
        let &ReaderAnswer { agent, at, answer, view, asked } = given;
        let request = match asked {
            Some(asked) => TaskDemands::cached(asked, self.memo),
            None => self.request(agent),
        };
        // Code that a tool of the run executes is an action. Its strings and links are not statements.
        if writes_code(answer) && self.trace.calls.iter().take(MAX_CALLS).any(|call| runs_code(&call.name)) {
            return ExaminedFacts::default();
        }
        let needs_source = counts.calls > 0 || (self.has_tools(agent, view) && self.wants_source(agent));
        if !needs_source
            || self.checked_answers >= MAX_ANSWERS
            || self.trace.evidence(at) != Content::Present
            || !self.has_all_content(agent, view, counts)
        {
            return ExaminedFacts::default();
        }
        let task = asked.or_else(|| agent_index::task(self.trace, agent)).map(|task| &**task);
        self.history.read_until(at);
        let Some(language) = Language::detected(answer, task, self.memo) else {
            return ExaminedFacts::default();
        };
        let is_english = language == Language::English;
        // Values of structured results are facts under any request.
        let history = &mut self.history;
        let mut has_only_values = || counts.succeeded > 0 && !history.has_prose();
        let is_asked = match is_english {
            true => request.asks_for_facts(self.memo) || !request.asks_for_text() && has_only_values(),
            // Numbers of prose may be in words, or in units of other languages.
            false if counts.calls == 0 => request.asks_for_facts(self.memo),
            false => !request.asks_for_text() && has_only_values() && self.has_number(),
        };
        if !is_asked {
            return ExaminedFacts::default();
        }
        self.checked_answers += 1;
        self.history.note_checked(at);
        if let Some(task) = agent_index::task(self.trace, agent) {
            self.history.evidence.add(task, TextSource::Conversation);
        }
        let calls = CallsBefore { attempted: counts.calls > 0, succeeded: counts.succeeded > 0 };
        let is_outermost = self.trace.agents.get(agent).is_some_and(|agent| agent.parent.is_none());
        let evidence = &mut self.history.evidence;
        let mut checked = check(answer, language, &request, evidence, calls, self.memo);
        // An unsupported value that another agent stated before is the same failure, and is reported once.
        if !is_outermost && !checked.unsupported.is_empty() {
            let is_known = |value: &f64| self.history.evidence.is_tainted(*value);
            if checked.unsupported.iter().all(is_known) {
                checked.findings.retain(|finding| finding.defect != Some(Defect::UnsupportedFact));
            }
        }
        checked.unsupported.iter().for_each(|v| self.history.evidence.taint(*v));
        let cited = self.last_calls(agent, at);
        findings.extend(checked.findings.into_iter().map(|f| cited.iter().copied().fold(f, Finding::citing)));
        ExaminedFacts { all: checked.examined, beyond_request: checked.beyond_request }
    }

    /// Whether a result has a number. Without one, a number of an answer misstates no result.
    fn has_number(&self) -> bool {
        let mut results = self.trace.calls.iter().take(MAX_CALLS).filter_map(|call| call.result.as_ref());
        results.any(|result| has_digit(result))
    }

    /// The ids of the spans of the agent's last calls before `at`, from which its facts should originate.
    fn last_calls(&self, agent: usize, at: Idx) -> Vec<SpanId> {
        let Some(agent) = self.trace.agents.get(agent) else { return Vec::new() };
        let end = self.trace.tree.spans.get(at).map_or(0, |s| s.end);
        let calls = agent.calls.iter().rev().filter_map(|i| {
            let call = self.trace.calls.get(*i)?;
            let is_work = self.attempts.at(*i).is_some_and(|a| !a.is_control);
            (is_work && call.start <= end && call.at != at).then_some(call.at)
        });
        let ids = calls.filter_map(|at| self.trace.tree.spans.get(at)).map(|s| s.id);
        ids.take(MAX_CITED).collect()
    }

    /// Whether the agent was offered tools, or its instructions mention tools.
    pub(super) fn has_tools(&self, agent: usize, view: Option<&SpanView>) -> bool {
        let is_listed = self.trace.agents.get(agent).is_some_and(|a| !a.tools.is_empty());
        // Where the instrumentation lists no tools, the instructions may mention them.
        let mentions_tools = |text: &Text| mentions_tools(text, self.memo);
        is_listed
            || view.is_some_and(|view| !view.tools.is_empty())
            || agent_index::instructions(self.trace, agent).is_some_and(mentions_tools)
    }

    /// Whether every result that the model could have read is recorded.
    fn has_all_content(&self, agent: usize, view: Option<&SpanView>, counts: CallCounts) -> bool {
        let Some(view) = view.filter(|view| view.input_content == Content::Present) else {
            // A prompt may contain a part of the retrieved content only, or further documents.
            return counts.unknown == 0
                && counts.retrieved == 0
                && agent_index::task(self.trace, agent).is_some();
        };
        counts.unknown == 0 || results_in_prompt(&view.input) >= counts.calls
    }
}
