//! `avoidance` (001, table 1): whether the output answers the question or avoids it.
//!
//! Principle: an agent answers a question, or first makes the lookup that shows why it cannot: a refusal or a
//! statement of inability alone does not help the user. An inability that a lookup shows, and a refusal that the
//! instructions demand, are correct answers.
//!
//! In: the output of a model call without tool calls. Out: `valid`, `missing_knowledge`,
//! `policy_restriction` or `other`. An answer is avoided only if every sentence in it is a refusal, a
//! statement of inability, or padding around one: "I could not find the page, but the almanac says 836 m" is
//! valid. Of a long text, the first and the last paragraph decide. A statement of inability after a lookup that
//! returned nothing keeps its label and passes: the lookup is the cause. A final answer that only reports an error
//! avoids an answer if no call of the run succeeded and the request is not about errors. A turn to which the user
//! replies is no final answer and is unmeasured. A claimed inability fails in any turn if an offered tool was not
//! tried, unless its subject was looked up. The metric is unmeasured in languages that `language/` does not contain.

mod excuse;
mod policy;
mod turn;
mod unfounded_inability;
mod untried_tool;

use verdict_otlp::trace::Kind;

use super::defects::{Defect, Findings, clip, clip_end};
use super::language::{ReadText, SentenceKind as Statement, is_quoted_json};
use super::{Context, Measurement, Memo, Severity, Unmeasured};
use crate::measure::agent_index;
use crate::measure::calls::attempts::CallAttempts;
use crate::measure::calls::call_index::CallIndex;
use crate::recognise::action_text::{may_be_step, without_answer_prefixes};
use crate::recognise::{Content, FinishReason, SpanView, Text};
use excuse::excuse;
use turn::{TurnResult, is_grounded};

const VALID: &str = "valid";
const KNOWLEDGE: &str = "missing_knowledge";
const POLICY: &str = "policy_restriction";
const OTHER: &str = "other";

/// Maximum bytes of a text that is read whole; of a longer one, the first and the last paragraph are read.
const MAX_BYTES: usize = 1500;
/// Maximum sentences at the beginning of a text in which an admission is searched.
const MAX_ADMISSION_SENTENCES: usize = 5;
/// Maximum sentences of a text that avoids an answer; a longer one is taken for an answer.
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
    let analysed = read_text(context, text);
    match turn::turn_result(context, view, &analysed, text) {
        Some(TurnResult::Untried(finding)) => {
            let mut findings = Findings::new();
            findings.push(finding);
            return Some(findings.labelled(context, Unmeasured::NotApplicable, KNOWLEDGE));
        }
        Some(TurnResult::NotFinal) => return Some(context.unmeasured(Unmeasured::NotApplicable)),
        None => {}
    }
    let role = match answer.is_some() {
        true if reports_own_errors(context) => TextRole::AnswerAfterErrors,
        true => TextRole::Answer,
        false => TextRole::Step,
    };
    let AvoidanceCheck { avoidance, examined_sentences } = check_text(&analysed, text, role);
    if context.memo.budget.is_exceeded() {
        return Some(context.unmeasured(Unmeasured::Limit));
    }
    if avoidance.is_none() && !analysed.is_known() {
        return Some(context.unmeasured(Unmeasured::Language));
    }
    let mut findings = Findings::new();
    // A text of digits alone is an answer; a text of punctuation alone was not examined.
    findings.examine(examined_sentences.max(usize::from(text.contains(char::is_numeric))));
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
    let inability = avoidance.filter(|(label, _)| *label == KNOWLEDGE);
    let excuse = inability.and_then(|(_, sentence)| excuse(context, sentence));
    let mut measurement = findings.labelled(context, Unmeasured::NotApplicable, label);
    if let (Some((lookup, reason)), Ok(measured)) = (excuse, measurement.outcome.as_mut()) {
        // The statement is correct, and the failure is reported on the calls.
        measured.passed = true;
        for finding in &mut measured.findings {
            finding.rationale.push_str(reason);
            finding.origin = lookup;
            finding.severity = Severity::Low;
        }
    }
    Some(measurement)
}

/// Reads the text in its own language, or in that of the task if the text is too short to recognise its language.
fn read_text<'t>(context: &Context<'_>, text: &'t str) -> ReadText<'t> {
    context.memo.budget.spend(text.len().min(MAX_BYTES * 2) / 16);
    let agent = context.trace.owner.get(context.at).copied().flatten();
    let task = agent.and_then(|agent| agent_index::task(context.trace, agent));
    ReadText::new(text, task.map(|task| &**task), context.memo)
}

/// The role of a text in the run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextRole {
    Step,
    Answer,
    /// An answer of a run without a successful call, to a request that is not about errors: an error that it
    /// reports is its own.
    AnswerAfterErrors,
}

/// Whether an error in the answer must be the run's own: no call of the agent succeeded, and the request is not about
/// errors.
fn reports_own_errors(context: &Context<'_>) -> bool {
    let agent = context.trace.owner.get(context.at).copied().flatten();
    let Some((i, agent)) = agent.and_then(|i| Some((i, context.trace.agents.get(i)?))) else { return false };
    let attempts = CallAttempts::get(context.trace, context.memo);
    let task = agent_index::task(context.trace, i).filter(|task| task.len() <= MAX_BYTES);
    attempts.first_not_failed(agent.at, &agent.calls).is_none()
        && task.is_some_and(|task| !ReadText::new_counted(task, None, context.memo).mentions_errors())
}

