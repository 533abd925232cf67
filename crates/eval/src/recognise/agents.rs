//! Finds the agents of a trace, the spans of each, its task, its answer, its tools and its plans.

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::{Idx, Kind, SpanId, Tree};
use verdict_otlp::work;

use super::agent_trace::{Agent, Call, Phase};
use super::framing::{AgentFrame, Frames};
use super::message::{Message, Part, Role, Text, ToolDefinition};
use super::span_view::{Content, RecordedPlan, SpanView};
use super::table::ConventionTable;
use super::texts::TextInterner;
use super::tool::MAX_TOOLS;
use super::{json_keys, open_runs, plans};

/// Maximum number of spans below a plan span that are searched for its text.
const MAX_PLAN_SPANS: usize = 500;
/// Maximum number of spans above an agent that are searched for its task.
const MAX_ANCESTORS: usize = 50;
/// Maximum number of plans of one agent.
const MAX_PLANS: usize = 200;

/// The agents, outermost first, and the agent of each span.
pub(super) fn find(tree: &Tree, views: &[SpanView], phase: Phase) -> (Vec<Agent>, Vec<Option<usize>>) {
    let mut agents: Vec<Agent> = Vec::new();
    let mut owner: Vec<Option<usize>> = vec![None; views.len()];
    for &span_index in tree.order() {
        let parent = tree.parent(span_index).and_then(|parent| owner[parent]);
        let view = &views[span_index];
        owner[span_index] = match view.kind {
            Kind::Agent if !view.wrapper => {
                agents.push(agent(span_index, parent, view));
                Some(agents.len() - 1)
            }
            Kind::Evaluator => None,
            _ => parent,
        };
    }
    add_implicit(tree, views, phase, &mut agents, &mut owner);
    (agents, owner)
}

fn agent(span_index: Idx, parent: Option<usize>, view: &SpanView) -> Agent {
    Agent {
        at: span_index,
        name: view.agent.clone().or_else(|| name_of_span(view)),
        parent,
        ..Agent::default()
    }
}

fn name_of_span(view: &SpanView) -> Option<Text> {
    let name = view.name.as_ref()?;
    let stripped = name.strip_prefix("invoke_agent ").unwrap_or(name);
    let stripped = stripped.strip_suffix(".run").unwrap_or(stripped);
    Some(if stripped.len() == name.len() { name.clone() } else { Text::from(stripped) })
}

/// Adds the agents that no agent span represents: each topmost span with model or tool calls below it
/// and no agent span. Topmost spans with the same missing parent belong to one agent.
///
/// In an open trace the parents may still arrive: a single call is part of a run, spans with different missing
/// parents may belong to one agent, and the name of a span is not that of the agent.
fn add_implicit(
    tree: &Tree,
    views: &[SpanView],
    phase: Phase,
    agents: &mut Vec<Agent>,
    owner: &mut [Option<usize>],
) {
    let is_work = |i: Idx| matches!(views[i].kind, Kind::Llm | Kind::Tool) && !views[i].wrapper;
    let mut orphans: HashMap<SpanId, Vec<Idx>> = HashMap::new();
    let mut groups: Vec<Vec<Idx>> = Vec::new();
    for &top in tree.top() {
        let has_agent = tree.subtree(top).any(|i| owner[i].is_some());
        let parent = tree.spans[top].parent;
        if has_agent || !tree.subtree(top).any(is_work) {
            continue;
        }
        match parent.is_zero() {
            true => groups.push(vec![top]),
            false => orphans.entry(parent).or_default().push(top),
        }
    }
    let is_open = phase == Phase::Open;
    let mut orphans: Vec<Vec<Idx>> = orphans.into_values().collect();
    if is_open {
        orphans.sort();
        orphans = open_runs::join_groups(tree, views, orphans);
    }
    groups.extend(orphans);
    groups.sort();
    // Each group contains the topmost spans of one agent.
    for tops in groups {
        let span_index = tops[0];
        let awaits_parent = is_open && !tree.spans[span_index].parent.is_zero();
        // A single model or tool call is not the run of an agent.
        let is_single = tops.len() == 1 && is_work(span_index);
        if !awaits_parent && is_single && tree.subtree(span_index).filter(|&i| is_work(i)).count() == 1 {
            continue;
        }
        let mut implicit_agent = agent(span_index, None, &views[span_index]);
        if awaits_parent {
            implicit_agent.name = open_runs::agent_name(tree, views, &tops);
        }
        agents.push(implicit_agent);
        for top in tops {
            for i in tree.subtree(top) {
                if views[i].kind != Kind::Evaluator {
                    owner[i] = Some(agents.len() - 1);
                }
            }
        }
    }
}

