//! The types of the table in `messages`.

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// Its name in JSON.
    pub(super) json: &'static str,
    /// Its name in the `.proto` file, which parsers must accept as well.
    pub(super) snake: &'static str,
    pub(super) repeated: bool,
    /// Member of the message's only oneof.
    pub(super) oneof: bool,
    pub(super) kind: Kind,
}

/// A field's type.
#[derive(Debug)]
pub(super) enum Kind {
    String,
    Bytes,
    /// Bytes of this length when they are set; hex in JSON.
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
    pub(super) fn packed(&self) -> bool {
        !matches!(self, Kind::String | Kind::Bytes | Kind::Id(_) | Kind::Message(_))
    }

    /// The wire type when not packed.
    pub(super) fn wire_type(&self) -> u32 {
        match self {
            Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => 1,
            Kind::String | Kind::Bytes | Kind::Id(_) | Kind::Message(_) => 2,
            Kind::Fixed32 => 5,
            _ => 0,
        }
    }
}
