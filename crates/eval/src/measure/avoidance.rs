//! `avoidance` (001, table 1): is the output an answer, or was the question avoided?
//!
//! Principle: a question is answered, or the lookup that shows why it cannot be is made first: a reply of refusal or
//! inability alone leaves the user with nothing. An inability that a lookup shows, and a refusal that the
//! instructions demand, are right answers.
//!
//! In: the output of a model call without tool calls. Out: `valid`, `missing_knowledge`,
//! `policy_restriction` or `other`. An answer is avoided only if every sentence in it is a refusal, a
//! statement of inability, or padding around one: "I could not find the page, but the almanac says 836 m" is
//! valid. Of a long text the first and the last paragraph decide. A statement of inability after the lookup that shows
//! the lack keeps its label and passes: the lookup is the cause. A final answer that only reports an error, after no
//! call succeeded and to a request that is not about errors, is no answer. A turn that the user answers is no answer,
//! and an inability that was claimed without trying a tool that was offered fails in any turn, unless what it is about
//! was looked up. Languages: `language/`; in others it is unmeasured.

mod excuse;
mod policy;
mod turn;
mod untried_tool;

use verdict_otlp::trace::Kind;

use super::defects::{Defect, Findings, clip, clip_end};
use super::language::{ReadText, SentenceKind as Statement};
use super::{Context, Measurement, Memo, Severity, Unmeasured};
use crate::measure::agent_index;
use crate::measure::calls::attempts::CallAttempts;
use crate::measure::calls::call_index::CallIndex;
use crate::recognise::action_text::{may_be_step, without_lead};
use crate::recognise::{Content, FinishReason, SpanView, Text};
use excuse::excuse;
use turn::{UndecidedTurn, is_grounded};

const VALID: &str = "valid";
const KNOWLEDGE: &str = "missing_knowledge";
const POLICY: &str = "policy_restriction";
const OTHER: &str = "other";

/// Bytes above which only the first and the last paragraph of a text are read.
const MAX_BYTES: usize = 1500;
/// Sentences at the beginning of a report in which an admission is looked for.
const ADMITTED_WITHIN: usize = 5;
/// Maximum sentences of a text without an answer.
const MAX_SENTENCES: usize = 14;

pub(crate) fn measure(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at).filter(|r| r.kind == Kind::Llm)?;
    if let Some(reason) = view.finished_by(FinishReason::ContentFilter) {
        let mut findings = Findings::new();
        findings.push(
            Defect::Refusal
                .finding("an answer was expected; a content filter or a refusal ended the call", reason),
        );
        return Some(findings.labelled(context, Unmeasured::NotApplicable, POLICY));
    }
    if view.output_content != Content::Present {
        return Some(context.unmeasured(view.output_content.into()));
    }
    let answer = final_answer(context);
    let output = view.output_text();
    let text = answer.as_deref().unwrap_or(&output);
    if text.trim().is_empty() || answer.is_none() && is_intermediate_step(view, text) {
        return Some(context.unmeasured(Unmeasured::NotApplicable));
    }
    let analysed = read(context, text);
    match turn::judge(context, view, &analysed) {
        Some(UndecidedTurn::Untried(finding)) => {
            let mut findings = Findings::new();
            findings.push(finding);
            return Some(findings.labelled(context, Unmeasured::NotApplicable, KNOWLEDGE));
        }
        Some(UndecidedTurn::NotFinal) => return Some(context.unmeasured(Unmeasured::NotApplicable)),
        None => {}
    }
    let as_answer = match answer.is_some() {
        true if reports_own_errors(context) => TextRole::AnswerAfterErrors,
        true => TextRole::Answer,
        false => TextRole::Step,
    };
    let AvoidanceCheck { avoidance, compared } = avoided(&analysed, text, as_answer);
    if context.memo.budget.is_exceeded() {
        return Some(context.unmeasured(Unmeasured::Limit));
    }
    if avoidance.is_none() && !analysed.is_known() {
        return Some(context.unmeasured(Unmeasured::Language));
    }
    let mut findings = Findings::new();
    // A figure alone is an answer; signs alone are nothing that was examined.
    findings.examine(compared.max(usize::from(text.contains(char::is_numeric))));
    let avoidance = avoidance.map(|(label, sentence)| match label {
        KNOWLEDGE if is_grounded(context, &analysed, sentence) => (POLICY, sentence),
        _ => (label, sentence),
    });
    let label = avoidance.map_or(VALID, |(label, _)| label);
    if let Some((label, sentence)) = avoidance {
        let (defect, rationale) = match label {
            // Its label passes by default with and without a rule in the instructions: 001 (table 1) has one label for
            // all refusals, and a model also refuses by policies that no instruction states. Settings may fail it.
            POLICY => (Defect::Refusal, "an answer was expected; the request is refused instead"),
            KNOWLEDGE => (Defect::GiveUp, "an answer was expected; the output only says that it has none"),
            _ => (Defect::Evasion, "an answer was expected; the run stopped without one"),
        };
        findings.push(defect.finding(rationale, sentence));
    }
    let excused = avoidance.filter(|(label, _)| *label == KNOWLEDGE);
    let excused = excused.and_then(|(_, sentence)| excuse(context, sentence));
    let mut measurement = findings.labelled(context, Unmeasured::NotApplicable, label);
    if let (Some((lookup, reason)), Ok(measured)) = (excused, measurement.outcome.as_mut()) {
        // The statement is correct then; the failure is reported on the calls.
        measured.passed = true;
        for finding in &mut measured.findings {
            finding.rationale.push_str(reason);
            finding.origin = lookup;
            finding.severity = Severity::Low;
        }
    }
    Some(measurement)
}

