//! Spans that stand for the same call twice, and spans that are not to be judged (conventions,
//! sections 5.6 and 5.12).

use std::collections::HashMap;

use super::message::Text;
use super::reading::{Content, Reading};
use verdict_otlp::trace::{Idx, Kind, Tree};

/// Marks everything under an evaluator as the evaluator's.
pub(crate) fn evaluators(tree: &Tree, readings: &mut [Reading]) {
    for &at in tree.order() {
        let Some(up) = tree.parent(at) else { continue };
        if readings[up].kind == Kind::Evaluator {
            readings[at].kind = Kind::Evaluator;
        }
    }
}

/// Marks LLM spans that only wrap another one for the same call, tool spans that wrap or repeat a
/// tool span of the same name, agent spans that hold nothing but one agent, and agent spans that
/// are but the model's turns of the agent around them.
pub(crate) fn duplicates(tree: &Tree, readings: &mut [Reading], weak: &[bool]) {
    for &at in tree.order().iter().rev() {
        match readings[at].kind {
            Kind::Llm => {
                let inner = beneath(tree, readings, at, Kind::Llm);
                if weak.get(at) == Some(&true)
                    && inner.len() + beneath(tree, readings, at, Kind::Tool).len() > 1
                {
                    // A model is named on it, but what it did, it did through others.
                    readings[at].kind = if readings[at].agent.is_some() { Kind::Agent } else { Kind::Chain };
                } else if inner.iter().any(|&i| same_call(&readings[at], &readings[i])) {
                    readings[at].wrapper = true;
                    if let [only] = inner.as_slice() {
                        lend(readings, at, *only);
                    }
                }
            }
            Kind::Tool => {
                for inner in beneath(tree, readings, at, Kind::Tool) {
                    let name = |i: Idx| readings[i].call.as_ref().map(|c| c.name.clone());
                    if name(inner) == name(at) && !readings[inner].wrapper {
                        readings[inner].wrapper = true;
                        take(readings, inner, at);
                    }
                }
            }
            _ => {}
        }
    }
    for &at in tree.order() {
        if readings[at].kind == Kind::Agent
            && !readings[at].wrapper
            && only_holds_an_agent(tree, readings, at)
        {
            readings[at].wrapper = true;
        }
    }
    for &at in tree.order() {
        if matches!(readings[at].kind, Kind::Agent | Kind::Chain | Kind::Unknown) && !readings[at].wrapper {
            turns(tree, readings, at);
        }
    }
}

/// Agent spans right under `at` that only ask their model what to do next, while what they ask for
/// is done outside of them: a graph's node that happens to be called `agent` (LangGraph's ReAct
/// loop). All of one name are turns, or none is; and the span that holds them and the tools is the
/// agent.
fn turns(tree: &Tree, readings: &mut [Reading], at: Idx) {
    let mut named: HashMap<Option<Text>, Vec<Idx>> = HashMap::new();
    for &inner in tree.children(at).iter().take(MAX_LOOK) {
        if readings[inner].kind == Kind::Agent && !readings[inner].wrapper {
            named.entry(readings[inner].name.clone()).or_default().push(inner);
        }
    }
    if named.is_empty() || beneath(tree, readings, at, Kind::Tool).is_empty() {
        return;
    }
    for group in named.into_values() {
        let mut asked = false;
        let only_turns = group.iter().all(|&inner| {
            let llms = beneath(tree, readings, inner, Kind::Llm);
            asked |= llms.iter().any(|&llm| readings[llm].requests().next().is_some());
            llms.len() == 1 && tree.subtree(inner).take(MAX_LOOK).all(|i| readings[i].kind != Kind::Tool)
        });
        if only_turns && asked {
            for inner in group {
                readings[inner].kind = Kind::Chain;
            }
            readings[at].kind = Kind::Agent;
        }
    }
}

/// Spans looked at beneath one: what it wraps is near, and a hostile tree may be deep.
const MAX_LOOK: usize = 500;

/// The nearest spans of `kind` beneath `at` that belong to the same agent, in order.
fn beneath(tree: &Tree, readings: &[Reading], at: Idx, kind: Kind) -> Vec<Idx> {
    let mut out = Vec::new();
    let mut stack: Vec<Idx> = tree.children(at).iter().copied().take(MAX_LOOK).collect();
    for _ in 0..MAX_LOOK {
        let Some(i) = stack.pop() else { break };
        let reading = &readings[i];
        let other = matches!(reading.kind, Kind::Agent | Kind::Evaluator);
        let inside_tool = kind == Kind::Llm && reading.kind == Kind::Tool;
        if reading.kind == kind && !reading.wrapper {
            out.push(i);
        } else if !(other || inside_tool) {
            stack.extend(tree.children(i).iter().copied().take(MAX_LOOK));
        }
    }
    out.sort_unstable();
    out
}

fn same_call(outer: &Reading, inner: &Reading) -> bool {
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
fn lend(readings: &mut [Reading], outer: Idx, inner: Idx) {
    let from = readings[outer].clone();
    let to = &mut readings[inner];
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
fn take(readings: &mut [Reading], inner: Idx, outer: Idx) {
    let from = readings[inner].clone();
    let to = &mut readings[outer];
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
fn only_holds_an_agent(tree: &Tree, readings: &[Reading], at: Idx) -> bool {
    if readings[at].input_content == Content::Present || readings[at].output_content == Content::Present {
        return false;
    }
    let mut agents = 0;
    let mut stack: Vec<Idx> = tree.children(at).to_vec();
    while let Some(i) = stack.pop() {
        match readings[i].kind {
            Kind::Agent if !readings[i].wrapper => agents += 1,
            Kind::Llm | Kind::Tool | Kind::Retriever => return false,
            _ => stack.extend(tree.children(i)),
        }
    }
    agents == 1
}
