//! The unit that exporters queue: the encoded pieces of one trace or request.

use bytes::Bytes;
use verdict_otlp::{Piece, Signal};

use super::split;

/// The encoded requests of one closed trace, or one forwarded request.
///
/// Each piece is a valid `Export*ServiceRequest`, and so is any concatenation of them: OTLP requests
/// have one repeated field, which protobuf joins by appending. Clones share the pieces.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub signal: Signal,
    /// Encoded requests. One above `max_request_size` is split before it is sent, which copies it.
    pub pieces: Vec<Piece>,
    pub source: ParcelSource,
}

/// The origin of a parcel. Records of a sender are not verdicts, even if they have the form of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParcelSource {
    /// A forwarded request, or spans that are exported before they are evaluated.
    Sender,
    /// The spans or the evaluation events of a closed trace.
    Trace,
    /// Alarms of an open trace.
    Alarm,
}

impl Parcel {
    /// The parcel of a forwarded request. Its items are counted without a copy.
    pub fn request(signal: Signal, bytes: Bytes) -> Parcel {
        let items = split::count(signal, &bytes);
        Parcel { signal, pieces: vec![Piece { bytes, items }], source: ParcelSource::Sender }
    }

    /// Bytes of all pieces, by which a queue with `sizer: bytes` counts.
    pub fn size(&self) -> usize {
        self.pieces.iter().map(|p| p.bytes.len()).sum()
    }

    /// Items of all pieces.
    pub fn items(&self) -> u64 {
        self.pieces.iter().map(|p| p.items).sum()
    }
}
