//! Builds a [`SpanView`] from the result of a scan. Each field is read from its first candidate that has
//! a value, independently of other fields.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use verdict_otlp::Value;
use verdict_otlp::trace::Kind;

use super::flat_attribute::FlatAttribute;
use super::flat_message::FlatMessage;
use super::kind_rules::FieldPrecedence;
use super::length_limit::LengthLimit;
use super::message::{MessageParts, Text, ToolDefinition};
use super::message_cache::MessageCache;
use super::node::ContentNode;
use super::overrides::{Field, LeafKind};
use super::recorded_elsewhere::mark_recorded_elsewhere;
use super::scan::SpanScan;
use super::span_view::{Content, SpanView, Tokens};
use super::table::ConventionTable;
use super::texts::TextInterner;
use super::{errors, plans, tool};

/// Where in the trace a text is: its address and length.
type TextAddress = (*const u8, usize);

/// Interprets the spans of one trace.
pub(crate) struct Interpreter<'t> {
    pub(crate) table: &'t ConventionTable,
    pub(crate) texts: TextInterner,
    pub(crate) message_cache: MessageCache,
    /// The messages of the last flattened prompt.
    pub(super) flat_messages: Vec<FlatMessage>,
    /// Instructions that were recorded in an attribute of their own, by its text.
    pub(crate) system_parts: HashMap<Box<str>, MessageParts, foldhash::fast::RandomState>,
    /// The last of these instructions, by the address and length of its text in the trace.
    pub(super) last_instructions: Option<(*const u8, usize, MessageParts)>,
    /// The tool definitions of the last span that has any, by their texts.
    definitions: Vec<(Arc<str>, Arc<[ToolDefinition]>)>,
    /// The tools of the last span that has any, by their texts in the trace.
    last_tools: Option<(Vec<TextAddress>, Vec<ToolDefinition>)>,
    /// The addresses of texts of the current span that were not cut off: they are valid JSON, or an earlier span has
    /// them.
    pub(super) uncut_texts: Vec<*const u8>,
    /// The leading messages of the last prompt that have no hidden part.
    pub(super) visible_messages: Vec<MessageParts>,
    /// In the current span, a block of a message was recorded without its content.
    pub(crate) withheld: bool,
    /// The length at which the texts of the current span's service were cut.
    pub(super) limit: Option<LengthLimit>,
}

/// The result of looking up a field.
#[derive(Clone, Copy)]
pub(super) enum FieldLookup<T> {
    Found(T),
    /// The value was cut off.
    Cut(T),
    /// A marker replaces the value.
    Redacted,
    Absent,
}

impl<T> FieldLookup<T> {
    pub(super) fn content(&self) -> Content {
        match self {
            FieldLookup::Found(_) => Content::Present,
            FieldLookup::Cut(_) => Content::Truncated,
            FieldLookup::Redacted => Content::Redacted,
            FieldLookup::Absent => Content::Absent,
        }
    }
}

impl<'t> Interpreter<'t> {
    pub(crate) fn new(table: &'t ConventionTable) -> Interpreter<'t> {
        Interpreter {
            table,
            texts: TextInterner::new(),
            message_cache: MessageCache::default(),
            flat_messages: Vec::new(),
            system_parts: HashMap::default(),
            last_instructions: None,
            definitions: Vec::new(),
            last_tools: None,
            uncut_texts: Vec::new(),
            visible_messages: Vec::new(),
            withheld: false,
            limit: None,
        }
    }
}

impl Interpreter<'_> {
    /// The view of one span. `reads_content` is false if no metric reads the span's messages.
    pub(crate) fn view(
        &mut self,
        scan: &mut SpanScan<'_>,
        kind: Kind,
        lifecycle: bool,
        reads_content: bool,
    ) -> SpanView {
        let mut view = SpanView { kind, wrapper: lifecycle, ..SpanView::default() };
        view.name = self.texts.non_empty(scan.name);
        if scan.is_foreign() {
            return view;
        }
        scan.sort();
        self.fill_metadata(scan, &mut view);
        match kind {
            Kind::Tool => self.fill_tool(scan, &mut view),
            Kind::Retriever | Kind::Memory => {
                self.fill_messages(scan, &mut view);
                self.fill_result(scan, &mut view);
            }
            _ if reads_content => {
                self.fill_messages(scan, &mut view);
                if view.tools.is_empty() && matches!(kind, Kind::Chain | Kind::Unknown) {
                    view.tools = self.definitions(scan);
                }
            }
            _ => self.fill_content_state(scan, &mut view),
        }
        errors::collect_signs(self.table, &mut self.texts, scan, &mut view);
        self.fill_evaluations(scan, &mut view);
        plans::read_attributes(scan, &mut self.texts, &mut view);
        view
    }

    /// Sets the length at which the texts of the next span's service were cut.
    pub(super) fn set_limit(&mut self, limit: Option<LengthLimit>) {
        if self.limit != limit {
            self.flat_messages.clear();
            self.limit = limit;
        }
    }

