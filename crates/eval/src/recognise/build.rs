//! Builds an [`AgentTrace`] from a tree of encoded spans and their log records.

use std::sync::{Arc, OnceLock};

use foldhash::{HashMap, HashSet};
use verdict_otlp::attribute_values::MAX_RESOURCE_ATTRIBUTES;
use verdict_otlp::trace::{AttachedLog, ById, Envelope, EnvelopeFields, Idx, Kind, SpanId, Tree};
use verdict_otlp::value::{RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES};
use verdict_otlp::{Attributes, Fields, Payload, work};

use super::agent_trace::{AgentTrace, Phase};
use super::earlier_spans::EarlierSpans;
use super::framing::{self, AgentFrame, ContentCompletion, Frames};
use super::interpret::Interpreter;
use super::length_limit::{self, LengthLimits, LongestTexts};
use super::message::Text;
use super::node::MAX_NODES;
use super::scan::{KindDecision, SpanScan};
use super::span_view::{Content, SpanView, is_media};
use super::table::ConventionTable;
use super::texts::TextInterner;
use super::tool_lookup::ToolLookup;
use super::{agents, calls, clocks, errors, json_keys, tool, wrappers};

/// Minimum number of values that are parsed of the arguments of a trace's calls; one more is parsed for each
/// [`BYTES_PER_VALUE`] of the trace. A value takes up to 150 bytes, so that all take at most 30 MB and 2.4 times the
/// trace's size. A tool span has one value in 100 bytes or more.
const MIN_VALUES: usize = MAX_NODES;
const BYTES_PER_VALUE: usize = 64;

pub(super) fn trace(table: &ConventionTable, tree: Tree, logs: &[AttachedLog], phase: Phase) -> AgentTrace {
    let (mut trace, may_have_cut_text) = read(table, tree, logs, phase, &LengthLimits::default());
    let mut limits = LengthLimits::default();
    if may_have_cut_text {
        limits = length_limits(table, &trace.tree, logs);
        if !limits.is_empty() {
            (trace, _) = read(table, std::mem::take(&mut trace.tree), logs, phase, &limits);
        }
    }
    let Some(skews) = clocks::skews(&trace) else { return trace };
    let Tree { id, mut spans, .. } = std::mem::take(&mut trace.tree);
    drop(trace);
    spans.iter_mut().zip(skews).for_each(|(span, skew)| span.set_skew(skew));
    read(table, Tree::new(id, spans), logs, phase, &limits).0
}

/// The log records of each span.
fn logs_by_span(logs: &[AttachedLog]) -> ById<SpanId, Vec<&AttachedLog>> {
    let mut by_span: ById<SpanId, Vec<&AttachedLog>> = ById::default();
    for log in logs {
        by_span.entry(log.span).or_default().push(log);
    }
    by_span
}

/// The lengths at which the services of a trace cut their attributes.
fn length_limits(table: &ConventionTable, tree: &Tree, logs: &[AttachedLog]) -> LengthLimits {
    let by_span = logs_by_span(logs);
    let mut longest = LongestTexts::default();
    for span in &tree.spans {
        let mut scan = SpanScan::span(table, &span.bytes);
        for log in by_span.get(&span.id).into_iter().flatten() {
            scan.log(table, &log.record);
        }
        longest.add(&span.envelope.resource, &scan);
    }
    longest.limits()
}

