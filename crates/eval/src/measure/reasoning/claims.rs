//! Claims of work: "I verified", "computed with the calculator", "according to the page I read".
//!
//! Principle: work that an answer names as its source was done in the run, since a reader trusts a number from a lookup
//! or a calculation more than a number from memory. Whether the answer is right is not examined.
//!
//! In: a model's prose. Out: its claims of work, with the tool that each names. The caller compares a claim that names
//! a tool with the calls of that tool, and a claim that names a source with all successful calls. In an unsupported
//! language there are no claims.

use foldhash::HashMap;

use crate::measure::Memo;
use crate::measure::identifier::identifier_words;
use crate::measure::language::ReadText;
use crate::measure::tool_purpose::action_of;

/// Minimum bytes of a noun that means a tool.
const MIN_NOUN_BYTES: usize = 4;
/// Minimum bytes of a noun that means a tool by one word of the tool's name.
const MIN_SINGLE_NOUN_BYTES: usize = 6;

/// A claim of work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkClaim<'t> {
    pub sentence: &'t str,
    /// The noun of the tool that the claim names; `None` if it names a source.
    pub tool: Option<String>,
}

/// The claims of work in a text, in their order.
pub(crate) fn claims<'t>(prose: &'t str, memo: &Memo) -> Vec<WorkClaim<'t>> {
    let work = ReadText::new(prose, None, memo).claims_of_done_action().into_iter();
    let work = work.filter(|claim| claim.action.is_work());
    let mut out: Vec<WorkClaim<'_>> = Vec::new();
    for claim in work {
        // A sentence may claim the use of a tool and of a source.
        let tool = claim.instrument.map(|tool| WorkClaim { sentence: claim.sentence, tool: Some(tool) });
        let source = claim.names_source.then_some(WorkClaim { sentence: claim.sentence, tool: None });
        for claim in tool.into_iter().chain(source) {
            if !out.iter().rev().take(2).any(|earlier| *earlier == claim) {
                out.push(claim);
            }
        }
    }
    out
}

/// Whether the noun of a claim means the tool `name`: the noun has the words of the name, or is one of them
/// ("calculator" for `simple_calculator`). The nouns of a name with a verb are the object of the verb: "account" does
/// not mean `get_account`.
pub(crate) fn noun_means_tool(noun: &str, name: &str) -> bool {
    let (noun, name) = (identifier_words(noun), identifier_words(name));
    let plain = noun.concat();
    plain.len() >= MIN_NOUN_BYTES
        && (plain == name.concat() || single_nouns(&name).any(|word| *word == plain))
}

/// The words each of which means a tool of this name: the long words of a name without a verb.
fn single_nouns(name: &[String]) -> impl Iterator<Item = &String> {
    let has_verb = name.iter().any(|word| action_of(word).is_some());
    name.iter().filter(move |word| !has_verb && word.len() >= MIN_SINGLE_NOUN_BYTES)
}

/// A number for each tool, such as the start of its first call, by the nouns that mean the tool by [`noun_means_tool`].
#[derive(Debug, Default)]
pub(crate) struct ToolsByNoun(HashMap<String, u64>);

impl ToolsByNoun {
    /// Keeps the least value of each noun.
    pub(crate) fn new<'n>(tools: impl IntoIterator<Item = (&'n str, u64)>) -> ToolsByNoun {
        let mut by_noun = HashMap::default();
        let mut add = |noun: String, value: u64| {
            let least: &mut u64 = by_noun.entry(noun).or_insert(value);
            *least = value.min(*least);
        };
        for (name, value) in tools {
            let words = identifier_words(name);
            add(words.concat(), value);
            single_nouns(&words).for_each(|word| add(word.clone(), value));
        }
        ToolsByNoun(by_noun)
    }

    /// The least value among the tools that the noun means.
    pub(crate) fn meant_by(&self, noun: &str) -> Option<u64> {
        let plain = identifier_words(noun).concat();
        self.0.get(&plain).filter(|_| plain.len() >= MIN_NOUN_BYTES).copied()
    }
}

/// A number for each tool by its name: the names are looked up as nouns that mean another tool.
#[derive(Debug, Default)]
pub(crate) struct ToolsAsNouns(HashMap<String, u64>);

