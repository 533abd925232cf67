//! Structure of OTLP's nested messages, checked without decoding them.
//!
//! In: encoded attributes, events, links, status, resource, scope. Out: nothing, or why they are
//! [`Malformed`]. What passes here is what a receiver that decodes fully would accept: wire types
//! of every field that OTLP defines, UTF-8 of every string, lengths of ids, bounded depth. Fields
//! that OTLP does not define are stepped over.

use super::fields::Malformed;

/// How deep `AnyValue`s may nest. Instrumentations write two or three levels; the bound keeps
/// hostile input from using up the stack.
pub const MAX_DEPTH: u32 = 64;

/// Bit `n` stands for field `n` of a message: those which OTLP defines, for [`Scan::skip`].
type Defined = u32;

/// Of what stands around a resource's or scope's spans, or log records.
pub(super) const AROUND: Defined = 0b1110;
const RESOURCE: Defined = 0b1110;
const SCOPE: Defined = 0b1_1110;
const ENTITY: Defined = 0b1_1110;
const KEY_VALUE: Defined = 0b1110;
const ANY_VALUE: Defined = 0b1_1111_1110;
const LIST: Defined = 0b10;
const EVENT: Defined = 0b1_1110;
const LINK: Defined = 0b111_1110;
const STATUS: Defined = 0b1100;

/// What is left of a message. Reads panic on no bytes, and every one moves forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    #[inline]
    pub(super) fn new(rest: &'a [u8]) -> Scan<'a> {
        Scan { rest }
    }

    /// Bytes not read yet.
    #[inline]
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next field's tag (number and wire type as they are encoded), `None` at the end.
    #[inline]
    pub(super) fn tag(&mut self) -> Result<Option<u32>, Malformed> {
        match self.rest.split_first() {
            None => Ok(None),
            Some((&first, rest)) if first < 0x80 => {
                self.rest = rest;
                Ok(Some(u32::from(first)))
            }
            Some(_) => u32::try_from(self.long_varint()?).map(Some).map_err(|_| Malformed::Tag),
        }
    }

    /// A varint.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Malformed> {
        match self.rest.split_first() {
            Some((&first, rest)) if first < 0x80 => {
                self.rest = rest;
                Ok(u64::from(first))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            if i == 9 && byte > 1 {
                break; // more than 64 bits
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(Malformed::Varint)
    }

    /// The content of a length-delimited field.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = match self.rest {
            [one, rest @ ..] if *one < 0x80 => {
                self.rest = rest;
                usize::from(*one)
            }
            [one, two, rest @ ..] if *two < 0x80 => {
                self.rest = rest;
                usize::from(*one & 0x7f) | usize::from(*two) << 7
            }
            _ => usize::try_from(self.long_varint()?).map_err(|_| Malformed::CutOff)?,
        };
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed::CutOff)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The content of a `string` field.
    #[inline]
    pub(super) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let bytes = self.bytes()?;
        utf8(bytes)?;
        Ok(bytes)
    }

    /// Eight bytes, little endian.
    #[inline]
    pub(super) fn fixed64(&mut self) -> Result<u64, Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed::CutOff)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*taken))
    }

    /// Four bytes, little endian.
    #[inline]
    pub(super) fn fixed32(&mut self) -> Result<u32, Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed::CutOff)?;
        self.rest = rest;
        Ok(u32::from_le_bytes(*taken))
    }

    /// Steps over a field that the caller does not know by its tag. One that OTLP does define got
    /// here because its wire type is wrong.
    #[cold]
    pub(super) fn skip(&mut self, tag: u32, defined: Defined) -> Result<(), Malformed> {
        let number = tag >> 3;
        if number == 0 {
            return Err(Malformed::Tag);
        }
        if number < 32 && defined >> number & 1 == 1 {
            return Err(Malformed::Type);
        }
        match tag & 7 {
            0 => self.varint().map(drop),
            1 => self.fixed64().map(drop),
            2 => self.bytes().map(drop),
            5 => self.fixed32().map(drop),
            _ => Err(Malformed::Tag),
        }
    }
}

/// Checks a string. Keys and names are short and ASCII, which is told here without a loop; a call
/// to the vectorised check pays off on what is longer.
#[inline]
pub(super) fn utf8(bytes: &[u8]) -> Result<(), Malformed> {
    if is_short_ascii(bytes) {
        return Ok(());
    }
    simdutf8::basic::from_utf8(bytes).map(drop).map_err(|_| Malformed::Utf8)
}