/// Fills in the task, answer, tools and plans of each agent.
pub(crate) fn describe(
    table: &ConventionTable,
    texts: &mut TextInterner,
    tree: &Tree,
    views: &mut [SpanView],
    agents: &mut [Agent],
    owner: &[Option<usize>],
    calls: &[Call],
) {
    let mut spans: Vec<Vec<Idx>> = vec![Vec::new(); agents.len()];
    for (span_index, owner) in owner.iter().enumerate() {
        if let Some(agent) = *owner {
            spans[agent].push(span_index);
        }
    }
    let mut final_calls: Vec<Option<&Call>> = vec![None; agents.len()];
    for call in calls.iter().filter(|c| table.control_tools.is_final_answer(&c.name)) {
        if let Some(agent) = call.agent {
            final_calls[agent] = Some(call);
        }
    }
    let mut requests = RequestsAbove::new();
    for ((agent, spans), final_call) in agents.iter_mut().zip(&spans).zip(final_calls) {
        let is_call = |span_index: &Idx| views[*span_index].kind == Kind::Llm && !views[*span_index].wrapper;
        agent.llms = spans.iter().copied().filter(is_call).collect();
        agent.tools = offered_tools(views, agent);
        if let Some((text, span_index)) = task(tree, views, agent, texts, &mut requests) {
            (agent.task, agent.task_at, agent.task_content) =
                (Some(text), Some(span_index), views[span_index].input_content);
        }
        set_answer(views, agent, final_call, texts);
        agent.plans = agent_plans(table, texts, tree, views, spans, agent);
    }
}

/// Completes the agents that recorded nothing themselves with the task, answer and tools of their frames.
pub(super) fn add_frames(mut frames: Frames, agents: &mut [Agent], texts: &mut TextInterner) {
    for agent in agents {
        let Some(AgentFrame { chain, view }) = frames.remove(&agent.at) else { continue };
        match user_request(&view.input, texts) {
            Some(task) if agent.task.is_none() || !is_object(&task) && !view.input_content.is_partial() => {
                (agent.task, agent.task_at, agent.task_content) =
                    (Some(task), Some(chain), view.input_content);
            }
            _ => {}
        }
        let answer = last_assistant_text(&view.output);
        if agent.answer.is_none() && !answer.is_empty() && !view.output_content.is_partial() {
            (agent.answer, agent.answer_at) = (texts.non_empty(&answer), Some(chain));
            agent.answer_content = Content::Present;
        } else if agent.answer_content == Content::Absent {
            agent.answer_content = view.output_content;
        }
        for tool in view.tools {
            if agent.tools.len() < MAX_TOOLS && agent.tools.iter().all(|other| other.name != tool.name) {
                agent.tools.push(tool);
            }
        }
    }
}

/// Completes the agents that delegate work to agents beneath them. An agent without a recorded task has the task of
/// the first agent beneath it. If the last agent beneath began after the agent's last model call, the agent's answer is
/// the output of its own span, or else the answer of that last agent; an earlier model output is not the answer.
pub(super) fn adopt_from_agents_beneath(
    tree: &Tree,
    views: &[SpanView],
    agents: &mut [Agent],
    texts: &mut TextInterner,
) {
    // By agent: the first and the last of the agents directly beneath it.
    let mut beneath: Vec<Option<(usize, usize)>> = vec![None; agents.len()];
    // An agent's index is above that of its parent.
    for agent_index in (0..agents.len()).rev() {
        if let Some((first, last)) = beneath[agent_index] {
            adopt(tree, views, agents, texts, AdoptingAgent { index: agent_index, first, last });
        }
        let Some(parent) = agents[agent_index].parent else { continue };
        let start = |agent: usize| (tree.spans[agents[agent].at].start, agent);
        let (first, last) = beneath[parent].unwrap_or((agent_index, agent_index));
        let earlier = if start(agent_index) < start(first) { agent_index } else { first };
        let later = if start(agent_index) > start(last) { agent_index } else { last };
        beneath[parent] = Some((earlier, later));
    }
}

/// The index of an agent, and of the first and the last agent directly beneath it.
struct AdoptingAgent {
    index: usize,
    first: usize,
    last: usize,
}

