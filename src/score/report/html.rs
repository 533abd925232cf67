//! HTML that cannot be broken out of.
//!
//! In: markup that stands in our source, texts from anywhere, numbers. Out: a document. Texts of
//! traces are hostile: markup is `&'static str`, everything else goes through [`Html::text`], so
//! that nothing reaches the page unescaped by a slip.

/// A piece of a document.
#[derive(Clone, Debug, Default)]
pub struct Html(String);

impl Html {
    /// Markup of ours.
    pub fn raw(&mut self, markup: &'static str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Any text, also within an attribute in quotes.
    pub fn text(&mut self, text: &str) -> &mut Html {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                // Controls, and marks that turn the direction of what stands after them.
                c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                    self.0.push('\u{fffd}');
                }
                c => self.0.push(c),
            }
        }
        self
    }

    /// A number with so many decimals.
    pub fn number(&mut self, number: f64, decimals: usize) -> &mut Html {
        self.0.push_str(&format!("{number:.decimals$}"));
        self
    }

    /// A count.
    pub fn count(&mut self, count: usize) -> &mut Html {
        self.0.push_str(&count.to_string());
        self
    }

    /// Another piece.
    pub fn append(&mut self, piece: &Html) -> &mut Html {
        self.0.push_str(&piece.0);
        self
    }

    /// The markup.
    pub fn into_string(self) -> String {
        self.0
    }
}

/// At most `chars` characters of `text`, and a sign where more was there.
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
    fn text_cannot_become_markup() {
        let mut html = Html::default();
        html.raw("<p title=\"").text("\" onload='x' <script>alert(1)</script> &amp; \u{202e}\u{0}\u{1b}[2J");
        let out = html.into_string();
        let (_, text) = out.split_once('"').unwrap();
        assert!(!text.contains(['<', '>', '"', '\'', '\u{202e}', '\u{0}', '\u{1b}']), "{text}");
        assert!(text.contains("&lt;script&gt;") && text.contains("&amp;amp;"), "{text}");
    }

    #[test]
    fn clipping_keeps_characters_whole() {
        assert_eq!(clip("äöü", 2), "äö…");
        assert_eq!(clip("äöü", 3), "äöü");
    }
}
