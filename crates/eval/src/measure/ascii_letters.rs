//! Runs of ASCII letters in texts, read eight bytes at a time.

/// Bytes that are classified at once.
pub(crate) const BLOCK: usize = 8;

/// The end of the run of ASCII letters that begins at `start`. Eight bytes are classified at once.
#[inline]
pub(crate) fn end_of_letters(bytes: &[u8], start: usize) -> usize {
    let mut end = start;
    while let Some(block) = block_at(bytes, end) {
        let letter_count = leading_letters(block);
        end += letter_count;
        if letter_count < BLOCK {
            return end;
        }
    }
    while bytes.get(end).is_some_and(u8::is_ascii_alphabetic) {
        end += 1;
    }
    end
}

/// The eight bytes from `start` as an integer, with the first byte as the lowest; `None` if fewer bytes are left.
#[inline]
pub(crate) fn block_at(bytes: &[u8], start: usize) -> Option<u64> {
    let block: [u8; BLOCK] = bytes.get(start..start + BLOCK)?.try_into().ok()?;
    Some(u64::from_le_bytes(block))
}

/// The number of ASCII letters at the beginning of a block.
#[inline]
pub(crate) fn leading_letters(block: u64) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x80 * ONES;
    // Without the highest bit of any byte, no sum carries into the next one.
    let lower = (block | (0x20 * ONES)) & !HIGH_BITS;
    let from_a = lower + u64::from(0x80 - b'a') * ONES;
    let after_z = lower + u64::from(0x7f - b'z') * ONES;
    // A byte above `z` has the high bit in both sums, so the exclusive or is set for letters alone.
    let non_letters = (!(from_a ^ after_z) | block) & HIGH_BITS;
    non_letters.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted_up_to_any_other_byte() {
        for other in (0..=255u8).filter(|byte| !byte.is_ascii_alphabetic()) {
            for length in 0..20 {
                let mut text = b"aZbYcXdWeVfUgThSiRjQ".to_vec();
                text[length] = other;
                assert_eq!(end_of_letters(&text, 0), length, "{other}");
            }
        }
        let end = |bytes: &[u8]| end_of_letters(bytes, 0);
        assert_eq!((end(b""), end(b"abc"), end(&[b'q'; 31])), (0, 3, 31));
    }
}
