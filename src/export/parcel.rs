//! The unit that exporters queue: the encoded pieces of one trace or request.

use bytes::Bytes;
use verdict_otlp::{Piece, Signal};

use super::split;

/// The requests made of one closed trace, or one request that is forwarded.
///
/// Each piece is a valid `Export*ServiceRequest`, and so is any concatenation of them: OTLP requests
/// have one repeated field, which protobuf joins by appending. Clones share the pieces.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub signal: Signal,
    /// Encoded pieces. A piece above `max_request_size` is split before sending, with a copy.
    pub pieces: Vec<Piece>,
    pub source: ParcelSource,
}

/// Where a parcel comes from: what a sender wrote is no verdict, even if it has the form of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParcelSource {
    /// A request that is forwarded, or spans that are sent on before they are evaluated.
    Sender,
    /// The spans or the evaluation events of a closed trace.
    Trace,
    /// Alarms of an open trace.
    Alarm,
}

impl Parcel {
    /// A request that is forwarded: counts its items, without copying.
    pub fn request(signal: Signal, bytes: Bytes) -> Parcel {
        let items = split::count(signal, &bytes);
        Parcel { signal, pieces: vec![Piece { bytes, items }], source: ParcelSource::Sender }
    }

    /// Bytes of all pieces, as counted by a queue's `sizer: bytes`.
    pub fn size(&self) -> usize {
        self.pieces.iter().map(|p| p.bytes.len()).sum()
    }

    /// Items of all pieces.
    pub fn items(&self) -> u64 {
        self.pieces.iter().map(|p| p.items).sum()
    }
}
