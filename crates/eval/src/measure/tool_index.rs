//! The tools that were offered to models and agents, by name.
//!
//! In: a list of definitions and a name. Out: the tool with this name. Short lists are searched; a long list is indexed
//! once, so that the cost of a lookup does not depend on the number of tools.

use std::cell::RefCell;
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::Idx;

use super::Memo;
use crate::recognise::{AgentTrace, ToolDefinition};

/// Maximum length of a list that is searched without an index.
const MAX_SEARCHED_TOOLS: usize = 8;

/// The model call or agent to which tools were offered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OfferedTo {
    /// A model call, by its span.
    Model(Idx),
    /// An agent, by its index.
    Agent(usize),
}

impl OfferedTo {
    /// The offered tools.
    pub(crate) fn tools(self, trace: &AgentTrace) -> &[ToolDefinition] {
        match self {
            OfferedTo::Model(span_index) => trace.views.get(span_index).map_or(&[], |view| &view.tools),
            OfferedTo::Agent(agent) => trace.agents.get(agent).map_or(&[], |agent| &agent.tools),
        }
    }

    /// The tool with this name, apart from white space around it.
    pub(crate) fn find<'t>(
        self,
        trace: &'t AgentTrace,
        memo: &Memo,
        name: &str,
    ) -> Option<&'t ToolDefinition> {
        let (tools, name) = (self.tools(trace), name.trim());
        if tools.len() <= MAX_SEARCHED_TOOLS {
            return tools.iter().find(|tool| tool.name.trim() == name);
        }
        tools.get(*self.index(trace, memo).by_name.get(name)?)
    }

    /// Whether a tool has this name, apart from a prefix (`functions.search`, `server__search`) and case.
    pub(crate) fn has_similar(self, trace: &AgentTrace, memo: &Memo, name: &str) -> bool {
        let (tools, name) = (self.tools(trace), bare_name(name));
        if tools.len() <= MAX_SEARCHED_TOOLS {
            return tools.iter().any(|tool| bare_name(&tool.name) == name);
        }
        self.index(trace, memo).bare_names.contains(&name)
    }

    fn index(self, trace: &AgentTrace, memo: &Memo) -> Rc<ToolIndex> {
        let indexes = memo.shared::<Indexes>();
        let create = || Rc::new(ToolIndex::new(self.tools(trace)));
        indexes.0.borrow_mut().entry(self).or_insert_with(create).clone()
    }
}

/// The indexes of long lists of a trace.
#[derive(Default)]
struct Indexes(RefCell<HashMap<OfferedTo, Rc<ToolIndex>>>);

/// The names of a list of tools.
struct ToolIndex {
    /// The first tool of each name.
    by_name: HashMap<Box<str>, usize>,
    /// The names without prefixes.
    bare_names: HashSet<String>,
}

impl ToolIndex {
    fn new(tools: &[ToolDefinition]) -> ToolIndex {
        let mut by_name = HashMap::default();
        for (i, tool) in tools.iter().enumerate() {
            by_name.entry(Box::from(tool.name.trim())).or_insert(i);
        }
        ToolIndex { by_name, bare_names: tools.iter().map(|tool| bare_name(&tool.name)).collect() }
    }
}

/// A name without its prefix, in lower case and with underscores.
fn bare_name(name: &str) -> String {
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
        for tool_count in [MAX_SEARCHED_TOOLS, 4 * MAX_SEARCHED_TOOLS] {
            let names: Vec<String> = (0..tool_count).map(|i| format!("server__Tool-{i}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let trace = Script::new("task").tools(&names).answers("done").build();
            let (memo, agent) = (Memo::new(), OfferedTo::Agent(0));
            assert_eq!(agent.tools(&trace).len(), tool_count);
            let found = agent.find(&trace, &memo, " server__Tool-3 ").map(|tool| &*tool.name);
            assert_eq!(found, Some("server__Tool-3"));
            assert!(agent.find(&trace, &memo, "tool_3").is_none());
            assert!(agent.has_similar(&trace, &memo, "functions.tool_3"));
            assert!(!agent.has_similar(&trace, &memo, "tool"));
            assert!(OfferedTo::Agent(7).find(&trace, &memo, "tool").is_none());
        }
    }
}