/// True for ASCII of up to 128 bytes.
#[inline]
fn is_short_ascii(bytes: &[u8]) -> bool {
    match bytes.len() {
        0..4 => bytes.is_ascii(),
        4..8 => ends_are_ascii::<4>(bytes),
        8..16 => ends_are_ascii::<8>(bytes),
        16..32 => ends_are_ascii::<16>(bytes),
        32..64 => ends_are_ascii::<32>(bytes),
        64..=128 => ends_are_ascii::<64>(bytes),
        _ => false,
    }
}

/// True if the first and the last `N` bytes are ASCII: all of them, of `N` to `2 N` bytes.
#[inline]
fn ends_are_ascii<const N: usize>(bytes: &[u8]) -> bool {
    let (Some(start), Some(end)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else { return false };
    start.iter().zip(end).fold(0, |all, (a, b)| all | a | b) < 0x80
}

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

/// The key of a pair such as most are: short, its key first, then a text or a small number; `None`
/// says to look closer. Tags and lengths below 128 are ASCII too, so that one look at the whole pair
/// answers for both of its strings.
#[inline]
fn plain_pair(encoded: &[u8]) -> Option<&[u8]> {
    let [0x0a, len, rest @ ..] = encoded else { return None };
    if !is_short_ascii(encoded) {
        return None;
    }
    let (key, value) = rest.split_at_checked(usize::from(*len))?;
    let [0x12, len, value @ ..] = value else { return None };
    let plain = match value {
        [0x0a, len, text @ ..] => usize::from(*len) == text.len(),
        [0x10 | 0x18, _] => true,
        _ => false,
    };
    (plain && usize::from(*len) == value.len()).then_some(key)
}

fn any_pair(encoded: &[u8], depth: u32) -> Result<&[u8], Malformed> {
    let mut scan = Scan::new(encoded);
    let mut key: &[u8] = &[];
    while let Some(tag) = scan.tag()? {
        match tag {
            0x0a => key = scan.text()?,
            0x12 => any_value(scan.bytes()?, depth)?,
            0x18 => drop(scan.varint()?),
            _ => scan.skip(tag, KEY_VALUE)?,
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
            0x0a => drop(scan.text()?),
            0x10 | 0x18 | 0x40 => drop(scan.varint()?),
            0x21 => drop(scan.fixed64()?),
            0x2a | 0x32 => list(scan.bytes()?, tag == 0x32, depth)?,
            0x3a => drop(scan.bytes()?),
            _ => scan.skip(tag, ANY_VALUE)?,
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
            0x0a if keyed => drop(key_value(scan.bytes()?, depth)?),
            0x0a => any_value(scan.bytes()?, depth)?,
            _ => scan.skip(tag, LIST)?,
        }
    }
    Ok(())
}

/// Checks a `Resource`.
pub(super) fn resource(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            0x0a => drop(key_value(scan.bytes()?, MAX_DEPTH)?),
            0x10 => drop(scan.varint()?),
            0x1a => entity(scan.bytes()?)?,
            _ => scan.skip(tag, RESOURCE)?,
        }
    }
    Ok(())
}

fn entity(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            0x0a | 0x12 | 0x1a | 0x22 => drop(scan.text()?),
            _ => scan.skip(tag, ENTITY)?,
        }
    }
    Ok(())
}

/// Checks an `InstrumentationScope`.
pub(super) fn scope(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            0x0a | 0x12 => drop(scan.text()?),
            0x1a => drop(key_value(scan.bytes()?, MAX_DEPTH)?),
            0x20 => drop(scan.varint()?),
            _ => scan.skip(tag, SCOPE)?,
        }
    }
    Ok(())
}

/// Checks a `Span.Event`.
pub(super) fn event(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            0x09 => drop(scan.fixed64()?),
            0x12 => drop(scan.text()?),
            0x1a => drop(key_value(scan.bytes()?, MAX_DEPTH)?),
            0x20 => drop(scan.varint()?),
            _ => scan.skip(tag, EVENT)?,
        }
    }
    Ok(())
}

/// Checks a `Span.Link`. Its ids may be absent; receivers refuse any other length.
pub(super) fn link(encoded: &[u8]) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            0x0a => drop(optional_id::<16>(scan.bytes()?)?),
            0x12 => drop(optional_id::<8>(scan.bytes()?)?),
            0x1a => drop(scan.text()?),
            0x22 => drop(key_value(scan.bytes()?, MAX_DEPTH)?),
            0x28 => drop(scan.varint()?),
            0x35 => drop(scan.fixed32()?),
            _ => scan.skip(tag, LINK)?,
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
            0x12 => drop(scan.text()?),
            0x18 => code = Some(scan.varint()?),
            _ => scan.skip(tag, STATUS)?,
        }
    }
    Ok(code)
}
