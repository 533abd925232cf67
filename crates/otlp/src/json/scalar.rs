//! Encodes single JSON values as protobuf scalars.

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};

use super::table::FieldKind;
use crate::write;

/// Padding is optional in protobuf's JSON mapping.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// A JSON value that is neither array nor object.
#[derive(Clone, Copy)]
pub(super) enum JsonScalar<'a> {
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(&'a str),
}

/// The expected form of a value, for error messages.
pub(super) fn expected(kind: &FieldKind) -> &'static str {
    match kind {
        FieldKind::String => "a string",
        FieldKind::Bytes => "a string in base64",
        FieldKind::Id(16) => "a trace id as 32 hex digits",
        FieldKind::Id(_) => "a span id as 16 hex digits",
        FieldKind::Bool => "true or false",
        FieldKind::Double => "a number",
        FieldKind::Int32 | FieldKind::Sint32 => "a 32-bit integer",
        FieldKind::Uint32 | FieldKind::Fixed32 => "an unsigned 32-bit integer",
        FieldKind::Int64 | FieldKind::Sfixed64 => "a 64-bit integer",
        FieldKind::Uint64 | FieldKind::Fixed64 => "an unsigned 64-bit integer",
        FieldKind::Enum(_) => "an enum's number or name",
        FieldKind::Message(_) => "an object",
    }
}

/// Appends the value without its tag; `None` if it does not fit the field's type.
pub(super) fn write_scalar(out: &mut Vec<u8>, kind: &FieldKind, scalar: JsonScalar<'_>) -> Option<()> {
    match (kind, scalar) {
        (FieldKind::String, JsonScalar::Text(s)) => write_length_delimited(out, s.as_bytes()),
        (FieldKind::Bytes, JsonScalar::Text(s)) => write_length_delimited(out, &base64(s)?),
        (FieldKind::Id(len), JsonScalar::Text(s)) => write_length_delimited(out, &id(s, *len)?),
        (FieldKind::Bool, JsonScalar::Bool(b)) => out.push(u8::from(b)),
        (FieldKind::Double, scalar) => out.extend_from_slice(&double(scalar)?.to_le_bytes()),
        (FieldKind::Int32, scalar) => write::varint(out, i64::from(integer::<i32>(scalar)?) as u64),
        (FieldKind::Int64, scalar) => write::varint(out, integer::<i64>(scalar)? as u64),
        (FieldKind::Uint32, scalar) => write::varint(out, integer::<u32>(scalar)?.into()),
        (FieldKind::Uint64, scalar) => write::varint(out, integer(scalar)?),
        (FieldKind::Sint32, scalar) => {
            let value: i32 = integer(scalar)?;
            write::varint(out, ((value << 1 ^ value >> 31) as u32).into());
        }
        (FieldKind::Fixed32, scalar) => out.extend_from_slice(&integer::<u32>(scalar)?.to_le_bytes()),
        (FieldKind::Fixed64, scalar) => out.extend_from_slice(&integer::<u64>(scalar)?.to_le_bytes()),
        (FieldKind::Sfixed64, scalar) => out.extend_from_slice(&integer::<i64>(scalar)?.to_le_bytes()),
        (FieldKind::Enum(values), scalar) => {
            let number = match scalar {
                JsonScalar::Text(s) => values.iter().find(|(name, _)| *name == s).map(|(_, number)| *number),
                _ => None,
            };
            let number = number.or_else(|| integer(scalar))?;
            write::varint(out, i64::from(number) as u64);
        }
        _ => return None,
    }
    Some(())
}

fn write_length_delimited(out: &mut Vec<u8>, content: &[u8]) {
    write::varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// An integer, written as a number or a string; protobuf also allows `1e3` and `5.0`.
fn integer<T: TryFrom<i128>>(scalar: JsonScalar<'_>) -> Option<T> {
    let from_float = |f: f64| (f.fract() == 0.0 && f.abs() < 2e19).then_some(f as i128);
    let integer = match scalar {
        JsonScalar::Bool(_) => None,
        JsonScalar::Integer(i) => Some(i),
        JsonScalar::Float(f) => from_float(f),
        JsonScalar::Text(s) => s.parse().ok().or_else(|| s.parse().ok().and_then(from_float)),
    };
    T::try_from(integer?).ok()
}

fn double(scalar: JsonScalar<'_>) -> Option<f64> {
    match scalar {
        JsonScalar::Bool(_) => None,
        JsonScalar::Integer(i) => Some(i as f64),
        JsonScalar::Float(f) => Some(f),
        // Rust's parser accepts protobuf's `NaN`, `Infinity` and `-Infinity`, and more.
        JsonScalar::Text(s) => s.parse().ok(),
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

/// An id of `len` bytes. Hex of another length is accepted: validation rejects the span with such an id
/// later, and not the whole request, as with protobuf.
pub(super) fn id(text: &str, len: usize) -> Option<Vec<u8>> {
    let unpadded = (len * 4).div_ceil(3);
    if (text.len() == unpadded || text.len() == unpadded.next_multiple_of(4))
        && let Some(id) = base64(text).filter(|id| id.len() == len)
    {
        return Some(id);
    }
    let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    digits.chunks(2).map(|pair| u8::try_from(pair.first()? << 4 | pair.get(1)?).ok()).collect()
}
