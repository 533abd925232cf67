//! The facts by which a person identifies a run: service, agent, session, task and time.
//!
//! In: a recognised trace. Out: a [`TraceHeader`], with which every rendering of a trace begins. Names and ids are
//! shortened; the task is content, so it is redacted, and omitted with `explanations: off`.

use verdict_otlp::trace::{Kind, Tree};

use super::config::Emission;
use crate::measure::excerpt::{clip, head};
use crate::recognise::{AgentTrace, Recogniser, Text};

/// Longest name or id, in bytes.
const MAX_NAME: usize = 128;
/// Longest task, in bytes.
const MAX_TASK: usize = 240;
/// Number of bytes of a task that are redacted, before it is shortened: a part of a secret matches no pattern.
const MAX_REDACTED_TASK: usize = 8 << 10;

/// The identification of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TraceHeader {
    /// The name of the root, else of the topmost span.
    pub name: Option<String>,
    /// `service.name` of that span, else the first of the trace.
    pub service: Option<String>,
    /// The name of the outermost agent that has one.
    pub agent: Option<String>,
    /// The first conversation or session of the trace.
    pub session: Option<String>,
    /// The task of the outermost agent, shortened and redacted.
    pub task: Option<String>,
    /// The earliest start, in nanoseconds since 1970.
    pub start: Option<u64>,
    /// From the earliest start to the latest end, in nanoseconds.
    pub duration: Option<u64>,
}

impl TraceHeader {
    pub fn new(trace: &AgentTrace, emission: &Emission) -> TraceHeader {
        let name = |text: &Text| clip(text, MAX_NAME).to_owned();
        let indexes = || trace.tree.root().into_iter().chain(trace.tree.order().iter().copied());
        let views = || indexes().filter_map(|i| trace.views.get(i));
        let task = trace.agents.first().and_then(|agent| agent.task.as_deref());
        TraceHeader {
            name: views().find_map(|view| view.name.as_ref()).map(name),
            service: views().find_map(|view| view.service.as_ref()).map(name),
            agent: trace.agents.iter().find_map(|agent| agent.name.as_ref()).map(name),
            session: views().find_map(|view| view.session.as_ref()).map(name),
            task: task
                .and_then(|task| emission.disclose(clip(task.trim(), MAX_REDACTED_TASK)))
                .map(|task| head(&task, MAX_TASK).to_owned()),
            start: trace.tree.spans.iter().map(|span| span.start).filter(|&start| start > 0).min(),
            duration: duration(&trace.tree),
        }
    }
}

fn duration(tree: &Tree) -> Option<u64> {
    let start = tree.spans.iter().map(|span| span.start).filter(|&start| start > 0).min()?;
    tree.spans.iter().map(|span| span.end).max()?.checked_sub(start)
}

/// A trace as renderings of annotated spans show it.
#[derive(Debug, Default)]
pub struct RenderedTrace {
    /// In the order and with the times by which it is evaluated.
    pub tree: Tree,
    /// One kind per span.
    pub kinds: Vec<Kind>,
    pub header: TraceHeader,
}

impl RenderedTrace {
    /// Recognises `tree` by the conventions of `recogniser`.
    pub fn new(recogniser: &Recogniser, tree: Tree, emission: &Emission) -> RenderedTrace {
        let trace = recogniser.trace(tree, &[], false);
        let header = TraceHeader::new(&trace, emission);
        let tree = trace.tree;
        let kinds = tree.spans.iter().map(|span| recogniser.kind(&span.bytes, &span.envelope)).collect();
        RenderedTrace { tree, kinds, header }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotate::Explanations;
    use crate::measure::testing::Script;

    #[test]
    fn task_is_redacted_shortened_and_hidden_with_explanations() {
        let task =
            format!("Log in with password=hunter22 and read {}", "one page after the other ".repeat(20));
        let trace = Script::new(&task).says("Done.").build();
        let shown = TraceHeader::new(&trace, &Emission::default()).task.unwrap();
        assert!(shown.starts_with("Log in with password=") && !shown.contains("hunter22"), "{shown}");
        assert!(shown.len() <= MAX_TASK, "{shown}");
        let without_explanations = Emission { explanations: Explanations::Off, ..Emission::default() };
        assert_eq!(TraceHeader::new(&trace, &without_explanations).task, None);
    }
}
