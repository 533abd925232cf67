//! Structure of OTLP's nested messages, checked without decoding them.
//!
//! In: encoded attributes, events, links, status, resource, scope. Out: nothing, or why they are
//! [`Malformed`]. What passes here is what a receiver that decodes fully would accept: wire types
//! of every field that OTLP defines, UTF-8 of every string, lengths of ids, bounded depth. Fields
//! that OTLP does not define are stepped over.

use super::malformed::Malformed;
use super::scan::{Scan, is_short_ascii};
use super::tags::{
    self, any_value, array_value, entity_ref, instrumentation_scope as scope, key_value, key_value_list,
    resource, span_event as event, span_link as link, status,
};

/// How deep `AnyValue`s may nest. Instrumentations write two or three levels; the bound keeps
/// hostile input from using up the stack.
pub const MAX_DEPTH: u32 = 64;

/// An id that may be absent: empty or exactly `N` bytes.
#[inline]
pub(super) fn optional_id<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Malformed> {
    if bytes.is_empty() { Ok([0; N]) } else { bytes.try_into().map_err(|_| Malformed::Id) }
}

/// Checks a `KeyValue` and returns its key.
#[inline]
pub(super) fn key_value(encoded: &[u8], depth: u32) -> Result<&[u8], Malformed> {
    match plain_pair(encoded) {
        Some(key) => Ok(key),
        None => any_pair(encoded, depth),
    }
}

/// The key of a pair in its most common form: short, key first, then a string or a small number;
/// `None` for any other form. Tags and lengths below 128 are ASCII too, so one ASCII check of the
/// whole pair covers both of its strings.
#[inline]
fn plain_pair(encoded: &[u8]) -> Option<&[u8]> {
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
    let plain = match value {
        [TEXT, len, text @ ..] => usize::from(*len) == text.len(),
        [BOOL | INT, _] => true,
        _ => false,
    };
    (plain && usize::from(*len) == value.len()).then_some(key)
}

fn any_pair(encoded: &[u8], depth: u32) -> Result<&[u8], Malformed> {
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

/// Checks an `AnyValue` that may hold `depth` further levels.
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

/// Checks an `ArrayValue`, or a `KeyValueList` if `keyed`.
fn list(encoded: &[u8], keyed: bool, depth: u32) -> Result<(), Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            key_value_list::VALUES if keyed => drop(key_value(scan.bytes()?, depth)?),
            array_value::VALUES => any_value(scan.bytes()?, depth)?,
            _ => scan.skip(tag, array_value::DEFINED)?,
        }
    }
    Ok(())
}

/// Checks a `Resource`.
pub(super) fn resource(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            resource::ATTRIBUTES => drop(key_value(scan.bytes()?, MAX_DEPTH)?),
            resource::DROPPED_ATTRIBUTES_COUNT => drop(scan.varint()?),
            resource::ENTITY_REFS => entity(scan.bytes()?)?,
            _ => scan.skip(tag, resource::DEFINED)?,
        }
    }
    Ok(())
}

fn entity(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            entity_ref::SCHEMA_URL
            | entity_ref::TYPE
            | entity_ref::ID_KEYS
            | entity_ref::DESCRIPTION_KEYS => drop(scan.text()?),
            _ => scan.skip(tag, entity_ref::DEFINED)?,
        }
    }
    Ok(())
}

/// Checks an `InstrumentationScope`.
pub(super) fn scope(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            scope::NAME | scope::VERSION => drop(scan.text()?),
            scope::ATTRIBUTES => drop(key_value(scan.bytes()?, MAX_DEPTH)?),
            scope::DROPPED_ATTRIBUTES_COUNT => drop(scan.varint()?),
            _ => scan.skip(tag, scope::DEFINED)?,
        }
    }
    Ok(())
}

/// Checks a `Span.Event`.
pub(super) fn event(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            event::TIME_UNIX_NANO => drop(scan.fixed64()?),
            event::NAME => drop(scan.text()?),
            event::ATTRIBUTES => drop(key_value(scan.bytes()?, MAX_DEPTH)?),
            event::DROPPED_ATTRIBUTES_COUNT => drop(scan.varint()?),
            _ => scan.skip(tag, event::DEFINED)?,
        }
    }
    Ok(())
}

/// Checks a `Span.Link`. Its ids may be absent; receivers refuse any other length.
pub(super) fn link(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            link::TRACE_ID => drop(optional_id::<16>(scan.bytes()?)?),
            link::SPAN_ID => drop(optional_id::<8>(scan.bytes()?)?),
            link::TRACE_STATE => drop(scan.text()?),
            link::ATTRIBUTES => drop(key_value(scan.bytes()?, MAX_DEPTH)?),
            link::DROPPED_ATTRIBUTES_COUNT => drop(scan.varint()?),
            link::FLAGS => drop(scan.fixed32()?),
            _ => scan.skip(tag, link::DEFINED)?,
        }
    }
    Ok(())
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
