//! Checks the outputs of all models of a trace in one walk.
//!
//! In: a trace. Out: the [`Review`], which several metrics read: findings by LLM span, and by agent for `completeness`.

mod answer_facts;
mod claimed_calls;
mod work_claims;

use std::collections::BTreeMap;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use verdict_otlp::trace::{Idx, Kind, SpanId};

use super::answer::{MAX_ANSWER, final_answer};
use super::answer_span::final_span;
use super::claims::{ToolsAsNouns, ToolsByNoun};
use super::conduct::{apply_rule, by_rule};
use super::conduct_rules::CONDUCT_RULES;
use super::history::{TraceHistory, end_of};
use super::invented_data::Invented;
use super::{
    claimed_actions, contradicted, contradicted_flag, contradicted_number, exceeded_limit,
    executed_placeholder, guess_as_fact, invented_patch_context, recovery, skipped_lookups,
    unmet_confirmation, wrong_identifier, wrong_row,
};
use crate::measure::calls::attempts::{CallAttempts, MIN_REPEATED_FAILURES, author, quoted};
use crate::measure::defects::{Defect, clip};
use crate::measure::request::{self, TaskDemands};
use crate::measure::{Finding, Memo, agent_index};
use crate::recognise::{AgentTrace, Content, Part, SpanView, Text};

/// Maximum calls whose names are compared with the noun of a claim.
const MAX_CALLS: usize = 2000;
/// Maximum calls whose results may be the answer of an agent that calls no model; the latest are compared.
const MAX_RETURNED_RESULTS: usize = 8;

/// The result for one LLM span.
#[derive(Debug, Default)]
pub(crate) struct SpanReview {
    /// Defects, in the order in which they are reported.
    pub findings: Vec<Finding>,
    /// Facts, claims and calls that were checked.
    pub examined: usize,
}

/// The result for a trace.
#[derive(Debug, Default)]
pub(crate) struct Review {
    /// By LLM span.
    pub llm_reviews: HashMap<Idx, SpanReview>,
    /// LLM spans with a call that may be wrong, where the text that could justify it is in an unsupported language.
    pub unread: HashSet<Idx>,
    /// Defects of the final answer by agent, for agents whose answer was examined.
    pub answer_findings: BTreeMap<usize, Vec<Finding>>,
    /// By agent, the number of compared facts and claims of the final answer, without facts that the request states.
    pub examined_in_answer: BTreeMap<usize, usize>,
    /// By agent, the names in lower case of the tools that the agent claims to have called and that were never called.
    falsely_claimed_tools: HashSet<(usize, String)>,
}

