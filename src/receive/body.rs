//! Bodies: unpacked under limits while they come in, into one allocation that is theirs alone.
//!
//! In: pieces of a body as the connection yields them. Out: the message. Every piece is copied
//! (or inflated) exactly once and then let go, so that no read buffer of a connection stays
//! pinned by what is kept of it. Neither a stated length nor a compression ratio is trusted:
//! memory grows with what really came, up to the limit, and is held against a bound that all
//! requests share.

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use prometheus_client::metrics::gauge::Gauge;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// A length up to this is believed and allocated at once: it costs address space until bytes
/// really come. Batches of agent spans are mostly below it.
const BELIEVED: usize = 1 << 20;

/// The smallest step in which the output of a decompressor grows.
const STEP: usize = 16 << 10;

/// Largest zstd window, as a power of two: 32 MiB. Encoders use 8 MiB (RFC 9659 lets HTTP use no
/// more), but one in wide use takes up to 32 at its best level.
const ZSTD_WINDOW_LOG: u32 = 25;

/// Output up to this is not held against the ratio: small bodies of one repeated line shrink
/// more than any batch does, and do no harm.
const RATIO_FREE: usize = 1 << 20;

/// Why a body could not be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// Over the limit, before or after decompression.
    #[error("the request is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// More came out of few bytes than telemetry has in it.
    #[error("the request grew more than {ratio} times when it was unpacked")]
    Ratio {
        /// The limit.
        ratio: u32,
    },
    /// No room among the requests in flight.
    #[error("too many bytes of requests are in flight")]
    NoRoom,
    /// It is not compressed, or not framed, as it claims.
    #[error("{0}")]
    Malformed(String),
    /// It ended early, or stalled.
    #[error("{0}")]
    CutOff(&'static str),
}

/// How a body is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Zlib,
    Zstd,
}

/// Bounds the bytes of all requests in flight; counts in the gauge that telemetry shows.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub(crate) held: Gauge,
    pub(crate) limit: u64,
}

impl Room {
    pub(crate) fn hold(&self) -> Hold {
        Hold { room: self.clone(), bytes: 0 }
    }
}

/// One request's share of a [`Room`]; given back when dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    room: Room,
    bytes: i64,
}

impl Hold {
    fn grow(&mut self, bytes: usize) -> Result<(), BodyError> {
        let more = i64::try_from(bytes).map_err(|_| BodyError::NoRoom)?;
        let before = self.room.held.inc_by(more);
        self.bytes += more;
        // A request that is alone is let through, else one above the limit could never come in.
        let others = before > self.bytes - more;
        if others && u64::try_from(before + more).is_ok_and(|held| held > self.room.limit) {
            return Err(BodyError::NoRoom);
        }
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.room.held.dec_by(self.bytes);
    }
}

