//! Spans of idle traces, compressed.
//!
//! An agent's model calls repeat the conversation so far, so that most bytes of an open run occur in it several times.
//! A trace without spans for [`IDLE_TIME`] that does not close soon is stored as zstd blocks. The bytes of
//! its spans are restored when they are read: when the trace closes, is previewed, or receives a span whose id is
//! known. The memory budget is charged as if nothing were compressed, since all open traces may close at once.
//!
//! In: the spans of one trace, in order of arrival. Out: the same spans without their bytes, and blocks.

use std::time::Duration;

use bytes::Bytes;
use verdict_otlp::trace::Span;

/// Time without spans: twice the time for which SDKs batch.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(10);
/// A trace that closes within this time if nothing arrives is not compressed.
pub(super) const MIN_REMAINING_TIME: Duration = Duration::from_secs(10);
/// Maximum bytes of a block: compressing them takes some milliseconds. A larger span is not compressed.
const MAX_BLOCK_BYTES: usize = 1 << 20;
/// Minimum bytes of a block. Fewer bytes are not compressed.
const MIN_BLOCK_BYTES: usize = 4 << 10;
/// The last block is compressed again when the new spans have at least its size divided by this number: a long run is
/// then compressed a few times, and not with every new span.
const RECOMPRESSION_DIVISOR: usize = 4;
/// The compression level: the fastest whose window contains the conversation of an earlier call.
const ZSTD_LEVEL: i32 = 1;
/// Bytes of the length field of a span in a block.
const LENGTH_FIELD_BYTES: usize = size_of::<u32>();

/// The bytes of consecutive spans.
#[derive(Debug)]
struct CompressedBlock {
    spans: usize,
    /// The lengths of the spans, and then their bytes; `None` for a span that is not compressed.
    compressed: Option<Box<[u8]>>,
    /// Size before compression.
    size: usize,
}

/// The bytes of the first spans of a trace.
#[derive(Debug, Default)]
pub(super) struct CompressedSpans {
    blocks: Vec<CompressedBlock>,
    /// Spans of all blocks.
    spans: usize,
}

/// A block that cannot be read: memory was damaged, or there is a bug.
#[derive(Debug, thiserror::Error)]
#[error("a block is damaged")]
struct Damaged;

impl CompressedSpans {
    /// Whether this span is in a block.
    pub(super) fn contains(&self, span: usize) -> bool {
        span < self.spans
    }

    /// Compresses spans of about `target_bytes` bytes that are in no block yet, and returns how many bytes were
    /// compressed: fewer if no more spans are left.
    pub(super) fn compress(&mut self, spans: &mut [Span], target_bytes: usize) -> usize {
        let mut compressed_bytes = 0;
        while compressed_bytes < target_bytes
            && let Some(size) = self.add_block(spans)
        {
            compressed_bytes += size;
        }
        compressed_bytes
    }

    /// Adds a block of the next spans, or adds them to the last block, and returns the number of compressed bytes;
    /// `None` if too few spans are left.
    fn add_block(&mut self, spans: &mut [Span]) -> Option<usize> {
        let uncompressed = spans.get_mut(self.spans..)?;
        let (mut size, mut count) = (0, 0);
        for span in &*uncompressed {
            let length = span.bytes.len() + LENGTH_FIELD_BYTES;
            if size + length > MAX_BLOCK_BYTES {
                break;
            }
            size += length;
            count += 1;
        }
        if count == 0 && !uncompressed.is_empty() {
            self.blocks.push(CompressedBlock { spans: 1, compressed: None, size: 0 });
            self.spans += 1;
            return Some(0);
        }
        let last = self
            .blocks
            .last()
            .filter(|last| last.compressed.is_some() && last.size + size <= MAX_BLOCK_BYTES);
        let (spans_before, mut raw) = match last {
            Some(last) if size < last.size / RECOMPRESSION_DIVISOR => return None,
            Some(last) => (last.spans, last.read().ok()?),
            None if size < MIN_BLOCK_BYTES => return None,
            None => (0, Vec::with_capacity(size)),
        };
        let added = uncompressed.get_mut(..count)?;
        let lengths_end = spans_before * LENGTH_FIELD_BYTES;
        raw.splice(
            lengths_end..lengths_end,
            added.iter().flat_map(|span| (span.bytes.len() as u32).to_le_bytes()),
        );
        added.iter().for_each(|span| raw.extend_from_slice(&span.bytes));
        // If compression fails for lack of memory, the spans remain as they are.
        let compressed = zstd::bulk::compress(&raw, ZSTD_LEVEL).ok()?.into_boxed_slice();
        if spans_before > 0 {
            self.blocks.pop();
        }
        self.blocks.push(CompressedBlock {
            spans: spans_before + count,
            compressed: Some(compressed),
            size: raw.len(),
        });
        self.spans += count;
        added.iter_mut().for_each(|span| span.bytes = Bytes::new());
        Some(raw.len())
    }

    /// Restores the bytes of all spans and removes the blocks, which remain if one of them is damaged.
    pub(super) fn expand(&mut self, spans: &mut [Span]) {
        if self.fill(spans).is_ok() {
            *self = CompressedSpans::default();
        }
    }

    /// The spans with their bytes. Spans of a damaged block are left out.
    pub(super) fn restore(&self, mut spans: Vec<Span>) -> Vec<Span> {
        if let Err(error) = self.fill(&mut spans) {
            spans.retain(|span| !span.bytes.is_empty());
            tracing::error!(%error, "spans of an open trace cannot be decompressed and are lost. This is a bug");
        }
        spans
    }