impl Review {
    /// The review of the trace, computed once.
    pub(crate) fn get(trace: &AgentTrace, memo: &Memo) -> Rc<Review> {
        memo.trace(|| {
            let attempts = CallAttempts::get(trace, memo);
            let mut reviewer = Reviewer {
                trace,
                memo,
                attempts: &attempts,
                history: TraceHistory::new(trace, &attempts, memo),
                requests: HashMap::new(),
                requires_source: HashMap::new(),
                first_calls: None,
                offered: HashMap::new(),
                called: None,
                first_code: HashMap::new(),
                agent_answers: trace.agents.iter().filter_map(|agent| agent.answer.as_deref()).collect(),
                checked_answers: 0,
                review: Review::default(),
            };
            reviewer.walk();
            let mut review = reviewer.review;
            let other_rows = wrong_row::find(trace, memo, &attempts);
            review
                .unread
                .extend(other_rows.iter().filter(|(_, finding)| finding.is_none()).map(|(at, _)| *at));
            let rows_with_finding = other_rows.into_iter().filter_map(|(at, finding)| Some((at, finding?)));
            let announced = review.missing_announced_calls(trace, memo).into_iter();
            let conduct = announced
                .chain(by_rule("contradicted_flag", contradicted_flag::find(trace, memo)))
                .chain(by_rule("wrong_identifier", wrong_identifier::find(trace, memo)))
                .chain(by_rule("wrong_row", rows_with_finding))
                .chain(CONDUCT_RULES.iter().flat_map(|rule| apply_rule(*rule, trace, memo, &attempts)))
                .chain(executed_placeholder::find(trace, memo, &attempts))
                .chain(unmet_confirmation::find(trace, memo));
            // Content that is not recorded or truncated may state the opposite.
            for (at, finding) in conduct.filter(|(at, _)| !trace.evidence(*at).is_partial()) {
                review.llm_reviews.entry(at).or_default().findings.push(finding);
            }
            for (at, finding) in Invented::cached(trace, memo).findings() {
                let entry = review.llm_reviews.entry(at).or_default();
                entry.examined += 1;
                entry.findings.push(finding.clone());
            }
            for (at, finding) in claimed_actions::find(trace, memo, &attempts) {
                let entry = review.llm_reviews.entry(at).or_default();
                entry.examined += 1;
                entry.findings.extend(finding);
            }
            for (at, finding) in skipped_lookups::find(trace, memo, &attempts) {
                if trace.evidence(at).is_partial() {
                    continue;
                }
                let findings = &mut review.llm_reviews.entry(at).or_default().findings;
                // An unsupported fact is the same failure and is more specific.
                if !findings.iter().any(|f| f.defect.is_some_and(Defect::is_unsupported)) {
                    findings.push(finding);
                }
            }
            for compared in contradicted::find(trace, memo, &attempts) {
                if compared.at.is_some_and(|at| trace.evidence(at).is_partial()) {
                    continue;
                }
                if compared.is_answer {
                    *review.examined_in_answer.entry(compared.agent).or_default() += 1;
                }
                if let Some(at) = compared.at {
                    let entry = review.llm_reviews.entry(at).or_default();
                    entry.examined += 1;
                    entry.findings.extend(compared.findings.iter().cloned());
                }
                if !compared.is_answer {
                    continue;
                }
                let span_id = compared.at.and_then(|at| trace.tree.spans.get(at)).map(|span| span.id);
                let findings = compared.findings.into_iter().map(|f| Finding { seen_in: span_id, ..f });
                review.answer_findings.entry(compared.agent).or_default().extend(findings);
            }
            // A patch or an action counts as the answer, so that its findings are also findings of the answer.
            let outcomes = contradicted_number::find(trace, memo, &attempts).into_iter();
            let outcomes = outcomes.chain(guess_as_fact::find(trace, memo));
            let outcomes = outcomes.chain(exceeded_limit::find(trace, memo, &attempts));
            for (agent, at, finding) in outcomes.chain(invented_patch_context::find(trace, memo)) {
                review.llm_reviews.entry(at).or_default().findings.push(finding.clone());
                let span_id = trace.tree.spans.get(at).map(|span| span.id);
                let finding = span_id.map(|id| Finding { seen_in: span_id, ..finding.citing(id) });
                review.answer_findings.entry(agent).or_default().extend(finding);
            }
            review.specify_answers(trace);
            review
        })
    }

    /// Replaces each finding on an answer by the most specific finding on the same statement at its model span.
    fn specify_answers(&mut self, trace: &AgentTrace) {
        let mut findings_by_span: HashMap<SpanId, Vec<&mut Finding>> = HashMap::new();
        let findings = self.answer_findings.values_mut().flatten();
        for finding in findings.filter(|finding| finding.generality().is_some()) {
            if let Some(span_id) = finding.seen_in {
                findings_by_span.entry(span_id).or_default().push(finding);
            }
        }
        if findings_by_span.is_empty() {
            return;
        }
        for (at, entry) in &self.llm_reviews {
            let span_id = trace.tree.spans.get(*at).map(|span| span.id);
            let answer_findings = span_id.and_then(|id| findings_by_span.get_mut(&id));
            for finding in answer_findings.into_iter().flatten() {
                let specific = entry.findings.iter().filter(|other| finding.is_implied_by(other));
                if let Some(specific) = specific.min_by_key(|other| other.generality()) {
                    **finding = Finding { seen_in: span_id, ..specific.clone() };
                }
            }
        }
    }
}

/// A text for the reader.
struct ReaderAnswer<'t, 'a> {
    agent: usize,
    at: Idx,
    answer: &'t str,
    view: Option<&'a SpanView>,
    /// The request that the text answers, if that is not the task of the agent.
    asked: Option<&'a Text>,
}

/// How many facts of an answer were compared with the evidence.
#[derive(Clone, Copy, Default)]
struct ExaminedFacts {
    all: usize,
    /// The examined facts that the request does not state.
    beyond_request: usize,
}

