//! Who the agents of a trace are, which spans are whose, what each was asked and what it answered.

use std::collections::HashMap;

use super::calls::Draft;
use super::message::{Message, Part, Role, Text};
use super::reading::{Content, Reading};
use super::scene::Agent;
use super::table::Table;
use super::texts::Texts;
use super::{plans, tool};
use crate::trace::{Idx, Kind, SpanId, Tree};

/// Agents, outermost first, and for each span the agent it belongs to.
pub(crate) fn find(tree: &Tree, readings: &[Reading]) -> (Vec<Agent>, Vec<Option<usize>>) {
    let mut agents: Vec<Agent> = Vec::new();
    let mut owner: Vec<Option<usize>> = vec![None; readings.len()];
    for &at in tree.order() {
        let up = tree.parent(at).and_then(|up| owner[up]);
        let reading = &readings[at];
        owner[at] = match reading.kind {
            Kind::Agent if !reading.wrapper => {
                agents.push(agent(at, up, reading));
                Some(agents.len() - 1)
            }
            Kind::Evaluator => None,
            _ => up,
        };
    }
    implicit(tree, readings, &mut agents, &mut owner);
    (agents, owner)
}

fn agent(at: Idx, parent: Option<usize>, reading: &Reading) -> Agent {
    Agent {
        at,
        name: reading.agent.clone().or_else(|| named_by_span(reading)),
        parent,
        task: None,
        answer: None,
        answer_at: None,
        answer_content: Content::Absent,
        llms: Vec::new(),
        calls: Vec::new(),
        plans: Vec::new(),
        tools: Vec::new(),
    }
}

fn named_by_span(reading: &Reading) -> Option<Text> {
    let name = reading.name.as_ref()?;
    let bare = name.strip_prefix("invoke_agent ").unwrap_or(name);
    let bare = bare.strip_suffix(".run").unwrap_or(bare);
    Some(if bare.len() == name.len() { name.clone() } else { Text::from(bare) })
}

/// Top spans without an agent beneath that hold model or tool calls: each is an agent of its own.
/// Orphans of one missing parent are one agent's.
fn implicit(tree: &Tree, readings: &[Reading], agents: &mut Vec<Agent>, owner: &mut [Option<usize>]) {
    let mut missing: HashMap<SpanId, Vec<Idx>> = HashMap::new();
    let mut groups: Vec<Vec<Idx>> = Vec::new();
    let is_work = |i: Idx| matches!(readings[i].kind, Kind::Llm | Kind::Tool) && !readings[i].wrapper;
    for &top in tree.top() {
        let mut work = false;
        let mut agent = false;
        for i in tree.subtree(top) {
            agent |= owner[i].is_some();
            work |= is_work(i);
        }
        let parent = tree.spans[top].parent;
        match (work && !agent, parent.is_zero()) {
            (true, true) => groups.push(vec![top]),
            (true, false) => missing.entry(parent).or_default().push(top),
            (false, _) => {}
        }
    }
    groups.extend(missing.into_values());
    groups.sort();
    for tops in groups {
        let Some(&at) = tops.first() else { continue };
        // A single model call is no agent's run.
        let alone = tops.len() == 1 && is_work(at) && tree.subtree(at).filter(|&i| is_work(i)).count() == 1;
        if alone {
            continue;
        }
        agents.push(agent(at, None, &readings[at]));
        for top in tops {
            for i in tree.subtree(top) {
                if readings[i].kind != Kind::Evaluator {
                    owner[i] = Some(agents.len() - 1);
                }
            }
        }
    }
}

/// Fills in what each agent was asked, answered, planned and shown.
pub(crate) fn describe(
    table: &Table,
    texts: &mut Texts,
    tree: &Tree,
    readings: &mut [Reading],
    agents: &mut [Agent],
    owner: &[Option<usize>],
    calls: &[Draft],
) {
    for &at in tree.order() {
        let Some(a) = owner[at] else { continue };
        if readings[at].kind == Kind::Llm && !readings[at].wrapper {
            agents[a].llms.push(at);
        }
    }
    for (a, agent) in agents.iter_mut().enumerate() {
        agent.llms.sort_unstable();
        agent.tools = shown(readings, agent);
        agent.task = task(tree, readings, agent, texts);
        answer(table, readings, agent, calls.iter().filter(|c| c.agent == Some(a)), texts);
        agent.plans = planned(table, texts, tree, readings, owner, a, agent);
    }
}

fn shown(readings: &[Reading], agent: &Agent) -> Vec<super::ToolDefinition> {
    let mut out: Vec<super::ToolDefinition> = Vec::new();
    for &at in agent.llms.iter().chain([&agent.at]) {
        for definition in &readings[at].tools {
            match out.iter_mut().find(|d| d.name == definition.name) {
                Some(known) if known.parameters.is_none() && definition.parameters.is_some() => {
                    *known = definition.clone()
                }
                Some(_) => {}
                None => out.push(definition.clone()),
            }
        }
    }
    out
}

/// What was asked: by the agent's own input, else by its first model call, else by what is above.
fn task(tree: &Tree, readings: &[Reading], agent: &Agent, texts: &mut Texts) -> Option<Text> {
    let own = asked(&readings[agent.at].input, texts);
    let first = || agent.llms.first().map(|&at| &readings[at].input);
    own.or_else(|| first().and_then(|input| asked(input, &mut *texts))).or_else(|| match agent.parent {
        None => tree.ancestors(agent.at).skip(1).find_map(|up| asked(&readings[up].input, texts)),
        Some(_) => None,
    })
}