    /// Gives the spans of all blocks their bytes; fails at the first damaged block.
    fn fill(&self, spans: &mut [Span]) -> Result<(), Damaged> {
        let mut remaining = spans;
        for block in &self.blocks {
            let (block_spans, after) = remaining.split_at_mut_checked(block.spans).ok_or(Damaged)?;
            remaining = after;
            if block.compressed.is_none() {
                continue;
            }
            let raw = Bytes::from(block.read()?);
            let mut start = block.spans * LENGTH_FIELD_BYTES;
            for (span, length) in block_spans.iter_mut().zip(raw.chunks_exact(LENGTH_FIELD_BYTES)) {
                let length: [u8; LENGTH_FIELD_BYTES] = length.try_into().map_err(|_| Damaged)?;
                let end = start.saturating_add(u32::from_le_bytes(length) as usize);
                if end > raw.len() {
                    return Err(Damaged);
                }
                span.bytes = raw.slice(start..end);
                start = end;
            }
        }
        Ok(())
    }
}

impl CompressedBlock {
    fn read(&self) -> Result<Vec<u8>, Damaged> {
        let compressed = self.compressed.as_deref().unwrap_or_default();
        let raw = zstd::bulk::decompress(compressed, self.size).map_err(|_| Damaged)?;
        if raw.len() == self.size { Ok(raw) } else { Err(Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(bytes: Vec<u8>) -> Span {
        Span { bytes: bytes.into(), ..super::super::tests::span(1, 0) }
    }

    fn contents(spans: &[Span]) -> Vec<Bytes> {
        spans.iter().map(|span| span.bytes.clone()).collect()
    }

    /// Bytes that do not repeat.
    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let next =
            |state: &u64| Some(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f));
        std::iter::successors(Some(seed), next).map(|state| (state >> 56) as u8).take(length).collect()
    }

    #[test]
    fn a_growing_conversation_takes_little_and_is_compressed_few_times() {
        let mut spans: Vec<Span> = Vec::new();
        let (mut compressed, mut compressed_bytes_in_all) = (CompressedSpans::default(), 0);
        let mut conversation = Vec::new();
        for call in 0..60 {
            conversation.extend(noise(call, 1_000));
            spans.push(span(conversation.clone()));
            compressed_bytes_in_all += compressed.compress(&mut spans, usize::MAX);
        }
        let all: usize = (1..=60).map(|calls| calls * 1_000).sum();
        let compressed_bytes: usize =
            compressed.blocks.iter().filter_map(|block| Some(block.compressed.as_ref()?.len())).sum();
        let uncompressed: usize = spans.iter().map(|span| span.bytes.len()).sum();
        assert!(
            compressed_bytes * 8 < all && uncompressed * RECOMPRESSION_DIVISOR < all,
            "{compressed_bytes} and {uncompressed} of {all}"
        );
        assert!(compressed_bytes_in_all < (RECOMPRESSION_DIVISOR + 2) * all, "{compressed_bytes_in_all}");
    }

    #[test]
    fn small_traces_and_huge_spans_remain_as_they_are() {
        let mut spans = vec![span(vec![1; 100])];
        let mut compressed = CompressedSpans::default();
        assert_eq!(compressed.compress(&mut spans, usize::MAX), 0);
        assert!(!compressed.contains(0) && spans[0].bytes.len() == 100);
        let mut spans = vec![span(vec![1; 10_000]), span(vec![2; MAX_BLOCK_BYTES]), span(vec![3; 10_000])];
        let before = contents(&spans);
        compressed.compress(&mut spans, usize::MAX);
        assert_eq!(contents(&spans).iter().map(Bytes::len).collect::<Vec<_>>(), [0, MAX_BLOCK_BYTES, 0]);
        assert_eq!(contents(&compressed.restore(spans)), before);
    }

    #[test]
    fn bytes_compressed_by_one_call_are_bounded() {
        let mut spans: Vec<Span> = (0..64).map(|n| span(noise(n, 100_000))).collect();
        let mut compressed = CompressedSpans::default();
        let done = compressed.compress(&mut spans, MAX_BLOCK_BYTES);
        assert!(done < 2 * MAX_BLOCK_BYTES, "{done}");
        assert!(compressed.contains(0) && !compressed.contains(40));
    }

    #[test]
    fn a_damaged_block_loses_its_spans_and_no_other_one() {
        let mut spans = vec![span(vec![1; 10_000])];
        let mut compressed = CompressedSpans::default();
        compressed.compress(&mut spans, usize::MAX);
        spans.push(span(vec![2; 10]));
        compressed.blocks[0].compressed = Some(Box::new([1, 2, 3]));
        compressed.expand(&mut spans);
        assert!(compressed.contains(0));
        assert_eq!(contents(&compressed.restore(spans)), [Bytes::from(vec![2; 10])]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Spans that arrive and are compressed in any order keep their bytes.
        #[test]
        fn spans_get_their_bytes_back(steps in prop::collection::vec((0usize..40_000, 0u64..4, any::<bool>()), 1..40)) {
            let (mut spans, mut expected) = (Vec::new(), Vec::new());
            let mut compressed = CompressedSpans::default();
            for (length, seed, is_compressed) in steps {
                let bytes = noise(seed, length + 1);
                expected.push(Bytes::from(bytes.clone()));
                spans.push(span(bytes));
                if is_compressed {
                    compressed.compress(&mut spans, 1 << 16);
                }
            }
            prop_assert_eq!(&contents(&compressed.restore(spans.clone())), &expected);
            compressed.expand(&mut spans);
            prop_assert!(!compressed.contains(0));
            prop_assert_eq!(contents(&spans), expected);
        }
    }
}