/// The state of the walk over a trace.
struct Reviewer<'a> {
    trace: &'a AgentTrace,
    memo: &'a Memo,
    attempts: &'a CallAttempts,
    history: TraceHistory<'a>,
    requests: HashMap<usize, Rc<TaskDemands>>,
    /// Whether an agent's instructions require a source for every answer.
    requires_source: HashMap<usize, bool>,
    /// The start of the first call of each tool, by the nouns that mean the tool.
    first_calls: Option<(ToolsByNoun, ToolsAsNouns)>,
    /// By agent, the indices of the tools that it was offered.
    offered: HashMap<usize, ToolsByNoun>,
    /// The index of the first call of each tool.
    called: Option<ToolsByNoun>,
    /// By agent, its first output with code.
    first_code: HashMap<usize, Option<Idx>>,
    /// The answers of all agents: in a group chat, the prompts of other agents repeat them as user messages.
    agent_answers: HashSet<&'a str>,
    /// The number of answers whose facts were checked.
    checked_answers: usize,
    review: Review,
}

impl<'a> Reviewer<'a> {
    /// Reviews all model spans and answers.
    fn walk(&mut self) {
        self.review_repeats();
        let (mut by_final_span, mut without_span) = (HashMap::new(), Vec::new());
        for (i, agent) in self.trace.agents.iter().enumerate() {
            match final_span(self.trace, agent) {
                Some(at) => _ = by_final_span.insert(at, i),
                None => without_span.push(i),
            }
        }
        for (at, view) in self.trace.views.iter().enumerate() {
            if view.kind == Kind::Llm && !view.wrapper && view.output_content == Content::Present {
                self.review_span(at, view, by_final_span.get(&at).copied());
            }
        }
        without_span.into_iter().for_each(|i| self.review_answer_without_span(i));
        self.review_empty_endings();
    }

    /// Adds a finding on each run that ends without an answer, in an output with neither text nor a call.
    fn review_empty_endings(&mut self) {
        if self.trace.incomplete {
            return;
        }
        for agent in &self.trace.agents {
            let has_answer = agent.answer.as_ref().is_some_and(|a| !a.trim().is_empty());
            let Some(&last) =
                agent.llms.last().filter(|_| !has_answer && agent.answer_content == Content::Present)
            else {
                continue;
            };
            if agent_index::is_group_chat_turn(self.trace, self.memo, agent) {
                continue;
            }
            let Some(view) = self.trace.views.get(last) else { continue };
            let is_empty = view.output.iter().flat_map(|m| &m.parts).all(|p| match p {
                Part::Text(t) => t.trim().is_empty(),
                Part::Reasoning(_) => true,
                _ => false,
            });
            if is_empty && view.output_content == Content::Present && view.errors.is_empty() {
                // The output has no text to quote. The finding quotes the request, or else the finish reason.
                let quote = agent.task.as_deref().map(str::trim).filter(|t| !t.is_empty());
                let quote = quote.or(view.finish.first().map(|f| &**f)).unwrap_or("no output");
                let rationale = "an answer to the request, or another call, was expected; this output has neither \
                                 text nor a call, and the run ended with it";
                let entry = self.review.llm_reviews.entry(last).or_default();
                entry.findings.push(Defect::EmptyAnswer.finding(rationale, quote));
            }
        }
    }

    /// Adds a finding on each unchanged repetition of a failed call, at the model span that requested it.
    fn review_repeats(&mut self) {
        // Only a call of an agent with an earlier failed call can be such a repetition.
        let mut agents_with_failure: HashSet<Option<usize>> = HashSet::new();
        for (i, call) in self.trace.calls.iter().enumerate() {
            let Some(attempt) = self.attempts.at(i).filter(|a| a.key.is_some() && !a.is_control) else {
                continue;
            };
            if let Some(llm) = author(self.trace, i).filter(|_| agents_with_failure.contains(&call.agent)) {
                self.review.llm_reviews.entry(llm).or_default().examined += 1;
            }
            if attempt.failed() {
                agents_with_failure.insert(call.agent);
            }
        }
        for repeat in &self.attempts.repeats {
            let (Some(llm), Some(call)) =
                (author(self.trace, repeat.call), self.trace.calls.get(repeat.call))
            else {
                continue;
            };
            let rationale = format!(
                "a changed call or another approach was expected; {} was called again with the same arguments after that \
                 call had failed, {} times so far",
                call.name.trim(),
                repeat.nth
            );
            let spans = [Some(call.at), self.trace.calls.get(repeat.first).map(|c| c.at)];
            let finding = Defect::RepeatedFailingCall.finding(rationale, quoted(call));
            let mut finding = spans.into_iter().flatten().fold(finding, |f, at| f.citing_at(self.trace, at));
            // All repetitions are one failure, whose category is set on the last one, or on its tool span.
            if call.tool.is_some() || self.attempts.last_repeat(repeat.call).is_none() {
                finding.category = None;
            }
            // As on the tool's span: a single repetition does no harm to a user who is told of the failure.
            if repeat.nth < MIN_REPEATED_FAILURES {
                finding = recovery::graded_in(self.trace, self.memo, call, finding);
            }
            self.review.llm_reviews.entry(llm).or_default().findings.push(finding);
        }
    }

