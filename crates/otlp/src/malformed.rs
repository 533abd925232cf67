//! The error of reading OTLP bytes.

/// The bytes are not a protobuf message, or not a valid OTLP one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// `AnyValue`s are nested deeper than allowed.
    #[error("values are nested too deeply")]
    Depth,
    /// A span's trace id is not 16 bytes, or all zero.
    #[error("trace id is not 16 bytes, or zero")]
    TraceId,
    /// A span's own id is not 8 bytes, or all zero.
    #[error("span id is not 8 bytes, or zero")]
    SpanId,
    /// The id of a parent or link has the wrong length.
    #[error("parent or link id has the wrong length")]
    Id,
}