/// Sets the task of an agent to that of the first agent beneath it, and its answer to that of the last one, where the
/// agent has none.
fn adopt(
    tree: &Tree,
    views: &[SpanView],
    agents: &mut [Agent],
    texts: &mut TextInterner,
    AdoptingAgent { index, first, last }: AdoptingAgent,
) {
    if agents[index].task.is_none() && agents[index].task_content == Content::Absent {
        let (task, task_at, content) =
            (agents[first].task.clone(), agents[first].task_at, agents[first].task_content);
        (agents[index].task, agents[index].task_at, agents[index].task_content) = (task, task_at, content);
    }
    let span_index = agents[index].at;
    let last_start = tree.spans[agents[last].at].start;
    let is_later = |answer: Idx| answer == span_index || tree.spans[answer].start >= last_start;
    let has_later_call = agents[index].llms.last().is_some_and(|&llm| tree.spans[llm].start >= last_start);
    if has_later_call || agents[index].answer_at.is_some_and(is_later) {
        return;
    }
    let output = last_assistant_text(&views[span_index].output);
    let own_content = views[span_index].output_content;
    let (answer, answer_at, content) = match () {
        () if own_content.is_partial() => (None, None, own_content),
        () if !output.is_empty() => (texts.non_empty(&output), Some(span_index), Content::Present),
        () => (agents[last].answer.clone(), agents[last].answer_at, agents[last].answer_content),
    };
    (agents[index].answer, agents[index].answer_at, agents[index].answer_content) =
        (answer, answer_at, content);
}

/// The tools that the agent was offered, with the schema of each if any span has it.
fn offered_tools(views: &[SpanView], agent: &Agent) -> Vec<ToolDefinition> {
    let mut out: Vec<ToolDefinition> = Vec::new();
    let mut index_by_name: HashMap<Text, usize> = HashMap::new();
    for &span_index in agent.llms.iter().chain([&agent.at]) {
        for definition in &views[span_index].tools {
            match index_by_name.get(&definition.name).and_then(|&i| out.get_mut(i)) {
                Some(earlier) if earlier.parameters.is_none() && definition.parameters.is_some() => {
                    *earlier = definition.clone();
                }
                Some(_) => {}
                None if index_by_name.len() >= MAX_TOOLS => {}
                None => {
                    index_by_name.insert(definition.name.clone(), out.len());
                    out.push(definition.clone());
                }
            }
        }
    }
    out
}

/// The requests of spans above agents, cached: thousands of agents may be below one span.
type RequestsAbove = HashMap<Idx, Option<Text>>;

/// The task and the span that states it: the agent's span, else its first model call with a request,
/// else a span above it. An input that is an object (the settings of agent and task, in CrewAI and
/// LlamaIndex) is used only if no span has the question as text, and an input that is hidden or cut off only if there
/// is no other.
fn task(
    tree: &Tree,
    views: &[SpanView],
    agent: &Agent,
    texts: &mut TextInterner,
    requests: &mut RequestsAbove,
) -> Option<(Text, Idx)> {
    let ancestors = tree.ancestors(agent.at).skip(1).take(MAX_ANCESTORS).filter(|_| agent.parent.is_none());
    let own_spans = std::iter::once(agent.at).chain(agent.llms.iter().copied());
    let spans =
        own_spans.map(|span_index| (span_index, false)).chain(ancestors.map(|span_index| (span_index, true)));
    let (mut settings, mut partial) = (None, None);
    for (span_index, is_above) in spans {
        let mut read_request = || user_request(&views[span_index].input, texts);
        match if is_above {
            requests.entry(span_index).or_insert_with(read_request).clone()
        } else {
            read_request()
        } {
            Some(text) if views[span_index].input_content.is_partial() => {
                partial = partial.or(Some((text, span_index)))
            }
            Some(text) if is_object(&text) => settings = settings.or(Some((text, span_index))),
            Some(text) => return Some((text, span_index)),
            None => {}
        }
    }
    settings.or(partial)
}

/// Whether a text is the JSON of an object, possibly truncated.
fn is_object(text: &str) -> bool {
    text.trim_start().strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('"'))
}

/// The user's texts after the last answer in a conversation; all texts of the user if none follows it.
fn user_request(messages: &[Message], texts: &mut TextInterner) -> Option<Text> {
    work::count(messages.iter().map(|message| message.parts.len()).sum());
    let user_texts = |messages: &[Message]| -> Vec<Text> {
        let parts = messages.iter().filter(|m| m.role == Role::User).flat_map(|m| &m.parts);
        parts.filter_map(|p| if let Part::Text(t) = p { Some(t.clone()) } else { None }).collect()
    };
    let answer = messages.iter().rposition(|m| m.role == Role::Assistant && !has_calls(m));
    let after = user_texts(&messages[answer.map_or(0, |answer| answer + 1)..]);
    let request = if after.is_empty() { user_texts(messages) } else { after };
    match request.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        many => Some(texts.intern(&many.iter().map(|t| &**t).collect::<Vec<_>>().join("\n\n"))),
    }
}

