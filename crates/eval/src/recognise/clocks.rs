//! Finds by how much the clocks of a trace's services differ.
//!
//! Every resource (service instance) of a trace has its own clock. Causality bounds their differences: a child
//! is within its parent, and a tool call is between the model call that asked for it and the first one that
//! was given its result, as ids say, or else the texts of results in prompts. A clock whose times contradict
//! these bounds is corrected by the smallest shift that contradicts the fewest of them; Jaeger adjusts single
//! spans in a similar way, by their parents. The order of spans and calls, and what counts as before, follow the
//! shifted times. Durations and all times that are written remain those of the sender.

use foldhash::{HashMap, HashMapExt, HashSet};
use verdict_otlp::trace::{Idx, Kind, Span, Tree};

use super::agent_trace::AgentTrace;
use super::message::{Message, Part, Text};

/// The statement that a moment of one clock is not later than a moment of another one.
struct ClockBound {
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
    let last = |bound: &ClockBound| bound.earlier.max(bound.later);
    bounds.sort_by_key(last);
    let mut skews = vec![0; trace.tree.len()];
    for bounds in bounds.chunk_by(|a, b| last(a) == last(b)) {
        let at = last(&bounds[0]);
        let skew = |all: bool| {
            let (mut lower_bounds, mut upper_bounds) = (Vec::new(), Vec::new());
            for bound in bounds.iter().filter(|bound| all || bound.certain) {
                match bound.later == at {
                    true => upper_bounds.push(bound.between.saturating_add(skews[bound.earlier])),
                    false => lower_bounds.push(skews[bound.later].saturating_sub(bound.between)),
                }
            }
            nearest(lower_bounds, upper_bounds)
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

fn bounds(trace: &AgentTrace, clock: &[usize]) -> Vec<ClockBound> {
    let AgentTrace { tree, views, agents, calls, .. } = trace;
    let mut bounds = Vec::new();
    let mut add = |certain: bool, (earlier, from): (Idx, u64), (later, to): (Idx, u64)| {
        let (earlier, later) = (clock[earlier], clock[later]);
        if earlier != later && from != 0 && to != 0 {
            let between = to.wrapping_sub(from).cast_signed();
            bounds.push(ClockBound { earlier, later, between, certain });
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
    let mut receipts = HashMap::new();
    let mut requested = HashSet::default();
    for (at, view) in views.iter().enumerate().filter(|(_, view)| view.kind == Kind::Llm && !view.wrapper) {
        for part in view.input.iter().flat_map(|message| &message.parts) {
            if let Part::Result { id: Some(id), .. } = part {
                receipts.entry(id).or_insert(at);
            }
        }
        requested.extend(view.requests().map(|request| (at, &request.name)));
    }
    let (by_text, mut times) = (receipts_by_text(trace), HashMap::new());
    let subtrees = SubtreeRanges::new(tree);
    for call in calls {
        let Some(tool) = call.tool else { continue };
        // A tool that runs while the model still answers is a child of the model call.
        let follows = |model: &Idx| !subtrees.contain(*model, tool);
        let asked = |model: &Idx| requested.contains(&(*model, &call.name)) && follows(model);
        call.llm.filter(asked).inspect(|&model| add(true, end(model), start(tool)));
        if let Some(&model) = call.id.as_ref().and_then(|id| receipts.get(id)) {
            add(true, end(tool), start(model));
        } else if let Some(key) = call.agent.zip(call.result.as_ref().map(address)) {
            let nth = times.entry(key).or_insert(0);
            if let Some(&(before, model)) = by_text.get(&key).and_then(|receipts| receipts.get(*nth)) {
                add(true, end(tool), start(model));
                before.filter(follows).inspect(|&before| add(true, end(before), start(tool)));
            }
            *nth += 1;
        }
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

/// The address of a text. Texts are interned, so that equal ones have the same.
fn address(text: &Text) -> (usize, usize) {
    (text.as_ptr() as usize, text.len())
}

/// A model call before, if the prompt continues its prompt, and the first model call that was given a result.
type ResultReceipt = (Option<Idx>, Idx);

/// By agent and result, the first model call that was given it: for the first time that it was returned, the
/// second, and so on.
fn receipts_by_text(trace: &AgentTrace) -> HashMap<(usize, (usize, usize)), Vec<ResultReceipt>> {
    let mut receipts: HashMap<_, Vec<ResultReceipt>> = HashMap::new();
    for (i, agent) in trace.agents.iter().enumerate() {
        let mut before: Option<Idx> = None;
        for &at in &agent.llms {
            let input = &trace.views[at].input;
            let continues = before.filter(|&before| is_continued(&trace.views[before].input, input));
            let mut times: HashMap<_, usize> = HashMap::new();
            for part in input.iter().flat_map(|message| &message.parts) {
                if let Part::Result { content, .. } = part {
                    *times.entry(address(content)).or_default() += 1;
                }
            }
            for (result, times) in times {
                let result_receipts = receipts.entry((i, result)).or_default();
                result_receipts.resize(times.max(result_receipts.len()), (continues, at));
            }
            before = Some(at);
        }
    }
    receipts
}

/// Whether a prompt begins with all messages of another one.
fn is_continued(before: &[Message], prompt: &[Message]) -> bool {
    let texts = |message: &Message| -> Vec<Option<(usize, usize)>> {
        let text = |part: &Part| match part {
            Part::Text(text) | Part::Reasoning(text) | Part::Result { content: text, .. } => {
                Some(address(text))
            }
            _ => None,
        };
        message.parts.iter().map(text).collect()
    };
    before.len() < prompt.len()
        && before.iter().zip(prompt).all(|(a, b)| a.role == b.role && texts(a) == texts(b))
}

/// Where each span and its descendants are in the tree's order.
struct SubtreeRanges {
    place: Vec<usize>,
    size: Vec<usize>,
}

impl SubtreeRanges {
    fn new(tree: &Tree) -> SubtreeRanges {
        let (mut place, mut size) = (vec![0; tree.len()], vec![1; tree.len()]);
        tree.order().iter().enumerate().for_each(|(n, &at)| place[at] = n);
        for &at in tree.order().iter().rev() {
            if let Some(parent) = tree.parent(at) {
                size[parent] += size[at];
            }
        }
        SubtreeRanges { place, size }
    }

    fn contain(&self, ancestor: Idx, at: Idx) -> bool {
        (self.place[ancestor]..self.place[ancestor] + self.size[ancestor]).contains(&self.place[at])
    }
}

/// The skew nearest to 0 that contradicts the fewest lower and upper bounds.
fn nearest(mut lower_bounds: Vec<i64>, mut upper_bounds: Vec<i64>) -> i64 {
    lower_bounds.sort_unstable();
    upper_bounds.sort_unstable();
    let contradicted = |skew: i64| {
        let violated_lower = lower_bounds.len() - lower_bounds.partition_point(|&bound| bound <= skew);
        violated_lower + upper_bounds.partition_point(|&bound| bound < skew)
    };
    let candidates = lower_bounds.iter().chain(&upper_bounds).copied().chain([0]);
    candidates.min_by_key(|&skew| (contradicted(skew), skew.unsigned_abs())).unwrap_or_default()
}