impl ToolsAsNouns {
    /// Keeps the least value of each name.
    pub(crate) fn new<'n>(tools: impl IntoIterator<Item = (&'n str, u64)>) -> ToolsAsNouns {
        let mut by_name = HashMap::default();
        for (name, value) in tools {
            let least: &mut u64 = by_name.entry(identifier_words(name).concat()).or_insert(value);
            *least = value.min(*least);
        }
        by_name.retain(|name, _| name.len() >= MIN_NOUN_BYTES);
        ToolsAsNouns(by_name)
    }

    /// The least value of the names that, as nouns, mean `tool`.
    pub(crate) fn meaning(&self, tool: &str) -> Option<u64> {
        let words = identifier_words(tool);
        let by_word = single_nouns(&words).filter_map(|word| self.0.get(word));
        by_word.chain(self.0.get(&words.concat())).min().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claims(text: &str) -> Vec<WorkClaim<'_>> {
        super::claims(text, &Memo::new())
    }

    proptest! {
        #[test]
        fn indexes_find_what_a_search_finds(
            tools in prop::collection::vec("(search|web|browser|get|a1)(_(search|web|tool|browser)){0,2}", 0..8),
            noun in "(search|web|browser|get|a1|websearch)( (search|web|tool)){0,2}",
        ) {
            let numbered = || tools.iter().map(String::as_str).zip(0u64..);
            let searched = numbered().find(|(name, _)| noun_means_tool(&noun, name)).map(|(_, n)| n);
            prop_assert_eq!(ToolsByNoun::new(numbered()).meant_by(&noun), searched);
            let searched = numbered().find(|(name, _)| noun_means_tool(name, &noun)).map(|(_, n)| n);
            prop_assert_eq!(ToolsAsNouns::new(numbered()).meaning(&noun), searched);
        }
    }

    #[test]
    fn claims_are_found_with_the_tool_they_name() {
        let one = claims("I verified this figure with the calculator.");
        assert_eq!(one[0].tool.as_deref(), Some("calculator"));
        let two = claims("The difference was computed with the calculator and both heights were confirmed.");
        assert_eq!(two[0].tool.as_deref(), Some("calculator"));
        for text in [
            "I checked the Alpine Almanac page: it is 6012 m.",
            "I have searched the web for it.",
            "According to the page I read, it is 6012 m.",
            "It is 1206 m, as verified with the search_agent.",
            "My search results show 6012 m.",
            "We've reviewed three independent sources.",
        ] {
            assert!(!claims(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn plans_offers_failures_and_checks_by_others_are_not_claims() {
        for text in [
            "I will verify this with the calculator.",
            "I could not open the page.",
            "You should have it checked with the vendor.",
            "I tried to read the page but it failed.",
            "Have you verified it with the calculator?",
            "I checked your sums and they add up.",
            "If I had searched the web, I would know.",
            "According to the Alpine Almanac, it is 5642 m.",
            "Let me check the page.",
            "Visit the retrieved article page with the visit_page tool.",
            "Compile the verified quote and provide it using final_answer.",
        ] {
            let claims = claims(text);
            assert!(claims.is_empty(), "{text}: {claims:?}");
        }
    }

    #[test]
    fn person_named_after_by_is_no_tool() {
        assert!(claims("The theory was confirmed in 1919 by Eddington.").is_empty());
    }

    #[test]
    fn claims_are_found_in_other_languages() {
        let tool = |text: &str| claims(text).first().map(|claim| claim.tool.clone());
        let calculator = |noun: &str| Some(Some(noun.to_owned()));
        assert_eq!(
            tool("Ich habe die Summe mit dem Taschenrechner überprüft."),
            calculator("taschenrechner")
        );
        assert_eq!(tool("J'ai vérifié le total avec la calculatrice."), calculator("calculatrice"));
        assert_eq!(tool("He consultado la página oficial y el precio es correcto."), Some(None));
        assert_eq!(tool("我已经用计算器核对了这个总数。"), calculator("计算器"));
        assert_eq!(tool("Ich werde die Seite des Museums lesen."), None);
    }

    #[test]
    fn noun_matches_a_tool_name_by_words() {
        assert!(noun_means_tool("search_agent", "SearchAgent"));
        assert!(noun_means_tool("calculator", "simple_calculator"));
        assert!(!noun_means_tool("search", "research_agent"));
        assert!(!noun_means_tool("the", "the_tool"));
    }
}
