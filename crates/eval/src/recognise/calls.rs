//! Finds the tool calls of a trace: joins each model's request with the tool span that executed it and
//! with its result. Without a tool span, a call is read from messages only.

use std::cell::RefCell;

use foldhash::{HashMap, HashMapExt, HashSet};
use verdict_otlp::trace::{Idx, Kind, Tree};

use super::agent_trace::{Agent, Call};
use super::message::{Message, Part, Text, ToolDefinition, ToolRequest};
use super::span_view::{Content, SpanView};
use super::tool_lookup::ToolLookup;
use super::{json_keys, tool};

/// A request, and the tool span that executed it, once known.
struct PendingRequest<'r> {
    /// The model's span.
    llm: Idx,
    /// The index among the requests of the model call.
    request_index: usize,
    request: &'r ToolRequest,
    tool: Option<Idx>,
}

/// Every call, in order of start time, with arguments that are not parsed yet.
pub(crate) fn find(tree: &Tree, views: &[SpanView], agents: &[Agent], owner: &[Option<usize>]) -> Vec<Call> {
    let mut by_agent: Vec<Vec<Idx>> = vec![Vec::new(); agents.len()];
    let mut without_agent: Vec<Idx> = Vec::new();
    for (span_index, view) in views.iter().enumerate() {
        if matches!(view.kind, Kind::Llm | Kind::Tool) && !view.wrapper {
            owner[span_index]
                .and_then(|agent| by_agent.get_mut(agent))
                .unwrap_or(&mut without_agent)
                .push(span_index);
        }
    }
    let mut calls: Vec<Call> = Vec::new();
    for (agent_index, (agent, spans)) in agents.iter().zip(by_agent).enumerate() {
        // An agent whose model calls are not traced may have the conversation on its own span.
        let spans = if spans.is_empty() { vec![agent.at] } else { spans };
        agent_calls(tree, views, Some(agent_index), &spans, &mut calls);
    }
    if !without_agent.is_empty() {
        agent_calls(tree, views, None, &without_agent, &mut calls);
    }
    let request_index = |call: &Call| call.request_index.unwrap_or(0);
    calls.sort_by(|a, b| {
        (a.start, request_index(a), a.at, &a.id).cmp(&(b.start, request_index(b), b.at, &b.id))
    });
    calls
}

/// The spans of one agent, in which its calls are found.
struct AgentSpans<'r> {
    tree: &'r Tree,
    views: &'r [SpanView],
    agent: Option<usize>,
    results: ToolResults<'r>,
    tools: RefCell<ToolLookup<'r>>,
}

/// Adds the calls of one agent.
fn agent_calls(tree: &Tree, views: &[SpanView], agent: Option<usize>, spans: &[Idx], out: &mut Vec<Call>) {
    let (tools, llms): (Vec<Idx>, Vec<Idx>) =
        spans.iter().partition(|&&span_index| views[span_index].kind == Kind::Tool);
    let requests = |&llm: &Idx| {
        let requests = views[llm].requests().enumerate();
        requests.map(move |(request_index, request)| PendingRequest {
            llm,
            request_index,
            request,
            tool: None,
        })
    };
    let mut pending: Vec<PendingRequest<'_>> = llms.iter().flat_map(requests).collect();
    let linked = link(tree, views, &mut pending, &tools);
    let (results, tools_by_name) = (ToolResults::new(views, spans), RefCell::default());
    let agent_spans = AgentSpans { tree, views, agent, results, tools: tools_by_name };
    let mut later_llms = llms.iter().copied().peekable();
    let mut last_llm = None;
    out.reserve(tools.len());
    for (&tool, linked_request) in tools.iter().zip(linked) {
        while let Some(llm) = later_llms.next_if(|&llm| llm < tool) {
            last_llm = Some(llm);
        }
        let pending_request = linked_request.and_then(|i| pending.get(i));
        if let Some(call) = agent_spans.executed_call(tool, pending_request, last_llm) {
            out.push(call);
        }
    }
    for (i, pending_request) in pending.iter().enumerate().filter(|(_, request)| request.tool.is_none()) {
        out.push(agent_spans.requested_call(pending_request, i));
    }
}

