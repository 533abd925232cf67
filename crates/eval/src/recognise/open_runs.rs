//! Runs of agents whose own span has not arrived.
//!
//! In: the topmost spans of an open trace, grouped by their missing parent. Out: one group for each run.
//! An agent may have steps between its span and its calls, whose spans arrive as late as its own. Model calls
//! belong to one run if they name the same agent and begin with the same request, since every prompt repeats
//! the history; a group of tool calls belongs to the run that requested one of them. Other groups are not joined.

use foldhash::HashMap;
use verdict_otlp::trace::{Idx, Kind, Tree};

use super::message::{Part, Role, Text};
use super::span_view::SpanView;

/// Service, agent and first request of a run.
type OpenRunKey = (Option<Text>, Option<Text>, Option<Text>);

/// Joins the groups of one run. `groups` are in order of their first span.
pub(super) fn join_groups(tree: &Tree, views: &[SpanView], groups: Vec<Vec<Idx>>) -> Vec<Vec<Idx>> {
    let mut runs: Vec<Vec<Idx>> = Vec::new();
    let mut by_key: HashMap<OpenRunKey, usize> = HashMap::default();
    let mut requested: HashMap<Text, usize> = HashMap::default();
    let mut without_model: Vec<Vec<Idx>> = Vec::new();
    for group in groups {
        let Some(key) = spans(tree, &group).find_map(|i| run_key(&views[i])) else {
            without_model.push(group);
            continue;
        };
        let run = *by_key.entry(key).or_insert_with(|| {
            runs.push(Vec::new());
            runs.len() - 1
        });
        for request in spans(tree, &group).flat_map(|i| views[i].requests()) {
            requested.extend(request.id.clone().map(|id| (id, run)));
        }
        runs[run].extend(group);
    }
    let only_run = (runs.len() == 1).then_some(0);
    let mut without_run = Vec::new();
    for group in without_model {
        let id = |i: Idx| views[i].call.as_ref()?.id.as_ref();
        let by_id = spans(tree, &group).filter_map(id).find_map(|id| requested.get(id).copied());
        match by_id.or(only_run).and_then(|run| runs.get_mut(run)) {
            Some(run) => run.extend(group),
            None => without_run.push(group),
        }
    }
    runs.extend(without_run);
    runs.iter_mut().for_each(|run| run.sort_unstable());
    runs
}

/// The agent that the spans of a run name.
pub(super) fn agent_name(tree: &Tree, views: &[SpanView], tops: &[Idx]) -> Option<Text> {
    spans(tree, tops).find_map(|i| views[i].agent.clone())
}

fn spans<'a>(tree: &'a Tree, tops: &'a [Idx]) -> impl Iterator<Item = Idx> + 'a {
    tops.iter().flat_map(|&top| tree.subtree(top))
}

/// The key of a model call; `None` for other spans.
fn run_key(view: &SpanView) -> Option<OpenRunKey> {
    if view.kind != Kind::Llm || view.wrapper {
        return None;
    }
    let first_request = view.input.iter().filter(|message| message.role == Role::User).find_map(|message| {
        message
            .parts
            .iter()
            .find_map(|part| if let Part::Text(text) = part { Some(text.clone()) } else { None })
    });
    Some((view.service.clone(), view.agent.clone(), first_request))
}
