//! The cursor that all readers of protobuf bytes use: tags, varints, fixed-size and
//! length-delimited fields.
//!
//! In: an encoded message. Out: its fields one by one, or [`Malformed`]. Every read consumes at least
//! one byte, so a loop over a [`Scan`] ends after at most as many steps as there are bytes.

use super::malformed::Malformed;

/// Bit `n` is set for field `n` of a message: the fields that OTLP defines, for [`Scan::skip`].
type Defined = u32;

/// The unread bytes of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan<'a> {
    unread: &'a [u8],
}

impl<'a> Scan<'a> {
    #[inline]
    pub(crate) fn new(unread: &'a [u8]) -> Scan<'a> {
        Scan { unread }
    }

    /// The unread bytes.
    #[inline]
    pub(crate) fn unread(&self) -> &'a [u8] {
        self.unread
    }

    /// Number of unread bytes.
    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.unread.len()
    }

    /// The next field's tag (number and wire type as they are encoded), `None` at the end.
    #[inline]
    pub(crate) fn tag(&mut self) -> Result<Option<u32>, Malformed> {
        match self.unread.split_first() {
            None => Ok(None),
            Some((&first, unread)) if first < 0x80 => {
                self.unread = unread;
                Ok(Some(u32::from(first)))
            }
            Some(_) => u32::try_from(self.long_varint()?).map(Some).map_err(|_| Malformed::Tag),
        }
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        match self.unread.split_first() {
            Some((&first, unread)) if first < 0x80 => {
                self.unread = unread;
                Ok(u64::from(first))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (i, &byte) in self.unread.iter().take(10).enumerate() {
            if i == 9 && byte > 1 {
                break; // more than 64 bits
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.unread = self.unread.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(Malformed::Varint)
    }

    /// The content of a length-delimited field.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let (len, unread) = match self.unread {
            [one, unread @ ..] if *one < 0x80 => (usize::from(*one), unread),
            [one, two, unread @ ..] if *two < 0x80 => {
                (usize::from(*one & 0x7f) | usize::from(*two) << 7, unread)
            }
            _ => {
                let len = usize::try_from(self.long_varint()?).map_err(|_| Malformed::CutOff)?;
                (len, self.unread)
            }
        };
        let (bytes, unread) = unread.split_at_checked(len).ok_or(Malformed::CutOff)?;
        self.unread = unread;
        Ok(bytes)
    }

    /// The content of a `string` field.
    #[inline]
    pub(crate) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let bytes = self.bytes()?;
        utf8(bytes)?;
        Ok(bytes)
    }

    /// Eight bytes, little endian.
    #[inline]
    pub(crate) fn fixed64(&mut self) -> Result<u64, Malformed> {
        let (bytes, unread) = self.unread.split_first_chunk().ok_or(Malformed::CutOff)?;
        self.unread = unread;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Four bytes, little endian.
    #[inline]
    pub(crate) fn fixed32(&mut self) -> Result<u32, Malformed> {
        let (bytes, unread) = self.unread.split_first_chunk().ok_or(Malformed::CutOff)?;
        self.unread = unread;
        Ok(u32::from_le_bytes(*bytes))
    }

    /// Skips a field whose tag the caller does not handle. The caller handles all `defined` fields: a tag of
    /// one of them is passed only if its wire type is wrong, which is an error.
    #[cold]
    pub(crate) fn skip(&mut self, tag: u32, defined: Defined) -> Result<(), Malformed> {
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

/// Calls `on_field` with tag and content of every field that has one of the (length-delimited) `tags`.
pub(crate) fn for_each_field<'a>(
    encoded: &'a [u8],
    tags: &[u32],
    on_field: &mut dyn FnMut(u32, &'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let defined = tags.iter().fold(0, |fields, tag| fields | 1 << (tag >> 3));
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        if tags.contains(&tag) {
            on_field(tag, scan.bytes()?)?;
        } else {
            scan.skip(tag, defined)?;
        }
    }
    Ok(())
}

/// Validates a string. Keys and names are mostly short and ASCII, which is checked without a loop;
/// vectorised validation is faster only for longer strings.
#[inline]
pub(crate) fn utf8(bytes: &[u8]) -> Result<(), Malformed> {
    if is_short_ascii(bytes) {
        return Ok(());
    }
    simdutf8::basic::from_utf8(bytes).map(drop).map_err(|_| Malformed::Utf8)
}

/// True for ASCII of up to 128 bytes.
#[inline]
pub(crate) fn is_short_ascii(bytes: &[u8]) -> bool {
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

/// True if the first and the last `N` bytes are ASCII, which are all bytes of a slice of `N` to `2 N` bytes.
#[inline]
fn ends_are_ascii<const N: usize>(bytes: &[u8]) -> bool {
    let (Some(start), Some(end)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else { return false };
    start.iter().zip(end).fold(0, |all, (a, b)| all | a | b) < 0x80
}
