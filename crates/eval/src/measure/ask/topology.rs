//! The call structure of an agent system, as observed.
//!
//! In: a trace. Out: a description of a few lines. With the architecture in the prompt, judges
//! locate errors far more often (000, table 5).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use super::asker::Asker;
use crate::recognise::{Agent, AgentTrace};

/// Maximum agents described; the rest is counted.
const MAX_AGENTS: usize = 30;
/// Maximum tools listed of one agent.
const MAX_TOOLS: usize = 25;

/// Agents with the same name and caller, which are described by one line.
#[derive(Default)]
struct Role<'a> {
    caller: Option<usize>,
    title: String,
    runs: usize,
    models: usize,
    plans: usize,
    answered: usize,
    called: BTreeMap<&'a str, usize>,
    offered: BTreeSet<&'a str>,
}

/// The description. Empty for a trace without agents.
pub(crate) fn describe(asker: &Asker, trace: &AgentTrace) -> String {
    // In order of first appearance.
    let mut roles: Vec<Role<'_>> = Vec::new();
    let mut known: HashMap<(Option<usize>, String), usize> = HashMap::new();
    let mut of_agent: Vec<usize> = Vec::new();
    for agent in &trace.agents {
        let caller = agent.parent.and_then(|p| of_agent.get(p).copied());
        let title = asker.agent_name(agent).unwrap_or_else(|| "an unnamed agent".to_owned());
        let role = *known.entry((caller, title)).or_insert_with_key(|(caller, title)| {
            roles.push(Role { caller: *caller, title: title.clone(), ..Role::default() });
            roles.len() - 1
        });
        of_agent.push(role);
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
    out
}

fn count_calls<'a>(trace: &'a AgentTrace, agent: &'a Agent, role: &mut Role<'a>) {
    role.runs += 1;
    role.models += agent.llms.len();
    role.plans += agent.plans.len();
    role.answered += usize::from(agent.answer.is_some());
    for call in agent.calls.iter().filter_map(|&i| trace.calls.get(i)) {
        *role.called.entry(&call.name).or_default() += 1;
    }
    role.offered.extend(agent.tools.iter().map(|tool| &*tool.name));
}

impl Role<'_> {
    fn describe_role(&self, asker: &Asker) -> String {
        let runs = if self.runs == 1 { "one run".to_owned() } else { format!("{} runs", self.runs) };
        let mut out = format!("{runs}, {} model calls", self.models);
        if self.plans > 0 {
            let _ = write!(out, ", {} plans and replans", self.plans);
        }
        let called = self.called.iter().take(MAX_TOOLS);
        let called: Vec<String> = called.map(|(tool, n)| format!("{} ({n})", asker.name(tool))).collect();
        let _ = match called.is_empty() {
            true => write!(out, ", no tool calls"),
            false => write!(out, ", tool calls: {}", called.join(", ")),
        };
        if self.called.len() > MAX_TOOLS {
            let _ = write!(out, " and {} more tools", self.called.len() - MAX_TOOLS);
        }
        let unused = self.offered.iter().filter(|tool| !self.called.contains_key(*tool)).take(MAX_TOOLS);
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
        - searcher: called by agent, 2 runs, 3 model calls, tool calls: web_search (1)
        ");
        assert_eq!(describe(&Asker::default(), &AgentTrace::default()), "");
    }
}
