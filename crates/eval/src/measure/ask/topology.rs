//! The structure and the control flow of an agent system, as observed.
//!
//! In: a trace. Out: a description of a few lines: the agents and their callers, the number of model calls
//! and plans of a run, and the turns in order. With the architecture in the prompt, judges locate errors far more
//! often (000, table 5); the paper's descriptions were written by hand (appendix B.1).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use verdict_otlp::trace::Idx;

use super::asker::Asker;
use crate::recognise::{Agent, AgentTrace};

/// Maximum number of agents described; further agents are counted.
const MAX_AGENTS: usize = 30;
/// Maximum number of tools listed of one agent.
const MAX_TOOLS: usize = 25;
/// Maximum number of turns listed, the first two thirds from the beginning, the others from the end; the turns between
/// are counted.
const MAX_TURNS: usize = 24;
/// Maximum number of spans between an agent and the call that started it.
const MAX_SPANS_BETWEEN: usize = 50;

/// Agents with the same name and caller, which are described by one line.
#[derive(Default)]
struct AgentRole<'a> {
    caller: Option<usize>,
    title: String,
    runs: usize,
    model_calls: usize,
    /// The fewest and the most model calls of one run.
    model_calls_of_run: Option<(usize, usize)>,
    plans: usize,
    answered_runs: usize,
    calls_by_tool: BTreeMap<&'a str, usize>,
    offered_tools: BTreeSet<&'a str>,
}

/// The title of the description in prompts.
pub(crate) const CONTROL_FLOW_TITLE: &str = "agents and control flow, as observed";

/// The description. Empty for a trace without agents.
pub(crate) fn describe(asker: &Asker, trace: &AgentTrace) -> String {
    // In order of first appearance.
    let mut roles: Vec<AgentRole<'_>> = Vec::new();
    let mut role_indices: HashMap<(Option<usize>, String), usize> = HashMap::new();
    let mut role_by_agent: Vec<usize> = Vec::new();
    for agent in &trace.agents {
        let caller = agent.parent.and_then(|p| role_by_agent.get(p).copied());
        let title = asker.agent_name(agent).unwrap_or_else(|| "an unnamed agent".to_owned());
        let role = *role_indices.entry((caller, title)).or_insert_with_key(|(caller, title)| {
            roles.push(AgentRole { caller: *caller, title: title.clone(), ..AgentRole::default() });
            roles.len() - 1
        });
        role_by_agent.push(role);
        if let Some(role) = roles.get_mut(role) {
            count_calls(trace, agent, role);
        }
    }
    let mut out = String::new();
    for role in roles.iter().take(MAX_AGENTS) {
        let caller = role.caller.and_then(|caller| roles.get(caller));
        let called = caller.map_or("from outside".to_owned(), |caller| format!("by {}", caller.title));
        let _ = writeln!(out, "- {}: called {called}, {}", role.title, role.describe_role(asker));
    }
    if roles.len() > MAX_AGENTS {
        let _ = writeln!(out, "- and {} more agents", roles.len() - MAX_AGENTS);
    }
    let turns = turns(trace);
    if turns.len() > 1 {
        let title = |agent: usize| {
            let role = role_by_agent.get(agent).and_then(|&role| Some((role, roles.get(role)?)));
            let Some((index, role)) = role else { return String::new() };
            let run = role_by_agent.iter().take(agent + 1).filter(|&&role_index| role_index == index).count();
            if role.runs > 1 { format!("{} (run {run})", role.title) } else { role.title.clone() }
        };
        let _ = writeln!(out, "Turns in order: {}", render_turns(&turns, title));
    }
    out
}

