//! One pass over an encoded span (or log record): every attribute is dispatched once to what its
//! key means. Nothing is interpreted yet.

use verdict_otlp::trace::{Kind, Status};
use verdict_otlp::value::{EVENT_ATTRIBUTES, LOG_ATTRIBUTES, pair_of, text};
use verdict_otlp::{Attributes, Fields, Payload, Value};

use super::overrides::{EventRule, Field, LeafKind, Meaning, Rank};
use super::table::{EVENT_ORDER, KeyMeaning, KindStatement, Leaf, Order, Table};

/// Attributes kept of one span: more is an attack, not an agent. A conversation of a thousand
/// flattened messages has some five thousand.
const MAX_FOUND: usize = 50_000;
/// Events kept of one span.
const MAX_EVENTS: usize = 10_000;

/// A leaf of a flattened list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlatAttribute<'a> {
    pub(crate) field: Field,
    pub(crate) order: Order,
    pub(crate) leaf: Leaf,
    pub(crate) value: Value<'a>,
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

/// What a span is said to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KindDecision {
    pub(crate) kind: Kind,
    /// It only makes an agent.
    pub(crate) lifecycle: bool,
    /// Nothing but a model's name on the span says so.
    pub(crate) model_only: bool,
}

/// What one pass has found.
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
    kind: Option<KindStatement>,
    model_key: Option<KindStatement>,
    used_tokens: bool,
    /// Which fields have candidates, and which have leaves: of some forty that are asked for, a
    /// span has ten. See [`bit`].
    has_field: u64,
    has_flat: u64,
}