impl AgentSpans<'_> {
    /// The call of a tool span. If no model requested it (code that a model wrote calls tools), it
    /// belongs to the last model call before it.
    fn executed_call(
        &self,
        tool: Idx,
        pending_request: Option<&PendingRequest<'_>>,
        last_llm: Option<Idx>,
    ) -> Option<Call> {
        let view = &self.views[tool];
        let call = view.call.as_ref()?;
        let llm = pending_request.map(|pending| pending.llm).or(last_llm);
        let definition = self.definition(llm, &call.name).or_else(|| view.tools.first().cloned());
        let is_object = |t: &Text| t.trim_start().starts_with('{');
        let span_arguments = call.arguments.as_ref().filter(|_| !view.input_content.is_partial());
        let complete_request =
            pending_request.filter(|pending| !self.views[pending.llm].output_content.is_partial());
        let arguments =
            match (span_arguments, complete_request.and_then(|pending| pending.request.arguments.as_ref())) {
                // The span recorded only a value of the object that the request has.
                (Some(recorded), Some(written)) if !is_object(recorded) && is_object(written) => {
                    Some(written)
                }
                (recorded, written) => recorded.or(written),
            };
        let id = call.id.clone().or_else(|| pending_request.and_then(|pending| pending.request.id.clone()));
        let message = self.results.find(
            id.as_ref(),
            pending_request.map(|pending| (pending.llm, pending.request_index)),
            None,
        );
        let own_result = view.result.as_ref().filter(|_| !view.output_content.is_partial());
        let result = own_result.or(message.map(|(text, _)| text)).cloned();
        let has_error_sign = !view.errors.is_empty() || !view.inherited_errors.is_empty();
        Some(Call {
            llm,
            tool: Some(tool),
            agent: self.agent,
            name: call.name.clone(),
            id,
            request_index: pending_request.map(|pending| pending.request_index),
            parsed: None,
            too_large: false,
            arguments_content: if arguments.is_some() { Content::Present } else { view.input_content },
            arguments: arguments.cloned(),
            result_content: if result.is_some() { Content::Present } else { view.output_content },
            result,
            failed: has_error_sign || message.is_some_and(|(_, failed)| failed),
            definition,
            at: tool,
            start: self.tree.spans[tool].start,
        })
    }

    /// The call of a request without a tool span. Its result is in a later prompt.
    fn requested_call(&self, pending: &PendingRequest<'_>, pending_index: usize) -> Call {
        let ToolRequest { id, name, arguments } = pending.request;
        let message = self.results.find(
            id.as_ref(),
            Some((pending.llm, pending.request_index)),
            Some((pending_index, name)),
        );
        let definition = self.definition(Some(pending.llm), name);
        let span = &self.tree.spans[pending.llm];
        let content = self.views[pending.llm].output_content;
        let arguments = arguments.clone().filter(|_| !content.is_partial());
        Call {
            llm: Some(pending.llm),
            tool: None,
            agent: self.agent,
            name: name.clone(),
            id: id.clone(),
            request_index: Some(pending.request_index),
            parsed: None,
            too_large: false,
            arguments,
            arguments_content: content,
            result_content: if message.is_some() { Content::Present } else { self.results.missing },
            result: message.map(|(text, _)| text.clone()),
            failed: message.is_some_and(|(_, failed)| failed),
            definition,
            at: pending.llm,
            start: span.end.max(span.start),
        }
    }

    fn definition(&self, llm: Option<Idx>, name: &Text) -> Option<ToolDefinition> {
        let llm = llm?;
        self.tools.borrow_mut().find(llm, &self.views[llm].tools, name).cloned()
    }
}

/// The index in `pending` of the request that each tool span executes: matched by id, else by name and arguments, else
/// by name and order. Start times are compared only within a resource, since clocks of resources may differ.
fn link(
    tree: &Tree,
    views: &[SpanView],
    pending: &mut [PendingRequest<'_>],
    tools: &[Idx],
) -> Vec<Option<usize>> {
    let mut linked: Vec<Option<usize>> = vec![None; tools.len()];
    for match_by in [MatchBy::Id, MatchBy::Arguments, MatchBy::Name] {
        // Requests with equal keys are executed in their order: the first unmatched request of each key, and for each
        // request the next one with the same key.
        let mut unmatched: HashMap<CallKey, usize> = HashMap::default();
        let mut next_equal: Vec<Option<usize>> = vec![None; pending.len()];
        let mut canonical_arguments = CanonicalArguments::default();
        for (i, item) in pending.iter().enumerate().rev().filter(|(_, request)| request.tool.is_none()) {
            if let Some(key) = match_by.key(item.request, &mut canonical_arguments) {
                next_equal[i] = unmatched.insert(key, i);
            }
        }
        if unmatched.is_empty() {
            continue;
        }
        for (slot, &tool) in linked.iter_mut().zip(tools) {
            let Some(call) = views[tool].call.as_ref().filter(|_| slot.is_none()) else { continue };
            let Some(key) = match_by.key(call, &mut canonical_arguments) else { continue };
            let Some(first) = unmatched.get_mut(&key) else { continue };
            let item = &mut pending[*first];
            let (model, span) = (&tree.spans[item.llm], &tree.spans[tool]);
            let has_same_clock = model.envelope.resource == span.envelope.resource;
            if match_by == MatchBy::Id || !has_same_clock || model.start <= span.start {
                item.tool = Some(tool);
                *slot = Some(*first);
                match next_equal[*first] {
                    Some(next) => *first = next,
                    None => _ = unmatched.remove(&key),
                }
            }
        }
    }
    linked
}

/// The criterion by which requests and tool spans are matched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatchBy {
    Id,
    Arguments,
    Name,
}

