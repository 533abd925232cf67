//! Finds the agents among spans that are labelled as steps.
//!
//! In: the kinds of the spans of a tree. Out: a chain that frames the run of an agent has the kind of an agent.
//! An agent is a span that frames model and tool calls under one task. Frameworks label such spans as graph,
//! workflow, chain or agent, and the same run must have the same verdict: the root of a trace that frames calls
//! or agents is the run, and below it a chain is an agent if its model calls form a conversation of their own
//! that is continued after a tool call in the chain.

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::{Idx, Kind, Tree};
use verdict_otlp::work;

use super::message::{Message, Part, Role};
use super::span_view::{Content, SpanView};

/// Maximum number of visits per span of a trace: nested chains are each searched.
const MAX_VISITS: usize = 8;

/// Maximum number of spans between a model call and the chain of its agent.
const MAX_ANCESTORS: usize = 50;

/// Maximum number of levels below an agent at which a chain that frames all its work is searched.
const MAX_LEVELS: usize = 8;

/// Gives chains that frame the run of an agent the kind of agents. Returns those below the root.
pub(super) fn mark_agents(tree: &Tree, views: &mut [SpanView]) -> Vec<Idx> {
    let mut marked = Vec::new();
    if !views.iter().any(|view| view.kind == Kind::Chain) {
        return marked;
    }
    for &top in tree.top() {
        let is_root = tree.spans[top].parent.is_zero() && views[top].kind == Kind::Chain;
        if is_root && tree.subtree(top).any(|index| is_call(&views[index]) || is_agent(&views[index])) {
            views[top].kind = Kind::Agent;
        }
    }
    let is_nested = |index: Idx| views[index].kind == Kind::Chain && tree.parent(index).is_some();
    if !(0..tree.len()).any(|index| is_nested(index) && tree.children(index).len() > 1) {
        return marked;
    }
    let mut search = Search { visits_left: MAX_VISITS * tree.len(), is_inside: vec![false; tree.len()] };
    for &index in tree.order() {
        if is_agent(&views[index]) {
            marked.extend(mark_conversations(tree, views, index, &mut search));
        }
    }
    marked
}

fn is_agent(view: &SpanView) -> bool {
    view.kind == Kind::Agent && !view.wrapper
}

fn is_call(view: &SpanView) -> bool {
    matches!(view.kind, Kind::Llm | Kind::Tool) && !view.wrapper
}

/// A chain whose content is needed, and the agent that it belongs to.
pub(super) struct ContentCompletion {
    pub(super) chain: Idx,
    pub(super) agent: Idx,
}

/// The chains whose content is needed for an agent. The content of chains is not read at first, since steps repeat the
/// messages of their children. Needed are the content of each chain that became an agent (`agent_chains`), and for each
/// agent without content that of the outermost chain with content that frames all work of the agent.
pub(super) fn completions(tree: &Tree, views: &[SpanView], agent_chains: &[Idx]) -> Vec<ContentCompletion> {
    let has_content =
        |view: &SpanView| view.input_content != Content::Absent || view.output_content != Content::Absent;
    let mut out: Vec<ContentCompletion> =
        agent_chains.iter().map(|&index| ContentCompletion { chain: index, agent: index }).collect();
    for (agent, _) in views.iter().enumerate().filter(|(_, view)| is_agent(view) && !has_content(view)) {
        let mut frames = sole_frames(tree, views, agent);
        let chain = frames.find(|&index| views[index].kind == Kind::Chain && has_content(&views[index]));
        out.extend(chain.map(|chain| ContentCompletion { chain, agent }));
    }
    out
}

/// The spans below an agent that frame all its work, outermost first.
fn sole_frames<'t>(tree: &'t Tree, views: &'t [SpanView], agent: Idx) -> impl Iterator<Item = Idx> + 't {
    let has_work = |index: Idx| tree.subtree(index).any(|i| is_call(&views[i]) || is_agent(&views[i]));
    let sole_working_child = move |&index: &Idx| {
        let mut working = tree.children(index).iter().copied().filter(|&child| has_work(child));
        let only = working.next().filter(|_| working.next().is_none());
        only.filter(|&only| matches!(views[only].kind, Kind::Chain | Kind::Unknown))
    };
    std::iter::successors(sole_working_child(&agent), sole_working_child).take(MAX_LEVELS)
}

/// The content of a chain that frames all work of an agent.
pub(super) struct AgentFrame {
    pub(super) chain: Idx,
    pub(super) view: SpanView,
}

/// The frames of agents that recorded nothing, by the agent's span.
pub(super) type Frames = HashMap<Idx, AgentFrame>;

