//! Tool calls of a run: what a model asked for, what carried it out, what came back. Where there
//! is no tool span, a call is made of the messages alone (conventions, sections 5.8 and 5.9).

use std::collections::HashMap;
use std::sync::Arc;

use super::message::{Part, Text, ToolDefinition, ToolRequest};
use super::reading::Reading;
use super::scene::{Agent, Call};
use super::tool;
use crate::trace::{Idx, Kind, Tree};

/// A call while its scene is being built.
pub(crate) type Draft = Call;

/// A request that waits for its tool span.
struct Asked<'r> {
    llm: Idx,
    place: usize,
    request: &'r ToolRequest,
    tool: Option<Idx>,
}

/// Every call, in order; and the calls of each agent.
pub(crate) fn find(
    tree: &Tree,
    readings: &[Reading],
    agents: &[Agent],
    owner: &[Option<usize>],
) -> Vec<Draft> {
    let mut by_agent: HashMap<Option<usize>, Vec<Idx>> = HashMap::new();
    for (at, reading) in readings.iter().enumerate() {
        if matches!(reading.kind, Kind::Llm | Kind::Tool) && !reading.wrapper {
            by_agent.entry(owner[at]).or_default().push(at);
        }
    }
    // An agent whose model calls are not traced may show the conversation itself.
    for (a, agent) in agents.iter().enumerate() {
        by_agent.entry(Some(a)).or_insert_with(|| vec![agent.at]);
    }
    let mut drafts: Vec<(u64, usize, Draft)> = Vec::new();
    for (agent, spans) in by_agent {
        of_one_agent(tree, readings, agent, &spans, &mut drafts);
    }
    drafts.sort_by(|(a_start, a_place, a), (b_start, b_place, b)| {
        (a_start, a_place, a.at, &a.id).cmp(&(b_start, b_place, b.at, &b.id))
    });
    drafts.into_iter().map(|(_, _, draft)| draft).collect()
}

fn of_one_agent(
    tree: &Tree,
    readings: &[Reading],
    agent: Option<usize>,
    spans: &[Idx],
    out: &mut Vec<(u64, usize, Draft)>,
) {
    let talks = |at: &&Idx| readings[**at].kind != Kind::Tool;
    let mut asked: Vec<Asked<'_>> = spans
        .iter()
        .filter(talks)
        .flat_map(|&llm| {
            readings[llm].requests().enumerate().map(move |(place, request)| Asked {
                llm,
                place,
                request,
                tool: None,
            })
        })
        .collect();
    let tools: Vec<Idx> = spans.iter().copied().filter(|&at| readings[at].kind == Kind::Tool).collect();
    let linked = link(tree, readings, &mut asked, &tools);
    let results = Results::new(readings, spans);
    for (tool, ask) in tools.iter().zip(linked) {
        let Some(call) = readings[*tool].call.as_ref() else { continue };
        let asked = ask.and_then(|i| asked.get(i));
        let before = || {
            let earlier = |at: &Idx| tree.spans[*at].start <= tree.spans[*tool].start;
            spans.iter().copied().rfind(|at| readings[*at].kind != Kind::Tool && earlier(at))
        };
        let llm = asked.map(|a| a.llm).or_else(before);
        let reading = &readings[*tool];
        let definition = definition(readings, llm, &call.name).or_else(|| reading.tools.first().cloned());
        let arguments = match (&call.arguments, asked.and_then(|a| a.request.arguments.as_ref())) {
            // A bare value on the span, the whole object in the request.
            (Some(own), Some(written))
                if !own.trim_start().starts_with('{') && written.trim_start().starts_with('{') =>
            {
                Some(written)
            }
            (own, written) => own.as_ref().or(written),
        };
        let id = call.id.clone().or_else(|| asked.and_then(|a| a.request.id.clone()));
        let message = results.of(id.as_ref(), None);
        let draft = Call {
            llm,
            tool: Some(*tool),
            agent,
            name: call.name.clone(),
            id,
            parsed: parsed(arguments, definition.as_ref()),
            arguments: arguments.cloned(),
            result: reading.result.clone().or_else(|| message.map(|(text, _)| text.clone())),
            failed: !reading.errors.is_empty()
                || !reading.inherited_errors.is_empty()
                || message.is_some_and(|(_, failed)| failed),
            definition,
            at: *tool,
            start: tree.spans[*tool].start,
        };
        out.push((draft.start, asked.map_or(0, |a| a.place), draft));
    }
    for (nth, ask) in asked.iter().enumerate().filter(|(_, a)| a.tool.is_none()) {
        let message = results.of(ask.request.id.as_ref(), Some((nth, &ask.request.name)));
        let definition = definition(readings, Some(ask.llm), &ask.request.name);
        let span = &tree.spans[ask.llm];
        let draft = Call {
            llm: Some(ask.llm),
            tool: None,
            agent,
            name: ask.request.name.clone(),
            id: ask.request.id.clone(),
            parsed: parsed(ask.request.arguments.as_ref(), definition.as_ref()),
            arguments: ask.request.arguments.clone(),
            result: message.map(|(text, _)| text.clone()),
            failed: message.is_some_and(|(_, failed)| failed),
            definition,
            at: ask.llm,
            start: span.end.max(span.start),
        };
        out.push((draft.start, ask.place, draft));
    }
}