/// The text in its language, or in that of the task if it is too short to recognise its own.
fn read<'t>(context: &Context<'_>, text: &'t str) -> ReadText<'t> {
    context.memo.budget.spend(text.len().min(MAX_BYTES * 2) / 16);
    let agent = context.trace.owner.get(context.at).copied().flatten();
    let task = agent.and_then(|agent| agent_index::task(context.trace, agent));
    ReadText::new(text, task.map(|task| &**task), context.memo)
}

/// The role of a text for its reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextRole {
    Step,
    Answer,
    /// An answer of a run without a successful call, to a request that is not about errors: an error that it
    /// reports is its own.
    AnswerAfterErrors,
}

fn reports_own_errors(context: &Context<'_>) -> bool {
    let agent = context.trace.owner.get(context.at).copied().flatten();
    let Some((i, agent)) = agent.and_then(|i| Some((i, context.trace.agents.get(i)?))) else { return false };
    let attempts = CallAttempts::get(context.trace, context.memo);
    let asked = agent_index::task(context.trace, i).filter(|task| task.len() <= MAX_BYTES);
    attempts.first_unfailed(agent.at, &agent.calls).is_none()
        && asked.is_some_and(|task| !ReadText::new_counted(task, None, context.memo).mentions_errors())
}

/// The final answer of an agent if this model call wrote it: as its text, or as the argument of a
/// final-answer tool.
fn final_answer(context: &Context<'_>) -> Option<Text> {
    let trace = context.trace;
    let agent = trace.agents.get(trace.owner.get(context.at).copied().flatten()?)?;
    let at = agent.answer_at?;
    let calls = CallIndex::cached(trace, context.memo);
    let answer_call = calls.by_tool.get(&at).and_then(|&i| trace.calls.get(i));
    let wrote = at == context.at || answer_call.is_some_and(|call| call.llm == Some(context.at));
    if wrote { agent.answer.clone() } else { None }
}

/// Whether the output calls tools, or contains an action as text.
fn is_intermediate_step(view: &SpanView, text: &str) -> bool {
    view.requests().next().is_some() || may_be_step(text)
}

/// The result of comparing a text with the kinds of avoidance.
#[derive(Default)]
struct AvoidanceCheck<'t> {
    /// The kind of avoidance, with the sentence that shows it.
    avoidance: Option<(&'static str, &'t str)>,
    /// The sentences of what was compared: the text, or one or both of its outer paragraphs.
    compared: usize,
}

fn avoided<'t>(analysed: &ReadText<'t>, text: &'t str, role: TextRole) -> AvoidanceCheck<'t> {
    let text = without_lead(text.trim());
    if text.len() <= MAX_BYTES {
        return avoided_throughout(&analysed.part(text), role);
    }
    // A long text that begins and ends so reports a search without a result.
    let is_text = |paragraph: &&str| !paragraph.trim().is_empty();
    let ends = text.split("\n\n").find(is_text).zip(text.rsplit("\n\n").find(is_text));
    let Some((first, last)) = ends else { return AvoidanceCheck::default() };
    let avoided_in =
        |paragraph: &'t str| avoided_throughout(&analysed.part(clip(paragraph, MAX_BYTES)), TextRole::Step);
    let first = avoided_in(first);
    if first.avoidance.is_none() {
        return first;
    }
    let last = avoided_in(last);
    let avoidance = first.avoidance.filter(|_| last.avoidance.is_some());
    AvoidanceCheck { avoidance, compared: first.compared + last.compared }
}