/// Gives `agent`, a chain that became an agent, its content.
pub(super) fn set_content(agent: &mut SpanView, with_content: SpanView) {
    (agent.input, agent.input_content) = (with_content.input, with_content.input_content);
    (agent.output, agent.output_content) = (with_content.output, with_content.output_content);
    agent.tools = with_content.tools;
}

/// The beginning of a conversation: the addresses of the texts of its instructions and its first request.
type Opening = (usize, usize);

/// The state of the search for chains in one trace.
struct Search {
    /// The number of visits that are left.
    visits_left: usize,
    /// By span, whether it is a chain that has become an agent, or is beneath one.
    is_inside: Vec<bool>,
}

/// Gives the outermost chains of the agent at `top` that have conversations of their own the kind of agents, and
/// returns them.
fn mark_conversations(tree: &Tree, views: &mut [SpanView], top: Idx, search: &mut Search) -> Vec<Idx> {
    let own_spans = |top: Idx| own_spans(tree, views, top);
    let mut calls_by_opening: HashMap<Opening, usize> = HashMap::new();
    let mut chains = Vec::new();
    for index in own_spans(top) {
        search.visits_left = search.visits_left.saturating_sub(1);
        if views[index].kind == Kind::Chain && index != top {
            chains.push(index);
        } else if let Some(opening) = opening(&views[index]) {
            *calls_by_opening.entry(opening).or_default() += 1;
        }
    }
    // A single conversation is that of the agent itself.
    let mut new_agents: Vec<Idx> = Vec::new();
    if calls_by_opening.len() < 2 {
        return new_agents;
    }
    for chain in chains {
        if search.visits_left == 0 {
            break;
        }
        // Outer chains come before those beneath them.
        if search.is_inside[chain] {
            continue;
        }
        let mut conversations: HashMap<Opening, Vec<usize>> = HashMap::new();
        let mut has_tool = false;
        // An agent that is called as a tool is beneath the tool's span: the chain around that span is its caller's.
        let mut has_own_call = false;
        for index in own_spans(chain) {
            search.visits_left = search.visits_left.saturating_sub(1);
            has_tool |= views[index].kind == Kind::Tool;
            has_own_call = has_own_call
                || opening(&views[index]).is_some() && !is_within_tool(tree, views, index, chain);
            if let Some(opening) = opening(&views[index]) {
                conversations.entry(opening).or_default().push(views[index].input.len());
            }
        }
        let has_own_conversations =
            conversations.iter().all(|(opening, calls)| calls_by_opening.get(opening) == Some(&calls.len()));
        let is_continued = |calls: &Vec<usize>| calls.iter().min() < calls.iter().max();
        let leaves_conversations = conversations.len() < calls_by_opening.len();
        if has_tool
            && has_own_call
            && has_own_conversations
            && leaves_conversations
            && conversations.values().any(is_continued)
        {
            new_agents.push(chain);
            // The new agents share no spans, so these visits are linear in the size of the trace.
            own_spans(chain).for_each(|index| search.is_inside[index] = true);
        }
    }
    for &chain in &new_agents {
        views[chain].kind = Kind::Agent;
    }
    new_agents
}

/// Whether a tool span is between the span at `at` and `chain`, which is above it.
fn is_within_tool(tree: &Tree, views: &[SpanView], at: Idx, chain: Idx) -> bool {
    let mut between = tree.ancestors(at).skip(1).take_while(|above| *above != chain).take(MAX_ANCESTORS);
    between.any(|above| views[above].kind == Kind::Tool)
}

/// The span and those below it that belong to the same agent.
fn own_spans<'t>(tree: &'t Tree, views: &'t [SpanView], top: Idx) -> impl Iterator<Item = Idx> + 't {
    let mut stack = vec![top];
    std::iter::from_fn(move || {
        let next = stack.pop()?;
        let is_own = |child: &&Idx| !is_agent(&views[**child]) && views[**child].kind != Kind::Evaluator;
        stack.extend(tree.children(next).iter().rev().filter(is_own));
        work::count(1);
        Some(next)
    })
}

/// The opening of the conversation in a model call's prompt. Texts are interned, so that equal ones have the same
/// address.
fn opening(view: &SpanView) -> Option<Opening> {
    if view.kind != Kind::Llm || view.wrapper {
        return None;
    }
    let address = |message: &Message| {
        message.parts.iter().find_map(|part| match part {
            Part::Text(text) => Some(text.as_ptr() as usize),
            _ => None,
        })
    };
    let address_for_role =
        |role: Role| view.input.iter().find(|message| message.role == role).and_then(address);
    match (address_for_role(Role::System), address_for_role(Role::User)) {
        (None, None) => None,
        (system, user) => Some((system.unwrap_or_default(), user.unwrap_or_default())),
    }
}
