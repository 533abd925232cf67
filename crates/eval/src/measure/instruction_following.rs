//! `instruction_following` (001, table 1): verifiable instructions of the prompt, 1-5.
//!
//! Principle: the output follows each instruction of the prompt that can be checked on the output or the calls: form,
//! length, tags, words, language, required tools, and amounts per step.
//!
//! In: a model call's prompt and output. Out: 5, or the score of the worst violated instruction (a
//! missing required tag is 3). Instructions are read from system messages and the latest user
//! message ([`prompt`]), and checked only for the outputs to which they apply ([`check`]): an instruction about the
//! answer does not apply to intermediate steps. Without an instruction that applies, the metric is unmeasured.

use std::borrow::Cow;
use std::rc::Rc;

use verdict_otlp::trace::Kind;

use super::conversation::plain_text;
use super::defects::{Defect, Findings};
use super::language::{ReadText, is_english};
use super::{Context, Measurement, Unmeasured};
use crate::measure::calls::call_index::CallIndex;
use crate::recognise::{Agent, Message, Part, Role, SpanView, Text};

mod answer_language;
pub(crate) mod check;
pub(crate) mod prompt;
mod reading_limit;

use answer_language::AnswerLanguage;
use check::Violation;
use prompt::{OutputInstruction, OutputRule, OutputScope, SystemMessage};

/// The instructions of a text of the latest user message.
struct UserText {
    instructions: Vec<OutputInstruction>,
    is_english: bool,
}

pub(crate) fn measure(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at).filter(|r| r.kind == Kind::Llm)?;
    if let Some(gap) = view.content_gap() {
        return Some(context.unmeasured(gap.into()));
    }
    let output = ModelOutput::new(context, view);
    let mut findings = Findings::new();
    let (systems, user) = prompt_texts(context, view);
    let all = systems.iter().flat_map(|s| &*s.instructions).chain(user.iter().flat_map(|u| &u.instructions));
    for instruction in all {
        let Some(violation) = check_instruction(context, view, &output, instruction) else { continue };
        findings.examine(1);
        if let Some(Violation { defect, expected, quote }) = violation {
            let rationale = format!("expected {expected}, as the prompt says: \"{}\"", instruction.sentence);
            findings.push(defect.finding(rationale, &quote));
        }
    }
    if let Some(violation) = reading_limit::check_reading_limit(context, view) {
        findings.examine(1);
        violation.into_iter().for_each(|finding| findings.push(finding));
    }
    if output.is_answer {
        match answer_language::check_answer_language(context, view, &output.text) {
            AnswerLanguage::NotApplicable => {}
            AnswerLanguage::Follows => findings.examine(1),
            AnswerLanguage::Violates(finding) => {
                findings.examine(1);
                findings.push(finding);
            }
        }
    }
    let is_english = systems.iter().all(|s| s.is_english) && user.iter().all(|u| u.is_english);
    let unmeasured_reason = match is_english {
        true => Unmeasured::NotApplicable,
        false => Unmeasured::Language,
    };
    Some(findings.scored(context, unmeasured_reason))
}

/// The instructions of the system messages and of the latest user message.
fn prompt_texts<'v>(
    context: &Context<'_>,
    view: &'v SpanView,
) -> (Vec<Rc<SystemMessage>>, Vec<Rc<UserText>>) {
    let texts = |message: &'v Message| message.parts.iter().filter_map(plain_text);
    let system_message = |text: &Text| context.memo.for_text(text, prompt::system_message);
    let user_text = |text: &Text| {
        context.memo.for_text(text, |text| UserText {
            instructions: prompt::user_instructions(text),
            is_english: is_english(text, None, context.memo),
        })
    };
    let systems = view.input.iter().filter(|m| m.role == Role::System);
    let last_user = view.input.iter().rfind(|m| m.role == Role::User);
    (
        systems.flat_map(texts).map(system_message).collect(),
        last_user.into_iter().flat_map(texts).map(user_text).collect(),
    )
}

/// The output of a model call, and its role in the run.
struct ModelOutput<'a> {
    text: Cow<'a, str>,
    call_count: usize,
    /// The agent whose final answer this output is.
    answering_agent: Option<&'a Agent>,
    /// Whether the output is or may be the final answer. If the trace does not show the answer, every output without
    /// calls may be it.
    is_answer: bool,
    is_plan: bool,
}