/// Recognises a trace whose texts were cut at `limits`, and returns whether a text may have been cut at another length
/// (`may_have_cut_text`).
fn read(
    table: &ConventionTable,
    tree: Tree,
    logs: &[AttachedLog],
    phase: Phase,
    limits: &LengthLimits,
) -> (AgentTrace, bool) {
    let by_span = logs_by_span(logs);
    let mut may_have_cut_text = false;
    let mut interpreter = Interpreter::new(table);
    let mut views = Vec::with_capacity(tree.len());
    let mut kinds_from_model_name = Vec::with_capacity(tree.len());
    let mut retried: HashSet<SpanId> = HashSet::default();
    let mut envelope_names = EnvelopeNames::default();
    let mut earlier = EarlierSpans::for_trace();
    let mut scan = SpanScan::default();
    for (index, span) in tree.spans.iter().enumerate() {
        scan.read_after(&mut earlier, table, &span.bytes);
        for log in by_span.get(&span.id).into_iter().flatten() {
            scan.log(table, &log.record);
        }
        retried.extend(scan.retry_of);
        if !limits.is_empty() {
            interpreter.set_limit(limits.get(&span.envelope.resource).copied());
        }
        let (service, scope) = envelope_names.service_and_scope(&span.envelope, &mut interpreter.texts);
        let KindDecision { kind, lifecycle, from_model_name } = scan.kind(table, scope);
        kinds_from_model_name.push(from_model_name);
        // The messages of a step repeat those of its children. They are needed only at the top, where
        // the step may take the place of an agent's span.
        let reads_content = !matches!(kind, Kind::Chain | Kind::Unknown) || tree.parent(index).is_none();
        interpreter.uncut_texts.clear();
        let mut view = interpreter.view(&mut scan, kind, lifecycle, reads_content);
        may_have_cut_text = may_have_cut_text
            || !scan.is_foreign() && length_limit::is_suspect(&scan, &interpreter.uncut_texts);
        view.service = service;
        view.duration_ms = (span.end != 0).then(|| span.end.saturating_sub(span.start) as f64 / 1e6);
        views.push(view);
    }
    wrappers::spread_evaluator_kind(&tree, &mut views);
    let agent_chains = wrappers::mark_duplicates(&tree, &mut views, &kinds_from_model_name);
    let mut frames = Frames::default();
    for ContentCompletion { chain, agent } in framing::completions(&tree, &views, &agent_chains) {
        let span = &tree.spans[chain];
        let mut scan = SpanScan::span(table, &span.bytes);
        for log in by_span.get(&span.id).into_iter().flatten() {
            scan.log(table, &log.record);
        }
        if !limits.is_empty() {
            interpreter.set_limit(limits.get(&span.envelope.resource).copied());
        }
        let view = interpreter.view(&mut scan, Kind::Agent, false, true);
        match chain == agent {
            true => framing::set_content(&mut views[agent], view),
            false => _ = frames.insert(agent, AgentFrame { chain, view }),
        }
    }
    if !retried.is_empty() {
        errors::mark_retried(&tree, &mut views, &retried);
    }
    errors::separate_inherited(&tree, &mut views);
    let bytes = tree.spans.iter().map(|span| span.bytes.len()).chain(logs.iter().map(|log| log.record.len()));
    let max_values = MIN_VALUES + bytes.sum::<usize>() / BYTES_PER_VALUE;
    (assemble(table, interpreter.texts, tree, views, frames, phase, max_values), may_have_cut_text)
}

/// Finds agents and calls, and adds to each call the definition of its tool where only its agent has it. At most
/// `max_values` values of arguments are parsed.
fn assemble(
    table: &ConventionTable,
    mut texts: TextInterner,
    tree: Tree,
    mut views: Vec<SpanView>,
    frames: Frames,
    phase: Phase,
    max_values: usize,
) -> AgentTrace {
    let mut values_left = max_values;
    let (mut agents, owner) = agents::find(&tree, &views, phase);
    let mut calls = calls::find(&tree, &views, &agents, &owner);
    agents::describe(table, &mut texts, &tree, &mut views, &mut agents, &owner, &calls);
    agents::add_frames(frames, &mut agents, &mut texts);
    agents::adopt_from_agents_beneath(&tree, &views, &mut agents, &mut texts);
    for (i, call) in calls.iter().enumerate() {
        let Some(agent) = call.agent.and_then(|a| agents.get_mut(a)) else { continue };
        agent.calls.push(i);
    }
    let mut tools = ToolLookup::default();
    for call in &mut calls {
        let Some((agent_index, agent)) = call.agent.and_then(|index| Some((index, agents.get(index)?)))
        else {
            continue;
        };
        if call.definition.as_ref().is_none_or(|d| d.parameters.is_none())
            && let Some(definition) = tools.find(agent_index, &agent.tools, &call.name)
            && (definition.parameters.is_some() || call.definition.is_none())
        {
            call.definition = Some(definition.clone());
        }
    }
    for call in &mut calls {
        let Some(arguments) = &call.arguments else { continue };
        match values_left.checked_sub(json_keys::values(arguments)) {
            Some(left) => {
                let schema = call.definition.as_ref().and_then(|d| d.parameters.as_deref());
                call.parsed = tool::parse(arguments, schema).map(Arc::new);
                values_left = left;
            }
            None => call.too_large = true,
        }
    }
    let results = views.iter().map(result_content).max().unwrap_or(Content::Present);
    let control_tools = table.control_tools.clone();
    let incomplete = !matches!(phase, Phase::Closed { incomplete: false });
    AgentTrace {
        tree,
        views,
        agents,
        owner,
        calls,
        control_tools,
        incomplete,
        results,
        has_media: OnceLock::new(),
        addresses: OnceLock::new(),
    }
}

