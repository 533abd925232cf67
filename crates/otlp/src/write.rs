//! Writes OTLP bytes: single fields, attributes, and whole requests of encoded spans.
//!
//! In: encoded spans with their envelopes and the encoded fields to append to each. Out: valid
//! requests in allocations of their exact size. Nothing is re-encoded: protobuf reads a span
//! followed by appended fields as one message.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};

use super::fields::{Fields, Payload};
use super::signal::Piece;
use super::trace::{Envelope, EnvelopeFields};
use super::value::{SPAN_ATTRIBUTES, key_and_value};

/// Encoded size of `value` as a varint: 1 to 10 bytes.
#[inline]
pub(crate) const fn varint_size(value: u64) -> usize {
    // Seven bits per byte; zero takes one byte as well. (9 n + 64) / 64 is n / 7 rounded up for 1 <= n <= 64.
    ((64 - (value | 1).leading_zeros()) as usize * 9 + 64) / 64
}

/// Encoded size of a length-delimited field with `len` bytes of content.
#[inline]
pub(crate) const fn field_size(number: u32, len: usize) -> usize {
    varint_size((number as u64) << 3) + varint_size(len as u64) + len
}

/// Appends a varint.
#[inline]
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the tag and length of a length-delimited field, whose content the caller appends.
#[inline]
pub fn open(out: &mut Vec<u8>, number: u32, len: usize) {
    if number < 16 && len < 0x80 {
        return out.extend_from_slice(&[(number << 3) as u8 | 2, len as u8]);
    }
    varint(out, u64::from(number) << 3 | 2);
    varint(out, len as u64);
}

/// Appends a length-delimited field: a string, bytes, or an encoded message.
#[inline]
pub fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    open(out, number, content.len());
    out.extend_from_slice(content);
}

/// Appends a varint field: an integer, enum or bool. Negative numbers in two's complement.
#[inline]
pub fn integer(out: &mut Vec<u8>, number: u32, value: u64) {
    if number < 16 && value < 0x80 {
        return out.extend_from_slice(&[(number << 3) as u8, value as u8]);
    }
    varint(out, u64::from(number) << 3);
    varint(out, value);
}

/// Appends a `fixed64` field: a timestamp, or a double's bits.
#[inline]
pub fn fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    if number < 16 {
        let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
        return out.extend_from_slice(&[(number << 3) as u8 | 1, a, b, c, d, e, f, g, h]);
    }
    varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// The value of an attribute to write.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar<'a> {
    /// `string_value`
    Str(&'a str),
    /// `bool_value`
    Bool(bool),
    /// `int_value`
    Int(i64),
    /// `double_value`
    Double(f64),
    /// `array_value` of strings
    Strs(&'a [&'a str]),
}

impl Scalar<'_> {
    /// Size of the encoded `AnyValue`.
    fn size(self) -> usize {
        match self {
            Scalar::Str(s) => field_size(1, s.len()),
            Scalar::Bool(_) => 2,
            Scalar::Int(i) => 1 + varint_size(i as u64),
            Scalar::Double(_) => 9,
            Scalar::Strs(all) => field_size(5, strs_size(all)),
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            Scalar::Str(s) => bytes(out, 1, s.as_bytes()),
            Scalar::Bool(b) => integer(out, 2, u64::from(b)),
            Scalar::Int(i) => integer(out, 3, i as u64),
            Scalar::Double(d) => fixed64(out, 4, d.to_bits()),
            Scalar::Strs(all) => {
                open(out, 5, strs_size(all));
                for s in all {
                    open(out, 1, field_size(1, s.len()));
                    bytes(out, 1, s.as_bytes());
                }
            }
        }
    }
}

fn strs_size(all: &[&str]) -> usize {
    all.iter().map(|s| field_size(1, field_size(1, s.len()))).sum()
}

/// Appends an encoded `AnyValue` as field `number` (a log record's body is field 5).
pub fn value(out: &mut Vec<u8>, number: u32, value: Scalar<'_>) {
    open(out, number, value.size());
    value.write(out);
}

