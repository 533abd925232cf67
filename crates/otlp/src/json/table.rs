//! The types of the table in `messages`.

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) json: &'static str,
    /// The name in the `.proto` file, which parsers must accept as well.
    pub(crate) snake: &'static str,
    pub(crate) repeated: bool,
    /// Whether the field is a member of the message's only oneof.
    pub(crate) oneof: bool,
    pub(crate) kind: Kind,
}

impl Field {
    /// Number and wire type as they are encoded.
    pub(crate) fn tag(&self) -> u32 {
        self.number << 3 | if self.repeated && self.kind.packed() { 2 } else { self.kind.wire_type() }
    }
}

#[derive(Debug)]
pub(crate) enum Kind {
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
    Message(&'static Message),
}

impl Kind {
    /// Repeated values are encoded in one length-delimited field.
    pub(crate) fn packed(&self) -> bool {
        !matches!(self, Kind::String | Kind::Bytes | Kind::Id(_) | Kind::Message(_))
    }

    /// The wire type when not packed.
    pub(crate) fn wire_type(&self) -> u32 {
        match self {
            Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => 1,
            Kind::String | Kind::Bytes | Kind::Id(_) | Kind::Message(_) => 2,
            Kind::Fixed32 => 5,
            _ => 0,
        }
    }
}