/// Why the result of a span cannot be read; `Present` if it can be, or if there is none.
fn result_content(view: &SpanView) -> Content {
    match view.kind {
        Kind::Tool | Kind::Retriever | Kind::Memory if view.output_content.is_partial() => {
            view.output_content
        }
        Kind::Tool | Kind::Retriever if view.result.as_deref().is_some_and(is_media) => Content::Absent,
        _ => Content::Present,
    }
}

impl AgentTrace {
    /// The version of the agent of a span, or else of the span's service.
    pub fn version(&self, index: Idx) -> Option<&str> {
        let span = self.tree.spans.get(index)?;
        let mut attributes = Attributes::new(&span.bytes, SPAN_ATTRIBUTES);
        let agent_version =
            attributes.find(|(key, _)| *key == "gen_ai.agent.version").and_then(|(_, v)| v.as_str());
        agent_version.or_else(|| resource_text(&span.envelope, "service.version")).filter(|v| !v.is_empty())
    }
}

/// Reads service and scope of envelopes, and caches those of the previous one: consecutive spans usually share one.
#[derive(Default)]
struct EnvelopeNames {
    last: Option<(Arc<Envelope>, Option<Text>, String)>,
    services: HashMap<EnvelopeFields, Option<Text>>,
}

impl EnvelopeNames {
    fn service_and_scope(
        &mut self,
        envelope: &Arc<Envelope>,
        texts: &mut TextInterner,
    ) -> (Option<Text>, &str) {
        let is_same_envelope = self.last.as_ref().is_some_and(|(last, _, _)| Arc::ptr_eq(last, envelope));
        if !is_same_envelope {
            let read_service = || resource_text(envelope, "service.name").and_then(|s| texts.non_empty(s));
            let service = self.services.entry(envelope.resource.clone()).or_insert_with(read_service).clone();
            self.last = Some((envelope.clone(), service, scope(envelope).to_owned()));
        }
        match &self.last {
            Some((_, service, scope)) => (service.clone(), scope),
            None => (None, ""),
        }
    }
}

/// The embedded message in field `number` of an encoded message; empty if it is missing.
fn message_field(message: &[u8], number: u32) -> &[u8] {
    let mut fields = Fields::new(message).map_while(Result::ok);
    let field = fields.find_map(|f| match f.payload {
        Payload::Bytes(b) if f.number == number => Some(b),
        _ => None,
    });
    field.unwrap_or(&[])
}

/// An attribute of the resource: `ResourceSpans.resource` is field 1.
fn resource_text<'e>(envelope: &'e Envelope, attribute_key: &str) -> Option<&'e str> {
    work::count(envelope.resource.len());
    let unbounded = Attributes::new(message_field(&envelope.resource, 1), RESOURCE_ATTRIBUTES);
    let mut attributes = unbounded.take(MAX_RESOURCE_ATTRIBUTES);
    attributes.find(|(key, _)| *key == attribute_key).and_then(|(_, value)| value.as_str())
}

/// The instrumentation scope's name: `ScopeSpans.scope` is field 1, its name field 1.
pub(crate) fn scope(envelope: &Envelope) -> &str {
    std::str::from_utf8(message_field(message_field(&envelope.scope, 1), 1)).unwrap_or("")
}
