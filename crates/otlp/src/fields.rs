//! A cursor over the fields of one encoded protobuf message.

use super::malformed::Malformed;
use super::scan::Scan;

/// A field's content by wire type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Payload<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32(u32),
}

/// One field of an encoded message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Field<'a> {
    pub number: u32,
    pub payload: Payload<'a>,
    /// Offset of the tag in the message.
    pub start: usize,
    /// Offset of the byte after the field.
    pub end: usize,
}

/// Iterates over the fields of a message in order; ends after the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    scan: Scan<'a>,
    len: usize,
}

impl<'a> Fields<'a> {
    pub fn new(buf: &'a [u8]) -> Fields<'a> {
        Fields { scan: Scan::new(buf), len: buf.len() }
    }

    /// The contents of all length-delimited fields `number` before the first error.
    pub fn contents(self, number: u32) -> impl Iterator<Item = &'a [u8]> {
        self.map_while(Result::ok).filter_map(move |field| match field.payload {
            Payload::Bytes(content) if field.number == number => Some(content),
            _ => None,
        })
    }

    #[inline]
    fn step(&mut self) -> Result<Option<Field<'a>>, Malformed> {
        let start = self.len - self.scan.remaining();
        let Some(tag) = self.scan.tag()? else { return Ok(None) };
        if tag >> 3 == 0 {
            return Err(Malformed::Tag);
        }
        let payload = match tag & 7 {
            2 => Payload::Bytes(self.scan.bytes()?),
            0 => Payload::Varint(self.scan.varint()?),
            1 => Payload::Fixed64(self.scan.fixed64()?),
            5 => Payload::Fixed32(self.scan.fixed32()?),
            _ => return Err(Malformed::Tag),
        };
        Ok(Some(Field { number: tag >> 3, payload, start, end: self.len - self.scan.remaining() }))
    }
}

/// Number and content of the length-delimited fields of a message before the first error. Cheaper than [`Fields`],
/// which yields the position of every field.
#[inline]
pub fn byte_fields(message: &[u8]) -> ByteFields<'_> {
    ByteFields { scan: Scan::new(message) }
}

/// The iterator of [`byte_fields`].
#[derive(Clone, Debug)]
pub struct ByteFields<'a> {
    scan: Scan<'a>,
}

impl<'a> ByteFields<'a> {
    /// The unread bytes, which follow the field that was returned last.
    #[inline]
    pub fn unread(&self) -> &'a [u8] {
        self.scan.unread()
    }

    /// Continues with the fields in `unread`.
    #[inline]
    pub fn continue_at(&mut self, unread: &'a [u8]) {
        self.scan = Scan::new(unread);
    }
}

impl<'a> Iterator for ByteFields<'a> {
    type Item = (u32, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let tag = self.scan.tag().ok()??;
            match tag & 7 {
                _ if tag >> 3 == 0 => return None,
                2 => return Some((tag >> 3, self.scan.bytes().ok()?)),
                0 => _ = self.scan.varint().ok()?,
                1 => _ = self.scan.fixed64().ok()?,
                5 => _ = self.scan.fixed32().ok()?,
                _ => return None,
            }
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.scan = Scan::new(&[]);
        }
        step.transpose()
    }
}
