//! From what one pass has found to a [`SpanView`]. Each field is chosen on its own, from the first
//! candidate that says anything (conventions, section 5.7).

use std::borrow::Cow;
use std::collections::HashMap;

use verdict_otlp::Value;
use verdict_otlp::trace::Kind;

use super::message::{Part, Text, ToolDefinition};
use super::message_cache::MessageCache;
use super::node::Node;
use super::overrides::{Field, LeafKind};
use super::scan::{FlatAttribute, SpanScan};
use super::span_view::{Content, SpanView, Tokens};
use super::table::{Order, Table};
use super::texts::Texts;
use super::{errors, plans, tool};

/// Reads spans into one trace.
pub(crate) struct Interpreter<'t> {
    pub(crate) table: &'t Table,
    pub(crate) texts: Texts,
    /// Messages of the prompts so far.
    pub(crate) message_cache: MessageCache,
    /// Instructions that stood in an attribute of their own, by its text.
    pub(crate) system_parts: HashMap<Box<str>, Vec<Part>, foldhash::fast::RandomState>,
    /// In the span that is being read, a block of a message came without its content.
    pub(crate) withheld: bool,
}

/// The result of a lookup of a field: a value, nothing, or a marker of redaction.
pub(super) enum Lookup<T> {
    Found(T),
    Redacted,
    Absent,
}

impl<T> Lookup<T> {
    pub(super) fn content(&self) -> Content {
        match self {
            Lookup::Found(_) => Content::Present,
            Lookup::Redacted => Content::Redacted,
            Lookup::Absent => Content::Absent,
        }
    }
}

impl<'t> Interpreter<'t> {
    /// For one trace.
    pub(crate) fn new(table: &'t Table) -> Interpreter<'t> {
        let (message_cache, system_parts) = (MessageCache::default(), HashMap::default());
        Interpreter { table, texts: Texts::new(), message_cache, system_parts, withheld: false }
    }
}

impl Interpreter<'_> {
    /// The view of one span. `content` is false for spans whose messages no metric reads.
    pub(crate) fn view(
        &mut self,
        scan: &mut SpanScan<'_>,
        kind: Kind,
        lifecycle: bool,
        content: bool,
    ) -> SpanView {
        scan.sort();
        let mut view = SpanView { kind, wrapper: lifecycle, ..SpanView::default() };
        view.name = self.texts.some(scan.name);
        self.facts(scan, &mut view);
        match kind {
            Kind::Tool => self.tool(scan, &mut view),
            Kind::Retriever | Kind::Memory => {
                self.messages(scan, &mut view);
                self.result(scan, &mut view);
            }
            _ if content => self.messages(scan, &mut view),
            _ => self.content_only(scan, &mut view),
        }
        errors::collect_signs(self.table, &mut self.texts, scan, &mut view);
        self.evaluations(scan, &mut view);
        plans::of_attributes(scan, &mut self.texts, &mut view);
        view
    }

