//! Spans that stand for the same call twice, and spans that are not to be judged (conventions,
//! sections 5.6 and 5.12).

use std::collections::HashMap;

use verdict_otlp::trace::{Idx, Kind, Tree};

use super::message::Text;
use super::span_view::{Content, SpanView};

/// Marks everything under an evaluator as the evaluator's.
pub(crate) fn spread_evaluator_kind(tree: &Tree, views: &mut [SpanView]) {
    for &at in tree.order() {
        let Some(up) = tree.parent(at) else { continue };
        if views[up].kind == Kind::Evaluator {
            views[at].kind = Kind::Evaluator;
        }
    }
}

/// Marks LLM spans that only wrap another one for the same call, tool spans that wrap or repeat a
/// tool span of the same name, agent spans that hold nothing but one agent, and agent spans that
/// are but the model's turns of the agent around them.
pub(crate) fn mark_duplicates(tree: &Tree, views: &mut [SpanView], model_only: &[bool]) {
    for &at in tree.order().iter().rev() {
        match views[at].kind {
            Kind::Llm => {
                let inner = nearest_beneath(tree, views, at, Kind::Llm);
                if model_only.get(at) == Some(&true)
                    && inner.len() + nearest_beneath(tree, views, at, Kind::Tool).len() > 1
                {
                    // A model is named on it, but what it did, it did through others.
                    views[at].kind = if views[at].agent.is_some() { Kind::Agent } else { Kind::Chain };
                } else if inner.iter().any(|&i| same_call(&views[at], &views[i])) {
                    views[at].wrapper = true;
                    if let [only] = inner.as_slice() {
                        fill_inner_llm(views, at, *only);
                    }
                }
            }
            Kind::Tool => {
                for inner in nearest_beneath(tree, views, at, Kind::Tool) {
                    let name = |i: Idx| views[i].call.as_ref().map(|c| c.name.clone());
                    if name(inner) == name(at) && !views[inner].wrapper {
                        views[inner].wrapper = true;
                        fill_outer_tool(views, inner, at);
                    }
                }
            }
            _ => {}
        }
    }
    for &at in tree.order() {
        if views[at].kind == Kind::Agent && !views[at].wrapper && only_holds_an_agent(tree, views, at) {
            views[at].wrapper = true;
        }
    }
    for &at in tree.order() {
        if matches!(views[at].kind, Kind::Agent | Kind::Chain | Kind::Unknown) && !views[at].wrapper {
            mark_turns_as_chains(tree, views, at);
        }
    }
}

/// Agent spans right under `at` that only ask their model what to do next, while what they ask for
/// is done outside of them: a graph's node that happens to be called `agent` (LangGraph's ReAct
/// loop). All of one name are turns, or none is; and the span that holds them and the tools is the
/// agent.
fn mark_turns_as_chains(tree: &Tree, views: &mut [SpanView], at: Idx) {
    let mut named: HashMap<Option<Text>, Vec<Idx>> = HashMap::new();
    for &inner in tree.children(at).iter().take(MAX_LOOK) {
        if views[inner].kind == Kind::Agent && !views[inner].wrapper {
            named.entry(views[inner].name.clone()).or_default().push(inner);
        }
    }
    if named.is_empty() || nearest_beneath(tree, views, at, Kind::Tool).is_empty() {
        return;
    }
    for group in named.into_values() {
        let mut asked = false;
        let only_turns = group.iter().all(|&inner| {
            let llms = nearest_beneath(tree, views, inner, Kind::Llm);
            asked |= llms.iter().any(|&llm| views[llm].requests().next().is_some());
            llms.len() == 1 && tree.subtree(inner).take(MAX_LOOK).all(|i| views[i].kind != Kind::Tool)
        });
        if only_turns && asked {
            for inner in group {
                views[inner].kind = Kind::Chain;
            }
            views[at].kind = Kind::Agent;
        }
    }
}

/// Spans looked at beneath one: what it wraps is near, and a hostile tree may be deep.
const MAX_LOOK: usize = 500;

/// The nearest spans of `kind` beneath `at` that belong to the same agent, in order.
fn nearest_beneath(tree: &Tree, views: &[SpanView], at: Idx, kind: Kind) -> Vec<Idx> {
    let mut out = Vec::new();
    let mut stack: Vec<Idx> = tree.children(at).iter().copied().take(MAX_LOOK).collect();
    for _ in 0..MAX_LOOK {
        let Some(i) = stack.pop() else { break };
        let view = &views[i];
        let other = matches!(view.kind, Kind::Agent | Kind::Evaluator);
        let inside_tool = kind == Kind::Llm && view.kind == Kind::Tool;
        if view.kind == kind && !view.wrapper {
            out.push(i);
        } else if !(other || inside_tool) {
            stack.extend(tree.children(i).iter().copied().take(MAX_LOOK));
        }
    }
    out.sort_unstable();
    out
}

fn same_call(outer: &SpanView, inner: &SpanView) -> bool {
    if let (Some(a), Some(b)) = (&outer.response_id, &inner.response_id) {
        return a == b;
    }
    match (&outer.model, &inner.model) {
        // `openai/gpt-x` and `gpt-x-2026-01-01` are one model by other names.
        (Some(a), Some(b)) => {
            let bare = |m: &str| m.rsplit('/').next().unwrap_or(m).to_ascii_lowercase();
            let (a, b) = (bare(a), bare(b));
            a.starts_with(&b) || b.starts_with(&a)
        }
        _ => true,
    }
}

/// What the wrapper recorded and the inner span did not.
fn fill_inner_llm(views: &mut [SpanView], outer: Idx, inner: Idx) {
    let from = views[outer].clone();
    let to = &mut views[inner];
    if to.input_content == Content::Absent && from.input_content == Content::Present {
        (to.input, to.input_content) = (from.input, from.input_content);
    }
    if to.output_content == Content::Absent && from.output_content == Content::Present {
        (to.output, to.output_content) = (from.output, from.output_content);
    }
    if to.tools.is_empty() {
        to.tools = from.tools;
    }
    if to.finish.is_empty() {
        to.finish = from.finish;
    }
    if to.tokens == Default::default() {
        to.tokens = from.tokens;
    }
}

/// What the inner tool span recorded and the outer one did not.
fn fill_outer_tool(views: &mut [SpanView], inner: Idx, outer: Idx) {
    let from = views[inner].clone();
    let to = &mut views[outer];
    if let (Some(call), Some(inner)) = (&mut to.call, from.call) {
        call.id = call.id.take().or(inner.id);
        if call.arguments.is_none() {
            call.arguments = inner.arguments;
            to.input_content = from.input_content;
        }
    }
    if to.result.is_none() {
        (to.result, to.output_content) = (from.result, from.output_content);
    }
}

/// An agent span without content or work of its own, above exactly one agent.
fn only_holds_an_agent(tree: &Tree, views: &[SpanView], at: Idx) -> bool {
    if views[at].input_content == Content::Present || views[at].output_content == Content::Present {
        return false;
    }
    let mut agents = 0;
    let mut stack: Vec<Idx> = tree.children(at).to_vec();
    while let Some(i) = stack.pop() {
        match views[i].kind {
            Kind::Agent if !views[i].wrapper => agents += 1,
            Kind::Llm | Kind::Tool | Kind::Retriever => return false,
            _ => stack.extend(tree.children(i)),
        }
    }
    agents == 1
}
