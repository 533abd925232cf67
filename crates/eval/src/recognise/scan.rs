//! One pass over an encoded span or log record: looks up the key of every attribute once and collects
//! the values by meaning. Nothing is interpreted yet.

use verdict_otlp::trace::{Kind, SpanId, Status};
use verdict_otlp::value::{EVENT_ATTRIBUTES, LINK_ATTRIBUTES, LOG_ATTRIBUTES, pair_of, text};
use verdict_otlp::{Attributes, Fields, Payload, Value, byte_fields};

use super::earlier_spans::{EarlierSpans, KnownAttribute, ListAttribute};
use super::kind_rules::{KindStatement, Order};
use super::overrides::{EventRule, Field, LeafKind, Meaning, Rank};
use super::table::{EVENT_ORDER, FlattenedList, KeyMeaning, Leaf, Table};

/// Maximum number of attributes of one span. A conversation of a thousand flattened messages has
/// some five thousand.
const MAX_FOUND: usize = 50_000;
/// Fields of most spans of agents.
const USUAL: usize = 16;
/// Length of a text that may be cut off.
pub(crate) const LONG: usize = 64;
/// Maximum number of events of one span.
const MAX_EVENTS: usize = 10_000;

/// A leaf of a flattened list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlatAttribute<'a> {
    pub(crate) field: Field,
    pub(crate) order: Order,
    pub(crate) leaf: Leaf,
    pub(crate) value: Value<'a>,
    /// The value is that of the previous span.
    pub(crate) is_repeated: bool,
}

/// What an attribute was recognised as.
enum Recognised<'a> {
    /// The attribute was collected. It has a meaning of its own, unless it belongs to a flattened map.
    Field(Option<(&'a KeyMeaning, Value<'a>)>),
    /// A flattened list, and the part of the key before the index.
    List((&'a FlattenedList, &'a [u8])),
    Unknown,
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
    /// Only the name of a model on the span determines the kind.
    pub(crate) model_only: bool,
}

/// The result of one pass.
#[derive(Debug, Default)]
pub(crate) struct SpanScan<'a> {
    pub(crate) name: &'a str,
    pub(crate) status: Status,
    pub(crate) status_message: &'a str,
    pub(crate) fields: Vec<(Field, Order, Value<'a>)>,
    pub(crate) flat: Vec<FlatAttribute<'a>>,
    pub(crate) open: Vec<(Field, Order, &'a str, Value<'a>)>,
    pub(crate) events: Vec<EventMessage<'a>>,
    pub(crate) flags: Vec<(Meaning, &'a str, Value<'a>)>,
    /// The addresses of the long texts of `fields` that an earlier span has, too.
    pub(crate) repeated: Vec<*const u8>,
    /// The span that this one is another attempt of, as a link says.
    pub(crate) retry_of: Option<SpanId>,
    kind: Option<KindStatement>,
    model_key: Option<KindStatement>,
    used_tokens: bool,
    /// Bit sets of the fields that have candidates and leaves. Some forty fields are looked up, of
    /// which a span has about ten. See [`bit`].
    has_field: u64,
    has_flat: u64,
    /// The place of the last leaf in `flat`, and whether one was recorded after a later one.
    last_place: u128,
    is_unsorted: bool,
}

