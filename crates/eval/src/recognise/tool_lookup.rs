//! Tools by name, in lists that are searched once for each call.
//!
//! In: lists of definitions, each with a number. Out: the first tool of a name. A list that is searched often is
//! indexed, so that a call costs the same however many tools there are.

use foldhash::{HashMap, HashMapExt};

use super::message::{Text, ToolDefinition};

/// Lists of at most this length are always searched.
const SHORT: usize = 8;
/// Searches of a longer list before it is indexed: most lists are searched once or twice.
const SEARCHES: u32 = 4;

/// The lists that are longer.
#[derive(Default)]
pub(crate) struct ToolLookup<'t>(HashMap<usize, LongList<'t>>);

#[derive(Default)]
struct LongList<'t> {
    searches: u32,
    /// The first tool of each name, once the list is indexed.
    by_name: HashMap<&'t str, usize>,
}

impl<'t> ToolLookup<'t> {
    /// The first of `tools` with this name; `list` is their number.
    pub(crate) fn find(
        &mut self,
        list: usize,
        tools: &'t [ToolDefinition],
        name: &Text,
    ) -> Option<&'t ToolDefinition> {
        if tools.len() <= SHORT {
            return tools.iter().find(|tool| tool.name == *name);
        }
        let index = self.0.entry(list).or_default();
        index.searches = index.searches.saturating_add(1);
        if index.searches <= SEARCHES {
            return tools.iter().find(|tool| tool.name == *name);
        }
        if index.by_name.is_empty() {
            index.by_name = HashMap::with_capacity(tools.len());
            for (i, tool) in tools.iter().enumerate() {
                index.by_name.entry(&tool.name).or_insert(i);
            }
        }
        tools.get(*index.by_name.get(&**name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexed_lists_have_the_tools_that_a_search_finds() {
        let tool = |i: usize| ToolDefinition {
            name: Text::from(format!("tool_{}", i % 20).as_str()),
            description: Some(Text::from(i.to_string().as_str())),
            parameters: None,
        };
        let lists: Vec<Vec<ToolDefinition>> = [3, 40].map(|n| (0..n).map(tool).collect()).into();
        let mut lookup = ToolLookup::default();
        for _ in 0..2 * SEARCHES {
            for (number, list) in lists.iter().enumerate() {
                for name in ["tool_0", "tool_2", "tool_19", "tool_20"] {
                    let name = Text::from(name);
                    let searched = list.iter().find(|tool| tool.name == name);
                    assert_eq!(lookup.find(number, list, &name), searched, "{name:?}");
                }
            }
        }
    }
}
