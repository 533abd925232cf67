//! Escaped HTML.
//!
//! In: markup from the source code, texts from any origin, numbers. Out: a document. Texts of traces are
//! untrusted: only `&'static str` is written as markup, every other text passes through [`Html::text`],
//! which escapes it.

use crate::plain_text::is_hidden;

/// A part of a document.
#[derive(Clone, Debug, Default)]
pub struct Html(String);

impl Html {
    /// Writes markup without escaping.
    pub fn raw(&mut self, markup: &'static str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Writes escaped text, also inside a quoted attribute.
    pub fn text(&mut self, text: &str) -> &mut Html {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                // Control characters, and marks that change the direction of the following text.
                c if is_hidden(c) => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        self
    }

    /// Writes markup with numbers: each `{n}` is replaced by the next of `numbers` with `n` decimals.
    pub fn numbers(&mut self, markup: &'static str, numbers: &[f64]) -> &mut Html {
        let mut parts = markup.split('{');
        self.raw(parts.next().unwrap_or_default());
        for (part, number) in parts.zip(numbers) {
            let (decimals, rest) = part.split_once('}').unwrap_or(("0", part));
            let decimals = decimals.parse().unwrap_or(0);
            self.0.push_str(&format!("{number:.decimals$}{rest}"));
        }
        self
    }

    pub fn count(&mut self, count: usize) -> &mut Html {
        self.0.push_str(&count.to_string());
        self
    }

    pub fn append(&mut self, part: &Html) {
        self.0.push_str(&part.0);
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

/// The first `chars` characters of `text`, with an ellipsis if it is longer.
pub fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut html = Html::default();
        html.raw("<p title=\"").text("\" onload='x' <script>alert(1)</script> &amp; \u{202e}\u{0}\u{1b}[2J");
        let out = html.into_string();
        let (_, text) = out.split_once('"').unwrap();
        assert!(!text.contains(['<', '>', '"', '\'', '\u{202e}', '\u{0}', '\u{1b}']), "{text}");
        assert!(text.contains("&lt;script&gt;") && text.contains("&amp;amp;"), "{text}");
    }

    #[test]
    fn clip_cuts_between_characters() {
        assert_eq!(clip("äöü", 2), "äö…");
        assert_eq!(clip("äöü", 3), "äöü");
    }
}
