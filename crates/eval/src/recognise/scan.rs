//! One pass over an encoded span or log record: looks up the key of every attribute once and collects
//! the values by meaning. Nothing is interpreted yet.

use verdict_otlp::trace::{Kind, SpanId, Status};
use verdict_otlp::value::{EVENT_ATTRIBUTES, LINK_ATTRIBUTES, LOG_ATTRIBUTES, key_and_value, text};
use verdict_otlp::{Attributes, ByteFields, Fields, Payload, Value, byte_fields};

use super::earlier_spans::{EarlierSpans, KnownAttribute, ListAttribute};
use super::flat_attribute::FlatAttribute;
use super::kind_rules::{FieldPrecedence, KindStatement};
use super::overrides::{EventRule, Field, Meaning, Rank};
use super::statement::{AttributeStatement, keyword};
use super::table::{ConventionTable, EVENT_ORDER, FlattenedList, KeyMeaning};

/// Maximum number of attributes of one span. A conversation of a thousand flattened messages has
/// some five thousand.
const MAX_COLLECTED: usize = 50_000;
/// The usual number of fields of a span of an agent, reserved in advance.
const USUAL_FIELDS: usize = 16;
/// Minimum length of a text that may have been cut off by a length limit.
pub(crate) const LONG_TEXT: usize = 64;
/// Maximum number of events of one span.
const MAX_EVENTS: usize = 10_000;

/// The meaning of a recognised key.
enum Recognised<'a> {
    /// The key has a meaning of its own.
    Field(&'a KeyMeaning),
    /// A flattened list, and the part of the key before the index.
    List((&'a FlattenedList, &'a [u8])),
    /// A flattened map, and the part of the key after its prefix.
    Map((Field, FieldPrecedence, &'a [u8])),
    Unknown,
}

impl<'a> Recognised<'a> {
    fn lookup(table: &'a ConventionTable, key: &'a [u8]) -> Recognised<'a> {
        let exact = || table.exact(key).map(Recognised::Field);
        let in_list = || table.list(key).map(Recognised::List);
        let in_map = || table.map_entry(key).map(Recognised::Map);
        exact().or_else(in_list).or_else(in_map).unwrap_or(Recognised::Unknown)
    }
}

/// A message or exception in an event, a log record, or a packed attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventMessage<'a> {
    pub(crate) rule: EventRule,
    /// The encoded message and the field number of its attributes.
    pub(crate) message: &'a [u8],
    pub(crate) attributes: u32,
    /// A log record's body.
    pub(crate) body: Value<'a>,
}

/// The kind of a span, as its attributes and name determine it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KindDecision {
    pub(crate) kind: Kind,
    /// The span only creates an agent.
    pub(crate) lifecycle: bool,
    /// The kind follows only from the name of a model on the span.
    pub(crate) from_model_name: bool,
}

/// The result of one pass.
#[derive(Debug, Default)]
pub(crate) struct SpanScan<'a> {
    pub(crate) name: &'a str,
    pub(crate) status: Status,
    pub(crate) status_message: &'a str,
    /// The candidates of fields.
    pub(crate) fields: Vec<(Field, FieldPrecedence, Value<'a>)>,
    /// The attributes of flattened lists.
    pub(crate) flat: Vec<FlatAttribute<'a>>,
    /// The entries of flattened maps, with their keys.
    pub(crate) map_entries: Vec<(Field, FieldPrecedence, &'a str, Value<'a>)>,
    pub(crate) events: Vec<EventMessage<'a>>,
    /// Attributes that are flags, with their keys.
    pub(crate) flags: Vec<(Meaning, &'a str, Value<'a>)>,
    /// The addresses of the long texts of `fields` that an earlier span has, too.
    pub(crate) repeated_texts: Vec<*const u8>,
    /// The span that this span retries, by a link.
    pub(crate) retry_of: Option<SpanId>,
    /// The statements of its attributes, combined by precedence.
    statements: AttributeStatement,
    /// Bit sets of the fields that have candidates and leaves. Some forty fields are looked up, of
    /// which a span has about ten. See [`bit`].
    has_field: u64,
    has_flat: u64,
    /// The sort key of the last leaf in `flat`.
    last_sort_key: u128,
    /// The leaves in `flat` are not in the order of their sort keys.
    is_unsorted: bool,
}

