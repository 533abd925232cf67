//! Calls that a model announces and does not make.
//!
//! Principle: a model that says that it now calls a certain tool or agent makes a call before its next turn,
//! or before the run ends. A message that is only printed reaches nobody.
//!
//! In: a model's output ("I will ask the billing_agent"), the tools and helpers of its agent, and the calls
//! before its next turn. Out: one finding for each output after which nothing was called. Only outputs with
//! code and outputs that end the run are checked; other outputs may announce later calls.

use verdict_otlp::trace::Idx;

use super::answer::{masked, sentences};
use crate::measure::agent::agent_index;
use crate::measure::conversation::{Turns, plain_text, writes_code};
use crate::measure::defects::Defect;
use crate::measure::tool_index::OfferedTo;
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, AgentTrace, Content, Role, SpanView};

// The model's intention to call a tool or helper.
regex!(
    INTENT,
    r"(?i)\b(I|we)(['’]ll| will| am going to| need to| shall| now)?( now| then| first| next| also)* (call|ask|use|invoke|instruct|query|request|consult|delegate|send|issue|compose|employ)(ing)?\b|\b(let me|let's|let us)( now| first)? (call|ask|use|invoke|query|consult|delegate)\b|\b(I am|I'm|we are) (now )?(calling|asking|sending|instructing|requesting)\b"
);
// Words by which the call of a last output depends on something else, such as the user's consent.
regex!(DEPENDS, r"(?i)\b(if|once|when|whenever|after|until|unless|would|could|might|may|can)\b|\?\s*$");
// An identifier that is no word of a language: with an underscore or a capital inside.
regex!(NAME, r"\b[A-Za-z]\w*(?:_|[a-z][A-Z])\w+\b");
// The name after the intention: "call the `search` tool".
regex!(OBJECT, r#"^\s+(?:(?:the|my|our|an?)\s+)?[`"'*]*([A-Za-z][\w.-]*\w)"#);
/// Most agents of a trace that are checked, outermost first.
const MAX_AGENTS: usize = 512;
/// Most outputs of one agent that are checked.
const MAX_TURNS: usize = 200;

/// Findings by model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(Idx, Finding)> {
    let turns = Turns::of(trace, memo);
    let mut out = Vec::new();
    for (i, agent) in trace.agents.iter().enumerate().take(MAX_AGENTS) {
        let mut before = 0;
        for &at in agent.llms.iter().take(MAX_TURNS) {
            let Some(view) = trace.views.get(at) else { continue };
            if let Some((name, sentence)) = uncalled_announcement(trace, memo, i, agent, at, view) {
                out.push((at, finding(&name, &sentence, before)));
                before += 1;
            }
        }
    }
    for (at, finding) in &mut out {
        // The finding also cites the next turn, which shows that no call was made.
        let after = turns.after(*at).and_then(|next| trace.tree.spans.get(next));
        finding.cited.extend(after.map(|s| s.id));
    }
    out
}

fn uncalled_announcement(
    trace: &AgentTrace,
    memo: &Memo,
    i: usize,
    agent: &Agent,
    at: Idx,
    view: &SpanView,
) -> Option<(String, String)> {
    let present = view.output_content == Content::Present && view.input_content == Content::Present;
    if !present || trace.incomplete || view.requests().next().is_some() || !view.plans.is_empty() {
        return None;
    }
    let text = view.output_text();
    let next = Turns::of(trace, memo).after(at);
    let coded = writes_code(&text);
    if !coded && (next.is_some() || agent.answer_at != Some(at)) {
        return None;
    }
    let prose = masked(&text);
    let (name, sentence) = sentences(&prose).into_iter().find_map(|(start, end)| {
        let sentence = prose.get(start..end)?;
        let intent = INTENT.find(sentence).filter(|_| coded || !DEPENDS.is_match(sentence))?;
        // Masking removes quoted names.
        let object = text.get(start + intent.end()..end).and_then(|rest| OBJECT.captures(rest)?.get(1));
        let object = object.map(|m| m.as_str()).filter(|name| is_offered(trace, memo, i, name));
        let mut names = NAME.find_iter(sentence).map(|m| m.as_str());
        let name = object.or_else(|| {
            names.find(|name| is_offered(trace, memo, i, name) || instructs(trace, view, name))
        })?;
        Some((name.to_owned(), text.get(start..end)?.trim().to_owned()))
    })?;
    let called_in_code = text
        .match_indices(&name)
        .any(|(p, n)| text.get(p + n.len()..).is_some_and(|rest| rest.trim_start().starts_with('(')));
    (!called_in_code && !was_called(trace, memo, i, at, next)).then_some((name, sentence))
}

/// Whether `name` is a tool of agent `i`, or an agent of the trace.
fn is_offered(trace: &AgentTrace, memo: &Memo, i: usize, name: &str) -> bool {
    !trace.control_tools.is_control(name)
        && (OfferedTo::Agent(i).find(trace, memo, name).is_some()
            || agent_index::is_agent_name(trace, memo, name))
}

/// Whether the instructions contain `name`: not every instrumentation lists the tools.
fn instructs(trace: &AgentTrace, view: &SpanView, name: &str) -> bool {
    !trace.control_tools.is_control(name) && instructions(view).any(|t| t.contains(name))
}

/// The instructions in a model call's prompt.
pub(super) fn instructions(view: &SpanView) -> impl Iterator<Item = &str> {
    let system = view.input.iter().filter(|m| m.role == Role::System);
    system.flat_map(|m| &m.parts).filter_map(plain_text).map(|text| &**text)
}

/// Whether any call was made, or a sub-agent started, between the turns `at` and `next`.
fn was_called(trace: &AgentTrace, memo: &Memo, i: usize, at: Idx, next: Option<Idx>) -> bool {
    let start = |at: Idx| trace.tree.spans.get(at).map_or(0, |s| s.start);
    let (from, to) = (start(at), next.map_or(u64::MAX, start));
    let begun = trace.calls.partition_point(|call| call.start < from);
    let mut calls = trace.calls.iter().skip(begun).take_while(|call| call.start < to);
    calls.any(|call| !trace.control_tools.is_final_answer(&call.name))
        || agent_index::starts_agent_within(trace, memo, i, from..to)
}

fn finding(name: &str, sentence: &str, before: usize) -> Finding {
    let again = match before {
        0 => String::new(),
        n => format!(" ({n} earlier announcements without a call)"),
    };
    let rationale = format!(
        "a call to {name} was expected, as announced here; none was made before the next turn{again}"
    );
    Defect::AnnouncedCallMissing.finding(rationale, sentence)
}