/// The user's words after the last answer in a conversation; in one without, all of the user's.
fn asked(messages: &[Message], texts: &mut Texts) -> Option<Text> {
    let users = |messages: &[Message]| -> Vec<Text> {
        let parts = messages.iter().filter(|m| m.role == Role::User).flat_map(|m| &m.parts);
        parts.filter_map(|p| if let Part::Text(t) = p { Some(t.clone()) } else { None }).collect()
    };
    let turn = messages
        .iter()
        .rposition(|m| m.role == Role::Assistant && m.parts.iter().all(|p| !matches!(p, Part::Call(_))));
    let after = users(messages.get(turn.map_or(0, |t| t + 1)..).unwrap_or(&[]));
    let all = if after.is_empty() { users(messages) } else { after };
    match all.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        many => {
            let joined: Vec<&str> = many.iter().map(|t| &**t).collect();
            Some(texts.intern(&joined.join("\n\n")))
        }
    }
}

/// What was finally answered, and where.
fn answer<'c>(
    table: &Table,
    readings: &[Reading],
    agent: &mut Agent,
    calls: impl Iterator<Item = &'c Draft>,
    texts: &mut Texts,
) {
    let own = &readings[agent.at];
    let last = agent.llms.last().copied();
    let is_final = |name: &str| table.final_answer_tools.iter().any(|t| t.eq_ignore_ascii_case(name));
    let handed = calls.filter(|c| is_final(&c.name)).last();
    agent.answer_content = own.output_content;
    if let Some(at) = last
        && agent.answer_content != Content::Present
        && readings[at].output_content != Content::Absent
    {
        agent.answer_content = readings[at].output_content;
    }
    if let Some(call) = handed
        && last.is_none_or(|last| call.llm == Some(last) || call.at > last)
        && let Some(text) = handed_over(call)
    {
        agent.answer = texts.some(&text);
        agent.answer_at = Some(call.at);
        agent.answer_content = Content::Present;
        return;
    }
    if let Some(at) = last
        && readings[at].requests().next().is_none()
    {
        let said = said(&readings[at].output);
        if !said.is_empty() {
            agent.answer = texts.some(&said);
            agent.answer_at = Some(at);
            return;
        }
    }
    let said = said(&own.output);
    if !said.is_empty() {
        agent.answer = texts.some(&said);
        agent.answer_at = Some(agent.at);
    }
}

/// The answer in a final-answer call: its only or telling argument, else its result.
fn handed_over(call: &Draft) -> Option<String> {
    let arguments = call.arguments.as_ref().and_then(|a| tool::parse(a, None));
    if let Some(serde_json::Value::Object(map)) = &arguments {
        let value = ["answer", "final_answer", "result", "response", "output", "text"]
            .iter()
            .find_map(|k| map.get(*k))
            .or_else(|| if map.len() == 1 { map.values().next() } else { None });
        match value {
            Some(serde_json::Value::String(s)) => return Some(s.clone()),
            Some(other) => return Some(other.to_string()),
            None if !map.is_empty() => return call.arguments.as_ref().map(|a| a.to_string()),
            None => {}
        }
    }
    let text = call.result.as_ref().or(call.arguments.as_ref())?;
    (!text.is_empty()).then(|| text.to_string())
}

/// The last words of the model in what came out.
fn said(output: &[Message]) -> String {
    let last = output.iter().rev().find(|m| m.role == Role::Assistant && !m.parts.is_empty());
    match last {
        Some(m) if m.parts.iter().all(|p| !matches!(p, Part::Call(_))) => {
            super::plain(std::slice::from_ref(m))
        }
        _ => String::new(),
    }
}

/// Plans of an agent in order: of plan spans and attributes, else of its models' outputs. The
/// same plan seen again on the way is no replan.
fn planned(
    table: &Table,
    texts: &mut Texts,
    tree: &Tree,
    readings: &mut [Reading],
    owner: &[Option<usize>],
    a: usize,
    agent: &Agent,
) -> Vec<(Idx, super::Plan)> {
    for &at in tree
        .order()
        .iter()
        .filter(|&&at| owner[at] == Some(a) && readings[at].kind == Kind::Plan)
        .collect::<Vec<_>>()
    {
        if readings[at].plans.is_empty() {
            let inner = tree.subtree(at).filter(|&i| readings[i].kind == Kind::Llm || i == at);
            let text = inner.map(|i| said(&readings[i].output)).filter(|t| !t.is_empty()).last();
            let plan = text.and_then(|t| plans::plan(&t, false, texts));
            readings[at].plans.extend(plan);
        }
    }
    if let Some(&first) = agent.llms.first() {
        let is_first = |at: Idx| at == first;
        for &at in &agent.llms {
            if readings[at].plans.is_empty() {
                plans::of_output(table, texts, &mut readings[at]);
            }
            if table.plan_heuristic && is_first(at) && readings[at].plans.is_empty() {
                let text = Text::from(readings[at].output_text().as_str());
                let plan = plans::unmarked(&text, texts);
                readings[at].plans.extend(plan);
            }
        }
    }
    let mut out: Vec<(Idx, super::Plan)> = Vec::new();
    let mut spans: Vec<Idx> = (0..readings.len()).filter(|&i| owner[i] == Some(a)).collect();
    spans.sort_unstable();
    for at in spans {
        for plan in &mut readings[at].plans {
            if out.iter().any(|(_, known)| {
                known.text == plan.text || (!plan.steps.is_empty() && known.steps == plan.steps)
            }) {
                continue;
            }
            plan.replan |= !out.is_empty();
            out.push((at, plan.clone()));
        }
    }
    out
}
