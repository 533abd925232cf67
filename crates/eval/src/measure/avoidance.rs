//! `avoidance` (001, table 1): is the output an answer, or was the question avoided?
//!
//! In: the output of a model call without tool calls. Out: `valid`, `missing_knowledge`,
//! `policy_restriction` or `other`. An answer is avoided only if it is short and every sentence in it is a
//! refusal, a statement of inability, or padding around one: "I could not find the page, but the almanac
//! says 836 m" is valid. A statement of inability after only failed calls keeps its label and passes, as
//! the calls are the cause. Patterns are English; other languages are valid.

use std::borrow::Cow;

use verdict_otlp::trace::{Idx, Kind};

use super::agent::attempts::CallAttempts;
use super::defects::{Defect, Findings, clip, unmeasured};
use super::error_detection::call_index::CallIndex;
use super::{Context, Measurement, Severity, Unmeasured};
use crate::recognise::{Content, SpanView, Text};

pub(crate) const NAME: &str = "avoidance";
const VALID: &str = "valid";
const KNOWLEDGE: &str = "missing_knowledge";
const POLICY: &str = "policy_restriction";
const OTHER: &str = "other";

/// Maximum bytes of a text without an answer.
const MAX_BYTES: usize = 1500;
/// Clauses at the beginning of a report in which an admission is looked for.
const ADMITTED_WITHIN: usize = 5;
/// Maximum clauses of a text without an answer.
const MAX_SENTENCES: usize = 14;

pub(crate) fn measure(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at).filter(|r| r.kind == Kind::Llm)?;
    if let Some(reason) = view.finish.iter().find(|f| is_filter(f)) {
        let mut findings = Findings::new();
        findings.push(
            Defect::Refusal
                .finding("an answer was expected; a content filter or a refusal ended the call", reason),
        );
        return Some(findings.labelled(context, NAME, POLICY));
    }
    if view.output_content != Content::Present {
        return Some(unmeasured(context.at, NAME, Unmeasured::NoContent));
    }
    let answer = final_answer(context);
    let said = view.output_text();
    let text = answer.as_deref().unwrap_or(&said);
    if text.trim().is_empty() || answer.is_none() && is_intermediate_step(view, text) {
        return Some(unmeasured(context.at, NAME, Unmeasured::NotApplicable));
    }
    let mut findings = Findings::new();
    let avoided = avoided(text, answer.is_some());
    let label = avoided.map_or(VALID, |(label, _)| label);
    if let Some((label, sentence)) = avoided {
        let (defect, rationale) = match label {
            POLICY => (Defect::Refusal, "an answer was expected; the request is refused instead"),
            KNOWLEDGE => (Defect::GiveUp, "an answer was expected; the output only says that it has none"),
            _ => (Defect::Evasion, "an answer was expected; the run stopped without one"),
        };
        findings.push(defect.finding(rationale, sentence));
    }
    let failed = Some(label).filter(|l| *l == KNOWLEDGE).and_then(|_| all_failed(context));
    let mut measurement = findings.labelled(context, NAME, label);
    if let (Some(call), Ok(measured)) = (failed, measurement.outcome.as_mut()) {
        // The statement is correct then; the failure is reported on the calls.
        measured.passed = true;
        for finding in &mut measured.findings {
            finding.rationale.push_str(", and every call before it had failed: the failure is theirs");
            finding.origin = Some(call);
            finding.severity = Severity::Low;
        }
    }
    Some(measurement)
}

/// The span of the agent's last call before this span, if there are calls and all of them failed.
fn all_failed(context: &Context<'_>) -> Option<Idx> {
    let agent = context.trace.agents.get(context.trace.owner.get(context.at).copied().flatten()?)?;
    let attempts = CallAttempts::get(context.trace, context.memo);
    let start = context.trace.tree.spans.get(context.at)?.start;
    let call = |i: &usize| context.trace.calls.get(*i).filter(|call| call.start <= start);
    let before = agent.calls.get(..agent.calls.partition_point(|i| call(i).is_some()))?;
    // The first call that did not fail is found once for each agent.
    let first = attempts.first_unfailed(agent.at, &agent.calls);
    if first.is_some_and(|first| call(&first).is_some()) {
        return None;
    }
    let last = before.iter().rev().find(|i| attempts.at(**i).is_some_and(|a| !a.is_control))?;
    call(last)?.tool
}

