//! Orders that instructions state as a sequence of tools: a numbered procedure, or names joined by arrows.
//!
//! Principle: in a sequence, each tool needs a call of all tools before it, and the confirmation of the user where an
//! earlier item demands it. A numbered list is a sequence if the words before it state a duty or an order, or if a
//! later item begins with such a word; other numbered lists are rules without an order. Items with a condition, a
//! choice or a number are not always required.
//!
//! In: instructions, with the distinct names of the offered tools. Out: one order for each tool of a sequence.

use super::*;

// The number of an item of a list: "2. ", "(2) ", "2) ".
regex!(MARKER, r"(?:^|[\s:(])(\d{1,2})[.)]\s");

/// Characters between the names of a sequence in one line.
const ARROWS: [&str; 3] = ["->", "→", "=>"];
/// Maximum items of a sequence.
const MAX_ITEMS: usize = 20;
/// Maximum words at the beginning of an item in which a word for an order is searched.
const MAX_LEAD_WORDS: usize = 3;
/// Classes of words that state an order of the items of a list.
const ORDERED: WordClasses = classes!(Obligation Sequence Before);
/// Classes of words at the beginning of an item that refer to the items before it.
const FOLLOWS: WordClasses = classes!(Sequence Restriction);

impl<'t> Instructions<'t> {
    /// The orders of all sequences.
    pub(super) fn sequences(&self) -> Vec<RequiredOrder> {
        let lists = self.numbered_lists().into_iter().chain(self.chains());
        lists.flat_map(|items| self.orders_of(&items)).collect()
    }

    /// The order of each tool of a sequence that has steps before it.
    fn orders_of(&self, items: &[&'t str]) -> Vec<RequiredOrder> {
        let (mut steps, mut needs_consent, mut orders) = (Vec::new(), false, Vec::new());
        for item in items {
            let named = || self.tools.iter().copied().filter(|tool| names_tool(item, tool));
            let is_optional = self.classes(item).has_any(CONDITION);
            for tool in named() {
                let action = item.find(tool).and_then(|at| item.get(at..at + tool.len()));
                let order =
                    action.and_then(|name| self.build_order(item, steps.clone(), needs_consent, name));
                orders.extend(order);
                if !is_optional && !steps.contains(&tool) {
                    steps.push(tool);
                }
            }
            needs_consent |= !is_optional && self.language.mentions_consent(item);
        }
        orders
    }

    /// The lines with names that are joined by arrows, each with the texts between the arrows.
    fn chains(&self) -> impl Iterator<Item = Vec<&'t str>> + use<'t> {
        let lines = self.text.lines().filter(|line| ARROWS.iter().any(|arrow| line.contains(arrow)));
        lines.map(|line| {
            let sentence = line.split(". ").find(|part| ARROWS.iter().any(|arrow| part.contains(arrow)));
            let parts = ARROWS.iter().fold(vec![sentence.unwrap_or(line)], |parts, arrow| {
                parts.into_iter().flat_map(|part| part.split(arrow)).collect()
            });
            parts.into_iter().take(MAX_ITEMS).collect()
        })
    }

    /// The numbered lists that are sequences, each with the sentences of its items.
    fn numbered_lists(&self) -> Vec<Vec<&'t str>> {
        let mut lists: Vec<Vec<(usize, usize)>> = Vec::new();
        for marker in MARKER.captures_iter(self.text) {
            let (Some(whole), Some(number)) = (marker.get(0), marker.get(1)) else { continue };
            let Ok(number) = number.as_str().parse::<usize>() else { continue };
            match lists.last_mut().filter(|list| list.len() + 1 == number) {
                Some(list) => list.push((whole.start(), whole.end())),
                None if number == 1 => lists.push(vec![(whole.start(), whole.end())]),
                None => {}
            }
        }
        lists.retain(|list| (2..=MAX_ITEMS).contains(&list.len()));
        lists.iter().filter_map(|markers| self.sequence(markers)).collect()
    }

