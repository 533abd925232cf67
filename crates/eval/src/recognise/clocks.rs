//! Finds by how much the clocks of a trace's services differ.
//!
//! Every resource (service instance) of a trace has its own clock. Causality bounds their differences: a child
//! lies within its parent, and a tool call lies between the model call that asked for it and the first one that
//! was told its result. A clock whose times contradict these bounds is set right by the smallest shift that
//! contradicts the fewest of them; Jaeger adjusts single spans in a similar way, by their parents. The order of
//! spans and calls, and what counts as before, follow the shifted times. Durations and all times that are
//! written remain those of the sender.

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::{Idx, Kind, Span, Tree};

use super::agent_trace::AgentTrace;
use super::message::Part;

/// That a moment of one clock is not later than a moment of another one.
struct Bound {
    earlier: usize,
    later: usize,
    /// Nanoseconds from the one to the other, by their clocks.
    between: i64,
    /// Otherwise it is only usual, and counts if the clocks are known to differ.
    certain: bool,
}

/// The skew of each span's clock in nanoseconds; `None` if nothing says that clocks differ.
pub(crate) fn skews(trace: &AgentTrace) -> Option<Vec<i64>> {
    let clock = clocks(&trace.tree)?;
    let mut bounds = bounds(trace, &clock);
    // A clock is compared with those before it, whose skews are known.
    let last = |bound: &Bound| bound.earlier.max(bound.later);
    bounds.sort_by_key(last);
    let mut skews = vec![0; trace.tree.len()];
    for bounds in bounds.chunk_by(|a, b| last(a) == last(b)) {
        let at = last(&bounds[0]);
        let skew = |all: bool| {
            let (mut least, mut most) = (Vec::new(), Vec::new());
            for bound in bounds.iter().filter(|bound| all || bound.certain) {
                match bound.later == at {
                    true => most.push(bound.between.saturating_add(skews[bound.earlier])),
                    false => least.push(skews[bound.later].saturating_sub(bound.between)),
                }
            }
            nearest(least, most)
        };
        skews[at] = if skew(false) == 0 { 0 } else { skew(true) };
    }
    skews.iter().any(|&skew| skew != 0).then(|| clock.iter().map(|&clock| skews[clock]).collect())
}

/// The number of each span's clock, in order of appearance in the tree; `None` if all have the same.
fn clocks(tree: &Tree) -> Option<Vec<usize>> {
    let (first, rest) = tree.spans.split_first()?;
    if rest.iter().all(|span| span.envelope.resource == first.envelope.resource) {
        return None;
    }
    let mut numbers = HashMap::new();
    let mut clock = vec![0; tree.len()];
    for &at in tree.order() {
        let next = numbers.len();
        clock[at] = *numbers.entry(&tree.spans[at].envelope.resource).or_insert(next);
    }
    Some(clock)
}

fn bounds(trace: &AgentTrace, clock: &[usize]) -> Vec<Bound> {
    let AgentTrace { tree, views, agents, calls, .. } = trace;
    let mut bounds = Vec::new();
    let mut add = |certain: bool, (earlier, from): (Idx, u64), (later, to): (Idx, u64)| {
        let (earlier, later) = (clock[earlier], clock[later]);
        if earlier != later && from != 0 && to != 0 {
            let between = to.wrapping_sub(from).cast_signed();
            bounds.push(Bound { earlier, later, between, certain });
        }
    };
    let start = |at: Idx| (at, tree.spans[at].start);
    let end = |at: Idx| (at, tree.spans[at].end.max(tree.spans[at].start));
    let duration = |span: &Span| span.end.saturating_sub(span.start);
    let mut outlived = vec![false; tree.len()];
    for (at, span) in tree.spans.iter().enumerate() {
        let Some(parent) = tree.parent(at) else { continue };
        outlived[parent] |= clock[at] == clock[parent] && span.end > tree.spans[parent].end;
    }
    for (at, span) in tree.spans.iter().enumerate() {
        let Some(parent) = tree.parent(at) else { continue };
        add(true, start(parent), start(at));
        // A parent waits neither for a child that takes longer, nor if children by its own clock end later.
        if duration(span) <= duration(&tree.spans[parent]) && !outlived[parent] {
            add(true, end(at), (parent, tree.spans[parent].end));
        }
    }
    let mut told = HashMap::new();
    for (at, view) in views.iter().enumerate().filter(|(_, view)| view.kind == Kind::Llm && !view.wrapper) {
        for part in view.input.iter().flat_map(|message| &message.parts) {
            if let Part::Result { id: Some(id), .. } = part {
                told.entry(id).or_insert(at);
            }
        }
    }
    for call in calls {
        let Some(tool) = call.tool else { continue };
        // A tool that runs while the model still answers is a child of the model call.
        let asked = |model: &Idx| {
            views[*model].requests().any(|request| request.name == call.name)
                && tree.ancestors(tool).all(|up| up != *model)
        };
        call.llm.filter(asked).inspect(|&model| add(true, end(model), start(tool)));
        call.id.as_ref().and_then(|id| told.get(id)).inspect(|&&model| add(true, end(tool), start(model)));
    }
    // Models and tools mostly take turns, and a model begins.
    for agent in agents {
        let tools: Vec<Idx> = agent.calls.iter().filter_map(|&call| calls[call].tool).collect();
        let turns = agent.llms.first().zip(tools.first());
        turns.inspect(|&(&model, &tool)| add(false, end(model), start(tool)));
        let answer = agent.llms.last().zip(tools.last()).filter(|_| agent.llms.len() > tools.len());
        answer.inspect(|&(&model, &tool)| add(false, end(tool), start(model)));
    }
    bounds
}

/// The skew nearest to 0 that contradicts the fewest lower and upper bounds.
fn nearest(mut least: Vec<i64>, mut most: Vec<i64>) -> i64 {
    least.sort_unstable();
    most.sort_unstable();
    let contradicted = |skew: i64| {
        let above = least.len() - least.partition_point(|&least| least <= skew);
        above + most.partition_point(|&most| most < skew)
    };
    let candidates = least.iter().chain(&most).copied().chain([0]);
    candidates.min_by_key(|&skew| (contradicted(skew), skew.unsigned_abs())).unwrap_or_default()
}
