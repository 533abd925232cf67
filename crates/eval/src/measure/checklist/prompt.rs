//! The prompt of a page.
//!
//! In: a page of a question, the rubric of the question, and the judged agent's trace and span. Out: the prompt with
//! the operator's rubric and instructions, within the token limit of prompts.

use verdict_otlp::trace::Idx;

use crate::measure::Prompt;
use crate::measure::ask::Asker;
use crate::measure::ask::prompt_page::PromptPage;
use crate::measure::table::CHECKLIST;
use crate::recognise::AgentTrace;

/// A page as a prompt of at most `verdict.ask.max_prompt_tokens`, with the operator's rubric and instructions.
pub(super) fn checklist_prompt(
    asker: &Asker,
    page: PromptPage,
    (question, rubric): (&str, &str),
    subject: (&AgentTrace, Idx),
) -> Prompt {
    let system = asker.question_system_prompt((CHECKLIST, question), rubric, Some(subject));
    let max_bytes = asker.max_bytes(&system);
    page.cut_to(max_bytes).prompt(system)
}
