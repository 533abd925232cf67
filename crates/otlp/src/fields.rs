//! A cursor over the fields of one encoded protobuf message.

use super::check::Scan;

/// The bytes are not a protobuf message (or not a valid OTLP one).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// A varint is longer than ten bytes or is cut off.
    #[error("bad varint")]
    Varint,
    /// A field reaches beyond the end of its message.
    #[error("field is cut off")]
    CutOff,
    /// A wire type that proto3 does not use (groups), or field number 0.
    #[error("bad field tag")]
    Tag,
    /// A field that OTLP defines has another wire type.
    #[error("field has the wrong type")]
    Type,
    /// A string is not UTF-8.
    #[error("string is not UTF-8")]
    Utf8,
    /// `AnyValue`s nest deeper than is accepted.
    #[error("values nest too deep")]
    Depth,
    /// A span's trace id is not 16 bytes, or all zero.
    #[error("trace id is not 16 bytes, or zero")]
    TraceId,
    /// A span's own id is not 8 bytes, or all zero.
    #[error("span id is not 8 bytes, or zero")]
    SpanId,
    /// Another id (a parent's, a link's) is there with the wrong length.
    #[error("parent or link id has the wrong length")]
    Id,
}

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

/// One field of a message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Field<'a> {
    /// Its number.
    pub number: u32,
    /// Its content.
    pub payload: Payload<'a>,
    /// Offset of its tag in the message.
    pub start: usize,
    /// Offset of the byte after it.
    pub end: usize,
}

/// Walks the fields of a message in order; ends after the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    scan: Scan<'a>,
    len: usize,
}

impl<'a> Fields<'a> {
    /// Over an encoded message.
    pub fn new(buf: &'a [u8]) -> Fields<'a> {
        Fields { scan: Scan::new(buf), len: buf.len() }
    }

    #[inline]
    fn step(&mut self) -> Result<Option<Field<'a>>, Malformed> {
        let start = self.len - self.scan.left();
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
        Ok(Some(Field { number: tag >> 3, payload, start, end: self.len - self.scan.left() }))
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