fn has_calls(message: &Message) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::Call(_)))
}

/// Fills in the final answer and the span that gave it.
fn set_answer(views: &[SpanView], agent: &mut Agent, final_call: Option<&Call>, texts: &mut TextInterner) {
    let view = &views[agent.at];
    let last = agent.llms.last().copied();
    agent.answer_content = view.output_content;
    if let Some(span_index) = last
        && agent.answer_content != Content::Present
        && views[span_index].output_content != Content::Absent
    {
        agent.answer_content = views[span_index].output_content;
    }
    // A final-answer call before the last model call did not end the run.
    let ends_run = |call: &&Call| last.is_none_or(|last| call.llm == Some(last) || call.at > last);
    if let Some(call) = final_call.filter(ends_run).filter(|call| !call.arguments_content.is_partial())
        && let Some(text) = final_answer_text(call)
    {
        agent.answer = texts.non_empty(&text);
        agent.answer_at = Some(call.at);
        agent.answer_content = Content::Present;
        return;
    }
    let requests_no_call = |span_index: &Idx| views[*span_index].requests().next().is_none();
    for span_index in last.filter(requests_no_call).into_iter().chain([agent.at]) {
        let text = last_assistant_text(&views[span_index].output);
        if !text.is_empty() && !views[span_index].output_content.is_partial() {
            agent.answer = texts.non_empty(&text);
            agent.answer_at = Some(span_index);
            agent.answer_content = Content::Present;
            return;
        }
    }
}

/// The answer in a final-answer call: an argument with a usual name, or the only one, else the result.
fn final_answer_text(call: &Call) -> Option<String> {
    let arguments = call.arguments.as_ref().and_then(|a| json_keys::parse(a));
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

/// The text of the model's last message in an output; empty if it makes calls.
fn last_assistant_text(output: &[Message]) -> String {
    let last = output.iter().rfind(|m| m.role == Role::Assistant && !m.parts.is_empty());
    let last = last.filter(|m| !has_calls(m));
    last.map(|m| super::plain(std::slice::from_ref(m)).into_owned()).unwrap_or_default()
}

/// The plans of an agent in order, from plan spans, attributes and its models' outputs. A plan that repeats an
/// earlier one is left out.
fn agent_plans(
    table: &ConventionTable,
    texts: &mut TextInterner,
    tree: &Tree,
    views: &mut [SpanView],
    spans: &[Idx],
    agent: &Agent,
) -> Vec<(Idx, RecordedPlan)> {
    for &span_index in spans {
        if views[span_index].kind == Kind::Plan && views[span_index].plans.is_empty() {
            let may_contain_plan = |i: &Idx| {
                (*i == span_index || views[*i].kind == Kind::Llm) && !views[*i].output_content.is_partial()
            };
            let inner = tree.subtree(span_index).take(MAX_PLAN_SPANS).filter(may_contain_plan);
            let text = inner.map(|i| last_assistant_text(&views[i].output)).filter(|t| !t.is_empty()).last();
            let plan = text.and_then(|t| plans::read_plan(&t, false, texts));
            views[span_index].plans.extend(plan);
        }
    }
    for (nth, &span_index) in agent.llms.iter().enumerate() {
        if views[span_index].output_content.is_partial() {
            continue;
        }
        if views[span_index].plans.is_empty() {
            plans::read_output(table, texts, &mut views[span_index]);
        }
        if table.plan_heuristic && nth == 0 && views[span_index].plans.is_empty() {
            let plan = plans::unmarked_plan(&views[span_index].output_text(), texts);
            views[span_index].plans.extend(plan);
        }
    }
    let mut out: Vec<(Idx, RecordedPlan)> = Vec::new();
    for &span_index in spans {
        for plan in &mut views[span_index].plans {
            let is_repeated = |(_, earlier_plan): &(Idx, RecordedPlan)| {
                earlier_plan.text == plan.text || (!plan.steps.is_empty() && earlier_plan.steps == plan.steps)
            };
            if out.len() >= MAX_PLANS || out.iter().any(is_repeated) {
                continue;
            }
            plan.replan |= !out.is_empty();
            out.push((span_index, plan.clone()));
        }
    }
    out
}
