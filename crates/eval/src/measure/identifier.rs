//! Names of functions and tools as words.

/// Characters of a name that are read.
const MAX_CHARS: usize = 128;

/// The words of an identifier in lower case: split at every character that is no letter or digit,
/// and where an upper-case letter follows a lower-case one (`visitPage`, `visit_page`, `visit-page`).
pub(crate) fn identifier_words(name: &str) -> Vec<String> {
    if name.is_ascii() {
        return ascii_words(name.get(..MAX_CHARS).unwrap_or(name).as_bytes());
    }
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars().take(MAX_CHARS) {
        if !c.is_alphanumeric() || after_lower && c.is_uppercase() {
            words.push(String::new());
        }
        after_lower = c.is_lowercase();
        match words.last_mut() {
            Some(word) if c.is_ascii_alphanumeric() => word.push(c.to_ascii_lowercase()),
            Some(word) if c.is_alphanumeric() => word.extend(c.to_lowercase()),
            _ => {}
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The same for a name in ASCII, as nearly all are.
fn ascii_words(name: &[u8]) -> Vec<String> {
    let begins = |pair: &[u8]| matches!(pair, [before, after] if before.is_ascii_lowercase() && after.is_ascii_uppercase());
    let mut words = Vec::with_capacity(4);
    for part in name.split(|byte| !byte.is_ascii_alphanumeric()) {
        let mut rest = part;
        while !rest.is_empty() {
            let end = rest.windows(2).position(begins).map_or(rest.len(), |at| at + 1);
            let (word, after) = rest.split_at(end);
            words.extend(String::from_utf8(word.to_ascii_lowercase()));
            rest = after;
        }
    }
    words
}
