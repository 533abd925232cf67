//! What a tool is for: to return information, or to change a state.
//!
//! In: a call. Out: the purpose, by the verbs in the tool's name, else by the first word of its description.

use super::identifier::identifier_words;
use crate::recognise::{AgentTrace, Call};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To return information. An empty result is the answer that there is none.
    Query,
    /// To change a state: the result may be empty.
    Action,
    Unknown,
}

pub(crate) fn purpose(trace: &AgentTrace, call: &Call) -> Purpose {
    let by_name = identifier_words(&call.name).iter().find_map(|word| purpose_of(word));
    let described = || {
        let own = call.definition.as_ref().and_then(|d| d.description.as_deref());
        let text = own.or_else(|| {
            let agent = trace.agents.get(call.agent?)?;
            agent.tools.iter().find(|t| t.name == call.name)?.description.as_deref()
        })?;
        let first = identifier_words(text.split_whitespace().next()?).into_iter().next()?;
        match first.trim_end_matches('s') {
            // A description says what the tool returns; a tool named so takes something back.
            "return" => Some(Purpose::Query),
            verb => purpose_of(verb),
        }
    };
    by_name.or_else(described).unwrap_or(Purpose::Unknown)
}

/// The purpose of a verb; none if it is neither.
pub(crate) fn purpose_of(verb: &str) -> Option<Purpose> {
    let among = |verbs: &str| verbs.split_ascii_whitespace().any(|known| known == verb);
    match () {
        () if among(QUERIES) => Some(Purpose::Query),
        () if among(ACTIONS) => Some(Purpose::Action),
        () => None,
    }
}

const QUERIES: &str = "\
    search find get fetch read list lookup query retrieve load visit open browse view describe calculate \
    compute calculator inspect scrape extract count select grep glob ls translate summarize ask recall \
    geocode convert analyze check show verify";
const ACTIONS: &str = "\
    write create update delete send set save post put add remove insert move click type wait sleep print \
    notify log store transfer handoff finish submit exit mkdir touch edit append close cancel schedule \
    publish login authenticate connect install start restart stop configure enable disable grant book \
    modify apply upload run execute exec bash shell python terminal reset final exchange refund pay \
    charge reserve buy purchase return";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;
    use crate::recognise::ToolDefinition;

    #[test]
    fn name_and_else_description_tell_the_purpose() {
        let of = |name: &str, description: &str| {
            let mut trace = Script::new("task").calls("", &[(name, "{}")]).returns("ok").build();
            let definition =
                ToolDefinition { name: name.into(), description: Some(description.into()), parameters: None };
            trace.calls[0].definition = Some(definition);
            purpose(&trace, &trace.calls[0])
        };
        assert_eq!(of("find_member", ""), Purpose::Query);
        assert_eq!(of("return_delivered_items", "Returns items"), Purpose::Action);
        assert_eq!(of("weather", "Returns the weather"), Purpose::Query);
        assert_eq!(of("irrigation", "Starts the pump"), Purpose::Action);
        assert_eq!(of("weather", ""), Purpose::Unknown);
    }
}
