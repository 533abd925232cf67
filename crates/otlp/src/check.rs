//! Validates OTLP's nested messages without decoding them.
//!
//! In: an encoded message. Out: nothing, or the reason why it is [`Malformed`]. A full decoder accepts
//! every message that passes these checks: the wire types of all fields that OTLP defines, UTF-8 of all
//! strings, lengths of ids, bounded depth. Fields that OTLP does not define are skipped. Attributes
//! and status, which most spans have, are read by functions of their own; the others by a table.

use std::borrow::Cow;

use super::fields::{Fields, Payload};
use super::json::table::{FieldDescriptor, FieldKind, MessageDescriptor};
use super::malformed::Malformed;
use super::scan::{Scan, is_short_ascii, utf8};
use super::tags::{self, any_value, array_value, key_value, key_value_list, status};
use super::write;

/// How deep `AnyValue`s may nest. Instrumentations write two or three levels; the bound protects the
/// stack from hostile input.
pub(super) const MAX_DEPTH: u32 = 64;

/// An id that may be absent: empty or exactly `N` bytes.
#[inline]
pub(super) fn optional_id<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Malformed> {
    if bytes.is_empty() { Ok([0; N]) } else { bytes.try_into().map_err(|_| Malformed::Id) }
}

/// Checks a `KeyValue` and returns its key.
#[inline]
pub(super) fn key_value(encoded: &[u8], depth: u32) -> Result<&[u8], Malformed> {
    match common_pair_key(encoded) {
        Some(key) => Ok(key),
        None => any_pair_key(encoded, depth),
    }
}

/// Key and value of a pair that consists of a key and then a string; `None` for any other form.
#[inline]
fn text_pair(encoded: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut scan = Scan::new(encoded);
    let key = (scan.tag() == Ok(Some(key_value::KEY))).then(|| scan.bytes().ok())??;
    let value = (scan.tag() == Ok(Some(key_value::VALUE))).then(|| scan.bytes().ok())??;
    let mut value_scan = Scan::new(value);
    let text = (value_scan.tag() == Ok(Some(any_value::STRING_VALUE))).then(|| value_scan.bytes().ok())??;
    (scan.remaining() == 0 && value_scan.remaining() == 0).then_some((key, text))
}

/// The key of a pair in its most common form: short, key first, then a string or a small number;
/// `None` for any other form. Tags and lengths below 128 are ASCII as well, so one ASCII check of the
/// whole pair validates both strings.
#[inline]
fn common_pair_key(encoded: &[u8]) -> Option<&[u8]> {
    const KEY: u8 = tags::key_value::KEY as u8;
    const VALUE: u8 = tags::key_value::VALUE as u8;
    const TEXT: u8 = tags::any_value::STRING_VALUE as u8;
    const BOOL: u8 = tags::any_value::BOOL_VALUE as u8;
    const INT: u8 = tags::any_value::INT_VALUE as u8;
    let [KEY, len, rest @ ..] = encoded else { return None };
    if !is_short_ascii(encoded) {
        return None;
    }
    let (key, value) = rest.split_at_checked(usize::from(*len))?;
    let [VALUE, len, value @ ..] = value else { return None };
    let is_common = match value {
        [TEXT, len, text @ ..] => usize::from(*len) == text.len(),
        [BOOL | INT, _] => true,
        _ => false,
    };
    (is_common && usize::from(*len) == value.len()).then_some(key)
}

/// Checks a `KeyValue` in any form and returns its key.
fn any_pair_key(encoded: &[u8], depth: u32) -> Result<&[u8], Malformed> {
    if let Some((key, text)) = text_pair(encoded) {
        utf8(key)?;
        utf8(text)?;
        return Ok(key);
    }
    let mut scan = Scan::new(encoded);
    let mut key: &[u8] = &[];
    while let Some(tag) = scan.tag()? {
        match tag {
            key_value::KEY => key = scan.text()?,
            key_value::VALUE => any_value(scan.bytes()?, depth)?,
            key_value::KEY_STRINDEX => drop(scan.varint()?),
            _ => scan.skip(tag, key_value::DEFINED)?,
        }
    }
    Ok(key)
}

