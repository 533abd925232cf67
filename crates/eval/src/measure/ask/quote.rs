//! Whether a quotation is where it is said to be.
//!
//! In: what a judge quotes and what it was shown. Out: yes or no. White space is not compared: it
//! is lost and added wherever models copy. Everything else must be there, in one stretch.

/// A text without white space, to look quotations up in.
pub struct Quotable(String);

/// Characters that a quotation must have at least, unless it is the whole content: shorter ones
/// are found anywhere.
const LEAST: usize = 3;

impl Quotable {
    /// Of the texts, one after the other.
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Quotable {
        let mut out = String::new();
        for text in texts {
            out.extend(bare(text));
            // No quotation reaches from one text into the next.
            out.push('\n');
        }
        Quotable(out)
    }

    /// Whether the quotation stands in it.
    pub fn holds(&self, quote: &str) -> bool {
        let wanted: String = bare(trimmed(quote)).collect();
        if wanted.is_empty() {
            return false;
        }
        if wanted.chars().count() < LEAST {
            return self.0.split('\n').any(|text| text == wanted);
        }
        memchr::memmem::find(self.0.as_bytes(), wanted.as_bytes()).is_some()
    }
}

fn bare(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| !c.is_whitespace())
}

/// Without marks of omission at its ends, which are the judge's.
fn trimmed(quote: &str) -> &str {
    quote.trim().trim_start_matches("...").trim_end_matches("...").trim_matches('…').trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_not_compared_and_everything_else_is() {
        let content = Quotable::of(["{\"city\":\n  \"Bern\"}", "The  answer is\t42."]);
        assert!(content.holds("{\"city\": \"Bern\"}"));
        assert!(content.holds("answer is 42"));
        assert!(content.holds("...The answer…"));
        for invented in ["answer is 43", "\"Bern\"} The", "", "  ", "...", "42 answer"] {
            assert!(!content.holds(invented), "{invented}");
        }
    }

    #[test]
    fn a_letter_or_two_prove_nothing_unless_they_are_all_there_is() {
        let content = Quotable::of(["a long text", "{}"]);
        assert!(content.holds("{}") && !content.holds("a"));
    }
}