/// Appends a `KeyValue` as field `number` of a message: [`SPAN_ATTRIBUTES`],
/// [`super::value::EVENT_ATTRIBUTES`], [`super::value::LOG_ATTRIBUTES`].
pub fn attribute(out: &mut Vec<u8>, number: u32, key: &str, value: Scalar<'_>) {
    if let Scalar::Str(text) = value
        && let size = 6 + key.len() + text.len()
        && number < 16
        && size < 0x80
    {
        // The common case: all lengths take one byte.
        out.reserve(2 + size);
        out.extend_from_slice(&[(number << 3) as u8 | 2, size as u8, 0x0a, key.len() as u8]);
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(&[0x12, 2 + text.len() as u8, 0x0a, text.len() as u8]);
        return out.extend_from_slice(text.as_bytes());
    }
    let value_size = value.size();
    let size = field_size(1, key.len()) + field_size(2, value_size);
    out.reserve(field_size(number, size));
    open(out, number, size);
    bytes(out, 1, key.as_bytes());
    open(out, 2, value_size);
    value.write(out);
}

/// The span without the attributes whose keys begin with `prefix`, every other byte unchanged; `None` if it has none of
/// them. Used for `existing: replace`; no other setting removes received bytes.
pub fn strip_attributes(span: &[u8], prefix: &str) -> Option<Bytes> {
    let mut stripped: Option<Vec<u8>> = None;
    for field in Fields::new(span).map_while(Result::ok) {
        let has_prefix = field.number == SPAN_ATTRIBUTES
            && matches!(field.payload, Payload::Bytes(pair) if key_and_value(pair).0.starts_with(prefix.as_bytes()));
        match (&mut stripped, has_prefix) {
            (None, true) => {
                let mut before = Vec::with_capacity(span.len());
                before.extend_from_slice(span.get(..field.start)?);
                stripped = Some(before);
            }
            (Some(bytes), false) => bytes.extend_from_slice(span.get(field.start..field.end)?),
            _ => {}
        }
    }
    stripped.map(|mut bytes| {
        bytes.shrink_to_fit();
        Bytes::from(bytes)
    })
}

/// A span or log record to write.
#[derive(Clone, Copy, Debug)]
pub struct TelemetryItem<'a> {
    pub envelope: &'a Arc<Envelope>,
    /// The encoded message.
    pub bytes: &'a [u8],
    /// Encoded fields to append to the message, such as attributes.
    pub appended: &'a [u8],
}

impl TelemetryItem<'_> {
    #[inline]
    fn size(&self) -> usize {
        self.bytes.len() + self.appended.len()
    }
}

