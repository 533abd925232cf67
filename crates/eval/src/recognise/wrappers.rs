//! Finds spans that record the same call twice, and spans of evaluators, which are not evaluated.

use foldhash::{HashMap, HashMapExt};

use verdict_otlp::trace::{Idx, Kind, Tree};

use super::framing;
use super::message::Text;
use super::span_view::{Content, SpanView};

/// Gives every span below an evaluator the evaluator's kind.
pub(crate) fn spread_evaluator_kind(tree: &Tree, views: &mut [SpanView]) {
    for &index in tree.order() {
        if tree.parent(index).is_some_and(|parent| views[parent].kind == Kind::Evaluator) {
            views[index].kind = Kind::Evaluator;
        }
    }
}

/// Marks model and tool spans that record the same call as another span, and agent spans that only contain one other
/// agent, as wrappers. Agent spans that are only a step of the agent around them become chains. Chains that frame the
/// run of an agent become agents; those below the root are returned.
pub(crate) fn mark_duplicates(
    tree: &Tree,
    views: &mut [SpanView],
    kinds_from_model_name: &[bool],
) -> Vec<Idx> {
    for &index in tree.order().iter().rev() {
        match views[index].kind {
            Kind::Llm => mark_outer_llm(tree, views, index, kinds_from_model_name[index]),
            Kind::Tool => mark_inner_tools(tree, views, index),
            _ => {}
        }
    }
    let agent_chains = framing::mark_agents(tree, views);
    for &index in tree.order() {
        let is_agent = |above: Idx| views[above].kind == Kind::Agent;
        if is_nameless_agent(&views[index]) && tree.ancestors(index).skip(1).take(MAX_ANCESTORS).any(is_agent)
        {
            views[index].kind = Kind::Chain;
        }
    }
    for &index in tree.order() {
        if views[index].kind == Kind::Agent
            && !views[index].wrapper
            && only_contains_an_agent(tree, views, index)
        {
            views[index].wrapper = true;
        }
    }
    for &index in tree.order() {
        if matches!(views[index].kind, Kind::Agent | Kind::Chain | Kind::Unknown) && !views[index].wrapper {
            mark_turns_as_chains(tree, views, index);
        }
    }
    agent_chains
}

/// Marks a model span that wraps the span of the same call. If the kind of the span follows only from the name of a
/// model (`from_model_name`) and several calls are below the span, it becomes an agent or a chain.
fn mark_outer_llm(tree: &Tree, views: &mut [SpanView], index: Idx, from_model_name: bool) {
    let inner = nearest_below(tree, views, index, Kind::Llm);
    if from_model_name && inner.len() + nearest_below(tree, views, index, Kind::Tool).len() > 1 {
        views[index].kind = if views[index].agent.is_some() { Kind::Agent } else { Kind::Chain };
    } else if inner.iter().any(|&i| is_same_call(&views[index], &views[i])) {
        views[index].wrapper = true;
        if let [only] = inner.as_slice() {
            fill_inner_llm(views, index, *only);
        }
    }
}

/// Marks the tool spans below a tool span that have the same tool's name.
fn mark_inner_tools(tree: &Tree, views: &mut [SpanView], index: Idx) {
    for inner in nearest_below(tree, views, index, Kind::Tool) {
        let name = |i: Idx| views[i].call.as_ref().map(|call| &call.name);
        if name(inner) == name(index) {
            views[inner].wrapper = true;
            fill_outer_tool(views, inner, index);
        }
    }
}

/// Gives agent spans directly below the span `index` the kind of chains if each is only a turn: it asks a model for the
/// next step, and the calls are executed outside of it, as in a graph with a node named `agent` (the ReAct loop of
/// LangGraph). All spans of one name are turns, or none is. The span `index`, which contains the turns and the tools,
/// is then the agent.
fn mark_turns_as_chains(tree: &Tree, views: &mut [SpanView], index: Idx) {
    let mut by_name: HashMap<Option<Text>, Vec<Idx>> = HashMap::new();
    for &inner in tree.children(index).iter().take(MAX_SPANS) {
        if views[inner].kind == Kind::Agent && !views[inner].wrapper {
            by_name.entry(views[inner].name.clone()).or_default().push(inner);
        }
    }
    if by_name.is_empty() || nearest_below(tree, views, index, Kind::Tool).is_empty() {
        return;
    }
    for group in by_name.into_values() {
        let mut has_requests = false;
        let are_turns = group.iter().all(|&inner| {
            let llms = nearest_below(tree, views, inner, Kind::Llm);
            has_requests |= llms.iter().any(|&llm| views[llm].requests().next().is_some());
            llms.len() <= 1 && tree.subtree(inner).take(MAX_SPANS).all(|i| views[i].kind != Kind::Tool)
        });
        if are_turns && has_requests {
            for inner in group {
                views[inner].kind = Kind::Chain;
            }
            views[index].kind = Kind::Agent;
        }
    }
}