    fn request(&mut self, agent: usize) -> Rc<TaskDemands> {
        let request = || match agent_index::task(self.trace, agent) {
            Some(task) => TaskDemands::cached(task, self.memo),
            None => Rc::new(TaskDemands::new("", self.memo)),
        };
        self.requests.entry(agent).or_insert_with(request).clone()
    }

    /// Whether an agent's task or its instructions require a source.
    fn wants_source(&mut self, agent: usize) -> bool {
        let instructions = || agent_index::instructions(self.trace, agent);
        let memo = self.memo;
        let required = || instructions().is_some_and(|text| request::demands_source(text, memo));
        self.request(agent).source().is_some() || *self.requires_source.entry(agent).or_insert_with(required)
    }

    /// Checks the output of a model span, which is the final answer of `answered_agent` if there is one.
    fn review_span(&mut self, at: Idx, view: &'a SpanView, answered_agent: Option<usize>) {
        let counts = self.history.call_counts(end_of(self.trace, at));
        let answer =
            answered_agent.and_then(|agent| Some((agent, final_answer(&self.trace.control_tools, view)?)));
        let mut output = view.output_text();
        if let Some((_, answer)) = answer.as_ref().filter(|(_, a)| !output.contains(a.as_str())) {
            output += "\n";
            output += answer.as_str();
        }
        let output = clip(&output, MAX_ANSWER);
        let mut findings = Vec::new();
        let claims = self.check_claims(at, view, output, counts, &mut findings);
        let facts = match &answer {
            Some((agent, answer)) => {
                let given = ReaderAnswer { agent: *agent, at, answer, view: Some(view), asked: None };
                self.check_answer(&given, counts, &mut findings)
            }
            None => self.check_turn(at, view, counts, &mut findings),
        };
        let examined = claims + facts.all;
        if let Some(agent) = answer.map(|(agent, _)| agent).filter(|_| examined > 0) {
            // The quotes of these findings are in this span.
            let span_id = self.trace.tree.spans.get(at).map(|span| span.id);
            let answer_findings = findings.iter().cloned().map(|f| Finding { seen_in: span_id, ..f });
            self.review.answer_findings.insert(agent, answer_findings.collect());
            self.review.examined_in_answer.insert(agent, claims + facts.beyond_request);
        }
        if examined > 0 || !findings.is_empty() {
            let entry = self.review.llm_reviews.entry(at).or_default();
            entry.examined += examined;
            entry.findings.extend(findings);
        }
    }

    /// Checks an answer that is in the output of no model span.
    fn review_answer_without_span(&mut self, i: usize) {
        let Some(agent) = self.trace.agents.get(i) else { return };
        let Some(answer) = agent.answer.as_ref() else { return };
        let has_output = |view: &SpanView| view.output_content == Content::Present && !view.output.is_empty();
        // If the outputs of model spans are recorded, the answer was composed by means that are not, such as code.
        if agent.llms.iter().filter_map(|at| self.trace.views.get(*at)).any(has_output) {
            return;
        }
        // An agent that only executes calls may answer with the result of one.
        let result_of = |i: &usize| self.trace.calls.get(*i).and_then(|call| call.result.as_deref());
        let is_answer = |result: &str| result.contains(answer.trim()) || answer.contains(result.trim());
        let subtree_calls = agent_index::subtree_calls(self.trace, self.memo, i);
        if subtree_calls
            .iter()
            .rev()
            .take(MAX_RETURNED_RESULTS)
            .filter_map(result_of)
            .any(|r| !r.trim().is_empty() && is_answer(r))
        {
            return;
        }
        let counts = self.history.call_counts(end_of(self.trace, agent.at));
        let mut findings = Vec::new();
        let answer = clip(answer, MAX_ANSWER);
        let given = ReaderAnswer { agent: i, at: agent.at, answer, view: None, asked: None };
        let facts = self.check_answer(&given, counts, &mut findings);
        if facts.all > 0 {
            self.review.answer_findings.insert(i, findings);
            self.review.examined_in_answer.insert(i, facts.beyond_request);
        }
    }
}