impl<'a> SpanScan<'a> {
    /// Reads an encoded `Span`.
    pub(crate) fn span(table: &Table, bytes: &'a [u8]) -> SpanScan<'a> {
        let mut scan = SpanScan::default();
        for field in Fields::new(bytes).map_while(Result::ok) {
            let Payload::Bytes(b) = field.payload else { continue };
            match field.number {
                5 => scan.name = text(b),
                9 => {
                    let (key, value) = pair_of(b);
                    scan.attribute(table, key, || Value::read(value), 0);
                }
                11 => scan.event(table, b),
                15 => scan.read_status(b),
                _ => {}
            }
        }
        scan
    }

    /// Adds an encoded `LogRecord` that belongs to the span.
    pub(crate) fn log(&mut self, table: &Table, bytes: &'a [u8]) {
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

    fn event(&mut self, table: &Table, bytes: &'a [u8]) {
        let name = Fields::new(bytes).map_while(Result::ok).find_map(|f| match (f.number, f.payload) {
            (2, Payload::Bytes(b)) => Some(text(b)),
            _ => None,
        });
        self.add_event(table, name.unwrap_or(""), bytes, EVENT_ATTRIBUTES, Value::Empty);
    }

    fn add_event(&mut self, table: &Table, name: &str, message: &'a [u8], attributes: u32, body: Value<'a>) {
        let Some(&rule) = table.events.get(name) else { return };
        if rule == EventRule::Attributes {
            for (key, value) in Attributes::new(message, attributes).chain(body.entries()) {
                self.attribute(table, key.as_bytes(), || value, EVENT_ORDER);
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

    fn attribute(&mut self, table: &Table, key: &'a [u8], value: impl FnOnce() -> Value<'a>, later: Order) {
        if self.fields.len() + self.flat.len() + self.open.len() >= MAX_FOUND {
            return;
        }
        if let Some(entry) = table.exact(key) {
            let value = value();
            self.entry(entry, key, value);
            for (field, order) in &entry.fields {
                self.fields.push((*field, order + later, value));
                self.has_field |= bit(*field);
            }
        } else if let Some((group, tail)) = table.group(key) {
            let value = value();
            self.entry(&group.entry, key, value);
            if let Some(leaf) = group.leaf(tail) {
                for (field, order) in &group.entry.fields {
                    self.flat.push(FlatAttribute { field: *field, order: order + later, leaf, value });
                    self.has_flat |= bit(*field);
                }
            }
        } else if let Some((field, order, own)) = table.open(key) {
            self.open.push((field, order + later, text(own), value()));
        }
    }

    fn entry(&mut self, entry: &KeyMeaning, key: &'a [u8], value: Value<'a>) {
        if entry.has_kind_rules() {
            for statement in entry.kinds(keyword(value)) {
                match statement.rank {
                    Rank::ModelKey => keep_stronger(&mut self.model_key, statement),
                    _ => keep_stronger(&mut self.kind, statement),
                }
            }
        }
        if entry.has_flags() {
            let key = text(key);
            self.flags.extend(entry.flags(keyword(value)).map(|means| (means, key, value)));
        }
        if entry
            .fields
            .iter()
            .any(|(f, _)| matches!(f, Field::TokensInput | Field::TokensOutput | Field::Usage))
        {
            self.used_tokens |= match value {
                Value::Int(n) => n > 0,
                Value::Double(n) => n > 0.0,
                Value::Str(s) => !matches!(s, "" | "0"),
                _ => false,
            };
        }
    }

    /// What the span is (conventions, section 5.7).
    pub(crate) fn kind(&self, table: &Table, scope: &str) -> KindDecision {
        if self.has(Meaning::Placeholder) {
            return KindDecision::default();
        }
        let Some(statement) = table.by_name(scope, self.name, self.kind).filter(|s| s.rank < Rank::ModelKey)
        else {
            let model_only = self.model_key.is_some();
            // A model's name makes a span a model's call, unless it is named on an agent's span
            // that used no tokens.
            let model = self.model_key.filter(|_| self.used_tokens || !self.has(Meaning::Agent));
            let statement = model.or_else(|| table.by_name(scope, self.name, self.kind));
            return statement.map_or(KindDecision::default(), |s| KindDecision {
                kind: s.kind,
                lifecycle: s.lifecycle,
                model_only,
            });
        };
        KindDecision { kind: statement.kind, lifecycle: statement.lifecycle, model_only: false }
    }

    pub(crate) fn has(&self, meaning: Meaning) -> bool {
        self.flags.iter().any(|(m, _, _)| *m == meaning)
    }

    /// Brings candidates into the order in which they are asked.
    pub(crate) fn sort(&mut self) {
        self.fields.sort_by_key(|(field, order, _)| (*field, *order));
        self.flat
            .sort_by_key(|f| (f.field, f.order, f.leaf.index, nested_rank(f.leaf.kind), f.leaf.inner_index));
    }

    /// The candidates of a field, most telling first.
    pub(crate) fn candidates(&self, field: Field) -> &[(Field, Order, Value<'a>)] {
        if self.has_field & bit(field) == 0 {
            return &[];
        }
        let from = self.fields.partition_point(|(f, _, _)| *f < field);
        let to = self.fields.partition_point(|(f, _, _)| *f <= field);
        self.fields.get(from..to).unwrap_or(&[])
    }

    /// The flattened leaves of a field, by order, then index.
    pub(crate) fn leaves(&self, field: Field) -> &[FlatAttribute<'a>] {
        if self.has_flat & bit(field) == 0 {
            return &[];
        }
        let from = self.flat.partition_point(|f| f.field < field);
        let to = self.flat.partition_point(|f| f.field <= field);
        self.flat.get(from..to).unwrap_or(&[])
    }
}

/// Leaves of one nested list stand together: text before parts before calls.
fn nested_rank(kind: LeafKind) -> u8 {
    match kind {
        LeafKind::PartText | LeafKind::PartMedia | LeafKind::PartReasoning => 1,
        LeafKind::RequestId | LeafKind::RequestName | LeafKind::RequestArguments => 2,
        _ => 0,
    }
}

fn keep_stronger(best: &mut Option<KindStatement>, statement: KindStatement) {
    if statement.outranks(*best) {
        *best = Some(statement);
    }
}

/// The field's bit in a set of fields. Beyond 64 fields two would share one, which costs a search.
fn bit(field: Field) -> u64 {
    1 << (field as u32 % u64::BITS)
}

/// A value as the short words that kinds and flags are.
fn keyword(value: Value<'_>) -> &str {
    match value {
        Value::Str(s) => s,
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Empty => "",
        _ => "...",
    }
}
