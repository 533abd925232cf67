//! Protobuf to JSON on one line.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::table::{FieldDescriptor, FieldKind, MessageDescriptor};
use crate::fields::{Fields, Payload};
use crate::malformed::Malformed;
use crate::scan::Scan;
use crate::trace::hex;

/// Largest depth of messages: 64 nested values as [`crate::split`] accepts them, each up to three
/// messages deep, and the levels above them.
const MAX_DEPTH: usize = 256;

pub(super) fn encode(message: &'static MessageDescriptor, encoded: &[u8]) -> Result<Vec<u8>, Malformed> {
    // Names and quotes take as much again as the encoded bytes; strings, most of a trace, keep their length.
    let mut out = Vec::with_capacity(encoded.len() * 2);
    write_message(&mut out, message, encoded, MAX_DEPTH)?;
    Ok(out)
}

/// One occurrence of a field in a protobuf message.
#[derive(Clone, Copy)]
struct FieldOccurrence<'a> {
    /// The index of the field in the table of its message.
    index: usize,
    field: &'static FieldDescriptor,
    payload: Payload<'a>,
}

fn write_message(
    out: &mut Vec<u8>,
    message: &'static MessageDescriptor,
    encoded: &[u8],
    depth: usize,
) -> Result<(), Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
    let mut all: Vec<FieldOccurrence<'_>> = Vec::new();
    for occurrence in Fields::new(encoded) {
        let occurrence = occurrence?;
        if let Some((index, field)) =
            message.fields.iter().enumerate().find(|(_, f)| f.number == occurrence.number)
        {
            all.push(FieldOccurrence { index, field, payload: occurrence.payload });
        }
    }
    keep_last_of_oneofs(&mut all);
    all.sort_by_key(|occurrence| occurrence.index);
    out.push(b'{');
    for group in all.chunk_by(|a, b| a.index == b.index) {
        let Some(FieldOccurrence { field, .. }) = group.first() else { continue };
        write_comma(out, b'{');
        out.push(b'"');
        out.extend_from_slice(field.json.as_bytes());
        out.extend_from_slice(b"\":");
        if field.repeated {
            write_array(out, &field.kind, group, depth)?;
        } else {
            write_single(out, &field.kind, group, depth)?;
        }
    }
    out.push(b'}');
    Ok(())
}

/// Removes all members of a oneof except the last one in the message.
fn keep_last_of_oneofs(all: &mut Vec<FieldOccurrence<'_>>) {
    // No message of OTLP has two oneofs (an `optional` does not count).
    let mut last = None;
    let mut last_start = 0;
    for (i, occurrence) in all.iter().enumerate() {
        if occurrence.field.oneof && last != Some(occurrence.index) {
            last = Some(occurrence.index);
            last_start = i;
        }
    }
    let mut i = 0;
    all.retain(|occurrence| {
        i += 1;
        !occurrence.field.oneof || i > last_start
    });
}

fn write_array(
    out: &mut Vec<u8>,
    kind: &'static FieldKind,
    all: &[FieldOccurrence<'_>],
    depth: usize,
) -> Result<(), Malformed> {
    out.push(b'[');
    for occurrence in all {
        match occurrence.payload {
            Payload::Bytes(packed) if kind.is_packable() => {
                let mut scan = Scan::new(packed);
                while scan.remaining() > 0 {
                    write_comma(out, b'[');
                    let payload = match kind.wire_type() {
                        1 => Payload::Fixed64(scan.fixed64()?),
                        5 => Payload::Fixed32(scan.fixed32()?),
                        _ => Payload::Varint(scan.varint()?),
                    };
                    write_value(out, kind, payload, depth)?;
                }
            }
            payload => {
                write_comma(out, b'[');
                write_value(out, kind, payload, depth)?;
            }
        }
    }
    out.push(b']');
    Ok(())
}

/// Writes a comma before every value but the first; `open` is the bracket that precedes the first.
fn write_comma(out: &mut Vec<u8>, open: u8) {
    if out.last() != Some(&open) {
        out.push(b',');
    }
}

/// The last occurrence of a scalar field counts; occurrences of a message are merged.
fn write_single(
    out: &mut Vec<u8>,
    kind: &'static FieldKind,
    all: &[FieldOccurrence<'_>],
    depth: usize,
) -> Result<(), Malformed> {
    match (kind, all) {
        (FieldKind::Message(message), [_, _, ..]) => {
            let mut merged = Vec::new();
            for occurrence in all {
                let Payload::Bytes(part) = occurrence.payload else { return Err(Malformed::Type) };
                merged.extend_from_slice(part);
            }
            write_message(out, message, &merged, depth)
        }
        (_, [.., last]) => write_value(out, kind, last.payload, depth),
        (_, []) => Ok(()),
    }
}

fn write_value(
    out: &mut Vec<u8>,
    kind: &'static FieldKind,
    payload: Payload<'_>,
    depth: usize,
) -> Result<(), Malformed> {
    match (kind, payload) {
        (FieldKind::Message(message), Payload::Bytes(b)) => write_message(out, message, b, depth)?,
        (FieldKind::String, Payload::Bytes(b)) => {
            let text = simdutf8::basic::from_utf8(b).map_err(|_| Malformed::Utf8)?;
            write_json(out, &text);
        }
        (FieldKind::Bytes, Payload::Bytes(b)) => write_json(out, &STANDARD.encode(b)),
        (FieldKind::Id(_), Payload::Bytes(b)) => {
            out.push(b'"');
            out.extend(hex(b));
            out.push(b'"');
        }
        (FieldKind::Bool, Payload::Varint(v)) => write_json(out, &(v != 0)),
        (FieldKind::Int32 | FieldKind::Enum(_), Payload::Varint(v)) => write_json(out, &(v as i32)),
        (FieldKind::Uint32, Payload::Varint(v)) => write_json(out, &(v as u32)),
        (FieldKind::Sint32, Payload::Varint(v)) => {
            write_json(out, &((v as u32 >> 1) as i32 ^ -((v & 1) as i32)))
        }
        (FieldKind::Fixed32, Payload::Fixed32(v)) => write_json(out, &v),
        (FieldKind::Int64, Payload::Varint(v)) | (FieldKind::Sfixed64, Payload::Fixed64(v)) => {
            write_json(out, &(v as i64).to_string());
        }
        (FieldKind::Uint64, Payload::Varint(v)) | (FieldKind::Fixed64, Payload::Fixed64(v)) => {
            write_json(out, &v.to_string())
        }
        (FieldKind::Double, Payload::Fixed64(v)) => match f64::from_bits(v) {
            d if d.is_nan() => write_json(out, "NaN"),
            f64::INFINITY => write_json(out, "Infinity"),
            f64::NEG_INFINITY => write_json(out, "-Infinity"),
            d => write_json(out, &d),
        },
        _ => return Err(Malformed::Type),
    }
    Ok(())
}

/// Writes a string, number or boolean.
fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing strings and numbers to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}
