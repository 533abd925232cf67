//! The types of the table in `messages`.

#[derive(Debug)]
pub(crate) struct MessageDescriptor {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [FieldDescriptor],
}

#[derive(Debug)]
pub(crate) struct FieldDescriptor {
    pub(crate) number: u32,
    /// The name in OTLP/JSON, in camel case.
    pub(crate) json: &'static str,
    /// The name in the `.proto` file, which parsers must accept as well.
    pub(crate) snake: &'static str,
    pub(crate) repeated: bool,
    /// Whether the field is a member of the message's only oneof.
    pub(crate) oneof: bool,
    pub(crate) kind: FieldKind,
}

impl FieldDescriptor {
    /// Number and wire type as they are encoded.
    pub(crate) fn tag(&self) -> u32 {
        self.number << 3 | if self.repeated && self.kind.is_packable() { 2 } else { self.kind.wire_type() }
    }
}

#[derive(Debug)]
pub(crate) enum FieldKind {
    String,
    Bytes,
    /// Bytes of this length, or none; hex in JSON.
    Id(usize),
    Bool,
    Double,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Fixed32,
    Fixed64,
    Sfixed64,
    /// Names and numbers of its values.
    Enum(&'static [(&'static str, i32)]),
    Message(&'static MessageDescriptor),
}

impl FieldKind {
    /// Whether repeated values are encoded in one length-delimited field.
    pub(crate) fn is_packable(&self) -> bool {
        !matches!(self, FieldKind::String | FieldKind::Bytes | FieldKind::Id(_) | FieldKind::Message(_))
    }

    /// The wire type when not packed.
    pub(crate) fn wire_type(&self) -> u32 {
        match self {
            FieldKind::Double | FieldKind::Fixed64 | FieldKind::Sfixed64 => 1,
            FieldKind::String | FieldKind::Bytes | FieldKind::Id(_) | FieldKind::Message(_) => 2,
            FieldKind::Fixed32 => 5,
            _ => 0,
        }
    }
}
