//! Builds a request from pieces.
//!
//! In: encoded pieces. Out: one request in several buffers. Large buffers share the memory of the pieces; small pieces
//! are copied into one buffer, since a frame and a write for each would cost more. A compressed request is one buffer,
//! which is compressed once for all attempts.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use verdict_otlp::Signal;

use super::config::{Compression, Packing};
use crate::logging::join_error_reason;

/// Pieces below this size are copied into a shared buffer; larger ones are sent without a copy.
const MIN_UNCOPIED_BYTES: usize = 8 << 10;

/// Requests of this size or more are compressed on a blocking thread, since it takes more than a millisecond.
const MIN_BLOCKING_BYTES: usize = 128 << 10;

/// One `Export*ServiceRequest`, which can be sent any number of times.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    pub(super) signal: Signal,
    chunks: Vec<Bytes>,
    pub(super) compression: Compression,
    delivered: Arc<Mutex<DeliveryProgress>>,
}

/// The progress of a request that its client sends as several messages: a retry sends only the remaining messages, and
/// completed chunks do not become dead letters.
#[derive(Clone, Default, Debug)]
pub(super) struct DeliveryProgress {
    /// Indices of the messages that need not be sent again, in the order in which the client makes them.
    pub messages: BTreeSet<usize>,
    /// Indices of the messages that the destination refused permanently.
    pub refused: BTreeSet<usize>,
    /// The reason of the first refusal.
    pub reason: String,
    /// Indices of the chunks of which no message remains to be sent, each with the number of its refused messages.
    pub chunks: BTreeMap<usize, u64>,
}

impl Compression {
    /// The name in `grpc-encoding` and `content-encoding`.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Compression::None => None,
            Compression::Gzip => Some("gzip"),
            Compression::Zstd => Some("zstd"),
        }
    }
}

impl Packing {
    pub(super) const UNCOMPRESSED: Packing = Packing { compression: Compression::None, level: 0 };

    /// Joins the pieces and compresses them if configured.
    pub(super) async fn pack(self, signal: Signal, pieces: impl Iterator<Item = &Bytes>) -> ExportRequest {
        let plain = ExportRequest::new(signal, join(pieces), Compression::None);
        if self.compression == Compression::None || plain.chunks.is_empty() {
            return plain;
        }
        let packed = if plain.len() < MIN_BLOCKING_BYTES {
            self.compress(&plain.chunks)
        } else {
            let chunks = plain.chunks.clone();
            let task = tokio::task::spawn_blocking(move || self.compress(&chunks));
            task.await.unwrap_or_else(|e| Err(io::Error::other(join_error_reason(&e))))
        };
        match packed {
            Ok(bytes) => ExportRequest::new(signal, vec![bytes.into()], self.compression),
            Err(error) => {
                tracing::warn!(%error, "cannot compress a request; sending it uncompressed");
                plain
            }
        }
    }

    fn compress(self, chunks: &[Bytes]) -> io::Result<Vec<u8>> {
        match self.compression {
            Compression::None => Ok(chunks.concat()),
            Compression::Gzip => {
                let level = flate2::Compression::new(self.level.min(9));
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                chunks.iter().try_for_each(|chunk| encoder.write_all(chunk))?;
                encoder.finish()
            }
            Compression::Zstd => {
                let level = i32::try_from(self.level.clamp(1, 22)).unwrap_or(1);
                let mut encoder = zstd::Encoder::new(Vec::new(), level)?;
                chunks.iter().try_for_each(|chunk| encoder.write_all(chunk))?;
                encoder.finish()
            }
        }
    }
}

/// Joins adjacent small pieces.
fn join<'a>(pieces: impl Iterator<Item = &'a Bytes>) -> Vec<Bytes> {
    let pieces: Vec<&Bytes> = pieces.filter(|piece| !piece.is_empty()).collect();
    pieces.chunk_by(|a, b| a.len().max(b.len()) < MIN_UNCOPIED_BYTES).map(concat).collect()
}

