//! Splits a transcript that is longer than a prompt into overlapping parts.
//!
//! In: blocks and the bytes that fit into one prompt. Out: parts that fit and together contain
//! every block; each begins with the end of the previous one, so that adjacent content is seen
//! together at least once.

use std::collections::{HashSet, VecDeque};

use super::prompt_page::PromptBlock;
use crate::measure::defects::{clip, clip_end};

/// A part overlaps the previous one by 1/`OVERLAP` of its size.
const OVERLAP: usize = 10;
/// Bytes by which pieces of one text overlap: more than the longest quotation.
const PIECE_OVERLAP_BYTES: usize = 400;
/// Maximum number of spans of one part: servers limit the number of values of an enumeration.
pub(crate) const MAX_SPANS: usize = 200;
/// Maximum number of parts of one transcript. If it would need more (beyond a million tokens), its texts are
/// shortened, the longest first, and no span is left out.
pub(crate) const MAX_PARTS: usize = 64;
/// Bytes of a block in addition to text and label: the rest of its heading, and the span's id in the schema.
pub(crate) const HEADING_BYTES: usize = 110;

/// Bytes of a block in a prompt.
pub(crate) fn block_bytes(block: &PromptBlock) -> usize {
    block.text.len() + block.label.len() + HEADING_BYTES
}

/// Bytes to which texts must be cut so that a transcript fits into [`MAX_PARTS`].
pub(crate) fn max_text_length(lengths: &[usize], max_bytes: usize) -> usize {
    let space = max_bytes.saturating_mul(MAX_PARTS) / 10 * 8;
    let fits = |max_length: usize| {
        lengths.iter().map(|&n| n.min(max_length) + HEADING_BYTES).sum::<usize>() <= space
    };
    let (mut low, mut high) = (256, lengths.iter().copied().max().unwrap_or(0).max(256));
    if fits(high) {
        return usize::MAX;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Splits a transcript; one part if everything fits.
pub(crate) fn split_into_parts(blocks: Vec<PromptBlock>, max_bytes: usize) -> Vec<Vec<PromptBlock>> {
    let overlap = max_bytes / OVERLAP;
    let mut pending: VecDeque<PromptBlock> =
        blocks.into_iter().flat_map(|block| split_block(block, max_bytes * 6 / 10)).collect();
    let mut parts = Vec::new();
    let mut part: Vec<PromptBlock> = Vec::new();
    let mut used_bytes = 0;
    let mut spans = HashSet::new();
    // Blocks of this part that are not repeated from the previous one.
    let mut new_blocks = 0;
    while let Some(block) = pending.pop_front() {
        let is_included = block.span.is_none_or(|(span_index, _)| spans.contains(&span_index));
        let is_full =
            used_bytes + block_bytes(&block) > max_bytes || !is_included && spans.len() >= MAX_SPANS;
        if is_full && new_blocks > 0 {
            let tail = overlap_blocks(&part, overlap);
            parts.push(std::mem::take(&mut part));
            used_bytes = tail.iter().map(block_bytes).sum();
            spans = tail.iter().filter_map(|b| b.span).map(|(span_index, _)| span_index).collect();
            part = tail;
            new_blocks = 0;
        }
        used_bytes += block_bytes(&block);
        spans.extend(block.span.map(|(span_index, _)| span_index));
        part.push(block);
        new_blocks += 1;
    }
    if new_blocks > 0 || parts.is_empty() {
        parts.push(part);
    }
    parts
}

/// The last blocks of a part, the first of them shortened to its end if it is long.
fn overlap_blocks(part: &[PromptBlock], limit: usize) -> Vec<PromptBlock> {
    let mut out = VecDeque::new();
    let mut remaining = limit;
    for block in part.iter().rev() {
        if block_bytes(block) <= remaining && out.len() < MAX_SPANS / OVERLAP {
            remaining -= block_bytes(block);
            out.push_front(block.clone());
            continue;
        }
        let max_bytes = remaining.saturating_sub(block.label.len() + HEADING_BYTES);
        if out.is_empty() && max_bytes > PIECE_OVERLAP_BYTES {
            let text = clip_end(&block.text, max_bytes).to_owned();
            out.push_front(PromptBlock {
                label: format!("{}, its end again", block.label),
                text,
                ..block.clone()
            });
        }
        break;
    }
    out.into()
}

/// Splits a block whose text is too long for one part.
fn split_block(block: PromptBlock, max_bytes: usize) -> Vec<PromptBlock> {
    let max_bytes = max_bytes.max(2 * PIECE_OVERLAP_BYTES + 200);
    if block.text.len() <= max_bytes {
        return vec![block];
    }
    let mut out = Vec::new();
    let mut rest = block.text.as_str();
    while !rest.is_empty() {
        let piece = clip(rest, max_bytes);
        let label = format!("{}, piece {}", block.label, out.len() + 1);
        out.push(PromptBlock { label, text: piece.to_owned(), ..block.clone() });
        if piece.len() == rest.len() {
            break;
        }
        let mut next = piece.len() - PIECE_OVERLAP_BYTES;
        while !rest.is_char_boundary(next) {
            next -= 1;
        }
        rest = rest.get(next..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::measure::Shows;
    use verdict_otlp::trace::SpanId;

    fn block(span_index: usize, text: String) -> PromptBlock {
        PromptBlock {
            span: Some((span_index, SpanId((span_index as u64 + 1).to_be_bytes()))),
            label: "output".into(),
            text,
            is_binding: false,
            is_plan: false,
            shows: Shows::default(),
        }
    }

    #[test]
    fn transcript_that_fits_is_one_part() {
        let blocks: Vec<PromptBlock> = (0..5).map(|i| block(i, "x".repeat(100))).collect();
        assert_eq!(split_into_parts(blocks.clone(), 10_000), [blocks]);
        assert_eq!(split_into_parts(Vec::new(), 10_000), [Vec::new()]);
    }

    #[test]
    fn part_begins_with_the_end_of_the_previous_one() {
        let blocks: Vec<PromptBlock> = (0..40).map(|i| block(i, format!("{i:04}").repeat(40))).collect();
        let parts = split_into_parts(blocks, 3_000);
        assert!(parts.len() > 3);
        for pair in parts.windows(2) {
            assert_eq!(pair[0].last(), pair[1].first());
        }
    }

    #[test]
    fn texts_are_shortened_only_beyond_the_maximum_of_parts() {
        assert_eq!(max_text_length(&[1_000; 100], 72_000), usize::MAX);
        let max_length = max_text_length(&[10_000_000, 1_000], 72_000);
        assert!((3_000_000..4_000_000).contains(&max_length), "{max_length}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn parts_contain_every_text_and_fit_into_a_prompt(
            lengths in prop::collection::vec(0usize..6_000, 1..10),
            max_bytes in 3_000usize..12_000,
        ) {
            // Words are numbered, so that pieces differ.
            let words = |i: usize, n: usize| (0..n / 8).map(|w| format!("{i:03}-{w:03} ")).collect::<String>();
            let blocks: Vec<PromptBlock> = lengths.iter().enumerate().map(|(i, &n)| block(i, words(i, n))).collect();
            let parts = split_into_parts(blocks.clone(), max_bytes);
            for part in &parts {
                prop_assert!(part.iter().map(block_bytes).sum::<usize>() <= max_bytes);
            }
            for wanted in &blocks {
                for word in wanted.text.split_inclusive(' ') {
                    let is_included = parts.iter().flatten().any(|b| b.span == wanted.span && b.text.contains(word));
                    prop_assert!(is_included, "{}", word);
                }
            }
        }
    }
}