type CallKey = (Text, Option<Text>);

/// Arguments as compact JSON, by their recorded text, so that each text is converted once.
type CanonicalArguments = HashMap<Text, Text>;

impl MatchBy {
    fn key(self, request: &ToolRequest, canonical_arguments: &mut CanonicalArguments) -> Option<CallKey> {
        match self {
            MatchBy::Id => request.id.clone().map(|id| (id, None)),
            MatchBy::Arguments => {
                let arguments = request.arguments.as_ref()?;
                let canonical_text = canonical_arguments.entry(arguments.clone()).or_insert_with(|| {
                    if tool::is_canonical(arguments) {
                        return arguments.clone();
                    }
                    let json = json_keys::parse(arguments);
                    json.map_or_else(|| arguments.clone(), |json| Text::from(json.to_string().as_str()))
                });
                Some((request.name.clone(), Some(canonical_text.clone())))
            }
            MatchBy::Name => Some((request.name.clone(), None)),
        }
    }
}

/// Results in the prompts of an agent: by call id, or in their order if they have no id. Results with an id that
/// several requests have (a counter that restarts, the name of the tool) are assigned by the request that they follow.
struct ToolResults<'r> {
    by_id: HashMap<&'r str, ResultPart<'r>>,
    /// By the request, for ids in `reused`.
    by_request: HashMap<RequestKey, ResultPart<'r>>,
    reused: HashSet<&'r str>,
    /// The longest list of results without an id in one span: later prompts repeat those of earlier ones.
    without_id: Vec<ResultWithoutId<'r>>,
    /// The content of a result that is missing: a prompt may be hidden or cut off.
    missing: Content,
}