/// Writes `items` as requests, grouped by resource and scope in order of first appearance; within a
/// group items keep their order. A request is larger than `max_size` bytes only if it contains a single
/// item that exceeds the limit together with its envelope, or a large envelope: see [`request_limit`].
///
/// This serves spans and log records: `ExportLogsServiceRequest` uses the same field numbers at all levels.
pub fn requests(items: &[TelemetryItem<'_>], max_size: usize) -> Vec<Piece> {
    let grouped = group_by_envelope(items);
    let mut pieces = Vec::with_capacity(1);
    let mut remaining = &grouped[..];
    while !remaining.is_empty() {
        let (fitting, others) = remaining.split_at(count_fitting(remaining, max_size));
        pieces.push(write(fitting));
        remaining = others;
    }
    pieces
}

/// The number of envelopes that are looked up by comparing pointers; others are looked up by hash.
const MAX_COMPARED_ENVELOPES: usize = 8;

/// The items in the order of writing; items of one scope have the same envelope pointer.
fn group_by_envelope<'a>(items: &'a [TelemetryItem<'a>]) -> Cow<'a, [TelemetryItem<'a>]> {
    // Small traces often have a single scope; their items need no sorting.
    if items.windows(2).all(|pair| same_scope(&pair[0], &pair[1])) {
        return Cow::Borrowed(items);
    }
    // Distinct envelopes, each with the index of its resource.
    let mut distinct: Vec<(&Arc<Envelope>, usize)> = Vec::with_capacity(MAX_COMPARED_ENVELOPES);
    let mut by_content: HashMap<&Envelope, usize> = HashMap::new();
    let mut resources: HashMap<&EnvelopeFields, usize> = HashMap::new();
    let mut last = 0;
    let mut grouped: Vec<((usize, usize), TelemetryItem<'_>)> = Vec::with_capacity(items.len());
    for item in items {
        // Pointers first: spans of one scope are usually adjacent, and envelopes are interned.
        let has_same_envelope =
            |i: &usize| distinct.get(*i).is_some_and(|(envelope, _)| Arc::ptr_eq(envelope, item.envelope));
        let index = Some(last)
            .filter(has_same_envelope)
            .or_else(|| (0..distinct.len().min(MAX_COMPARED_ENVELOPES)).find(has_same_envelope));
        last = index.unwrap_or_else(|| {
            let new = distinct.len();
            let index = *by_content.entry(item.envelope).or_insert(new);
            if index == new {
                let next = resources.len();
                distinct.push((item.envelope, *resources.entry(&item.envelope.resource).or_insert(next)));
            }
            index
        });
        let (envelope, resource) = distinct[last];
        grouped.push(((resource, last), TelemetryItem { envelope, ..*item }));
    }
    grouped.sort_by_key(|(group, _)| *group);
    grouped.into_iter().map(|(_, item)| item).collect()
}

/// Whether two items returned by [`group_by_envelope`] have the same scope.
fn same_scope(a: &TelemetryItem<'_>, b: &TelemetryItem<'_>) -> bool {
    Arc::ptr_eq(a.envelope, b.envelope)
}

fn same_resource(a: &TelemetryItem<'_>, b: &TelemetryItem<'_>) -> bool {
    same_scope(a, b) || a.envelope.resource == b.envelope.resource
}

/// Largest size of tag and length of a length-delimited field.
const MAX_HEADER_BYTES: usize = 11;

/// Largest size of an envelope that is repeated in requests of any size: about ten times the envelope of an SDK.
const SMALL_ENVELOPE: usize = 16 << 10;

/// The size limit of a request that begins with an envelope of `envelope` bytes. A request with a large envelope may
/// contain items of at least half the envelope's size, whatever `max_size` is. If it contained only one item, a
/// resource of 5 MiB with thousands of spans would become thousands of requests of 5 MiB. With this limit all requests
/// together are a few times as large as their items.
pub fn request_limit(envelope: usize, max_size: usize) -> usize {
    if envelope <= SMALL_ENVELOPE { max_size } else { max_size.max(envelope.saturating_add(envelope / 2)) }
}

/// The number of items that fit into the next request of `max_size`; at least one.
fn count_fitting(grouped: &[TelemetryItem<'_>], max_size: usize) -> usize {
    let envelope = grouped.first().map_or(0, |item| item.envelope.size());
    let max_size = request_limit(envelope, max_size);
    let mut size = 0usize;
    let mut previous: Option<&TelemetryItem<'_>> = None;
    for (i, item) in grouped.iter().enumerate() {
        size += field_size(2, item.size());
        if !previous.is_some_and(|previous| same_scope(previous, item)) {
            size += MAX_HEADER_BYTES + item.envelope.scope.len();
            if !previous.is_some_and(|previous| same_resource(previous, item)) {
                size += MAX_HEADER_BYTES + item.envelope.resource.len();
            }
        }
        if size > max_size && i > 0 {
            return i;
        }
        previous = Some(item);
    }
    grouped.len()
}

/// Writes all of `grouped` as one request.
fn write(grouped: &[TelemetryItem<'_>]) -> Piece {
    // Encoded sizes of the scope and resource messages, in writing order.
    let mut scopes: Vec<usize> = Vec::with_capacity(1);
    let mut resources: Vec<usize> = Vec::with_capacity(1);
    let mut total = 0;
    for resource in grouped.chunk_by(same_resource) {
        let mut resource_size = resource[0].envelope.resource.len();
        for scope in resource.chunk_by(same_scope) {
            let items: usize = scope.iter().map(|item| field_size(2, item.size())).sum();
            let size = scope[0].envelope.scope.len() + items;
            resource_size += field_size(2, size);
            scopes.push(size);
        }
        total += field_size(1, resource_size);
        resources.push(resource_size);
    }
    let mut out = Vec::with_capacity(total);
    let mut scopes = scopes.into_iter();
    for (resource, size) in grouped.chunk_by(same_resource).zip(resources) {
        open(&mut out, 1, size);
        out.extend_from_slice(&resource[0].envelope.resource);
        for (scope, size) in resource.chunk_by(same_scope).zip(&mut scopes) {
            open(&mut out, 2, size);
            out.extend_from_slice(&scope[0].envelope.scope);
            for item in scope {
                open(&mut out, 2, item.size());
                out.extend_from_slice(item.bytes);
                out.extend_from_slice(item.appended);
            }
        }
    }
    Piece { bytes: Bytes::from(out), items: grouped.len() as u64 }
}

#[cfg(test)]
mod tests;
