//! Request bodies, decompressed under limits while they are received, into one allocation each.
//!
//! In: chunks of a body as the connection yields them. Out: the message. Every chunk is copied or
//! decompressed exactly once and then released, so that no message keeps a connection's read buffer
//! in memory. Neither the content length nor the compression ratio is trusted: memory grows with
//! the bytes received, up to the limit. This memory and that of the decompressor count in a limit that all requests
//! share.
//! Capacity that is allocated and not yet written is not counted: until then it costs address space only.

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::reservation::FairReservation;

/// The content length up to which the whole body is allocated before it arrives. Batches of agent spans are mostly
/// smaller.
const TRUSTED_LENGTH: usize = 1 << 20;

/// Smallest initial output buffer of a decompressor.
const MIN_OUTPUT_BYTES: usize = 16 << 10;

/// Largest zstd window, as a power of two: 32 MiB. RFC 9659 limits HTTP to 8 MiB, but a widely used
/// encoder takes up to 32 MiB at its best level.
const ZSTD_WINDOW_LOG: u32 = 25;

/// Memory of an inflater: a window of 32 KiB, and tables.
const INFLATER_BYTES: usize = 48 << 10;

/// Memory of a zstd decoder without its window: context, and a block of 128 KiB as input.
const ZSTD_DECODER_BYTES: usize = 256 << 10;

/// Up to this size of the output the ratio is not checked: small bodies of one repeated line compress better than any
/// batch and are harmless.
const MIN_RATIO_CHECKED: usize = 1 << 20;

/// The reason for which a body was rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// Larger than the limit, before or after decompression.
    #[error("the request is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the decompressed request is more than {ratio} times as large as the compressed one")]
    DecompressionRatio { ratio: u32 },
    #[error("too many bytes of requests are in flight")]
    InFlightLimit,
    /// The body is not compressed or framed as declared.
    #[error("{0}")]
    Malformed(String),
    /// The body ended early, or stalled.
    #[error("{0}")]
    CutOff(&'static str),
}

pub(crate) fn malformed(text: impl Into<String>) -> BodyError {
    BodyError::Malformed(text.into())
}

/// The compression of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Zlib,
    Zstd,
}

