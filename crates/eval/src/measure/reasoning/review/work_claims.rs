//! Checks the claims of work in the outputs of models.
//!
//! Principle: a claim of work needs a call: of the named tool, or else of any tool. Work without calls, such as
//! reasoning, is not examined.

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

// Captures the host of a link.
regex!(HOST, r"(?i)https?://(?:www\.)?([a-z0-9-]+(?:\.[a-z0-9-]+)+)");
/// Minimum bytes of a result of failed code that may contain output printed before the error.
const MIN_PARTIAL_OUTPUT: usize = 1_500;

/// The unmasked text of a sentence: `prose` is `output` with masked links and the same byte positions.
fn text_in_output<'o>(prose: &str, output: &'o str, sentence: &str) -> Option<&'o str> {
    let from = sentence.as_ptr().addr().checked_sub(prose.as_ptr().addr())?;
    let range = from..from.checked_add(sentence.len())?;
    output.get(range.clone()).filter(|_| prose.get(range) == Some(sentence))
}

impl<'a> Reviewer<'a> {
    /// Checks the claims of work in an output, and returns the number of checked claims.
    pub(super) fn check_claims(
        &mut self,
        at: Idx,
        view: &SpanView,
        output: &str,
        counts: CallCounts,
        findings: &mut Vec<Finding>,
    ) -> usize {
        let prose = masked(output);
        let work_claims = claims(&prose, self.memo);
        if work_claims.is_empty() || view.input_content != Content::Present {
            return 0;
        }
        let Some(agent) = self.trace.owner.get(at).copied().flatten() else { return 0 };
        let uses_tools =
            !self.trace.calls.is_empty() || self.has_tools(agent, Some(view)) || self.wants_source(agent);
        let has_code = self.writes_code(agent, at);
        let mut examined = 0;
        let mut false_sentence = "";
        for claim in work_claims {
            // A sentence has at most one finding, even if it claims the use of a tool and of a source.
            if claim.sentence == false_sentence {
                continue;
            }
            let reason = match claim.tool.as_deref().and_then(|noun| self.known_tool(noun, agent)) {
                Some(tool) => {
                    examined += 1;
                    // Calls that code makes are not recorded.
                    let is_used = has_code || self.was_called(&tool, view, at);
                    if !is_used {
                        self.review.add_falsely_claimed_tool(agent, &tool);
                    }
                    (!is_used).then(|| format!("but {tool} was never called"))
                }
                // "found using Bayes" names no known tool, so that it is not a claim of a call.
                None if claim.tool.is_some() || !uses_tools || has_code || self.has_pasted_text(view) => None,
                None => {
                    examined += 1;
                    let results = results_in_prompt(&view.input);
                    let only_failed = counts.succeeded == 0
                        && counts.unknown == 0
                        && results <= counts.calls
                        && !self.has_partial_output();
                    match results == 0 && counts.calls == 0 {
                        true => Some("but no tool had been called at all".to_owned()),
                        false if only_failed && self.admits_failure(&prose, claim.sentence) => None,
                        false if only_failed => Some("but every call before it had failed".to_owned()),
                        false => self.unopened_host(&prose, output, claim.sentence, at, counts),
                    }
                }
            };
            findings.extend(reason.map(|reason| {
                false_sentence = claim.sentence;
                let quote = text_in_output(&prose, output, claim.sentence).unwrap_or(claim.sentence);
                let words = head(quote, 100);
                let rationale = format!("a call that supports the claim \"{words}\" was expected, {reason}");
                Defect::FalseClaim.finding(rationale, quote).by_rule("work_claims")
            }));
        }
        examined
    }

    /// Whether the sentence of a claim admits that the attempt failed, and thereby claims no success: "I checked the
    /// website, but it cannot be reached".
    fn admits_failure(&self, prose: &str, claim: &str) -> bool {
        let at = claim.as_ptr().addr().checked_sub(prose.as_ptr().addr());
        let enclosing = sentences(prose)
            .into_iter()
            .find(|(start, end)| at.is_some_and(|at| (*start..*end).contains(&at)));
        let sentence = enclosing.and_then(|(start, end)| prose.get(start..end)).unwrap_or(claim);
        let read = ReadText::new(prose, None, self.memo).part(sentence);
        let denies = read.classes(sentence).has(WordClass::Contrast) && read.denies_something(self.memo);
        denies || mentions_lack(sentence, self.memo)
    }

    /// Whether a result of code is so long that code which failed may have printed something before, which the model
    /// could read.
    fn has_partial_output(&self) -> bool {
        let results = self.trace.calls.iter().take(MAX_CALLS).filter(|call| runs_code(&call.name));
        results.filter_map(|call| call.result.as_deref()).any(|text| text.len() >= MIN_PARTIAL_OUTPUT)
    }

    fn has_pasted_text(&self, view: &SpanView) -> bool {
        has_pasted_text(&view.input, |text| self.agent_answers.contains(text))
    }

    /// The reason why a claim of reading is false: its sentence has a link whose host is in no earlier call or result.
    fn unopened_host(
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
        let may_be_opened = !is_read
            || earlier_calls.clone().any(has)
            || earlier_calls.clone().any(|call| call.arguments.is_none());
        (!may_be_opened).then(|| format!("but {host} is in no call and in no result"))
    }

    /// The offered or called tool that the noun of a claim means; `None` if it means no known tool.
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
        // Code that a tool executes is recorded as a call with a result.
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
