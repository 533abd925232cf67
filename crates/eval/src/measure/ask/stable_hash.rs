//! A hash that is the same in every process and version: for fences, which must be equal in a
//! repeated prompt, and for sampling, which must choose the same traces everywhere.
//!
//! The hash is not cryptographic. Fences do not need a cryptographic hash: a mark that occurs in the content is
//! never used.

/// FNV-1a over 64 bits, then mixed, so that similar inputs have very different hashes.
pub(crate) fn stable_hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = OFFSET;
    for part in parts {
        for byte in part {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
        // Separates the parts.
        hash = (hash ^ 0xff).wrapping_mul(PRIME);
    }
    mix(hash)
}

/// The hash of a text, by which repetitions are recognised. A collision of the 64-bit hashes would leave one text out
/// of one prompt.
pub(crate) fn text_hash(text: &str) -> u64 {
    stable_hash([text.trim().as_bytes()])
}

/// Mixes the bits of a number with the finalizer of SplitMix64.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The hash as a number in [0, 1), evenly distributed.
pub(crate) fn unit_fraction(hash: u64) -> f64 {
    // 53 bits fit a double exactly.
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_stable() {
        // A change of the hash would change every prompt and every sample.
        assert_eq!(stable_hash([&b"otel-verdict"[..]]), 0x30b3_9ad2_a821_71f7);
        assert_ne!(stable_hash([&b"ab"[..], b"c"]), stable_hash([&b"a"[..], b"bc"]));
    }

    #[test]
    fn shares_are_evenly_distributed() {
        let below =
            (0u64..10_000).filter(|i| unit_fraction(stable_hash([&i.to_be_bytes()[..]])) < 0.3).count();
        assert!((2_800..3_200).contains(&below), "{below}");
    }
}
