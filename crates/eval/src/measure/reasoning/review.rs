//! One walk over a trace that judges what its models said.
//!
//! In: a trace. Out: the [`Review`], findings by LLM span and by agent (for `completeness`, which
//! asks whether an agent's answer rests on anything). Done once a trace; metrics read from it.

use std::collections::BTreeMap;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::{Idx, Kind};

use super::answer::{MAX_ANSWER, final_answer, masked};
use super::answer_span::final_span;
use super::claims::{Claim, claims, is_calculator, noun_means_tool};
use super::history::{CallCounts, History};
use super::prefilter::Prefilter;
use super::unsupported_facts::{CallsBefore, check};
use super::{
    contradicted, dropped_filter, invented_patch_context, missing_announced_call, no_progress,
    skipped_lookups,
};
use crate::measure::agent::agent_index;
use crate::measure::agent::attempts::{Attempts, author, quoted};
use crate::measure::agent::request::{self, Ask, Request};
use crate::measure::conversation::{has_pasted_text, results_in_prompt};
use crate::measure::defects::{Defect, clip};
use crate::measure::excerpt::head;
use crate::measure::{Finding, Memo};
use crate::recognise::{AgentTrace, Content, Part, SpanView};

/// Most answers whose facts are judged in one trace: each may have to search all evidence.
const MAX_ANSWERS: usize = 512;
/// Calls whose names a claim's noun is compared with.
const MAX_CALLS: usize = 2000;
/// Calls cited by a finding about an answer.
const MAX_CITED: usize = 4;

/// What was found on one LLM span.
#[derive(Debug, Default)]
pub(crate) struct SpanReview {
    /// Defects, in the order found.
    pub findings: Vec<Finding>,
    /// Something was there to be held against something.
    pub examined: bool,
}

/// What was found in a trace.
#[derive(Debug, Default)]
pub(crate) struct Review {
    /// By LLM span.
    pub of_llm: HashMap<Idx, SpanReview>,
    /// By agent: why its final answer rests on nothing. Only agents whose answer was examined.
    pub of_answer: BTreeMap<usize, Vec<Finding>>,
}

impl Review {
    /// That of the trace, computed once.
    pub(crate) fn get(trace: &AgentTrace, memo: &Memo) -> Rc<Review> {
        memo.trace(|| {
            let attempts = Attempts::get(trace, memo);
            let mut reviewer = Reviewer {
                trace,
                memo,
                attempts: &attempts,
                history: History::new(trace, &attempts),
                requests: HashMap::new(),
                standing: HashMap::new(),
                answers: 0,
                review: Review::default(),
            };
            reviewer.walk();
            let mut review = reviewer.review;
            let conduct = skipped_lookups::find(trace, memo, &attempts)
                .into_iter()
                .chain(missing_announced_call::find(trace, memo))
                .chain(contradicted::find(trace, memo, &attempts))
                .chain(dropped_filter::find(trace, memo))
                .chain(no_progress::find(trace, memo));
            for (at, finding) in conduct {
                review.of_llm.entry(at).or_default().findings.push(finding);
            }
            for (agent, at, finding) in invented_patch_context::find(trace, memo) {
                review.of_llm.entry(at).or_default().findings.push(finding.clone());
                // The answer is that patch.
                let place = trace.tree.spans.get(at).map(|span| span.id);
                let placed = place.map(|id| Finding { seen_in: place, ..finding.citing(id) });
                review.of_answer.entry(agent).or_default().extend(placed);
            }
            review
        })
    }
}

struct Reviewer<'a> {
    trace: &'a AgentTrace,
    memo: &'a Memo,
    attempts: &'a Attempts,
    history: History<'a>,
    requests: HashMap<usize, Rc<Request>>,
    /// Whether an agent's instructions demand a source of every answer.
    standing: HashMap<usize, bool>,
    answers: usize,
    review: Review,
}

impl<'a> Reviewer<'a> {
    fn walk(&mut self) {
        self.repeats();
        let mut finals: HashMap<Idx, usize> = HashMap::new();
        let mut unseen_answers = Vec::new();
        for (i, agent) in self.trace.agents.iter().enumerate() {
            match final_span(self.trace, agent) {
                Some(at) => {
                    finals.insert(at, i);
                }
                None => unseen_answers.push(i),
            }
        }
        for (at, view) in self.trace.views.iter().enumerate() {
            if view.kind == Kind::Llm && !view.wrapper && view.output_content == Content::Present {
                self.review_span(at, view, finals.get(&at).copied());
            }
        }
        for i in unseen_answers {
            self.unseen_answers(i);
        }
        self.silent_endings();
    }