/// Checks an `AnyValue` that may contain `depth` further levels.
#[inline]
pub(super) fn any_value(encoded: &[u8], depth: u32) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            any_value::STRING_VALUE => drop(scan.text()?),
            any_value::BOOL_VALUE | any_value::INT_VALUE | any_value::STRING_VALUE_STRINDEX => {
                scan.varint()?;
            }
            any_value::DOUBLE_VALUE => drop(scan.fixed64()?),
            any_value::ARRAY_VALUE => list(scan.bytes()?, false, depth)?,
            any_value::KVLIST_VALUE => list(scan.bytes()?, true, depth)?,
            any_value::BYTES_VALUE => drop(scan.bytes()?),
            _ => scan.skip(tag, any_value::DEFINED)?,
        }
    }
    Ok(())
}

/// Checks an `ArrayValue`, or a `KeyValueList` if `is_map`.
fn list(encoded: &[u8], is_map: bool, depth: u32) -> Result<(), Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            key_value_list::VALUES if is_map => drop(key_value(scan.bytes()?, depth)?),
            array_value::VALUES => any_value(scan.bytes()?, depth)?,
            _ => scan.skip(tag, array_value::DEFINED)?,
        }
    }
    Ok(())
}

/// Checks the fields of a message against the table of OTLP's messages.
pub(super) fn message(encoded: &[u8], message: &'static MessageDescriptor) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        let Some(field) = message.fields.iter().find(|field| field.tag() == tag || is_unpacked(field, tag))
        else {
            scan.skip(tag, message.fields.iter().fold(0, |defined, field| defined | 1 << field.number))?;
            continue;
        };
        match field.kind {
            FieldKind::String => drop(scan.text()?),
            FieldKind::Id(16) => drop(optional_id::<16>(scan.bytes()?)?),
            FieldKind::Id(_) => drop(optional_id::<8>(scan.bytes()?)?),
            // `KeyValue` and `AnyValue` may contain each other, so their depth is bounded.
            FieldKind::Message(MessageDescriptor { name: "KeyValue", .. }) => {
                key_value(scan.bytes()?, MAX_DEPTH).map(drop)?
            }
            FieldKind::Message(MessageDescriptor { name: "AnyValue", .. }) => {
                any_value(scan.bytes()?, MAX_DEPTH)?
            }
            FieldKind::Message(inner) => self::message(scan.bytes()?, inner)?,
            _ if field.tag() == tag && field.repeated && field.kind.is_packable() => {
                packed(scan.bytes()?, field)?
            }
            _ => scan.skip(tag, 0)?,
        }
    }
    Ok(())
}

/// Decoders accept a repeated number with a tag for each value as well.
fn is_unpacked(field: &FieldDescriptor, tag: u32) -> bool {
    field.repeated && field.kind.is_packable() && tag == field.number << 3 | field.kind.wire_type()
}

/// Checks the values of a packed field.
fn packed(values: &[u8], field: &FieldDescriptor) -> Result<(), Malformed> {
    let size = match field.kind.wire_type() {
        1 => 8,
        5 => 4,
        _ => {
            let mut scan = Scan::new(values);
            while scan.remaining() > 0 {
                scan.varint()?;
            }
            return Ok(());
        }
    };
    if values.len().is_multiple_of(size) { Ok(()) } else { Err(Malformed::CutOff) }
}

/// Copies a message and replaces each message nested at `path`, the tags from the outermost field to the
/// innermost, by the result of `replace`; `None` omits the nested message.
pub(super) fn copy_valid<'a>(
    message: &'a [u8],
    path: &[u32],
    replace: &mut dyn FnMut(&'a [u8]) -> Option<Cow<'a, [u8]>>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len());
    for field in Fields::new(message).map_while(Result::ok) {
        match (field.payload, path) {
            (Payload::Bytes(inner), [tag, deeper @ ..]) if field.number == tag >> 3 => {
                let copied = match deeper {
                    [] => replace(inner),
                    _ => Some(Cow::Owned(copy_valid(inner, deeper, replace))),
                };
                copied.iter().for_each(|inner| write::bytes(&mut out, field.number, inner));
            }
            _ => out.extend_from_slice(message.get(field.start..field.end).unwrap_or_default()),
        }
    }
    out
}

/// Checks a `Status` and returns its code, if it is set.
pub(super) fn status(encoded: &[u8]) -> Result<Option<u64>, Malformed> {
    let mut scan = Scan::new(encoded);
    let mut code = None;
    while let Some(tag) = scan.tag()? {
        match tag {
            status::MESSAGE => drop(scan.text()?),
            status::CODE => code = Some(scan.varint()?),
            _ => scan.skip(tag, status::DEFINED)?,
        }
    }
    Ok(code)
}