/// For each tool span the request it carries out: by id, else by name, arguments and order.
fn link(tree: &Tree, readings: &[Reading], asked: &mut [Asked<'_>], tools: &[Idx]) -> Vec<Option<usize>> {
    let mut linked: Vec<Option<usize>> = vec![None; tools.len()];
    let call = |tool: Idx| readings[tool].call.as_ref();
    for pass in 0..3 {
        for (slot, &tool) in linked.iter_mut().zip(tools) {
            let Some(own) = call(tool).filter(|_| slot.is_none()) else { continue };
            let fits = |a: &Asked<'_>| match pass {
                0 => own.id.is_some() && own.id == a.request.id,
                // An id that belongs to nobody else does not stand in the way of the name.
                1 => {
                    own.name == a.request.name
                        && same(own.arguments.as_ref(), a.request.arguments.as_ref())
                        && began(tree, a, tool)
                }
                _ => own.name == a.request.name && began(tree, a, tool),
            };
            let at = asked.iter().position(|a| a.tool.is_none() && fits(a));
            if let Some(ask) = at.and_then(|i| asked.get_mut(i)) {
                ask.tool = Some(tool);
                *slot = at;
            }
        }
    }
    linked
}

fn began(tree: &Tree, ask: &Asked<'_>, tool: Idx) -> bool {
    tree.spans[ask.llm].start <= tree.spans[tool].start
}

fn same(a: Option<&Text>, b: Option<&Text>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            a == b || {
                let json = |t: &Text| serde_json::from_str::<serde_json::Value>(t).ok();
                json(a).is_some_and(|a| json(b) == Some(a))
            }
        }
        _ => false,
    }
}

/// Tool messages in the prompts of an agent: by id, else in order by name.
struct Results<'r> {
    by_id: HashMap<&'r str, (&'r Text, bool)>,
    in_order: Vec<(Option<&'r Text>, &'r Text, bool)>,
}

impl<'r> Results<'r> {
    fn new(readings: &'r [Reading], spans: &[Idx]) -> Results<'r> {
        let mut by_id = HashMap::new();
        let mut longest: Vec<(Option<&Text>, &Text, bool)> = Vec::new();
        for &at in spans {
            let mut here = Vec::new();
            let messages = readings[at].input.iter().chain(readings[at].output.iter());
            for part in messages.flat_map(|m| &m.parts) {
                let Part::Result { id, name, content, failed } = part else { continue };
                match id {
                    Some(id) => {
                        by_id.entry(&**id).or_insert((content, *failed));
                    }
                    None => here.push((name.as_ref(), content, *failed)),
                }
            }
            if here.len() >= longest.len() {
                longest = here;
            }
        }
        Results { by_id, in_order: longest }
    }

    fn of(&self, id: Option<&Text>, nth: Option<(usize, &Text)>) -> Option<(&'r Text, bool)> {
        match (id, nth) {
            (Some(id), _) => self.by_id.get(&**id).copied(),
            (None, Some((nth, name))) => {
                let (who, content, failed) = self.in_order.get(nth)?;
                who.is_none_or(|who| who == name).then_some((*content, *failed))
            }
            (None, None) => None,
        }
    }
}

fn definition(readings: &[Reading], llm: Option<Idx>, name: &Text) -> Option<ToolDefinition> {
    readings[llm?].tools.iter().find(|d| d.name == *name).cloned()
}

fn parsed(arguments: Option<&Text>, definition: Option<&ToolDefinition>) -> Option<Arc<serde_json::Value>> {
    tool::parse(arguments?, definition.and_then(|d| d.parameters.as_deref())).map(Arc::new)
}
