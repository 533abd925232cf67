//! The types by which `messages` describes OTLP's messages.

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    /// Its name within the package.
    pub(super) name: &'static str,
    /// Its fields.
    pub(super) fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// Its name in JSON.
    pub(super) json: &'static str,
    /// Its name in the `.proto` file, which readers of JSON accept as well.
    pub(super) snake: &'static str,
    pub(super) repeated: bool,
    /// It is a member of its message's one oneof.
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
    /// Repeated values stand one after the other in one field.
    pub(super) fn packed(&self) -> bool {
        !matches!(self, Kind::String | Kind::Bytes | Kind::Id(_) | Kind::Message(_))
    }

    /// Its wire type when it is not packed.
    pub(super) fn wire_type(&self) -> u32 {
        match self {
            Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => 1,
            Kind::String | Kind::Bytes | Kind::Id(_) | Kind::Message(_) => 2,
            Kind::Fixed32 => 5,
            _ => 0,
        }
    }
}