/// Finish reasons that mean the provider or the model refused.
fn is_filter(finish: &str) -> bool {
    ["content_filter", "content-filter", "refusal", "safety", "prohibited_content", "blocklist", "recitation"]
        .iter()
        .any(|reason| finish.eq_ignore_ascii_case(reason))
}

/// The final answer of an agent if this model call wrote it: as its text, or as the argument of a
/// final-answer tool.
fn final_answer(context: &Context<'_>) -> Option<Text> {
    let trace = context.trace;
    let agent = trace.agents.get(trace.owner.get(context.at).copied().flatten()?)?;
    let at = agent.answer_at?;
    let calls = CallIndex::of(trace, context.memo);
    let by_tool = calls.by_tool.get(&at).and_then(|&i| trace.calls.get(i));
    let wrote = at == context.at || by_tool.is_some_and(|call| call.llm == Some(context.at));
    if wrote { agent.answer.clone() } else { None }
}

/// Whether the output calls tools, or contains an action as text.
fn is_intermediate_step(view: &SpanView, text: &str) -> bool {
    view.requests().next().is_some()
        || text.contains("```")
        || text.contains("<code>")
        || text.contains("Action:")
        || text.trim_start().starts_with(['{', '[', '<'])
}

/// The kind of avoidance, with the sentence that shows it.
fn avoided(text: &str, is_final: bool) -> Option<(&'static str, &str)> {
    let text = text.trim();
    if text.len() > MAX_BYTES {
        return None;
    }
    let text = strip_lead(text);
    if is_final && NOTHING.is_match(text) {
        return Some((KNOWLEDGE, text));
    }
    let mut shown: Option<(&'static str, &str)> = None;
    for (i, clause) in clauses(text).enumerate() {
        if i >= MAX_SENTENCES {
            return None;
        }
        let plain = plain(clause);
        if !ANY.is_match(&plain) && plain.contains(char::is_alphabetic) {
            return None;
        }
        let label = if REFUSAL.is_match(&plain) {
            POLICY
        } else if LACK.is_match(&plain) {
            KNOWLEDGE
        } else if STOPPED.is_match(&plain) {
            OTHER
        } else {
            continue;
        };
        // A refusal for reasons of policy takes precedence over other clauses.
        if shown.is_none_or(|(seen, _)| seen != POLICY && label == POLICY) {
            shown = Some((label, clause));
        }
    }
    shown
}

/// Whether a final answer only states that there is none.
pub(crate) fn avoids(answer: &str) -> bool {
    avoided(answer, true).is_some()
}

/// A clause at the beginning of `text` that states that the searched item was not found. A long report of
/// the search may follow.
pub(crate) fn admits(text: &str) -> Option<&str> {
    let text = strip_lead(clip(text, MAX_BYTES).trim());
    if NOTHING.is_match(text) {
        return Some(text);
    }
    if !NEGATIVE.is_match(text) {
        return None;
    }
    clauses(text).take(ADMITTED_WITHIN).find(|clause| is_lack(clause))
}

/// Whether any clause of `text` states that the searched item was not found.
pub(crate) fn mentions_lack(text: &str) -> bool {
    let text = clip(text, MAX_BYTES);
    NEGATIVE.is_match(text) && clauses(text).any(is_lack)
}

/// The clause with ASCII apostrophes, as the patterns require.
fn plain(clause: &str) -> Cow<'_, str> {
    match clause.is_ascii() {
        true => Cow::Borrowed(clause),
        false => Cow::Owned(clause.replace(['\u{2019}', '\u{2018}'], "'")),
    }
}

/// Skips "Final answer:" and the like.
fn strip_lead(text: &str) -> &str {
    let mut text = text;
    for lead in ["Thought:", "FINAL ANSWER:", "Final Answer:", "Final answer:", "Answer:", "**Answer:**"] {
        text = text.strip_prefix(lead).map_or(text, str::trim_start);
    }
    text
}

regex!(
    CUT,
    r"(?i)[.!?]['\x22\u{2019}\u{201d})*]*(?:\s+|$)|\n+|;\s|,?\s+(?:but|although|though|yet|nevertheless)\s|,?\s*\bhowever,?\s|\s[-\u{2013}\u{2014}]+\s"
);

