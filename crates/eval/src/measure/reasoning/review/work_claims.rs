//! Checks the claims of work in the outputs of models: a call of the named tool, or of any that can support the claim.
//!
//! Principle: a claim of work needs a call that can be this work; of a named tool, a call of that tool. Work that
//! leaves no call, such as reasoning, is not compared.

use verdict_otlp::trace::Idx;

use super::{MAX_CALLS, Reviewer};
use crate::measure::Finding;
use crate::measure::avoidance::mentions_lack;
use crate::measure::calls::call_index::CallIndex;
use crate::measure::conversation::{has_pasted_text, plain_text, results_in_prompt, runs_code, writes_code};
use crate::measure::defects::Defect;
use crate::measure::excerpt::head;
use crate::measure::language::{ReadText, WordClass};
use crate::measure::reasoning::answer::{masked, sentences};
use crate::measure::reasoning::claims::{ToolsAsNouns, ToolsByNoun, claims, noun_means_tool};
use crate::measure::reasoning::history::{CallCounts, end_of};
use crate::recognise::{Call, Content, Part, SpanView, Text};

// The host of a link.
regex!(HOST, r"(?i)https?://(?:www\.)?([a-z0-9-]+(?:\.[a-z0-9-]+)+)");
/// Bytes of the result of failed code from which on it may have printed more than the error.
const PARTIAL_OUTPUT: usize = 1_500;

/// A sentence of the prose as it is in the output: links are masked in the prose, and positions are the same.
fn text_in_output<'o>(prose: &str, output: &'o str, sentence: &str) -> Option<&'o str> {
    let from = sentence.as_ptr().addr().checked_sub(prose.as_ptr().addr())?;
    let place = from..from.checked_add(sentence.len())?;
    output.get(place.clone()).filter(|_| prose.get(place) == Some(sentence))
}

impl<'a> Reviewer<'a> {
    /// Checks the claims of work in an output; the number of claims that were checked.
    pub(super) fn check_claims(
        &mut self,
        at: Idx,
        view: &SpanView,
        output: &str,
        counts: CallCounts,
        findings: &mut Vec<Finding>,
    ) -> usize {
        let prose = masked(output);
        let found = claims(&prose, self.memo);
        if found.is_empty() || view.input_content != Content::Present {
            return 0;
        }
        let Some(agent) = self.trace.owner.get(at).copied().flatten() else { return 0 };
        let uses_tools =
            !self.trace.calls.is_empty() || self.has_tools(agent, Some(view)) || self.wants_source(agent);
        let coded = self.writes_code(agent, at);
        let mut examined = 0;
        let mut false_sentence = "";
        for claim in found {
            // A sentence is one claim, with the tool that it names or without.
            if claim.sentence == false_sentence {
                continue;
            }
            let unfounded = match claim.tool.as_deref().and_then(|noun| self.known_tool(noun, agent)) {
                Some(tool) => {
                    examined += 1;
                    // Calls within code are not recorded.
                    let used = coded || self.was_called(&tool, view, at);
                    if !used {
                        self.review.add_claimed(agent, &tool);
                    }
                    (!used).then(|| format!("but {tool} was never called"))
                }
                // "found using Bayes" names no tool, so it is no claim of a call.
                None if claim.tool.is_some() || !uses_tools || coded || self.has_pasted_text(view) => None,
                None => {
                    examined += 1;
                    let results = results_in_prompt(&view.input);
                    let only_failed = counts.succeeded == 0
                        && counts.unknown == 0
                        && results <= counts.calls
                        && !self.shows_partial_output();
                    match results == 0 && counts.calls == 0 {
                        true => Some("but no tool had been called at all".to_owned()),
                        false if only_failed && self.admits_failure(&prose, claim.sentence) => None,
                        false if only_failed => Some("but every call before it had failed".to_owned()),
                        false => self.unopened(&prose, output, claim.sentence, at, counts),
                    }
                }
            };
            findings.extend(unfounded.map(|reason| {
                false_sentence = claim.sentence;
                let written = text_in_output(&prose, output, claim.sentence).unwrap_or(claim.sentence);
                let words = head(written, 100);
                let rationale = format!("a call that supports the claim \"{words}\" was expected, {reason}");
                Defect::FalseClaim.finding(rationale, written).by_rule("work_claims")
            }));
        }
        examined
    }

    /// Whether the sentence of a claim admits that the attempt failed ("I checked the website, but it cannot be
    /// reached"): it then claims no success.
    fn admits_failure(&self, prose: &str, claim: &str) -> bool {
        let at = claim.as_ptr().addr().checked_sub(prose.as_ptr().addr());
        let around = sentences(prose)
            .into_iter()
            .find(|(start, end)| at.is_some_and(|at| (*start..*end).contains(&at)));
        let sentence = around.and_then(|(start, end)| prose.get(start..end)).unwrap_or(claim);
        let read = ReadText::new(prose, None, self.memo).part(sentence);
        let denies = read.classes(sentence).has(WordClass::Contrast) && read.denies_something(self.memo);
        denies || mentions_lack(sentence, self.memo)
    }

