//! A filter that the request asks for, switched off in the call.
//!
//! In: a request, and the plans, outputs and calls of an agent in order. Out: one finding, on the first
//! model span that wrote it: `available_only: false` where the request asks for available items. No
//! finding if the request says "including", "even" or "regardless", since that may ask for it.

use verdict_otlp::trace::Idx;

use crate::measure::agent::agent_index;
use crate::measure::defects::Defect;
use crate::measure::error_detection::call_index::CallIndex;
use crate::measure::excerpt::around;
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, AgentTrace, Content};

// A named filter that is switched off: in JSON, a keyword argument or prose.
regex!(
    OFF,
    r#"(?i)\b(?:only_(\w{4,30})|([a-z]\w{3,30}?)_only|([a-z]\w{3,30}?)Only)["'`\\]*\s*[:=]\s*["'`]?false\b"#
);
regex!(WIDER, r"(?i)\b(including|include|even if|even those|regardless|whether or not|both|all)\b");
/// Most bytes of a task: a longer one is no plain request for a list.
const MAX_TASK: usize = 4000;

/// Findings by model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(Idx, Finding)> {
    let agents = trace.agents.iter().enumerate();
    agents.filter_map(|(i, agent)| first(trace, memo, i, agent)).collect()
}

fn first(trace: &AgentTrace, memo: &Memo, i: usize, agent: &Agent) -> Option<(Idx, Finding)> {
    let task = agent_index::task(trace, i).filter(|t| t.len() <= MAX_TASK)?;
    if WIDER.is_match(task) {
        return None;
    }
    let task = task.to_lowercase();
    let calls = CallIndex::of(trace, memo);
    for &at in &agent.llms {
        let view = trace.views.get(at).filter(|r| r.output_content == Content::Present)?;
        let output = view.output_text();
        let plans = view.plans.iter().map(|p| &*p.text);
        let asked = calls.by_llm.get(&at).into_iter().flatten().filter_map(|&c| trace.calls.get(c));
        let arguments = asked.filter_map(|c| c.arguments.as_deref());
        let found = plans.chain(arguments).chain([&*output]).find_map(|text| switched_off(text, &task));
        if let Some((filter, quote)) = found {
            let rationale = format!(
                "the filter \"{filter}\" was expected, since the request asks for it; here it is switched off"
            );
            return Some((at, Defect::FilterDropped.finding(rationale, &quote)));
        }
    }
    None
}

/// The filter's word and its context, if the request contains that word.
fn switched_off(text: &str, task: &str) -> Option<(String, String)> {
    // Most texts name no filter.
    memchr::memmem::find(text.as_bytes(), b"nly")?;
    OFF.captures_iter(text).find_map(|found| {
        let whole = found.get(0)?;
        let word = found.iter().skip(1).flatten().next()?.as_str().to_lowercase();
        let asked = task.match_indices(&word).any(|(at, _)| {
            task.get(..at).and_then(|t| t.chars().next_back()).is_none_or(|c| !c.is_alphanumeric())
        });
        asked.then(|| (word, around(text, whole.start(), whole.end(), 60).to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_counts_only_if_the_request_names_it() {
        let task = "which available lamps are cheapest?";
        assert!(switched_off(r#"{"available_only": false}"#, task).is_some());
        assert!(switched_off("search(only_available=False)", task).is_some());
        assert!(switched_off(r#"{"available_only": true}"#, task).is_none());
        assert!(switched_off(r#"{"verified_only": false}"#, task).is_none());
        assert!(switched_off(r#"{"available_only": false}"#, "list unavailable lamps").is_none());
    }
}
