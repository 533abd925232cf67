//! The model span that wrote an agent's answer.

use verdict_otlp::trace::{Idx, Kind};

use super::answer::final_answer;
use crate::measure::Memo;
use crate::measure::calls::call_index::CallIndex;
use crate::recognise::{Agent, AgentTrace, Content};

/// The model span that wrote the agent's answer, as its output or as the arguments of a tool that ends the run; `None`
/// if it is not in the trace.
pub(super) fn answered_by(trace: &AgentTrace, memo: &Memo, agent: &Agent) -> Option<Idx> {
    let call_index = CallIndex::cached(trace, memo);
    let requesting_span =
        agent.answer_at.and_then(|at| call_index.by_tool.get(&at)).and_then(|&i| trace.calls.get(i)?.llm);
    requesting_span.or_else(|| final_span(trace, agent))
}

/// The model span whose output is the agent's final answer; `None` if the agent has no such output.
pub(super) fn final_span(trace: &AgentTrace, agent: &Agent) -> Option<Idx> {
    let is_llm = |at: &Idx| trace.views.get(*at).is_some_and(|r| r.kind == Kind::Llm);
    if let Some(at) = agent.answer_at.filter(is_llm) {
        return Some(at);
    }
    let last = *agent.llms.last()?;
    let view = trace.views.get(last)?;
    let has_answer =
        view.output_content == Content::Present && final_answer(&trace.control_tools, view).is_some();
    has_answer.then_some(last)
}
