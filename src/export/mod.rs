//! OTLP out: what stages before it made goes to every exporter, each with its own bounded queue,
//! retries and ledger.
//!
//! In: [`Parcel`]s. Out: requests on the wire, lines in a file, trees on a console; and one
//! outcome per span and exporter.

use bytes::Bytes;

use crate::receive::Signal;
use crate::trace::TraceId;

/// What one closed trace (or one passed-through request) gives an exporter.
///
/// Each piece is a legal `Export*ServiceRequest` by itself, and so is the concatenation of any
/// of them: OTLP's requests hold one repeated field, and protobuf joins those by appending.
/// Cloning is cheap: pieces are shared.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Which service it goes to.
    pub signal: Signal,
    /// Encoded pieces, none larger than the largest request unless a single span is.
    pub pieces: Vec<Piece>,
    /// The trace, where it is one (console and file exporters keep it together).
    pub trace: Option<TraceId>,
}

/// A legal request, and how many items it holds.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The encoded message.
    pub bytes: Bytes,
    /// Spans (or log records, or data points) in it.
    pub items: u64,
}

impl Parcel {
    /// Bytes of all pieces: what a queue's `sizer: bytes` counts.
    pub fn size(&self) -> usize {
        self.pieces.iter().map(|p| p.bytes.len()).sum()
    }

    /// Items of all pieces.
    pub fn items(&self) -> u64 {
        self.pieces.iter().map(|p| p.items).sum()
    }
}