enum Codec {
    Identity,
    Zlib { state: Box<Decompress>, is_gzip: bool, has_ended: bool },
    Zstd { state: Box<Decoder<'static>>, has_ended: bool },
}

/// Collects and decompresses one body.
pub(crate) struct BodyDecoder {
    codec: Codec,
    out: Vec<u8>,
    /// The declared length of the body, before decompression.
    content_length: Option<usize>,
    max_size: usize,
    max_ratio: u32,
    /// Bytes received, before decompression.
    received: usize,
    /// Bytes of the headers of the request.
    overhead: usize,
    reservation: FairReservation,
}

impl BodyDecoder {
    pub(crate) fn new(
        coding: Coding,
        content_length: Option<usize>,
        max_size: usize,
        max_ratio: u32,
        (overhead, reservation): (usize, FairReservation),
    ) -> Result<BodyDecoder, BodyError> {
        if content_length.is_some_and(|length| length > max_size) {
            return Err(BodyError::TooLarge { limit: max_size });
        }
        let codec = match coding {
            Coding::Identity => Codec::Identity,
            Coding::Gzip | Coding::Zlib => {
                let is_gzip = coding == Coding::Gzip;
                Codec::Zlib { state: Box::new(inflater(is_gzip)), is_gzip, has_ended: false }
            }
            Coding::Zstd => {
                let mut state = Decoder::new().map_err(|_| BodyError::InFlightLimit)?;
                state
                    .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))
                    .map_err(|_| BodyError::InFlightLimit)?;
                Codec::Zstd { state: Box::new(state), has_ended: false }
            }
        };
        let mut decoder = BodyDecoder {
            codec,
            out: Vec::new(),
            content_length,
            max_size,
            max_ratio,
            received: 0,
            overhead,
            reservation,
        };
        // Headers and decompressor are in memory before the first byte of the body arrives.
        decoder.charge(0)?;
        Ok(decoder)
    }

    /// Adds the next chunk of the body.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), BodyError> {
        self.received = self.received.saturating_add(chunk.len());
        match self.codec {
            Codec::Identity => self.copy(chunk)?,
            Codec::Zlib { .. } => self.inflate(chunk)?,
            Codec::Zstd { .. } => self.decompress_zstd(chunk)?,
        }
        self.charge(self.out.capacity())
    }

    /// Charges an output of this capacity: the written bytes, and as many again, since a larger allocation may be
    /// a copy of them.
    fn charge(&mut self, capacity: usize) -> Result<(), BodyError> {
        let written = self.out.len();
        let decompressor = match self.codec {
            Codec::Identity => 0,
            Codec::Zlib { .. } => INFLATER_BYTES,
            // The window fills with the output.
            Codec::Zstd { .. } => ZSTD_DECODER_BYTES + written.min(1 << ZSTD_WINDOW_LOG),
        };
        let bytes = self.overhead + decompressor + capacity.min(written.saturating_mul(2));
        if self.reservation.resize(bytes) { Ok(()) } else { Err(BodyError::InFlightLimit) }
    }

    /// Adds a chunk of an uncompressed body.
    fn copy(&mut self, chunk: &[u8]) -> Result<(), BodyError> {
        let needed = self.out.len().saturating_add(chunk.len());
        if needed > self.max_size {
            return Err(BodyError::TooLarge { limit: self.max_size });
        }
        if needed > self.out.capacity() {
            let doubled = needed.max(self.out.capacity().saturating_mul(2));
            self.grow(match self.content_length {
                Some(length) if length <= TRUSTED_LENGTH => length.max(needed),
                Some(length) => doubled.max(TRUSTED_LENGTH).min(length.max(needed)),
                None => doubled.min(self.max_size),
            })?;
        }
        self.out.extend_from_slice(chunk);
        Ok(())
    }

    /// Grows the output to `capacity`, if the limit on bytes in flight allows it.
    fn grow(&mut self, capacity: usize) -> Result<(), BodyError> {
        self.charge(capacity)?;
        self.out
            .try_reserve_exact(capacity.saturating_sub(self.out.len()))
            .map_err(|_| BodyError::InFlightLimit)
    }

    /// Ensures free space in the output for a decompressor. One byte above the limit is allowed, to
    /// detect that more output follows.
    fn ensure_space(&mut self) -> Result<(), BodyError> {
        if self.out.len() > self.max_size {
            return Err(BodyError::TooLarge { limit: self.max_size });
        }
        if self.out.len() > MIN_RATIO_CHECKED
            && self.out.len() / self.received.max(1) >= self.max_ratio as usize
        {
            return Err(BodyError::DecompressionRatio { ratio: self.max_ratio });
        }
        if self.out.len() == self.out.capacity() {
            let first =
                self.content_length.unwrap_or(0).saturating_mul(4).clamp(MIN_OUTPUT_BYTES, TRUSTED_LENGTH);
            let next = self.out.capacity().saturating_mul(2).max(first);
            self.grow(next.min(self.max_size.saturating_add(1)))?;
        }
        Ok(())
    }

    fn inflate(&mut self, mut chunk: &[u8]) -> Result<(), BodyError> {
        loop {
            self.ensure_space()?;
            let Codec::Zlib { state, is_gzip, has_ended } = &mut self.codec else { return Ok(()) };
            if *has_ended {
                if chunk.is_empty() {
                    return Ok(());
                }
                // A gzip body may have several members; their contents are concatenated.
                if !*is_gzip {
                    return Err(malformed("bytes after the end of the zlib stream"));
                }
                **state = inflater(true);
                *has_ended = false;
            }
            let (read_before, written) = (state.total_in(), self.out.len());
            let status = state
                .decompress_vec(chunk, &mut self.out, FlushDecompress::None)
                .map_err(|e| malformed(format!("bad compressed data: {e}")))?;
            let read = usize::try_from(state.total_in() - read_before).unwrap_or(usize::MAX);
            chunk = chunk.get(read..).unwrap_or_default();
            match status {
                Status::StreamEnd => *has_ended = true,
                _ if read == 0 && self.out.len() == written => {
                    // No progress despite free space: more input is needed.
                    return if chunk.is_empty() { Ok(()) } else { Err(malformed("bad compressed data")) };
                }
                _ => {}
            }
        }
    }

    fn decompress_zstd(&mut self, chunk: &[u8]) -> Result<(), BodyError> {
        let mut input = InBuffer::around(chunk);
        loop {
            self.ensure_space()?;
            let Codec::Zstd { state, has_ended } = &mut self.codec else { return Ok(()) };
            let (read, written) = (input.pos(), self.out.len());
            let mut output = OutBuffer::around_pos(&mut self.out, written);
            let hint =
                state.run(&mut input, &mut output).map_err(|e| malformed(format!("bad zstd data: {e}")))?;
            let made_no_progress = input.pos() == read && self.out.len() == written;
            if !made_no_progress {
                *has_ended = hint == 0;
            }
            // If the output is full, the decoder may have more; otherwise it needs more input.
            if input.pos() == chunk.len() && (made_no_progress || self.out.len() < self.out.capacity()) {
                return Ok(());
            }
            if made_no_progress {
                return Err(malformed("bad zstd data"));
            }
        }
    }

    /// The message in an allocation of its exact size, and its reserved bytes.
    pub(crate) fn finish(mut self) -> Result<(Bytes, FairReservation), BodyError> {
        let is_complete = match self.codec {
            Codec::Identity => true,
            Codec::Zlib { has_ended, .. } | Codec::Zstd { has_ended, .. } => has_ended,
        };
        if !is_complete {
            return Err(malformed("the compressed data is cut off"));
        }
        if self.out.len() > self.max_size {
            return Err(BodyError::TooLarge { limit: self.max_size });
        }
        // Slices of the message may live as long as a trace, and would keep unused capacity in memory.
        self.out.shrink_to_fit();
        self.reservation.resize(self.overhead + self.out.len());
        Ok((Bytes::from(self.out), self.reservation))
    }
}

fn inflater(is_gzip: bool) -> Decompress {
    // 15 is the format's largest window (32 KiB).
    if is_gzip { Decompress::new_gzip(15) } else { Decompress::new(true) }
}

#[cfg(test)]
mod tests;