impl<'r> ToolResults<'r> {
    fn new(views: &'r [SpanView], spans: &[Idx]) -> ToolResults<'r> {
        let mut by_id = HashMap::new();
        let mut requested = HashSet::default();
        let mut reused = HashSet::default();
        let mut longest: Vec<ResultWithoutId<'_>> = Vec::new();
        let mut missing = Content::Absent;
        for &span_index in spans {
            let mut without_id = Vec::new();
            let view = &views[span_index];
            let input = readable(&view.input, view.input_content);
            let output = readable(&view.output, view.output_content);
            let partial = [view.input_content, view.output_content].into_iter().filter(|c| c.is_partial());
            missing = missing.max(partial.max().unwrap_or_default());
            for part in input.iter().flat_map(|m| &m.parts) {
                add_result(part, &mut by_id, &mut without_id);
            }
            let ids = views[span_index].requests().filter_map(|request| request.id.as_deref());
            // A result that precedes the request belongs to an earlier request.
            reused.extend(ids.filter(|id| !requested.insert(*id) || by_id.contains_key(id)));
            for part in output.iter().flat_map(|m| &m.parts) {
                add_result(part, &mut by_id, &mut without_id);
            }
            if without_id.len() >= longest.len() {
                longest = without_id;
            }
        }
        let mut results =
            ToolResults { by_id, by_request: HashMap::new(), reused, without_id: longest, missing };
        if !results.reused.is_empty() {
            results.assign_reused(views, spans);
        }
        results
    }

    /// Assigns the results with a reused id to the requests that they follow.
    fn assign_reused(&mut self, views: &'r [SpanView], spans: &[Idx]) {
        let mut open_requests: HashMap<&'r str, OpenRequests<'r>> = HashMap::new();
        for &span_index in spans
            .iter()
            .filter(|span_index| !views[**span_index].content_gap().is_some_and(Content::is_partial))
        {
            let mut prompt_results: HashMap<&'r str, Vec<ResultPart<'r>>> = HashMap::new();
            for part in views[span_index].input.iter().flat_map(|m| &m.parts) {
                if let Some((id, result)) = self.reused_result(part) {
                    prompt_results.entry(id).or_default().push(result);
                }
            }
            for (id, results) in &prompt_results {
                if let Some(requests) = open_requests.get_mut(id) {
                    self.by_request.extend(requests.answers(results));
                }
            }
            let mut request_index = 0;
            for part in views[span_index].output.iter().flat_map(|m| &m.parts) {
                if let Part::Call(request) = part {
                    if let Some(id) = request.id.as_deref().filter(|id| self.reused.contains(id)) {
                        let earlier = prompt_results.get(id).map_or(&[][..], Vec::as_slice);
                        let requests = open_requests.entry(id).or_default();
                        if requests.llm != Some(span_index) {
                            *requests = OpenRequests::new(span_index, earlier);
                        }
                        requests.request_indexes.push(request_index);
                    }
                    request_index += 1;
                } else if let Some((id, result)) = self.reused_result(part)
                    && let Some(requests) = open_requests.get(id)
                    && let (Some(llm), Some(request_index)) = (requests.llm, requests.request_indexes.last())
                {
                    self.by_request.insert((llm, *request_index), result);
                }
            }
        }
    }

    fn reused_result(&self, part: &'r Part) -> Option<(&'r str, ResultPart<'r>)> {
        let Part::Result { id: Some(id), content, failed, .. } = part else { return None };
        self.reused.contains(&**id).then_some((&**id, (content, *failed)))
    }

    /// The result of a request, or of a tool span without a request. A result without an id is found by the index
    /// of the request among those of the agent, and by the tool's name.
    fn find(
        &self,
        id: Option<&Text>,
        request: Option<RequestKey>,
        agent_request: Option<(usize, &Text)>,
    ) -> Option<ResultPart<'r>> {
        match (id, agent_request) {
            (Some(id), _) if self.reused.contains(&**id) => self.by_request.get(&request?).copied(),
            (Some(id), _) => self.by_id.get(&**id).copied(),
            (None, Some((index, name))) => {
                let (tool, content, failed) = self.without_id.get(index)?;
                tool.is_none_or(|tool| tool == name).then_some((*content, *failed))
            }
            (None, None) => None,
        }
    }
}

/// A result's text, and whether it has a flag for failure.
type ResultPart<'r> = (&'r Text, bool);
/// Identifies a request: the model's span, and the index among its requests.
type RequestKey = (Idx, usize);
/// The tool's name, the result's text, and whether it has a flag for failure.
type ResultWithoutId<'r> = (Option<&'r Text>, &'r Text, bool);

fn add_result<'r>(
    part: &'r Part,
    by_id: &mut HashMap<&'r str, ResultPart<'r>>,
    without_id: &mut Vec<ResultWithoutId<'r>>,
) {
    let Part::Result { id, name, content, failed } = part else { return };
    match id {
        Some(id) => {
            by_id.entry(&**id).or_insert((content, *failed));
        }
        None => without_id.push((name.as_ref(), content, *failed)),
    }
}

/// The latest requests with one id, of one model call.
#[derive(Default)]
struct OpenRequests<'r> {
    llm: Option<Idx>,
    request_indexes: Vec<usize>,
    /// The number of results with this id in the prompt of the model call.
    earlier_count: usize,
    /// The last of these results.
    last_earlier: Option<&'r Text>,
}

impl<'r> OpenRequests<'r> {
    fn new(llm: Idx, earlier: &[ResultPart<'r>]) -> OpenRequests<'r> {
        let last_earlier = earlier.last().map(|(text, _)| *text);
        OpenRequests {
            llm: Some(llm),
            request_indexes: Vec::new(),
            earlier_count: earlier.len(),
            last_earlier,
        }
    }

    /// The results in a later prompt that were not in the prompt of the requests, by request.
    fn answers(&self, results: &[ResultPart<'r>]) -> Vec<(RequestKey, ResultPart<'r>)> {
        let earlier_count = match results.len() > self.earlier_count {
            true => self.earlier_count,
            // A shortened history ends with the new results.
            false if results.last().map(|(text, _)| *text) != self.last_earlier => {
                results.len().saturating_sub(self.request_indexes.len())
            }
            false => results.len(),
        };
        let new_results = results.iter().skip(earlier_count);
        let keys = self.request_indexes.iter().filter_map(|index| Some((self.llm?, *index)));
        keys.zip(new_results.copied()).collect()
    }
}

/// The messages, unless a part of them is hidden or cut off.
fn readable(messages: &[Message], content: Content) -> &[Message] {
    if content.is_partial() { &[] } else { messages }
}