/// Sentences, split at "but" and "however" as well, after which the answer may follow.
fn clauses(text: &str) -> impl Iterator<Item = &str> {
    let mut from = 0;
    let cuts = CUT.find_iter(text).map(|m| (m.start(), m.end()));
    cuts.chain(std::iter::once((text.len(), text.len())))
        .filter_map(move |(start, end)| {
            let clause = text.get(from..start);
            from = end;
            clause
        })
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
}

/// Whether a clause states that the searched item was not found.
fn is_lack(clause: &str) -> bool {
    let plain = plain(clause);
    LACK.is_match(&plain) || MISSING.is_match(&plain)
}

/// Words that may precede the patterns below.
const LEAD: &str = r"^\W{0,4}(?:(?:i'm|i am|we're|we are)\s+(?:very |really |so |truly )?sorry[,:]?\s*|sorry[,:]?\s*|apologies[,:]?\s*|i apologi[sz]e[,:]?\s*|unfortunately[,:]?\s*|regrettably[,:]?\s*|no[,:]\s+|and\s+|so\s+|therefore,?\s+|thus,?\s+|as an? (?:ai|artificial|large)\b[^,]*,\s*|(?:based on|after|despite|given|from|at (?:this|the) (?:time|moment)|currently|with(?:out)?|since|because|due to|even after|as of)\b[^,]*,\s*){0,3}(?:(?:that|and|but)\s+)?";

/// The question must not be answered.
const POLICY_SHAPES: &str = concat!(
    r"(?:i|we)(?:'m| am|'re| are)? (?:can't|cannot|can not|won't|will not|must decline|have to decline|decline|refuse|not able to|unable to|not allowed to|not permitted to|not comfortable)\s*(?:to )?(?:in good conscience )?(?:help|assist|comply|engage|participate|support|fulfil|fulfill|do that|do this|continue with|discuss|provide (?:instructions|guidance|assistance|advice|that|this)|create (?:that|this)|generate (?:that|this)|write (?:that|this)|with)\b",
    r"|(?:i|we) (?:must|have to) (?:respectfully )?decline\b|(?:i|we) (?:refuse|decline) to\b",
    r"|(?:this|that|the|your) (?:request|content|question|task)\b[^.]*(?:violates?|against|not permitted|not allowed|inappropriate|harmful|unethical|illegal)",
    r"|(?:it|that|this) (?:would be|is|goes) (?:against (?:my|our|the)|a violation|illegal|unethical|harmful|inappropriate)",
    r"|(?:my|our) (?:guidelines|policy|policies|programming|safety) [^.]*(?:prevent|prohibit|do not allow|don't allow|forbid)",
);
/// The question cannot be answered, or the needed information was not found.
const LACK_SHAPES: &str = concat!(
    r"(?:i|we) (?:do not|don't|did not|didn't) (?:currently |actually |really |yet )?(?:have (?:any |the |direct |real-time |enough |sufficient |specific |reliable |that |this )*(?:access|information|data|knowledge|answer|ability|capability|details|means|tools?|results?)|know\b|possess|find any|find (?:the|a|an)\b)",
    r"|(?:i|we) (?:have no|lack|had no) (?:\w+ )?(?:access|information|data|knowledge|way|means|idea|answer|tools?)",
    r"|(?:i|we)(?:'m| am|'re| are| was| were|'ve been| have been| remain)? (?:unable|not able|not sure|unsure|uncertain|not aware|not certain|unfamiliar)\b",
    r"|(?:i|we) (?:can't|cannot|can not|could not|couldn't|was not able to|wasn't able to|were not able to|failed to|am failing to) (?:\w+ly )?(?:find|determine|locate|access|retrieve|verify|answer|identify|obtain|confirm|provide|give|reach|complete|open|load|browse|see|tell|say|get|establish|extract|fetch|view|read|conclude|resolve|perform|look up)\b",
    r"|(?:the |an? |any |your |this |that |it )[^.]*?(?:cannot|can't|could not|couldn't|can not) be (?:determined|found|answered|verified|located|retrieved|identified|accessed|confirmed|established|completed|provided)",
    r"|(?:it|that) (?:is|was) (?:not possible|impossible) (?:for me )?to (?:determine|find|answer|say|tell|know|verify|provide|give|identify)",
    r"|(?:there (?:is|was|were|are) )?(?:no|not enough|insufficient|too little) (?:\w+ )?(?:information|data|details|context|evidence|answer|results)\b[^.]*?(?:available|found|provided|to (?:answer|determine|say|tell|identify|conclude|give)|could be (?:found|determined))",
    r"|unable to (?:determine|find|answer|locate|access|retrieve|verify|identify|provide|complete|obtain|confirm)\b|(?:cannot|could not|can't|couldn't) (?:be )?(?:determined?|find|found|answer(?:ed)?|locate(?:d)?|verif(?:y|ied)|identif(?:y|ied))\b",
    r"|i give up\b|i have not been able to|i haven't been able to|i'm afraid i (?:can't|cannot|don't|do not|couldn't)",
);
/// The run ended before an answer.
const STOPPED_SHAPES: &str = concat!(
    r"agent stopped\b|(?:i |we )?need more steps|(?:the )?(?:maximum|max)(?: number of)? (?:\w+ )?(?:steps|iterations|turns|attempts)\b[^.]*(?:reached|exceeded)|reached (?:the )?max",
    r"|(?:i|we) (?:have to|must|will have to) stop here\b|task (?:was )?aborted|i (?:will|'ll) not answer",
);
/// Padding around any of these.
const PADDING_SHAPES: &str = concat!(
    r"(?:i'm|i am|we're|we are)\s+(?:very |really |so )?sorry\b.{0,60}$|sorry\b.{0,40}$|apologies\b.{0,60}$|i apologi[sz]e\b.{0,80}$|unfortunately$",
    r"|(?:please|kindly) (?:let me know|provide|try|check|consult|contact|feel free|refer|note|rephrase|share|clarify|upload|ask)\b",
    r"|(?:if you|let me know|feel free|would you like|could you|can you|you (?:may|might|can|could|should) (?:want to|wish to|try|check|consult|contact|refer|find|look|ask|visit|need))\b",
    r"|(?:i|we) (?:recommend|suggest|would recommend|would suggest|advise|'d recommend|'d suggest)\b|for (?:more|accurate|the most|up-to-date|further)\b",
    r"|(?:i|we)(?:'ve| have)? (?:searched|tried|checked|looked|attempted|visited|reviewed|examined|consulted|queried)\b",
    r"|(?:the|my|all|both|none of the|every|each)\s+(?:\w+\s+){0,3}?(?:search(?:es)?|pages?|tools?|results?|sites?|attempts?|requests?|sources?|quer(?:y|ies)|files?|links?|urls?)\b[^.]*?(?:fail|error|did not|didn't|do not|don't|does not|doesn't|not |no |unavailable|timed out|blocked|404|403|empty|unsuccessful|inaccessible)",
    r"|(?:thank you|thanks)\b|is there (?:anything|something) else|how (?:else )?(?:can|may) i (?:help|assist)|(?:i'm|i am) (?:happy|here) to help|(?:i'd|i would) be happy to|happy to help",
);