/// The steps of one agent until it made another plan or another agent took over.
struct Turn {
    agent: usize,
    /// The plan with which the turn begins, if it begins with one.
    plan: Option<PlanOrder>,
    model_calls: usize,
    tool_calls: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum PlanOrder {
    First,
    Later,
}

/// The event at a span, in the order of the trace.
enum TurnEvent {
    Plan(PlanOrder),
    Model,
    Tool,
}

/// The turns of the agents in the order of the trace.
fn turns(trace: &AgentTrace) -> Vec<Turn> {
    let mut starts: BTreeSet<Idx> = BTreeSet::new();
    for agent in trace.agents.iter().filter(|agent| agent.parent.is_some()) {
        starts.extend(trace.tree.ancestors(agent.at).skip(1).take(MAX_SPANS_BETWEEN));
    }
    let mut events: Vec<(Idx, usize, TurnEvent)> = Vec::new();
    for (i, agent) in trace.agents.iter().enumerate() {
        for (span_index, plan) in &agent.plans {
            events.push((
                *span_index,
                i,
                TurnEvent::Plan(if plan.replan { PlanOrder::Later } else { PlanOrder::First }),
            ));
        }
        events.extend(agent.llms.iter().map(|&span_index| (span_index, i, TurnEvent::Model)));
        // A call that starts an agent is not listed: the agent's turn follows.
        let tools = agent.calls.iter().filter_map(|&call| trace.calls.get(call)?.tool);
        events.extend(
            tools.filter(|tool| !starts.contains(tool)).map(|span_index| (span_index, i, TurnEvent::Tool)),
        );
    }
    // The sort is stable: a plan comes before the model call that wrote it.
    events.sort_by_key(|(span_index, ..)| *span_index);
    let mut turns: Vec<Turn> = Vec::new();
    for (_, agent, event) in events {
        let plan = if let TurnEvent::Plan(plan) = event { Some(plan) } else { None };
        match turns.last_mut().filter(|turn| turn.agent == agent && plan.is_none()) {
            Some(turn) => match event {
                TurnEvent::Model => turn.model_calls += 1,
                _ => turn.tool_calls += 1,
            },
            None => turns.push(Turn {
                agent,
                plan,
                model_calls: usize::from(matches!(event, TurnEvent::Model)),
                tool_calls: usize::from(matches!(event, TurnEvent::Tool)),
            }),
        }
    }
    turns
}

/// The turns in one line.
fn render_turns(turns: &[Turn], title: impl Fn(usize) -> String) -> String {
    let count = |n: usize, noun: &str| match n {
        0 => None,
        1 => Some(format!("1 {noun}")),
        n => Some(format!("{n} {noun}s")),
    };
    let render = |turn: &Turn| {
        let plan = turn.plan.map(|plan| if plan == PlanOrder::First { "plan" } else { "replan" }.to_owned());
        let done: Vec<String> =
            [plan, count(turn.model_calls, "model call"), count(turn.tool_calls, "tool call")]
                .into_iter()
                .flatten()
                .collect();
        format!("{}: {}", title(turn.agent), done.join(", "))
    };
    let left_out = turns.len().saturating_sub(MAX_TURNS);
    let (first, last) = turns.split_at(turns.len().min(MAX_TURNS * 2 / 3));
    let mut shown: Vec<String> = first.iter().map(render).collect();
    if left_out > 0 {
        shown.push(format!("({left_out} more turns)"));
    }
    shown.extend(last.iter().skip(left_out).map(render));
    shown.join(" > ")
}

/// Adds the run of an agent to the counts of its role.
fn count_calls<'a>(trace: &'a AgentTrace, agent: &'a Agent, role: &mut AgentRole<'a>) {
    role.runs += 1;
    let model_calls = agent.llms.len();
    role.model_calls += model_calls;
    let (min_count, max_count) = role.model_calls_of_run.unwrap_or((model_calls, model_calls));
    role.model_calls_of_run = Some((min_count.min(model_calls), max_count.max(model_calls)));
    role.plans += agent.plans.len();
    role.answered_runs += usize::from(agent.answer.is_some());
    for call in agent.calls.iter().filter_map(|&i| trace.calls.get(i)) {
        *role.calls_by_tool.entry(&call.name).or_default() += 1;
    }
    role.offered_tools.extend(agent.tools.iter().map(|tool| &*tool.name));
}

