//! Finds by how much the clocks of a trace's services differ.
//!
//! Every resource (service instance) of a trace has its own clock. Causality bounds their differences: a child
//! is within its parent, and a tool call is between the model call that requested it and the first model call whose
//! prompt contains its result, found by id, or else by the text of the result. A clock whose times contradict these
//! bounds is corrected by the smallest shift that contradicts the fewest of them; Jaeger adjusts single spans in a
//! similar way, by their parents. Spans and calls are ordered by the shifted times. Durations and all times that are
//! written remain those of the sender.

use foldhash::{HashMap, HashMapExt, HashSet};
use verdict_otlp::trace::{Idx, Kind, Span, Tree};

use super::agent_trace::AgentTrace;
use super::message::{Message, Part, Text};

/// The statement that a moment on one clock is not later than a moment on another clock.
struct ClockBound {
    /// The number of the clock of the earlier moment.
    earlier: usize,
    /// The number of the clock of the later moment.
    later: usize,
    /// Nanoseconds from the earlier to the later moment, each by its own clock.
    between: i64,
    /// The bound follows from causality. Other bounds are only likely, and count if certain bounds show a skew.
    is_certain: bool,
}

/// The skew of each span's clock in nanoseconds; `None` if no bound shows a skew.
pub(crate) fn skews(trace: &AgentTrace) -> Option<Vec<i64>> {
    let clock_of_span = clocks(&trace.tree)?;
    let mut bounds = bounds(trace, &clock_of_span);
    // A clock is compared with clocks of lower numbers, whose skews are known.
    let higher_clock = |bound: &ClockBound| bound.earlier.max(bound.later);
    bounds.sort_by_key(higher_clock);
    let mut clock_skews = vec![0; trace.tree.len()];
    for clock_bounds in bounds.chunk_by(|a, b| higher_clock(a) == higher_clock(b)) {
        let clock = higher_clock(&clock_bounds[0]);
        let skew = |includes_likely: bool| {
            let (mut lower_bounds, mut upper_bounds) = (Vec::new(), Vec::new());
            for bound in clock_bounds.iter().filter(|bound| includes_likely || bound.is_certain) {
                match bound.later == clock {
                    true => upper_bounds.push(bound.between.saturating_add(clock_skews[bound.earlier])),
                    false => lower_bounds.push(clock_skews[bound.later].saturating_sub(bound.between)),
                }
            }
            nearest_skew(lower_bounds, upper_bounds)
        };
        clock_skews[clock] = if skew(false) == 0 { 0 } else { skew(true) };
    }
    clock_skews
        .iter()
        .any(|&skew| skew != 0)
        .then(|| clock_of_span.iter().map(|&clock| clock_skews[clock]).collect())
}

/// The number of each span's clock, in order of appearance in the tree; `None` if all spans have one clock.
fn clocks(tree: &Tree) -> Option<Vec<usize>> {
    let (first, rest) = tree.spans.split_first()?;
    if rest.iter().all(|span| span.envelope.resource == first.envelope.resource) {
        return None;
    }
    let mut numbers = HashMap::new();
    let mut clock_of_span = vec![0; tree.len()];
    for &span_index in tree.order() {
        let new_number = numbers.len();
        clock_of_span[span_index] =
            *numbers.entry(&tree.spans[span_index].envelope.resource).or_insert(new_number);
    }
    Some(clock_of_span)
}

/// The bounds between the clocks of a trace.
fn bounds(trace: &AgentTrace, clock_of_span: &[usize]) -> Vec<ClockBound> {
    let AgentTrace { tree, views, agents, calls, .. } = trace;
    let mut bounds = Vec::new();
    let mut add_bound =
        |is_certain: bool, (earlier, earlier_time): (Idx, u64), (later, later_time): (Idx, u64)| {
            let (earlier, later) = (clock_of_span[earlier], clock_of_span[later]);
            if earlier != later && earlier_time != 0 && later_time != 0 {
                let between = later_time.wrapping_sub(earlier_time).cast_signed();
                bounds.push(ClockBound { earlier, later, between, is_certain });
            }
        };
    let start = |span_index: Idx| (span_index, tree.spans[span_index].start);
    let end = |span_index: Idx| (span_index, tree.spans[span_index].end.max(tree.spans[span_index].start));
    let duration = |span: &Span| span.end.saturating_sub(span.start);
    // By span: whether a child on the same clock ends after it.
    let mut is_outlived = vec![false; tree.len()];
    for (span_index, span) in tree.spans.iter().enumerate() {
        let Some(parent) = tree.parent(span_index) else { continue };
        is_outlived[parent] |=
            clock_of_span[span_index] == clock_of_span[parent] && span.end > tree.spans[parent].end;
    }
    for (span_index, span) in tree.spans.iter().enumerate() {
        let Some(parent) = tree.parent(span_index) else { continue };
        add_bound(true, start(parent), start(span_index));
        // A parent does not wait for a child that takes longer than itself, nor for any child if one on the parent's
        // own clock ends after the parent.
        if duration(span) <= duration(&tree.spans[parent]) && !is_outlived[parent] {
            add_bound(true, end(span_index), (parent, tree.spans[parent].end));
        }
    }
    let mut receipts_by_id = HashMap::new();
    let mut requested = HashSet::default();
    for (span_index, view) in
        views.iter().enumerate().filter(|(_, view)| view.kind == Kind::Llm && !view.wrapper)
    {
        for part in view.input.iter().flat_map(|message| &message.parts) {
            if let Part::Result { id: Some(id), .. } = part {
                receipts_by_id.entry(id).or_insert(span_index);
            }
        }
        requested.extend(view.requests().map(|request| (span_index, &request.name)));
    }
    let (receipts, mut occurrences) = (receipts_by_text(trace), HashMap::new());
    let subtrees = SubtreeRanges::new(tree);
    for call in calls {
        let Some(tool) = call.tool else { continue };
        // A tool that runs while the model still answers is a child of the model call.
        let is_outside = |model: &Idx| !subtrees.contains(*model, tool);
        let is_requester = |model: &Idx| requested.contains(&(*model, &call.name)) && is_outside(model);
        call.llm.filter(is_requester).inspect(|&model| add_bound(true, end(model), start(tool)));
        if let Some(&model) = call.id.as_ref().and_then(|id| receipts_by_id.get(id)) {
            add_bound(true, end(tool), start(model));
        } else if let Some(key) = call.agent.zip(call.result.as_ref().map(address)) {
            let occurrence = occurrences.entry(key).or_insert(0);
            if let Some(&(earlier, model)) = receipts.get(&key).and_then(|receipts| receipts.get(*occurrence))
            {
                add_bound(true, end(tool), start(model));
                earlier.filter(is_outside).inspect(|&earlier| add_bound(true, end(earlier), start(tool)));
            }
            *occurrence += 1;
        }
    }
    // Model and tool calls mostly alternate, beginning with a model call.
    for agent in agents {
        let tools: Vec<Idx> = agent.calls.iter().filter_map(|&call| calls[call].tool).collect();
        let first_turn = agent.llms.first().zip(tools.first());
        first_turn.inspect(|&(&model, &tool)| add_bound(false, end(model), start(tool)));
        let last_turn = agent.llms.last().zip(tools.last()).filter(|_| agent.llms.len() > tools.len());
        last_turn.inspect(|&(&model, &tool)| add_bound(false, end(tool), start(model)));
    }
    bounds
}