impl<'a> SpanScan<'a> {
    /// Reads an encoded `Span`.
    pub(crate) fn span(table: &'a ConventionTable, bytes: &'a [u8]) -> SpanScan<'a> {
        let mut scan = SpanScan::default();
        scan.read_after(&mut EarlierSpans::none(), table, bytes);
        scan
    }

    /// Replaces the scan by that of an encoded `Span` which follows `earlier` spans. A value of a flattened list that
    /// repeats that of the previous span is returned at the address in the previous span.
    pub(crate) fn read_after(
        &mut self,
        earlier: &mut EarlierSpans<'a>,
        table: &'a ConventionTable,
        bytes: &'a [u8],
    ) {
        self.clear();
        earlier.begin_span();
        let mut fields = byte_fields(bytes);
        let mut from_field = bytes;
        while let Some((number, b)) = fields.next() {
            match number {
                5 => self.name = text(b),
                9 if self.is_full() => {}
                9 => self.span_attribute(earlier, table, b, (from_field, &mut fields)),
                11 => self.add_span_event(table, b),
                13 => self.retry_of = self.retry_of.or_else(|| retried_span(b)),
                15 => self.read_status(b),
                _ => {}
            }
            from_field = fields.unread();
        }
        earlier.end_span(&self.flat);
    }

    /// Removes all values and keeps the allocations, for the next span.
    fn clear(&mut self) {
        self.fields.clear();
        self.flat.clear();
        self.map_entries.clear();
        self.events.clear();
        self.flags.clear();
        self.repeated_texts.clear();
        (self.name, self.status_message, self.status, self.retry_of, self.statements) = Default::default();
        (self.has_field, self.has_flat, self.last_sort_key, self.is_unsorted) = Default::default();
    }

    /// Collects an encoded attribute of the span. `from_field` contains the span's fields from the attribute on,
    /// `fields` those after it; those that repeat the previous span are read at once.
    fn span_attribute(
        &mut self,
        earlier: &mut EarlierSpans<'a>,
        table: &'a ConventionTable,
        encoded: &'a [u8],
        (from_field, fields): (&'a [u8], &mut ByteFields<'a>),
    ) {
        let list_len = earlier.list_len();
        if let Some(attribute) = earlier.repeated_in_list(encoded) {
            if self.flat.is_empty() {
                self.flat.reserve(list_len + USUAL_FIELDS);
            }
            self.add_leaf(attribute, true, 0);
            earlier.extend_run(from_field, fields.unread(), self.sorted_leaves());
            if let Some((leaves, rest)) = earlier.repeated_run(fields.unread(), self.remaining()) {
                self.flat.extend(leaves.iter().map(|leaf| FlatAttribute { is_repeated: true, ..*leaf }));
                self.last_sort_key = self.flat.last().map_or(0, FlatAttribute::sort_key);
                fields.continue_at(rest);
            }
            return;
        }
        if let Some(attribute) = earlier.known_attribute(encoded) {
            self.repeated_texts
                .extend(attribute.value.as_str().filter(|text| text.len() >= LONG_TEXT).map(str::as_ptr));
            if attribute.entry.is_statement {
                self.statements.add(&attribute.statement);
                self.add_flags(attribute.entry, attribute.key, attribute.value);
            }
            return self.add_candidates(attribute.entry, attribute.value, 0);
        }
        let (key, value) = key_and_value(encoded);
        let recognised = match earlier.meaning(key) {
            Some(None) => return,
            Some(Some(entry)) => Recognised::Field(entry),
            // The attributes of a flattened list are usually consecutive.
            None => match earlier.last_list.filter(|(_, head)| table.is_in_list(key, head)) {
                Some(list) => Recognised::List(list),
                None => Recognised::lookup(table, key),
            },
        };
        match recognised {
            Recognised::Field(entry) => {
                let value = Value::read(value);
                let statement = self.add_field(entry, key, value, 0);
                earlier.add_key(key, Some(entry));
                earlier.add_known_attribute(KnownAttribute { encoded, entry, key, value, statement });
            }
            Recognised::List(list) => {
                let value = Value::read(value);
                let attribute =
                    ListAttribute::new(encoded, list, key, value, |list, suffix| earlier.leaf(list, suffix));
                self.add_leaf(&attribute, false, 0);
                earlier.add_to_list(attribute);
                earlier.extend_run(from_field, fields.unread(), self.sorted_leaves());
            }
            Recognised::Map((field, order, suffix)) => {
                self.map_entries.push((field, order, text(suffix), Value::read(value)));
            }
            Recognised::Unknown => earlier.add_key(key, None),
        }
    }

    /// Adds an encoded `LogRecord` that belongs to the span.
    pub(crate) fn log(&mut self, table: &'a ConventionTable, bytes: &'a [u8]) {
        let mut name = "";
        let mut body = Value::Empty;
        for field in Fields::new(bytes).map_while(Result::ok) {
            match (field.number, field.payload) {
                (5, Payload::Bytes(b)) => body = Value::read(b),
                (12, Payload::Bytes(b)) => name = text(b),
                _ => {}
            }
        }
        if name.is_empty() {
            let named = Attributes::new(bytes, LOG_ATTRIBUTES).find(|(k, _)| *k == "event.name");
            name = named.and_then(|(_, v)| v.as_str()).unwrap_or("");
        }
        self.add_event(table, name, bytes, LOG_ATTRIBUTES, body);
    }

    fn add_span_event(&mut self, table: &'a ConventionTable, bytes: &'a [u8]) {
        let name = Fields::new(bytes).map_while(Result::ok).find_map(|f| match (f.number, f.payload) {
            (2, Payload::Bytes(b)) => Some(text(b)),
            _ => None,
        });
        self.add_event(table, name.unwrap_or(""), bytes, EVENT_ATTRIBUTES, Value::Empty);
    }

    fn add_event(
        &mut self,
        table: &'a ConventionTable,
        name: &str,
        message: &'a [u8],
        attributes: u32,
        body: Value<'a>,
    ) {
        let Some(&rule) = table.events.get(name) else { return };
        if rule == EventRule::Attributes {
            for (key, value) in Attributes::new(message, attributes).chain(body.entries()) {
                if self.is_full() {
                    return;
                }
                match Recognised::lookup(table, key.as_bytes()) {
                    Recognised::Field(entry) => _ = self.add_field(entry, key.as_bytes(), value, EVENT_ORDER),
                    Recognised::List(list) => {
                        let attribute =
                            ListAttribute::new(&[], list, key.as_bytes(), value, FlattenedList::leaf);
                        self.add_leaf(&attribute, false, EVENT_ORDER);
                    }
                    Recognised::Map((field, order, suffix)) => {
                        self.map_entries.push((field, order + EVENT_ORDER, text(suffix), value));
                    }
                    Recognised::Unknown => {}
                }
            }
        } else if self.events.len() < MAX_EVENTS {
            self.events.push(EventMessage { rule, message, attributes, body });
        }
    }

    fn read_status(&mut self, bytes: &'a [u8]) {
        for field in Fields::new(bytes).map_while(Result::ok) {
            match (field.number, field.payload) {
                (2, Payload::Bytes(b)) => self.status_message = text(b),
                (3, Payload::Varint(1)) => self.status = Status::Ok,
                (3, Payload::Varint(2)) => self.status = Status::Error,
                _ => {}
            }
        }
    }

    /// Collects an attribute with a meaning of its own.
    fn add_field(
        &mut self,
        entry: &KeyMeaning,
        key: &'a [u8],
        value: Value<'a>,
        order_offset: FieldPrecedence,
    ) -> AttributeStatement {
        let statement = self.add_statement(entry, key, value);
        self.add_candidates(entry, value, order_offset);
        statement
    }

    #[inline]
    fn add_candidates(&mut self, entry: &KeyMeaning, value: Value<'a>, order_offset: FieldPrecedence) {
        if self.fields.is_empty() {
            self.fields.reserve(USUAL_FIELDS);
        }
        for (field, order) in &entry.fields {
            self.fields.push((*field, order + order_offset, value));
            self.has_field |= bit(*field);
        }
    }

    fn is_full(&self) -> bool {
        self.remaining() == 0
    }

    /// The number of attributes that may still be collected.
    fn remaining(&self) -> usize {
        MAX_COLLECTED.saturating_sub(self.fields.len() + self.flat.len() + self.map_entries.len())
    }

    /// The number of leaves of lists, if they are in their order.
    fn sorted_leaves(&self) -> usize {
        if self.is_unsorted { 0 } else { self.flat.len() }
    }

    /// Collects an attribute of a flattened list.
    fn add_leaf(&mut self, attribute: &ListAttribute<'a>, is_repeated: bool, order_offset: FieldPrecedence) {
        let ListAttribute { list, key, leaf, value, .. } = *attribute;
        self.add_statement(&list.entry, key, value);
        if let Some(leaf) = leaf {
            for (field, order) in &list.entry.fields {
                let order = order + order_offset;
                let flat_attribute = FlatAttribute { field: *field, order, leaf, value, is_repeated };
                // Instrumentations write lists in their order.
                let sort_key = flat_attribute.sort_key();
                self.is_unsorted |= sort_key < self.last_sort_key;
                self.last_sort_key = sort_key;
                self.flat.push(flat_attribute);
                self.has_flat |= bit(*field);
            }
        }
    }

    /// Collects what an attribute states about the span as a whole.
    #[inline]
    fn add_statement(&mut self, entry: &KeyMeaning, key: &'a [u8], value: Value<'a>) -> AttributeStatement {
        // This runs for every attribute; most keys only have fields.
        if !entry.is_statement {
            return AttributeStatement::default();
        }
        let statement = AttributeStatement::read(entry, value);
        self.statements.add(&statement);
        self.add_flags(entry, key, value);
        statement
    }

    fn add_flags(&mut self, entry: &KeyMeaning, key: &'a [u8], value: Value<'a>) {
        if !entry.flags.is_empty() {
            self.flags.extend(entry.flags(keyword(value)).map(|meaning| (meaning, text(key), value)));
        }
    }

    /// The kind of the span.
    pub(crate) fn kind(&self, table: &ConventionTable, scope: &str) -> KindDecision {
        if self.has(Meaning::Placeholder) {
            return KindDecision::default();
        }
        let statement = table.kind_statement(scope, self.name, self.statements.kind);
        let explicit = statement.filter(|s| s.rank < Rank::ModelKey);
        // An agent's span may name a model. It is a model call only if it used tokens.
        let by_model_name =
            self.statements.model_key.filter(|_| self.statements.used_tokens || !self.has(Meaning::Agent));
        let from_model_name = explicit.is_none() && self.statements.model_key.is_some();
        let KindStatement { kind, lifecycle, .. } = match explicit.or(by_model_name).or(statement) {
            Some(statement) => statement,
            None => return KindDecision::default(),
        };
        KindDecision { kind, lifecycle, from_model_name }
    }

    /// Whether nothing was collected and the span has no error: it is no span of an agent.
    pub(crate) fn is_foreign(&self) -> bool {
        self.fields.is_empty()
            && self.flat.is_empty()
            && self.map_entries.is_empty()
            && self.events.is_empty()
            && self.flags.is_empty()
            && self.status != Status::Error
    }

    pub(crate) fn has(&self, meaning: Meaning) -> bool {
        self.flags.iter().any(|(m, _, _)| *m == meaning)
    }

    /// Sorts candidates by field and precedence.
    pub(crate) fn sort(&mut self) {
        self.fields
            .sort_by_key(|(field, order, _)| (*field as u32) << FieldPrecedence::BITS | u32::from(*order));
        if self.is_unsorted {
            self.flat.sort_by_key(FlatAttribute::sort_key);
        }
    }

    /// False if the field has no candidates.
    #[inline]
    pub(crate) fn has_field(&self, field: Field) -> bool {
        self.has_field & bit(field) != 0
    }

    /// The candidates of a field in order of precedence.
    #[inline]
    pub(crate) fn candidates(&self, field: Field) -> &[(Field, FieldPrecedence, Value<'a>)] {
        if !self.has_field(field) {
            return &[];
        }
        let from = self.fields.partition_point(|(f, _, _)| *f < field);
        let rest = self.fields.get(from..).unwrap_or_default();
        // A linear count, since there is usually one candidate.
        let count = rest.iter().take_while(|(f, _, _)| *f == field).count();
        rest.get(..count).unwrap_or_default()
    }

    /// The flattened leaves of a field, by precedence, then index.
    pub(crate) fn leaves(&self, field: Field) -> &[FlatAttribute<'a>] {
        if self.has_flat & bit(field) == 0 {
            return &[];
        }
        let from = self.flat.partition_point(|f| f.field < field);
        let to = self.flat.partition_point(|f| f.field <= field);
        self.flat.get(from..to).unwrap_or(&[])
    }
}

/// The span of an encoded `Span.Link` from a later attempt to an earlier one.
fn retried_span(link: &[u8]) -> Option<SpanId> {
    let is_retry = |(key, value): (&str, Value<'_>)| {
        key == "gen_ai.attribution.link_type" && value.as_str() == Some("RETRY_OF")
    };
    Attributes::new(link, LINK_ATTRIBUTES).any(is_retry).then_some(())?;
    Fields::new(link).map_while(Result::ok).find_map(|f| match (f.number, f.payload) {
        (2, Payload::Bytes(id)) => id.try_into().ok().map(SpanId),
        _ => None,
    })
}

/// The bit of a field in a set of fields. With more than 64 fields, some fields share a bit; a search for a field that
/// is absent is then possible.
fn bit(field: Field) -> u64 {
    1 << (field as u32 % u64::BITS)
}