/// Whether the span of an agent states neither a name nor content: below an agent it is one of its steps. The GenAI
/// conventions give the span the name of its operation if the agent has none.
fn is_nameless_agent(view: &SpanView) -> bool {
    view.kind == Kind::Agent
        && view.agent.is_none()
        && view.name.as_deref() == Some("invoke_agent")
        && (view.input_content, view.output_content) == (Content::Absent, Content::Absent)
}

/// Maximum number of spans above a span that are searched for an agent.
const MAX_ANCESTORS: usize = 50;
/// Maximum number of spans that are searched below a span. A wrapped span is near; the tree is untrusted.
const MAX_SPANS: usize = 500;

/// The nearest spans of `kind` below `index` that belong to the same agent, in order.
fn nearest_below(tree: &Tree, views: &[SpanView], index: Idx, kind: Kind) -> Vec<Idx> {
    let mut out = Vec::new();
    if tree.children(index).is_empty() {
        return out;
    }
    let mut stack: Vec<Idx> = tree.children(index).iter().copied().take(MAX_SPANS).collect();
    for _ in 0..MAX_SPANS {
        let Some(i) = stack.pop() else { break };
        let view = &views[i];
        let is_other_run = matches!(view.kind, Kind::Agent | Kind::Evaluator);
        let is_model_in_tool = kind == Kind::Llm && view.kind == Kind::Tool;
        if view.kind == kind && !view.wrapper {
            out.push(i);
        } else if !(is_other_run || is_model_in_tool) {
            stack.extend(tree.children(i).iter().copied().take(MAX_SPANS));
        }
    }
    out.sort_unstable();
    out
}

fn is_same_call(outer: &SpanView, inner: &SpanView) -> bool {
    if let (Some(a), Some(b)) = (&outer.response_id, &inner.response_id) {
        return a == b;
    }
    let (Some(a), Some(b)) = (&outer.model, &inner.model) else { return true };
    // `openai/gpt-x` and `gpt-x-2026-01-01` are the same model.
    let without_vendor = |model: &str| model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let (a, b) = (without_vendor(a), without_vendor(b));
    a.starts_with(&b) || b.starts_with(&a)
}

/// Copies the fields that only the wrapper recorded to the inner span.
fn fill_inner_llm(views: &mut [SpanView], outer: Idx, inner: Idx) {
    let Ok([from, to]) = views.get_disjoint_mut([outer, inner]) else { return };
    if to.input_content == Content::Absent && from.input_content == Content::Present {
        (to.input, to.input_content) = (from.input.clone(), from.input_content);
    }
    let is_blank = to.requests().next().is_none() && super::plain(&to.output).is_empty();
    if is_blank && !to.output_content.is_partial() && from.output_content == Content::Present {
        (to.output, to.output_content) = (from.output.clone(), from.output_content);
    }
    if to.tools.is_empty() {
        to.tools.clone_from(&from.tools);
    }
    if to.finish.is_empty() {
        to.finish.clone_from(&from.finish);
    }
    if to.tokens == Default::default() {
        to.tokens = from.tokens;
    }
}

/// Copies the fields that only the inner tool span recorded to the outer span.
fn fill_outer_tool(views: &mut [SpanView], inner: Idx, outer: Idx) {
    let Ok([from, to]) = views.get_disjoint_mut([inner, outer]) else { return };
    if let (Some(call), Some(inner)) = (&mut to.call, &from.call) {
        call.id = call.id.take().or_else(|| inner.id.clone());
        if call.arguments.is_none() {
            call.arguments.clone_from(&inner.arguments);
            to.input_content = from.input_content;
        }
    }
    if to.result.is_none() {
        (to.result, to.output_content) = (from.result.clone(), from.output_content);
    }
}

/// Whether an agent span has exactly one agent below it, and no content or calls of its own.
fn only_contains_an_agent(tree: &Tree, views: &[SpanView], index: Idx) -> bool {
    if views[index].input_content == Content::Present || views[index].output_content == Content::Present {
        return false;
    }
    let mut agents = 0;
    let mut stack: Vec<Idx> = tree.children(index).to_vec();
    while let Some(i) = stack.pop() {
        match views[i].kind {
            Kind::Agent if !views[i].wrapper => agents += 1,
            Kind::Llm | Kind::Tool | Kind::Retriever => return false,
            _ => stack.extend(tree.children(i)),
        }
    }
    agents == 1
}