/// A pattern for clauses that begin with one of `shapes`.
fn clause(shapes: &[&str]) -> String {
    format!("(?i){LEAD}(?:{})", shapes.join("|"))
}

// One of the three that follow, or padding. Most clauses are none, and need only this match.
regex!(ANY, &clause(&[POLICY_SHAPES, LACK_SHAPES, STOPPED_SHAPES, PADDING_SHAPES]));
regex!(REFUSAL, &clause(&[POLICY_SHAPES]));
regex!(LACK, &clause(&[LACK_SHAPES]));
regex!(STOPPED, &clause(&[STOPPED_SHAPES]));
// Statements about a search, which do not refuse an answer.
regex!(
    MISSING,
    r"(?i)^\W*(?:no (?:\w+,? ){0,6}(?:was|were|could be|has been|have been) (?:found|located|identified|available)|(?:the |this |that |an? )?[^.]{0,80}?(?:was|were|is|are|does|do|did|could)(?: not|n't) (?:\w+ )?(?:found|be found|available|located|include|contain|accessible|be located)\b|(?:i|we|the [\w -]{1,40}) encountered an? (?:issue|error|problem)\b)"
);
// Every clause that matches `LACK` or `MISSING` contains one of these.
regex!(
    NEGATIVE,
    r"(?i)n['\u{2019}\u{2018}]t|no|unable|unsure|uncertain|unfamiliar|lack|impossible|insufficient|too little|fail|give up|encountered"
);
regex!(
    NOTHING,
    r"(?i)^\W*(?:unknown|n/?a|not (?:available|found|known|determined)|no answer(?: found)?|none found|undetermined|unable to determine|cannot (?:determine|answer)|i don.?t know)\W*$"
);

#[cfg(test)]
mod tests;