    /// The first candidate of `field` that says anything.
    pub(super) fn value<'a>(&self, scan: &SpanScan<'a>, field: Field) -> Lookup<(Order, Value<'a>)> {
        let mut redacted = false;
        for (_, order, value) in scan.candidates(field) {
            match value {
                Value::Empty => {}
                Value::Str(s) if self.table.is_absent(*order, s) => {}
                Value::Str(s) if self.table.is_redacted(s) => redacted = true,
                value => return Lookup::Found((*order, *value)),
            }
        }
        if redacted { Lookup::Redacted } else { Lookup::Absent }
    }

    pub(super) fn text(&mut self, scan: &SpanScan<'_>, field: Field) -> Option<Text> {
        match self.value(scan, field) {
            // MLflow writes a string as a JSON string.
            Lookup::Found((_, Value::Str(s))) if s.starts_with('"') => {
                let inner = Node::Str(Cow::Borrowed(s)).unfold();
                self.texts.some(&inner.text())
            }
            Lookup::Found((_, Value::Str(s))) => self.texts.some(s),
            Lookup::Found((_, value)) => self.texts.some(&Node::of(value).text()),
            _ => None,
        }
    }

    pub(super) fn count(&self, scan: &SpanScan<'_>, field: Field) -> Option<u64> {
        match self.value(scan, field) {
            Lookup::Found((_, value)) => Node::of(value).count(),
            _ => None,
        }
    }

    /// Everything that is not content.
    fn facts(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        view.agent = self.text(scan, Field::AgentName);
        view.model = self.text(scan, Field::Model);
        view.provider = self.text(scan, Field::Provider);
        view.response_id = self.text(scan, Field::ResponseId);
        view.session = self.text(scan, Field::Session);
        let mut tokens = Tokens {
            input: self.count(scan, Field::TokensInput),
            output: self.count(scan, Field::TokensOutput),
            total: self.count(scan, Field::TokensTotal),
            cached: self.count(scan, Field::TokensCached),
            reasoning: self.count(scan, Field::TokensReasoning),
        };
        if let Lookup::Found((_, value)) = self.value(scan, Field::Usage) {
            let usage = Node::decoded(value);
            let of = |keys: &[&str]| usage.any(keys).and_then(Node::count);
            tokens.input = tokens.input.or(of(&["input_tokens", "input", "prompt_tokens", "inputTokens"]));
            tokens.output =
                tokens.output.or(of(&["output_tokens", "output", "completion_tokens", "outputTokens"]));
            tokens.total = tokens.total.or(of(&["total_tokens", "total", "totalTokens"]));
            tokens.cached =
                tokens.cached.or(of(&["cache_read_input_tokens", "input_cached_tokens", "cached_tokens"]));
            tokens.reasoning = tokens.reasoning.or(of(&["reasoning_tokens", "output_reasoning_tokens"]));
        }
        if tokens.total.is_none()
            && let (Some(i), Some(o)) = (tokens.input, tokens.output)
        {
            tokens.total = i.checked_add(o);
        }
        view.tokens = tokens;
        if let Lookup::Found((_, value)) = self.value(scan, Field::Cost) {
            view.cost = Node::of(value).number();
        } else if let Lookup::Found((_, value)) = self.value(scan, Field::CostMap) {
            view.cost = Node::decoded(value).any(&["total", "total_cost"]).and_then(Node::number);
        }
        if let Lookup::Found((_, value)) = self.value(scan, Field::Finish) {
            match Node::decoded(value) {
                Node::List(reasons) => {
                    view.finish.extend(reasons.iter().filter_map(|r| self.texts.some(&r.text())))
                }
                one => view.finish.extend(self.texts.some(&one.text())),
            }
        }
        if matches!(view.kind, Kind::Llm | Kind::Agent | Kind::Plan) {
            view.tools = self.definitions(scan);
        }
    }

    fn definitions(&mut self, scan: &SpanScan<'_>) -> Vec<ToolDefinition> {
        let mut best: Vec<ToolDefinition> = Vec::new();
        for (_, _, value) in scan.candidates(Field::ToolDefinitions) {
            let read = match value {
                Value::Str(s) => self.table.definitions.read(s).to_vec(),
                value => tool::definitions(&Node::of(*value), &mut self.texts),
            };
            // Names alone are the poorest form: a later candidate may have the schemas.
            if best.is_empty()
                || (best.iter().all(|d| d.parameters.is_none())
                    && read.iter().any(|d| d.parameters.is_some()))
            {
                best = read;
            }
        }
        if best.iter().any(|d| d.parameters.is_some()) {
            return best;
        }
        let flat = self.flat_definitions(scan.leaves(Field::ToolDefinitions));
        if flat.is_empty() { best } else { flat }
    }

    fn flat_definitions(&mut self, leaves: &[FlatAttribute<'_>]) -> Vec<ToolDefinition> {
        let mut out = Vec::new();
        for tool in leaves.chunk_by(|a, b| (a.order, a.leaf.index) == (b.order, b.leaf.index)) {
            let of = |kind: LeafKind| tool.iter().find(|f| f.leaf.kind == kind).map(|f| f.value);
            if let Some(json) = of(LeafKind::Definition).and_then(|v| v.as_str()) {
                out.extend(self.table.definitions.read(json).iter().cloned());
            } else if let Some(name) = of(LeafKind::Name).and_then(|v| v.as_str()) {
                out.push(ToolDefinition {
                    name: self.texts.intern(name),
                    description: of(LeafKind::Description)
                        .and_then(|v| v.as_str())
                        .and_then(|d| self.texts.some(d)),
                    parameters: of(LeafKind::Parameters).and_then(|v| tool::parameters(&Node::decoded(v))),
                });
            }
        }
        out
    }

    /// Whether there is content, for spans whose messages are not read.
    fn content_only(&self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let seen = |field| match self.value(scan, field) {
            Lookup::Absent if !scan.leaves(field).is_empty() => Content::Present,
            seen => seen.content(),
        };
        view.input_content = seen(Field::Input);
        view.output_content = seen(Field::Output);
    }
}
