//! OTLP bytes out: single fields, attributes, and whole requests made of spans that stay bytes.
//!
//! In: encoded spans, each with the encoded fields that were appended to it, under their
//! envelopes. Out: legal requests in allocations of their exact size. Nothing is re-encoded: a
//! span is written as it came, followed by what was appended, which protobuf reads as one message.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::check::Scan;
use super::fields::{Fields, Payload};
use super::value::SPAN_ATTRIBUTES;
use crate::export::Piece;
use crate::trace::Envelope;

/// Bytes that `value` takes as a varint: 1-10.
#[inline]
pub const fn varint_size(value: u64) -> usize {
    // Seven bits a byte; zero takes one as well.
    ((64 - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

/// Bytes that a length-delimited field takes with `len` bytes of content.
#[inline]
pub const fn field_size(number: u32, len: usize) -> usize {
    varint_size((number as u64) << 3) + varint_size(len as u64) + len
}

/// Appends a varint.
#[inline]
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends tag and length of a length-delimited field; its content is to follow.
#[inline]
pub fn open(out: &mut Vec<u8>, number: u32, len: usize) {
    varint(out, u64::from(number) << 3 | 2);
    varint(out, len as u64);
}

/// Appends a length-delimited field: a string, bytes, or an encoded message.
#[inline]
pub fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    open(out, number, content.len());
    out.extend_from_slice(content);
}

/// Appends a varint field: an integer, enum or bool. Negative numbers go as their two's complement.
pub fn integer(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number) << 3);
    varint(out, value);
}

/// Appends a `fixed64` field: a timestamp, or a double's bits.
pub fn fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `fixed32` field: flags.
pub fn fixed32(out: &mut Vec<u8>, number: u32, value: u32) {
    varint(out, u64::from(number) << 3 | 5);
    out.extend_from_slice(&value.to_le_bytes());
}

/// The value of an attribute that we write.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Plain<'a> {
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

impl Plain<'_> {
    /// Bytes of the encoded `AnyValue`.
    fn size(self) -> usize {
        match self {
            Plain::Str(s) => field_size(1, s.len()),
            Plain::Bool(_) => 2,
            Plain::Int(i) => 1 + varint_size(i as u64),
            Plain::Double(_) => 9,
            Plain::Strs(all) => field_size(5, strs_size(all)),
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            Plain::Str(s) => bytes(out, 1, s.as_bytes()),
            Plain::Bool(b) => integer(out, 2, u64::from(b)),
            Plain::Int(i) => integer(out, 3, i as u64),
            Plain::Double(d) => fixed64(out, 4, d.to_bits()),
            Plain::Strs(all) => {
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
pub fn value(out: &mut Vec<u8>, number: u32, value: Plain<'_>) {
    open(out, number, value.size());
    value.write(out);
}

/// Appends a `KeyValue` as field `number` of a message: [`SPAN_ATTRIBUTES`],
/// [`super::value::EVENT_ATTRIBUTES`], [`super::value::LOG_ATTRIBUTES`].
pub fn attribute(out: &mut Vec<u8>, number: u32, key: &str, of: Plain<'_>) {
    open(out, number, field_size(1, key.len()) + field_size(2, of.size()));
    bytes(out, 1, key.as_bytes());
    value(out, 2, of);
}

/// The span without its attributes whose keys begin with `prefix`, every other byte as it was;
/// `None` if it has none such. For `existing: replace`, the one change made to what came in.
pub fn strip_attributes(span: &[u8], prefix: &str) -> Option<Bytes> {
    let mut kept: Option<Vec<u8>> = None;
    for field in Fields::new(span).map_while(Result::ok) {
        let ours = field.number == SPAN_ATTRIBUTES
            && matches!(field.payload, Payload::Bytes(pair) if key(pair).starts_with(prefix.as_bytes()));
        match (&mut kept, ours) {
            (None, true) => {
                let mut before = Vec::with_capacity(span.len());
                before.extend_from_slice(span.get(..field.start)?);
                kept = Some(before);
            }
            (Some(kept), false) => kept.extend_from_slice(span.get(field.start..field.end)?),
            _ => {}
        }
    }
    kept.map(|mut kept| {
        kept.shrink_to_fit();
        Bytes::from(kept)
    })
}

/// The key of an encoded `KeyValue`: the last, should it hold several.
fn key(pair: &[u8]) -> &[u8] {
    let mut scan = Scan::new(pair);
    let mut key: &[u8] = &[];
    while let Ok(Some(tag)) = scan.tag() {
        let read = if tag == 0x0a { scan.bytes().map(|b| key = b) } else { scan.skip(tag, 0) };
        if read.is_err() {
            break;
        }
    }
    key
}

/// A span (or log record) to be written.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// What stands around it.
    pub envelope: &'a Arc<Envelope>,
    /// The encoded message.
    pub bytes: &'a [u8],
    /// Encoded fields that follow it and belong to it.
    pub appended: &'a [u8],
}

impl Item<'_> {
    #[inline]
    fn size(&self) -> usize {
        self.bytes.len() + self.appended.len()
    }
}

/// Requests that hold `items`, grouped by resource and scope in order of first appearance, items
/// of a group in their order. No request is larger than `max_size` bytes, unless it holds but one
/// item that is larger with its envelope.
///
/// Serves spans and log records: `ExportLogsServiceRequest` has the same fields at all its levels.
pub fn requests(items: &[Item<'_>], max_size: usize) -> Vec<Piece> {
    let (order, envelopes) = group(items);
    let mut pieces = Vec::new();
    let mut draft = Draft::default();
    for index in order {
        let Some((item, &at)) = items.get(index).zip(envelopes.get(index)) else { continue };
        if draft.items > 0 && draft.size + draft.cost(item, at) > max_size {
            pieces.push(std::mem::take(&mut draft).write());
        }
        draft.add(item, at);
    }
    if draft.items > 0 {
        pieces.push(draft.write());
    }
    pieces
}

/// Where an item belongs: number of its resource, number of its envelope.
type At = (usize, usize);

/// The order to write items in, and where each belongs.
fn group(items: &[Item<'_>]) -> (Vec<usize>, Vec<At>) {
    let mut distinct: Vec<(&Arc<Envelope>, At)> = Vec::new();
    let mut by_content: HashMap<&Envelope, usize> = HashMap::new();
    let mut resources: HashMap<&[u8], usize> = HashMap::new();
    let mut last = 0;
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        // Pointers first: spans of one scope mostly follow each other, and envelopes are interned.
        let same = |i: &usize| distinct.get(*i).is_some_and(|(known, _)| Arc::ptr_eq(known, item.envelope));
        let found = Some(last).filter(same).or_else(|| (0..distinct.len().min(FEW)).find(same));
        last = found.unwrap_or_else(|| {
            let new = distinct.len();
            let index = *by_content.entry(item.envelope).or_insert(new);
            if index == new {
                let next = resources.len();
                let resource = *resources.entry(&item.envelope.resource).or_insert(next);
                distinct.push((item.envelope, (resource, new)));
            }
            index
        });
        all.push(distinct.get(last).map_or((0, 0), |(_, at)| *at));
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    if distinct.len() > 1 {
        order.sort_by_key(|&i| all.get(i));
    }
    (order, all)
}

/// This many envelopes of a trace are found by comparing pointers before contents are hashed.
const FEW: usize = 8;

/// One scope's items in a request.
struct Run<'a> {
    envelope: &'a Envelope,
    at: At,
    items: Vec<Item<'a>>,
    /// Bytes of the encoded items, with their tags and lengths.
    size: usize,
}

impl Run<'_> {
    fn scope_size(&self) -> usize {
        self.envelope.scope.len() + self.size
    }
}

/// A request being put together.
#[derive(Default)]
struct Draft<'a> {
    runs: Vec<Run<'a>>,
    items: u64,
    /// An upper bound of its bytes.
    size: usize,
}

