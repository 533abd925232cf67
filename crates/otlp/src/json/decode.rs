//! JSON to protobuf: every value is encoded as soon as serde has parsed it.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::error::JsonError;
use super::scalar::{JsonScalar, expected, write_scalar};
use super::table::{FieldDescriptor, FieldKind, MessageDescriptor};
use crate::write;

/// Maximum number of characters of an unknown name that an error quotes.
const MAX_QUOTED_CHARS: usize = 40;

pub(super) fn decode(message: &'static MessageDescriptor, json: &[u8]) -> Result<Vec<u8>, JsonError> {
    let mut target = DecodeState { out: Vec::with_capacity(json.len() / 2), path: Vec::new() };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let read = MessageSeed { target: &mut target, message }.deserialize(&mut deserializer);
    match read.and_then(|()| deserializer.end()) {
        Ok(()) => Ok(target.out),
        Err(error) => Err(JsonError { path: target.path(), message: error.to_string() }),
    }
}

/// The output, and the path of the value that is being parsed. After an error the path is that of the
/// invalid value.
struct DecodeState {
    out: Vec<u8>,
    path: Vec<JsonStep>,
}

enum JsonStep {
    Name(&'static str),
    Index(usize),
}

impl DecodeState {
    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                JsonStep::Name(name) if path.is_empty() => path.push_str(name),
                JsonStep::Name(name) => path.extend([".", name]),
                JsonStep::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    fn tag(&mut self, field: &FieldDescriptor) {
        write::varint(&mut self.out, u64::from(field.number) << 3 | u64::from(field.kind.wire_type()));
    }

    /// Begins a length-delimited field. Reserves one byte for the length, which suffices for most fields;
    /// [`DecodeState::close`] moves the content of the others.
    fn open(&mut self, number: u32) -> usize {
        write::open(&mut self.out, number, 0);
        self.out.len()
    }