    /// Whether code of the run failed after it had printed something: the model has read that.
    fn shows_partial_output(&self) -> bool {
        let results = self.trace.calls.iter().take(MAX_CALLS).filter(|call| runs_code(&call.name));
        results.filter_map(|call| call.result.as_deref()).any(|text| text.len() >= PARTIAL_OUTPUT)
    }

    fn has_pasted_text(&self, view: &SpanView) -> bool {
        has_pasted_text(&view.input, |text| self.written.contains(text))
    }

    /// Why a claim of reading is unfounded: the address in its sentence is in no call and in no result.
    fn unopened(
        &self,
        prose: &str,
        output: &str,
        sentence: &str,
        at: Idx,
        counts: CallCounts,
    ) -> Option<String> {
        let host = HOST.captures(text_in_output(prose, output, sentence)?)?.get(1)?.as_str();
        let end = end_of(self.trace, at);
        let earlier_calls = self.trace.calls.iter().take_while(|call| call.start <= end).take(MAX_CALLS);
        let is_in = |text: &Text| {
            let lower = text.to_lowercase();
            lower.contains(&host.to_lowercase())
        };
        let has = |call: &Call| [&call.arguments, &call.result].into_iter().flatten().any(is_in);
        let bytes: usize =
            earlier_calls.clone().filter_map(|call| call.result.as_ref()).map(|text| text.len()).sum();
        let is_read = counts.unknown == 0 && self.memo.budget.spend(1 + bytes / 8);
        let opened = !is_read
            || earlier_calls.clone().any(has)
            || earlier_calls.clone().any(|call| call.arguments.is_none());
        (!opened).then(|| format!("but {host} is in no call and in no result"))
    }

    /// The tool that a claim's noun means: one that the agent was offered or that was called.
    fn known_tool(&mut self, noun: &str, agent: usize) -> Option<String> {
        let calls = self.trace.calls.get(..MAX_CALLS).unwrap_or(&self.trace.calls);
        let offered = self.trace.agents.get(agent).map(|a| a.tools.as_slice()).unwrap_or_default();
        let by_noun = |names: &mut dyn Iterator<Item = &'a str>| ToolsByNoun::new(names.zip(0..));
        let index =
            self.offered.entry(agent).or_insert_with(|| by_noun(&mut offered.iter().map(|t| &*t.name)));
        if let Some(tool) = index.meant_by(noun).and_then(|n| offered.get(usize::try_from(n).ok()?)) {
            return Some(tool.name.to_string());
        }
        let index = self.called.get_or_insert_with(|| by_noun(&mut calls.iter().map(|call| &*call.name)));
        let call = index.meant_by(noun).and_then(|n| calls.get(usize::try_from(n).ok()?))?;
        Some(call.name.to_string())
    }

    /// Whether `tool`, or one with an equivalent name, was called before the span `at` ended.
    fn was_called(&mut self, tool: &str, view: &SpanView, at: Idx) -> bool {
        let end = end_of(self.trace, at);
        let is_meant = |name: &str| noun_means_tool(tool, name) || noun_means_tool(name, tool);
        let (by_noun, as_nouns) = self.first_calls.get_or_insert_with(|| {
            let names = CallIndex::cached(self.trace, self.memo);
            let first = || names.first_start.iter().map(|(name, start)| (&**name, *start));
            (ToolsByNoun::new(first()), ToolsAsNouns::new(first()))
        });
        let first = [by_noun.meant_by(tool), as_nouns.meaning(tool)].into_iter().flatten().min();
        let mut in_prompt = view.input.iter().flat_map(|m| &m.parts).filter_map(|p| match p {
            Part::Call(c) => Some(&*c.name),
            Part::Result { name: Some(name), .. } => Some(&**name),
            _ => None,
        });
        first.is_some_and(|start| start <= end) || in_prompt.any(is_meant)
    }

    /// Whether the agent wrote code before `until`; the work of that code is not recorded as calls.
    fn writes_code(&mut self, agent: usize, until: Idx) -> bool {
        // Where code is run by a tool, its outcome is a call's.
        if self.trace.calls.iter().take(MAX_CALLS).any(|call| runs_code(&call.name)) {
            return false;
        }
        let has_code = |text: &Text| writes_code(text);
        let writes = |at: &&Idx| {
            let outputs = self.trace.views.get(**at).into_iter().flat_map(|view| &view.output);
            outputs.flat_map(|message| &message.parts).filter_map(plain_text).any(has_code)
        };
        let first = || self.trace.agents.get(agent)?.llms.iter().find(writes).copied();
        self.first_code.entry(agent).or_insert_with(first).is_some_and(|at| at < until)
    }
}