enum Codec {
    Identity,
    Zlib { state: Box<Decompress>, gzip: bool, done: bool },
    Zstd { state: Box<Decoder<'static>>, done: bool },
}

/// A body on its way in.
pub(crate) struct Unpack {
    codec: Codec,
    out: Vec<u8>,
    /// The length that the sender stated, of the body as sent.
    stated: Option<usize>,
    limit: usize,
    ratio: u32,
    /// Bytes that came in.
    fed: usize,
    hold: Hold,
}

impl Unpack {
    pub(crate) fn new(
        coding: Coding,
        stated: Option<usize>,
        limit: usize,
        hold: Hold,
    ) -> Result<Unpack, BodyError> {
        if stated.is_some_and(|stated| stated > limit) {
            return Err(BodyError::TooLarge { limit });
        }
        let codec = match coding {
            Coding::Identity => Codec::Identity,
            Coding::Gzip | Coding::Zlib => {
                let gzip = coding == Coding::Gzip;
                Codec::Zlib { state: Box::new(inflater(gzip)), gzip, done: false }
            }
            Coding::Zstd => {
                let mut state = Decoder::new().map_err(|_| BodyError::NoRoom)?;
                state
                    .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))
                    .map_err(|_| BodyError::NoRoom)?;
                Codec::Zstd { state: Box::new(state), done: false }
            }
        };
        Ok(Unpack { codec, out: Vec::new(), stated, limit, ratio: u32::MAX, fed: 0, hold })
    }

    /// Bounds how much larger than it came in it may become.
    pub(crate) fn at_most_times(self, ratio: u32) -> Unpack {
        Unpack { ratio, ..self }
    }

    /// Takes the next piece.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), BodyError> {
        self.fed = self.fed.saturating_add(piece.len());
        match self.codec {
            Codec::Identity => self.copy(piece),
            Codec::Zlib { .. } => self.inflate(piece),
            Codec::Zstd { .. } => self.unzstd(piece),
        }
    }

    fn copy(&mut self, piece: &[u8]) -> Result<(), BodyError> {
        let need = self.out.len().saturating_add(piece.len());
        if need > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        if need > self.out.capacity() {
            let doubled = need.max(self.out.capacity().saturating_mul(2));
            self.widen(match self.stated {
                Some(stated) if stated <= BELIEVED => stated.max(need),
                Some(stated) => doubled.max(BELIEVED).min(stated.max(need)),
                None => doubled.min(self.limit),
            })?;
        }
        self.out.extend_from_slice(piece);
        Ok(())
    }

    /// Makes the output as large as `capacity`, within the room there is.
    fn widen(&mut self, capacity: usize) -> Result<(), BodyError> {
        let before = self.out.capacity();
        self.hold.grow(capacity.saturating_sub(before))?;
        self.out.try_reserve_exact(capacity.saturating_sub(self.out.len())).map_err(|_| BodyError::NoRoom)
    }

    /// Makes sure that a decompressor has somewhere to write. One byte beyond the limit is
    /// allowed, to tell "just fits" from "goes on".
    fn widen_for_more(&mut self) -> Result<(), BodyError> {
        if self.out.len() > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        if self.out.len() > RATIO_FREE && self.out.len() / self.fed.max(1) >= self.ratio as usize {
            return Err(BodyError::Ratio { ratio: self.ratio });
        }
        if self.out.len() == self.out.capacity() {
            let first = self.stated.unwrap_or(0).saturating_mul(4).clamp(STEP, BELIEVED);
            let next = self.out.capacity().saturating_mul(2).max(first);
            self.widen(next.min(self.limit.saturating_add(1)))?;
        }
        Ok(())
    }

    fn inflate(&mut self, mut piece: &[u8]) -> Result<(), BodyError> {
        loop {
            self.widen_for_more()?;
            let Codec::Zlib { state, gzip, done } = &mut self.codec else { return Ok(()) };
            if *done {
                if piece.is_empty() {
                    return Ok(());
                }
                // gzip members may follow one another; that makes their contents one.
                if !*gzip {
                    return Err(BodyError::Malformed("bytes after the end of the zlib stream".to_owned()));
                }
                **state = inflater(true);
                *done = false;
            }
            let (read, written) = (state.total_in(), self.out.len());
            let status = state
                .decompress_vec(piece, &mut self.out, FlushDecompress::None)
                .map_err(|e| BodyError::Malformed(format!("bad compressed data: {e}")))?;
            let read = usize::try_from(state.total_in() - read).unwrap_or(usize::MAX);
            piece = piece.get(read..).unwrap_or_default();
            match status {
                Status::StreamEnd => *done = true,
                _ if read == 0 && self.out.len() == written => {
                    // No progress with room to write: it wants bytes that are yet to come.
                    return if piece.is_empty() {
                        Ok(())
                    } else {
                        Err(BodyError::Malformed("bad compressed data".to_owned()))
                    };
                }
                _ => {}
            }
        }
    }

    fn unzstd(&mut self, piece: &[u8]) -> Result<(), BodyError> {
        let mut input = InBuffer::around(piece);
        loop {
            self.widen_for_more()?;
            let Codec::Zstd { state, done } = &mut self.codec else { return Ok(()) };
            let (read, written) = (input.pos(), self.out.len());
            let mut output = OutBuffer::around_pos(&mut self.out, written);
            let hint = state
                .run(&mut input, &mut output)
                .map_err(|e| BodyError::Malformed(format!("bad zstd data: {e}")))?;
            let idle = input.pos() == read && self.out.len() == written;
            if !idle {
                *done = hint == 0;
            }
            // A full output may hide more behind it; otherwise it wants bytes yet to come.
            if input.pos() == piece.len() && (idle || self.out.len() < self.out.capacity()) {
                return Ok(());
            }
            if idle {
                return Err(BodyError::Malformed("bad zstd data".to_owned()));
            }
        }
    }

    /// The whole message, in an allocation of its own size, and its share of the room.
    pub(crate) fn finish(mut self) -> Result<(Bytes, Hold), BodyError> {
        let whole = match self.codec {
            Codec::Identity => true,
            Codec::Zlib { done, .. } | Codec::Zstd { done, .. } => done,
        };
        if !whole {
            return Err(BodyError::Malformed("the compressed data is cut off".to_owned()));
        }
        if self.out.len() > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        // Slices of it may live as long as a trace: what is beyond its length would be pinned.
        self.out.shrink_to_fit();
        Ok((Bytes::from(self.out), self.hold))
    }
}

fn inflater(gzip: bool) -> Decompress {
    // 15 is the largest window that the format knows (32 KiB).
    if gzip { Decompress::new_gzip(15) } else { Decompress::new(true) }
}

#[cfg(test)]
mod tests;