    /// Whether the text was cut off when it was recorded.
    pub(super) fn is_cut(&self, text: &str) -> bool {
        self.limit.is_some_and(|limit| limit.is_reached_by(text)) || self.table.is_marked_as_cut(text)
    }

    /// The first candidate of `field` that has a value, or else the first that has a part of it.
    #[inline]
    pub(super) fn value<'a>(
        &self,
        scan: &SpanScan<'a>,
        field: Field,
    ) -> FieldLookup<(FieldPrecedence, Value<'a>)> {
        // Some forty fields are looked up, of which a span has about ten.
        match scan.has_field(field) {
            true => self.recorded_value(scan, field),
            false => FieldLookup::Absent,
        }
    }

    fn recorded_value<'a>(
        &self,
        scan: &SpanScan<'a>,
        field: Field,
    ) -> FieldLookup<(FieldPrecedence, Value<'a>)> {
        let (mut redacted, mut cut) = (false, None);
        for (_, order, value) in scan.candidates(field) {
            match value {
                Value::Empty => {}
                Value::Str(s) if self.table.is_absent(*order, s) => {}
                Value::Str(s) if self.table.is_redacted(s) => redacted = true,
                Value::Str(s) if field.is_content() && self.table.is_hidden(s) => redacted = true,
                Value::Str(s) if self.is_cut(s) => cut = cut.or(Some((*order, *value))),
                value => return FieldLookup::Found((*order, *value)),
            }
        }
        match cut {
            Some(cut) => FieldLookup::Cut(cut),
            None if redacted => FieldLookup::Redacted,
            None => FieldLookup::Absent,
        }
    }

    #[inline]
    pub(super) fn text(&mut self, scan: &SpanScan<'_>, field: Field) -> Option<Text> {
        scan.has_field(field).then(|| self.recorded_text(scan, field))?
    }

    fn recorded_text(&mut self, scan: &SpanScan<'_>, field: Field) -> Option<Text> {
        match self.recorded_value(scan, field) {
            // MLflow records a string as a JSON string.
            FieldLookup::Found((_, Value::Str(s))) | FieldLookup::Cut((_, Value::Str(s)))
                if s.starts_with('"') =>
            {
                let inner = ContentNode::Str(Cow::Borrowed(s)).unfold();
                self.texts.non_empty(&inner.text())
            }
            FieldLookup::Found((_, Value::Str(s))) | FieldLookup::Cut((_, Value::Str(s))) => {
                self.texts.non_empty(s)
            }
            FieldLookup::Found((_, value)) | FieldLookup::Cut((_, value)) => {
                self.texts.non_empty(&ContentNode::from_value(value).text())
            }
            _ => None,
        }
    }

    #[inline]
    pub(super) fn count(&self, scan: &SpanScan<'_>, field: Field) -> Option<u64> {
        match self.value(scan, field) {
            FieldLookup::Found((_, value)) => ContentNode::from_value(value).count(),
            _ => None,
        }
    }

    /// Fills in the fields that are not content.
    fn fill_metadata(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        view.agent = self.text(scan, Field::AgentName);
        view.model = self.text(scan, Field::Model);
        view.provider = self.text(scan, Field::Provider);
        view.response_id = self.text(scan, Field::ResponseId);
        view.session = self.text(scan, Field::Session);
        view.user = self.text(scan, Field::User);
        view.tokens = self.tokens(scan);
        view.cost = self.cost(scan);
        if let FieldLookup::Found((_, value)) = self.value(scan, Field::Finish) {
            match ContentNode::decoded(value) {
                ContentNode::List(reasons) => {
                    view.finish.extend(reasons.iter().filter_map(|r| self.texts.non_empty(&r.text())))
                }
                reason => view.finish.extend(self.texts.non_empty(&reason.text())),
            }
        }
        if matches!(view.kind, Kind::Llm | Kind::Agent | Kind::Plan) {
            view.tools = self.definitions(scan);
        }
    }

    /// Token counts, from attributes of their own or from a map.
    fn tokens(&self, scan: &SpanScan<'_>) -> Tokens {
        let usage = match self.value(scan, Field::Usage) {
            FieldLookup::Found((_, value)) => Some(ContentNode::decoded(value)),
            _ => None,
        };
        let count_in_usage = |keys: &[&str]| usage.as_ref()?.first_of(keys)?.count();
        let count = |field, keys: &[&str]| self.count(scan, field).or_else(|| count_in_usage(keys));
        let input = count(Field::TokensInput, &["input_tokens", "input", "prompt_tokens", "inputTokens"]);
        let output =
            count(Field::TokensOutput, &["output_tokens", "output", "completion_tokens", "outputTokens"]);
        let total = count(Field::TokensTotal, &["total_tokens", "total", "totalTokens"]);
        Tokens {
            input,
            output,
            total: total.or_else(|| input?.checked_add(output?)),
            cached: count(
                Field::TokensCached,
                &["cache_read_input_tokens", "input_cached_tokens", "cached_tokens"],
            ),
            cache_write: count(
                Field::TokensCacheWrite,
                &["cache_write_input_tokens", "cache_creation_input_tokens"],
            ),
            reasoning: count(Field::TokensReasoning, &["reasoning_tokens", "output_reasoning_tokens"]),
        }
    }

    fn cost(&self, scan: &SpanScan<'_>) -> Option<f64> {
        // Exchange rates are not known, so a cost in another currency is left out.
        if let FieldLookup::Found((_, currency)) = self.value(scan, Field::CostCurrency)
            && ContentNode::from_value(currency).as_str().is_none_or(|code| !code.eq_ignore_ascii_case("usd"))
        {
            return None;
        }
        match (self.value(scan, Field::Cost), self.value(scan, Field::CostMap)) {
            (FieldLookup::Found((_, value)), _) => ContentNode::from_value(value).number(),
            (_, FieldLookup::Found((_, map))) => {
                ContentNode::decoded(map).first_of(&["total", "total_cost"])?.number()
            }
            _ => None,
        }
    }

    /// The tools that a span offers.
    fn definitions(&mut self, scan: &SpanScan<'_>) -> Vec<ToolDefinition> {
        let candidates = scan.candidates(Field::ToolDefinitions).iter().map(|(_, _, value)| value);
        let flat = scan.leaves(Field::ToolDefinitions).iter().map(|leaf| &leaf.value);
        let mut texts = candidates.chain(flat).map(Value::as_str).peekable();
        if texts.peek().is_none() {
            return Vec::new();
        }
        let addresses = texts.map(|text| text.map(|text| (text.as_ptr(), text.len())));
        if let Some((last_addresses, tools)) = &self.last_tools
            && addresses.clone().eq(last_addresses.iter().copied().map(Some))
        {
            return tools.clone();
        }
        let tools = self.read_definitions(scan);
        self.last_tools =
            addresses.collect::<Option<Vec<_>>>().map(|last_addresses| (last_addresses, tools.clone()));
        tools
    }

    /// Tool definitions of the first candidate that has schemas, else of the first one.
    fn read_definitions(&mut self, scan: &SpanScan<'_>) -> Vec<ToolDefinition> {
        let mut definitions: Vec<ToolDefinition> = Vec::new();
        for (nth, (_, _, value)) in scan.candidates(Field::ToolDefinitions).iter().enumerate() {
            let candidate = match value {
                Value::Str(s) => self.definitions_of(nth, s).to_vec(),
                value => tool::definitions(&ContentNode::from_value(*value), &mut self.texts),
            };
            if definitions.is_empty() || (!has_schema(&definitions) && has_schema(&candidate)) {
                definitions = candidate;
            }
        }
        if has_schema(&definitions) {
            return definitions;
        }
        let flat = self.flat_definitions(scan.leaves(Field::ToolDefinitions));
        if flat.is_empty() { definitions } else { flat }
    }

    fn flat_definitions(&mut self, leaves: &[FlatAttribute<'_>]) -> Vec<ToolDefinition> {
        let mut out = Vec::new();
        let tools = leaves.chunk_by(|a, b| (a.order, a.leaf.index) == (b.order, b.leaf.index));
        for (nth, tool) in tools.enumerate() {
            let value_of = |kind: LeafKind| tool.iter().find(|f| f.leaf.kind == kind).map(|f| f.value);
            if let Some(json) = value_of(LeafKind::Definition).and_then(|v| v.as_str()) {
                out.extend_from_slice(&self.definitions_of(nth, json));
            } else if let Some(name) = value_of(LeafKind::Name).and_then(|v| v.as_str()) {
                out.push(ToolDefinition {
                    name: self.texts.intern(name),
                    description: self.texts.option(value_of(LeafKind::Description).and_then(|v| v.as_str())),
                    parameters: value_of(LeafKind::Parameters)
                        .and_then(|v| tool::parameters(&ContentNode::decoded(v))),
                });
            }
        }
        out
    }

    /// The definitions in `json`, the text with index `nth` in its span. Cached, since most spans repeat the
    /// definitions of an earlier one.
    fn definitions_of(&mut self, nth: usize, json: &str) -> Arc<[ToolDefinition]> {
        if let Some((text, read)) = self.definitions.get(nth)
            && **text == *json
        {
            return Arc::clone(read);
        }
        let (text, read) = self.table.definitions.read(json);
        self.definitions.truncate(nth);
        if self.definitions.len() == nth {
            self.definitions.push((text, Arc::clone(&read)));
        }
        read
    }

    /// Fills in whether content was recorded, for spans whose messages are not read.
    fn fill_content_state(&self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let content_of = |field| match self.value(scan, field) {
            FieldLookup::Absent if !scan.leaves(field).is_empty() => Content::Present,
            lookup => lookup.content(),
        };
        view.input_content = content_of(Field::Input);
        view.output_content = content_of(Field::Output);
        mark_recorded_elsewhere(scan, view);
    }
}

fn has_schema(definitions: &[ToolDefinition]) -> bool {
    definitions.iter().any(|definition| definition.parameters.is_some())
}