    /// The sentences of the items of a numbered list; `None` if the list states no order.
    fn sequence(&self, markers: &[(usize, usize)]) -> Option<Vec<&'t str>> {
        let before = self.text.get(..markers.first()?.0)?.trim_end();
        let lead = before.get(before.rfind(['\n', '.']).map_or(0, |end| end + 1)..)?;
        let ends = markers.iter().skip(1).map(|(start, _)| *start).chain([self.text.len()]);
        let mut items: Vec<&'t str> =
            markers.iter().zip(ends).filter_map(|((_, from), end)| self.text.get(*from..end)).collect();
        let last = items.last_mut()?;
        *last = last.split('\n').next()?;
        let refers_back = |item: &&str| {
            let end = item.match_indices(' ').nth(MAX_LEAD_WORDS - 1).map_or(item.len(), |(at, _)| at);
            item.get(..end).is_some_and(|beginning| self.classes(beginning).has_any(FOLLOWS))
        };
        let sentences: Vec<&'t str> =
            items.iter().flat_map(|item| item.split_inclusive([';', '.'])).collect();
        (self.classes(lead).has_any(ORDERED) || items.iter().skip(1).any(refers_back)).then_some(sentences)
    }
}

/// Whether a text has the name of a tool as a whole word.
fn names_tool(text: &str, tool: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))).any(|word| word == tool)
}

#[cfg(test)]
mod tests {
    use super::super::super::conduct::findings_of;
    use super::*;
    use crate::measure::testing::Script;

    const TOOLS: [&str; 4] = ["get_plot", "check_soil", "check_water", "assign_plot"];

    /// The findings on a run with calls of these tools.
    fn finding_count(system: &str, calls: &[&str]) -> usize {
        let script = Script::new("I would like plot 7.").system(system).tools(&TOOLS);
        let run = calls.iter().fold(script, |script, tool| {
            script.calls("", &[(*tool, r#"{"plot":7}"#)]).returns(r#"{"plot":7,"result":"fine"}"#)
        });
        findings_of(check, &run.answers("Plot 7 is assigned.").build()).len()
    }

    #[test]
    fn skipped_tool_of_a_sequence_is_found() {
        for system in [
            "Mandatory steps for each assignment: 1. check_soil, 2. check_water, 3. assign_plot.",
            "You must: (1) call check_soil, (2) call check_water, (3) call assign_plot.",
            "Workflow: check_soil -> check_water -> assign_plot. Be brief.",
            "Ablauf, zwingend in dieser Folge: 1. check_soil; 2. check_water; 3. assign_plot.",
            "Atiendes a los socios del huerto. Orden obligatorio para cada parcela:\n1. check_soil\n2. check_water\n3. assign_plot\n\nSé breve.",
        ] {
            assert_eq!(finding_count(system, &["check_soil", "assign_plot"]), 1, "{system}");
            assert_eq!(finding_count(system, &["check_soil", "check_water", "assign_plot"]), 0, "{system}");
            assert_eq!(finding_count(system, &["check_soil"]), 0, "{system}");
        }
    }

    #[test]
    fn confirmation_in_a_sequence_needs_a_message_of_the_user() {
        let system = "You must (1) call check_soil and (2) wait for the customer's consent. Only then call assign_plot.";
        assert_eq!(finding_count(system, &["check_soil", "assign_plot"]), 1);
        let asked = Script::new("I would like plot 7.").system(system).tools(&TOOLS);
        let asked =
            asked.calls("", &[("check_soil", "{}")]).returns("fine").says("Shall I assign it?").user("Yes.");
        let asked = asked.calls("", &[("assign_plot", "{}")]).returns("ok").answers("Plot 7 is yours.");
        assert!(findings_of(check, &asked.build()).is_empty());
    }

    #[test]
    fn lists_of_rules_and_conditional_steps_are_right() {
        for system in [
            "Rules:\n1. Use check_soil for questions about soil.\n2. Use assign_plot for new members.",
            "You can use these tools: 1. check_soil, 2. check_water, 3. assign_plot.",
            "You must: 1. call check_water if the plot is dry, 2. call assign_plot.",
            "You must: 1. call check_soil or check_water, 2. call assign_plot.",
            "Never skip a step. Tools: (1) check_soil, (2) assign_plot",
        ] {
            assert_eq!(finding_count(system, &["get_plot", "assign_plot"]), 0, "{system}");
        }
    }
}