impl<'a> SpanScan<'a> {
    /// Reads an encoded `Span`.
    pub(crate) fn span(table: &'a Table, bytes: &'a [u8]) -> SpanScan<'a> {
        SpanScan::span_after(&mut EarlierSpans::default(), table, bytes)
    }

    /// As [`SpanScan::span`], of one span after the other. A value of a flattened list that the previous span has at
    /// the same place is returned at its address.
    pub(crate) fn span_after(
        earlier: &mut EarlierSpans<'a>,
        table: &'a Table,
        bytes: &'a [u8],
    ) -> SpanScan<'a> {
        let mut scan = SpanScan::default();
        earlier.begin_span();
        for (number, b) in byte_fields(bytes) {
            match number {
                5 => scan.name = text(b),
                9 if scan.is_full() => {}
                9 => scan.span_attribute(earlier, table, b),
                11 => scan.event(table, b),
                13 => scan.retry_of = scan.retry_of.or_else(|| retried_span(b)),
                15 => scan.read_status(b),
                _ => {}
            }
        }
        earlier.end_span();
        scan
    }

    /// Collects an encoded attribute of the span.
    fn span_attribute(&mut self, earlier: &mut EarlierSpans<'a>, table: &'a Table, encoded: &'a [u8]) {
        let before = earlier.list_len();
        if let Some(same) = earlier.repeated_in_list(encoded) {
            if self.flat.is_empty() {
                self.flat.reserve(before + USUAL);
            }
            return self.leaf(same, true, 0);
        }
        if let Some(same) = earlier.known(encoded) {
            self.repeated.extend(same.value.as_str().filter(|text| text.len() >= LONG).map(str::as_ptr));
            return self.field(same.entry, same.key, same.value, 0);
        }
        let (key, value) = pair_of(encoded);
        if earlier.is_unknown(key) {
            return;
        }
        // The attributes of a flattened list mostly follow each other.
        let recognised = match earlier.last.filter(|(_, head)| table.is_in_list(key, head)) {
            Some(list) => Recognised::List(list),
            None => self.attribute(table, key, || Value::read(value), 0),
        };
        match recognised {
            Recognised::Field(Some((entry, value))) => {
                earlier.add(KnownAttribute { encoded, entry, key, value });
            }
            Recognised::Field(None) => {}
            Recognised::Unknown => earlier.add_unknown(key),
            Recognised::List(list) => {
                let read = ListAttribute::new(encoded, list, key, Value::read(value));
                self.leaf(&read, false, 0);
                earlier.add_to_list(read);
            }
        }
    }

    /// Adds an encoded `LogRecord` that belongs to the span.
    pub(crate) fn log(&mut self, table: &'a Table, bytes: &'a [u8]) {
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

    fn event(&mut self, table: &'a Table, bytes: &'a [u8]) {
        let name = Fields::new(bytes).map_while(Result::ok).find_map(|f| match (f.number, f.payload) {
            (2, Payload::Bytes(b)) => Some(text(b)),
            _ => None,
        });
        self.add_event(table, name.unwrap_or(""), bytes, EVENT_ATTRIBUTES, Value::Empty);
    }

    fn add_event(
        &mut self,
        table: &'a Table,
        name: &str,
        message: &'a [u8],
        attributes: u32,
        body: Value<'a>,
    ) {
        let Some(&rule) = table.events.get(name) else { return };
        if rule == EventRule::Attributes {
            for (key, value) in Attributes::new(message, attributes).chain(body.entries()) {
                let recognised = self.attribute(table, key.as_bytes(), || value, EVENT_ORDER);
                if let Recognised::List(list) = recognised {
                    let read = ListAttribute::new(&[], list, key.as_bytes(), value);
                    self.leaf(&read, false, EVENT_ORDER);
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

    /// Collects an attribute, unless it belongs to a flattened list.
    fn attribute(
        &mut self,
        table: &'a Table,
        key: &'a [u8],
        value: impl FnOnce() -> Value<'a>,
        later: Order,
    ) -> Recognised<'a> {
        if self.is_full() {
            return Recognised::Field(None);
        }
        if let Some(entry) = table.exact(key) {
            let value = value();
            self.field(entry, key, value, later);
            return Recognised::Field(Some((entry, value)));
        } else if let Some(list) = table.list(key) {
            return Recognised::List(list);
        } else if let Some((field, order, own)) = table.open(key) {
            self.open.push((field, order + later, text(own), value()));
        } else {
            return Recognised::Unknown;
        }
        Recognised::Field(None)
    }

    /// Collects an attribute with a meaning of its own.
    fn field(&mut self, entry: &KeyMeaning, key: &'a [u8], value: Value<'a>, later: Order) {
        self.entry(entry, key, value);
        if self.fields.is_empty() {
            self.fields.reserve(USUAL);
        }
        for (field, order) in &entry.fields {
            self.fields.push((*field, order + later, value));
            self.has_field |= bit(*field);
        }
    }

    fn is_full(&self) -> bool {
        self.fields.len() + self.flat.len() + self.open.len() >= MAX_FOUND
    }

    /// Collects an attribute of a flattened list.
    fn leaf(&mut self, read: &ListAttribute<'a>, is_repeated: bool, later: Order) {
        let ListAttribute { list, key, leaf, value, .. } = *read;
        self.entry(&list.entry, key, value);
        if let Some(leaf) = leaf {
            for (field, order) in &list.entry.fields {
                let order = order + later;
                let new = FlatAttribute { field: *field, order, leaf, value, is_repeated };
                // Instrumentations write lists in their order.
                let place = new.place();
                self.is_unsorted |= place < self.last_place;
                self.last_place = place;
                self.flat.push(new);
                self.has_flat |= bit(*field);
            }
        }
    }

    #[inline]
    fn entry(&mut self, entry: &KeyMeaning, key: &'a [u8], value: Value<'a>) {
        // This runs for every attribute; most keys are only those of fields.
        if entry.is_statement {
            self.statement(entry, key, value);
        }
    }

    /// Collects what an attribute states about the span as a whole.
    fn statement(&mut self, entry: &KeyMeaning, key: &'a [u8], value: Value<'a>) {
        if !entry.kinds.is_empty() || !entry.flags.is_empty() {
            let keyword = keyword(value);
            for statement in entry.kinds(keyword) {
                let strongest = match statement.rank {
                    Rank::ModelKey => &mut self.model_key,
                    _ => &mut self.kind,
                };
                if statement.outranks(*strongest) {
                    *strongest = Some(statement);
                }
            }
            self.flags.extend(entry.flags(keyword).map(|meaning| (meaning, text(key), value)));
        }
        if entry.is_usage() {
            self.used_tokens |= match value {
                Value::Int(n) => n > 0,
                Value::Double(n) => n > 0.0,
                Value::Str(s) => !matches!(s, "" | "0"),
                _ => false,
            };
        }
    }

    /// The kind of the span.
    pub(crate) fn kind(&self, table: &Table, scope: &str) -> KindDecision {
        if self.has(Meaning::Placeholder) {
            return KindDecision::default();
        }
        let statement = table.by_name(scope, self.name, self.kind);
        let explicit = statement.filter(|s| s.rank < Rank::ModelKey);
        // An agent's span may name a model. It is a model call only if it used tokens.
        let by_model = self.model_key.filter(|_| self.used_tokens || !self.has(Meaning::Agent));
        let model_only = explicit.is_none() && self.model_key.is_some();
        let KindStatement { kind, lifecycle, .. } = match explicit.or(by_model).or(statement) {
            Some(statement) => statement,
            None => return KindDecision::default(),
        };
        KindDecision { kind, lifecycle, model_only }
    }

    /// Whether nothing was collected: the span of an instrumentation of something else, without an error.
    pub(crate) fn is_foreign(&self) -> bool {
        self.fields.is_empty()
            && self.flat.is_empty()
            && self.open.is_empty()
            && self.events.is_empty()
            && self.flags.is_empty()
            && self.status != Status::Error
    }

    pub(crate) fn has(&self, meaning: Meaning) -> bool {
        self.flags.iter().any(|(m, _, _)| *m == meaning)
    }

    /// Sorts candidates by field and precedence.
    pub(crate) fn sort(&mut self) {
        self.fields.sort_by_key(|(field, order, _)| (*field as u32) << Order::BITS | u32::from(*order));
        if self.is_unsorted {
            self.flat.sort_by_key(FlatAttribute::place);
        }
    }

    /// False if the field has no candidates.
    #[inline]
    pub(crate) fn has_field(&self, field: Field) -> bool {
        self.has_field & bit(field) != 0
    }

    /// The candidates of a field in order of precedence.
    #[inline]
    pub(crate) fn candidates(&self, field: Field) -> &[(Field, Order, Value<'a>)] {
        if !self.has_field(field) {
            return &[];
        }
        let from = self.fields.partition_point(|(f, _, _)| *f < field);
        let rest = self.fields.get(from..).unwrap_or_default();
        // Mostly there is one.
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

impl FlatAttribute<'_> {
    /// The place in the order of a scan: by field, precedence and index, as one number.
    #[inline]
    fn place(&self) -> u128 {
        let Leaf { index, inner_index, kind } = self.leaf;
        let list = u64::from(self.field as u16) << 48 | u64::from(self.order) << 32 | u64::from(index);
        let item = u64::from(nested_rank(kind)) << 32 | u64::from(inner_index);
        u128::from(list) << 64 | u128::from(item)
    }
}

/// Groups the leaves of one nested list: message, then parts, then calls.
fn nested_rank(kind: LeafKind) -> u8 {
    match kind {
        LeafKind::PartText | LeafKind::PartMedia | LeafKind::PartReasoning => 1,
        LeafKind::RequestId | LeafKind::RequestName | LeafKind::RequestArguments => 2,
        _ => 0,
    }
}

/// The field's bit in a set of fields. Above 64 fields two share a bit, which costs a needless search.
fn bit(field: Field) -> u64 {
    1 << (field as u32 % u64::BITS)
}

/// A value as text, to compare with the values of kinds and flags.
fn keyword(value: Value<'_>) -> &str {
    match value {
        Value::Str(s) => s,
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Empty => "",
        Value::Int(0) => "0",
        _ => "...",
    }
}