    /// Ends the field whose content begins at `start`: writes its length.
    fn close(&mut self, start: usize) {
        let end = self.out.len();
        let extra_bytes = write::varint_size((end - start) as u64) - 1;
        if extra_bytes > 0 {
            self.out.resize(end + extra_bytes, 0);
            self.out.copy_within(start..end, start + extra_bytes);
        }
        let mut length = (end - start) as u64;
        for byte in self.out.iter_mut().skip(start - 1).take(extra_bytes) {
            *byte = length as u8 | 0x80;
            length >>= 7;
        }
        if let Some(last) = self.out.get_mut(start - 1 + extra_bytes) {
            *last = length as u8;
        }
    }
}

/// Reads an object as the fields of a message, and encodes them.
struct MessageSeed<'t> {
    target: &'t mut DecodeState,
    message: &'static MessageDescriptor,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.message.fields.first().map_or("", |field| field.json);
        write!(f, "an object with `{first}` ({})", self.message.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut unknown: Option<String> = None;
        // Whether the content field was found; for messages without one, any known field.
        let content_number = content_number(self.message);
        let mut recognised = content_number.is_none() && !requires_content(self.message);
        while let Some(name) = map.next_key_seed(FieldNameSeed(self.message))? {
            match name {
                Ok(field) => {
                    recognised |= content_number.is_none_or(|number| number == field.number);
                    self.target.path.push(JsonStep::Name(field.json));
                    map.next_value_seed(FieldValueSeed {
                        target: self.target,
                        field,
                        position: ValuePosition::Field,
                    })?;
                    self.target.path.pop();
                }
                Err(name) => {
                    unknown.get_or_insert(name);
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match unknown {
            Some(unknown) if !recognised => Err(A::Error::custom(not_recognised(self.message, &unknown))),
            _ => Ok(()),
        }
    }
}

/// Number of the content field, the field that contains the spans, log records or metrics of a request.
fn content_number(message: &MessageDescriptor) -> Option<u32> {
    match message.name {
        "ExportTraceServiceRequest" | "ExportLogsServiceRequest" | "ExportMetricsServiceRequest" => Some(1),
        "ResourceSpans" | "ResourceLogs" | "ResourceMetrics" => Some(2),
        "ScopeSpans" | "ScopeLogs" | "ScopeMetrics" => Some(2),
        _ => None,
    }
}

/// Whether a message with only unknown fields is an error, because its content would be lost. Other
/// messages may have only unknown fields, such as a status of OTLP before 1.0.
fn requires_content(message: &MessageDescriptor) -> bool {
    matches!(message.name, "Span" | "LogRecord" | "Metric" | "AnyValue")
}

fn not_recognised(message: &MessageDescriptor, unknown: &str) -> String {
    let known_fields =
        message.fields.iter().filter(|field| content_number(message).is_none_or(|n| n == field.number));
    let known_names: Vec<String> = known_fields.map(|field| format!("`{}`", field.json)).collect();
    format!("found `{unknown}` but no {} ({})", known_names.join(" or "), message.name)
}

/// Reads a key and looks up the field of this name; returns the name if there is no such field.
struct FieldNameSeed(&'static MessageDescriptor);

impl<'de> DeserializeSeed<'de> for FieldNameSeed {
    type Value = Result<&'static FieldDescriptor, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldNameSeed {
    type Value = Result<&'static FieldDescriptor, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let field = self.0.fields.iter().find(|field| field.json == name || field.snake == name);
        Ok(field.ok_or_else(|| name.chars().take(MAX_QUOTED_CHARS).collect()))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum ValuePosition {
    Field,
    /// An element of a field's array.
    Element,
    /// An element of a packed field, which is written without a tag.
    Packed,
}

/// Parses a value and encodes it as a field or as an element of a field.
struct FieldValueSeed<'t> {
    target: &'t mut DecodeState,
    field: &'static FieldDescriptor,
    position: ValuePosition,
}

impl<'de> DeserializeSeed<'de> for FieldValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldValueSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.field.repeated && self.position == ValuePosition::Field {
            "an array"
        } else {
            expected(&self.field.kind)
        })
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match (self.position, &self.field.kind) {
            (ValuePosition::Field, _) => Ok(()),
            // `null` in an array of values is an empty message.
            (_, FieldKind::Message(_)) => {
                write::bytes(&mut self.target.out, self.field.number, &[]);
                Ok(())
            }
            _ => self.refuse("null"),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        match self.field.kind {
            FieldKind::Message(message)
                if !self.field.repeated || self.position == ValuePosition::Element =>
            {
                let start = self.target.open(self.field.number);
                MessageSeed { target: self.target, message }.visit_map(map)?;
                self.target.close(start);
                Ok(())
            }
            _ => self.refuse("an object"),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if !self.field.repeated || self.position != ValuePosition::Field {
            return self.refuse("an array");
        }
        let packed = self.field.kind.is_packable();
        let before = self.target.out.len();
        let start = if packed { self.target.open(self.field.number) } else { before };
        let position = if packed { ValuePosition::Packed } else { ValuePosition::Element };
        for index in 0.. {
            self.target.path.push(JsonStep::Index(index));
            let seed = FieldValueSeed { target: &mut *self.target, field: self.field, position };
            let has_element = seq.next_element_seed(seed)?.is_some();
            self.target.path.pop();
            if !has_element {
                break;
            }
        }
        if packed && self.target.out.len() == start {
            self.target.out.truncate(before);
        } else if packed {
            self.target.close(start);
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(JsonScalar::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(JsonScalar::Integer(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(JsonScalar::Integer(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(JsonScalar::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(JsonScalar::Text(value))
    }
}

impl FieldValueSeed<'_> {
    fn refuse<E: Error>(self, found: &str) -> Result<(), E> {
        Err(E::custom(format_args!("expected {}, found {found}", &self as &dyn serde::de::Expected)))
    }

    fn scalar<E: Error>(self, scalar: JsonScalar<'_>) -> Result<(), E> {
        let is_single = !self.field.repeated || self.position != ValuePosition::Field;
        let before = self.target.out.len();
        if is_single && self.position != ValuePosition::Packed {
            self.target.tag(self.field);
        }
        if is_single && write_scalar(&mut self.target.out, &self.field.kind, scalar).is_some() {
            return Ok(());
        }
        self.target.out.truncate(before);
        self.refuse(match scalar {
            JsonScalar::Bool(_) => "a boolean",
            JsonScalar::Integer(_) | JsonScalar::Float(_) => "a number",
            JsonScalar::Text(_) => "a string",
        })
    }
}
