//! Tools by name, in lists that are searched once for each call.
//!
//! In: lists of definitions, each with a number. Out: the first tool of a name. A long list that is searched often is
//! indexed, so that the cost of a search does not grow with the number of tools.

use foldhash::{HashMap, HashMapExt};

use super::message::{Text, ToolDefinition};

/// Maximum length of a list that is never indexed.
const MAX_UNINDEXED: usize = 8;
/// Number of linear searches of a longer list before it is indexed: most lists are searched once or twice.
const MAX_LINEAR_SEARCHES: u32 = 4;

/// The indexes of longer lists, by the number of the list.
#[derive(Default)]
pub(crate) struct ToolLookup<'t>(HashMap<usize, LongList<'t>>);

#[derive(Default)]
struct LongList<'t> {
    searches: u32,
    /// The first tool of each name, once the list is indexed.
    by_name: HashMap<&'t str, usize>,
}

impl<'t> ToolLookup<'t> {
    /// The first of `tools` with this name; `list` is the number of the list.
    pub(crate) fn find(
        &mut self,
        list: usize,
        tools: &'t [ToolDefinition],
        name: &Text,
    ) -> Option<&'t ToolDefinition> {
        if tools.len() <= MAX_UNINDEXED {
            return tools.iter().find(|tool| tool.name == *name);
        }
        let long_list = self.0.entry(list).or_default();
        long_list.searches = long_list.searches.saturating_add(1);
        if long_list.searches <= MAX_LINEAR_SEARCHES {
            return tools.iter().find(|tool| tool.name == *name);
        }
        if long_list.by_name.is_empty() {
            long_list.by_name = HashMap::with_capacity(tools.len());
            for (i, tool) in tools.iter().enumerate() {
                long_list.by_name.entry(&tool.name).or_insert(i);
            }
        }
        tools.get(*long_list.by_name.get(&**name)?)
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
        for _ in 0..2 * MAX_LINEAR_SEARCHES {
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
