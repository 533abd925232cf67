//! The tools that models and agents were offered, by name.
//!
//! In: a list of definitions and a name. Out: the tool of that name. Short lists are searched; a long list is
//! indexed once, so that a call costs the same however many tools there are.

use std::cell::RefCell;
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::Idx;

use super::Memo;
use crate::recognise::{AgentTrace, ToolDefinition};

/// Lists of at most this length are searched.
const SEARCHED: usize = 8;

/// To whom tools were offered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OfferedTo {
    /// In the prompt of a model call, by its span.
    Model(Idx),
    /// By its index.
    Agent(usize),
}

impl OfferedTo {
    pub(crate) fn tools(self, trace: &AgentTrace) -> &[ToolDefinition] {
        match self {
            OfferedTo::Model(at) => trace.views.get(at).map_or(&[], |view| &view.tools),
            OfferedTo::Agent(agent) => trace.agents.get(agent).map_or(&[], |agent| &agent.tools),
        }
    }

    /// The tool with this name, without white space around it.
    pub(crate) fn find<'t>(
        self,
        trace: &'t AgentTrace,
        memo: &Memo,
        name: &str,
    ) -> Option<&'t ToolDefinition> {
        let (tools, name) = (self.tools(trace), name.trim());
        if tools.len() <= SEARCHED {
            return tools.iter().find(|tool| tool.name.trim() == name);
        }
        tools.get(*self.index(trace, memo).by_name.get(name)?)
    }

    /// Whether a tool has this name, but for a prefix (`functions.search`, `server__search`) and case.
    pub(crate) fn has_like(self, trace: &AgentTrace, memo: &Memo, name: &str) -> bool {
        let (tools, name) = (self.tools(trace), bare(name));
        if tools.len() <= SEARCHED {
            return tools.iter().any(|tool| bare(&tool.name) == name);
        }
        self.index(trace, memo).bare.contains(&name)
    }

    fn index(self, trace: &AgentTrace, memo: &Memo) -> Rc<ToolIndex> {
        let indexes = memo.shared::<Indexes>();
        let create = || Rc::new(ToolIndex::new(self.tools(trace)));
        indexes.0.borrow_mut().entry(self).or_insert_with(create).clone()
    }
}

/// The indexes of a trace.
#[derive(Default)]
struct Indexes(RefCell<HashMap<OfferedTo, Rc<ToolIndex>>>);

struct ToolIndex {
    /// The first tool of each name.
    by_name: HashMap<Box<str>, usize>,
    bare: HashSet<String>,
}

impl ToolIndex {
    fn new(tools: &[ToolDefinition]) -> ToolIndex {
        let mut by_name = HashMap::default();
        for (i, tool) in tools.iter().enumerate() {
            by_name.entry(Box::from(tool.name.trim())).or_insert(i);
        }
        ToolIndex { by_name, bare: tools.iter().map(|tool| bare(&tool.name)).collect() }
    }
}

/// A name without prefix, in lower case.
fn bare(name: &str) -> String {
    let name = name.trim();
    let tail = name.rsplit(['.', '/', ':']).next().unwrap_or(name);
    tail.rsplit("__").next().unwrap_or(tail).replace('-', "_").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    #[test]
    fn long_and_short_lists_have_the_same_tools() {
        for tool_count in [SEARCHED, 4 * SEARCHED] {
            let names: Vec<String> = (0..tool_count).map(|i| format!("server__Tool-{i}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let trace = Script::new("task").tools(&names).answers("done").build();
            let (memo, agent) = (Memo::new(), OfferedTo::Agent(0));
            assert_eq!(agent.tools(&trace).len(), tool_count);
            let found = agent.find(&trace, &memo, " server__Tool-3 ").map(|tool| &*tool.name);
            assert_eq!(found, Some("server__Tool-3"));
            assert!(agent.find(&trace, &memo, "tool_3").is_none());
            assert!(agent.has_like(&trace, &memo, "functions.tool_3"));
            assert!(!agent.has_like(&trace, &memo, "tool"));
            assert!(OfferedTo::Agent(7).find(&trace, &memo, "tool").is_none());
        }
    }
}
