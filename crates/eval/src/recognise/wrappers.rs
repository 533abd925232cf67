//! Finds spans that record the same call twice, and spans of evaluators, which are not evaluated.

use foldhash::{HashMap, HashMapExt};

use verdict_otlp::trace::{Idx, Kind, Tree};

use super::framing;
use super::message::Text;
use super::span_view::{Content, SpanView};

/// Gives every span below an evaluator the evaluator's kind.
pub(crate) fn spread_evaluator_kind(tree: &Tree, views: &mut [SpanView]) {
    for &at in tree.order() {
        if tree.parent(at).is_some_and(|parent| views[parent].kind == Kind::Evaluator) {
            views[at].kind = Kind::Evaluator;
        }
    }
}

/// Marks model and tool spans that record the same call as another one, agent spans that only contain
/// one other agent, and agent spans that are only a turn of the agent around them. Chains that frame the run of an
/// agent become agents; those below the root are returned.
pub(crate) fn mark_duplicates(tree: &Tree, views: &mut [SpanView], model_only: &[bool]) -> Vec<Idx> {
    for &at in tree.order().iter().rev() {
        match views[at].kind {
            Kind::Llm => mark_outer_llm(tree, views, at, model_only[at]),
            Kind::Tool => mark_inner_tools(tree, views, at),
            _ => {}
        }
    }
    let marked = framing::mark_agents(tree, views);
    for &at in tree.order() {
        if views[at].kind == Kind::Agent && !views[at].wrapper && only_contains_an_agent(tree, views, at) {
            views[at].wrapper = true;
        }
    }
    for &at in tree.order() {
        if matches!(views[at].kind, Kind::Agent | Kind::Chain | Kind::Unknown) && !views[at].wrapper {
            mark_turns_as_chains(tree, views, at);
        }
    }
    marked
}

/// Marks a model span that wraps the span of the same call. One that is a model span only by the
/// name of a model on it, and has several calls below it, is an agent or a chain.
fn mark_outer_llm(tree: &Tree, views: &mut [SpanView], at: Idx, model_only: bool) {
    let inner = nearest_below(tree, views, at, Kind::Llm);
    if model_only && inner.len() + nearest_below(tree, views, at, Kind::Tool).len() > 1 {
        views[at].kind = if views[at].agent.is_some() { Kind::Agent } else { Kind::Chain };
    } else if inner.iter().any(|&i| same_call(&views[at], &views[i])) {
        views[at].wrapper = true;
        if let [only] = inner.as_slice() {
            fill_inner_llm(views, at, *only);
        }
    }
}

/// Marks the tool spans below a tool span that have the same tool's name.
fn mark_inner_tools(tree: &Tree, views: &mut [SpanView], at: Idx) {
    for inner in nearest_below(tree, views, at, Kind::Tool) {
        let name = |i: Idx| views[i].call.as_ref().map(|call| &call.name);
        if name(inner) == name(at) {
            views[inner].wrapper = true;
            fill_outer_tool(views, inner, at);
        }
    }
}

/// Makes agent spans directly below `at` chains if each only asks a model for the next step and the
/// calls are executed outside of it: a node of a graph that is named `agent` (LangGraph's ReAct
/// loop). All spans of one name are turns or none is. `at`, which contains them and the tools, is the
/// agent.
fn mark_turns_as_chains(tree: &Tree, views: &mut [SpanView], at: Idx) {
    let mut named: HashMap<Option<Text>, Vec<Idx>> = HashMap::new();
    for &inner in tree.children(at).iter().take(MAX_SPANS) {
        if views[inner].kind == Kind::Agent && !views[inner].wrapper {
            named.entry(views[inner].name.clone()).or_default().push(inner);
        }
    }
    if named.is_empty() || nearest_below(tree, views, at, Kind::Tool).is_empty() {
        return;
    }
    for group in named.into_values() {
        let mut requests = false;
        let only_turns = group.iter().all(|&inner| {
            let llms = nearest_below(tree, views, inner, Kind::Llm);
            requests |= llms.iter().any(|&llm| views[llm].requests().next().is_some());
            llms.len() == 1 && tree.subtree(inner).take(MAX_SPANS).all(|i| views[i].kind != Kind::Tool)
        });
        if only_turns && requests {
            for inner in group {
                views[inner].kind = Kind::Chain;
            }
            views[at].kind = Kind::Agent;
        }
    }
}

/// Maximum number of spans that are searched below one. A wrapped span is near; the tree is untrusted.
const MAX_SPANS: usize = 500;

/// The nearest spans of `kind` below `at` that belong to the same agent, in order.
fn nearest_below(tree: &Tree, views: &[SpanView], at: Idx, kind: Kind) -> Vec<Idx> {
    let mut out = Vec::new();
    if tree.children(at).is_empty() {
        return out;
    }
    let mut stack: Vec<Idx> = tree.children(at).iter().copied().take(MAX_SPANS).collect();
    for _ in 0..MAX_SPANS {
        let Some(i) = stack.pop() else { break };
        let view = &views[i];
        let other = matches!(view.kind, Kind::Agent | Kind::Evaluator);
        let inside_tool = kind == Kind::Llm && view.kind == Kind::Tool;
        if view.kind == kind && !view.wrapper {
            out.push(i);
        } else if !(other || inside_tool) {
            stack.extend(tree.children(i).iter().copied().take(MAX_SPANS));
        }
    }
    out.sort_unstable();
    out
}

fn same_call(outer: &SpanView, inner: &SpanView) -> bool {
    if let (Some(a), Some(b)) = (&outer.response_id, &inner.response_id) {
        return a == b;
    }
    let (Some(a), Some(b)) = (&outer.model, &inner.model) else { return true };
    // `openai/gpt-x` and `gpt-x-2026-01-01` are the same model.
    let bare = |model: &str| model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let (a, b) = (bare(a), bare(b));
    a.starts_with(&b) || b.starts_with(&a)
}

/// Copies what only the wrapper recorded to the inner span.
fn fill_inner_llm(views: &mut [SpanView], outer: Idx, inner: Idx) {
    let Ok([from, to]) = views.get_disjoint_mut([outer, inner]) else { return };
    if to.input_content == Content::Absent && from.input_content == Content::Present {
        (to.input, to.input_content) = (from.input.clone(), from.input_content);
    }
    if to.output_content == Content::Absent && from.output_content == Content::Present {
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

/// Copies what only the inner tool span recorded to the outer one.
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
fn only_contains_an_agent(tree: &Tree, views: &[SpanView], at: Idx) -> bool {
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
