//! Recognises the characters in texts of traces that change how the text around them is displayed.

/// Whether `c` is a control character, or a mark that changes the direction of other text.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
