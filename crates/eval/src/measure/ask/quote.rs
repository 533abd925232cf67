//! Verifies quotations.
//!
//! In: a quotation and the content shown. Out: whether the content contains it, ignoring
//! whitespace, which models change when they copy.

/// Texts without whitespace, to search for quotations.
pub(crate) struct QuotableText(String);

/// Minimum characters of a quotation that is not a whole text: shorter ones occur anywhere.
const MIN_CHARS: usize = 3;

impl QuotableText {
    /// Concatenates the texts.
    pub(crate) fn from_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> QuotableText {
        let mut out = String::new();
        for text in texts {
            out.extend(without_whitespace(text));
            // The separator keeps quotations from spanning two texts.
            out.push('\n');
        }
        QuotableText(out)
    }

    /// Whether a text contains the quotation.
    pub(crate) fn contains_quote(&self, quote: &str) -> bool {
        let wanted: String = without_whitespace(without_ellipses(quote)).collect();
        if wanted.is_empty() {
            return false;
        }
        if wanted.chars().count() < MIN_CHARS {
            return self.0.split('\n').any(|text| text == wanted);
        }
        memchr::memmem::find(self.0.as_bytes(), wanted.as_bytes()).is_some()
    }
}

fn without_whitespace(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| !c.is_whitespace())
}

/// The quotation without ellipses at its ends, which judges add.
fn without_ellipses(quote: &str) -> &str {
    quote.trim().trim_start_matches("...").trim_end_matches("...").trim_matches('…').trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_compared_without_white_space() {
        let content = QuotableText::from_texts(["{\"city\":\n  \"Bern\"}", "The  answer is\t42."]);
        assert!(content.contains_quote("{\"city\": \"Bern\"}"));
        assert!(content.contains_quote("answer is 42"));
        assert!(content.contains_quote("...The answer…"));
        for invented in ["answer is 43", "\"Bern\"} The", "", "  ", "...", "42 answer"] {
            assert!(!content.contains_quote(invented), "{invented}");
        }
    }

    #[test]
    fn short_quotation_must_be_a_whole_text() {
        let content = QuotableText::from_texts(["a long text", "{}"]);
        assert!(content.contains_quote("{}") && !content.contains_quote("a"));
    }
}