    /// Runs that ended without an answer because the last model call gave neither text nor a call.
    fn silent_endings(&mut self) {
        if self.trace.incomplete {
            return;
        }
        for agent in &self.trace.agents {
            let answered = agent.answer.as_ref().is_some_and(|a| !a.trim().is_empty());
            let Some(&last) =
                agent.llms.last().filter(|_| !answered && agent.answer_content == Content::Present)
            else {
                continue;
            };
            let Some(view) = self.trace.views.get(last) else { continue };
            let silent = view.output.iter().flat_map(|m| &m.parts).all(|p| match p {
                Part::Text(t) => t.trim().is_empty(),
                Part::Reasoning(_) => true,
                _ => false,
            });
            if silent && view.output_content == Content::Present && view.errors.is_empty() {
                // Of silence there is nothing to quote but what was asked, or how the call ended.
                let asked = agent.task.as_deref().map(str::trim).filter(|t| !t.is_empty());
                let asked = asked.or(view.finish.first().map(|f| &**f)).unwrap_or("no output");
                let rationale = "an answer to the request, or a call towards it, was expected; this output has \
                                 neither text nor a call, and the run ended with it";
                let entry = self.review.of_llm.entry(last).or_default();
                entry.findings.push(Defect::EmptyAnswer.finding(rationale, asked));
            }
        }
    }

