//! The call structure of an agent system, as observed.
//!
//! In: a trace. Out: a description of a few lines. With the architecture in the prompt, judges
//! locate errors far more often (000, table 5).

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use super::asker::Asker;
use crate::recognise::{Agent, AgentTrace};

/// Most agents described; of the rest only the number.
const MOST_AGENTS: usize = 30;
/// Most tools listed of one agent.
const MOST_TOOLS: usize = 25;

/// Agents of one name and one caller: a team of ten searchers is one line.
#[derive(Default)]
struct Role<'a> {
    runs: usize,
    models: usize,
    plans: usize,
    answered: usize,
    called: BTreeMap<&'a str, usize>,
    offered: BTreeMap<&'a str, ()>,
}

/// The description. Empty for a trace without agents.
pub(crate) fn describe(asker: &Asker, trace: &AgentTrace) -> String {
    let mut roles: Vec<Role<'_>> = Vec::new();
    // Roles in order of first appearance, by caller and name.
    let mut order: Vec<(Option<usize>, String)> = Vec::new();
    let mut known: HashMap<(Option<usize>, String), usize> = HashMap::new();
    let mut of_agent: Vec<usize> = Vec::new();
    for agent in &trace.agents {
        let caller = agent.parent.and_then(|p| of_agent.get(p).copied());
        let key = (caller, agent_title(asker, agent));
        let role = *known.entry(key).or_insert_with_key(|key| {
            order.push(key.clone());
            roles.push(Role::default());
            order.len() - 1
        });
        of_agent.push(role);
        if let Some(role) = roles.get_mut(role) {
            count_calls(trace, agent, role);
        }
    }
    let mut out = String::new();
    for ((caller, title), role) in order.iter().zip(&roles).take(MOST_AGENTS) {
        let called_by = match caller.and_then(|c| order.get(c)) {
            Some((_, above)) => format!("called by {above}"),
            None => "called from outside".to_owned(),
        };
        let _ = writeln!(out, "- {title}: {called_by}, {}", role.describe_role(asker));
    }
    if order.len() > MOST_AGENTS {
        let _ = writeln!(out, "- and {} more agents", order.len() - MOST_AGENTS);
    }
    out
}

fn agent_title(asker: &Asker, agent: &Agent) -> String {
    agent
        .name
        .as_ref()
        .map(|n| asker.name(n))
        .filter(|n| !n.is_empty())
        .unwrap_or_else(|| "an unnamed agent".to_owned())
}

fn count_calls<'a>(trace: &'a AgentTrace, agent: &'a Agent, role: &mut Role<'a>) {
    role.runs += 1;
    role.models += agent.llms.len();
    role.plans += agent.plans.len();
    role.answered += usize::from(agent.answer.is_some());
    for call in agent.calls.iter().filter_map(|&i| trace.calls.get(i)) {
        *role.called.entry(&call.name).or_default() += 1;
    }
    for tool in &agent.tools {
        role.offered.insert(&tool.name, ());
    }
}

impl Role<'_> {
    fn describe_role(&self, asker: &Asker) -> String {
        let mut out = match self.runs {
            1 => "one run".to_owned(),
            n => format!("{n} runs"),
        };
        let _ = write!(out, ", {} model calls", self.models);
        if self.plans > 0 {
            let _ = write!(out, ", {} plans and replans", self.plans);
        }
        let called: Vec<String> = self
            .called
            .iter()
            .take(MOST_TOOLS)
            .map(|(tool, n)| format!("{} ({n})", asker.name(tool)))
            .collect();
        let _ = match called.is_empty() {
            true => write!(out, ", no tool calls"),
            false => write!(out, ", tool calls: {}", called.join(", ")),
        };
        if self.called.len() > MOST_TOOLS {
            let _ = write!(out, " and {} more tools", self.called.len() - MOST_TOOLS);
        }
        let unused = self.offered.keys().filter(|tool| !self.called.contains_key(*tool)).take(MOST_TOOLS);
        let unused: Vec<String> = unused.map(|tool| asker.name(tool)).collect();
        if !unused.is_empty() {
            let _ = write!(out, "; offered and not called: {}", unused.join(", "));
        }
        if self.answered < self.runs {
            let _ = write!(out, "; {} of {} runs show a final answer", self.answered, self.runs);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    #[test]
    fn a_team_is_described_by_who_calls_whom() {
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
        - searcher: called by agent, 2 runs, 3 model calls, tool calls: web_search (1)
        ");
        assert_eq!(describe(&Asker::default(), &AgentTrace::default()), "");
    }
}
