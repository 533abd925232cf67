//! `AnyValue` and attributes, read where asked for. Malformed parts read as [`Value::Empty`]:
//! what reaches this has been validated at the door.

use super::fields::{Fields, Payload};

/// Field number of `attributes` in `Span`.
pub const SPAN_ATTRIBUTES: u32 = 9;
/// Field number of `attributes` in `Span.Event`.
pub const EVENT_ATTRIBUTES: u32 = 3;
/// Field number of `attributes` in `LogRecord`.
pub const LOG_ATTRIBUTES: u32 = 6;
/// Field number of `attributes` in `Resource`.
pub const RESOURCE_ATTRIBUTES: u32 = 1;

/// An `AnyValue`; arrays and maps stay encoded until walked.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Value<'a> {
    /// No value.
    #[default]
    Empty,
    /// `string_value`
    Str(&'a str),
    /// `bool_value`
    Bool(bool),
    /// `int_value`
    Int(i64),
    /// `double_value`
    Double(f64),
    /// `array_value`: encoded `ArrayValue`, see [`Value::items`].
    Array(&'a [u8]),
    /// `kvlist_value`: encoded `KeyValueList`, see [`Value::entries`].
    Map(&'a [u8]),
    /// `bytes_value`
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Reads an encoded `AnyValue`. The last set member wins, as protobuf has it for a oneof.
    pub fn read(encoded: &'a [u8]) -> Value<'a> {
        let mut value = Value::Empty;
        for field in Fields::new(encoded).map_while(Result::ok) {
            value = match (field.number, field.payload) {
                (1, Payload::Bytes(b)) => simdutf8::basic::from_utf8(b).map_or(Value::Empty, Value::Str),
                (2, Payload::Varint(v)) => Value::Bool(v != 0),
                (3, Payload::Varint(v)) => Value::Int(v as i64),
                (4, Payload::Fixed64(v)) => Value::Double(f64::from_bits(v)),
                (5, Payload::Bytes(b)) => Value::Array(b),
                (6, Payload::Bytes(b)) => Value::Map(b),
                (7, Payload::Bytes(b)) => Value::Bytes(b),
                _ => value,
            };
        }
        value
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The items of an array; nothing for any other value.
    pub fn items(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let encoded: &'a [u8] = if let Value::Array(b) = *self { b } else { &[] };
        Fields::new(encoded).map_while(Result::ok).filter_map(|f| match (f.number, f.payload) {
            (1, Payload::Bytes(b)) => Some(Value::read(b)),
            _ => None,
        })
    }

    /// The entries of a map; nothing for any other value.
    pub fn entries(&self) -> Attributes<'a> {
        Attributes::new(if let Value::Map(b) = *self { b } else { &[] }, 1)
    }
}

/// The key-value pairs in field `number` of a message.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    fields: Fields<'a>,
    number: u32,
}

impl<'a> Attributes<'a> {
    /// Over the `KeyValue`s in field `number` of the encoded `message`.
    pub fn new(message: &'a [u8], number: u32) -> Attributes<'a> {
        Attributes { fields: Fields::new(message), number }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let field = self.fields.next()?.ok()?;
            if let (n, Payload::Bytes(pair)) = (field.number, field.payload)
                && n == self.number
            {
                return Some(key_value(pair));
            }
        }
    }
}

fn key_value(pair: &[u8]) -> (&str, Value<'_>) {
    let mut key = "";
    let mut value = Value::Empty;
    for field in Fields::new(pair).map_while(Result::ok) {
        match (field.number, field.payload) {
            (1, Payload::Bytes(b)) => key = simdutf8::basic::from_utf8(b).unwrap_or(""),
            (2, Payload::Bytes(b)) => value = Value::read(b),
            _ => {}
        }
    }
    (key, value)
}
