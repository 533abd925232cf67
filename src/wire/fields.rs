//! A cursor over the fields of one encoded protobuf message.

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
    buf: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Over an encoded message.
    pub fn new(buf: &'a [u8]) -> Fields<'a> {
        Fields { buf, at: 0 }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let rest = &self.buf[self.at..];
        if let Some(&first) = rest.first()
            && first < 0x80
        {
            self.at += 1;
            return Ok(u64::from(first));
        }
        let mut value = 0u64;
        for (i, &byte) in rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(Malformed::Varint)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(len).ok_or(Malformed::CutOff)?;
        let taken = self.buf.get(self.at..end).ok_or(Malformed::CutOff)?;
        self.at = end;
        Ok(taken)
    }

    #[inline]
    fn step(&mut self) -> Result<Field<'a>, Malformed> {
        let start = self.at;
        let tag = self.varint()?;
        let number =
            u32::try_from(tag >> 3).ok().filter(|n| (1..=0x1fff_ffff).contains(n)).ok_or(Malformed::Tag)?;
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => {
                Payload::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Malformed::CutOff)?))
            }
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Malformed::CutOff)?;
                Payload::Bytes(self.take(len)?)
            }
            5 => {
                Payload::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| Malformed::CutOff)?))
            }
            _ => return Err(Malformed::Tag),
        };
        Ok(Field { number, payload, start, end: self.at })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.buf.len() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.at = self.buf.len();
        }
        Some(step)
    }
}
