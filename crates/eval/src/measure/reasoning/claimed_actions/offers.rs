//! The effects of the tools that an agent was offered.

use foldhash::HashSet;
use verdict_otlp::work;

use crate::measure::identifier::identifier_words;
use crate::measure::language::Action;
use crate::measure::tool_purpose::{ToolPurpose, action_of, offered_tools, stems};
use crate::recognise::{AgentTrace, Text};

/// The effects of the tools that an agent was offered.
pub(super) struct Offers {
    pub(super) actions: HashSet<Action>,
    /// A tool may change something.
    pub(super) change: bool,
    pub(super) named: Vec<NamedTool>,
}

/// A tool that changes something and is named for an action and a thing.
pub(super) struct NamedTool {
    pub(super) tool: Text,
    pub(super) action: Action,
    /// The stems of the thing.
    pub(super) things: Vec<String>,
    /// The action is the thing itself: `issue_refund`.
    pub(super) is_own: bool,
}

pub(super) fn offers(trace: &AgentTrace, agent: usize) -> Offers {
    let mut offers = Offers { actions: HashSet::default(), change: false, named: Vec::new() };
    for tool in offered_tools(trace, agent) {
        let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
        offers.change |= !purpose.is_query();
        let Some(action) = purpose.actions.first() else { continue };
        offers.actions.insert(*action);
        let things = things(&tool.name);
        if !purpose.is_query() && !things.is_empty() {
            offers.named.push(NamedTool { tool: tool.name.clone(), action: *action, things, is_own: false });
        }
        if let Some((action, word)) = own_action(&tool.name).filter(|_| !purpose.is_query()) {
            let things = vec![word];
            offers.named.push(NamedTool { tool: tool.name.clone(), action, things, is_own: true });
        }
    }
    offers
}

/// The action that a tool is named for as a thing, and its word: `issue_refund`, `process_refund`, `refund`.
fn own_action(name: &str) -> Option<(Action, String)> {
    let words = identifier_words(name);
    let (last, others) = words.split_last()?;
    let is_light = |word: &String| LIGHT_VERBS.contains(&word.as_str());
    let action = action_of(last).filter(|_| others.len() < 2 && others.iter().all(is_light))?;
    Some((action, last.clone()))
}

/// Verbs that say only that the thing after them is done.
const LIGHT_VERBS: [&str; 9] =
    ["issue", "process", "make", "do", "create", "initiate", "perform", "submit", "request"];

/// The stems of the words in a tool's name without its verb.
pub(super) fn things(name: &str) -> Vec<String> {
    work::count(1);
    let mut words = identifier_words(name);
    if let Some(verb) = words.iter().position(|word| action_of(word).is_some()) {
        words.remove(verb);
    }
    words.iter().flat_map(|word| stems(word)).collect()
}