/// Concatenates buffers into one. A single buffer is not copied.
fn concat(chunks: &[impl Borrow<Bytes>]) -> Bytes {
    match chunks {
        [one] => one.borrow().clone(),
        several => {
            let mut joined = BytesMut::with_capacity(several.iter().map(|b| b.borrow().len()).sum());
            several.iter().for_each(|b| joined.extend_from_slice(b.borrow()));
            joined.freeze()
        }
    }
}

impl ExportRequest {
    /// A request in which each piece is a buffer of its own.
    pub(super) fn from_pieces<'a>(signal: Signal, pieces: impl Iterator<Item = &'a Bytes>) -> ExportRequest {
        ExportRequest::new(signal, pieces.cloned().collect(), Compression::None)
    }

    fn new(signal: Signal, chunks: Vec<Bytes>, compression: Compression) -> ExportRequest {
        ExportRequest { signal, chunks, compression, delivered: Arc::default() }
    }

    pub(super) fn delivered(&self) -> MutexGuard<'_, DeliveryProgress> {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// The encoded request in one buffer. OTLP requests have one repeated field, so concatenated requests
    /// of one signal are a request too.
    pub fn to_bytes(&self) -> Bytes {
        concat(&self.chunks)
    }

    /// Buffers that are each a valid request, and together this request.
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// Size on the wire, in bytes.
    fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    pub(super) fn body(&self) -> PackedBody {
        PackedBody { chunks: self.chunks.iter().cloned().collect(), remaining: self.len() as u64 }
    }

    /// The body of a gRPC request: one message after its five-byte prefix.
    pub(super) fn grpc_body(&self) -> PackedBody {
        let mut body = self.body();
        let mut prefix = BytesMut::with_capacity(5);
        prefix.put_u8(u8::from(self.compression != Compression::None));
        prefix.put_u32(u32::try_from(body.remaining).unwrap_or(u32::MAX));
        body.remaining += prefix.len() as u64;
        body.chunks.push_front(prefix.freeze());
        body
    }
}

/// A body of known length in several buffers.
#[derive(Debug)]
pub(super) struct PackedBody {
    chunks: VecDeque<Bytes>,
    remaining: u64,
}

impl http_body::Body for PackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.chunks.pop_front();
        self.remaining -= next.as_ref().map_or(0, |chunk| chunk.len() as u64).min(self.remaining);
        Poll::Ready(next.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn large_pieces_are_not_copied_and_small_ones_are_joined() {
        let large = Bytes::from(vec![7u8; MIN_UNCOPIED_BYTES]);
        let pieces =
            [Bytes::from_static(b"ab"), Bytes::from_static(b"cd"), large.clone(), Bytes::from_static(b"e")];
        let packing = Packing { compression: Compression::None, level: 1 };
        let packed = packing.pack(Signal::Traces, pieces.iter()).await;
        assert_eq!(packed.chunks.len(), 3);
        assert_eq!(packed.chunks[1].as_ptr(), large.as_ptr());
        assert_eq!(packed.chunks[0], "abcd");
        let body = packed.grpc_body().collect().await.unwrap().to_bytes();
        assert_eq!(body[..5], [0, 0, 0, 0x20, 0x05]);
        assert_eq!(body[5..], pieces.concat());
    }

    #[tokio::test]
    async fn both_compressions_round_trip() {
        let pieces = [Bytes::from(vec![1u8; MIN_BLOCKING_BYTES]), Bytes::from_static(b"tail")];
        for compression in [Compression::Gzip, Compression::Zstd] {
            let packed = Packing { compression, level: 1 }.pack(Signal::Traces, pieces.iter()).await;
            assert!(packed.len() < 10_000 && packed.compression == compression);
            let bytes = packed.body().collect().await.unwrap().to_bytes();
            let mut out = Vec::new();
            match compression {
                Compression::Gzip => {
                    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut out).unwrap();
                }
                _ => out = zstd::decode_all(&bytes[..]).unwrap(),
            }
            assert_eq!(out, pieces.concat());
        }
    }
}