/// The address and length of a text. Texts are interned, so equal texts have the same address.
fn address(text: &Text) -> (usize, usize) {
    (text.as_ptr() as usize, text.len())
}

/// The first model call whose prompt contains a result, preceded by the previous model call of the agent if the prompt
/// continues that call's prompt.
type ResultReceipt = (Option<Idx>, Idx);

/// By agent and text of a result: the receipt of its first occurrence, its second occurrence, and so on.
fn receipts_by_text(trace: &AgentTrace) -> HashMap<(usize, (usize, usize)), Vec<ResultReceipt>> {
    let mut receipts: HashMap<_, Vec<ResultReceipt>> = HashMap::new();
    for (agent_index, agent) in trace.agents.iter().enumerate() {
        let mut previous: Option<Idx> = None;
        for &span_index in &agent.llms {
            let input = &trace.views[span_index].input;
            let continued_call =
                previous.filter(|&previous| is_continued(&trace.views[previous].input, input));
            let mut occurrences: HashMap<_, usize> = HashMap::new();
            for part in input.iter().flat_map(|message| &message.parts) {
                if let Part::Result { content, .. } = part {
                    *occurrences.entry(address(content)).or_default() += 1;
                }
            }
            for (result, count) in occurrences {
                let result_receipts = receipts.entry((agent_index, result)).or_default();
                result_receipts.resize(count.max(result_receipts.len()), (continued_call, span_index));
            }
            previous = Some(span_index);
        }
    }
    receipts
}

/// Whether `prompt` begins with all messages of `earlier`.
fn is_continued(earlier: &[Message], prompt: &[Message]) -> bool {
    let texts = |message: &Message| -> Vec<Option<(usize, usize)>> {
        let text = |part: &Part| match part {
            Part::Text(text) | Part::Reasoning(text) | Part::Result { content: text, .. } => {
                Some(address(text))
            }
            _ => None,
        };
        message.parts.iter().map(text).collect()
    };
    earlier.len() < prompt.len()
        && earlier.iter().zip(prompt).all(|(a, b)| a.role == b.role && texts(a) == texts(b))
}

/// The positions of each span and its descendants in the tree's order, which are consecutive.
struct SubtreeRanges {
    position: Vec<usize>,
    size: Vec<usize>,
}

impl SubtreeRanges {
    fn new(tree: &Tree) -> SubtreeRanges {
        let (mut position, mut size) = (vec![0; tree.len()], vec![1; tree.len()]);
        tree.order().iter().enumerate().for_each(|(n, &span_index)| position[span_index] = n);
        for &span_index in tree.order().iter().rev() {
            if let Some(parent) = tree.parent(span_index) {
                size[parent] += size[span_index];
            }
        }
        SubtreeRanges { position, size }
    }

    /// Whether a span is `ancestor` or below it.
    fn contains(&self, ancestor: Idx, span_index: Idx) -> bool {
        (self.position[ancestor]..self.position[ancestor] + self.size[ancestor])
            .contains(&self.position[span_index])
    }
}

/// The skew nearest to 0 that contradicts the fewest lower and upper bounds.
fn nearest_skew(mut lower_bounds: Vec<i64>, mut upper_bounds: Vec<i64>) -> i64 {
    lower_bounds.sort_unstable();
    upper_bounds.sort_unstable();
    let contradicted = |skew: i64| {
        let violated_lower = lower_bounds.len() - lower_bounds.partition_point(|&bound| bound <= skew);
        violated_lower + upper_bounds.partition_point(|&bound| bound < skew)
    };
    let candidates = lower_bounds.iter().chain(&upper_bounds).copied().chain([0]);
    candidates.min_by_key(|&skew| (contradicted(skew), skew.unsigned_abs())).unwrap_or_default()
}