impl AgentRole<'_> {
    /// The runs, calls and tools of a role in one line.
    fn describe_role(&self, asker: &Asker) -> String {
        let runs = if self.runs == 1 { "one run".to_owned() } else { format!("{} runs", self.runs) };
        let mut out = format!("{runs}, {} model calls", self.model_calls);
        if let Some((min_count, max_count)) = self.model_calls_of_run.filter(|_| self.runs > 1) {
            let _ = match min_count == max_count {
                true => write!(out, " ({max_count} in each run)"),
                false => write!(out, " ({min_count} to {max_count} in a run)"),
            };
        }
        if self.plans > 0 {
            let _ = write!(out, ", {} plans and replans", self.plans);
        }
        let called = self.calls_by_tool.iter().take(MAX_TOOLS);
        let called: Vec<String> = called.map(|(tool, n)| format!("{} ({n})", asker.name(tool))).collect();
        let _ = match called.is_empty() {
            true => write!(out, ", no tool calls"),
            false => write!(out, ", tool calls: {}", called.join(", ")),
        };
        if self.calls_by_tool.len() > MAX_TOOLS {
            let _ = write!(out, " and {} more tools", self.calls_by_tool.len() - MAX_TOOLS);
        }
        let unused =
            self.offered_tools.iter().filter(|tool| !self.calls_by_tool.contains_key(*tool)).take(MAX_TOOLS);
        let unused: Vec<String> = unused.map(|tool| asker.name(tool)).collect();
        if !unused.is_empty() {
            let _ = write!(out, "; offered and not called: {}", unused.join(", "));
        }
        if self.answered_runs < self.runs {
            let _ = write!(out, "; {} of {} runs show a final answer", self.answered_runs, self.runs);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    #[test]
    fn agents_are_described_with_callers_and_calls() {
        let trace = Script::new("How old is the bridge?")
            .tools(&["searcher", "calculator"])
            .calls("", &[("searcher", r#"{"q":"bridge"}"#), ("searcher", r#"{"q":"age"}"#)])
            .enter("Find the bridge.")
            .calls("", &[("web_search", r#"{"q":"bridge"}"#)])
            .returns("Built 1901.")
            .answers("1901")
            .leave()
            .enter("Find its age.")
            .answers("unknown")
            .leave()
            .answers("It was built in 1901.")
            .build();
        insta::assert_snapshot!(describe(&Asker::default(), &trace), @r"
        - agent: called from outside, one run, 2 model calls, tool calls: searcher (2); offered and not called: calculator
        - searcher: called by agent, 2 runs, 3 model calls (1 to 2 in a run), tool calls: web_search (1)
        Turns in order: agent: 1 model call > searcher (run 1): 2 model calls, 1 tool call > searcher (run 2): 1 model call > agent: 1 model call
        ");
        assert_eq!(describe(&Asker::default(), &AgentTrace::default()), "");
    }

    #[test]
    fn turns_of_a_single_agent_begin_with_its_plans() {
        let mut script = Script::new("Read it.").says("1. read").plan(&["read"]);
        for _ in 0..3 {
            script = script.calls("", &[("read", "{}")]).returns("text");
        }
        let trace = script.says("1. write").plan(&["write"]).answers("done").build();
        insta::assert_snapshot!(describe(&Asker::default(), &trace), @r"
        - agent: called from outside, one run, 6 model calls, 2 plans and replans, tool calls: read (3)
        Turns in order: agent: plan, 4 model calls, 3 tool calls > agent: replan, 2 model calls
        ");
    }

    #[test]
    fn many_turns_are_counted() {
        let mut script = Script::new("Do it.");
        for i in 0..40 {
            let step = format!("step {i}");
            script = script.says(&step).plan(&[&step]);
        }
        let described = describe(&Asker::default(), &script.answers("done").build());
        assert!(described.contains(" > (16 more turns) > "), "{described}");
        assert!(described.len() < 1_500, "{}", described.len());
    }
}
