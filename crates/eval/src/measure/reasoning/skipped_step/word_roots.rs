//! The comparison of words without their endings.
//!
//! In: two words. Out: whether they have the same root or the same beginning.

/// Bytes of the root of a long word, by which words are compared: "verified", `verify_otp`.
const ROOT_BYTES: usize = 5;

/// The root of a word, and whether the word is long: the first [`ROOT_BYTES`] bytes of a long word, or the whole word.
pub(super) fn root(word: &str) -> (bool, &str) {
    let is_long = word.len() >= ROOT_BYTES;
    let end = if is_long { word.floor_char_boundary(ROOT_BYTES) } else { word.len() };
    (is_long, word.get(..end).unwrap_or(word))
}

pub(in super::super) fn have_same_root(one: &str, other: &str) -> bool {
    root(one) == root(other)
}

/// Whether two words have the same beginning, as "verified" and "verify" have.
pub(super) fn have_same_beginning(one: &str, other: &str) -> bool {
    let length = one.len().min(other.len()).saturating_sub(1).max(4);
    one.get(..length).is_some_and(|begin| other.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_alike_by_whole_characters() {
        assert!(!have_same_root("straße", "größe") && !have_same_root("größe", "straße"));
        assert!(
            have_same_root("straßen", "straße")
                && have_same_root("verified", "verify")
                && have_same_root("id", "id")
        );
        assert!(!have_same_root("id", "idea") && !have_same_root("stra", "straße"));
    }
}