impl<'a> ModelOutput<'a> {
    fn new(context: &Context<'a>, view: &'a SpanView) -> ModelOutput<'a> {
        let text = view.output_text();
        let call_count = view.requests().count();
        let agent = context
            .trace
            .owner
            .get(context.at)
            .copied()
            .flatten()
            .and_then(|agent| context.trace.agents.get(agent));
        let answering_agent = agent.filter(|a| a.answer_at == Some(context.at));
        let is_undecided = agent.is_none_or(|a| a.answer_at.is_none() && a.answer.is_none());
        let is_answer = call_count == 0
            && !text.trim().is_empty()
            && (answering_agent.is_some() || is_undecided && !context.trace.incomplete);
        let is_numbered = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let has_steps = || text.lines().filter(is_numbered).nth(1).is_some();
        let is_plan = call_count == 0 && (!view.plans.is_empty() || has_steps());
        ModelOutput { text, call_count, answering_agent, is_answer, is_plan }
    }
}

/// Checks an instruction: `None` if it does not apply to this output, `Some(None)` if the output follows it.
fn check_instruction(
    context: &Context<'_>,
    view: &SpanView,
    output: &ModelOutput<'_>,
    instruction: &OutputInstruction,
) -> Option<Option<Violation>> {
    match &instruction.rule {
        OutputRule::OneCall if output.call_count > 0 => Some((output.call_count > 1).then(|| {
            let names: Vec<&str> = view.requests().take(8).map(|r| &*r.name).collect();
            let quote = names.get(1).copied().unwrap_or_default().to_owned();
            let expected = format!("one tool call; there are {} ({})", output.call_count, names.join(", "));
            Violation { defect: Defect::TooManyCalls, expected, quote }
        })),
        OutputRule::OneCall => None,
        OutputRule::UseTool(_) | OutputRule::UseSomeTool => {
            check_required_tool(context, view, output, &instruction.rule)
        }
        rule => {
            let applies = match instruction.scope {
                OutputScope::Every => output.call_count == 0 && !output.text.trim().is_empty(),
                OutputScope::Answer => output.is_answer,
                OutputScope::Plan => output.is_plan,
            };
            applies.then(|| check::violation(rule, &output.text))
        }
    }
}

/// Checks a required tool: `None` if the output is not the answer of an agent to which the tool was offered,
/// `Some(None)` if the tool was used.
fn check_required_tool(
    context: &Context<'_>,
    view: &SpanView,
    output: &ModelOutput<'_>,
    rule: &OutputRule,
) -> Option<Option<Violation>> {
    /// Minimum words of an answer that needs a tool; shorter ones are small talk.
    const MIN_WORDS: usize = 5;
    let agent = output.answering_agent.filter(|_| !context.trace.incomplete)?;
    let offered = if view.tools.is_empty() { &agent.tools } else { &view.tools };
    let required_name = match rule {
        OutputRule::UseTool(name) => Some(name.as_str()),
        _ => None,
    };
    let is_offered = match required_name {
        Some(name) => offered.iter().any(|t| equal_ignoring_case(&t.name, name)),
        None => !offered.is_empty(),
    };
    if !is_offered || output.text.split_whitespace().count() < MIN_WORDS {
        return None;
    }
    // Earlier turns of the conversation, sub-agents and server-side tools count as well.
    let is_in_prompt = view.input.iter().flat_map(|m| &m.parts).any(|part| match part {
        Part::Call(call) => required_name.is_none_or(|name| equal_ignoring_case(&call.name, name)),
        Part::Result { name, .. } => required_name
            .is_none_or(|required_name| name.as_ref().is_none_or(|n| equal_ignoring_case(n, required_name))),
        _ => false,
    });
    let call_index = CallIndex::cached(context.trace, context.memo);
    let is_called = |name: &str| call_index.first_start.keys().any(|n| equal_ignoring_case(n, name));
    let is_in_trace = required_name.map_or(!context.trace.calls.is_empty(), is_called);
    // An output that asks the user a question is not the final answer.
    let asks_back = || ReadText::new(&output.text, agent.task.as_deref(), context.memo).ends_with_question();
    let is_unused = !is_in_prompt && !is_in_trace;
    if is_unused && asks_back() {
        return None;
    }
    let expected =
        required_name.map_or_else(|| "the tools to be used".to_owned(), |name| format!("a call to {name}"));
    let defect = Defect::RequiredToolUnused;
    Some(is_unused.then(|| Violation { defect, expected, quote: output.text.to_string() }))
}

fn equal_ignoring_case(a: &str, b: &str) -> bool {
    a.trim().eq_ignore_ascii_case(b.trim())
}

#[cfg(test)]
mod tests;
