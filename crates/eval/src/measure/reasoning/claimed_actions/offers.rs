//! The effects of the tools that an agent was offered.
//!
//! In: the definitions of the tools. Out: the actions that they are for, and the tools that are named for one.

use foldhash::HashSet;
use verdict_otlp::work;

use crate::measure::identifier::identifier_words;
use crate::measure::language::Action;
use crate::measure::tool_purpose::{ToolPurpose, action_of, offered_tools, stems};
use crate::recognise::{AgentTrace, Text};

/// The effects of the tools that an agent was offered.
pub(super) struct Offers {
    /// The actions of the tools, by the first verb of each.
    pub(super) actions: HashSet<Action>,
    /// Whether one of the tools may change something.
    pub(super) may_change: bool,
    /// The tools that are named for an action. A tool may occur twice: with its thing, and by its action noun.
    pub(super) named: Vec<NamedTool>,
}

/// A tool that changes something and is named for an action and a thing.
pub(super) struct NamedTool {
    pub(super) tool: Text,
    pub(super) action: Action,
    /// The stems of the words for the thing.
    pub(super) things: Vec<String>,
    /// Whether the noun of the name is the action itself: `issue_refund`.
    pub(super) is_action_noun: bool,
}

/// Reads the tools that an agent was offered.
pub(super) fn offers(trace: &AgentTrace, agent: usize) -> Offers {
    let mut offers = Offers { actions: HashSet::default(), may_change: false, named: Vec::new() };
    for tool in offered_tools(trace, agent) {
        let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
        offers.may_change |= !purpose.is_query();
        let Some(action) = purpose.actions.first() else { continue };
        offers.actions.insert(*action);
        let things = things(&tool.name);
        if !purpose.is_query() && !things.is_empty() {
            offers.named.push(NamedTool {
                tool: tool.name.clone(),
                action: *action,
                things,
                is_action_noun: false,
            });
        }
        if let Some((action, word)) = action_noun(&tool.name).filter(|_| !purpose.is_query()) {
            let things = vec![word];
            offers.named.push(NamedTool { tool: tool.name.clone(), action, things, is_action_noun: true });
        }
    }
    offers
}

/// The action that a tool's name has as a noun, and that noun: `issue_refund`, `process_refund`, `refund`.
fn action_noun(name: &str) -> Option<(Action, String)> {
    let words = identifier_words(name);
    let (last, others) = words.split_last()?;
    let is_light = |word: &String| LIGHT_VERBS.contains(&word.as_str());
    let action = action_of(last).filter(|_| others.len() < 2 && others.iter().all(is_light))?;
    Some((action, last.clone()))
}

/// Verbs in names of tools with a meaning only together with the noun after them: `issue_refund`. Names of tools are
/// identifiers in code.
const LIGHT_VERBS: [&str; 9] =
    ["issue", "process", "make", "do", "create", "initiate", "perform", "submit", "request"];

/// The stems of the words in a tool's name without its verb.
pub(in super::super) fn things(name: &str) -> Vec<String> {
    work::count(1);
    let mut words = identifier_words(name);
    if let Some(verb) = words.iter().position(|word| action_of(word).is_some()) {
        words.remove(verb);
    }
    words.iter().flat_map(|word| stems(word)).collect()
}