/// As [`avoided`], for a text whose sentences all have to avoid an answer.
fn avoided_throughout<'t>(analysed: &ReadText<'t>, role: TextRole) -> AvoidanceCheck<'t> {
    const KINDS: [Statement; 6] = [
        Statement::Nothing,
        Statement::Refusal,
        Statement::Inability,
        Statement::Stopped,
        Statement::Error,
        Statement::Padding,
    ];
    let mut compared = 0;
    for language in analysed.languages() {
        let mut shown: Option<(&'static str, &str)> = None;
        let read = analysed.classified(language, []).filter(|(sentence, _)| !sentence.is_without_words());
        compared = compared.max(read.take(MAX_SENTENCES).count());
        let mut sentences = analysed.classified(language, KINDS).filter(|(s, _)| !s.is_without_words());
        let others = sentences.by_ref().take(MAX_SENTENCES).position(|(sentence, kind)| {
            let label = match kind {
                None => return true,
                Some(Statement::Nothing) if role != TextRole::Step => KNOWLEDGE,
                Some(Statement::Error) if role == TextRole::AnswerAfterErrors => KNOWLEDGE,
                Some(Statement::Refusal) => POLICY,
                Some(Statement::Inability) => KNOWLEDGE,
                Some(Statement::Stopped) => OTHER,
                Some(_) => return false,
            };
            // A refusal for reasons of policy takes precedence over other sentences.
            if shown.is_none_or(|(seen, _)| seen != POLICY && label == POLICY) {
                shown = Some((label, sentence.text));
            }
            false
        });
        if others.is_none() && sentences.next().is_none() && shown.is_some() {
            return AvoidanceCheck { avoidance: shown, compared };
        }
    }
    AvoidanceCheck { avoidance: None, compared }
}

/// Whether a final answer only states that there is none.
pub(crate) fn avoids(answer: &str, memo: &Memo) -> bool {
    avoided(&ReadText::new(answer, None, memo), answer, TextRole::Answer).avoidance.is_some()
}

/// A sentence at the beginning of `text` that states that the searched item was not found. A long report of
/// the search may follow.
pub(crate) fn admits<'t>(text: &'t str, memo: &Memo) -> Option<&'t str> {
    let kinds = [Statement::Inability, Statement::Nothing, Statement::Error];
    sentences_of_kinds(without_lead(clip(text, MAX_BYTES).trim()), kinds, memo)
        .take(ADMITTED_WITHIN)
        .flatten()
        .next()
}

/// The statement that nothing was found, in a result that reports no error of its call: an error in it is what was
/// looked up, as in a log.
pub(crate) fn says_none<'t>(result: &'t str, memo: &Memo) -> Option<&'t str> {
    let kinds = [Statement::Inability, Statement::Nothing];
    sentences_of_kinds(clip(result, MAX_BYTES).trim(), kinds, memo).take(ADMITTED_WITHIN).flatten().next()
}

/// Whether any sentence of `text` states that the searched item was not found.
pub(crate) fn mentions_lack(text: &str, memo: &Memo) -> bool {
    let (head, tail) = (clip(text, MAX_BYTES), clip_end(text, MAX_BYTES));
    let kinds = [Statement::Inability, Statement::Nothing, Statement::Error];
    let says = |part: &str| sentences_of_kinds(part, kinds, memo).flatten().next().is_some();
    // Of a long answer the end reports what was not done.
    says(head) || text.len() > MAX_BYTES && says(tail)
}

/// The sentences of `text`, where they are one of `kinds`.
fn sentences_of_kinds<'t, const N: usize>(
    text: &'t str,
    kinds: [Statement; N],
    memo: &Memo,
) -> impl Iterator<Item = Option<&'t str>> + use<'t, N> {
    let analysed = ReadText::new(text, None, memo);
    analysed.languages().flat_map(move |language| {
        analysed.classified(language, kinds).map(|(sentence, kind)| kind.map(|_| sentence.text))
    })
}

#[cfg(test)]
mod tests;