/// Tag and longest possible length of a field that wraps others.
const WRAP: usize = 11;

impl<'a> Draft<'a> {
    /// By how much, at most, `item` would make the request larger.
    fn cost(&self, item: &Item<'_>, at: At) -> usize {
        let last = self.runs.last().map(|run| run.at);
        let mut cost = field_size(2, item.size());
        if last != Some(at) {
            cost += WRAP + item.envelope.scope.len();
        }
        if last.map(|last| last.0) != Some(at.0) {
            cost += WRAP + item.envelope.resource.len();
        }
        cost
    }

    fn add(&mut self, item: &Item<'a>, at: At) {
        self.size += self.cost(item, at);
        self.items += 1;
        if self.runs.last().is_none_or(|run| run.at != at) {
            self.runs.push(Run { envelope: item.envelope, at, items: Vec::new(), size: 0 });
        }
        if let Some(run) = self.runs.last_mut() {
            run.size += field_size(2, item.size());
            run.items.push(*item);
        }
    }

    fn write(self) -> Piece {
        let by_resource = || self.runs.chunk_by(|a, b| a.at.0 == b.at.0);
        let resource_size = |runs: &[Run<'_>]| {
            let scopes: usize = runs.iter().map(|run| field_size(2, run.scope_size())).sum();
            runs.first().map_or(0, |run| run.envelope.resource.len()) + scopes
        };
        let size = by_resource().map(|runs| field_size(1, resource_size(runs))).sum();
        let mut out = Vec::with_capacity(size);
        for runs in by_resource() {
            open(&mut out, 1, resource_size(runs));
            if let Some(run) = runs.first() {
                out.extend_from_slice(&run.envelope.resource);
            }
            for run in runs {
                open(&mut out, 2, run.scope_size());
                out.extend_from_slice(&run.envelope.scope);
                for item in &run.items {
                    open(&mut out, 2, item.size());
                    out.extend_from_slice(item.bytes);
                    out.extend_from_slice(item.appended);
                }
            }
        }
        Piece { bytes: Bytes::from(out), items: self.items }
    }
}

#[cfg(test)]
mod tests;
