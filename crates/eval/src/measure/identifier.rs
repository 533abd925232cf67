//! Names of functions and tools as words.

/// Characters of a name that are read.
const MAX_CHARS: usize = 128;

/// The words of an identifier in lower case: split at every character that is no letter or digit,
/// and where an upper-case letter follows a lower-case one (`visitPage`, `visit_page`, `visit-page`).
pub(crate) fn identifier_words(name: &str) -> Vec<String> {
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
