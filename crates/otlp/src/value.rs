//! `AnyValue` and attributes, decoded on demand. Malformed parts are read as [`Value::Empty`]: requests
//! have been validated when they were received.

use super::fields::{Fields, Payload};
use super::scan::Scan;
use super::tags::{any_value, key_value, log_record, resource, span, span_event, span_link};

/// Field number of `attributes` in `Span`.
pub const SPAN_ATTRIBUTES: u32 = span::ATTRIBUTES >> 3;
/// Field number of `attributes` in `Span.Event`.
pub const EVENT_ATTRIBUTES: u32 = span_event::ATTRIBUTES >> 3;
/// Field number of `attributes` in `Span.Link`.
pub const LINK_ATTRIBUTES: u32 = span_link::ATTRIBUTES >> 3;
/// Field number of `attributes` in `LogRecord`.
pub const LOG_ATTRIBUTES: u32 = log_record::ATTRIBUTES >> 3;
/// Field number of `attributes` in `Resource`.
pub const RESOURCE_ATTRIBUTES: u32 = resource::ATTRIBUTES >> 3;

/// An `AnyValue`; arrays and maps stay encoded until they are iterated.
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
    /// Reads an encoded `AnyValue`. Of several members the last one counts, as in every protobuf oneof.
    pub fn read(encoded: &'a [u8]) -> Value<'a> {
        // Most values are one string.
        let mut scan = Scan::new(encoded);
        if let Ok(Some(any_value::STRING_VALUE)) = scan.tag()
            && let Ok(bytes) = scan.bytes()
            && scan.remaining() == 0
        {
            return string(bytes);
        }
        Value::last_member(encoded)
    }

    fn last_member(encoded: &'a [u8]) -> Value<'a> {
        let mut value = Value::Empty;
        let mut scan = Scan::new(encoded);
        while let Ok(Some(tag)) = scan.tag() {
            let read = match tag {
                any_value::STRING_VALUE => scan.bytes().map(string),
                any_value::BOOL_VALUE => scan.varint().map(|v| Value::Bool(v != 0)),
                any_value::INT_VALUE => scan.varint().map(|v| Value::Int(v as i64)),
                any_value::DOUBLE_VALUE => scan.fixed64().map(|v| Value::Double(f64::from_bits(v))),
                any_value::ARRAY_VALUE => scan.bytes().map(Value::Array),
                any_value::KVLIST_VALUE => scan.bytes().map(Value::Map),
                any_value::BYTES_VALUE => scan.bytes().map(Value::Bytes),
                _ => scan.skip(tag, 0).map(|()| value),
            };
            match read {
                Ok(read) => value = read,
                Err(_) => break,
            }
        }
        value
    }

    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The items of an array; nothing for any other value.
    pub fn items(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let encoded: &'a [u8] = if let Value::Array(b) = *self { b } else { &[] };
        Fields::new(encoded).contents(1).map(Value::read)
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
                let (key, value) = key_and_value(pair);
                return Some((text(key), Value::read(value)));
            }
        }
    }
}

fn string(bytes: &[u8]) -> Value<'_> {
    simdutf8::basic::from_utf8(bytes).map_or(Value::Empty, Value::Str)
}

/// The bytes of a string field as a string; empty if they are not UTF-8.
pub fn text(bytes: &[u8]) -> &str {
    simdutf8::basic::from_utf8(bytes).unwrap_or("")
}

/// Key and value of an encoded `KeyValue`. The value stays encoded, since most callers need those of few
/// keys.
#[inline]
pub fn key_and_value(pair: &[u8]) -> (&[u8], &[u8]) {
    // Every SDK writes the key, then the value, and nothing else.
    let mut scan = Scan::new(pair);
    if let Ok(Some(key_value::KEY)) = scan.tag()
        && let Ok(key) = scan.bytes()
        && let Ok(Some(key_value::VALUE)) = scan.tag()
        && let Ok(value) = scan.bytes()
        && scan.remaining() == 0
    {
        return (key, value);
    }
    last_key_and_value(pair)
}

/// Like [`key_and_value`], with the fields in any order.
fn last_key_and_value(pair: &[u8]) -> (&[u8], &[u8]) {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut scan = Scan::new(pair);
    while let Ok(Some(tag)) = scan.tag() {
        let read = match tag {
            key_value::KEY => scan.bytes().map(|b| key = b),
            key_value::VALUE => scan.bytes().map(|b| value = b),
            _ => scan.skip(tag, 0),
        };
        if read.is_err() {
            break;
        }
    }
    (key, value)
}