/// The final answer of the agent if this model call wrote it, as its text or as the argument of a final-answer
/// tool; else `None`.
fn final_answer(context: &Context<'_>) -> Option<Text> {
    let trace = context.trace;
    let agent = trace.agents.get(trace.owner.get(context.at).copied().flatten()?)?;
    let answer_span = agent.answer_at?;
    let calls = CallIndex::cached(trace, context.memo);
    let answer_call = calls.by_tool.get(&answer_span).and_then(|&i| trace.calls.get(i));
    let has_written =
        answer_span == context.at || answer_call.is_some_and(|call| call.llm == Some(context.at));
    if has_written { agent.answer.clone() } else { None }
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
    /// The number of compared sentences: those of the text, or of its first and last paragraph.
    examined_sentences: usize,
}

/// Compares a text with the kinds of avoidance. Of a long text, both the first and the last paragraph must avoid an
/// answer.
fn check_text<'t>(analysed: &ReadText<'t>, text: &'t str, role: TextRole) -> AvoidanceCheck<'t> {
    let text = without_answer_prefixes(text.trim());
    if text.len() <= MAX_BYTES {
        return check_every_sentence(&analysed.part(text), role);
    }
    // A long text whose first and last paragraph avoid an answer is the report of a search without a result.
    let is_text = |paragraph: &&str| !paragraph.trim().is_empty();
    let outer_paragraphs = text.split("\n\n").find(is_text).zip(text.rsplit("\n\n").find(is_text));
    let Some((first, last)) = outer_paragraphs else { return AvoidanceCheck::default() };
    let check_paragraph =
        |paragraph: &'t str| check_every_sentence(&analysed.part(clip(paragraph, MAX_BYTES)), TextRole::Step);
    let first = check_paragraph(first);
    if first.avoidance.is_none() {
        return first;
    }
    let last = check_paragraph(last);
    let avoidance = first.avoidance.filter(|_| last.avoidance.is_some());
    AvoidanceCheck { avoidance, examined_sentences: first.examined_sentences + last.examined_sentences }
}

/// As [`check_text`], for a short text: all of its sentences must avoid an answer.
fn check_every_sentence<'t>(analysed: &ReadText<'t>, role: TextRole) -> AvoidanceCheck<'t> {
    const KINDS: [Statement; 6] = [
        Statement::Nothing,
        Statement::Refusal,
        Statement::Inability,
        Statement::Stopped,
        Statement::Error,
        Statement::Padding,
    ];
    let mut examined_sentences = 0;
    for language in analysed.languages() {
        let mut avoidance: Option<(&'static str, &str)> = None;
        let read = analysed.classified(language, []).filter(|(sentence, _)| !sentence.is_without_words());
        examined_sentences = examined_sentences.max(read.take(MAX_SENTENCES).count());
        let mut sentences = analysed.classified(language, KINDS).filter(|(s, _)| !s.is_without_words());
        let answer_position = sentences.by_ref().take(MAX_SENTENCES).position(|(sentence, kind)| {
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
            if avoidance.is_none_or(|(label_so_far, _)| label_so_far != POLICY && label == POLICY) {
                avoidance = Some((label, sentence.text));
            }
            false
        });
        if answer_position.is_none() && sentences.next().is_none() && avoidance.is_some() {
            return AvoidanceCheck { avoidance, examined_sentences };
        }
    }
    AvoidanceCheck { avoidance: None, examined_sentences }
}

/// Whether a final answer avoids an answer.
pub(crate) fn avoids(answer: &str, memo: &Memo) -> bool {
    check_text(&ReadText::new(answer, None, memo), answer, TextRole::Answer).avoidance.is_some()
}

/// The first sentence at the beginning of `text` that states that nothing was found or that reports an error. A long
/// report of the search may follow it.
pub(crate) fn admits<'t>(text: &'t str, memo: &Memo) -> Option<&'t str> {
    let kinds = [Statement::Inability, Statement::Nothing, Statement::Error];
    sentences_of_kinds(without_answer_prefixes(clip(text, MAX_BYTES).trim()), kinds, memo)
        .take(MAX_ADMISSION_SENTENCES)
        .flatten()
        .next()
}

/// The statement that nothing was found in a result that reports no error of its call. An error in such a result is
/// the content that was looked up, as in a log.
pub(crate) fn says_none<'t>(result: &'t str, memo: &Memo) -> Option<&'t str> {
    let kinds = [Statement::Inability, Statement::Nothing];
    let text = clip(result, MAX_BYTES).trim();
    if is_quoted_json(text) {
        return None;
    }
    sentences_of_kinds(text, kinds, memo).take(MAX_ADMISSION_SENTENCES).flatten().next()
}

/// Whether any sentence of `text` states that the searched item was not found.
pub(crate) fn mentions_lack(text: &str, memo: &Memo) -> bool {
    let (head, tail) = (clip(text, MAX_BYTES), clip_end(text, MAX_BYTES));
    let kinds = [Statement::Inability, Statement::Nothing, Statement::Error];
    let states_lack = |part: &str| sentences_of_kinds(part, kinds, memo).flatten().next().is_some();
    // The end of a long answer may report the part of the work that was not done.
    states_lack(head) || text.len() > MAX_BYTES && states_lack(tail)
}

/// For each sentence of `text`: its text if it is of one of the `kinds`, else `None`.
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