    /// Failed calls made again unchanged, on the model span that asked for them.
    fn repeats(&mut self) {
        for call in 0..self.trace.calls.len() {
            let compared = self.attempts.at(call).is_some_and(|a| a.key.is_some() && !a.is_control);
            if let (true, Some(llm)) = (compared, author(self.trace, call)) {
                self.review.of_llm.entry(llm).or_default().examined = true;
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
            // The waste is one, and complete at its end; each repetition before is part of it. Where
            // the call has a span, the end is there.
            if call.tool.is_some() || self.attempts.ending(repeat.call).is_none() {
                finding.category = None;
            }
            self.review.of_llm.entry(llm).or_default().findings.push(finding);
        }
    }

    fn request(&mut self, agent: usize) -> Rc<Request> {
        let (trace, memo) = (self.trace, self.memo);
        let request = self.requests.entry(agent).or_insert_with(|| match agent_index::task(trace, agent) {
            Some(task) => Request::of(task, memo),
            None => Rc::new(Request::new("")),
        });
        request.clone()
    }

    /// Whether an agent's task, or its instructions, demand a source.
    fn wants_source(&mut self, agent: usize) -> bool {
        self.request(agent).asks(Ask::Source)
            || *self.standing.entry(agent).or_insert_with(|| {
                agent_index::instructions(self.trace, agent)
                    .and_then(|text| request::standing(text))
                    .is_some()
            })
    }

    fn review_span(&mut self, at: Idx, view: &'a SpanView, finishes: Option<usize>) {
        let end = self.trace.tree.spans.get(at).map_or(0, |s| s.end.max(s.start));
        let counts = self.history.call_counts(end);
        let answer = finishes.and_then(|agent| Some((agent, final_answer(&self.trace.control_tools, view)?)));
        let mut said = view.output_text();
        let mut may_claim = Prefilter::of(self.trace, self.memo).may_match(self.trace, at);
        if let Some((_, answer)) = answer.as_ref().filter(|(_, a)| !said.contains(a.as_str())) {
            said += "\n";
            said += answer.as_str();
            may_claim = true;
        }
        let said = clip(&said, MAX_ANSWER);
        let mut findings = Vec::new();
        let mut examined = may_claim && self.check_claims(at, view, said, counts, &mut findings);
        if let Some((agent, answer)) = &answer {
            examined |= self.check_answer(*agent, at, answer, Some(view), counts, &mut findings);
        }
        if let Some(agent) = answer.map(|(agent, _)| agent).filter(|_| examined) {
            // What the answer says stands in this span's words.
            let place = self.trace.tree.spans.get(at).map(|span| span.id);
            let placed = findings.iter().cloned().map(|f| Finding { seen_in: place, ..f });
            self.review.of_answer.insert(agent, placed.collect());
        }
        if examined || !findings.is_empty() {
            let entry = self.review.of_llm.entry(at).or_default();
            entry.examined |= examined;
            entry.findings.extend(findings);
        }
    }

    /// An agent whose answer is known though no model span shows it.
    fn unseen_answers(&mut self, i: usize) {
        let Some(agent) = self.trace.agents.get(i) else { return };
        let Some(answer) = agent.answer.as_ref() else { return };
        let shown = |at: &Idx| {
            self.trace
                .views
                .get(*at)
                .is_some_and(|r| r.output_content == Content::Present && !r.output.is_empty())
        };
        // Where model spans do show their output, the answer was made in a way not followed here
        // (code, a function): nothing can be concluded.
        if agent.llms.iter().any(shown) {
            return;
        }
        let end = self.trace.tree.spans.get(agent.at).map_or(0, |s| s.end.max(s.start));
        let counts = self.history.call_counts(end);
        let mut findings = Vec::new();
        if self.check_answer(i, agent.at, clip(answer, MAX_ANSWER), None, counts, &mut findings) {
            self.review.of_answer.insert(i, findings);
        }
    }

    /// Holds an answer's facts against the evidence; true when there was something to hold.
    fn check_answer(
        &mut self,
        agent: usize,
        at: Idx,
        answer: &str,
        view: Option<&'a SpanView>,
        counts: CallCounts,
        findings: &mut Vec<Finding>,
    ) -> bool {
        let request = self.request(agent);
        let has_tools = self.has_tools(agent, view);
        let grounded = counts.calls > 0 || (has_tools && self.wants_source(agent));
        if !grounded || !request.wants_found_facts() || self.answers >= MAX_ANSWERS {
            return false;
        }
        if !self.sees_everything(agent, view, counts) {
            return false;
        }
        self.answers += 1;
        self.history.read_until(at);
        if let Some(task) = agent_index::task(self.trace, agent) {
            self.history.evidence.add(task, super::evidence::Source::Conversation);
        }
        let situation = CallsBefore { attempted: counts.calls > 0, succeeded: counts.succeeded > 0 };
        let checked = check(answer, &request, &mut self.history.evidence, situation);
        checked.unsupported.iter().for_each(|v| self.history.evidence.taint(*v));
        let cited = self.last_calls(agent, at);
        findings.extend(checked.findings.into_iter().map(|f| cited.iter().copied().fold(f, Finding::citing)));
        checked.examined > 0
    }

    /// The spans of the agent's last calls before `at`: where the fact should have come from.
    fn last_calls(&self, agent: usize, at: Idx) -> Vec<verdict_otlp::trace::SpanId> {
        let Some(agent) = self.trace.agents.get(agent) else { return Vec::new() };
        let end = self.trace.tree.spans.get(at).map_or(0, |s| s.end);
        let calls = agent.calls.iter().rev().filter_map(|i| {
            let call = self.trace.calls.get(*i)?;
            let world = self.attempts.at(*i).is_some_and(|a| !a.is_control);
            (world && call.start <= end && call.at != at).then_some(call.at)
        });
        let ids = calls.filter_map(|at| self.trace.tree.spans.get(at)).map(|s| s.id);
        ids.take(MAX_CITED).collect()
    }

    fn has_tools(&self, agent: usize, view: Option<&SpanView>) -> bool {
        let shown = self.trace.agents.get(agent).is_some_and(|a| !a.tools.is_empty());
        shown || view.is_some_and(|r| !r.tools.is_empty()) || self.history_shows_tools(agent)
    }

    /// Instructions that speak of tools, where the instrumentation does not list them.
    fn history_shows_tools(&self, agent: usize) -> bool {
        agent_index::instructions(self.trace, agent)
            .is_some_and(|t| t.contains("tools") || t.contains("Tools") || t.contains(" tool "))
    }

    /// Whether everything that the model could have seen is there to be read: no result missing,
    /// no picture or file among the messages.
    fn sees_everything(&self, agent: usize, view: Option<&SpanView>, counts: CallCounts) -> bool {
        let Some(view) = view else {
            return counts.unknown == 0 && agent_index::task(self.trace, agent).is_some();
        };
        if view.input_content != Content::Present {
            return counts.unknown == 0 && agent_index::task(self.trace, agent).is_some();
        }
        let parts = || view.input.iter().flat_map(|m| &m.parts);
        let media = parts().any(|p| matches!(p, Part::Media));
        let results = parts().filter(|p| matches!(p, Part::Result { .. })).count();
        !media && (counts.unknown == 0 || results >= counts.calls)
    }

    /// Claims of work in what was said; true when there was one to judge.
    fn check_claims(
        &mut self,
        at: Idx,
        view: &SpanView,
        said: &str,
        counts: CallCounts,
        findings: &mut Vec<Finding>,
    ) -> bool {
        let prose = masked(said);
        let found = claims(&prose);
        if found.is_empty() || view.input_content != Content::Present {
            return false;
        }
        let Some(agent) = self.trace.owner.get(at).copied().flatten() else { return false };
        let in_play =
            !self.trace.calls.is_empty() || self.has_tools(agent, Some(view)) || self.wants_source(agent);
        let coded = self.writes_code(agent, at);
        let mut examined = false;
        for claim in found {
            let unfounded = match claim.tool.and_then(|noun| self.known_tool(noun, agent)) {
                Some(tool) => {
                    examined = true;
                    let used = self.was_called(&tool, view, at) || (coded && is_calculator(&tool));
                    (!used).then(|| format!("but {tool} was never called"))
                }
                // "found using Bayes": no tool, no claim.
                None if claim.tool.is_some() || !in_play || coded || has_pasted_text(&view.input) => None,
                None => {
                    examined = true;
                    let told = results_in_prompt(&view.input);
                    if told == 0 && counts.calls == 0 {
                        Some("but no tool had been called at all".to_owned())
                    } else if counts.succeeded == 0 && counts.unknown == 0 && told <= counts.calls {
                        Some("but every call before it had failed".to_owned())
                    } else {
                        None
                    }
                }
            };
            if let Some(why) = unfounded {
                findings.push(claim_finding(&claim, &why));
            }
        }
        examined
    }

    /// The tool that a claim's noun means: one that the agent was shown or anybody called, or a
    /// calculator, which needs no listing to be recognised as a tool.
    fn known_tool(&self, noun: &str, agent: usize) -> Option<String> {
        let shown = self.trace.agents.get(agent).map(|a| a.tools.as_slice()).unwrap_or_default();
        let names =
            shown.iter().map(|t| &*t.name).chain(self.trace.calls.iter().take(MAX_CALLS).map(|c| &*c.name));
        let known = names.into_iter().find(|name| noun_means_tool(noun, name)).map(str::to_owned);
        known.or_else(|| is_calculator(noun).then(|| "calculator".to_owned()))
    }

    /// Whether `tool`, or one whose name says the same, was called before the span `at` ended.
    fn was_called(&self, tool: &str, view: &SpanView, at: Idx) -> bool {
        let end = self.trace.tree.spans.get(at).map_or(0, |s| s.end.max(s.start));
        let same = |name: &str| noun_means_tool(tool, name) || noun_means_tool(name, tool);
        let calculates = |name: &str| {
            let name = name.to_ascii_lowercase();
            is_calculator(tool)
                && [
                    "calc",
                    "math",
                    "python",
                    "code",
                    "interpreter",
                    "eval",
                    "compute",
                    "arith",
                    "wolfram",
                    "exec",
                ]
                .iter()
                .any(|w| name.contains(w))
        };
        let before = self.trace.calls.iter().take_while(|c| c.start <= end);
        let told = view.input.iter().flat_map(|m| &m.parts).filter_map(|p| match p {
            Part::Call(c) => Some(&*c.name),
            Part::Result { name: Some(name), .. } => Some(&**name),
            _ => None,
        });
        before.map(|c| &*c.name).chain(told).any(|n| same(n) || calculates(n))
    }

    /// The agent acts by code that it writes: what that code did is not to be seen as calls.
    fn writes_code(&self, agent: usize, until: Idx) -> bool {
        let Some(agent) = self.trace.agents.get(agent) else { return false };
        agent.llms.iter().take_while(|at| **at < until).filter_map(|at| self.trace.views.get(*at)).any(|r| {
            r.output.iter().flat_map(|m| &m.parts).any(|p| match p {
                Part::Text(t) => t.contains("<code>") || t.contains("```"),
                _ => false,
            })
        })
    }
}

fn claim_finding(claim: &Claim<'_>, why: &str) -> Finding {
    let rationale = format!(
        "a claim of work that was done was expected; this claims \"{}\", {why}",
        head(claim.words, 100)
    );
    Defect::FalseClaim.finding(rationale, claim.sentence)
}
